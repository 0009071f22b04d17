"""Search of what was stored: pages of feedback and of inferences, newest first, and the stream of events.

A page goes on where its cursor says, not at a number of rows, so that the thousandth page costs what the first one
costs and no row is shown twice while others arrive.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache, reduce
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    TableClause,
    Text,
    column,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
)

from whet._util.words import writes_without_blanks
from whet.errors import UsageError
from whet_client.records import EARLIEST, LATEST, Feedback, Inference, check_storable
from whet_live.database import time_of
from whet_live.traffic.rows import chunks, feedback_of_row, read_inference
from whet_live.traffic.traffic_tables import (
    PLAIN_TEXT,
    SIGNS,
    erased,
    feedback,
    inferences,
    traffic_counts,
    traffic_head,
)

MOST_ROWS = 1000
_CURSOR = re.compile(r"(\d{1,19})\.(\d{1,19})")
_MOST_WORDS = 16
_MOST_SPELLINGS = 8
_MOST_MONTHS = 600
_DOTTED = "\u0130"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StoredInference:
    """An inference with its number and the time of its arrival (microseconds since 1970-01-01 UTC)."""

    seq: int
    received: int
    inference: Inference


@dataclass(frozen=True, slots=True)
class StoredFeedback:
    """Feedback with its number, the time of its arrival, and the inference that it was joined to.

    `about` is the number of that inference, `joined` the number of the joining, `prompt` and `version` those of the
    inference; None, None, "" and 0 while it has not arrived.
    """

    seq: int
    received: int
    feedback: Feedback
    prompt: str
    version: int
    about: int | None
    joined: int | None


@dataclass(frozen=True, slots=True)
class RowPage(Generic[_T]):
    """Rows, and the cursor of the next page; None on the last one."""

    rows: list[_T]
    next: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """The choice of rows to find; None means any."""

    prompt: str | None = None
    version: int | None = None
    user: str | None = None
    since: int | None = None
    """Microseconds, included."""
    until: int | None = None
    """Microseconds, excluded."""
    kind: str | None = None
    """Of feedback."""
    source: str | None = None
    """Of feedback."""
    text: str | None = None
    """Of feedback: all words of it, in any order. In SQLite the newest arrivals come first, unless all words are of scripts
    without blanks, which are found anywhere in the text."""
    session: str | None = None
    """Of inferences."""
    episode: str | None = None
    """Of inferences."""
    model: str | None = None
    """Of inferences."""
    failed: bool | None = None
    """Of inferences: whether there was an error."""
    unreviewed: bool = False
    """Of inferences: only those without an annotator's feedback."""


EVERYTHING = Filter()
"""No filter at all."""


@dataclass(frozen=True, slots=True)
class Count:
    """Number, mean and standard deviation of one kind of feedback (or of inference, cost in dollars, latency in
    seconds, error) for one version of a prompt, of all rows that came: of a person who changed a rating, both. Waiting feedback
    stands under the empty prompt."""

    prompt: str
    version: int
    kind: str
    n: int
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class TrafficEvent:
    """One fact of the stream. `seq` grows and never repeats.

    `kind` is `feedback` (with its inference, or None if that has not arrived), `joined` (the inference of an earlier
    feedback arrived), or `erased` (forget the row with this `id`, an inference or feedback). `received` is
    when feedback arrived, in microseconds since 1970-01-01 UTC by this side's clock; 0 for the others.
    """

    seq: int
    kind: str
    id: str
    feedback: Feedback | None = None
    inference: Inference | None = None
    received: int = 0


def find_feedback(
    connection: Connection, wanted: Filter, limit: int, cursor: str | None
) -> RowPage[StoredFeedback]:
    """One page of feedback. Raises UsageError for a cursor that is none."""
    f = feedback.c
    where = _common(feedback, wanted)
    where += [
        column == value for column, value in ((f.kind, wanted.kind), (f.source, wanted.source)) if value
    ]
    if wanted.text is None:
        query = _after(select(f.seq, f.time).where(*where), feedback, cursor)
    else:
        words = wanted.text.split()[:_MOST_WORDS]
        words = [word for word in words if _has_letter(word) or _has_symbol(word)] or words
        if not words:
            return RowPage([], None)
        inside = [word for word in words if not _has_letter(word) or writes_without_blanks(word)]
        where += [_contains(word) for word in inside]
        indexed = [word for word in words if word not in inside]
        query = _words(connection, wanted, indexed) if indexed else select(f.seq, f.time)
        by_index = bool(indexed) and connection.dialect.name == "sqlite"
        query = (_in_order_of_arrival if by_index else _after)(query.where(*where), feedback, cursor)
    numbers, more = _page(connection, query, limit)
    rows = _by_number(connection, feedback, numbers)
    return RowPage([stored_feedback(row) for row in rows], more)


