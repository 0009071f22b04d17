"""Patterns of failures in the database: names, the critiques in them, what naming them took; and their erasure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Connection, Exists, Select, exists, func, select

from whet.feedback.sources import EVALUATOR, principal
from whet_live.database import put
from whet_live.learner.feedback_state import WORDED_KINDS
from whet_live.learner.learner_tables import failure_patterns, pattern_days, pattern_rows
from whet_live.learner.pattern_reading import PatternName
from whet_live.traffic.rows import chunks
from whet_live.traffic.traffic_tables import erased, feedback, inferences

NO_FAILURE, WITHHELD, UNREADABLE = "none", "withheld", "unreadable"
"""Verdicts of critiques that are in no pattern: they report no failure, look like an attack, or could not be read."""
MOST_WAITING = 5_000
"""Critiques among which the next ones are chosen."""
_i, _f, _r = inferences.c, feedback.c, pattern_rows.c


@dataclass(frozen=True, slots=True)
class PatternDay:
    """The calls that named the patterns of a prompt: `calls` on a `day` (UTC). `newest` is the highest number of a pattern
    so far, `at` when the last call was made (microseconds)."""

    prompt: str
    day: str = ""
    calls: int = 0
    newest: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class WaitingCritique:
    """A critique that is in no pattern yet: the ids of its row and of the `answer` that it is about, when it came (microseconds),
    and how often it was read in vain."""

    row: str
    answer: str
    received: int
    tries: int


def read_day(connection: Connection, prompt: str) -> PatternDay:
    """The calls for naming the patterns of a prompt so far."""
    row = connection.execute(select(pattern_days).where(pattern_days.c.prompt == prompt)).first()
    return PatternDay(prompt) if row is None else PatternDay(**row._mapping)


def write_day(connection: Connection, day: PatternDay) -> None:
    """Store what it took."""
    put(connection, pattern_days, asdict(day))


def new_critiques(prompt: str, since: int) -> Select[tuple[str]]:
    """The rows with words about answers of a prompt that came since a time, without those that were erased."""
    gone = exists().where(erased.c.id == _f.id, erased.c.what == "feedback")
    words = (_f.prompt == prompt, _f.text.is_not(None), _f.text != "", _f.kind.in_(WORDED_KINDS))
    joined = select(_f.id).join(inferences, _i.seq == _f.about)
    return joined.where(*words, _f.received >= since, ~gone)


def count_waiting(connection: Connection, prompt: str, since: int) -> tuple[int, int | None]:
    """Return the number of critiques that are not sorted yet, and the time of the first of them."""
    query = new_critiques(prompt, since).where(~_is_sorted())
    row = connection.execute(query.with_only_columns(func.count(), func.min(_f.received))).one()
    return int(row[0]), row[1]


def choose_waiting(connection: Connection, prompt: str, since: int, most: int) -> list[WaitingCritique]:
    """The critiques that are sorted next, the newest first; the first one of every source goes before the second one of any, so
    that nobody crowds out the others."""
    query = new_critiques(prompt, since).where(~_is_sorted()).order_by(_f.seq.desc()).limit(MOST_WAITING)
    tries = select(_r.tries).where(_r.row == _f.id).scalar_subquery()
    columns = (_f.id, _f.received, _f.source, _f.user, _i.id.label("answer"), _i.user.label("asker"), _i.session,
               func.coalesce(tries, 0).label("tries"))  # fmt: skip
    seen: dict[str, int] = {}
    ranked = []
    for place, row in enumerate(connection.execute(query.with_only_columns(*columns))):
        asker = row.asker or (row.session if (row.user or "").startswith(EVALUATOR) else None)
        who = principal(row.source, row.user, asker)
        rank = seen[who] = seen.get(who, 0) + 1
        ranked.append((rank, place, WaitingCritique(row.id, row.answer, row.received, row.tries)))
    return [one for *_, one in sorted(ranked, key=lambda item: item[:2])[:most]]


def _is_sorted() -> Exists:
    return exists().where(_r.row == _f.id, (_r.number > 0) | (_r.verdict != ""))


@dataclass(frozen=True, slots=True)
class StoredPattern(PatternName):
    """A pattern, and the number of the one that it was merged into; 0 for one that stands."""

    merged_into: int = 0

    @property
    def final(self) -> int:
        """The number of the pattern that its critiques are in."""
        return self.merged_into or self.number


def read_patterns(connection: Connection, prompt: str) -> dict[int, StoredPattern]:
    """The patterns of a prompt by number, those that were merged into others included."""
    p = failure_patterns.c
    query = (
        select(p.number, p.name, p.description, p.merged_into).where(p.prompt == prompt).order_by(p.number)
    )
    return {row.number: StoredPattern(*row) for row in connection.execute(query)}


def read_names(connection: Connection, prompt: str, most: int | None = None) -> list[PatternName]:
    """The patterns of a prompt by number; of many the `most` into which a critique was put last."""
    p = failure_patterns.c
    last = select(func.max(_r.at)).where(_r.prompt == p.prompt, _r.number == p.number).scalar_subquery()
    query = select(p.number, p.name, p.description).where(p.prompt == prompt, p.merged_into == 0)
    query = query.order_by(func.coalesce(last, 0).desc(), p.number).limit(most)
    return sorted((PatternName(*row) for row in connection.execute(query)), key=lambda one: one.number)


def write_rows(
    connection: Connection, prompt: str, rows: Iterable[tuple[WaitingCritique, int, str, int]], at: int
) -> None:
    """Store into which pattern critiques were put: (critique, number, verdict, tries)."""
    for one, number, verdict, tries in rows:
        row = {"row": one.row, "prompt": prompt, "number": number, "verdict": verdict, "tries": tries}
        put(connection, pattern_rows, {**row, "answer": one.answer, "at": at})


def write_pattern(
    connection: Connection, prompt: str, one: PatternName, origin: Sequence[str], model: str, at: int
) -> None:
    """Store a new pattern, whose name was written from the rows `origin`."""
    row = {"prompt": prompt, "number": one.number, "name": one.name, "description": one.description}
    put(connection, failure_patterns, {**row, "origin": list(origin), "model": model, "at": at})


def erase_pattern_rows(connection: Connection, gone: Collection[str]) -> None:
    """Take rows of traffic that were deleted out of the patterns. A pattern whose name was written from one of them goes with its
    name, and the critiques that are left of it are sorted anew."""
    prompts = set[str]()
    for part in chunks(gone):
        here: ColumnElement[bool] = _r.row.in_(part) | _r.answer.in_(part)
        prompts |= set(connection.execute(select(_r.prompt).where(here).distinct()).scalars())
    lost = frozenset(gone)
    for prompt in sorted(prompts):
        own = failure_patterns.c.prompt == prompt
        for row in connection.execute(
            select(failure_patterns.c.number, failure_patterns.c.origin).where(own)
        ).all():
            if not lost.isdisjoint(row.origin):
                number = row.number
                lost_here = (failure_patterns.c.number == number) | (failure_patterns.c.merged_into == number)
                connection.execute(failure_patterns.delete().where(own, lost_here))
                connection.execute(pattern_rows.delete().where(_r.prompt == prompt, _r.number == number))
    for part in chunks(gone):
        connection.execute(pattern_rows.delete().where(_r.row.in_(part) | _r.answer.in_(part)))


def is_erased(connection: Connection, rows: Iterable[WaitingCritique]) -> set[str]:
    """The ids of those of some critiques that were erased, or whose answers were."""
    items = list(rows)
    gone = set[str]()
    for part in chunks([*(item.row for item in items), *(item.answer for item in items)]):
        gone |= set(connection.execute(select(erased.c.id).where(erased.c.id.in_(part))).scalars())
    return {item.row for item in items if item.row in gone or item.answer in gone}
