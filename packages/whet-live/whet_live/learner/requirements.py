"""The requirements: rows counted by the reading, with sources, quorums, contradictions and people's decisions.

Everything here is a pure function of the feedback, of what was read in it, of the prompt and of what people decided: no model
is asked, and no text is understood.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from whet.feedback.sources import LearningPolicy, weight
from whet.instructions.guard import suspicions
from whet.instructions.neighbours import comparable
from whet.prompt.instructions import Ledger, fold_events
from whet.prompt.ledger import first_event
from whet_live.learner.feedback_state import Comment, PromptFeedback
from whet_live.learner.reading import Readings, RowReading, Vote, mark
from whet_live.registry import Version
from whet_live.registry.ledgers import manageable

READY, WAITING, CONTESTED, UNWRITTEN = "ready", "waiting", "contested", "unwritten"
MOST_TEXTS = 5
_OVERWHELMING = 2.0
_SPARE = 2.0
"""Sources beyond the quorum whose votes are confirmed as well, because some do not confirm."""
_LONGEST_TEXT = 400


@dataclass(frozen=True)
class RequirementEvidence:
    """The facts about a requirement beside the feedback itself."""

    policy: LearningPolicy = field(default_factory=LearningPolicy)
    readings: Readings = field(default_factory=Readings)
    """The reading of the feedback."""
    grouping: bool = False
    """Whether rows that nobody read are shown by their texts, for a person to write an instruction."""
    alike: Mapping[str, str] = field(default_factory=dict)
    """With `grouping`, the first row of the group of each row."""
    done: Collection[tuple[str, str]] = ()
    """Rows that were learned from, each with the requirement or instruction; empty: with everything in the row."""
    accepted: Collection[str] = ()
    """Keys of rows and requirements that a person accepted."""
    dismissed: Collection[str] = ()
    """Keys of rows and requirements that a person dismissed."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Texts that were rejected, with the reasons."""
    behind: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The rows that each rejected text rested on."""
    until: Mapping[str, int] = field(default_factory=dict)
    """The times at which some requirements were rolled back (microseconds); whoever asked for one before that is no new
    evidence."""
    standing: Mapping[int, Collection[str]] = field(default_factory=dict)
    """The instructions that each version shows."""
    in_context: bool = False
    """Whether rows are read with the answers that they are about, so that the same words about another answer may want
    something else."""
    models_own: frozenset[str] = frozenset()
    """Instructions that a model wrote and nobody locked; twice the sources suffice for them to give way to their contrary."""

    def wording(self, row: Comment) -> str:
        """The key of a row; rows with the same key are read as one."""
        return f"{row.about} {comparable(row.text)}" if self.in_context else comparable(row.text)


@dataclass(frozen=True)
class LiveRequirement:
    """Something that people want of a prompt."""

    key: str
    """Its name: the id of its open requirement, or `row ID` with its first row."""
    text: str
    """The instruction for it; while there is none, a comment."""
    texts: tuple[str, ...]
    """Some of the comments that require it."""
    rows: tuple[str, ...]
    """The ids of all rows that require it."""
    sources: float
    """The total weight of all who require it."""
    needed: float
    """The weight that it needs before it is learned."""
    confirmed: float = 0.0
    """The weight of those whose comment alone requires it."""
    requirement_id: str = ""
    """The id of the open requirement."""
    instruction: str = ""
    """The id of the instruction that it is about already."""
    author: str = ""
    """The person who wrote the instruction; empty: the reader."""
    origin: tuple[str, ...] = ()
    """The rows that the instruction was written from."""
    contradicts: tuple[str, ...] = ()
    """Ids of the instructions that demand the contrary, or `context`."""
    against: Mapping[str, float] = field(default_factory=dict)
    """Contrary requirements, each with what all who want it count."""
    opposing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The rows behind each contrary requirement."""
    rejected: str = ""
    """Why it was rejected before."""
    accepted: bool = False
    """Whether a person wants it, whatever the count is."""

    @property
    def counted(self) -> str:
        """The sources beside those that it takes, in words."""
        sources = f"{self.sources:g} source{'' if self.sources == 1 else 's'}"
        return sources if self.accepted else f"{sources}, {self.needed:g} needed"

    @property
    def unwritten(self) -> bool:
        """Whether nobody wrote an instruction for it."""
        return not (self.requirement_id or self.instruction)

    @property
    def about(self) -> str:
        """The id of its instruction, else of its requirement."""
        return self.instruction or self.requirement_id

    @property
    def state(self) -> str:
        """`unwritten`, `ready`, `waiting` for more sources that are confirmed, or `contested`: too many want the contrary."""
        if self.unwritten:
            return UNWRITTEN
        if self.accepted:
            return READY
        if min(self.sources, self.confirmed) < self.needed:
            return WAITING
        return READY if self.confirmed >= self.majority else CONTESTED

    @property
    def majority(self) -> float:
        """The count that the confirmed sources need against those who want the contrary."""
        return sum(self.against.values()) * _OVERWHELMING

    def as_json(self) -> dict[str, object]:
        """The requirement as JSON values."""
        return {**orjson.loads(orjson.dumps(self)), "state": self.state, "counted": self.counted}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LiveRequirement:
        """The requirement that `as_json` wrote."""
        fields = {key: item for key, item in value.items() if key not in ("state", "counted")}
        opposing = {text: tuple(rows) for text, rows in fields.get("opposing", {}).items()}
        lists = {n: tuple(fields.get(n, ())) for n in ("texts", "rows", "origin", "contradicts")}
        return cls(**{**fields, **lists, "opposing": opposing})


