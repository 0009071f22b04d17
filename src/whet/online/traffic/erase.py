"""Deletion: everything of one user, and everything older than a date, from rows, counts and the index of words alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, func, or_, select

from whet.online.database import Database
from whet.online.traffic.tables import erased, feedback, inferences
from whet.online.traffic.write import Tally, add, chunks, count, end_turn, take_turn

_ROWS = 2000
"""Rows of each table that are deleted at a time."""


@dataclass(frozen=True, slots=True)
class Erased:
    """How many inferences and how many rows of feedback were deleted, and how many inferences that are old enough were
    spared."""

    inferences: int = 0
    feedback: int = 0
    spared: int = 0

    def __add__(self, other: Erased) -> Erased:
        inferences, feedback = self.inferences + other.inferences, self.feedback + other.feedback
        return Erased(inferences, feedback, self.spared + other.spared)


@dataclass(frozen=True, slots=True)
class Part:
    """What a transaction deletes: how much, the ids of the rows, the prompts that they are about, and the experiments
    that they were part of."""

    count: Erased = Erased()
    ids: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()
    experiments: frozenset[str] = frozenset()

    def __add__(self, other: Part) -> Part:
        ids, prompts = self.ids | other.ids, self.prompts | other.prompts
        return Part(self.count + other.count, ids, prompts, self.experiments | other.experiments)


Begin = Callable[[], AbstractContextManager[Connection]]
"""Opens a transaction that writes."""

Also = Callable[[Connection, Part], None]
"""What else happens in the transaction that deletes a part."""

Spare = Callable[[Connection], Collection[str]]
"""The experiments whose inferences stay."""


def forget_user(connection: Connection, user: str, heard: Collection[str] = ()) -> Part:
    """Delete every inference of a user, every feedback by that user, and every feedback about those inferences, in the
    transaction of the caller.

    The ids of the deleted rows stay, so that a sender that repeats them does not bring them back, and each is an
    event, so that a learner forgets them too. `heard` are ids of feedback of the user that is not stored any more.
    """
    newest, total = take_turn(connection), Part()
    while True:
        asked = _some(connection, select(inferences).where(inferences.c.user == user))
        said = _some(connection, select(feedback).where(feedback.c.user == user))
        known = {row.seq for row in said}
        for numbers in chunks(row.seq for row in asked):
            rows = connection.execute(select(feedback).where(feedback.c.about.in_(numbers))).all()
            said += [row for row in rows if row.seq not in known]
        if not asked and not said:
            break
        total += _remove(connection, asked, said)
        marks = [(row.id, "inference") for row in asked] + [(row.id, "feedback") for row in said]
        newest = _mark(connection, newest, marks)
    newest = _mark(connection, newest, [(key, "feedback") for key in sorted({*heard} - total.ids)])
    end_turn(connection, newest)
    return total + Part(ids=frozenset(heard))


def _mark(connection: Connection, newest: int, marks: Sequence[tuple[str, str]]) -> int:
    """Write down what was erased; the newest `seq` after it."""
    told = [{"seq": newest + n, "id": id, "what": what} for n, (id, what) in enumerate(marks, 1)]
    if told:
        connection.execute(erased.insert(), told)
    return newest + len(told)


def erased_after(connection: Connection, seq: int) -> set[str]:
    """Ids of what was erased after the event `seq`."""
    return set(connection.execute(select(erased.c.id).where(erased.c.seq > seq)).scalars())


def expire(
    database: Database,
    before: int,
    *,
    spare: Spare = lambda connection: (),
    begin: Begin | None = None,
    also: Also = lambda connection, part: None,
) -> Erased:
    """Delete what happened before a time (microseconds since 1970-01-01 UTC), in transactions of `_ROWS` rows of each table.
    What was learned from it stays.

    Inferences of the experiments that `spare` names stay with all feedback about them: their figures would change without
    them. It is asked anew in each transaction.
    """
    total, start = Erased(), 0
    one, other = inferences.c, feedback.c
    while True:
        with (begin or database.begin)() as connection:
            take_turn(connection)
            kept = list(spare(connection))
            tried = one.experiment.in_(kept)
            old = select(inferences).where(one.time < before, one.time >= start).order_by(one.time)
            then = select(feedback).where(other.time < before, other.time >= start).order_by(other.time)
            if kept:
                old = old.where(or_(one.experiment.is_(None), ~tried))
                then = then.where(~select(one.seq).where(one.seq == other.about, tried).exists())
            asked, said = _some(connection, old), _some(connection, then)
            if not asked and not said:
                left = select(func.count()).select_from(inferences).where(tried, one.time < before)
                return total + Erased(spared=int(connection.execute(left).scalar_one()) if kept else 0)
            gone = _remove(connection, asked, said)
            also(connection, gone)
        total += gone.count
        start = min([rows[-1].time for rows in (asked, said) if len(rows) == _ROWS], default=before)


def _some(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[Any]:
    return list(connection.execute(query.limit(_ROWS)))


def _remove(connection: Connection, asked: Sequence[Any], said: Sequence[Any]) -> Part:
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
    rows = [*asked, *said]
    ids, prompts = frozenset(row.id for row in rows), frozenset(row.prompt for row in rows)
    tried = frozenset(row.experiment for row in asked if row.experiment is not None)
    return Part(Erased(len(asked), len(said)), ids, prompts, tried)
