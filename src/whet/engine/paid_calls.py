"""Which task calls a run's search paid, read off the journal by the place of each call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.engine.journal import read_rows

_BASELINE, _SEARCH = "key LIKE '/baseline/%'", "(key LIKE '/search/%' OR key LIKE '/turn/%')"
_REQUESTS = "FROM effects WHERE name = 'task' AND"
_CHARGED = "SELECT COALESCE(SUM(calls), 0) FROM effects WHERE role = 'task' AND"


@dataclass(frozen=True)
class SearchCalls:
    """Task calls of a run's baseline and search. `requests`: those of the baseline by their places, `asked` the different ones
    among them, whose answers cost nothing when they are asked for again, and `charged` calls that cost something each time, such
    as scores of labels. `searched`: calls that the search paid."""

    requests: int
    asked: int
    charged: int
    searched: int


def count_search_calls(journal: Path) -> SearchCalls:
    """The task calls of a run's baseline and search."""

    def count(sql: str) -> int:
        return int(read_rows(journal, sql)[0][0])

    known = f"SELECT digest {_REQUESTS} {_BASELINE}"
    new = f"SELECT COUNT(DISTINCT digest) {_REQUESTS} {_SEARCH} AND digest NOT IN ({known})"
    return SearchCalls(
        count(f"SELECT COUNT(*) {_REQUESTS} {_BASELINE}"),
        count(f"SELECT COUNT(DISTINCT digest) {_REQUESTS} {_BASELINE}"),
        count(f"{_CHARGED} {_BASELINE}"),
        count(new) + count(f"{_CHARGED} {_SEARCH}"),
    )
