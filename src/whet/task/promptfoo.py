"""promptfooconfig.yaml as prompt, rows and reward."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from whet.errors import UsageError, quantity
from whet.rewards.program import CRITIQUES, VALUES
from whet.task import promptfoo_reward
from whet.task.files import read_text
from whet.task.imported_data import ImportedData, read_table
from whet.task.prompts import YAML, load_prompt
from whet.task.rows import read_rows
from whet.task.tree import Node, parse_yaml
from whet_client.prompt.slots import fill
from whet_client.storable import show_value

KINDS = (
    *("equals", "iequals", "contains", "icontains", "contains-any", "icontains-any", "contains-all"),
    *("icontains-all", "starts-with", "regex", "is-json", "contains-json"),
)
"""Assertions that need no other program; each also with `not-` before it."""
RUBRICS = ("llm-rubric", "model-graded-closedqa")
"""Assertions that a judge makes, where every test has the same."""
_OTHERS = (
    *("agent-rubric", "answer-relevance", "bleu", "classifier", "contains-html", "contains-sql"),
    *("contains-xml", "context-faithfulness", "context-recall", "context-relevance"),
    *("conversation-relevance", "cost", "factuality", "finish-reason", "g-eval", "gleu", "guardrails"),
    *("is-html", "is-refusal", "is-sql", "is-valid-function-call", "is-valid-openai-function-call"),
    *("is-valid-openai-tools-call", "is-xml", "javascript", "latency", "levenshtein", "max-score"),
    *("meteor", "model-graded-factuality", "moderation", "perplexity", "perplexity-score", "pi", "python"),
    *("rouge-n", "ruby", "search-rubric", "select-best", "similar", "skill-used", "tool-call-f1"),
    *("trace-error-spans", "trace-span-count", "trace-span-duration", "webhook", "word-count"),
)
"""The other names that a cell of a table of tests may hold."""
_EXPECTED = re.compile(r"([a-z0-9-]+)(?:\([0-9]+(?:[.][0-9]+)?\))?(?::(.*))?", re.DOTALL)
"""A cell of `__expected` as promptfoo reads it: a type, perhaps with a threshold, perhaps with a value; any other is equal."""
EXPECTED = "__expected"
"""The beginning of the names of columns with assertions, in a table of tests."""
_OLDER = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
MOST_NODES, MOST_ROWS, DEEPEST = 1_000_000, 100_000, 8
"""YAML values in a file, rows that the lists of one test's variables make, files of tests that name each other."""
_NO_METRIC = (*VALUES, *CRITIQUES)
_DIVIDER = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_BLOCK = re.compile(r"\{%[^%]*%\}|\{\{[^{}|.(\[]*[|.(\[][^}]{0,500}\}\}")
_COMMENT = re.compile(r"\{#[^\n]{0,40}")
_TEMPLATE = re.compile(r"\{%|\{\{([^{}]{0,500})\}\}")
"""A block of a template, or what stands in the braces of a variable."""
ROUNDS, LONGEST = 5, 1_000_000
"""The rounds in which promptfoo fills variables that name variables; the characters that a variable may grow to."""
_OPENAI = re.compile(r"openai:(?:chat:|responses:)?([A-Za-z0-9][\w.-]*)")
_TAKEN: Mapping[str, tuple[str, ...]] = {
    "the file": ("prompts", "providers", "targets", "tests", "defaultTest"),
    "a test": ("vars", "assert"),
    "an assertion": ("type", "value", "weight", "metric"),
}
_NEUTRAL = (
    *("description", "metadata", "tags", "env", "sharing", "outputPath", "writeLatestResults"),
    *("evaluateOptions", "commandLineOptions", "$schema", "label", "id"),
)
"""Keys that change neither what the model gets nor what its answer earns."""


