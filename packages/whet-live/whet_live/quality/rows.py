"""The traffic of a prompt as columns of numbers: answers, and what was said or done about each of them.

More answers than `MOST_ANSWERS` are not read one by one: a share of them is, spread evenly over their numbers, whatever
else has numbers between them. The counts of answers are those of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from whet.models.openai_answers import FILTER_REASONS
from whet_live.quality.measures import DONE, FIELDS, JUDGED, SCORE
from whet_live.traffic.dataset import JUDGEMENTS, PEOPLE, RATED_BY_PEOPLE
from whet_live.traffic.traffic_tables import feedback, inferences

MOST_ANSWERS = 100_000
_KINDS = (*sorted(JUDGED | DONE), "score")
_i, _f = inferences.c, feedback.c


@dataclass(frozen=True, slots=True)
class QualityLook:
    """The rows of one look at the traffic: those before the time `until` whose number is at most `seq`."""

    until: int
    seq: int


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """A choice of answers: of a prompt, from `since` to before `until` (microseconds), of a version and a model where named;
    with `newest` only up to that number, and without those that the look `taken` took."""

    prompt: str
    since: int
    until: int
    version: int | None = None
    model: str | None = None
    newest: int | None = None
    taken: QualityLook | None = None

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        """The conditions on the rows of the table `inferences`."""
        conditions = [_i.prompt == self.prompt, _i.time >= self.since, _i.time < self.until]
        if self.version is not None:
            conditions.append(_i.version == self.version)
        if self.model is not None:
            conditions.append(_i.model == self.model)
        if self.newest is not None:
            conditions.append(_i.seq <= self.newest)
        if self.taken is not None:
            conditions.append(or_(_i.time >= self.taken.until, _i.seq > self.taken.seq))
        return conditions


@dataclass
class AnswerColumns:
    """Answers in the order of their time, one place in each column for each."""

    time: NDArray[np.int64]
    """Microseconds."""
    version: NDArray[np.int64]
    model: list[str]
    segment: list[str]
    """The value under the metadata's key that was asked for."""
    cluster: NDArray[np.int64]
    """The number of the user, else of the session, of the episode, or of the answer itself."""
    every: int
    """One of so many answers was read."""
    measured: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The values of each measure; nan where an answer has none."""


def metadata_text(connection: Connection, table: Any, key: str) -> ColumnElement[Any]:
    """The value of a key of a row's metadata as text; NULL where there is none."""
    if connection.dialect.name == "postgresql":
        text = func.replace(cast(table.c.metadata, Text), r"\u0000", r"\ufffd")  # a NUL, which JSONB refuses
        return cast(text, JSONB).op("->>")(literal(key))
    path = '$."' + key.replace('"', "") + '"'
    metadata = cast(table.c.metadata, Text)
    kind = func.json_type(metadata, path)  # SQLite has no truth values: it extracts 1 for true
    return case((kind.in_(["true", "false"]), kind), else_=cast(func.json_extract(metadata, path), String))


def flag_refusal(connection: Connection) -> ColumnElement[Any]:
    """1 for an answer without an error that is empty (not one whose stream the app left), or whose metadata hold a `refusal` or a
    `finish_reason` that providers document for a filter; any other reason is none."""
    reason = metadata_text(connection, inferences, "finish_reason")
    bare = func.lower(func.coalesce(reason, ""))
    for separator in "-_ ":
        bare = func.replace(bare, separator, "")
    refusal = func.coalesce(metadata_text(connection, inferences, "refusal"), "")
    filtered = or_(
        bare.in_(FILTER_REASONS),
        *(bare.like(f"%.{word}") for word in FILTER_REASONS),  # behind the name of an enumeration
        refusal.not_in(["", "0", "false", "null"]),
    )
    left = func.coalesce(metadata_text(connection, inferences, "left"), "") == "true"
    marked = or_(and_(_i.output == "", not_(left)), filtered)
    counted = case((_i.metadata.is_(None), _i.output == ""), else_=marked)
    return case((and_(_i.error.is_(None), counted), 1), else_=0)


def who_asked() -> ColumnElement[Any]:
    """Whose answer it is: the user, else the session, the episode, or nobody but itself; each in a namespace of its own."""
    named = ((_i.user, "user"), (_i.session, "session"), (_i.episode, "episode"), (_i.id, "answer"))
    return func.coalesce(*(literal(f"{kind}:").concat(column) for column, kind in named))