def find_quarantined(feedback: PromptFeedback, facts: RequirementEvidence) -> list[Comment]:
    """Rows that wait for a person, because their text looks like an attack."""
    decided = {*facts.accepted, *facts.dismissed, *(row for row, _ in facts.done)}
    return [row for row in feedback.rows.values() if row.flags and row.id not in decided]


def readable(feedback: PromptFeedback, facts: RequirementEvidence) -> list[Comment]:
    """Rows that count, in order: a person has not dismissed them, and accepted those that are flagged."""
    return [
        row
        for row in feedback.rows.values()
        if row.id not in facts.dismissed and (not row.flags or row.id in facts.accepted)
    ]


def unread(feedback: PromptFeedback, base: Version, region: str, facts: RequirementEvidence) -> list[Comment]:
    """Rows that wait for the reader, one for each wording: others with the same words are read as that one."""
    rows = readable(feedback, facts)
    learned = {row for row, _ in facts.done}
    view = _view(rows, facts)
    waiting = facts.readings.unread(rows, ledger_of(base, region), learned)
    first: dict[str, Comment] = {}
    for row in waiting:
        if not view[row.id].done or row.id in facts.readings.rows:
            first.setdefault(facts.wording(row), row)
    return list(first.values())


def ledger_of(base: Version, region: str) -> Ledger:
    """The instructions of a region."""
    return fold_events(base.ledgers.get(region, ()) or [first_event(manageable(base.prompt), region)])


def find_requirements(
    feedback: PromptFeedback, clock: int, base: Version, region: str, facts: RequirementEvidence
) -> list[LiveRequirement]:
    """The requirements on the version `base` that were not learned yet, the best supported first."""
    return [case.requirement for case in _cases(feedback, clock, base, region, facts)]


def open_votes(
    feedback: PromptFeedback, clock: int, base: Version, region: str, facts: RequirementEvidence
) -> list[Vote]:
    """The rows to be confirmed next: those of requirements that would be ready if they were, and a few more than needed."""
    rows = readable(feedback, facts)
    first: dict[str, str] = {}
    for row in rows:
        if row.id in facts.readings.rows:
            first.setdefault(facts.wording(row), row.id)
    votes: dict[Vote, None] = {}
    for case in _cases(feedback, clock, base, region, facts):
        requirement = case.requirement
        if requirement.unwritten or requirement.accepted or suspicions(requirement.text):
            continue
        wanted = max(
            requirement.needed, requirement.majority if requirement.sources >= requirement.majority else 0.0
        )
        if requirement.sources < requirement.needed or requirement.confirmed >= wanted:
            continue
        expected = requirement.confirmed
        waiting = {who for who, confirmation in case.confirmations.items() if confirmation is None}
        for row in case.members:
            if expected >= wanted + _SPARE:
                break
            wording = facts.wording(row)
            if (
                row.who in waiting
                and mark(requirement.text) not in case.view[row.id].confirmed
                and wording in first
            ):
                waiting.remove(row.who)
                expected += case.weights[row.who]
                votes[(first[wording], requirement.text)] = None
    return list(votes)