@dataclass
class _Left:
    """The parts that the new task does not take over: assertions by kind, and other keys by place."""

    checks: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    rows: list[str] = field(default_factory=list)
    """The variable of each row that is left out, since it computes something."""
    empty: list[str] = field(default_factory=list)
    """The variable of each test that is left out, since it is an empty list: promptfoo makes no row of it either."""
    lists: int = 0
    """Variables of tests whose list is one value."""

    def note(self, nodes: Mapping[str, Node], place: str) -> None:
        """Count the keys of a mapping that are not read."""
        self.keys.update(f"`{key}` of {place}" for key in nodes if key not in (*_TAKEN[place], *_NEUTRAL))

    def lines(self) -> Iterator[str]:
        """A sentence for each sort."""
        for counts, what in (
            (self.checks, "left out, because they need another program or a model"),
            (self.keys, "not taken"),
        ):
            if counts:
                yield f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
        if self.rows:
            are = "is" if len(self.rows) == 1 else "are"
            yield (
                f"{quantity(len(self.rows), 'test')} {are} left out: a variable computes something, the first "
                f"{show_value(self.rows[0], 60)}"
            )
        if self.empty:
            are = "is" if len(self.empty) == 1 else "are"
            yield f"{quantity(len(self.empty), 'test')} {are} left out: a variable is an empty list, the first `{self.empty[0]}`"
        if self.lists:
            stay = "stays" if self.lists == 1 else "stay"
            yield f"{quantity(self.lists, 'list')} under `vars` {stay} one value, as in promptfoo, in JSON"


def read_promptfoo(path: Path) -> ImportedData:
    """The first prompt, the tests as rows, their assertions as target and reward, a model of OpenAI among the providers.

    Raises UsageError with file and line for a file that is no such configuration, a template that is more than slots, an
    assertion that cannot be meant, and tests of which no assertion can be checked without another program.
    """
    config = parse_yaml(path, empty="Write prompts and tests.", most=MOST_NODES).mapping("the configuration")
    missing = [key for key in ("prompts", "tests") if key not in config]
    if missing:
        raise UsageError(
            f"{path}:1: no configuration of promptfoo: {' and '.join(missing)} are missing. Write them, or name the file "
            "with the rows."
        )
    prompts = _list(config["prompts"])
    if not prompts:
        config["prompts"].refuse("`prompts` is empty. Write at least one.")
    left = _Left()
    left.note(config, "the file")
    notes = [f"the first of {len(prompts)} prompts"] if len(prompts) > 1 else []
    settings = _model(config.get("providers", config.get("targets")), notes)
    base = _base(config.get("defaultTest"), path)
    left.note(_without_options_of_lists(base), "a test")
    rows = [row for test in _tests(config["tests"], path) for row in _rows(test, base, path, left)]
    if left.rows and not rows:
        config["tests"].refuse(
            f"every test has a variable that computes something, the first {show_value(left.rows[0], 60)}. Write the results."
        )
    rubrics = _common_rubrics(rows, left.checks)
    kept = [row for row in rows if rubrics or any(map(_weight, row["assert"]))]
    notes += left.lines()
    if not kept:
        ignored = "".join(f"; {line}" for line in left.lines())
        config["tests"].refuse(
            f"no test has an assertion that whet can check ({', '.join(KINDS[:4])}, ...){ignored}. "
            "Add such assertions, or begin from the rows (--from tests.csv) with --reward reward.py."
        )
    if len(kept) < len(rows):
        lost = len(rows) - len(kept)
        are = "is" if lost == 1 else "are"
        notes.append(f"{quantity(lost, 'test')} without such an assertion {are} left out")
    other = sum(_weight(assertion) for row in kept for assertion in row["assert"]) / len(kept)
    material = _with_reward(_prompt(prompts[0], path, notes), kept, notes)
    return replace(_with_judge(material, rubrics, other) if rubrics else material, settings=settings)


def read_promptfoo_table(path: Path) -> ImportedData | None:
    """A table with a column `__expected` as the tests that promptfoo makes of it, without a prompt; None for another table."""
    table, notes, _ = read_table(path)
    if not any(name.startswith(EXPECTED) for name in table[0].value):
        return None
    left, rows, places = _Left(), list[dict[str, Any]](), list[str]()
    for row in table:
        for made in _rows(Node.of(_table_row(row.value), row.where), {}, path, left):
            if made["assert"] and made["assert"][0]["type"] not in RUBRICS:
                rows.append(made)
                places.append(row.where)
    if not rows:
        raise UsageError(
            f"{path}:1: no cell of {EXPECTED} holds an assertion that whet can check ({', '.join(KINDS[:4])}, ...). Add such "
            "assertions, or rename the column."
        )
    lost = len(table) - len(rows)
    notes += [f"{EXPECTED}: assertions as promptfoo reads them", *left.lines()]
    notes += [f"{quantity(lost, 'row')} without such an assertion left out"] if lost else []
    return replace(_with_reward(None, rows, notes), places={"": places})


