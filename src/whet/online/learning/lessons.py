"""From demands to events of the ledger: the one place where words from outside may reach a model, and which ones.

The optimizer is shown, besides fixed text of this package: the prompt around the fence, the instructions that stand or stood
in it, and for each demand its *vouched* wording (`whet.online.trust.vouched`). Demands without one are distilled by rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from whet.online.learning.demands import Demand
from whet.online.registry import Version
from whet.online.registry.ledgers import manageable
from whet.online.screen import INSTRUCTION, Flag, Screen, in_plain_words
from whet.online.trust import Policy, secrets
from whet.policies.curator import DISTILLER, Curator
from whet.prompt import Prompt
from whet.prompt.events import Add, Event, Read, Rewrite
from whet.prompt.instructions import Ledger, fold
from whet.prompt.ledger import opened, surroundings, written
from whet.run import MemoryRun, Run
from whet.search.copies import copied
from whet.search.critiques import Complaint

MOST_EVIDENCE = 50
_MARK = " "


@dataclass(frozen=True)
class Taught:
    """What a lesson adds to the ledger of a region, the text that this leads to, and what it left out and why."""

    events: tuple[Event, ...]
    prompt: Prompt
    flags: tuple[Flag, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing is left of the lesson."""
        return not self.events


async def teach(
    run: Run, base: Version, region: str, demands: Sequence[Demand], *, calls: int, at: str
) -> list[Event]:
    """The events that meet the demands. At most `calls` optimizer calls; 0 asks no model."""
    prompt = manageable(base.prompt)
    stored = list(base.ledgers.get(region, ()))
    events = stored or [opened(prompt, region, at)]
    start = len(events)
    clean = [(n, d) for n, d in enumerate(demands) if d.vouched]
    foreign = [(n, d) for n, d in enumerate(demands) if not d.vouched]
    for part, writer, runs in ((clean, calls > 0, run), (foreign, False, MemoryRun())):
        if part:
            curator = Curator(prompt, writer, region=region, events=list(events))
            curator.hear(_complaints(part))
            await curator.learn(runs, max(1, calls * 3 // 4), at)
            events = list(curator.events)
    new = [_counted(event, demands) for event in events[start:]]
    return [*events[len(stored) : start], *in_plain_words(fold(events[:start]), new, DISTILLER)]


def _complaints(part: Iterable[tuple[int, Demand]]) -> list[Complaint]:
    """Each demand in one wording, once for each row behind it; the number of the demand stands before the row's id."""
    return [
        Complaint(demand.vouched or demand.text, f"{number}{_MARK}{row}")
        for number, demand in part
        for row in demand.rows
    ]


def _counted(event: Event, demands: Sequence[Demand]) -> Event:
    """The event with the rows behind it, and the number of sources that the demands count."""
    if not isinstance(event, Add | Rewrite):
        return event
    numbers = {
        int(n) for n, mark, _ in (key.partition(_MARK) for key in event.evidence) if mark and n.isdecimal()
    }
    behind = [demands[number] for number in sorted(numbers)]
    rows = list(dict.fromkeys(row for demand in behind for row in demand.rows))
    return replace(event, evidence=tuple(rows[:MOST_EVIDENCE]), sources=round(sum(d.sources for d in behind)))


@dataclass(frozen=True)
class Inspection:
    """What instructions are held against. `private` are texts of people's data: inputs, answers, corrections, examples."""

    policy: Policy
    accepted: Collection[str]
    private: Sequence[str] = ()


def examine(base: Version, region: str, new: Sequence[Event], against: Inspection) -> Taught:
    """The events that may be applied; none where the text would stay what it is.

    Those are left out that look like an attack, contradict what stands, hold a secret, or copy somebody's data. They are
    flagged; a person may accept the first two kinds by their rows.
    """
    prompt = manageable(base.prompt)
    stored = base.ledgers.get(region, ())
    opening = tuple(takewhile(lambda event: isinstance(event, Read), new))
    old = fold([*stored, *opening])
    text = "\n".join(m.content for m in prompt.messages)
    screen = Screen(text, surroundings(prompt, region), against.accepted)
    kept, flags = screen.sort(old, new[len(opening) :])
    clean: list[Event] = []
    for event in kept:
        reasons = _reasons(event, old, text, against)
        if reasons and isinstance(event, Add | Rewrite):
            flags.append(Flag(INSTRUCTION, event.id, event.text, tuple(reasons), rests=event.evidence))
        else:
            clean.append(event)
    events = (*opening, *_standing(old, clean))
    after = written(prompt, fold([*stored, *events]), region)
    if after == prompt:
        return Taught((), base.prompt, tuple(flags))
    return Taught(events, after, tuple(flags))


def _reasons(event: Event, old: Ledger, known: str, against: Inspection) -> list[str]:
    if not isinstance(event, Add | Rewrite):
        return []
    before = old.instructions.get(event.id)
    if before is not None and before.text == event.text:
        return []
    found = secrets(event.text, against.policy.canaries)
    piece = copied(event.text, against.private, known)
    return [*found, f'it copies "{piece[:80]}" from somebody\'s data'] if piece else found


def _standing(old: Ledger, events: Sequence[Event]) -> list[Event]:
    """The events without those about instructions that were left out."""
    known = {*old.instructions, *(event.id for event in events if isinstance(event, Add))}
    found = []
    for event in events:
        names = [getattr(event, key) for key in ("id", "keep", "drop") if hasattr(event, key)]
        if all(name in known for name in names):
            found.append(event)
    return found
