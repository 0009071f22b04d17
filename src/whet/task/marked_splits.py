"""A table that says of each row to which split it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.errors import UsageError, did_you_mean
from whet.task.imported_data import ImportedData
from whet.task.spec import ALIASES, SPLITS
from whet_client.storable import show_value

NO_SPLIT = "none"
_NAME = "split"
_OPTION = f"--split {NO_SPLIT}"


def find_split(material: ImportedData) -> str | None:
    """The column called `split` that marks rows as train, validation or test; None where there is none."""
    return find_column(material.rows.get("", ()))


def find_column(rows: Sequence[Mapping[str, object]]) -> str | None:
    """The column called `split` that marks rows as train, validation or test; None where there is none."""
    names = (name for row in rows for name in row)
    column = next((name for name in names if name.strip().casefold() == _NAME), None)
    marks = column is not None and any(read_mark(row.get(column)) for row in rows)
    return column if marks else None


def divide(material: ImportedData, column: str) -> ImportedData:
    """The rows by the split that each names in `column`, which they lose. Raises UsageError for a row that names none, and where
    no row is for training or for the test."""
    if column == NO_SPLIT:
        declined = {} if find_split(material) is None else {"splits": {"column": NO_SPLIT}}
        return replace(material, settings={**material.settings, **declined})
    if "" not in material.rows:
        raise UsageError("These rows are divided into splits already. Leave --split out.")
    every = material.rows[""]
    places = material.places.get("", ())
    there = len(places) == len(every)
    at = divide_rows(
        every, places if there else [f"row {n}" for n in range(1, len(every) + 1)], column, _OPTION
    )
    missing = next((split for split in (SPLITS[0], SPLITS[-1]) if split not in at), None)
    if missing is not None:
        raise UsageError(f'The column "{column}" marks no row as {missing}. {say_remedy(_OPTION)}')
    rows = {
        split: [{name: value for name, value in every[n].items() if name != column} for n in numbers]
        for split, numbers in at.items()
    }
    kept = {split: [places[n] for n in numbers] for split, numbers in at.items()} if there else {}
    return replace(
        material, rows=rows, places=kept, notes=[*material.notes, describe_splits(column, at, _OPTION)]
    )


def divide_rows(
    rows: Sequence[Mapping[str, object]], places: Sequence[str], column: str, decline: str
) -> dict[str, list[int]]:
    """The numbers of the rows of each split that `column` names, in the order of the splits. `decline` is what a user writes to
    have the rows divided anew. Raises UsageError for a column that is not there, and for a row that names no split."""
    known = list(dict.fromkeys(name for row in rows for name in row))
    if column not in known:
        raise UsageError(f'There is no column "{column}".{did_you_mean(column, known)}')
    numbers: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        split = read_mark(row.get(column))
        if split is None:
            raise UsageError(
                f'{places[at]}: the column "{column}" has {show_value(row.get(column))}, which is no split. {say_remedy(decline)}'
            )
        numbers.setdefault(split, []).append(at)
    return {split: numbers[split] for split in SPLITS if split in numbers}


def describe_splits(column: str, numbers: Mapping[str, Sequence[int]], decline: str) -> str:
    """Say how a column divides the rows, and how to decline that."""
    counts = ", ".join(f"{len(part)} {split}" for split, part in numbers.items())
    cut = "" if SPLITS[1] in numbers else "; validation is cut from train"
    return f'splits: by the column "{column}" ({counts}{cut}); to divide the rows anew: {decline}'


def say_remedy(decline: str) -> str:
    """The remedy for marks that cannot be used."""
    return f"Write {', '.join(SPLITS)} into each row, or let whet divide the rows: {decline}."


def read_mark(value: object) -> str | None:
    """The split that a cell names."""
    text = value.strip().casefold() if isinstance(value, str) else ""
    name = ALIASES.get(text, text)
    return name if name in SPLITS else None