def _model(providers: Node | None, notes: list[str]) -> dict[str, Any]:
    """The first provider as the task model, where whet's address of it is known."""
    names = [_provider(one) for one in _list(providers)]
    if not names:
        return {}
    known = _OPENAI.fullmatch(names[0])
    if known is None:
        notes.append(f"providers, which are not taken (name a model with --lm): {', '.join(names)}")
        return {}
    address = f"openai/{known.group(1)}"
    notes.append(
        f"task model: {address}, without its options"
        + (f"; not taken: {', '.join(names[1:])}" if names[1:] else "")
    )
    return {"models": {"task": address}}


def _provider(node: Node) -> str:
    if isinstance(node.value, dict):
        named = node.value.get("id")
        return named.raw if named is not None else next(iter(node.value), "")
    return node.raw


def _base(node: Node | None, path: Path) -> dict[str, Node]:
    """The keys of `defaultTest`, which may stand in a file."""
    if node is None or node.value is None:
        return {}
    if isinstance(node.value, str) and node.value.startswith("file://"):
        node = parse_yaml(path.parent / node.value.removeprefix("file://"), node.where, most=MOST_NODES)
    return node.mapping("`defaultTest`")


def _common_rubrics(rows: list[dict[str, Any]], left_out: Counter[str]) -> list[dict[str, object]]:
    """The rubrics that every row has, without slots; the assertions of the rows are then those that need no judge."""
    judged = [[assertion for assertion in row["assert"] if assertion["type"] in RUBRICS] for row in rows]
    common = [one for one in judged[0] if all(one in own for own in judged)] if judged else []
    for row, own in zip(rows, judged, strict=True):
        left_out.update(f"{one['type']} of a single test" for one in own if one not in common)
        row["assert"] = [assertion for assertion in row["assert"] if assertion["type"] not in RUBRICS]
    return common


def _with_judge(material: ImportedData, rubrics: list[dict[str, object]], other: float) -> ImportedData:
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


def _with_reward(prompt: str | None, rows: list[dict[str, Any]], notes: list[str]) -> ImportedData:
    """A target and a named reward where every row asserts one thing of one kind, else the assertions themselves."""
    if not any(row["assert"] for row in rows):
        return ImportedData(
            {"": [{k: v for k, v in row.items() if k != "assert"} for row in rows]},
            prompt,
            None,
            {},
            notes,
            columns=False,
            labels=False,
        )
    kinds = {row["assert"][0]["type"] if len(row["assert"]) == 1 else "" for row in rows}
    named = {"equals": {"exact_match": {"strict": True}}, "iequals": "exact_match", "icontains": "contains"}
    named["contains"] = {"contains": {"strict": True}}
    (kind,) = kinds if len(kinds) == 1 else ("",)
    values = [assertion.get("value") for row in rows for assertion in row["assert"]]
    literal = all(
        isinstance(value, str) and (kind != "icontains" or not value.strip().isdigit()) for value in values
    )
    if kind not in named or not literal:
        files = {"reward.py": inspect.getsource(promptfoo_reward).encode()}
        notes.append("reward.py checks the assertions of each row: the share that holds")
        return ImportedData({"": rows}, prompt, "reward.py", files, notes, columns=False, labels=False)
    one = [{**row, "target": row["assert"][0].get("value")} for row in rows]
    plain = [{key: value for key, value in row.items() if key != "assert"} for row in one]
    return ImportedData({"": plain}, prompt, named[kind], {}, notes, columns=False, labels=False)


def _list(node: Node | None) -> list[Node]:
    if node is None or node.value is None:
        return []
    return node.value if isinstance(node.value, list) else [node]


