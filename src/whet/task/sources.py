"""Rows that `data:` describes with more than a path: a Hugging Face data set, a table whose delimiter is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.task.rows import KINDS, SourceRow, read_rows
from whet.task.spec import ALIASES, SPLITS, by_split
from whet.task.table import Table, as_typed, cleaned, tidy_columns
from whet.task.tree import Node
from whet.types import content_hash

DATASETS, FILE = "datasets", "file"
_SET_KEYS = (DATASETS, "config", "revision", "split", "columns", "rows", "seed")
_FILE_KEYS = (FILE, "delimiter")
_EXAMPLE = "data: {datasets: NAME, columns: {input: text, target: label}}"


def is_source(node: Node) -> bool:
    """Whether a value of `data` describes rows, and names no files by split."""
    return isinstance(node.value, dict) and bool({DATASETS, FILE} & node.value.keys())


def split_nodes(node: Node) -> dict[str, Node] | None:
    """What a value of `data` says of each split; None where it is one lot of rows, which whet deals into splits.

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
        keys = node.mapping("`data`", _FILE_KEYS)
        path = folder / keys[FILE].text("`file`", "file: rows.csv")
        mark = _delimiter(keys["delimiter"]) if "delimiter" in keys else None if path.suffix in KINDS else ","
        return read_rows(path, keys[FILE].where, slots, delimiter=mark)
    keys = node.mapping("`data`", (*_SET_KEYS, *SPLITS))
    words = {key: keys[key].text(f"`{key}`", _EXAMPLE) for key in _SET_KEYS[:4] if key in keys}
    local = folder / words[DATASETS]
    name = str(local) if local.is_dir() else words[DATASETS]
    split, values = load_split(
        name, words.get("config"), words.get("split"), node.where, words.get("revision")
    )
    values = [_renamed(cleaned(row), keys.get("columns")) for row in values]
    return Table(tidy_columns(_subset(values, keys)), f"{node.where}: {words[DATASETS]}, {split}", True).rows(
        slots
    )


def load_split(
    name: str, config: str | None, split: str | None, where: str, revision: str | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The rows of a split (default: train, else the first) of a data set; classes become their names. Raises UsageError."""
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
    return chosen, [{key: value for key, value in row.items() if value is not None} for row in rows]


def _delimiter(node: Node) -> str:
    text = str(node.value) if isinstance(node.value, str) else node.raw
    mark = "\t" if text == "tab" else text
    if len(mark) != 1 or mark in '"\r\n':
        node.refuse(f'`delimiter` is one character or tab; this is {text!r}. Write delimiter: ";".')
    return mark


def _renamed(row: dict[str, Any], columns: Node | None) -> dict[str, Any]:
    """The row with the columns that are named, under the names that they get. Raises UsageError for one that no row has."""
    if columns is None:
        return row
    names = {key: item.text("a column", _EXAMPLE) for key, item in columns.mapping("`columns`").items()}
    for key, column in names.items():
        if column not in row and key != "target":
            columns.refuse(f'`columns`: a row has no column "{column}".{did_you_mean(column, row)}')
    return {key: row[column] for key, column in names.items() if column in row}


def _subset(values: list[dict[str, Any]], keys: Mapping[str, Node]) -> list[dict[str, Any]]:
    """As many rows as `rows` says, by a seeded hash of their content: neither order nor other rows matter."""
    if "rows" not in keys:
        if "seed" in keys:
            keys["seed"].refuse(
                "`seed` chooses among the rows, and `rows` does not say how many. Add rows: 500."
            )
        return values
    count = keys["rows"].integer("`rows`", 1)
    seed = keys["seed"].integer("`seed`", 0) if "seed" in keys else 0
    return sorted(values, key=lambda row: content_hash([seed, repr(row)]))[:count]