def supporters(
    requirement: LiveRequirement, feedback: PromptFeedback, facts: RequirementEvidence
) -> dict[str, str]:
    """The words of one row of each source that alone requires it, by row; of every source where a person accepted it."""
    rows = [feedback.rows[key] for key in requirement.rows if key in feedback.rows]
    view = _view(rows, facts)
    text = mark(requirement.text)
    sure = [row for row in rows if requirement.accepted or view[row.id].confirmed.get(text)]
    first = {row.who: row for row in reversed(sure)}
    return {row.id: row.text for row in rows if first.get(row.who) is row}


# Counting


@dataclass(frozen=True)
class _Case:
    """A requirement with its rows, and who speaks for it: confirmed (True), or not yet (None)."""

    requirement: LiveRequirement
    members: Sequence[Comment]
    confirmations: Mapping[str, bool | None]
    weights: Mapping[str, float]
    view: Mapping[str, RowReading]

    @property
    def support(self) -> float:
        """The total weight of all who demand it."""
        return sum(self.weights[who] for who in self.confirmations)


def _cases(
    feedback: PromptFeedback, clock: int, base: Version, region: str, facts: RequirementEvidence
) -> list[_Case]:
    rows = readable(feedback, facts)
    if not rows:
        return []
    ledger = ledger_of(base, region)
    view = _view(rows, facts)
    weights = {who: weight(who, facts.policy, first, clock) for who, first in feedback.first.items()}
    needed = max(facts.policy.quorum, facts.policy.share * sum(weights.values()))
    gathered = _gather_rows(rows, ledger, view, facts)
    drafts = [
        draft
        for about, members in gathered.items()
        if (draft := _draft(about, members, ledger, needed, feedback, view, facts)) is not None
    ]
    kept = _within(drafts, facts.policy)
    cases = []
    for requirement, members, confirmations in kept:
        case = _Case(requirement, members, confirmations, weights, view)
        sure = sum(weights[who] for who, confirmation in confirmations.items() if confirmation)
        counted = replace(requirement, sources=case.support, confirmed=sure)
        cases.append(replace(case, requirement=counted))
    cases = _find_contradicted(cases)
    remaining = [case for case in cases if f"requirement {case.requirement.key}" not in facts.dismissed]
    return sorted(remaining, key=lambda case: (-case.requirement.sources, case.members[0].seq))


def _view(rows: Sequence[Comment], facts: RequirementEvidence) -> dict[str, RowReading]:
    """The reading of each row, or of a row with the same words; a confirmation of one of them counts for all."""
    readings = facts.readings
    same: dict[str, RowReading] = {}
    for row in rows:
        one = readings.rows.get(row.id)
        if one is not None and one.done:
            words = facts.wording(row)
            old = same.get(words, one)
            same[words] = replace(old, confirmed={**one.confirmed, **old.confirmed})
    view = {}
    for row in rows:
        one, alike = readings.rows.get(row.id, RowReading()), same.get(facts.wording(row), RowReading())
        if not one.done:
            one = alike
        elif len(alike.confirmed) > len(one.confirmed):
            one = replace(one, confirmed=alike.confirmed)
        view[row.id] = one
    return view


def _gather_rows(
    rows: Sequence[Comment], ledger: Ledger, view: Mapping[str, RowReading], facts: RequirementEvidence
) -> dict[tuple[str, str], list[Comment]]:
    """Rows by what they are about: an instruction, a requirement, or, where nobody read them, their words."""
    gathered: dict[tuple[str, str], dict[str, Comment]] = {}
    learned = {row for row, _ in facts.done}
    named = {key for one in view.values() for key in one.ids}
    owners = {key: facts.readings.instruction(key, ledger) for key in named}
    for row in rows:
        one = view[row.id]
        if not one.done and facts.grouping and row.id not in learned:
            words = facts.alike.get(row.id, comparable(row.text))
            gathered.setdefault(("", words), {})[row.id] = row
        for key in one.ids:
            owner = owners[key]
            if any((row.id, name) in facts.done for name in ("", key, owner)):
                continue
            # an older comment, on an answer that the instruction had no part in, is answered by it
            is_news = owner in facts.standing.get(row.version, (owner,))
            if owner and (row.id in ledger[owner].evidence or not is_news):
                continue
            if owner or key in facts.readings.requirements:
                gathered.setdefault((owner, "" if owner else key), {})[row.id] = row
    return {about: list(members.values()) for about, members in gathered.items()}


