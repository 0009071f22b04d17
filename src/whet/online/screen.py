"""What of a proposal needs a person: events whose text is suspicious or contradicts what stands there
already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.online.feedback import Feedback
from whet.online.guard import strange_addresses, suspicions
from whet.online.wishes import plainly
from whet.prompt.events import Add, Event, Resolve, Rewrite
from whet.prompt.instructions import Instruction, Ledger, apply, cost, refusal
from whet.search.contradictions import clash, same, statements

FEEDBACK, INSTRUCTION = "feedback", "instruction"


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that is applied only when its `id` is accepted by name: a row of feedback, or an instruction.
    An instruction `rests` on the first rows of a group of complaints."""

    kind: str
    id: str
    text: str
    reasons: tuple[str, ...]
    where: str = ""
    rests: tuple[str, ...] = ()


def flag_row(row: Feedback) -> Flag | None:
    """A row whose text speaks to the tool, hides characters, or is too long to be read; None for an innocent
    one.
    """
    texts = [t for t in (row.comment, row.explanation, row.corrected, row.label) if t]
    reasons = list(dict.fromkeys(reason for text in texts for reason in suspicions(text)))
    if row.cut:
        reasons.append("a text of it is longer than 8,000 characters and was cut")
    return Flag(FEEDBACK, row.id, "\n".join(texts), tuple(reasons), row.where) if reasons else None


@dataclass(frozen=True)
class Screen:
    """Sorts new events into those that may be applied and those that are flagged.

    `known` is the whole text of the prompt file, `around` what stands outside the region, `accepted` the ids
    that a person accepted, of rows or of instructions.
    """

    known: str
    around: str
    accepted: Collection[str]

    def sort(self, before: Ledger, new: Sequence[Event]) -> tuple[list[Event], list[Flag]]:
        """The events to apply, and the flags of the others. An instruction that is accepted against another
        one drops that one."""
        kept: list[Event] = []
        flags: list[Flag] = []
        ledger, left_out = before, set[str]()
        for event in new:
            if not isinstance(event, Add | Rewrite):
                kept.append(event)
                ledger = apply(ledger, event)
                continue
            if event.id in left_out:
                continue
            old = ledger.instructions.get(event.id)
            against = {} if old is not None and old.text == event.text else self._against(event, ledger)
            reasons = () if old is not None and old.text == event.text else self._reasons(event, against)
            if reasons and not self._is_accepted(event):
                flags.append(Flag(INSTRUCTION, event.id, event.text, reasons, rests=event.evidence))
                left_out |= {event.id} if isinstance(event, Add) else set()
                continue
            drops = [
                Resolve(keep=event.id, drop=k, reason=why, at=event.at) for k, why in against.items() if k
            ]
            kept += [event, *drops]
            for one in (event, *drops):
                ledger = apply(ledger, one)
        return kept, flags

    def _reasons(self, event: Add | Rewrite, against: Mapping[str, str]) -> tuple[str, ...]:
        return (*suspicions(event.text), *strange_addresses(event.text, self.known), *against.values())

    def _is_accepted(self, event: Add | Rewrite) -> bool:
        return event.id in self.accepted or (
            bool(event.evidence) and set(event.evidence) <= set(self.accepted)
        )

    def _against(self, event: Add | Rewrite, ledger: Ledger) -> Mapping[str, str]:
        """Why the event contradicts instructions, by their id, or the text outside, under the empty id."""
        found = {
            other.id: f'it contradicts {other.id} "{other.text}": {clashing.why}'
            for other in ledger.active
            if other.id != event.id and (clashing := clash(event.text, other.text)) is not None
        }
        for statement in statements(self.around):
            clashing = clash(event.text, statement)
            if clashing is not None:
                found[""] = f'it contradicts the text outside the fence, "{statement}": {clashing.why}'
        return found


def by_people(
    events: Sequence[Event], before: Ledger, groups: Sequence[Sequence[str]], rows: Mapping[str, Feedback]
) -> list[Event]:
    """Events that rest on rows of feedback only, with `sources` counting people where the rows name their
    users.

    `groups` are the sources of each group of complaints: one person who complains a hundred times is one
    source.
    """
    found: list[Event] = []
    for event in events:
        group = next(
            (g for g in groups if isinstance(event, Add | Rewrite) and starts(g, event.evidence)), ()
        )
        if isinstance(event, Add | Rewrite) and group:
            real = [key for key in group if key in rows]
            old = before.instructions.get(event.id)
            people = len({rows[key].user or f"row {key}" for key in real}) + (old.sources if old else 0)
            event = replace(event, evidence=tuple(k for k in event.evidence if k in rows), sources=people)
        found.append(event)
    return found


def in_plain_words(before: Ledger, events: Sequence[Event], author: str) -> list[Event]:
    """Events of the distiller (`author`) with the text that people's idioms mean. One that then says what an
    instruction says already supports that instead."""
    found: list[Event] = []
    ledger, moved = before, dict[str, str]()
    for event in events:
        if isinstance(event, Add | Rewrite):
            key = moved.get(event.id, event.id)
            old = ledger.instructions.get(key)
            text = plainly(event.text, event.critiques) if event.author == author else event.text
            if refusal(text) is not None or (old is not None and old.text == event.text):
                text = event.text
            twin = old if old is not None else next((i for i in ledger.active if same(i.text, text)), None)
            if isinstance(event, Add) and twin is not None:
                moved[event.id] = twin.id
                event = _support(twin, event)
            else:
                event = replace(event, id=key, text=text, tokens=cost(text))
        found.append(event)
        ledger = apply(ledger, event)
    return found


def _support(old: Instruction, event: Add) -> Rewrite:
    return Rewrite(
        id=old.id,
        text=old.text,
        critiques=event.critiques,
        evidence=event.evidence,
        sources=old.sources + event.sources,
        tokens=old.tokens,
        author=old.author,
        at=event.at,
        reason="the same demand in other words",
    )


def starts(group: Sequence[str], evidence: Sequence[str]) -> bool:
    """Whether the evidence of an event is the beginning of a group's sources."""
    return bool(evidence) and tuple(group)[: len(evidence)] == tuple(evidence)
