"""Rows from Python: lists of dicts, data frames, data sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from whet.errors import UsageError
from whet.task.rows import TARGET_NAMES, SourceRow, csv_row, is_missing, row_of, shortest
from whet_client.prompt.slots import canonical_name
from whet_client.storable import show_value

_FIRST_INEXACT = 2**53
"""From it on a float may stand for several whole numbers."""
_WANTED = (
    "a list of dicts, a data frame, a datasets.Dataset, a path, or a dict with train, validation and test"
)


@dataclass(frozen=True)
class Table:
    """Rows of one data set and how messages call it."""

    values: tuple[object, ...]
    place: str
    columns: bool
    """Whether the rows are those of a data frame or data set: then every column but id and target is part of the input."""
    names: tuple[str, ...] = ()
    """The columns, those without any value too."""

    def rows(self, slots: frozenset[str]) -> list[SourceRow]:
        """The rows as a data file would hold them; `slots` are those of the prompt. Raises UsageError for an unusable one."""
        if not self.values:
            raise UsageError(
                f"{self.place}: there are no rows. Give rows such as {{'input': ..., 'target': ...}}."
            )
        made = [row_of(value, f"{self.place}[{i}]") for i, value in enumerate(self.values)]
        if self.columns and not slots:
            self._refuse_target(made)
        every = [*self.names, *(name for row in made for name in row.value)]
        names = {canonical_name(name): name for name in every} if self.columns else {}
        return [SourceRow(self._with_input(row.value, slots, names), row.where) for row in made]

    def _refuse_target(self, rows: Sequence[SourceRow]) -> None:
        """Refuse columns of which all would be input, where one is probably the target."""
        names = dict.fromkeys(name for row in rows for name in row.value)
        meant = next((name for name in names if name.strip().casefold() in TARGET_NAMES), None)
        if meant is not None and not {"input", "target"} & names.keys():
            raise UsageError(
                f'{self.place}: the column "{meant}" would be an input, and it looks like the right answer. Rename it '
                "to target, or write slots for the inputs into the prompt."
            )

    def _with_input(
        self, row: dict[str, Any], slots: frozenset[str], names: Mapping[str, str]
    ) -> dict[str, object]:
        """A row without an `input` gets one of its values for the slots, null where its cell is missing; of a table without
        slots, of all columns. `names`: the columns of the table by what slots call them."""
        if "input" in row or "input" in names:
            return row
        columns = {**names, **{canonical_name(name): name for name in row}}
        if slots and all(name in columns for name in slots):
            return {**row, "input": {columns[name]: row.get(columns[name]) for name in sorted(slots)}}
        return csv_row(dict(row)) if self.columns else row


def table_of(data: Any, place: str) -> Table:
    """The rows of what a caller handed over. Raises UsageError for anything that is no collection of rows."""
    data = _with_named_index(data)
    columns = hasattr(data, "columns") or hasattr(data, "column_names")
    if isinstance(data, Mapping | str | bytes) or data is None:
        raise UsageError(f"{place} must be {_WANTED}; this is {show_value(data)}.")
    names = (
        [str(name) for name in getattr(data, "column_names", getattr(data, "columns", ()))] if columns else []
    )
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise UsageError(f'{place}: the column "{twice}" appears twice. Rename one.')
    types = _types_of(data)
    dump = next((getattr(data, name) for name in ("to_dicts", "to_pylist") if hasattr(data, name)), None)
    if callable(dump):
        data = dump()
    elif hasattr(data, "columns") and callable(getattr(data, "to_dict", None)):
        data = data.to_dict(orient="records")
    if not isinstance(data, Iterable):
        raise UsageError(f"{place} must be {_WANTED}; this is {show_value(data)}.")
    features = getattr(data, "features", None)
    for name, feature in features.items() if isinstance(features, Mapping) else ():
        if (kind := type(feature).__name__) in ("Image", "Audio", "Video"):
            raise UsageError(
                f'{place}: the column "{name}" holds {kind.lower()}s, and whet sends text. Take it out: '
                f"data.remove_columns({name!r})."
            )
    values = tuple(as_typed(row, features or types) for row in data)
    if not columns:
        return Table(tuple(map(_as_dict, values)), place, columns)
    return Table(tidy_columns([clean_row(row) for row in values]), place, columns, tuple(names))


def _with_named_index(data: Any) -> Any:
    """A data frame of pandas with the named levels of its index as columns, as `set_index` and `groupby` make them; anything else
    as it is."""
    names = getattr(getattr(data, "index", None), "names", None)
    if names is None or not hasattr(data, "columns") or not callable(getattr(data, "reset_index", None)):
        return data
    named = [name for name in names if name is not None and name not in data.columns]
    return data.reset_index(level=named) if named else data


def _types_of(data: Any) -> dict[object, object] | None:
    """The types of the columns of a data frame, as `as_typed` takes them; None for a value that is no data frame."""
    named = [getattr(data, name, None) for name in ("dtypes", "schema")]
    types = next((one for one in named if callable(getattr(one, "items", None))), None)
    return None if types is None else {name: _feature(kind) for name, kind in types.items()}


def _feature(kind: Any) -> object:
    """A type of pandas, Arrow or polars in the form of those of datasets: an object, a list of one, or a name."""
    kind = getattr(kind, "pyarrow_dtype", kind)
    inner = getattr(kind, "inner", None) or getattr(kind, "value_type", None)
    if inner is not None:
        return [_feature(inner)]
    fields = getattr(kind, "fields", None)
    if fields is None:
        return str(kind)
    return {
        field.name: _feature(getattr(field, "dtype", None) or getattr(field, "type", None))
        for field in fields
    }


def _as_dict(row: Any) -> object:
    return dict(row) if isinstance(row, Mapping) else row


def clean_row(row: object) -> Any:
    """A row of a table without its missing cells (None, NaN), numbers of other libraries as plain ones."""
    if not isinstance(row, Mapping):
        return row
    cells = {str(key): python_number(value) for key, value in row.items()}
    return {key: value for key, value in cells.items() if not _is_missing(value)}


def as_typed(value: Any, feature: object) -> Any:
    """A value of a data set or data frame as the type of its column means it, inside lists and objects too: the names of classes
    for their numbers (-1, which means none, is None), and numbers of 16 or 32 bits as the decimals that they stand for."""
    names = getattr(feature, "names", None)
    if names is not None and isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    if isinstance(feature, Mapping):
        inner = value.items() if isinstance(value, Mapping) else ()
        return {key: as_typed(one, feature.get(key)) for key, one in inner} if inner else value
    item = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
    if item is None:
        return shortest(value, str(getattr(feature, "dtype", feature)))
    if isinstance(value, Mapping) and isinstance(
        item, Mapping
    ):  # a sequence of objects is stored as an object of lists
        return {key: as_typed(one, [item.get(key)]) for key, one in value.items()}
    return [as_typed(one, item) for one in value] if isinstance(value, list | tuple) else value


def tidy_columns(rows: Sequence[object]) -> tuple[Any, ...]:
    """Rows with whole numbers where pandas made fractions of them, for the column has a gap (or is the target), and with days
    where every time of a column is midnight. From 2^53 on a float may stand for several whole numbers, and stays a float."""
    made = [dict(row) if isinstance(row, Mapping) else row for row in rows]
    objects = [row for row in made if isinstance(row, dict)]
    for name in dict.fromkeys(key for row in objects for key in row):
        cells = [row[name] for row in objects if name in row]
        gap = len(cells) < len(objects) or name == "target"
        if gap and all(
            isinstance(cell, float) and cell.is_integer() and abs(cell) < _FIRST_INEXACT for cell in cells
        ):
            convert: Callable[[Any], object] = int
        elif all(
            isinstance(cell, datetime) and cell.tzinfo is None and cell.time() == time() for cell in cells
        ):
            convert = datetime.date
        else:
            continue
        for row in objects:
            if name in row:
                row[name] = convert(row[name])
    return tuple(made)


def python_number(value: Any) -> object:
    """A number or truth value of numpy or its kin as that of Python; anything else as it is."""
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "ndim", None) != 0:
        return value
    return shortest(item(), str(getattr(value, "dtype", "")))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or is_missing(value)