_Draft = tuple[LiveRequirement, Sequence[Comment], Mapping[str, bool | None]]


def _draft(
    about: tuple[str, str],
    members: Sequence[Comment],
    ledger: Ledger,
    needed: float,
    feedback: PromptFeedback,
    view: Mapping[str, RowReading],
    facts: RequirementEvidence,
) -> _Draft | None:
    """A requirement before its sources are counted: its rows without those that do not require it, and who supports it. None
    where no row is left."""
    owner, key = about
    one = facts.readings.requirements.get(key) if not owner else None
    text = ledger[owner].text if owner else one.text if one is not None else members[0].text
    confirmations: dict[str, bool | None] = {}
    left = []
    for row in members:
        sure = None if not owner and one is None else view[row.id].confirmed.get(mark(text))
        if sure is not False:
            left.append(row)
            confirmations[row.who] = confirmations.get(row.who) or sure
    if not left:
        return None
    rejected = next((old for old in facts.rejected if comparable(old) == comparable(text)), None)
    if rejected is not None:
        before = {feedback.rows[row].who for row in facts.behind.get(rejected, ()) if row in feedback.rows}
        before |= {row.who for row in left if row.at <= facts.until.get(rejected, 0)}
        confirmations = {
            who: confirmation for who, confirmation in confirmations.items() if who not in before
        }
        needed = max(needed, 2 * facts.policy.quorum)
    contradicts = () if one is None else _standing_for(one.contradicts, ledger, facts.readings)
    if not facts.models_own.isdisjoint(contradicts):
        needed *= 2
    name = one.id if one is not None else f"row {members[0].id}"
    rows = tuple(row.id for row in left)
    requirement = LiveRequirement(
        key=name,
        text=text if owner or one is not None else text[:_LONGEST_TEXT],
        texts=tuple(dict.fromkeys(row.text[:_LONGEST_TEXT] for row in left))[:MOST_TEXTS],
        rows=rows,
        sources=0.0,
        needed=needed,
        requirement_id="" if one is None else one.id,
        instruction=owner,
        author="" if one is None else one.author,
        origin=rows if owner else () if one is None else one.origin,
        contradicts=contradicts,
        rejected="" if rejected is None else facts.rejected[rejected],
        accepted=f"requirement {name}" in facts.accepted,
    )
    return requirement, left, confirmations


def _standing_for(keys: Sequence[str], ledger: Ledger, readings: Readings) -> tuple[str, ...]:
    """Ids, with the instruction for a requirement that became one."""
    return tuple(dict.fromkeys(readings.instruction(key, ledger) or key for key in keys))


def _within(drafts: Sequence[_Draft], policy: LearningPolicy) -> list[_Draft]:
    """The drafts in which each source speaks for its first few requirements only; those that it confirmed come first."""
    used: dict[str, list[tuple[bool, int, int]]] = {}
    for place, (_, members, confirmations) in enumerate(drafts):
        for who, confirmation in confirmations.items():
            used.setdefault(who, []).append((not confirmation, members[0].seq, place))
    wording = {
        who: {place for *_, place in sorted(places)[: policy.per_source]} for who, places in used.items()
    }
    return [
        (
            requirement,
            members,
            {who: confirmation for who, confirmation in confirmations.items() if place in wording[who]},
        )
        for place, (requirement, members, confirmations) in enumerate(drafts)
    ]


def _find_contradicted(cases: Sequence[_Case]) -> list[_Case]:
    """The cases with those that they contradict, whichever of the two says so: all who want the contrary count."""
    place = {case.requirement.about: n for n, case in enumerate(cases) if case.requirement.about}
    contrary: dict[int, dict[int, None]] = {}
    for n, case in enumerate(cases):
        for key in case.requirement.contradicts:
            if key in place and place[key] != n:
                contrary.setdefault(n, {})[place[key]] = None
                contrary.setdefault(place[key], {})[n] = None
    opposed = []
    for n, case in enumerate(cases):
        others = [cases[other] for other in contrary.get(n, ())]
        against = {other.requirement.text: other.support for other in others}
        opposing = {other.requirement.text: other.requirement.rows for other in others}
        opposed.append(
            replace(case, requirement=replace(case.requirement, against=against, opposing=opposing))
        )
    return opposed
