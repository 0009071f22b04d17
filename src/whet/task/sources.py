"""Rows that `data:` describes with more than a path: a Hugging Face data set, a table whose delimiter is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.task.decode import decode, set_fields
from whet.task.files import kind_of
from whet.task.rows import KINDS, SourceRow, read_rows
from whet.task.spec import ALIASES, SPLITS, by_split
from whet.task.table import Table, as_typed, clean_row, tidy_columns
from whet.task.task_file import DatasetEntry, FileEntry
from whet.task.tree import Node
from whet.types import content_hash

DATASETS, FILE = "datasets", "file"


def is_source(node: Node) -> bool:
    """Whether a value of `data` describes rows, and names no files by split."""
    return isinstance(node.value, dict) and bool({DATASETS, FILE} & node.value.keys())


def split_nodes(node: Node) -> dict[str, Node] | None:
    """The value of `data` for each split; None where it is one set of rows, which whet divides into splits.

    A data set with the keys train, validation, test is one source for each, of the split that the key names there.
    """
    if not isinstance(node.value, dict):
        return None
    if not is_source(node):
        return by_split(node, "`data`")
    named = {key: item for key, item in node.value.items() if key in (*SPLITS, *ALIASES)}
    if not named or FILE in node.value:
        return None
    if "split" in node.value:
        node.value["split"].refuse("`data` names a `split` and splits by name. Keep one of the two.")
    shared = {key: item for key, item in node.value.items() if key not in named}
    own = by_split(replace(node, value=named), "`data`")
    return {split: replace(item, value={**shared, "split": item}) for split, item in own.items()}


def source_rows(node: Node, folder: Path, slots: frozenset[str]) -> list[SourceRow]:
    """The rows that a source describes; `slots` are those of the prompt. Raises UsageError with its place."""
    assert isinstance(node.value, dict), "a source is a mapping"
    if FILE in node.value:
        path = folder / decode(node, FileEntry, "`data`").file
        mark = node.value.get("delimiter")
        delimiter = "," if mark is None and kind_of(path) not in KINDS else _delimiter(mark)
        return read_rows(path, node.value[FILE].where, slots, delimiter=delimiter)
    source = set_fields(decode(node, DatasetEntry, "`data`"))
    if "seed" in source and "rows" not in source:
        node.value["seed"].refuse(
            "`seed` chooses among the rows, and `rows` does not say how many. Add rows: 500."
        )
    local = folder / source[DATASETS]
    name = str(local) if local.is_dir() else source[DATASETS]
    split, rows, columns = load_split(
        name, source.get("config"), source.get("split"), node.where, source.get("revision")
    )
    names = source.get("columns") or {name: name for name in columns}
    _refuse_unknown_columns(names, columns, node)
    renamed = [_rename_columns(clean_row(row), names) for row in rows]
    chosen = renamed if "rows" not in source else _subset(renamed, source["rows"], source.get("seed", 0))
    place = f"{node.where}: {source[DATASETS]}, {split}"
    return Table(tidy_columns(chosen), place, True, tuple(names)).rows(slots)


def load_split(
    name: str, config: str | None, split: str | None, where: str, revision: str | None = None
) -> tuple[str, list[dict[str, object]], list[str]]:
    """A split (default: train, else the first) of a data set, its rows and its columns; classes become their names, and cells
    without a value are left out. Raises UsageError."""
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            f"{where}: {name} needs the package datasets. Install it: pip install 'whet[datasets]'"
        ) from error
    pinned = {} if revision is None else {"revision": revision}
    try:
        loaded: Any = datasets.load_dataset(name, *([] if config is None else [config]), **pinned)
    except Exception as error:  # its many exceptions have no common class
        raise UsageError(f"{where}: {name} cannot be loaded: {type(error).__name__}: {error}") from error
    chosen = split or ("train" if "train" in loaded else next(iter(loaded)))
    if chosen not in loaded:
        raise UsageError(f'{where}: {name} has no split "{chosen}". Known: {", ".join(loaded)}.')
    features = loaded[chosen].features
    rows = (as_typed(row, features) for row in loaded[chosen])
    cells = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return chosen, cells, list(loaded[chosen].column_names)


def _delimiter(node: Node | None) -> str | None:
    if node is None:
        return None
    text = str(node.value) if isinstance(node.value, str) else node.raw
    mark = "\t" if text == "tab" else text
    if len(mark) != 1 or mark in '"\r\n':
        node.refuse(f'`delimiter` is one character or tab; this is {text!r}. Write delimiter: ";".')
    return mark


def _refuse_unknown_columns(names: Mapping[str, str], known: Sequence[str], node: Node) -> None:
    for key, column in names.items():
        if column not in known and key != "target":
            node.value["columns"].refuse(
                f'`columns`: the data set has no column "{column}".{did_you_mean(column, known)}'
            )


def _rename_columns(row: dict[str, object], names: Mapping[str, str]) -> dict[str, Any]:
    """The row with the columns that are named, under the names that they get; without those in which it has no value."""
    return {key: row[column] for key, column in names.items() if column in row}


def _subset(rows: list[dict[str, Any]], count: int, seed: int) -> list[dict[str, object]]:
    """`count` rows, by a seeded hash of their content: neither order nor other rows matter."""
    return sorted(rows, key=lambda row: content_hash([seed, repr(row)]))[:count]
