"""The counts of every prompt, version and kind, kept beside the rows."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from whet.live.traffic.traffic_tables import traffic_counts

Key = tuple[str, int, str]
Tally = dict[Key, list[float]]


def add(tally: Tally, key: Key, value: float | None, times: int = 1, always: bool = False) -> None:
    """Count one value, `times` 1 or -1. A row without a value counts only if `always`, as 0."""
    if value is None and not always:
        return
    number = value or 0.0
    sums = tally.setdefault(key, [0, 0.0, 0.0])
    sums[0] += times
    sums[1] += times * number
    sums[2] += times * number * number


def count(connection: Connection, tally: Tally) -> None:
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
