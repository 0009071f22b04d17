"""Rows (and a prompt, a reward) in the forms in which people have them, before they are a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet._util.arguments import check_path
from whet.errors import UsageError, parameter, quantity
from whet.rewards.program import load_module
from whet.task.files import kind_of, read_bytes
from whet.task.imported_data import ImportedData, read_table
from whet.task.promptfoo import read_promptfoo, read_promptfoo_table
from whet.task.rows import (
    INPUT_NAMES,
    LINES,
    TABLES,
    TARGET_NAMES,
    SourceRow,
    conversion_of,
    read_rows,
    row_of,
)
from whet.task.sources import load_split
from whet.task.table import clean_row, tidy_columns
from whet_client.storable import show_value

DATASETS = "datasets:"
_ANSWER = "the assistant's message"
_IDEAL = "ideal"
"""The column in which OpenAI's evals have the right answer, or a list of accepted answers."""
_TURNS = ("messages", "conversations", "conversation", "input")
"""Columns that may hold the messages of a conversation."""
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "ai"), "assistant"),
}
_SPLITS = {"train": "train", "dev": "validation", "val": "validation", "test": "test"}


def read_material(source: str) -> ImportedData:
    """The rows of a file, of a data set of Hugging Face (`datasets:NAME[:split]`) or of `example`. Raises UsageError."""
    if source == "example":
        return example()
    if source.startswith(DATASETS):
        return _datasets(source.removeprefix(DATASETS))
    check_path(parameter("from"), source)
    if "://" in source:
        raise UsageError(f"{source} is an address in a network. Download the file, and name it here.")
    path = Path("promptfooconfig.yaml" if source == "promptfoo" else source)
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name the file with the rows, or promptfooconfig.yaml.")
    readers: Mapping[str, Callable[[Path], ImportedData]] = {
        **dict.fromkeys(TABLES, _table),
        **dict.fromkeys(LINES, _objects),
        ".json": _objects,
        ".yaml": read_promptfoo,
        ".yml": read_promptfoo,
        ".py": _program,
    }
    if kind_of(path) not in readers:
        read_bytes(path, "")  # a file that is not there is said first
        raise UsageError(
            f"{source}: rows come from {', '.join(readers)}, {DATASETS}NAME or example. "
            f"{conversion_of(path) or 'Convert the file.'}"
        )
    return readers[kind_of(path)](path)


def example() -> ImportedData:
    """A small task that simulated models answer: it needs no key, no network and no other package."""
    words = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
    rows = [{"input": f"Dish {i} was {w}.", "target": t} for i in range(50) for w, t in words.items()]
    prompt = "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\nReview: {{input}}\n"
    settings = {
        "method": "opro",
        "models": {"task": "scripted/labels", "optimizer": "scripted/phrases"},
        "budget": {"max_calls": 2000},
    }
    notes = ["an example with simulated models: it shows how a run works and says nothing about real models"]
    return ImportedData({"": rows}, prompt, "exact_match", {}, notes, columns=False, settings=settings)


def _table(path: Path) -> ImportedData:
    tests = read_promptfoo_table(path)
    if tests is not None:
        return tests
    rows, notes, warnings = read_table(path)
    return ImportedData(
        {"": [row.value for row in rows]}, notes=notes, places=_places(rows), warnings=warnings
    )


def _objects(path: Path) -> ImportedData:
    rows, notes = _unwrap(read_rows(path, str(path)))
    key = next((k for k in _TURNS if all(_are_turns(row.value.get(k)) for row in rows)), None)
    if key is not None:
        made = _conversations(rows, key)
        return replace(made, notes=[*notes, *made.notes])
    return ImportedData({"": [row.value for row in rows]}, notes=notes, places=_places(rows))


def _unwrap(rows: list[SourceRow]) -> tuple[list[SourceRow], list[str]]:
    """The objects inside of rows that hold nothing but one object under the same key, as OpenAI's evals have them (`item`)."""
    keys = {key for row in rows for key in row.value}
    (only,) = keys if len(keys) == 1 else (None,)
    if only in (None, "input", *INPUT_NAMES) or not all(
        isinstance(row.value.get(only), dict) and row.value[only] for row in rows
    ):
        return rows, []
    return [replace(row, value=row.value[only]) for row in rows], [f"each row is what stands in its {only}"]