def find_inferences(
    connection: Connection, wanted: Filter, limit: int, cursor: str | None
) -> RowPage[StoredInference]:
    """One page of inferences. Raises UsageError for a cursor that is none."""
    i = inferences.c
    query = _after(select(i.seq, i.time).where(*_inference_conditions(wanted)), inferences, cursor)
    numbers, more = _page(connection, query, limit)
    return RowPage([stored_inference(row) for row in _by_number(connection, inferences, numbers)], more)


def inference_rows(connection: Connection, wanted: Filter, limit: int, cursor: str | None) -> Sequence[Any]:
    """Whole rows of inferences, the newest first, those of somebody who is being forgotten among them. Raises UsageError for a
    cursor that is none."""
    query = _after(select(inferences).where(*_inference_conditions(wanted)), inferences, cursor)
    return connection.execute(query.limit(limit)).all()


def newest_inferences(wanted: Filter, most: int, *columns: Column[Any]) -> Select[*tuple[Any, ...]]:
    """The query for columns of the newest `most` inferences that fit, newest first, without those of somebody who is being
    forgotten."""
    where = [*_inference_conditions(wanted), is_remembered(inferences)]
    return _after(select(*columns).where(*where), inferences, None).limit(most)


def is_remembered(table: Table) -> ColumnElement[bool]:
    """Whether a row of `inferences` or `feedback` is not of somebody who is being forgotten (`hide_forgotten`)."""
    what = "inference" if table is inferences else "feedback"
    return ~exists().where(erased.c.id == table.c.id, erased.c.what == what)


def _inference_conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    i = inferences.c
    where = _common(inferences, wanted)
    pairs = ((i.session, wanted.session), (i.episode, wanted.episode), (i.model, wanted.model))
    where += [column == value for column, value in pairs if value]
    if wanted.failed is not None:
        where.append(i.error.is_not(None) if wanted.failed else i.error.is_(None))
    if wanted.unreviewed:
        where.append(~exists().where(feedback.c.about == i.seq, feedback.c.source == "annotator"))
    return where


def _common(table: Table, wanted: Filter) -> list[ColumnElement[bool]]:
    c = table.c
    for field in fields(wanted):
        check_storable(getattr(wanted, field.name), field.name)
    pairs = ((c.prompt, wanted.prompt), (c.version, wanted.version), (c.user, wanted.user))
    where = [column == value for column, value in pairs if value is not None]
    if wanted.since is not None:
        where.append(c.time >= wanted.since)
    if wanted.until is not None:
        where.append(c.time < wanted.until)
    return where


def _after(query: Select[*tuple[Any, ...]], table: Table, cursor: str | None) -> Select[*tuple[Any, ...]]:
    """Newest first, and what comes after the cursor only."""
    time, seq = table.c.time, table.c.seq
    if cursor is not None:
        at = _place(cursor)
        query = query.where(tuple_(time, seq) < tuple_(literal(at[0], time.type), literal(at[1], seq.type)))
    return query.order_by(time.desc(), seq.desc())


def _in_order_of_arrival(
    query: Select[*tuple[Any, ...]], _: Table, cursor: str | None
) -> Select[*tuple[Any, ...]]:
    """The same by the number of the rows, which is the order of the index of words."""
    number = _WORDS.c.rowid
    if cursor is not None:
        query = query.where(number < _place(cursor)[1])
    return query.order_by(number.desc())


def _place(cursor: str) -> tuple[int, int]:
    match = _CURSOR.fullmatch(cursor)
    if match is None or max(map(int, match.groups())) >= 2**63:
        raise UsageError(f'"{cursor[:40]}" is no cursor. Take the one that the page before gave.')
    return int(match[1]), int(match[2])