def _prompt(node: Node, path: Path, notes: list[str]) -> str:
    """The text of a prompt, read from its file where it names one; the first one of a text file that holds several."""
    if isinstance(node.value, dict):
        node = node.value.get("raw") or node.value.get("id") or node
    text = node.text("a prompt", "a text with slots, or file://PATH")
    file = _file(text, path)
    if file is not None and file.suffix in (".py", ".js", ".ts", ".mjs"):
        node.refuse(f"the prompt {text} is a program. Write it as a text with slots.")
    if file is not None and file.suffix in YAML:
        return load_prompt(file, node.where).source
    text = text if file is None else _first_of(file, read_text(file, node.where), notes)
    block = _BLOCK.search(text) or (_COMMENT.search(text) if _has_comment(text) else None)
    if block is not None:
        where = node.where if file is None else f"{file}:{text.count(chr(10), 0, block.start()) + 1}"
        raise UsageError(
            f"{where}: the prompt computes something ({show_value(block.group(), 40)}); whet fills plain slots, "
            "{{name}}. Write the result, or a slot for it."
        )
    return text


def _first_of(file: Path, text: str, notes: list[str]) -> str:
    """The first of the prompts that a text file holds: promptfoo divides `.txt` files at lines of three hyphens."""
    if file.suffix.lower() != ".txt":
        return text
    prompts = [prompt for prompt in _DIVIDER.split(text) if prompt.strip()]
    if len(prompts) > 1:
        notes.append(f"the first of {len(prompts)} prompts in {file.name}")
    return prompts[0].strip() + "\n" if len(prompts) > 1 else text


def _file(text: str, path: Path) -> Path | None:
    """The file that a text names."""
    if text.startswith("file://"):
        return path.parent / text.removeprefix("file://")
    near = path.parent / text if len(text) < 200 and "\n" not in text and "{{" not in text else None
    return near if near is not None and near.is_file() else None


def _files(text: str, path: Path) -> list[str]:
    """The files that a pattern such as file://tests/*.yaml names, each as such a text; none for anything else."""
    pattern = text.removeprefix("file://")
    if pattern == text or "*" not in pattern or Path(pattern).is_absolute():
        return []
    return [f"file://{file.relative_to(path.parent)}" for file in sorted(path.parent.glob(pattern))]


def _tests(node: Node, path: Path, depth: int = 0) -> Iterator[Node]:
    """Tests, those of named files too; a table has a test in each row and its assertions in `__expected`."""
    for item in _list(node):
        if isinstance(item.value, dict):
            yield item
            continue
        several = _files(item.value, path) if isinstance(item.value, str) else []
        if several:
            yield from _tests(Node.of(several, item.where), path, depth)
            continue
        file = _file(item.value, path) if isinstance(item.value, str) else None
        if file is None:
            item.refuse(
                f"a test must be a mapping or a file; this is {item.kind()}. Write vars: and assert:, or file://PATH."
            )
        if depth == DEEPEST:
            item.refuse(
                f"files of tests name each other more than {DEEPEST} times. Name the file with the tests."
            )
        if file.suffix in (".csv", ".tsv"):
            for row in read_table(file)[0]:
                yield Node.of(_table_row(row.value), row.where)
        elif file.suffix == ".jsonl":
            for row in read_rows(file, item.where):
                yield Node.of(row.value, row.where)
        elif file.suffix in (".yaml", ".yml", ".json"):
            yield from _tests(parse_yaml(file, item.where, most=MOST_NODES), file, depth + 1)
        else:
            item.refuse(f"tests in {file.name} cannot be read. Name a .csv, .yaml, .json or .jsonl file.")


def _table_row(cells: Mapping[str, str]) -> dict[str, object]:
    """A row of a table as a test; columns that are not taken are its keys, so that they are counted."""
    named = {name: cell.strip() for name, cell in cells.items() if name.startswith("__") and cell.strip()}
    checks = [_expected_assertion(cell) for name, cell in named.items() if name.startswith(EXPECTED)]
    rest = {
        name: cell
        for name, cell in named.items()
        if not name.startswith((EXPECTED, "__metadata:")) and name.removeprefix("__") not in _NEUTRAL
    }
    values = {name: cell for name, cell in cells.items() if not name.startswith("__")}
    return {"vars": values, "assert": checks, **rest}


