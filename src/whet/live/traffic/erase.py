"""Deletion: everything of one user, and everything older than a date, from rows, counts and the index of words alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    func,
    literal,
    or_,
    select,
    union,
)

from whet.live.database import Database
from whet.live.traffic.senders import count_kept
from whet.live.traffic.tallies import Tally, add, count
from whet.live.traffic.traffic_tables import erased, feedback, inferences, traffic_head
from whet.live.traffic.write import chunks, end_turn, take_turn

_ROWS = 2000
"""Rows of each table that expire at a time."""
_TOGETHER = 1000
"""Rows of a user that are deleted at a time."""
_PAUSE = 0.05
"""Seconds between two transactions; writers of other processes look that often whether they may write."""


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
class Deletion:
    """What a transaction deletes: how much, the experiments that the rows were part of, and how many rows are left to the
    transactions after it."""

    count: Erased = Erased()
    experiments: frozenset[str] = frozenset()
    left: int = 0


Begin = Callable[[], AbstractContextManager[Connection]]
"""Opens a transaction that writes."""

Also = Callable[[Connection, Deletion], None]
"""What else happens in the transaction that deletes a part."""

EraseQuotes = Callable[[Connection, frozenset[str], frozenset[str], bool], Collection[str]]
"""Takes away what quotes rows with these ids, which are about these prompts; if the last says so, also what quotes rows of the
user that are not stored any more, and returns their ids."""

Spare = Callable[[Connection], Collection[str]]
"""The experiments whose inferences stay."""


def forget_user(
    database: Database,
    user: str,
    *,
    begin: Begin,
    erase_quotes: EraseQuotes,
    also: Also,
) -> Erased:
    """Delete every inference of a user, every feedback by that user, and every feedback about those inferences, in
    transactions of `_TOGETHER` rows with pauses in which others write.

    The first one settles it: the ids of all these rows are written down as erased, so that a sender that repeats them does
    not bring them back, no search finds them and a learner forgets them, and `unsay` takes away what quotes them. What a
    crash leaves is deleted by the same call once more. What the user does after the first transaction stays, what others say
    about the rows until they are gone goes with them.
    """
    with database.read() as connection:
        owned = _owned(connection, user)
    with begin() as connection:
        newest = take_turn(connection)
        owned += _owned(connection, user, owned.head)
        expired = sorted({*erase_quotes(connection, owned.ids, owned.prompts, True)} - owned.ids)
        newest = _mark_all(connection, newest, user, owned)
        owned.settled = _mark(connection, newest, [(id, "feedback") for id in expired])
        total = _take(connection, owned, erase_quotes, also, first=True)
    while owned.left:
        time.sleep(_PAUSE)
        with begin() as connection:
            total += _take(connection, owned, erase_quotes, also, first=False)
    return total


@dataclass
class _Owned:
    """Inferences and feedback of a user by number, with their ids, and the prompts that they are about.

    `head` is the newest `seq` when they were looked up, `settled` when they were written down as erased.
    """

    head: int
    inference_ids: dict[int, str]
    feedback_ids: dict[int, str]
    prompts: frozenset[str]
    settled: int = 0

    def __add__(self, other: _Owned) -> _Owned:
        inference_ids, feedback_ids = (
            self.inference_ids | other.inference_ids,
            self.feedback_ids | other.feedback_ids,
        )
        return _Owned(other.head, inference_ids, feedback_ids, self.prompts | other.prompts)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset((*self.inference_ids.values(), *self.feedback_ids.values()))

    @property
    def left(self) -> int:
        return len(self.inference_ids) + len(self.feedback_ids)

    def take(self) -> tuple[list[int], list[int]]:
        """Numbers of inferences and of feedback that are deleted next. Feedback goes first: others are never left with
        feedback about nothing."""
        feedback_numbers = [*self.feedback_ids][:_TOGETHER]
        inference_numbers = [*self.inference_ids][: _TOGETHER - len(feedback_numbers)]
        for numbers, rows in ((inference_numbers, self.inference_ids), (feedback_numbers, self.feedback_ids)):
            for number in numbers:
                del rows[number]
        return inference_numbers, feedback_numbers


def _owned(connection: Connection, user: str, after: int | None = None) -> _Owned:
    """Rows of a user, and feedback about them; of what came, or was joined, after the event `after`."""
    i, f = inferences.c, feedback.c
    inference_query = select(i.seq, i.id, i.prompt).where(i.user == user)
    feedback_query = select(f.seq, f.id, f.prompt)
    by, about = _feedback_conditions(user)
    feedback_queries = [feedback_query.where(by), feedback_query.where(about)]
    if after is not None:
        inference_query, belongs = inference_query.where(i.seq > after), or_(by, about)
        feedback_queries = [
            feedback_query.where(f.seq > after, belongs),
            feedback_query.where(f.joined > after, f.joined > f.seq, belongs),
        ]
    head = int(connection.execute(select(traffic_head.c.seq)).scalar_one())
    one = connection.execute(inference_query).all()
    other = [row for query in feedback_queries for row in connection.execute(query)]
    prompts = frozenset(row.prompt for row in (*one, *other))
    return _Owned(head, {row.seq: row.id for row in one}, {row.seq: row.id for row in other}, prompts)


def _feedback_conditions(user: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Feedback by a user, and feedback about the user's inferences."""
    mine = select(inferences.c.seq).where(inferences.c.user == user)
    return feedback.c.user == user, feedback.c.about.in_(mine)


