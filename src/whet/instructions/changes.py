"""Change: requirements become typed events on the ledger of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from whet.instructions.answers import CONTEXT, Known, Requirement
from whet.instructions.questions import Critique, mostly_rows
from whet.prompt.events import Add, Event, Merge, Resolve, Rewrite
from whet.prompt.instructions import Instruction, Ledger, apply_event, estimate_tokens, union

AUTHOR = "optimizer"
BY_HAND = ("author", "hand")
"""Authors whose instructions no model changes."""
QUOTED = 3
"""Critiques that an instruction quotes at most."""
EVIDENCE = 8
OUTWEIGHS = 3
CONTRARY = "more people want the contrary"
Replaces: TypeAlias = "Callable[[Requirement, Instruction], bool]"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two demands that contradict each other. `settled` is the one that stays; empty: a person decides."""

    first: str
    second: str
    settled: str = ""


def known_of(ledger: Ledger) -> list[Known]:
    """The instructions that stand, as the reader is shown them."""
    return [Known(i.id, i.text) for i in ledger.active]


def of_models(ledger: Ledger) -> dict[str, Instruction]:
    """The instructions that stand and that models may change, by id."""
    return {i.id: i for i in ledger.active if i.author not in BY_HAND}


def outweighs(one: Requirement, old: Instruction) -> bool:
    """Whether three times as many critiques want a requirement as want the instruction that it contradicts."""
    return len(one.critiques) >= OUTWEIGHS * max(1, old.sources)


def as_events(
    ledger: Ledger,
    requirements: Sequence[Requirement],
    critiques: Sequence[Critique],
    *,
    at: str = "",
    replaces: Replaces = outweighs,
) -> list[Event]:
    """The events that follow from the requirements: new instructions, and more support for instructions in the prompt.

    A requirement that contradicts an instruction of a model replaces it only where `replaces` says so (by default, with three
    times its sources); one that contradicts the surrounding text or what a person wrote changes nothing.
    """
    events: list[Event] = []

    def record(event: Event) -> None:
        nonlocal ledger
        ledger = apply_event(ledger, event)
        events.append(event)

    for requirement in requirements:
        own = [critiques[n] for n in requirement.critiques]
        quotes = tuple(dict.fromkeys(c.text for c in own))[:QUOTED]
        rows = tuple(dict.fromkeys(c.source for c in own))
        evidence = rows[:EVIDENCE]
        if requirement.violates in ledger.instructions:
            old = ledger[requirement.violates]
            better = requirement.text if old.author not in BY_HAND else ""
            if better or not set(evidence) <= set(old.evidence):
                record(
                    Rewrite(
                        id=old.id, text=better or old.text, critiques=quotes, evidence=evidence, at=at,
                        author=AUTHOR if better else old.author, tokens=estimate_tokens(better) if better else old.tokens,
                        sources=max(len(union(old.evidence, evidence)), old.sources),
                        reason="worded so that it covers more" if better else "demanded again",
                    )
                )  # fmt: skip
        elif requirement.text and _may_enter(requirement, ledger, replaces):
            key = ledger.next_id
            record(
                Add(
                    id=key, text=requirement.text, critiques=quotes, evidence=evidence, sources=len(rows), author=AUTHOR, at=at,
                    tokens=estimate_tokens(requirement.text), whole=mostly_rows(own),
                )
            )  # fmt: skip
            if requirement.contradicts in ledger.instructions:
                record(Resolve(keep=key, drop=requirement.contradicts, reason=CONTRARY, at=at))
    return events


def first_instruction(ledger: Ledger, text: str) -> Add:
    """The event that adds a text which stands before any answer was read."""
    return Add(id=ledger.next_id, text=text, author=AUTHOR, tokens=estimate_tokens(text), whole=True)


def _may_enter(one: Requirement, ledger: Ledger, replaces: Replaces) -> bool:
    """Whether nothing stands against a requirement. Where another one has just taken the place of what it contradicts, it says
    the same in other words."""
    old = ledger.instructions.get(one.contradicts)
    return one.contradicts != CONTEXT and (
        old is None or (old.id in of_models(ledger) and replaces(one, old))
    )


def conflicts(
    ledger: Ledger, requirements: Sequence[Requirement], around: str, replaces: Replaces = outweighs
) -> list[Conflict]:
    """The contradictions that the reader named, each with both sides."""
    named = []
    for requirement in requirements:
        old = ledger.instructions.get(requirement.contradicts)
        if requirement.text and (old or requirement.contradicts == CONTEXT):
            settled = requirement.text if _may_enter(requirement, ledger, replaces) else ""
            named.append(Conflict(requirement.text, old.text if old else around, settled))
    return named


def merges(
    ledger: Ledger,
    same: Sequence[Collection[str]],
    *,
    at: str = "",
    merged: Mapping[frozenset[str], str] | None = None,
) -> list[Merge]:
    """Instructions that say the same become one: the one that a person wrote, else the one named first, in the wording that was
    `merged` for the group, if any."""
    events: list[Merge] = []
    for group in same:
        active = {i.id: i for i in ledger.active}
        members = [active[key] for key in group if key in active]
        keep = next((i for i in members if i.author in BY_HAND), next(iter(members), None))
        others = tuple(i.id for i in members if i is not keep and i.author not in BY_HAND)
        if keep and others:
            text = (merged or {}).get(frozenset(group), "") if keep.author not in BY_HAND else ""
            text, tokens = (text, estimate_tokens(text)) if text else (keep.text, keep.tokens)
            event = Merge(id=keep.id, others=others, text=text, tokens=tokens, author=keep.author, at=at)
            ledger = apply_event(ledger, event)
            events.append(event)
    return events
