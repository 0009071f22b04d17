"""Patterns of failures: the reader sorts the critiques of a prompt, within a budget of calls a day, and whet counts.

Critiques are comments, corrections, ratings with words and low grades of evaluators. The reader puts each into one pattern; known
patterns are shown with new critiques, so that a name stays. Critiques that look like an attack are never shown, personal data is
masked by its form, and inputs and answers are shown only where the owner of the prompt allows it.

A pack of critiques is one call. The call counts before it is made, so that no kill makes it more, and what it said is stored
before the next one: a known pattern is one that is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.engine.model_client import MAX_ATTEMPTS
from whet.errors import UsageError
from whet.feedback.model_session import ModelSession
from whet.instructions.neighbours import comparable
from whet.instructions.personal_data import mask_personal
from whet.instructions.questions import Critique
from whet.types import content_hash
from whet_live.database import iso, time_of
from whet_live.learner.answer_context import contexts_of
from whet_live.learner.context import LearnerContext
from whet_live.learner.feedback_state import Comment, comment_of
from whet_live.learner.leases import Lease, hold
from whet_live.learner.paid_steps import discard, model_session
from whet_live.learner.pattern_reading import PatternName, SortedCritiques, sort_critiques
from whet_live.learner.pattern_store import (
    NO_FAILURE,
    UNREADABLE,
    WITHHELD,
    PatternDay,
    StoredPattern,
    WaitingCritique,
    choose_waiting,
    count_waiting,
    is_erased,
    read_day,
    read_names,
    read_patterns,
    write_day,
    write_pattern,
    write_rows,
)
from whet_live.traffic import TrafficEvent

PATTERN_CALLS = 24
"""Calls a day for one prompt where nobody says more."""
PACK = 20
"""Critiques in one call."""
PACKS = 4
"""Calls between two looks at anything else."""
MOST_SHOWN = 60
"""Known patterns that the reader is shown."""
TRIES = 3
RECENT_DAYS = 90
_DAY, _HOUR = 86_400_000_000, 3_600_000_000


@dataclass(frozen=True, slots=True)
class PatternStep:
    """The result of one look at the critiques of a prompt: `critiques` were sorted or set aside in `calls` calls, and `more`
    says whether more can be done at once."""

    critiques: int = 0
    calls: int = 0
    more: bool = False


def since_when(moment: int) -> int:
    """From when on critiques are recent, at a time (microseconds)."""
    return moment - RECENT_DAYS * _DAY


def calls_left(daily: int, day: PatternDay, moment: int, *, whole_day: bool = False) -> int:
    """The number of calls that may be made at a time (microseconds): by hour h (UTC) (h + 1) / 24 of the day's, or all of them
    (`whole_day`). None where the state is of the next day: the clock of another server runs ahead, and has the budget of that
    day."""
    today = iso(moment)[:10]
    if today < day.day <= iso(moment + _DAY)[:10]:
        return 0
    share = 1.0 if whole_day else (moment % _DAY // _HOUR + 1) / 24
    return max(0, math.ceil(daily * share) - (day.calls if day.day == today else 0))


async def name_patterns(
    context: LearnerContext,
    name: str,
    daily: int,
    moment: int | None = None,
    *,
    whole_day: bool = False,
    packs: int = PACKS,
) -> PatternStep:
    """Have the reader sort some critiques of a prompt, a full pack at a time or what waits since an hour (`whole_day`: at
    once), in at most `packs` packs.

    Does nothing while another process does it. Raises UsageError without a reader, ProviderError where it does not answer, and
    RunLocked where another process took over.
    """
    if not context.config.reader:
        raise UsageError("No model reads feedback here. Name one with --optimizer-lm.")
    done = PatternStep()
    with hold(context.database, f"patterns {name}") as lease:
        if lease is None:
            return done
        for _ in range(packs):
            part = await _sort_pack(context, name, lease, (daily, moment, whole_day))
            done = PatternStep(done.critiques + part.critiques, done.calls + part.calls, part.more)
            if not part.more:
                return done
    return done


async def _sort_pack(
    context: LearnerContext, name: str, lease: Lease, limits: tuple[int, int | None, bool]
) -> PatternStep:
    """Sort the critiques of one pack; `limits` are the calls a day, the time (None: now), and whether they may all be made at
    once."""
    daily, moment, whole_day = limits
    with context.database.read() as connection:
        at = time_of(connection) if moment is None else moment
        day = read_day(connection, name)
        waiting, first = count_waiting(connection, name, since_when(at))
        full = waiting >= PACK or whole_day or (first is not None and at - first >= _HOUR)
        most = min(MAX_ATTEMPTS, calls_left(daily, day, at, whole_day=whole_day))
        if not waiting or not full or not most:
            return PatternStep()
        chosen = choose_waiting(connection, name, since_when(at), PACK)
        known = read_names(connection, name, MOST_SHOWN)
    rows = [(one, _read_comment(context, one)) for one in chosen]
    shown = [(one, row) for one, row in rows if row is not None and not row.flags]
    pack, calls = _Pack(rows, shown), 0
    if shown:
        today = iso(at)[:10]
        before = day.calls if day.day == today else 0
        day = replace(day, day=today, calls=before + most, at=at)
        _write_day(context, lease, day)
        session: ModelSession | None = None
        try:
            critiques, identity = _as_shown(context, name, shown, known)
            async with model_session(context.config, name, "patterns", identity, most) as session:
                pack = replace(pack, sorting=await sort_critiques(session.run, critiques, known))
        finally:
            calls = 0 if session is None else _count_calls(session, most)
            day = replace(day, calls=before + calls)
            _write_day(context, lease, day)
        pack = replace(pack, model=session.address)
        count = _store(context, name, lease, pack, day, at)
        discard(session.folder)
    else:
        count = _store(context, name, lease, pack, day, at)
    return PatternStep(count, calls, waiting > len(rows) or count < len(rows))


@dataclass(frozen=True)
class _Pack:
    """Critiques with their words, those of them that were `shown` to the `model`, and what it said of these."""

    rows: Sequence[tuple[WaitingCritique, Comment | None]]
    shown: Sequence[tuple[WaitingCritique, Comment]]
    sorting: SortedCritiques = field(default_factory=SortedCritiques)
    model: str = ""


def _read_comment(context: LearnerContext, one: WaitingCritique) -> Comment | None:
    """The words of a critique; None where it has none."""
    row, stored = context.traffic.feedback(one.row), context.traffic.inference(one.answer)
    if row is None or stored is None:
        return None
    event = TrafficEvent(row.seq, "feedback", one.row, row.feedback, stored.inference, row.received)
    return comment_of(event)


def _as_shown(
    context: LearnerContext,
    name: str,
    shown: Sequence[tuple[WaitingCritique, Comment]],
    known: Sequence[PatternName],
) -> tuple[list[Critique], dict[str, object]]:
    """The critiques as the reader sees them, and the identity of the call."""
    contexts = contexts_of(context.traffic, [row for _, row in shown], context.settings(name).reads)
    critiques = [
        Critique(mask_personal(row.text), row.id, context=contexts.get(row.id, ())) for _, row in shown
    ]
    texts = [[critique.source, critique.text, list(critique.context)] for critique in critiques]
    names = [[one.id, one.name, one.description] for one in known]
    return critiques, {"prompt": name, "shown": content_hash([texts, names, [one.tries for one, _ in shown]])}


def _count_calls(session: ModelSession, most: int) -> int:
    calls = session.usage.get("calls")
    made = calls.get("optimizer", most) if isinstance(calls, Mapping) else most
    return min(int(made), most)


def _write_day(context: LearnerContext, lease: Lease, day: PatternDay) -> None:
    with context.database.begin() as connection:
        lease.check(connection)
        write_day(connection, day)


def _store(context: LearnerContext, name: str, lease: Lease, pack: _Pack, day: PatternDay, at: int) -> int:
    """Store what was said of a pack, without critiques that were erased meanwhile; how many are done with. A name that was
    written from one of those is not stored: the others are sorted once more."""
    with context.registry.change() as connection:
        lease.check(connection)
        gone = is_erased(connection, [one for one, _ in pack.rows])
        places = {one.row: place for place, (one, _) in enumerate(pack.shown)}
        known = read_patterns(connection, name)
        numbers = {comparable(one.name): one.final for one in known.values()}
        for key, (title, description) in pack.sorting.new.items():
            if key in numbers:  # the name of one that was merged into another one, or not shown
                continue
            origin = [pack.shown[place][0].row for place, named in pack.sorting.named.items() if named == key]
            if gone.isdisjoint(origin):
                day = replace(day, newest=day.newest + 1)
                numbers[key] = day.newest
                pattern = PatternName(day.newest, title, description)
                write_pattern(connection, name, pattern, origin, pack.model, at)
        placed = [
            (one, *_place(pack.sorting, places.get(one.row), row, (numbers, known), one.tries))
            for one, row in pack.rows
            if one.row not in gone
        ]
        write_rows(connection, name, placed, at)
        write_day(connection, day)
    return len(gone) + sum(bool(number or verdict) for _, number, verdict, _ in placed)


def _place(
    sorting: SortedCritiques,
    place: int | None,
    row: Comment | None,
    stored: tuple[Mapping[str, int], Mapping[int, StoredPattern]],
    tries: int,
) -> tuple[int, str, int]:
    """The number of a critique's pattern, the verdict where it is in none, and how often it was read in vain; `stored` are the
    numbers by name and the patterns that were there before."""
    numbers, known = stored
    if place is None:
        return 0, NO_FAILURE if row is None else WITHHELD, tries
    if place in sorting.nothing:
        return 0, NO_FAILURE, tries
    number = sorting.known.get(place, 0)
    if number:
        if number not in known:  # somebody behind it was erased meanwhile
            return 0, "", tries
        return known[number].final, "", tries
    if place in sorting.named:
        if sorting.named[place] not in numbers:  # somebody behind the name was erased meanwhile
            return 0, "", tries
        return numbers[sorting.named[place]], "", tries
    return 0, UNREADABLE if tries + 1 >= TRIES else "", tries + 1


def describe_patterns(daily: int, reader: str) -> str:
    """The limits of naming patterns, in words for the person who starts the learner; empty if patterns are not named."""
    if not daily or not reader:
        return ""
    return (
        f"{reader} sorts critiques into patterns of failures, in at most {daily} calls a day for each prompt. "
        "Never: --pattern-calls-per-day 0"
    )
