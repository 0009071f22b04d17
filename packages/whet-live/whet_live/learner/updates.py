"""From requirements to events of the ledger, and what of them may be applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil

from whet.errors import BudgetExceeded
from whet.feedback.screening import INSTRUCTION, Flag, Objection, Screen
from whet.feedback.sources import LearningPolicy
from whet.instructions.answers import CONTEXT
from whet.instructions.changes import AUTHOR, CONTRARY
from whet.instructions.confirm import confirm
from whet.instructions.guard import secrets
from whet.instructions.neighbours import comparable
from whet.instructions.rewrite import Failing, rewrite
from whet.prompt import Prompt
from whet.prompt.events import Add, Event, Read, Resolve, Rewrite
from whet.prompt.instructions import (
    Instruction,
    Ledger,
    apply_event,
    estimate_tokens,
    fold_events,
    reason_to_refuse,
)
from whet.prompt.ledger import first_event, surroundings, write_ledger
from whet.run import Run
from whet.search.copies import longest_copy
from whet_live.learner.requirements import LiveRequirement
from whet_live.registry import Version
from whet_live.registry.ledgers import manageable

MOST_EVIDENCE = 50
MOST_QUOTED = 10
"""Comments that are shown beside an instruction that is to be rewritten."""
_SPARE = 2
"""Voters that are asked beyond those that it takes, because some do not want the new words."""


@dataclass(frozen=True)
class Voter:
    """The words of one source that requires an instruction, and lines about the answer, where the reader may see them."""

    text: str
    context: tuple[str, ...] = ()


@dataclass(frozen=True)
class CandidateUpdate:
    """The additions of an update to the ledger of a region, the resulting text, and what was left out, with the reasons."""

    events: tuple[Event, ...]
    prompt: Prompt
    flags: tuple[Flag, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing is left of the update."""
        return not self.events


async def generate_events(
    run: Run,
    base: Version,
    region: str,
    requirements: Sequence[LiveRequirement],
    votes: Mapping[str, Sequence[Voter]],
    *,
    calls: int,
    at: str,
) -> list[Event]:
    """The events that meet the requirements: a requirement is added in the words that it has, an instruction that is
    violated still is rewritten in at most `calls` calls (0: left alone). `votes` are those who require it, by its
    id: as many of them as it takes have to require the new text as well. Raises ProviderError."""
    prompt = manageable(base.prompt)
    stored = list(base.ledgers.get(region, ()))
    events: list[Event] = [] if stored else [first_event(prompt, region, at)]
    ledger = fold_events([*stored, *events])
    failing = [
        Failing(
            requirement.instruction,
            ledger[requirement.instruction].text,
            tried=_earlier_texts(stored, requirement.instruction),
            critiques=tuple(one.text for one in votes.get(requirement.instruction, ())[:MOST_QUOTED]),
        )
        for requirement in requirements
        if requirement.instruction and calls
    ]
    needed = {requirement.instruction: requirement.needed for requirement in requirements}
    try:
        texts = await rewrite(run, failing, surroundings(prompt, region), most=calls)
        texts = {
            one.id: texts[one.id]
            for one in failing
            if one.id in texts
            and await _wants_rewording(run, texts[one.id], votes.get(one.id, ()), needed[one.id])
        }
    except BudgetExceeded:
        texts = {}
    for requirement in requirements:
        event = _event(requirement, ledger, texts, at)
        if event is not None:
            ledger = apply_event(ledger, event)
            events.append(event)
    return events


async def _wants_rewording(run: Run, text: str, votes: Sequence[Voter], needed: float) -> bool:
    """Whether enough of those who require an instruction require another wording of it as well; each is a separate model call."""
    voters = votes[: voters_of(votes, needed)]
    pairs = [(text, voter.text) for voter in voters]
    answers = await confirm(run, pairs, [voter.context for voter in voters])
    return sum(answer is True for answer in answers) >= min(len(votes), needed)


def voters_of(votes: Sequence[Voter], needed: float) -> int:
    """The number of people who require an instruction that are asked about another wording of it."""
    return min(len(votes), ceil(needed) + _SPARE)


def _event(requirement: LiveRequirement, ledger: Ledger, texts: Mapping[str, str], at: str) -> Event | None:
    rows = requirement.rows[:MOST_EVIDENCE]
    sources = round(requirement.confirmed or requirement.sources)
    if requirement.instruction:
        text = texts.get(requirement.instruction)
        if text is None:
            return None
        old = ledger[requirement.instruction]
        return Rewrite(
            id=old.id, text=text, evidence=rows, sources=max(old.sources, sources), tokens=estimate_tokens(text), author=AUTHOR,
            at=at, reason="it was violated still",
        )  # fmt: skip
    stands = any(
        comparable(instruction.text) == comparable(requirement.text) for instruction in ledger.active
    )
    if requirement.unwritten or reason_to_refuse(requirement.text) is not None or stands:
        return None
    return Add(
        id=ledger.next_id, text=requirement.text, evidence=rows, sources=sources, tokens=estimate_tokens(requirement.text),
        author=requirement.author or AUTHOR, at=at,
    )  # fmt: skip


