"""Deletion: everything of one user, and everything older than a date, from rows, counts and the index of words alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
    update,
)

from whet_live.traffic.rows import chunks
from whet_live.traffic.search import head
from whet_live.traffic.tallies import Tally, add_inference, add_to_tally, count_kept, write_tally
from whet_live.traffic.traffic_tables import erased, feedback, inferences, otlp_spans
from whet_live.traffic.write import end_turn, take_turn

_ROWS = 2000
"""Rows of each table that expire at a time."""
_TOGETHER = 1000
"""Rows of a user that are deleted at a time."""


@dataclass(frozen=True, slots=True)
class Erased:
    """The numbers of inferences and of feedback rows that were deleted, and of inferences that are old enough but were spared."""

    inferences: int = 0
    feedback: int = 0
    spared: int = 0

    def __add__(self, other: Erased) -> Erased:
        inferences, feedback = self.inferences + other.inferences, self.feedback + other.feedback
        return Erased(inferences, feedback, self.spared + other.spared)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result of a transaction that deletes: the number of rows, the experiments that they were part of, the number of
    rows left to later transactions, and the ids of rows that are quoted elsewhere, with their prompts."""

    count: Erased = Erased()
    experiments: frozenset[str] = frozenset()
    left: int = 0
    quoted: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()


@dataclass
class OwnedRows:
    """Inferences and feedback of a user by number, with their ids, and the prompts that they are about.

    `head` is the newest `seq` when they were looked up, `settled` when they were written down as erased.
    """

    head: int
    inference_ids: dict[int, str]
    feedback_ids: dict[int, str]
    prompts: frozenset[str]
    settled: int = 0

    def __add__(self, other: OwnedRows) -> OwnedRows:
        inference_ids = self.inference_ids | other.inference_ids
        feedback_ids = self.feedback_ids | other.feedback_ids
        return OwnedRows(other.head, inference_ids, feedback_ids, self.prompts | other.prompts)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all of them."""
        return frozenset((*self.inference_ids.values(), *self.feedback_ids.values()))

    @property
    def left(self) -> int:
        """The number of rows that are not deleted yet."""
        return len(self.inference_ids) + len(self.feedback_ids)

    def next(self) -> tuple[list[int], list[int]]:
        """Numbers of inferences and of feedback that are deleted next. Feedback goes first: others are never left with
        feedback about nothing."""
        feedback_numbers = [*self.feedback_ids][:_TOGETHER]
        inference_numbers = [*self.inference_ids][: _TOGETHER - len(feedback_numbers)]
        for numbers, rows in ((inference_numbers, self.inference_ids), (feedback_numbers, self.feedback_ids)):
            for number in numbers:
                del rows[number]
        return inference_numbers, feedback_numbers


def owned_by(connection: Connection, user: str, after: int | None = None) -> OwnedRows:
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
    newest = head(connection)
    one = connection.execute(inference_query).all()
    other = [row for query in feedback_queries for row in connection.execute(query)]
    prompts = frozenset(row.prompt for row in (*one, *other))
    return OwnedRows(newest, {row.seq: row.id for row in one}, {row.seq: row.id for row in other}, prompts)


def _feedback_conditions(user: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Feedback by a user, and feedback about the user's inferences."""
    mine = select(inferences.c.seq).where(inferences.c.user == user)
    return feedback.c.user == user, feedback.c.about.in_(mine)


def settle(connection: Connection, user: str, owned: OwnedRows, quoted: Collection[str]) -> None:
    """Write down all rows of a user, and feedback that is only quoted any more, as erased: a sender that repeats them does not
    bring them back, no search finds them, and a learner forgets them."""
    newest = take_turn(connection)
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
    owned.settled = _mark(connection, newest, [(id, "feedback") for id in sorted({*quoted} - owned.ids)])


def take(connection: Connection, owned: OwnedRows, *, first: bool) -> Deletion:
    """Delete the next part, `_TOGETHER` rows. Feedback that came, or was joined, after the rows were settled is settled here, and
    may be quoted. Each part writes something down as erased, if need be once more, so that every counter of rows counts anew."""
    newest = take_turn(connection)
    numbers, feedback_numbers = owned.next()
    inference_rows = _select_numbers(connection, inferences, numbers)
    feedback_rows = _select_numbers(connection, feedback, feedback_numbers)
    feedback_rows += _about(connection, inference_rows, feedback_rows)
    late = [row for row in feedback_rows if max(row.seq, row.joined or 0) > owned.settled]
    marks = [(row.id, "feedback") for row in late or feedback_rows[:1]] or [
        (row.id, "inference") for row in inference_rows[:1]
    ]
    if late or not first:
        _mark(connection, newest, marks)
    return _remove(connection, inference_rows, feedback_rows, late, owned.left)


def _mark(connection: Connection, newest: int, marks: Sequence[tuple[str, str]]) -> int:
    """Write down what was erased; the newest `seq` after it."""
    rows = [{"seq": newest + n, "id": id, "what": what} for n, (id, what) in enumerate(marks, 1)]
    if rows:
        connection.execute(erased.insert(), rows)
        end_turn(connection, newest + len(rows))
    return newest + len(rows)


