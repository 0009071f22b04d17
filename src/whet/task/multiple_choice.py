"""Questions with options: the columns that hold the options, and options written with what the target calls them.

Nothing is known of a language: columns belong together where they count up (`A`, `B`, `C`; `option_1`, `option_2`), and they are
the options where the targets count up in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_MOST_DIGITS = 2
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def find_option_columns(names: Sequence[str], target: str, rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The columns that hold the options of a question, in their order; none where the targets do not say which of them is right.

    At least half of the options are right somewhere. Columns of nothing but numbers are options only where the targets are
    their names: others may be measurements.

    >>> rows = [{"answer": "B", "A": "Rome", "B": "Lima"}, {"answer": "A", "A": "Oslo", "B": "Bonn"}]
    >>> find_option_columns(["question", "A", "B"], "answer", rows)
    ['A', 'B']
    """
    answers = {_text(row.get(target)).strip().casefold() for row in rows}
    counted = [
        columns
        for columns in _series(names)
        if len(answers) >= max(2, len(columns) / 2)
        and any(answers <= labels for labels in _names_of_options(columns))
    ]
    return [
        name
        for columns in counted
        if answers <= {column.casefold() for column in columns}
        or not all(_is_number(row.get(column)) for column in columns for row in rows)
        for name in columns
    ]


def _series(names: Sequence[str]) -> list[list[str]]:
    """Columns whose names begin alike and end in letters from a on, or in numbers from 0 or 1 on."""
    groups: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        if stem != name and len(name) - len(stem) <= _MOST_DIGITS:
            groups.setdefault((stem.casefold(), True), []).append((int(name[len(stem) :]), name))
        elif (place := _LETTERS.find(name[-1:].lower())) >= 0 and name:
            groups.setdefault((name[:-1].casefold(), False), []).append((place, name))
    return [
        [name for _, name in sorted(group)]
        for (_, digits), group in groups.items()
        if len(group) > 1
        and (places := sorted(place for place, _ in group)) == [*range(places[0], places[0] + len(group))]
        and places[0] <= int(digits)
    ]


def _names_of_options(columns: Sequence[str]) -> list[set[str]]:
    """The names by which targets may call these options: the columns' own names, letters, numbers from 0, numbers from 1."""
    count, digits = len(columns), columns[0][-1].isdigit()
    return [
        {name.casefold() for name in columns},
        set() if digits else {*_LETTERS[:count]},
        {str(place) for place in range(count)},
        {str(place + 1) for place in range(count)},
    ]


def write_options(values: Sequence[object], targets: Sequence[object]) -> list[str] | None:
    """Each row's options as text, a line for each, behind what the row's target calls them; None where the values are no options,
    where the targets are options themselves, or where it is open from which number the targets count.

    The options of a row are a list, an object of texts by their names, or an object with a list of names and one of texts.

    >>> write_options([["Rome", "Lima"], ["Oslo", "Bonn"]], [1, 0])
    ['0. Rome\\n1. Lima', '0. Oslo\\n1. Bonn']
    """
    answers = [_text(target).strip() for target in targets]
    if not answers or not all(answers):
        return None
    if all(map(_is_list_of_options, values)):
        return _write_lists(
            [[_text(item) for item in value] for value in values if isinstance(value, list)], answers
        )
    named = [_named_options(value, one) for value, one in zip(values, answers, strict=True)]
    return [_write(one) for one in named if one] if all(named) else None


def _write_lists(options: Sequence[Sequence[str]], answers: Sequence[str]) -> list[str] | None:
    pairs = [*zip(options, answers, strict=True)]
    if all(one in listed for listed, one in pairs):
        return None
    for names in (_LETTERS.upper(), _LETTERS):
        if all(one in names[: len(listed)] and len(one) == 1 for listed, one in pairs):
            return [_write([*zip(names, listed, strict=False)]) for listed in options]
    if not all(answer.isascii() and answer.isdigit() for answer in answers):
        return None
    places = [int(answer) for answer in answers]
    from_0 = 0 in places and all(at < len(listed) for at, listed in zip(places, options, strict=True))
    from_1 = 0 not in places and all(at <= len(listed) for at, listed in zip(places, options, strict=True))
    if not from_0 and not (
        from_1 and any(at == len(listed) for at, listed in zip(places, options, strict=True))
    ):
        return None
    first = 0 if from_0 else 1
    return [_write([(str(at), text) for at, text in enumerate(listed, first)]) for listed in options]


def _named_options(value: object, answer: str) -> list[tuple[str, str]]:
    """The options of an object with their names, of which one is what the target says; empty where it holds none."""
    if not isinstance(value, Mapping) or len(value) < 2:
        return []
    parts = [*value.values()]
    if all(isinstance(part, str) for part in parts):
        return [(str(name), str(text)) for name, text in value.items()] if answer in value else []
    if len(parts) != 2 or not all(map(_is_list_of_options, parts)) or len(parts[0]) != len(parts[1]):
        return []
    lists = [[_text(one) for one in part] for part in parts]
    for at, (names, texts) in enumerate((lists, lists[::-1])):
        written = all(isinstance(part, str) for part in parts[1 - at])
        if written and answer in names and len({*names}) == len(names):
            return [*zip(names, texts, strict=True)]
    return []


def _write(options: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{name}. {text}" for name, text in options)


def _is_list_of_options(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in value)
    )


def _is_number(value: object) -> bool:
    try:
        float(_text(value) or "0")
    except ValueError:
        return False
    return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