def _expected_assertion(cell: str) -> dict[str, object]:
    """The assertion in a cell of `__expected`."""
    if cell.startswith("file://"):
        return {"type": "python" if ".py" in cell else "javascript", "value": cell}
    older, colon, value = cell.partition(":")
    if colon and older in _OLDER:
        return {"type": _OLDER[older], "value": value.strip()}
    match = _EXPECTED.fullmatch(cell)
    if match is None or match[1].removeprefix("not-") not in (*KINDS, *RUBRICS, *_OTHERS):
        return {"type": "equals", "value": cell}
    value = (match[2] or "").strip()
    return {"type": match[1], **({"value": value} if value else {})}


def _rows(test: Node, base: Mapping[str, Node], path: Path, left: _Left) -> Iterator[dict[str, Any]]:
    """The rows of a test: one for each combination of the values of its variables."""
    own = test.mapping("a test")
    whole = _keeps_lists(base, own)
    left.note(_without_options_of_lists(own), "a test")
    values = {**_vars(base), **_vars(own)}
    checks = [
        check
        for one in (*_list(base.get("assert")), *_list(own.get("assert")))
        if (check := _check(one, left, values)) is not None
    ]
    choices = [
        [(name, _value(value, path)) for value in _values(node, whole)] for name, node in values.items()
    ]
    left.empty += [name for name, node in values.items() if not _values(node, whole)][:1]
    left.lists += sum(
        isinstance(n.value, list) and bool(n.value) and _values(n, whole) == [n] for n in values.values()
    )
    if (count := math.prod(map(len, choices))) > MOST_ROWS:
        test.refuse(
            f"the lists under `vars` make {count:,} rows of this test, more than {MOST_ROWS:,}. Shorten them."
        )
    for chosen in itertools.product(*choices):
        known = _resolve_variables(dict(chosen), test)
        computing = [text for text in known.values() if _computes(text, ())]
        if computing:
            left.rows.append(computing[0])
            continue
        yield {"input": known, "assert": [{**check, **_fill_variables(check, known)} for check in checks]}


def _resolve_variables(values: Mapping[str, str], test: Node) -> dict[str, str]:
    """The variables of a test, with the variables that they name in them, as deep as promptfoo goes."""
    known = dict(values)
    for _ in range(ROUNDS):
        filled = {name: fill(text, known) for name, text in known.items()}
        if any(len(text) > LONGEST for text in filled.values()):
            test.refuse(
                f"the variables of this test name each other and grow beyond {LONGEST:,} characters. Write them out."
            )
        if filled == known:
            break
        known = filled
    return known


def _vars(test: Mapping[str, Node]) -> dict[str, Node]:
    node = test.get("vars")
    return {} if node is None or node.value is None else node.mapping("`vars`")


def _check(node: Node, left: _Left, variables: Collection[str]) -> dict[str, object] | None:
    """An assertion that whet can check in a test with these variables; None for one that is counted as left out."""
    parts = node.mapping("an assertion")
    if "type" not in parts:
        left.checks[next(iter(parts), "empty assertion")] += 1
        return None
    kind = parts["type"].text("the type of an assertion", "type: equals")
    plain, value = kind.removeprefix("not-"), parts.get("value")
    structured = plain == "equals" and value is not None and isinstance(value.value, dict | list)
    expected = None if value is None else value.plain() if structured else _as_printed(value.plain())
    if plain.endswith("-json") and expected:
        left.checks[f"{kind} with a schema"] += 1
        return None
    known = plain in KINDS or (kind in RUBRICS and isinstance(expected, str))
    if not known or (isinstance(expected, dict) and not structured) or "file://" in str(expected):
        left.checks[kind] += 1
        return None
    if _computes(expected, variables):
        left.checks[f"{kind} whose value computes something"] += 1
        return None
    if value is None or expected is None:
        if not plain.endswith("-json"):
            node.refuse(f"the assertion {kind} has no value. Write value: ...")
    elif plain == "regex":
        try:
            re.compile(str(expected))
        except re.error as error:
            value.refuse(f"{show_value(expected)} is no regular expression of Python: {error}. Correct it.")
    left.note(parts, "an assertion")
    weight = {"weight": parts["weight"].number("a weight", 0.0)} if "weight" in parts else {}
    metric = {"metric": name} if (name := _metric(parts.get("metric"))) else {}
    if not _weight(weight) and (kind in RUBRICS or not metric):
        left.keys[f"{kind} of weight 0"] += 1
        return None
    return {"type": kind, **({} if expected is None else {"value": expected}), **weight, **metric}


