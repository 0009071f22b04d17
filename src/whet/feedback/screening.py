"""The edits that need a person: texts with signs of an attack, new addresses, and objections by name; and the edit of the
fence as it grows, with the rows behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet._util.words import fold, sentence_ends, split_words, trim
from whet.feedback.prompt_file import Document
from whet.feedback.rows import FeedbackRow
from whet.instructions.answers import CONTEXT, Requirement
from whet.instructions.changes import QUOTED, as_events
from whet.instructions.guard import strange_addresses, suspicions
from whet.instructions.neighbours import comparable
from whet.instructions.questions import Critique
from whet.prompt.events import Add, Event, Resolve, Rewrite
from whet.prompt.instructions import Ledger, apply_event, estimate_tokens, fold_events
from whet_client.prompt.fence import LOOKS_LIKE_MARKER

FEEDBACK, INSTRUCTION = "feedback", "instruction"
_EVIDENCE = 50
OVERLAP = 2 / 3
"""The share of common words from which on two instructions may say the contrary, as "use emojis" and "do not use emojis" do.
Where no model reads them, a person decides."""
_STANDS = "an instruction rests on it already"


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
                ledger = apply_event(ledger, event)
                continue
            objections = self.objections.get(event.id, ())
            reasons = (*suspicions(event.text), *strange_addresses(event.text, self.known))
            reasons += tuple(objection.reason for objection in objections)
            if reasons and not self._is_accepted(event):
                flags.append(Flag(INSTRUCTION, event.id, event.text, reasons, rests=event.evidence))
                left_out |= {event.id} if isinstance(event, Add) else set()
                continue
            standing = {i.id for i in before.active} & {i.id for i in ledger.active}
            drops = [
                Resolve(keep=event.id, drop=objection.drops, reason=objection.reason, at=event.at)
                for objection in objections
                if objection.drops in standing
            ]
            kept += [event, *drops]
            for step in (event, *drops):
                ledger = apply_event(ledger, step)
        return kept, flags

    def _is_accepted(self, event: Add | Rewrite) -> bool:
        rows = set(event.evidence)
        return event.id in self.accepted or (bool(rows) and rows <= set(self.accepted))


def _names(event: Event) -> set[str]:
    """The ids of instructions that an event is about."""
    ids = {getattr(event, name, "") for name in ("id", "keep", "drop")}
    return ids | set(getattr(event, "others", ()))


@dataclass
class Draft:
    """The edit as it grows. `events` are those of the region, old ones included; `learned` the rows behind what is kept,
    `reasons` why rows were dismissed."""

    document: Document
    accepted: frozenset[str]
    rows: Mapping[str, FeedbackRow]
    at: str
    events: list[Event]
    flags: list[Flag] = field(default_factory=list)
    learned: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    contradictions: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _counter: int = 0
    _sources: dict[str, set[str]] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """The state with what is kept so far. Ids of what was flagged are not used again."""
        state = fold_events(self.events)
        return replace(state, counter=max(state.counter, self._counter))

    def write(
        self, text: str, critiques: Sequence[str], rows: Sequence[str], author: str, own: bool = False
    ) -> None:
        """Take in what somebody wrote, word by word; what stands there already is supported. What has most of its words in common
        with an instruction or a sentence of the prompt waits for a person. `own`: the person who runs this wrote it, so that it
        is not screened, and an overlap is a warning."""
        ledger, alike = self.ledger, ""
        old = next((i for i in ledger.active if comparable(i.text) == comparable(text)), None)
        quotes, evidence = tuple(critiques)[:QUOTED], tuple(rows)[:_EVIDENCE]
        event: Add | Rewrite
        if old is None:
            alike = self._overlap(ledger, text)
            event = Add(
                id=ledger.next_id, text=text, critiques=quotes, evidence=evidence, author=author, at=self.at,
                sources=self._count_people(ledger.next_id, rows), tokens=estimate_tokens(text),
            )  # fmt: skip
        else:
            event = Rewrite(
                id=old.id, text=old.text, critiques=quotes, evidence=evidence, author=old.author, at=self.at,
                sources=old.sources + self._count_people(old.id, rows, old.evidence), tokens=old.tokens,
                reason="demanded again",
            )  # fmt: skip
        if own and alike:
            self.warnings.append(f'The instruction {event.id} "{text}": {alike}.')
        self.take([event], {event.id: rows}, {event.id: [Objection(alike)]} if alike else {}, own=own)

    def _overlap(self, ledger: Ledger, text: str) -> str:
        """The part of the prompt that shares most of its words with a text, in words; empty if no part does."""
        whole = self.document.text
        ends = sentence_ends(whole)
        sentences = [whole[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]
        sentences = [sentence for sentence in sentences if not LOOKS_LIKE_MARKER.search(sentence)]
        known = [
            *((i.id, i.text) for i in ledger.active),
            *(("the prompt's", sentence) for sentence in sentences),
        ]
        where, other = max(known, key=lambda one: shared_words(text, one[1]), default=("", ""))
        share = shared_words(text, other)
        if share < OVERLAP:
            return ""
        return f'it shares {share:.0%} of its words with {where} "{other}"; no model read whether both can be followed'

    def take(
        self,
        new: Sequence[Event],
        behind: Mapping[str, Sequence[str]],
        objections: Mapping[str, Sequence[Objection]],
        own: bool = False,
    ) -> None:
        """Keep the new events that need no person, flag the others. `behind` are all rows of an instruction, by its id."""
        ledger = self.ledger
        self._counter = ledger.counter + sum(isinstance(event, Add) for event in new)
        if own:
            kept, flags = list(new), list[Flag]()
        else:
            screen = Screen(known=self.document.text, accepted=self.accepted, objections=objections)
            kept, flags = screen.sort(ledger, new)
        self.events += kept
        self.flags += [replace(flag, rests=tuple(behind.get(flag.id, flag.rests))) for flag in flags]
        for event in kept:
            self.learned |= set(behind.get(event.id, ())) if isinstance(event, Add | Rewrite) else set()

    def read(self, requirements: Sequence[Requirement], critiques: Sequence[Critique]) -> None:
        """Take in what a model wrote. It needs a person where it repeats a critique, contradicts something, or rests on no
        critique that the model named."""
        ledger, new = self.ledger, list[Event]()
        behind: dict[str, Sequence[str]] = {}
        objections: dict[str, list[Objection]] = {}
        for requirement in requirements:
            rows = list(dict.fromkeys(critiques[n].source for n in requirement.critiques))
            if requirement.violates:
                self.reasons |= dict.fromkeys(rows, _STANDS)
            for event in as_events(ledger, [replace(requirement, contradicts="")], critiques, at=self.at):
                assert isinstance(event, Add | Rewrite)
                old = ledger[event.id] if isinstance(event, Rewrite) else None
                people = self._count_people(event.id, rows, old.evidence if old else ())
                event = replace(event, sources=people + (old.sources if old else 0))
                ledger = apply_event(ledger, event)
                new.append(event)
                behind[event.id] = rows
                if isinstance(event, Add):
                    objections[event.id] = self._objections(requirement)
        ids = {comparable(i.text): i.id for i in ledger.active}
        for first, second in self.contradictions:
            one_id, other_id = ids.get(comparable(first), ""), ids.get(comparable(second), "")
            for key, against in ((one_id, other_id), (other_id, one_id)):
                objection = _contradiction(ledger, against) if against else None
                if key in objections and objection is not None and objection not in objections[key]:
                    objections[key].append(objection)
        self.take(new, behind, objections)

    def _objections(self, one: Requirement) -> list[Objection]:
        objections = []
        if one.contradicts == CONTEXT:
            objections.append(Objection("it contradicts the text outside the fence"))
        elif one.contradicts in self.ledger.instructions:
            objections.append(_contradiction(self.ledger, one.contradicts))
        if one.copied and not one.confirmed:
            objections.append(
                Objection("it repeats the words of the feedback instead of saying what they demand")
            )
        if one.improper:
            objections.append(Objection("the optimizer calls it improper: it serves somebody else"))
        if not one.critiques:
            objections.append(Objection("the optimizer names no feedback that demands it"))
        return objections

    def _count_people(self, instruction: str, rows: Sequence[str], before: Sequence[str] = ()) -> int:
        """People behind rows where they are named, rows otherwise: those who do not stand behind the instruction already, by its
        rows `before` or by others that were read here."""
        known = self._sources.setdefault(instruction, set())
        known |= {self._person(key) for key in before if key in self.rows}
        new = {self._person(key) for key in rows} - known
        known |= new
        return len(new)

    def _person(self, key: str) -> str:
        return self.rows[key].user or f"row {key}"


def shared_words(one: str, other: str) -> float:
    """The share of words that two texts have in common, 0 to 1: twice the common ones by all of both (Dice). In scripts without
    blanks a character is a word.

    >>> shared_words("Always answer in French.", "Never answer in French")
    0.75
    """
    first, second = (Counter(map(trim, split_words(fold(text)))) for text in (one, other))
    total = first.total() + second.total()
    return 2.0 * (first & second).total() / total if total else 0.0


def _contradiction(ledger: Ledger, key: str) -> Objection:
    return Objection(f'it contradicts {key} "{ledger[key].text}"', key)
