"""The choice of the input and target columns of a new task, by the names and values of imported rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from whet._util.words import fold
from whet.rewards import OWN_COLUMNS
from whet.rewards.choose import ROWS_PER_LABEL, are_few
from whet.task.examples import LEAK
from whet.task.imported_data import ImportedData
from whet.task.multiple_choice import find_option_columns
from whet.task.rows import BESIDE_NAMES, INPUT_NAMES, TARGET_NAMES
from whet_client.prompt.slots import canonical_name

_KEY = re.compile(r"[A-Za-z0-9._:#-]{1,64}")
_ID_NAME = re.compile(r"(?:\A|[\W_]|(?<=[a-z])(?=I))(?:id|ID|Id|uuid|UUID|guid|GUID)\Z")
MOST_COLUMNS = 30
"""Columns that are listed by their names."""


def columns_of(material: ImportedData) -> list[str]:
    """Names that stand in the rows, in order."""
    return list(dict.fromkeys(name for row in material.all_rows() for name in row))


def columns_of_reward(material: ImportedData, reward: str | None) -> list[str]:
    """The columns that the reward reads beside input and target."""
    names = columns_of(material)
    return [name for name in OWN_COLUMNS.get(reward or "", ()) if name in names]


def count_values(material: ImportedData, name: str) -> Counter[str]:
    """Count the occurrences of each value of a column, without empty values."""
    return Counter(
        text_of_cell(row.get(name)) for row in material.all_rows() if row.get(name) not in (None, "")
    )


def describe_columns(material: ImportedData) -> str:
    """The columns, each with how many different values it has, and the values where they are few and short."""
    rows = material.all_rows()
    parts = []
    for name in columns_of(material):
        counts = count_values(material, name)
        values = f": {', '.join(sorted(counts))}" if are_few(counts, len(rows)) and len(counts) <= 5 else ""
        parts.append(f"{name} ({len(counts)} different{values})")
    return ", ".join(parts[:MOST_COLUMNS]) + (
        f", and {len(parts) - MOST_COLUMNS} more" if len(parts) > MOST_COLUMNS else ""
    )


def guess(
    material: ImportedData,
    slots: Collection[str] = (),
    target: str | None = None,
    reward: str | None = None,
) -> tuple[list[str], str | None]:
    """The columns that are probably the input, and the one that is probably the target, which is never among them.

    `slots` are those of the prompt, `target` and `reward` what the caller names. A column that the reward reads is neither input
    nor target, and beside one the target has the name of a target. Columns that number the rows, and those that
    say the same as the target, are no input unless nothing else is left.
    """
    inputs, targets = guess_candidates(material, slots, target, (), columns_of_reward(material, reward))
    return inputs, targets[0] if len(targets) == 1 else None


def guess_candidates(
    material: ImportedData,
    slots: Collection[str],
    target: str | None,
    taken: Collection[str],
    own: Collection[str],
) -> tuple[list[str], list[str]]:
    """The input, and the columns that can be the target; `taken` are those that the caller calls inputs, `own` those that the
    reward reads."""
    names, rows = [name for name in columns_of(material) if name not in own], material.all_rows()
    inputs = [name for name in material.inputs if name in names and name != target]
    by_rank = {_plain(name): name for name in reversed(names)}
    if target is None:
        target = next((by_rank[n] for n in map(_plain, ("target", *TARGET_NAMES)) if n in by_rank), None)
        target = None if target in inputs else target
    filled = sorted(name for name in names if canonical_name(name) in slots and name not in (target, "id"))
    rest = [
        name
        for name in names
        if name not in (target, "id")
        and (name in filled or any(row.get(name) not in (None, "") for row in rows))
    ]
    known = [by_rank[n] for n in map(_plain, ("input", *INPUT_NAMES)) if by_rank.get(n) in rest]
    targets = [] if target is None else [target]
    if target is None and not own:
        closed = {*(inputs or filled or known[:1]), *taken}
        open_names = [name for name in rest if name not in closed and not is_number_of_rows(name, rows)]
        targets = _target_candidates(open_names, material)
        others = [name for name in rest if name not in targets]
        if (
            not closed
            and len(targets) == 1
            and others
            and all(is_number_of_rows(name, rows) for name in others)
        ):
            targets = [
                name for name in rest if name in (*targets, *others)
            ]  # two columns, and one numbers the rows
        target = targets[0] if len(targets) == 1 else None
        rest = [name for name in rest if name != target]
    telling = [
        name for name in rest if not is_number_of_rows(name, rows) and find_leak(name, target, rows) is None
    ]
    options = [] if target is None else find_option_columns([n for n in rest if n in telling], target, rows)
    beside = [
        name for name in rest if known and name != known[0] and (_stands_beside(name) or name in options)
    ]
    by_name = [*known[:1], *beside]
    if (
        by_name
        and target is not None
        and _conflicts(by_name, target, rows) > _conflicts(telling, target, rows)
    ):
        by_name = []
    return inputs or filled or by_name or telling or rest, targets


def _stands_beside(name: str) -> bool:
    """Whether a column is called like one without which a question cannot be answered, also with a number: `choice2`."""
    return _plain(name).rstrip("0123456789") in map(_plain, BESIDE_NAMES)


def _conflicts(inputs: Sequence[str], target: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Count the rows with the same input as an earlier row and another target."""
    first: dict[tuple[str, ...], str] = {}
    keys = [tuple(text_of_cell(row.get(name)) for name in inputs) for row in rows]
    return sum(
        first.setdefault(key, text_of_cell(row.get(target))) != text_of_cell(row.get(target))
        for key, row in zip(keys, rows, strict=True)
    )