def _take(
    connection: Connection, owned: _Owned, erase_quotes: EraseQuotes, also: Also, *, first: bool
) -> Erased:
    """Delete the next part. Feedback that came, or was joined, after the rows were settled is settled here. Each part writes
    something down as erased, if need be once more, so that every counter of rows counts anew."""
    newest = take_turn(connection)
    numbers, feedback_numbers = owned.take()
    inference_rows, feedback_rows = (
        _numbered(connection, inferences, numbers),
        _numbered(connection, feedback, feedback_numbers),
    )
    known = {row.seq for row in feedback_rows}
    for part in chunks(numbers):
        rows = connection.execute(_light(feedback).where(feedback.c.about.in_(part)))
        feedback_rows += [row for row in rows if row.seq not in known]
    late = [row for row in feedback_rows if max(row.seq, row.joined or 0) > owned.settled]
    gone = _remove(connection, inference_rows, feedback_rows, owned.left)
    marks = [(row.id, "feedback") for row in late or feedback_rows[:1]] or [
        (row.id, "inference") for row in inference_rows[:1]
    ]
    if late or not first:
        _mark(connection, newest, marks)
    if late:
        erase_quotes(
            connection, frozenset(row.id for row in late), frozenset(row.prompt for row in late), False
        )
    also(connection, gone)
    return gone.count


def _mark_all(connection: Connection, newest: int, user: str, owned: _Owned) -> int:
    """Write down all of a user as erased; the newest `seq` after it."""
    i, f = inferences.c, feedback.c
    by, about = _feedback_conditions(user)
    feedback_rows = union(select(f.seq, f.id).where(by), select(f.seq, f.id).where(about)).subquery()
    inference_rows = select(i.seq, i.id).where(i.user == user).subquery()
    for rows, what, most in (
        (inference_rows, "inference", len(owned.inference_ids)),
        (feedback_rows, "feedback", len(owned.feedback_ids)),
    ):
        number = literal(newest, BigInteger) + func.row_number().over(order_by=rows.c.seq)
        marks = erased.insert().from_select(["seq", "id", "what"], select(number, rows.c.id, literal(what)))
        connection.execute(marks)
        newest += most
    end_turn(connection, newest)
    return newest


def _mark(connection: Connection, newest: int, marks: Sequence[tuple[str, str]]) -> int:
    """Write down what was erased; the newest `seq` after it."""
    rows = [{"seq": newest + n, "id": id, "what": what} for n, (id, what) in enumerate(marks, 1)]
    if rows:
        connection.execute(erased.insert(), rows)
        end_turn(connection, newest + len(rows))
    return newest + len(rows)


def erased_after(connection: Connection, seq: int) -> set[str]:
    """Ids of what was erased after the event `seq`."""
    return set(connection.execute(select(erased.c.id).where(erased.c.seq > seq)).scalars())


