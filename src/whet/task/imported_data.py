"""The material from which `whet init` makes a task: rows, and perhaps a prompt and a reward that came with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

from whet.errors import UsageError, quantity
from whet.task.delimited import DELIMITERS, read_delimited
from whet.task.rows import SourceRow, check_columns
from whet_client.storable import show_value

_LANGFUSE_STATUS = ("ACTIVE", "ARCHIVED")


@dataclass(frozen=True)
class ImportedData:
    """Rows by split (`""`: not divided), and what came with them."""

    rows: Mapping[str, list[dict[str, Any]]]
    prompt: str | None = None
    reward: Any = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """The decisions made while reading."""
    columns: bool = True
    """Whether the rows are those of a table, whose input and target are still to be chosen."""
    inputs: tuple[str, ...] = ()
    """The columns that their author calls inputs."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further keys of task.yaml."""
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By split, where each row was read."""
    labels: bool = True
    """Whether frequent targets may become labels; False if the reward that came with the rows compares texts."""
    warnings: Sequence[str] = ()
    """The warnings about possible misreadings."""

    def all_rows(self) -> list[dict[str, object]]:
        """The rows of every split."""
        return [row for rows in self.rows.values() for row in rows]


def leave_out_archived(material: ImportedData, chosen: list[str]) -> ImportedData:
    """The rows without items that are archived in Langfuse, which runs none of these either."""
    every = material.all_rows()
    if not all(
        {"expectedOutput", "status"} <= row.keys() and row["status"] in _LANGFUSE_STATUS for row in every
    ):
        return material
    kept = {split: [row["status"] != "ARCHIVED" for row in rows] for split, rows in material.rows.items()}
    lost = sum(part.count(False) for part in kept.values())
    if lost == 0 or lost == len(every):
        return material
    chosen.append(
        f"{quantity(lost, 'row')} with the status ARCHIVED left out, as Langfuse leaves them out of its runs"
    )
    rows = {split: [*compress(part, kept[split])] for split, part in material.rows.items()}
    places = {split: [*compress(lines, kept[split])] for split, lines in material.places.items()}
    return replace(material, rows=rows, places=places)


def read_table(path: Path) -> tuple[list[SourceRow], list[str], Sequence[str]]:
    """Rows of a table of texts, how it was read, and warnings. Raises UsageError."""
    table = read_delimited(path)
    check_columns(table.header, f"{path}:{table.header_line}")
    rows = [
        SourceRow(dict(zip(table.header, cells, strict=True)), f"{path}:{line}")
        for line, cells in table.records
    ]
    if not rows:
        what = "there are no rows below the header" if table.header else "the file is empty"
        raise UsageError(
            f"{path}:1: {what}. Write a header with the names of the columns, and rows below it."
        )
    words = DELIMITERS.get(table.delimiter, show_value(table.delimiter))
    return rows, [f"columns divided by {words}", *table.all_notes()], table.doubts
