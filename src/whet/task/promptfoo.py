"""promptfooconfig.yaml as prompt, rows and reward."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from whet.errors import UsageError
from whet.storable import shown
from whet.task import promptfoo_reward
from whet.task.files import read_text
from whet.task.material import Material, delimited

KINDS = (
    *("equals", "iequals", "contains", "icontains", "contains-any", "icontains-any", "contains-all"),
    *("icontains-all", "starts-with", "regex", "is-json", "contains-json"),
)
"""Assertions that need no other program; each also with `not-` before it."""
RUBRICS = ("llm-rubric", "model-graded-closedqa")
"""Assertions that a judge makes, where every test has the same."""
_PROGRAMS = (
    *(
        "javascript",
        "python",
        "ruby",
        "webhook",
        "fn",
        "eval",
        "grade",
        "similar",
        "levenshtein",
        "factuality",
    ),
    *("answer-relevance", "rouge-n", "bleu", "cost", "latency", "perplexity", "perplexity-score", "is-sql"),
    *("is-html", "is-xml", "contains-html", "contains-xml", "contains-sql", "classifier", "moderation"),
)
"""What else stands before a colon in a cell of a table of tests."""
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
    rubrics = _common_rubrics(rows, left_out)
    kept = [row for row in rows if row["assert"] or rubrics]
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
    other = sum(_weight(one) for row in kept for one in row["assert"]) / len(kept)
    material = _graded(prompts[0], kept, notes)
    return _judged(material, rubrics, other) if rubrics else material


def _common_rubrics(rows: list[dict[str, Any]], left_out: Counter[str]) -> list[dict[str, Any]]:
    """The rubrics that every row has, without slots; the assertions of the rows are then those that need no judge."""
    judged = [[one for one in row["assert"] if one["type"] in RUBRICS] for row in rows]
    common = [one for one in judged[0] if all(one in own for own in judged)] if judged else []
    for row, own in zip(rows, judged, strict=True):
        left_out.update(f"{one['type']} of a single test" for one in own if one not in common)
        row["assert"] = [one for one in row["assert"] if one["type"] not in RUBRICS]
    return common


def _judged(material: Material, rubrics: list[dict[str, Any]], other: float) -> Material:
    """The same with the judge's part of the reward, weighted as in a mean over all assertions; `other` is what those that need no
    judge weigh in a row."""
    total = other + sum(map(_weight, rubrics))
    parts: list[Any] = []
    for number, one in enumerate(rubrics, 1):
        name = {"part": f"rubric_{number}"} if len(rubrics) > 1 else {}
        options = {"rubric": one["value"], "reference": "ignore", **name}
        parts.append({"judge": {**options, "weight": round(_weight(one) / total, 4)}})
    if other:
        own = material.reward if isinstance(material.reward, Mapping) else {material.reward: {}}
        parts += [{name: {**options, "weight": round(other / total, 4)}} for name, options in own.items()]
    elif len(parts) == 1:
        del parts[0]["judge"]["weight"]
    note = "the judge model grades by the rubric that every test has, a part of the reward"
    return replace(material, reward=parts if len(parts) > 1 else parts[0], notes=[*material.notes, note])


def _weight(check: Mapping[str, Any]) -> float:
    return float(check.get("weight", 1))


def _graded(prompt: str, rows: list[dict[str, Any]], notes: list[str]) -> Material:
    """A target and a named reward where every row asserts one thing of one kind, else the assertions themselves."""
    if not any(row["assert"] for row in rows):
        return Material(
            {"": [{k: v for k, v in row.items() if k != "assert"} for row in rows]},
            prompt,
            None,
            {},
            notes,
            False,
        )
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
        plain = kind.removeprefix("not-").partition("(")[0]
        known = colon and plain in (*KINDS, *RUBRICS, *_PROGRAMS)
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
        rubric = kind in RUBRICS and isinstance(check.get("value"), str)
        if kind.endswith("-json") and check.get("value"):
            left_out[f"{kind} with a schema"] += 1
        elif not (rubric or kind.removeprefix("not-") in KINDS) or "file://" in str(check.get("value")):
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
