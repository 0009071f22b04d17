"""promptfooconfig.yaml as prompt, rows and reward."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from whet.errors import UsageError
from whet.task import promptfoo_reward
from whet.task.files import read_text, shown
from whet.task.material import Material, delimited

KINDS = (
    *("equals", "iequals", "contains", "icontains", "contains-any", "icontains-any", "contains-all"),
    *("icontains-all", "starts-with", "regex", "is-json", "contains-json"),
)
"""Assertions that need no other program; each also with `not-` before it."""
_BLOCK = re.compile(r"\{%[^%]*%\}|\{\{[^{}|.(\[]*[|.(\[][^}]{0,500}\}\}")


def read_promptfoo(path: Path) -> Material:
    """The first prompt, the tests as rows, their assertions as target and reward.

    Raises UsageError for a file that is no such configuration, a template that is more than slots, and tests of which no
    assertion can be checked without another program.
    """
    try:
        config = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())}. Correct it.") from None
    if not isinstance(config, Mapping) or "tests" not in config or "prompts" not in config:
        raise UsageError(f"{path}: no configuration of promptfoo: the keys prompts and tests are missing.")
    prompts = [_prompt(item, path) for item in _list(config["prompts"])]
    if not prompts:
        raise UsageError(f"{path}: `prompts` is empty. Write at least one.")
    notes = [f"the first of {len(prompts)} prompts"] if len(prompts) > 1 else []
    base = config.get("defaultTest") if isinstance(config.get("defaultTest"), Mapping) else {}
    rows: list[dict[str, Any]] = []
    left_out = Counter[str]()
    for test in _tests(config["tests"], path):
        rows += _rows(test, base or {}, path, left_out)
    kept = [row for row in rows if row["assert"]]
    if left_out:
        named = ", ".join(f"{count} {kind}" for kind, count in left_out.most_common())
        notes.append(f"left out, for they need another program or a model: {named}")
    if not kept:
        raise UsageError(
            f"{path}: no test has an assertion that whet can check ({', '.join(KINDS[:4])}, ...). "
            "Add such assertions, or begin from the rows (--from tests.csv) with --reward reward.py."
        )
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} tests without such an assertion are left out")
    return _graded(prompts[0], kept, notes)


def _graded(prompt: str, rows: list[dict[str, Any]], notes: list[str]) -> Material:
    """A target and a named reward where every row asserts one thing of one kind, else the assertions themselves."""
    kinds = {row["assert"][0]["type"] if len(row["assert"]) == 1 else "" for row in rows}
    named = {"equals": {"exact_match": {"strict": True}}, "iequals": "exact_match", "icontains": "contains"}
    named["contains"] = {"contains": {"strict": True}}
    (kind,) = kinds if len(kinds) == 1 else ("",)
    if kind not in named:
        files = {"reward.py": inspect.getsource(promptfoo_reward).encode()}
        notes.append("reward.py checks the assertions of each row: the share that holds")
        return Material({"": rows}, prompt, "reward.py", files, notes, columns=False)
    one = [{**row, "target": row["assert"][0].get("value")} for row in rows]
    plain = [{key: value for key, value in row.items() if key != "assert"} for row in one]
    return Material({"": plain}, prompt, named[kind], {}, notes, columns=False)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _prompt(item: Any, path: Path) -> str:
    text = (
        item
        if isinstance(item, str)
        else item.get("raw", item.get("id"))
        if isinstance(item, Mapping)
        else None
    )
    if not isinstance(text, str):
        raise UsageError(f"{path}: a prompt must be a text or a file://; this is {shown(item)}.")
    file = _file(text, path)
    if file is not None and file.suffix in (".py", ".js", ".ts", ".mjs"):
        raise UsageError(f"{path}: the prompt {text} is a program. Write it as a text with slots.")
    text = text if file is None else read_text(file, str(path))
    block = _BLOCK.search(text)
    if block is not None:
        raise UsageError(
            f"{file or path}: the prompt computes something ({shown(block.group(), 40)}); whet fills plain slots, "
            "{{name}}. Write the result, or a slot for it."
        )
    return text


def _file(text: str, path: Path) -> Path | None:
    """The file that a text names."""
    if text.startswith("file://"):
        return path.parent / text.removeprefix("file://")
    near = path.parent / text if len(text) < 200 and "\n" not in text and "{{" not in text else None
    return near if near is not None and near.is_file() else None


def _tests(value: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    """Tests, those of named files too; a table has a test in each row and its assertions in `__expected`."""
    for item in _list(value):
        if isinstance(item, Mapping):
            yield item
            continue
        file = _file(item, path) if isinstance(item, str) else None
        if file is None:
            raise UsageError(f"{path}: a test must be a mapping or a file; this is {shown(item)}.")
        if file.suffix in (".csv", ".tsv"):
            yield from map(_table_row, delimited(file)[0])
        elif file.suffix in (".yaml", ".yml", ".json"):
            yield from _tests(yaml.safe_load(read_text(file, str(path))), file)
        else:
            raise UsageError(
                f"{path}: tests in {file.name} cannot be read. Name a .csv, .yaml or .json file."
            )


def _table_row(cells: Mapping[str, str]) -> dict[str, Any]:
    checks = []
    for name in (name for name in cells if name.startswith("__expected") and cells[name]):
        kind, colon, value = cells[name].partition(":")
        known = colon and kind.removeprefix("not-") in KINDS
        checks.append(
            {"type": kind, "value": value.strip()} if known else {"type": "equals", "value": cells[name]}
        )
    return {"vars": {k: v for k, v in cells.items() if not k.startswith("__")}, "assert": checks}


def _rows(
    test: Mapping[str, Any], base: Mapping[str, Any], path: Path, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """The rows of a test: one for each combination of the values of its variables."""
    values = {**(base.get("vars") or {}), **(test.get("vars") or {})}
    checks = []
    for check in (*_list(base.get("assert")), *_list(test.get("assert"))):
        kind = str(check.get("type")) if isinstance(check, Mapping) else "?"
        if kind.removeprefix("not-") not in KINDS or "file://" in str(check.get("value")):
            left_out[kind] += 1
        else:
            checks.append({key: check[key] for key in ("type", "value", "weight") if key in check})
    choices = [[(name, one) for one in _list(value)] for name, value in values.items()]
    for chosen in itertools.product(*choices):
        known = {name: _value(one, path) for name, one in chosen}
        yield {"input": known, "assert": [{**one, **_filled(one, known)} for one in checks]}


def _value(value: Any, path: Path) -> str:
    if isinstance(value, str) and value.startswith("file://"):
        return read_text(path.parent / value.removeprefix("file://"), str(path))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _filled(check: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """The value of an assertion with the variables that it names."""
    from whet.prompt.slots import fill

    value = check.get("value")
    if isinstance(value, list):
        return {"value": [fill(one, known) if isinstance(one, str) else one for one in value]}
    return {"value": fill(value, known)} if isinstance(value, str) else {}
