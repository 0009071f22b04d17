"""A report on the patterns of failures: critiques and users of each, by week with intervals, and examples."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, cast, func, select

from whet.errors import UsageError
from whet.stats.rates import wilson
from whet_live.database import Database, iso
from whet_live.learner.learner_tables import failure_patterns, pattern_rows
from whet_live.learner.pattern_store import (
    NO_FAILURE,
    UNREADABLE,
    WITHHELD,
    count_waiting,
    read_day,
)
from whet_live.learner.patterns import since_when
from whet_live.quality.report import check_prompt_known
from whet_live.quality.rows import AnswerFilter, count_answers, who_asked
from whet_live.quality.series import WEEK, begin_of
from whet_live.traffic.traffic_tables import feedback, inferences

WEEKS, MOST_WEEKS = 8, 52
EXAMPLES = 5
KNOWN_SECONDS = 300.0
MOST_COUNTED = 200_000
"""Answers of a period up to which the users of each week are counted, and shares with them."""
_i, _f, _r = inferences.c, feedback.c, pattern_rows.c


@dataclass(frozen=True, slots=True)
class PatternWeek:
    """A pattern in the week that begins at a time (microseconds): its `critiques` by the time of their answers, from answers to
    so many `users`. `active` users had an answer at all; `share` is users / active with its 95% interval. The last four are None
    where they are not counted."""

    at: int
    critiques: int
    users: int
    active: int | None = None
    share: float | None = None
    low: float | None = None
    high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The week as JSON values."""
        return {**asdict(self), "at": iso(self.at)}


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """A way in which answers fail."""

    id: str
    name: str
    description: str
    model: str
    """The author of the name: the reader's model, or a person."""
    named: int
    critiques: int
    """All critiques of the pattern."""
    users: int
    """The users whose answers they are about."""
    first: int
    """Time of the first of these answers."""
    last: int
    """Time of the last of these answers."""
    weeks: tuple[PatternWeek, ...]
    examples: tuple[str, ...]
    """Ids of the newest of these answers."""

    def as_json(self) -> dict[str, Any]:
        """The pattern as JSON values."""
        shown = {**asdict(self), "weeks": [week.as_json() for week in self.weeks]}
        return shown | {name: iso(getattr(self, name)) for name in ("named", "first", "last")}


@dataclass(frozen=True, slots=True)
class PatternReport:
    """The patterns of failures of a prompt, and how many of its critiques they hold."""

    prompt: str
    weeks: tuple[int, ...]
    """The weeks by which users are counted (their begins)."""
    patterns: tuple[FailurePattern, ...]
    """The patterns, those that most users met first."""
    in_patterns: int
    """Critiques that are in a pattern."""
    no_failure: int
    """Critiques that report no failure."""
    withheld: int
    """Critiques that look like an attack and were not read."""
    unreadable: int
    """Critiques that could not be read."""
    waiting: int
    """Critiques of the last `recent_days` that are not sorted yet."""
    day: str
    """The day of `calls` (UTC)."""
    calls: int
    """Calls that were made on `day`."""

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        shown = {**asdict(self), "weeks": [iso(week) for week in self.weeks]}
        return {**shown, "patterns": [pattern.as_json() for pattern in self.patterns]}


class WeeklyUsers:
    """The number of users with an answer in each week. Counts are reused for some minutes, because they take long where there
    are many answers, and change little. Threads may share it."""

    def __init__(self, seconds: float = KNOWN_SECONDS) -> None:
        self._seconds = seconds
        self._known: dict[tuple[str, tuple[int, ...]], tuple[float, Mapping[int, int] | None]] = {}

    def count(self, connection: Connection, prompt: str, begins: tuple[int, ...]) -> Mapping[int, int] | None:
        """The users of a prompt by the begins of weeks; None for more answers than are counted."""
        now_seconds = time.monotonic()
        known = self._known.get((prompt, begins))
        if known is not None and known[0] > now_seconds:
            return known[1]
        users = _users_of_weeks(connection, prompt, begins)
        left = {key: one for key, one in list(self._known.items()) if one[0] > now_seconds}
        self._known = {**left, (prompt, begins): (now_seconds + self._seconds, users)}
        return users


def report_patterns(
    database: Database,
    prompt: str,
    weeks: int = WEEKS,
    moment: int | None = None,
    *,
    users: WeeklyUsers | None = None,
) -> PatternReport:
    """The patterns of a prompt, with the last `weeks` weeks. Raises UsageError for an unknown prompt and another number of
    weeks."""
    if not 1 <= weeks <= MOST_WEEKS:
        raise UsageError(f"weeks is {weeks}; it must lie between 1 and {MOST_WEEKS}.")
    at = database.read_time() if moment is None else moment
    begins = tuple(begin_of(at, WEEK) - n * WEEK for n in reversed(range(weeks)))
    with database.read() as connection:
        check_prompt_known(connection, prompt)
        active = (users or WeeklyUsers()).count(connection, prompt, begins)
        counts = _count_verdicts(connection, prompt)
        patterns = _patterns(connection, prompt, begins, active)
        waiting, day = count_waiting(connection, prompt, since_when(at))[0], read_day(connection, prompt)
    return PatternReport(
        prompt=prompt,
        weeks=begins,
        patterns=patterns,
        in_patterns=sum(pattern.critiques for pattern in patterns),
        no_failure=counts.get(NO_FAILURE, 0),
        withheld=counts.get(WITHHELD, 0),
        unreadable=counts.get(UNREADABLE, 0),
        waiting=waiting,
        day=day.day,
        calls=day.calls,
    )