def _places(rows: Sequence[SourceRow]) -> dict[str, list[str]]:
    return {"": [row.where for row in rows]}


def _are_turns(value: object) -> bool:
    """Whether a value is a list of messages: of `role` and `content`, or of `from` and `value`."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict) and ({"role"} <= item.keys() or {"from", "value"} <= item.keys())
            for item in value
        )
    )


def _conversations(rows: Sequence[SourceRow], key: str) -> ImportedData:
    """Rows as models are fine-tuned on: what the user says is the input, the answer the target, the system message the prompt, or
    a slot of it where the conversations have different ones.

    Where every conversation ends with the user, the column `target` holds the target. A conversation whose answer has the weight
    0 is left out: its author says that no model is to learn this answer.
    """
    beside, notes = _column_beside(rows, key), list[str]()
    made, systems = [], set()
    kept = [row for row in rows if beside is not None or not _has_no_weight(row.value[key][-1])]
    if len(kept) < len(rows):
        left = quantity(len(rows) - len(kept), "conversation")
        notes.append(f"left out: {left} whose answer has the weight 0, which makes it no right answer")
    if not kept:
        raise UsageError(
            f"{rows[0].where}: the answer of every conversation has the weight 0, which makes it no right answer. Write "
            "input and target instead."
        )
    for row in kept:
        turns = [
            (_role_of(item), _joined_text(item.get("content", item.get("value")))) for item in row.value[key]
        ]
        roles, texts = [role for role, _ in turns], [text for _, text in turns]
        rest = {name: value for name, value in row.value.items() if name != key}
        system = {"system": texts.pop(0)} if roles[:1] == ["system"] else {}
        if beside is not None:
            roles, texts = [*roles, "assistant"], [*texts, rest.pop(beside)]
        roles = roles[len(system) :]
        if not system and isinstance(rest.get("system"), str) and rest["system"].strip():
            system = {"system": rest.pop("system")}
        read = [*texts[: len(texts) - (beside is not None)], *system.values()]
        if not all(isinstance(text, str) for text in read):
            raise UsageError(
                f"{row.where}: a message of a conversation must be text; one of these is "
                f"{show_value(next(text for text in read if not isinstance(text, str)))}. Write input and target instead."
            )
        if roles[-2:] != ["user", "assistant"] or {*roles} - {"user", "assistant"}:
            raise UsageError(
                f"{row.where}: a conversation must be texts of the user and the assistant, perhaps after a system message, and "
                f"end with an answer; this has the roles "
                f"{show_value([item.get('role', item.get('from')) for item in row.value[key]])}. Write input and target instead."
            )
        systems.add(system.get("system"))
        names = [item.get("name") for item in row.value[key]][-len(texts) + (beside is not None) :]
        talk = [
            {"role": role, "content": text} | ({"name": name} if name else {})
            for role, text, name in zip(roles[:-1], texts[:-1], names, strict=False)
        ]
        made.append({**rest, "input": talk, "target": texts[-1], **system})
    several = any(len(one["input"]) > 1 or "name" in one["input"][0] for one in made)
    notes += [
        "input: the conversation before the last answer" if several else "input: the user's message",
        f"target: {beside or _ANSWER}",
    ]
    accepted = beside == _IDEAL and any(isinstance(one["target"], list) for one in made)
    if accepted:
        notes.append(f"reward: exact_match, because {_IDEAL} lists accepted answers")
    talks = [one["input"] if several else one["input"][0]["content"] for one in made]
    made = [{**one, "input": talk} for one, talk in zip(made, talks, strict=True)]
    prompt = next(iter(systems)) if len(systems) == 1 else None
    if prompt:
        notes.append("prompt: the system message")
    elif len(systems) > 1:
        prompt = _PROMPT_OF_SYSTEMS if several else f"{_PROMPT_OF_SYSTEMS}\n[user]\n{{{{input}}}}"
        notes.append(
            f"prompt: a first draft with the slot {{{{system}}}}, because there are {len(systems)} system messages"
        )
        key = "messages" if several else "input"
        made = [{**one, "input": {"system": one.get("system") or "", key: one["input"]}} for one in made]
    made = [{name: value for name, value in one.items() if name != "system"} for one in made]
    reward = "exact_match" if accepted else None
    return ImportedData({"": made}, prompt or None, reward, notes=notes, columns=False, places=_places(kept))


def _has_no_weight(message: Mapping[str, Any]) -> bool:
    """Whether a message of a file for fine-tuning is one that a model must not learn."""
    return message.get("weight") in (0, False) and _role_of(message) == "assistant"


def _role_of(message: Mapping[str, Any]) -> Any:
    """The role of a message, by the name that whet has for it where it has one."""
    role = message.get("role", message.get("from"))
    return _ROLES.get(role.strip().lower(), role) if isinstance(role, str) else role


def _joined_text(content: Any) -> Any:
    """The text of a message whose parts are all texts, one below the other; any other content as it is."""
    if not isinstance(content, list) or not content:
        return content
    texts: list[Any] = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "\n".join(texts) if all(isinstance(text, str) for text in texts) else content


_PROMPT_OF_SYSTEMS = """[system]
<!-- whet:begin -->
Give the right answer.
<!-- whet:end -->

