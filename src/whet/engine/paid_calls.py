"""The task calls that a run's search paid, read from the journal by the place of each call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.engine.journal import read_journal_rows

_REQUESTS = (
    "SELECT COUNT(*), COUNT(DISTINCT digest) FROM effects WHERE name = 'task' AND key LIKE '/baseline/%'"
)
_CHARGED = "SELECT COALESCE(SUM(calls), 0) FROM effects WHERE role = 'task' AND key LIKE '/baseline/%'"
_SEARCHED = (
    "SELECT COUNT(DISTINCT digest) FROM effects WHERE name = 'task' AND (key LIKE '/search/%' OR key LIKE '/turn/%') "
    "AND digest NOT IN (SELECT digest FROM effects WHERE name = 'task' AND key LIKE '/baseline/%')"
)
_IN_SEARCH = "SELECT COALESCE(SUM(calls), 0) FROM effects WHERE role = 'task' AND (key LIKE '/search/%' OR key LIKE '/turn/%')"


@dataclass(frozen=True)
class SearchCalls:
    """Task calls of a run's baseline and search. `requests`: those of the baseline by their places, `distinct` the different ones
    among them, whose answers cost nothing when they are asked for again, and `charged` calls that cost something each time, such
    as scores of labels. `searched`: calls that the search paid."""

    requests: int
    distinct: int
    charged: int
    searched: int


def count_search_calls(journal: Path) -> SearchCalls:
    """The task calls of a run's baseline and search."""

    (requests, distinct), *_ = read_journal_rows(journal, _REQUESTS)
    charged, searched, search_charged = (
        int(read_journal_rows(journal, sql)[0][0]) for sql in (_CHARGED, _SEARCHED, _IN_SEARCH)
    )
    return SearchCalls(requests, distinct, charged, searched + search_charged)