def _earlier_texts(events: Sequence[Event], key: str) -> tuple[str, ...]:
    """The texts that an instruction had so far."""
    texts = [event.text for event in events if isinstance(event, Add | Rewrite) and event.id == key]
    return tuple(dict.fromkeys(texts))


def instructions_of(requirements: Sequence[LiveRequirement], events: Sequence[Event]) -> dict[str, str]:
    """The instruction that became of each requirement."""
    ids = {event.text: event.id for event in events if isinstance(event, Add)}
    return {d.requirement_id: ids[d.text] for d in requirements if d.requirement_id and d.text in ids}


@dataclass(frozen=True)
class Inspection:
    """The data that instructions are checked against. `private` are texts of people's data: inputs, answers, examples.
    `contrary` says of the text of a requirement which instructions want the contrary, or `context`. `locked` are
    instructions that nothing changes, `giving` those that give way to their contrary without a person who accepts it."""

    policy: LearningPolicy
    accepted: Collection[str]
    private: Sequence[str] = ()
    contrary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    locked: Collection[str] = ()
    giving: Collection[str] = ()


def examine_events(base: Version, region: str, new: Sequence[Event], against: Inspection) -> CandidateUpdate:
    """The events that may be applied; none if the text would stay the same.

    Those are left out that look like an attack, contradict what stands, hold a secret, or copy somebody's data. They are
    flagged; a person may accept the first two kinds by their rows, and what is accepted against an instruction replaces it.
    """
    prompt = manageable(base.prompt)
    stored = base.ledgers.get(region, ())
    opening = tuple(takewhile(lambda event: isinstance(event, Read), new))
    old = fold_events([*stored, *opening])
    text = "\n".join(m.content for m in prompt.messages)
    changes = new[len(opening) :]
    objections = {
        event.id: [
            _objection(key, old, key in against.locked)
            for key in _contrary(event, old, against)
            if key not in against.giving
        ]
        for event in changes
        if isinstance(event, Add | Rewrite)
    }
    screen = Screen(known=text, accepted=against.accepted, objections=objections)
    kept, flags = screen.sort(old, changes)
    clean: list[Event] = []
    for event in kept:
        reasons = [*_find_locked(event, old, against), *_reasons(event, old, text, against)]
        if reasons and isinstance(event, Add | Rewrite):
            flags.append(Flag(INSTRUCTION, event.id, event.text, tuple(reasons), rests=event.evidence))
        else:
            clean += [event, *_drop_outvoted(event, old, against)]
    events = (*opening, *_keep_known(old, clean))
    after = write_ledger(prompt, fold_events([*stored, *events]), region)
    if after == prompt:
        return CandidateUpdate((), base.prompt, tuple(flags))
    return CandidateUpdate(events, after, tuple(flags))


def _drop_outvoted(event: Event, old: Ledger, against: Inspection) -> list[Resolve]:
    """The instructions that leave because more people want what an event brings."""
    if not isinstance(event, Add | Rewrite):
        return []
    return [
        Resolve(keep=event.id, drop=key, reason=CONTRARY, author=AUTHOR, at=event.at)
        for key in _contrary(event, old, against)
        if key in against.giving
    ]


def _contrary(event: Add | Rewrite, old: Ledger, against: Inspection) -> list[str]:
    """The ids of the current instructions that an event contradicts, or `context`."""
    standing = {instruction.id for instruction in old.active} | {CONTEXT}
    return [key for key in against.contrary.get(event.text, ()) if key in standing and key != event.id]


def _objection(key: str, old: Ledger, locked: bool) -> Objection:
    if key == CONTEXT:
        return Objection("it contradicts the text around the instructions")
    if locked:
        return Objection(f'it contradicts {key} "{old[key].text}", which is locked')
    return Objection(f'it contradicts {key} "{old[key].text}"', key)


def _find_locked(event: Event, old: Ledger, against: Inspection) -> list[str]:
    """The locked instructions that an event would change, or contradicts."""
    if not isinstance(event, Add | Rewrite):
        return []
    keys = [key for key in (event.id, *_contrary(event, old, against)) if key in against.locked]
    return [f'{key} "{old[key].text}" is locked' for key in keys]


def _reasons(event: Event, old: Ledger, known: str, against: Inspection) -> list[str]:
    if not isinstance(event, Add | Rewrite):
        return []
    before: Instruction | None = old.instructions.get(event.id)
    if before is not None and before.text == event.text:
        return []
    reasons = secrets(event.text, against.policy.canaries)
    piece = longest_copy(event.text, against.private, known)
    return [*reasons, f'it copies "{piece[:80]}" from somebody\'s data'] if piece else reasons


def _keep_known(old: Ledger, events: Sequence[Event]) -> list[Event]:
    """The events without those about instructions that were left out."""
    known = {*old.instructions, *(event.id for event in events if isinstance(event, Add))}
    kept = []
    for event in events:
        names = [getattr(event, key) for key in ("id", "keep", "drop") if hasattr(event, key)]
        if all(name in known for name in names):
            kept.append(event)
    return kept