def _computes(value: object, variables: Collection[str]) -> bool:
    """Whether a template in the value of an assertion is more than a variable of its test: `fill` would leave it as it stands."""
    if isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return any(_computes(part, variables) for part in parts)
    if not isinstance(value, str):
        return False
    return _has_comment(value) or any(name.strip() not in variables for name in _TEMPLATE.findall(value))


def _has_comment(text: str) -> bool:
    """Whether a text has a comment of a template, which promptfoo takes out."""
    return text.find("#}", text.find("{#")) > 0 if "{#" in text else False


def _metric(node: Node | None) -> str:
    """The name under which an assertion is counted too; empty without one."""
    if node is None or node.value is None:
        return ""
    name = node.text("a metric", "the name of a metric")
    if name in _NO_METRIC:
        node.refuse(
            f'"{name}" is the name of something else that a reward returns. Name the metric otherwise.'
        )
    return name


def _values(node: Node, whole: bool) -> list[Node]:
    """The values of a variable: the items of a list that begins with a text, unless lists stay whole, else the variable itself,
    null too. An empty list has none."""
    if not isinstance(node.value, list) or (
        node.value and (whole or not isinstance(node.value[0].value, str))
    ):
        return [node]
    return node.value


_WHOLE = "disableVarExpansion"
"""The option of a test under which its lists are values, and make no rows."""


def _keeps_lists(base: Mapping[str, Node], own: Mapping[str, Node]) -> bool:
    """Whether the lists of a test stay one value: its own options say so, else those of `defaultTest`."""
    options = [test["options"].value for test in (own, base) if "options" in test]
    stated = [one[_WHOLE].plain() for one in options if isinstance(one, dict) and _WHOLE in one]
    return bool(stated) and stated[0] is True


def _without_options_of_lists(test: Mapping[str, Node]) -> dict[str, Node]:
    """The keys of a test without options that say nothing else than whether its lists make rows."""
    options = test["options"].value if "options" in test else None
    taken = isinstance(options, dict) and not options.keys() - {_WHOLE}
    return {key: node for key, node in test.items() if key != "options" or not taken}


def _value(node: Node, path: Path) -> str:
    """A variable as promptfoo fills it in: null as nothing."""
    if isinstance(node.value, str) and node.value.startswith("file://"):
        return read_text(path.parent / node.value.removeprefix("file://"), node.where)
    plain = node.plain()
    if plain is None:
        return ""
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else _as_printed(plain)


def _as_printed(value: object) -> Any:
    """A value with its scalars as JavaScript prints them, which is what promptfoo compares.

    >>> _as_printed([True, 5.0, 1e3, 0.1, 1e21, 1.5e-7, "5.0"])
    ['true', '5', '1000', '0.1', '1e+21', '1.5e-7', '5.0']
    """
    if isinstance(value, list):
        return [_as_printed(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    return _number_as_printed(float(value)) if isinstance(value, int | float) else value


def _number_as_printed(number: float) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    _, figures, exponent = Decimal(repr(abs(number))).normalize().as_tuple()
    digits, sign = "".join(map(str, figures)), "-" if number < 0 else ""
    point = len(digits) + int(exponent)
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def _fill_variables(check: Mapping[str, object], known: Mapping[str, str]) -> dict[str, object]:
    """The value of an assertion with the variables that it names."""
    return {"value": _fill_value(check["value"], known)} if "value" in check else {}


def _fill_value(value: object, known: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _fill_value(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_value(item, known) for item in value]
    return fill(value, known) if isinstance(value, str) else value
