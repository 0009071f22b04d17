"""Who sends rows: what a sender's rows may be about, and how much of them is kept.

What is kept of each sender is counted in the database, in the transaction that stores or deletes a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, case, select

from whet.errors import UsageError
from whet.live.database import insert
from whet.live.traffic.traffic_tables import traffic_senders

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
    """How many bytes are stored of each sender."""
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
        statement = insert(connection, traffic_senders).values(name=name, bytes=max(size, 0))
        more = s.bytes + size
        grown = case((more > 0, more), else_=0)
        connection.execute(statement.on_conflict_do_update(index_elements=[s.name], set_={"bytes": grown}))
