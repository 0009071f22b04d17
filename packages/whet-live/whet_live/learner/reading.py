"""The reading of rows of feedback by a model: which requirements each row states, and whether a row states one by itself.

The values here are what is remembered of it. The steps (`read_comments`, `confirm_votes`) need a run and nothing else, so that
they work without a database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.errors import BudgetExceeded
from whet.instructions.answers import Known, Requirement
from whet.instructions.changes import known_of
from whet.instructions.confirm import confirm
from whet.instructions.consolidate import consolidate
from whet.instructions.neighbours import Embed, comparable
from whet.instructions.personal_data import mask_personal
from whet.instructions.questions import Critique
from whet.instructions.reader import SIZE, read_critiques
from whet.prompt.instructions import Ledger
from whet.run import Run
from whet.types import content_hash
from whet_live.learner.answer_context import Contexts
from whet_live.learner.feedback_state import Comment, PromptFeedback

MOST_READ = 96
"""Rows that are read in one step."""
MOST_KNOWN = 200
"""Requirements that the reader is shown beside the instructions."""
TRIES = 3
"""The number of tries to read, or to confirm, a row whose answer cannot be used."""
ALONE = "alone"
"""The mark under which it is remembered that a row was read alone."""
UNREADABLE = "unreadable"
"""The verdict about a row for which no answer could be used."""


@dataclass(frozen=True, slots=True)
class OpenRequirement:
    """A requirement that waits. `author` is the person who wrote its text, empty for the reader; `contradicts` are ids of
    instructions and requirements that want the contrary, or `context`; `origin` are the rows that the text was written from;
    `instruction` is the one that an update made of it."""

    id: str
    text: str
    author: str = ""
    contradicts: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class RowReading:
    """The reading of a row: `ids` of requirements and instructions, or a `verdict` why there are none. `confirmed` says, by
    the mark of a text, whether the row alone requires it, and under ALONE that it was read alone; `tries` counts answers
    that could not be used."""

    ids: tuple[str, ...] = ()
    verdict: str = ""
    confirmed: Mapping[str, bool] = field(default_factory=dict)
    tries: int = 0

    @property
    def done(self) -> bool:
        """Whether the row was read."""
        return bool(self.ids or self.verdict)


@dataclass(frozen=True)
class Readings:
    """All that was read about one prompt: readings by row, open requirements by id. `counter` numbers requirements."""

    rows: Mapping[str, RowReading] = field(default_factory=dict)
    requirements: Mapping[str, OpenRequirement] = field(default_factory=dict)
    counter: int = 0

    def instruction(self, key: str, ledger: Ledger) -> str:
        """The instruction that stands for an id: itself, or what became of a requirement; empty if there is none."""
        standing = {instruction.id for instruction in ledger.active}
        if key in standing:
            return key
        one = self.requirements.get(key)
        if one is None or (made := ledger.successor(one.instruction)) not in standing:
            return ""
        rule = ledger[made]
        rests = any(key in self.rows[row].ids for row in rule.evidence if row in self.rows)
        return rule.id if rests or comparable(rule.text) == comparable(one.text) else ""

    def unread(self, rows: Iterable[Comment], ledger: Ledger, learned: Collection[str] = ()) -> list[Comment]:
        """The rows that wait for the reader: those that were not read yet, and those that were read as something that is no
        more; then those that were read among others as nothing, or as what they alone do not require: they are read once more,
        alone, for a comment in their pack may have spoiled how they were read. `learned` are rows that an update rests on."""
        texts = {key: one.text for key, one in self.requirements.items()}
        texts |= {instruction.id: instruction.text for instruction in ledger.active}
        first: list[Comment] = []
        again: list[Comment] = []
        for row in rows:
            one = self.rows.get(row.id, RowReading())
            if row.id in learned:
                continue
            if not one.done or (one.ids and texts.keys().isdisjoint(one.ids)):
                first.append(row)
            elif self.is_spoiled(one, texts):
                again.append(row)
        return first + again

    def is_spoiled(self, one: RowReading, texts: Mapping[str, str]) -> bool:
        """Whether a row was read, but not alone yet, as nothing or only as what it does not require. `texts` are those of ids."""
        rejected = (one.confirmed.get(mark(texts[key])) is False for key in one.ids if key in texts)
        return ALONE not in one.confirmed and all(rejected)

    def write(self, text: str, author: str, rows: Sequence[str]) -> tuple[Readings, str]:
        """With a requirement that a person wrote for some rows, and its id."""
        key = f"r{self.counter + 1}"
        marked = {row: RowReading((key,), confirmed={mark(text): True}) for row in rows}
        requirements = {**self.requirements, key: OpenRequirement(key, text, author)}
        return Readings({**self.rows, **marked}, requirements, self.counter + 1), key

    def reword(self, key: str, text: str, author: str) -> Readings:
        """With another text for a requirement, by a person."""
        one = replace(self.requirements[key], text=text, author=author, origin=())
        return replace(self, requirements={**self.requirements, key: one})

    def prune(self, rows: Collection[str]) -> Readings:
        """Without readings of rows that are not kept any more, and without requirements that no reading names."""
        left = {key: one for key, one in self.rows.items() if key in rows}
        named = {key for one in left.values() for key in one.ids}
        open_ones = {key: one for key, one in self.requirements.items() if key in named}
        return replace(self, rows=left, requirements=open_ones)


def mark(text: str) -> str:
    """The mark of a text, under which it is remembered whether a row requires it; another text has another mark."""
    return content_hash(comparable(text))[:12]


# Reading


@dataclass(frozen=True)
class ReadOutcome:
    """The requirements that a model read in some rows: for each requirement its rows by id. `same` are ids that say the
    same, the one to keep first; `opposite` are pairs of texts that cannot both be met; `alone` says that each row was read
    by itself."""

    rows: tuple[str, ...]
    requirements: tuple[tuple[Requirement, tuple[str, ...]], ...] = ()
    dismissed: Mapping[str, str] = field(default_factory=dict)
    same: tuple[tuple[str, ...], ...] = ()
    opposite: tuple[tuple[str, str], ...] = ()
    alone: bool = False


def known_by(readings: Readings, ledger: Ledger) -> list[Known]:
    """The list of known demands for the reader: the current instructions, and the waiting requirements with the most rows."""
    votes: dict[str, int] = {}
    for row in readings.rows.values():
        for key in row.ids:
            votes[key] = votes.get(key, 0) + 1
    waiting = [r for r in readings.requirements.values() if not readings.instruction(r.id, ledger)]
    waiting.sort(key=lambda r: (-votes.get(r.id, 0), int(r.id[1:])))
    shown = sorted(waiting[:MOST_KNOWN], key=lambda r: int(r.id[1:]))
    return [*known_of(ledger), *(Known(r.id, r.text) for r in shown)]


async def read_comments(
    run: Run,
    rows: Sequence[Comment],
    readings: Readings,
    ledger: Ledger,
    around: str,
    *,
    contexts: Contexts | None = None,
    most: int | None = None,
    embed: Embed | None = None,
) -> ReadOutcome:
    """Let the optimizer model read rows, in at most `most` calls. `contexts` are lines about the answers of rows, if it may
    see them.

    Rows that were read before wait for the others; then they are read alone, as many as the calls allow, and without the
    requirements that they do not confirm. Raises ProviderError when the model call fails.
    """
    known = known_by(readings, ledger)
    standing = {*readings.requirements, *(instruction.id for instruction in ledger.active)}
    before = {row.id: readings.rows.get(row.id, RowReading()) for row in rows}
    first = [row for row in rows if not before[row.id].verdict and standing.isdisjoint(before[row.id].ids)]
    alone = not first
    rows = (
        first or rows[: None if most is None else max(1, most - 1)]
    )  # a call is left to join what says the same
    if alone:
        marks = [before[row.id].confirmed for row in rows]
        known = [one for one in known if not any(own.get(mark(one.text)) is False for own in marks)]
    shown = contexts or {}
    critiques = [Critique(_words(row, shown), row.id, context=shown.get(row.id, ())) for row in rows]
    ids = tuple(row.id for row in rows)
    try:
        reading = await read_critiques(
            run, critiques, known, around, most=most, size=1 if alone else SIZE, embed=embed
        )
        left = None if most is None else max(0, most - reading.calls)
        united = await consolidate(run, reading.requirements, known, most=left, embed=embed)
    except BudgetExceeded:
        return ReadOutcome(ids)
    supported = [requirement for requirement in united.requirements if requirement.critiques]
    texts = {comparable(requirement.text): requirement.text for requirement in supported}
    for one in reading.requirements:  # a wording that was merged away stands for the one that stayed
        merged = next((two for two in supported if set(one.critiques) <= set(two.critiques)), None)
        if one.text and merged is not None and merged.text:
            texts.setdefault(comparable(one.text), merged.text)
    opposite = [(texts.get(comparable(a), a), texts.get(comparable(b), b)) for a, b in united.contradictions]
    return ReadOutcome(
        ids,
        tuple((requirement, tuple(ids[n] for n in requirement.critiques)) for requirement in supported),
        {ids[n]: why for n, why in reading.dismissed.items()},
        united.same,
        tuple(opposite),
        alone,
    )


def _words(row: Comment, contexts: Contexts) -> str:
    """The words of a row as the reader sees them; beside an answer whose personal data is masked, theirs is masked too."""
    return mask_personal(row.text) if row.id in contexts else row.text


def taken_in(
    readings: Readings, outcome: ReadOutcome, ledger: Ledger, gone: Collection[str] = ()
) -> Readings:
    """The readings after an outcome, without the rows that are `gone` by now. What names something that is no more counts for
    nothing: its rows are read again."""
    standing = {instruction.id: instruction.text for instruction in ledger.active}
    requirements = dict(readings.requirements)
    counter = readings.counter
    ids: dict[str, list[str]] = {row: [] for row in outcome.rows if row not in gone}
    ours: dict[str, str] = {}
    for one, rows in outcome.requirements:
        left = [row for row in rows if row in ids]
        key = one.violates
        if not key and left and len(left) == len(rows):
            counter += 1
            key = f"r{counter}"
            against = [one.contradicts] if one.contradicts else []
            requirements[key] = OpenRequirement(key, one.text, contradicts=tuple(against), origin=tuple(rows))
            ours[comparable(one.text)] = key
        if key in requirements or key in standing:
            for row in left:
                ids[row].append(key)
    rows_read = dict(readings.rows)
    for row, keys in ids.items():
        old = readings.rows.get(row, RowReading())
        why = "" if keys else outcome.dismissed.get(row, "")
        tries = 0 if keys or why else old.tries + 1
        why = UNREADABLE if tries >= TRIES else why
        marks = {**old.confirmed, ALONE: True} if outcome.alone else old.confirmed
        rows_read[row] = RowReading(tuple(dict.fromkeys(keys)), why, marks, tries)
    updated = Readings(rows_read, requirements, counter)
    updated = _add_oppositions(updated, outcome.opposite, ours, standing)
    for group in outcome.same:
        updated = _merge_same_meaning(updated, group, standing)
    return updated


def _add_oppositions(
    readings: Readings,
    pairs: Iterable[tuple[str, str]],
    ours: Mapping[str, str],
    standing: Mapping[str, str],
) -> Readings:
    """With what consolidation says of texts that cannot both be met."""
    known = {comparable(text): key for key, text in standing.items()}
    known |= {
        comparable(requirement.text): requirement.id for requirement in readings.requirements.values()
    } | dict(ours)
    requirements = dict(readings.requirements)
    for pair in pairs:
        keys = [known.get(comparable(text), "") for text in pair]
        if all(keys) and keys[0] != keys[1]:
            for key, other in (keys, keys[::-1]):
                if key in requirements:
                    old = requirements[key]
                    against = tuple(dict.fromkeys((*old.contradicts, other)))
                    requirements[key] = replace(old, contradicts=against)
    return replace(readings, requirements=requirements)


def _merge_same_meaning(readings: Readings, group: Sequence[str], standing: Mapping[str, str]) -> Readings:
    """With requirements of the same meaning as one, or as the instruction that says it. A row that was confirmed for a text is
    not confirmed for another one."""
    members = [key for key in group if key in readings.requirements]
    keep = next((key for key in group if key in standing), members[0] if members else "")
    others = {key for key in members if key != keep}
    if not others:
        return readings

    def rename_keys(keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(keep if key in others else key for key in keys))

    against = [other for key in members for other in readings.requirements[key].contradicts]
    requirements = {
        key: replace(one, contradicts=tuple(k for k in rename_keys(one.contradicts) if k != key))
        for key, one in readings.requirements.items()
        if key not in others
    }
    if keep in requirements:
        all_of_them = rename_keys([*requirements[keep].contradicts, *against])
        requirements[keep] = replace(
            requirements[keep], contradicts=tuple(k for k in all_of_them if k != keep)
        )
    rows = {
        row: one if others.isdisjoint(one.ids) else replace(one, ids=rename_keys(one.ids))
        for row, one in readings.rows.items()
    }
    return replace(readings, rows=rows, requirements=requirements)


# Confirming

Vote = tuple[str, str]
"""A row by its id, and a text that it may require."""


async def confirm_votes(
    run: Run, votes: Sequence[Vote], feedback: PromptFeedback, contexts: Contexts | None = None
) -> dict[Vote, bool | None]:
    """Whether each row alone requires the text; None where no answer could be used. One small call for each, with the lines about
    its answer where the reader may see them."""
    shown = contexts or {}
    pairs = [(text, _words(feedback.rows[row], shown)) for row, text in votes]
    try:
        answers = await confirm(run, pairs, [shown.get(row, ()) for row, _ in votes])
    except BudgetExceeded:
        answers = [None] * len(pairs)
    return dict(zip(votes, answers, strict=True))


def apply_confirmations(readings: Readings, answers: Mapping[Vote, bool | None]) -> Readings:
    """The readings with what rows require alone. After a few answers that could not be used a row does not require it."""
    rows = dict(readings.rows)
    for (row, text), answer in answers.items():
        if row not in rows:
            continue
        one = rows[row]
        tries = one.tries + 1 if answer is None else 0
        if answer is None and tries >= TRIES:
            answer, tries = False, 0
        marks = dict(one.confirmed) if answer is None else {**one.confirmed, mark(text): answer}
        rows[row] = replace(one, confirmed=marks, tries=tries)
    return replace(readings, rows=rows)