def is_number_of_rows(name: str, rows: Sequence[Mapping[str, object]]) -> bool:
    """Whether a column only tells the rows apart: another short value without blanks in each row, and a name that ends in `id`,
    numbers without a gap, or the same letters before a number."""
    values = [text_of_cell(row.get(name)) for row in rows]
    if len(values) < 2 or len(set(values)) < len(values) or not all(map(_KEY.fullmatch, values)):
        return False
    if _ID_NAME.search(name) is not None:
        return True
    if all(value.isdigit() for value in values):
        numbers = sorted(map(int, values))
        return numbers[-1] - numbers[0] == len(numbers) - 1
    shapes = {re.sub(r"[0-9]+", "0", value) for value in values}
    return len(shapes) == 1 and re.fullmatch(r"[A-Za-z]+[-_#]?0", shapes.pop()) is not None


def find_leak(name: str, target: str | None, rows: Sequence[Mapping[str, object]]) -> str | None:
    """Say in words why a column gives the target away; None if it does not."""
    if target is None or name == target:
        return None
    pairs = [
        (fold_cell(row.get(name)), fold_cell(row.get(target)))
        for row in rows
        if row.get(target) not in (None, "")
    ]
    if len(pairs) < 2:
        return None
    equal = sum(a == b for a, b in pairs)
    if equal >= LEAK * len(pairs):
        return f"it is equal to the target in {equal} of {len(pairs)} rows"
    seen, answers = {a for a, _ in pairs}, {b for _, b in pairs}
    if 1 < len(answers) == len(seen) == len(set(pairs)) <= len(pairs) / ROWS_PER_LABEL:
        return f"each of its {len(seen)} values stands beside one value of the target only"
    return None


def _target_candidates(names: Sequence[str], material: ImportedData) -> list[str]:
    """The columns that can be the target where no name tells: columns with few values. Of these, columns whose values are words
    come before numbers and dates. Without such a column it is the only column."""
    rows = material.all_rows()
    few = columns_with_few_values(names, rows)
    words = [name for name in few if _holds_words(name, rows)]
    alone = [*names] if len(names) == 1 and len(columns_of(material)) > 1 else []
    return words or few or alone


def columns_with_few_values(names: Iterable[str], rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The columns whose values can be labels."""
    return [
        name for name in names if are_few(Counter(text_of_cell(row.get(name)) for row in rows), len(rows))
    ]


def _holds_words(name: str, rows: Sequence[Mapping[str, object]]) -> bool:
    """Whether no value of a column has a digit."""
    return not any(letter.isdigit() for row in rows for letter in text_of_cell(row.get(name)))


def why_target(target: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Why a column is taken for the target."""
    if _plain(target) in map(_plain, ("target", *TARGET_NAMES)):
        return "because of its name"
    counts = Counter(text_of_cell(row.get(target)) for row in rows)
    if not are_few(counts, len(rows)):
        return "because it is the only column left"
    others = [
        name
        for name in columns_with_few_values(rows[0], rows)
        if name != target and not _holds_words(name, rows)
    ]
    beside = f"; the values of {', '.join(others)} have digits" if others else ""
    return f"because it is the only column with few values ({len(counts)}){beside}"


def text_of_cell(value: object) -> str:
    """A value as text: JSON where it is none, empty where it is absent."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def fold_cell(value: object) -> str:
    """A value as text, in the form in which texts are compared."""
    return fold(" ".join(text_of_cell(value).split()))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()
