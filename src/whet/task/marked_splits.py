"""A table that says of each row to which split it belongs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.task.imported_data import ImportedData
from whet.task.spec import ALIASES, SPLITS
from whet_client.storable import show_value

NO_SPLIT = "none"
_NAME = "split"
_REMEDY = f"Write {', '.join(SPLITS)} into each row, or let whet divide the rows: --split {NO_SPLIT}."


def find_split(material: ImportedData) -> str | None:
    """The column called `split` that marks rows as train, validation or test; None where there is none."""
    names = (name for row in material.rows.get("", ()) for name in row)
    column = next((name for name in names if name.strip().casefold() == _NAME), None)
    marks = column is not None and any(_split_of(row.get(column)) for row in material.rows[""])
    return column if marks else None


def divide(material: ImportedData, column: str) -> ImportedData:
    """The rows by the split that each names in `column`, which they lose. Raises UsageError for a row that names none, and where
    no row is for training or for the test."""
    if column == NO_SPLIT:
        return material
    if "" not in material.rows:
        raise UsageError("These rows are divided into splits already. Leave --split out.")
    every = material.rows[""]
    places = material.places.get("", ())
    known = list(dict.fromkeys(name for row in every for name in row))
    if column not in known:
        raise UsageError(f'There is no column "{column}".{did_you_mean(column, known)}')
    rows: dict[str, list[dict[str, Any]]] = {}
    where: dict[str, list[str]] = {}
    for at, row in enumerate(every):
        place = places[at] if len(places) == len(every) else f"row {at + 1}"
        split = _split_of(row.get(column))
        if split is None:
            raise UsageError(
                f'{place}: the column "{column}" has {show_value(row.get(column))}, which is no split. {_REMEDY}'
            )
        rows.setdefault(split, []).append({name: value for name, value in row.items() if name != column})
        where.setdefault(split, []).append(place)
    for split in (SPLITS[0], SPLITS[-1]):
        if split not in rows:
            raise UsageError(f'The column "{column}" marks no row as {split}. {_REMEDY}')
    ordered = {split: rows[split] for split in SPLITS if split in rows}
    counts = ", ".join(f"{len(part)} {split}" for split, part in ordered.items())
    cut = "" if SPLITS[1] in rows else "; validation is cut from train"
    note = f'splits: by the column "{column}" ({counts}{cut}); to divide the rows anew: --split {NO_SPLIT}'
    kept = where if len(places) == len(every) else {}
    return replace(material, rows=ordered, places=kept, notes=[*material.notes, note])


def _split_of(value: object) -> str | None:
    """The split that a cell names."""
    text = value.strip().casefold() if isinstance(value, str) else ""
    name = ALIASES.get(text, text)
    return name if name in SPLITS else None
