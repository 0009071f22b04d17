"""The counts kept beside the rows: of every prompt, version and kind, and of the bytes of each sender; and who a sender is.

They change in the transaction that stores or deletes a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, case, select
from sqlalchemy.dialects import postgresql, sqlite

from whet.errors import UsageError
from whet_live.database import insert_into
from whet_live.traffic.traffic_tables import traffic_counts, traffic_senders

Key = tuple[str, int, str]
Tally = dict[Key, list[float]]


def add_to_tally(tally: Tally, key: Key, value: float | None, times: int = 1, always: bool = False) -> None:
    """Count one value, `times` 1 or -1. A row without a value counts only if `always`, as 0."""
    if value is None and not always:
        return
    number = value or 0.0
    sums = tally.setdefault(key, [0, 0.0, 0.0])
    sums[0] += times
    sums[1] += times * number
    sums[2] += times * number * number


def add_inference(tally: Tally, one: Any, failed: bool, times: int = 1) -> None:
    """Count an answer, an `Inference` or its row, with its cost and latency, `times` 1 or -1."""
    values = {"inference": 1.0, "cost": one.cost, "latency": one.latency, "error": 1.0 if failed else None}
    for kind, value in values.items():
        add_to_tally(tally, (one.prompt, one.version, kind), value, times)


def write_tally(connection: Connection, tally: Tally) -> None:
    """Add a tally to the counts, and drop those that came down to nothing."""
    changed = {key: sums for key, sums in tally.items() if any(sums)}
    if not changed:
        return
    rows = [
        dict(zip(("prompt", "version", "kind", "n", "total", "squares"), (*key, *sums), strict=True))
        for key, sums in changed.items()
    ]
    connection.execute(_counting(connection.dialect.name), rows)
    if any(sums[0] < 0 for sums in changed.values()):
        connection.execute(traffic_counts.delete().where(traffic_counts.c.n <= 0))


@cache
def _counting(dialect: str) -> Any:
    """The statement that adds to the counts."""
    new = (postgresql if dialect == "postgresql" else sqlite).insert(traffic_counts)
    sums = {name: traffic_counts.c[name] + new.excluded[name] for name in ("n", "total", "squares")}
    keys = [traffic_counts.c.prompt, traffic_counts.c.version, traffic_counts.c.kind]
    return new.on_conflict_do_update(index_elements=keys, set_=sums)


# Senders

ROW_BYTES = 512
"""Counted for each row beside its content: keys, times, indexes."""


@dataclass(frozen=True, slots=True)
class RowSender:
    """Somebody who sends rows, by name. The rows may be about `prompts` only (None: about any), and at most `most_bytes` of
    them are kept at a time (None: no limit)."""

    name: str
    prompts: frozenset[str] | None = None
    most_bytes: int | None = None

    @property
    def scope(self) -> list[str] | None:
        """The prompts as they are stored beside feedback."""
        return None if self.prompts is None else sorted(self.prompts)


class DiskQuotaExceeded(UsageError):
    """A sender has as many bytes stored as it may. Nothing of the batch was stored."""

    def __init__(self, sender: RowSender, kept: int) -> None:
        super().__init__(
            f"{kept:,} bytes of {sender.name} are stored, at most {sender.most_bytes:,} may be. Nothing of the request was "
            "kept. Delete old rows (whet serve --retention-days N), or raise the limit (whet serve --disk-per-app N)."
        )


def kept_bytes(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the stored bytes of each sender."""
    s = traffic_senders.c
    return {
        row.name: row.bytes
        for row in connection.execute(select(s.name, s.bytes).where(s.name.in_(list(names))))
    }


def count_kept(connection: Connection, changes: Iterable[tuple[str | None, int]]) -> None:
    """Add to what is stored of senders: a row's size when it comes, the same below zero when it goes."""
    sums: dict[str, int] = {}
    for name, size in changes:
        if name is not None:
            sums[name] = sums.get(name, 0) + size
    s = traffic_senders.c
    for name, size in sums.items():
        statement = insert_into(connection, traffic_senders).values(name=name, bytes=max(size, 0))
        more = s.bytes + size
        grown = case((more > 0, more), else_=0)
        connection.execute(statement.on_conflict_do_update(index_elements=[s.name], set_={"bytes": grown}))
