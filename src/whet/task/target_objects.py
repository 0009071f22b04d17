"""Targets of a table that are objects: accepted answers, one key that holds the answer, or JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from whet._util.words import fold
from whet.errors import UsageError
from whet.task.rows import TARGET_NAMES
from whet_client.storable import show_value

_OPENING = ("[", "{")
_JOINED = re.compile(r"""['"]\s+['"]""")
"""Two texts with nothing but blanks between them."""


def read_targets(
    values: Sequence[object], rows: Sequence[Mapping[str, object]]
) -> tuple[list[Any], str, list[str]]:
    """The targets that `values` mean, the key that holds them in the objects among them, and the keys beside it.

    Objects that list accepted answers become these. A key holds the target where every other object has it, with nothing beside
    it or as the only name of an answer; else the objects stay as they are and the key is empty.
    """
    read = [
        _accepted_answers_of(value, row) if isinstance(value, Mapping) else value
        for value, row in zip(values, rows, strict=True)
    ]
    objects = [value for value in read if isinstance(value, Mapping)]
    names = {str(name): None for value in objects for name in value}
    alone = [name for name in names if all(list(value) == [name] for value in objects)]
    known = [name for name in names if _is_target_name(name)]
    key = next(iter(alone or (known if len(known) == 1 else ())), "")
    if not key or any(key not in value for value in objects):
        return read, "", []
    taken = [value[key] if isinstance(value, Mapping) else value for value in read]
    return taken, key, [name for name in names if name != key]


def read_python_values(values: Sequence[object]) -> tuple[list[Any], str]:
    """The targets of which every text is a list or object as Python writes it (`['a', 'b']`), as pandas puts them into CSV files,
    as JSON, and the first such text; else the values as they are, and ''.

    Raises UsageError for lists as NumPy writes them, without commas (`['a' 'b']`), which Python reads as one text.
    """
    texts = [value for value in values if isinstance(value, str)]
    if not texts or not all(text.strip()[:1] in _OPENING for text in texts) or all(map(_is_json, texts)):
        return list(values), ""
    read = {text: _python_value(text) for text in texts}
    if None in read.values():
        return list(values), ""
    if (joined := next((text for text in texts if _JOINED.search(text)), None)) is not None:
        raise UsageError(
            f"the target {show_value(joined)} is a list as NumPy writes it, without commas between its texts. Write the column "
            "as JSON before it becomes a file: frame[column] = [json.dumps(list(one)) for one in frame[column]]."
        )
    first = next(text for text in texts if not _is_json(text))
    written = {text: json.dumps(value, ensure_ascii=False) for text, value in read.items()}
    return [written[value] if isinstance(value, str) else value for value in values], first


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _python_value(text: str) -> object:
    """The list or object that a text is in Python, of values that JSON has too; None for anything else."""
    try:
        value = ast.literal_eval(text.strip())
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def lists_nothing(answer: object) -> bool:
    """Whether an object holds nothing but empty lists."""
    return isinstance(answer, Mapping) and bool(answer) and all(value == [] for value in answer.values())


def lists_spans(answer: object, row: Mapping[str, object]) -> bool:
    """Whether an object lists texts and the places where a text of the row has them, as in SQuAD."""
    return isinstance(answer, Mapping) and bool(_spans(answer, row))


def _is_target_name(name: str) -> bool:
    return _plain(name) in map(_plain, ("target", *TARGET_NAMES))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _accepted_answers_of(answer: Mapping[str, object], row: Mapping[str, object]) -> object:
    return _spellings(answer) or _spans(answer, row) or answer


def _spellings(answer: Mapping[str, object]) -> list[str]:
    """The texts of an object that holds a text and lists it among others, as the aliases of TriviaQA: accepted answers, that text
    first; empty where the object is none such."""
    texts = [value for value in answer.values() if isinstance(value, str) and value.strip()]
    lists = [
        value
        for value in answer.values()
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value)
    ]
    main = next((text for text in texts if any(text in listed for listed in lists)), None)
    if main is None:
        return []
    kept: dict[str, str] = {}
    for one in (main, *(item for listed in lists for item in listed)):
        kept.setdefault(fold(one).strip(), one)
    return list(kept.values())


def _spans(answer: Mapping[str, object], row: Mapping[str, object]) -> list[Any]:
    """The texts of an object that lists texts and the places where a text of the row has them: accepted answers, as in SQuAD;
    empty where the object is none such."""
    lists = [value for value in answer.values() if isinstance(value, list) and value]
    texts = next((listed for listed in lists if all(isinstance(item, str) for item in listed)), [])
    places = next((listed for listed in lists if all(type(item) is int and item >= 0 for item in listed)), [])
    if len(answer) != 2 or not texts or len(texts) != len(places):
        return []
    pairs = list(zip(texts, places, strict=True))
    written = (value for value in row.values() if isinstance(value, str))
    return texts if any(all(text.startswith(*pair) for pair in pairs) for text in written) else []
