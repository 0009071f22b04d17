"""Pages of a list: some rows of a table, the newest first, and what to ask for the next ones with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, Select, select

from whet.errors import UsageError

Item = TypeVar("Item")
MOST = 500
"""The most rows of a page."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Item]):
    """Some items in order, and what to ask for the next ones with (`after`), None at the end."""

    items: Sequence[Item]
    after: str | None = None

    @classmethod
    def of(cls, items: Sequence[Item], limit: int, key: Callable[[Item], object]) -> ListPage[Item]:
        """The first `limit` items, of which one more than that was read where there are more; `key` is where one stands."""
        return cls(items[:limit], str(key(items[limit - 1])) if len(items) > limit else None)


def one_more(limit: int) -> int:
    """The number of rows to read for a page of `limit`. Raises UsageError for a page that is empty or too large."""
    if not 1 <= limit <= MOST:
        raise UsageError(f"A page has 1 to {MOST} rows, not {limit}.")
    return limit + 1


def newest_first(key: Column[Any], before: object, limit: int, **equal: object) -> Select[Any]:
    """The rows of a page of a table, by falling `key`: those in which columns are `equal` (None: any), and after those that
    the page before ended with. Raises UsageError for a page that is empty or too large."""
    query = select(key.table).order_by(key.desc()).limit(one_more(limit))
    query = query.filter_by(**{name: value for name, value in equal.items() if value is not None})
    return query if before is None else query.where(key < before)
