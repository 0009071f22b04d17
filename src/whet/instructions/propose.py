"""From critiques alone to a proposed change of a prompt's instructions: read, consolidate, change. What `whet learn` calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.instructions.answers import Known
from whet.instructions.changes import Conflict, as_events, conflicts, known_of, merges
from whet.instructions.consolidate import consolidate
from whet.instructions.neighbours import Embed
from whet.instructions.questions import Critique
from whet.instructions.reader import Reading, read_critiques
from whet.prompt import Prompt
from whet.prompt.events import Event
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import Change, changes, read_back, surroundings, write_ledger
from whet.run import Run


@dataclass(frozen=True)
class InstructionProposal:
    """A change that somebody may accept: the prompt as it would be, the events that lead there (those known before and the new
    ones), the difference per instruction, what the reader made of each critique, and contradictions with both sides."""

    prompt: Prompt
    events: tuple[Event, ...]
    new: tuple[Event, ...]
    changes: tuple[Change, ...]
    reading: Reading
    contradictions: tuple[Conflict, ...] = ()


async def propose_events(
    run: Run,
    prompt: Prompt,
    critiques: Sequence[Critique],
    events: Sequence[Event] = (),
    *,
    region: str | None = None,
    at: str = "",
    most: int | None = None,
    embed: Embed | None = None,
) -> InstructionProposal:
    """Turn critiques into events of the prompt's ledger, in at most `most` calls of the optimizer model.

    `events` is the ledger so far; edits made by hand since are read back first. Critiques that no answer mentioned are asked
    about once more. Nothing is stored. Raises EditRejected when the prompt refuses the edit.
    """
    start = read_back(prompt, events, region, at)
    ledger = fold_events(start)
    known, around = known_of(ledger), surroundings(prompt, region)
    reading = await read_critiques(run, critiques, known, around, most=most, embed=embed)
    left = None if most is None else most - reading.calls
    second = _second_look(reading)
    if second and reading.calls and (left is None or left > 0):
        reading = await _again(run, critiques, reading, second, known, around, left)
        left = None if most is None else most - reading.calls
    united = await consolidate(run, reading.requirements, known, most=left, embed=embed)
    named = conflicts(ledger, united.requirements, around)
    named += [Conflict(one, other) for one, other in united.contradictions]
    new = as_events(ledger, united.requirements, critiques, at=at)
    after = fold_events([*start, *new])
    new += merges(after, united.same, at=at)
    final = fold_events([*start, *new])
    total = replace(reading, requirements=united.requirements, calls=reading.calls + united.calls)
    whole = (*start, *new)
    return InstructionProposal(
        write_ledger(prompt, final, region),
        whole,
        whole[len(events) :],
        tuple(changes(ledger, final)),
        total,
        tuple(named),
    )


_SECOND = 2
"""The number of the answer to a second look: the same critiques may be asked about in the same words."""


def _second_look(first: Reading) -> tuple[int, ...]:
    """The critiques that are asked about once more: what no answer mentioned, but not by the same question where no answer to it
    could be read."""
    same = set() if first.manages is False else set(first.unreadable)
    return tuple(place for place in first.unread if place not in same)


async def _again(
    run: Run,
    critiques: Sequence[Critique],
    first: Reading,
    places: Sequence[int],
    known: Sequence[Known],
    around: str,
    most: int | None,
) -> Reading:
    """The reading with what a second look at the critiques that nobody mentioned gives."""
    again = [critiques[n] for n in places]
    second = await read_critiques(run, again, known, around, most=most, manages=first.manages, sample=_SECOND)
    second = second.renumber(places)
    requirements = (*first.requirements, *second.requirements)
    dismissed = {**first.dismissed, **second.dismissed}
    left = {*first.unread} - {*places}
    unread = tuple(sorted({*second.unread} | left))
    unreadable = tuple(sorted({*second.unreadable} | left))
    return Reading(requirements, dismissed, unread, first.calls + second.calls, unreadable=unreadable)