{{system}}
"""


def _column_beside(rows: Sequence[SourceRow], key: str) -> str | None:
    """The column of the right answers of conversations that all end with the user; None where one ends with an answer, or where
    there is no such column."""
    last = {_role_of(row.value[key][-1]) for row in rows}
    names = [
        name
        for name in ("target", _IDEAL, *TARGET_NAMES)
        if all(row.value.get(name) not in (None, "") for row in rows)
    ]
    return names[0] if names and last == {"user"} else None


def _program(path: Path) -> ImportedData:
    """Rows of `rows()`, or the lists of examples in a Python file, those of DSPy too."""
    module = load_module(path, str(path), "Name a file with rows() or a list of examples")
    if callable(getattr(module, "rows", None)):
        return _objects(path)
    lists = {name: list(value) for name, value in vars(module).items() if _are_examples(value)}
    if not lists:
        raise UsageError(
            f"{path}:1: no function rows(), and no list of dicts or of DSPy examples. Write one."
        )
    first = next(iter(lists.values()))[0]
    inputs = tuple(first.inputs().keys()) if hasattr(first, "inputs") and not isinstance(first, dict) else ()
    by_split: dict[str, list[dict[str, object]]] = {}
    for name, values in lists.items():
        split = next((split for start, split in _SPLITS.items() if name.lower().startswith(start)), "")
        made = [row_of(_plain(value), f"{path}: {name}[{at}]").value for at, value in enumerate(values)]
        by_split.setdefault(split, []).extend(made)
    if not {"train", "test"} <= by_split.keys() or "" in by_split:
        by_split = {"": [row for rows in by_split.values() for row in rows]}
    return ImportedData(by_split, notes=[f"rows of {', '.join(lists)}"], inputs=inputs)


def _are_examples(value: object) -> bool:
    rows = value if isinstance(value, list | tuple) and value else ()
    return bool(rows) and all(isinstance(row, dict) or hasattr(row, "toDict") for row in rows)


def _plain(row: Any) -> dict[str, Any]:
    return dict(row) if isinstance(row, dict) else dict(row.toDict())


def _datasets(name: str) -> ImportedData:
    """`NAME`, `NAME:split` or `NAME:config:split`; classes become their names."""
    parts = name.split(":")
    if not all(parts) or len(parts) > 3:
        raise UsageError(
            f"{DATASETS}{name} is no data set. Write {DATASETS}NAME, {DATASETS}NAME:SPLIT or {DATASETS}NAME:CONFIG:SPLIT."
        )
    config, split = parts[1] if len(parts) == 3 else None, parts[-1] if len(parts) > 1 else None
    chosen, values, _ = load_split(parts[0], config, split, f"{DATASETS}{name}")
    columns = tidy_columns([clean_row(value) for value in values])
    rows = [row_of(value, f"{DATASETS}{name}: {chosen}[{at}]") for at, value in enumerate(columns)]
    notes = [f"the split {chosen} of {parts[0]}"]
    return ImportedData({"": [row.value for row in rows]}, notes=notes, places=_places(rows))