def _week(connection: Connection) -> ColumnElement[Any]:
    """The number of the week that an answer lies in."""
    shift = begin_of(0, WEEK)
    if connection.dialect.name == "sqlite":
        return cast((_i.time - shift) / WEEK, Integer)
    return func.div(_i.time - shift, WEEK)


def _users_of_weeks(connection: Connection, prompt: str, begins: tuple[int, ...]) -> Mapping[int, int] | None:
    """Count the users with an answer in each week, by the week's begin; None if there are more answers than are counted."""
    wanted = AnswerFilter(prompt, begins[0], begins[-1] + WEEK)
    if count_answers(connection, wanted) > MOST_COUNTED:
        return None
    week = _week(connection).label("week")
    query = select(week, func.count(who_asked().distinct())).where(*wanted.conditions).group_by(week)
    return {begin_of(0, WEEK) + int(row[0]) * WEEK: int(row[1]) for row in connection.execute(query)}


def _count_verdicts(connection: Connection, prompt: str) -> dict[str, int]:
    query = select(_r.verdict, func.count()).where(_r.prompt == prompt, _r.verdict != "").group_by(_r.verdict)
    return {row[0]: int(row[1]) for row in connection.execute(query)}


def _patterns(
    connection: Connection, prompt: str, begins: tuple[int, ...], active: Mapping[int, int] | None
) -> tuple[FailurePattern, ...]:
    joined = pattern_rows.join(feedback, _f.id == _r.row).join(inferences, _i.seq == _f.about)
    here = (_r.prompt == prompt, _r.number > 0)
    users, week = func.count(who_asked().distinct()), _week(connection).label("week")
    whole = select(_r.number, func.count(), users, func.min(_i.time), func.max(_i.time))
    totals = {
        row[0]: (int(row[1]), int(row[2]), int(row[3]), int(row[4]))
        for row in connection.execute(whole.select_from(joined).where(*here).group_by(_r.number))
    }
    by_week = select(_r.number, week, func.count(), users).select_from(joined)
    by_week = by_week.where(*here, _i.time >= begins[0], _i.time < begins[-1] + WEEK).group_by(
        _r.number, week
    )
    counted = {
        (row[0], begin_of(0, WEEK) + int(row[1]) * WEEK): (row[2], row[3])
        for row in connection.execute(by_week)
    }
    examples = _examples(connection, prompt)
    patterns = []
    for row in connection.execute(select(failure_patterns).where(failure_patterns.c.prompt == prompt)):
        if row.number not in totals:  # the answers behind it have expired
            continue
        own = tuple(_to_week(at, *counted.get((row.number, at), (0, 0)), active) for at in begins)
        patterns.append(
            FailurePattern(
                f"k{row.number}", row.name, row.description, row.model, row.at, *totals[row.number], own,
                tuple(examples.get(row.number, ())),
            )
        )  # fmt: skip
    return tuple(
        sorted(patterns, key=lambda one: (-sum(w.users for w in one.weeks), -one.critiques, one.named))
    )


def _to_week(at: int, critiques: int, users: int, active: Mapping[int, int] | None) -> PatternWeek:
    many = 0 if active is None else max(users, active.get(at, 0))
    if not many:
        return PatternWeek(at, critiques, users, None if active is None else 0)
    low, high = wilson(users, many)
    return PatternWeek(at, critiques, users, many, users / many, low, high)


def _examples(connection: Connection, prompt: str) -> dict[int, list[str]]:
    """The newest answers of each pattern."""
    place = func.row_number().over(partition_by=_r.number, order_by=_f.seq.desc()).label("place")
    joined = pattern_rows.join(feedback, _f.id == _r.row).join(inferences, _i.seq == _f.about)
    rows = (
        select(_r.number, _r.answer, place)
        .select_from(joined)
        .where(_r.prompt == prompt, _r.number > 0)
        .subquery()
    )
    query = select(rows.c.number, rows.c.answer).where(rows.c.place <= 2 * EXAMPLES).order_by(rows.c.place)
    examples = dict[int, list[str]]()
    for number, answer in connection.execute(query):
        own = examples.setdefault(number, [])
        if answer not in own and len(own) < EXAMPLES:
            own.append(answer)
    return examples
