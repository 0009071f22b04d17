"""Deletion: everything of one user, and everything older than a date, from rows, counts and the index of words alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, select

from whet.online.database import Database
from whet.online.traffic.tables import erased, feedback, inferences
from whet.online.traffic.write import Tally, add, chunks, count, end_turn, take_turn

_ROWS = 2000
"""Rows deleted in one transaction: writers wait for no more than that."""


@dataclass(frozen=True, slots=True)
class Erased:
    """How many inferences and how many rows of feedback were deleted."""

    inferences: int = 0
    feedback: int = 0

    def __add__(self, other: Erased) -> Erased:
        return Erased(self.inferences + other.inferences, self.feedback + other.feedback)


def forget_user(database: Database, user: str) -> Erased:
    """Delete every inference of a user, every feedback by that user, and every feedback about those inferences.

    The ids of the deleted rows stay, so that a sender that repeats them does not bring them back, and each is an
    event, so that a learner forgets them too.
    """
    total = Erased()
    while True:
        with database.begin() as connection:
            newest = take_turn(connection)
            asked = _some(connection, select(inferences).where(inferences.c.user == user))
            numbers = [row.seq for row in asked]
            said = _some(connection, select(feedback).where(feedback.c.user == user))
            known = {row.seq for row in said}
            for part in chunks(numbers):
                rows = connection.execute(select(feedback).where(feedback.c.about.in_(part))).all()
                said += [row for row in rows if row.seq not in known]
            if not asked and not said:
                return total
            _remove(connection, asked, said)
            marks = [(row.id, "inference") for row in asked] + [(row.id, "feedback") for row in said]
            told = [{"seq": newest + n, "id": id, "what": what} for n, (id, what) in enumerate(marks, 1)]
            connection.execute(erased.insert(), told)
            end_turn(connection, newest + len(told))
        total += Erased(len(asked), len(said))


def expire(database: Database, before: int) -> Erased:
    """Delete what happened before a time (microseconds since 1970-01-01 UTC). What was learned from it stays."""
    total = Erased()
    while True:
        with database.begin() as connection:
            take_turn(connection)
            asked = _some(connection, select(inferences).where(inferences.c.time < before))
            said = _some(connection, select(feedback).where(feedback.c.time < before))
            if not asked and not said:
                return total
            _remove(connection, asked, said)
        total += Erased(len(asked), len(said))


def _some(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[Any]:
    return list(connection.execute(query.limit(_ROWS)))


def _remove(connection: Connection, asked: Sequence[Any], said: Sequence[Any]) -> None:
    """Delete rows and take them out of the counts."""
    tally: Tally = {}
    for row in said:
        add(tally, (row.prompt, row.version, row.kind), row.value, -1, always=True)
    for row in asked:
        place = (row.prompt, row.version)
        add(tally, (*place, "inference"), 1.0, -1)
        add(tally, (*place, "cost"), row.cost, -1)
        add(tally, (*place, "latency"), row.latency, -1)
        add(tally, (*place, "error"), None if row.error is None else 1.0, -1)
    tables: tuple[tuple[Table, Sequence[Any]], ...] = ((inferences, asked), (feedback, said))
    for table, rows in tables:
        for part in chunks(row.seq for row in rows):
            connection.execute(delete(table).where(table.c.seq.in_(part)))
    count(connection, tally)