def count_answers(connection: Connection, wanted: AnswerFilter) -> int:
    """Count the answers."""
    return int(connection.execute(select(func.count()).where(*wanted.conditions)).scalar_one())


def _is_sampled(every: int) -> ColumnElement[bool]:
    """Whether a row is one of `every`: its number times the golden ratio, modulo 1, lies in the first part (a Weyl sequence). So
    the share is right among the rows of any regular pattern: answers and feedback that take turns, versions that do."""
    return (_i.seq % 2**31 * 2654435769) % 2**32 * every < 2**32


def read_answers(
    connection: Connection, wanted: AnswerFilter, key: str = "", most: int | None = None
) -> AnswerColumns:
    """The answers that fit, with all their measures; `key` names the key of the metadata that makes the segments."""
    every = max(1, -(-count_answers(connection, wanted) // (most or MOST_ANSWERS)))
    where = [*wanted.conditions, *([_is_sampled(every)] if every > 1 else [])]
    cluster = who_asked().label("cluster")
    segment = metadata_text(connection, inferences, key) if key else literal("")
    columns = (_i.seq, _i.time, _i.version, func.coalesce(_i.model, "").label("model"), cluster, segment.label("segment"),
               case((_i.error.is_(None), 0), else_=1).label("error"), flag_refusal(connection).label("refusal"),
               *(_i[name] for name in FIELDS))  # fmt: skip
    rows = connection.execute(select(*columns).where(*where).order_by(_i.time, _i.seq)).all()
    seqs, times, versions, models, clusters, segments, *measured = (
        zip(*rows, strict=True) if rows else [()] * len(columns)
    )
    place = {seq: n for n, seq in enumerate(seqs)}
    numbers: dict[str, int] = {}
    answers = AnswerColumns(
        np.array(times, dtype=np.int64),
        np.array(versions, dtype=np.int64),
        list(models),
        ["" if segment is None else str(segment) for segment in segments],
        np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64),
        every,
    )
    for name, values in zip(("error", "refusal", *FIELDS), measured, strict=True):
        answers.measured[name] = np.array(values, dtype=np.float64)  # None is nan
    _add_feedback(connection, where, place, answers)
    return answers


def _number_back() -> ColumnElement[int]:
    """1 for the last value of a person about an answer under a name, 2 for the one before it, ... (`dataset.name_rater`)."""
    person = case((_f.source == "user", func.coalesce(_f.user, _i.user, "")), else_=_f.user)
    named = and_(_f.kind.in_(JUDGEMENTS), _f.source.in_(PEOPLE), person.is_not(None))
    one = case((named, ""), else_=cast(_f.seq, String))
    order = func.row_number().over(
        partition_by=(_f.about, _f.kind, func.coalesce(_f.name, ""), _f.source, person, one),
        order_by=(_f.time.desc(), _f.seq.desc()),
    )
    return order


def _add_feedback(
    connection: Connection,
    where: list[ColumnElement[bool]],
    place: Mapping[int, int],
    answers: AnswerColumns,
) -> None:
    """The feedback on answers: several values about one answer count as their mean, under whatever names they came; scores
    count by their name. Of what one person says under one name the last value counts. What has the value 0 alone was not
    done. Ratings and thumbs are those of people."""
    score = case((_f.kind == "score", func.coalesce(_f.name, "")), else_="").label("score")
    values = (
        select(_f.about, _f.kind, score, _f.value, _number_back().label("back"))
        .join(inferences, _i.seq == _f.about)
        .where(*where, _f.kind.in_(_KINDS), or_(_f.kind.not_in(RATED_BY_PEOPLE), _f.source.in_(PEOPLE)))
        .subquery()
    )
    v = values.c
    done = func.max(func.coalesce(v.value, 1.0)).label("done")
    query = (
        select(v.about, v.kind, v.score, func.avg(v.value).label("value"), done)
        .where(v.back == 1)
        .group_by(v.about, v.kind, v.score)
    )
    sums: dict[str, NDArray[np.float64]] = {}
    n = len(answers.time)
    for name in DONE:
        sums[name] = np.zeros(n)
    seen: set[str] = set()
    for row in connection.execute(query):
        name = f"{SCORE}{row.score or 'score'}" if row.kind == "score" else row.kind
        at = place.get(row.about)
        if at is None:
            continue
        seen.add(name)
        if name in DONE:
            sums[name][at] = float(row.done > 0)
        elif row.value is not None:
            if name not in sums:
                sums[name] = np.full(n, np.nan)
            sums[name][at] = row.value
    answers.measured |= {name: values for name, values in sums.items() if name in seen}