def any_erased(connection: Connection, ids: Iterable[str]) -> bool:
    """Whether one of these rows was erased."""
    queries = (select(erased.c.seq).where(erased.c.id.in_(part)).limit(1) for part in chunks(ids))
    return any(connection.execute(query).first() is not None for query in queries)


def erased_after(connection: Connection, seq: int) -> set[str]:
    """Ids of what was erased after the event `seq`."""
    return set(connection.execute(select(erased.c.id).where(erased.c.seq > seq)).scalars())


def latest_arrival(connection: Connection) -> int | None:
    """The arrival of the newest inference or feedback, in microseconds by the server's clock; None if nothing is stored."""
    newest = [
        connection.execute(select(func.max(table.c.received))).scalar() for table in (inferences, feedback)
    ]
    return max((moment for moment in newest if moment is not None), default=None)


def expire_batch(
    connection: Connection, before: int, start: int, kept: Collection[str]
) -> tuple[Deletion, int]:
    """Delete `_ROWS` rows of each table that arrived between two times (microseconds by the clock of the server), and from which
    time on to look for more. Nothing is deleted when none is left: then it counts what was spared.

    Feedback about these inferences goes with them, however late it arrived: nobody could tell any more whose answer it is about,
    and so an erasure would miss it. Rows with words are written down as erased, so that learners forget them. Inferences of the
    experiments `kept` stay with all feedback about them: their figures would change without them.
    """
    newest = take_turn(connection)
    one, other = inferences.c, feedback.c
    tried = one.experiment.in_(kept)
    old = _light(inferences).where(one.received < before, one.received >= start).order_by(one.received)
    then = _light(feedback).where(other.received < before, other.received >= start).order_by(other.received)
    if kept:
        old = old.where(or_(one.experiment.is_(None), ~tried))
        then = then.where(~select(one.seq).where(one.seq == other.about, tried).exists())
    inference_rows, feedback_rows = (list(connection.execute(query.limit(_ROWS))) for query in (old, then))
    ends = [rows[-1].received for rows in (inference_rows, feedback_rows) if len(rows) == _ROWS]
    feedback_rows += _about(connection, inference_rows, feedback_rows)
    if not inference_rows and not feedback_rows:
        connection.execute(delete(otlp_spans).where(otlp_spans.c.received < before))
        left = select(func.count()).select_from(inferences).where(tried, one.received < before)
        return Deletion(Erased(spared=int(connection.execute(left).scalar_one()) if kept else 0)), before
    quoted = [row for row in feedback_rows if row.has_text]
    _mark(connection, newest, [(row.id, "feedback") for row in quoted])
    return _remove(connection, inference_rows, feedback_rows, quoted), min(ends, default=before)


def _select_numbers(connection: Connection, table: Table, numbers: Sequence[int]) -> list[Any]:
    query = _light(table)
    return [row for part in chunks(numbers) for row in connection.execute(query.where(table.c.seq.in_(part)))]


def _about(connection: Connection, answers: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """Feedback about answers beside that which is `known`."""
    numbers = {row.seq for row in known}
    queries = (
        _light(feedback).where(feedback.c.about.in_(part)) for part in chunks(row.seq for row in answers)
    )
    return [row for query in queries for row in connection.execute(query) if row.seq not in numbers]


def _light(table: Table) -> Select[*tuple[Any, ...]]:
    """The columns of a row that deletion needs."""
    names = ("seq", "id", "prompt", "version", "received", "sender", "size")
    if table is inferences:
        failed = inferences.c.error.is_not(None).label("failed")
        return select(*(table.c[name] for name in (*names, "cost", "latency", "experiment")), failed)
    has_text = feedback.c.text.is_not(None).label("has_text")
    return select(*(table.c[name] for name in (*names, "kind", "value", "joined")), has_text)


def _remove(
    connection: Connection,
    inference_rows: Sequence[Any],
    feedback_rows: Sequence[Any],
    quoted: Sequence[Any],
    left: int = 0,
) -> Deletion:
    """Delete rows and take them out of the counts; some of them are `quoted` elsewhere."""
    tally: Tally = {}
    for row in feedback_rows:
        add_to_tally(tally, (row.prompt, row.version, row.kind), row.value, -1, always=True)
    for row in inference_rows:
        add_inference(tally, row, row.failed, -1)
    tables: tuple[tuple[Table, Sequence[Any]], ...] = (
        (inferences, inference_rows),
        (feedback, feedback_rows),
    )
    for table, rows in tables:
        for part in chunks(row.seq for row in rows):
            connection.execute(delete(table).where(table.c.seq.in_(part)))
    for part in chunks(row.id for row in inference_rows):  # ids stay, so that a late span is known as erased
        mine = otlp_spans.c.inference.in_(part)
        nothing = dict.fromkeys(("response", "cost", "input_tokens", "output_tokens", "digest"))
        connection.execute(update(otlp_spans).where(mine).values(nothing))
    write_tally(connection, tally)
    count_kept(connection, [(row.sender, -row.size) for row in (*inference_rows, *feedback_rows)])
    tried = frozenset(row.experiment for row in inference_rows if row.experiment is not None)
    ids, prompts = frozenset(row.id for row in quoted), frozenset(row.prompt for row in quoted)
    return Deletion(Erased(len(inference_rows), len(feedback_rows)), tried, left, ids, prompts)