def _page(
    connection: Connection, query: Select[*tuple[Any, ...]], limit: int
) -> tuple[list[int], str | None]:
    limit = min(max(limit, 1), MOST_ROWS)
    rows = connection.execute(query.limit(limit + 1)).all()
    last = rows[limit - 1] if len(rows) > limit else None
    return [row.seq for row in rows[:limit]], None if last is None else f"{last.time}.{last.seq}"


def _by_number(connection: Connection, table: Table, numbers: Sequence[int]) -> list[Any]:
    """Rows by `seq`, in the order of the numbers; those that are gone are left out."""
    rows = {}
    for part in chunks(numbers):
        rows.update({row.seq: row for row in connection.execute(select(table).where(table.c.seq.in_(part)))})
    return hide_forgotten(connection, table, [rows[number] for number in numbers if number in rows])


def hide_forgotten(connection: Connection, table: Table, rows: Sequence[Any]) -> list[object]:
    """The rows without those of somebody who is being forgotten: they are erased already, and deleted soon."""
    what, gone = "inference" if table is inferences else "feedback", set[str]()
    for part in chunks(row.id for row in rows):
        marked = select(erased.c.id).where(erased.c.id.in_(part), erased.c.what == what)
        gone.update(connection.execute(marked).scalars())
    return [row for row in rows if row.id not in gone]


_BLANKS = str.maketrans(dict.fromkeys(SIGNS, " "))
_WORDS = TableClause("feedback_words", column("rowid", feedback.c.seq.type), column("feedback_words", Text))
"""The index of words in SQLite, an FTS5 table (`traffic_tables`)."""


def _contains(word: str) -> ColumnElement[bool]:
    """Rows whose text holds a word of a script without blanks, of which the indexes know whole sentences only, or signs, of which
    they know nothing. Rows are read from the newest until a page is full. SQLite's `lower` knows the case of ASCII only."""
    cased = dict.fromkeys(form for one in (word, word.upper(), word.title()) for form in _forms(one))
    return or_(*(feedback.c.text.icontains(form, autoescape=True) for form in cased))


