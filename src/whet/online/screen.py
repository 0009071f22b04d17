"""What of a proposal needs a person: events whose text is suspicious or contradicts what stands there
already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.online.feedback import Feedback
from whet.online.guard import strange_addresses, suspicions
from whet.prompt.instructions import Add, Event, Ledger, Resolve, Rewrite, fold
from whet.search.contradictions import clash, statements

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

    def sort(self, before: Sequence[Event], new: Sequence[Event]) -> tuple[list[Event], list[Flag]]:
        """The events to apply, and the flags of the others. What is accepted against another instruction
        drops that one.
        """
        kept: list[Event] = []
        flags: list[Flag] = []
        for event in new:
            if not isinstance(event, Add | Rewrite):
                kept.append(event)
                continue
            ledger = fold([*before, *kept])
            old = ledger.instructions.get(event.id)
            if old is not None and old.text == event.text:
                kept.append(event)
                continue
            against = self._against(event, ledger)
            reasons = [*suspicions(event.text), *strange_addresses(event.text, self.known), *against.values()]
            if reasons and not self._is_accepted(event):
                flags.append(Flag(INSTRUCTION, event.id, event.text, tuple(reasons), rests=event.evidence))
                continue
            kept.append(event)
            kept += [
                Resolve(keep=event.id, drop=key, reason=why, at=event.at)
                for key, why in against.items()
                if key
            ]
        return kept, flags

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
    events: Sequence[Event], sources: Sequence[Sequence[str]], rows: Mapping[str, Feedback]
) -> list[Event]:
    """Events whose `sources` counts people instead of rows, where the rows name their users.

    `sources` are the row ids of each group of complaints: one person who complains a hundred times is one
    source.
    """
    counts = {
        tuple(group)[:8]: (len(group), len({rows[key].user or key for key in group})) for group in sources
    }
    found: list[Event] = []
    for event in events:
        if isinstance(event, Add | Rewrite) and event.sources is not None and event.evidence in counts:
            said, people = counts[event.evidence]
            event = replace(event, sources=event.sources - said + people)
        found.append(event)
    return found