def expire(
    database: Database,
    before: int,
    *,
    spare: Spare,
    begin: Begin,
    erase_quotes: EraseQuotes,
    also: Also,
) -> Erased:
    """Delete what arrived before a time (microseconds since 1970-01-01 UTC, by the clock of the server), in transactions of
    `_ROWS` rows of each table, and what quotes it. What the senders say about the time does not count.

    Rows with words are written down as erased, so that learners forget them.

    Inferences of the experiments that `spare` names stay with all feedback about them: their figures would change without
    them. It is called anew in each transaction.
    """
    total, start = Erased(), 0
    one, other = inferences.c, feedback.c
    while True:
        with begin() as connection:
            newest = take_turn(connection)
            kept = list(spare(connection))
            tried = one.experiment.in_(kept)
            old = (
                _light(inferences).where(one.received < before, one.received >= start).order_by(one.received)
            )
            then = (
                _light(feedback)
                .where(other.received < before, other.received >= start)
                .order_by(other.received)
            )
            if kept:
                old = old.where(or_(one.experiment.is_(None), ~tried))
                then = then.where(~select(one.seq).where(one.seq == other.about, tried).exists())
            inference_rows, feedback_rows = _some(connection, old), _some(connection, then)
            if not inference_rows and not feedback_rows:
                left = select(func.count()).select_from(inferences).where(tried, one.received < before)
                return total + Erased(spared=int(connection.execute(left).scalar_one()) if kept else 0)
            _forget_words(connection, newest, [row for row in feedback_rows if row.has_text], erase_quotes)
            gone = _remove(connection, inference_rows, feedback_rows)
            also(connection, gone)
        total += gone.count
        time.sleep(_PAUSE)
        start = min(
            [rows[-1].received for rows in (inference_rows, feedback_rows) if len(rows) == _ROWS],
            default=before,
        )


def _forget_words(
    connection: Connection, newest: int, quoted: Sequence[Any], erase_quotes: EraseQuotes
) -> None:
    """Have learners forget feedback that goes, and take away what quotes it."""
    _mark(connection, newest, [(row.id, "feedback") for row in quoted])
    if quoted:
        names = frozenset(row.prompt for row in quoted)
        erase_quotes(connection, frozenset(row.id for row in quoted), names, False)


def _some(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[Any]:
    return list(connection.execute(query.limit(_ROWS)))


def _numbered(connection: Connection, table: Table, numbers: Sequence[int]) -> list[Any]:
    query = _light(table)
    return [row for part in chunks(numbers) for row in connection.execute(query.where(table.c.seq.in_(part)))]


def _light(table: Table) -> Select[*tuple[Any, ...]]:
    """What deleting needs of a row."""
    names = ("seq", "id", "prompt", "version", "received", "sender", "size")
    if table is inferences:
        failed = inferences.c.error.is_not(None).label("failed")
        return select(*(table.c[name] for name in (*names, "cost", "latency", "experiment")), failed)
    has_text = feedback.c.text.is_not(None).label("has_text")
    return select(*(table.c[name] for name in (*names, "kind", "value", "joined")), has_text)


def _remove(
    connection: Connection, inference_rows: Sequence[Any], feedback_rows: Sequence[Any], left: int = 0
) -> Deletion:
    """Delete rows and take them out of the counts."""
    tally: Tally = {}
    for row in feedback_rows:
        add(tally, (row.prompt, row.version, row.kind), row.value, -1, always=True)
    for row in inference_rows:
        place = (row.prompt, row.version)
        add(tally, (*place, "inference"), 1.0, -1)
        add(tally, (*place, "cost"), row.cost, -1)
        add(tally, (*place, "latency"), row.latency, -1)
        add(tally, (*place, "error"), 1.0 if row.failed else None, -1)
    tables: tuple[tuple[Table, Sequence[Any]], ...] = (
        (inferences, inference_rows),
        (feedback, feedback_rows),
    )
    for table, rows in tables:
        for part in chunks(row.seq for row in rows):
            connection.execute(delete(table).where(table.c.seq.in_(part)))
    count(connection, tally)
    count_kept(connection, [(row.sender, -row.size) for row in (*inference_rows, *feedback_rows)])
    tried = frozenset(row.experiment for row in inference_rows if row.experiment is not None)
    return Deletion(Erased(len(inference_rows), len(feedback_rows)), tried, left)