def _words(connection: Connection, wanted: Filter, words: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """Rows whose text has every word, by the index that each database keeps. An accent is found whether it was sent composed
    or decomposed (Unicode NFC, NFD)."""
    query = select(feedback.c.seq, feedback.c.time)
    if connection.dialect.name == "postgresql":
        simple = text("'simple'")
        vector = func.to_tsvector(simple, text(PLAIN_TEXT.replace(":", "\\:")))
        either = [
            _join_conditions(
                "||", (func.phraseto_tsquery(simple, form.translate(_BLANKS)) for form in _forms(word))
            )
            for word in words
        ]
        return query.where(vector.op("@@")(_join_conditions("&&", either)))
    parts = [f"({' OR '.join(_phrase('text', form) for form in _forms(word))})" for word in words]
    parts += [_phrase(name, value) for name in ("prompt", "kind") if (value := getattr(wanted, name))]
    parts.append(_months(wanted.since, wanted.until, time_of(connection)))
    match = _WORDS.c.feedback_words.op("MATCH")(" AND ".join(part for part in parts if part))
    return query.join_from(_WORDS, feedback, _WORDS.c.rowid == feedback.c.seq).where(match)


def _forms(word: str) -> list[str]:
    """A word with its accents composed and decomposed, and with letters that stand for several as one and as several (Unicode's
    full case folding: ß and ss). The index keeps texts as they were sent, in simple lower case, in which İ is i for PostgreSQL
    and itself for SQLite: a word is found with either."""
    folded, plain = word.casefold(), word.replace(_DOTTED, "i").casefold()
    dotted = [plain, plain.replace("i", _DOTTED), plain.replace("i", _DOTTED, 1)] if "i" in plain else []
    joined = [folded.replace(letters, letter) for letters, letter in _folded_letters() if letters in folded]
    spellings = [word, folded, *dotted, *joined][:_MOST_SPELLINGS]
    return list(
        dict.fromkeys(
            unicodedata.normalize(form, spelling) for spelling in spellings for form in ("NFC", "NFD")
        )
    )


@cache
def _folded_letters() -> list[tuple[str, str]]:
    """The small letters that become several when case is folded, each after those."""
    letters = (chr(code) for code in range(0x80, 0x20000))
    return [
        (letter.casefold(), letter) for letter in letters if letter.islower() and len(letter.casefold()) > 1
    ]


def _join_conditions(sign: str, parts: Iterable[ColumnElement[Any]]) -> ColumnElement[Any]:
    return reduce(lambda one, other: one.op(sign)(other), parts)


def _months(since: int | None, until: int | None, now: int) -> str:
    """The months between two times as an FTS5 expression, so that the index passes over the others by itself; nothing
    when they are unbounded or more than a few years. What a bounding month has beyond the times is left to the query."""
    if since is None and until is None:
        return ""
    ends = (since or EARLIEST, now if until is None else min(until, now))
    first, last = (_month(min(max(moment, EARLIEST), LATEST)) for moment in ends)
    if not 0 <= last - first <= _MOST_MONTHS:
        return ""
    names = [f'"{month // 12:04}{month % 12 + 1:02}"' for month in range(first, last + 1)]
    return f"month:({' OR '.join(names)})"


def _month(moment: int) -> int:
    """Months since the year 0."""
    date = datetime.fromtimestamp(moment / 1_000_000, UTC)
    return date.year * 12 + date.month - 1


def _has_symbol(text: str) -> bool:
    """Whether a text holds a sign such as 👎. Punctuation beside words is passed over."""
    return any(unicodedata.category(sign) == "So" for sign in text)


def _has_letter(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def _phrase(column: str, word: str) -> str:
    """An FTS5 phrase in one column; nothing when it has no word."""
    return f'{column}:"{word.replace(chr(34), " ")}"' if _has_letter(word) else ""


def stored_inference(row: Any) -> StoredInference:
    """An inference from its row."""
    return StoredInference(row.seq, row.received, read_inference(row))


def stored_feedback(row: Any) -> StoredFeedback:
    """Feedback from its row."""
    return StoredFeedback(
        row.seq, row.received, feedback_of_row(row), row.prompt, row.version, row.about, row.joined
    )


def counts(connection: Connection, prompts: Iterable[str] | None, version: int | None) -> list[Count]:
    """Counts of some prompts or of all, in the order of prompt, version and kind."""
    c = traffic_counts.c
    query = select(traffic_counts).order_by(c.prompt, c.version, c.kind)
    if version is not None:
        query = query.where(c.version == version)
    parts = [query] if prompts is None else [query.where(c.prompt.in_(part)) for part in chunks(prompts)]
    rows = [row for part in parts for row in connection.execute(part)]
    return sorted((_count(row) for row in rows), key=lambda entry: (entry.prompt, entry.version, entry.kind))


def _count(row: Any) -> Count:
    mean = row.total / row.n
    variance = max(row.squares / row.n - mean * mean, 0.0)
    return Count(row.prompt, row.version, row.kind, row.n, mean, variance**0.5)


def head(connection: Connection) -> int:
    """The number of the newest event; 0 in the beginning."""
    return int(connection.execute(select(traffic_head.c.seq)).scalar_one())


def traffic_events(connection: Connection, after: int, limit: int) -> list[TrafficEvent]:
    """The first `limit` events after number `after`, in order."""
    f, e = feedback.c, erased.c
    feedback_rows = _first(connection, feedback, f.seq, f.seq > after, limit)
    late = _first(connection, feedback, f.joined, (f.joined > after) & (f.joined > f.seq), limit)
    gone = _first(connection, erased, e.seq, e.seq > after, limit)
    numbers = [row.about for row in (*feedback_rows, *late) if row.about is not None]
    rows = _by_number(connection, inferences, list(dict.fromkeys(numbers)))
    known = {row.seq: read_inference(row) for row in rows}
    stream = [TrafficEvent(row.seq, "erased", row.id) for row in gone]
    stream += [
        TrafficEvent(row.joined, "joined", row.id, feedback_of_row(row), known.get(row.about), row.received)
        for row in late
    ]
    for row in feedback_rows:
        at_once = known.get(row.about) if row.joined == row.seq else None
        stream.append(TrafficEvent(row.seq, "feedback", row.id, feedback_of_row(row), at_once, row.received))
    return sorted(stream, key=lambda event: event.seq)[:limit]


def _first(
    connection: Connection, table: Table, number: Column[Any], where: ColumnElement[bool], limit: int
) -> Sequence[Any]:
    return connection.execute(select(table).where(where).order_by(number).limit(limit)).all()
