"""What of a proposal needs a person: texts with signs of an attack, new addresses, and what is objected to by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from whet.feedback.rows import FeedbackRow
from whet.instructions.guard import strange_addresses, suspicions
from whet.prompt.events import Add, Event, Resolve, Rewrite
from whet.prompt.instructions import Ledger, apply

FEEDBACK, INSTRUCTION = "feedback", "instruction"


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that is applied only when its `id` is accepted by name: a row of feedback, or an instruction.
    An instruction `rests` on rows of feedback."""

    kind: str
    id: str
    text: str
    reasons: tuple[str, ...]
    where: str = ""
    rests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an instruction needs a person. Where it contradicts another one, `drops` is that one's id: it leaves when a person
    accepts the new one."""

    reason: str
    drops: str = ""


def flag_row(row: FeedbackRow) -> Flag | None:
    """A row whose text speaks to the tool, hides characters, or is too long to be read; None for an innocent one."""
    texts = [t for t in (row.comment, row.explanation, row.corrected, row.label, row.instruction) if t]
    reasons = list(dict.fromkeys(reason for text in texts for reason in suspicions(text)))
    if row.cut:
        reasons.append("a text of it is longer than 8,000 characters and was cut")
    return Flag(FEEDBACK, row.id, "\n".join(texts), tuple(reasons), row.where) if reasons else None


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Sorts new events into those that may be applied and those that are flagged.

    `known` is the whole text of the prompt file, `accepted` the ids that a person accepted, of rows or of instructions,
    `objections` what else speaks against new instructions, by their id.
    """

    known: str
    accepted: Collection[str]
    objections: Mapping[str, Sequence[Objection]] = field(default_factory=dict)

    def sort(self, before: Ledger, new: Sequence[Event]) -> tuple[list[Event], list[Flag]]:
        """The events to apply, and the flags of the others. An instruction that is accepted against one that stood before
        drops that one."""
        kept: list[Event] = []
        flags: list[Flag] = []
        ledger, left_out = before, set[str]()
        for event in new:
            if _names(event) & left_out:
                continue
            old = ledger.instructions.get(event.id) if isinstance(event, Add | Rewrite) else None
            if not isinstance(event, Add | Rewrite) or (old is not None and old.text == event.text):
                kept.append(event)
                ledger = apply(ledger, event)
                continue
            objections = self.objections.get(event.id, ())
            reasons = (*suspicions(event.text), *strange_addresses(event.text, self.known))
            reasons += tuple(one.reason for one in objections)
            if reasons and not self._is_accepted(event):
                flags.append(Flag(INSTRUCTION, event.id, event.text, reasons, rests=event.evidence))
                left_out |= {event.id} if isinstance(event, Add) else set()
                continue
            standing = {i.id for i in before.active} & {i.id for i in ledger.active}
            drops = [
                Resolve(keep=event.id, drop=one.drops, reason=one.reason, at=event.at)
                for one in objections
                if one.drops in standing
            ]
            kept += [event, *drops]
            for step in (event, *drops):
                ledger = apply(ledger, step)
        return kept, flags

    def _is_accepted(self, event: Add | Rewrite) -> bool:
        rows = set(event.evidence)
        return event.id in self.accepted or (bool(rows) and rows <= set(self.accepted))


def _names(event: Event) -> set[str]:
    """The ids of instructions that an event is about."""
    ids = {getattr(event, name, "") for name in ("id", "keep", "drop")}
    return ids | set(getattr(event, "others", ()))
