"""Learning from feedback, one example included: propose an edit with its reasons, apply it, take it back.

Feedback becomes complaints, complaints are grouped by what they demand, and each group becomes an instruction
in the fence of the prompt, written by an optimizer model or distilled from the complaint itself. What a
stranger wrote is data all the way: suspicious rows never reach the optimizer, suspicious or contradicting
instructions never reach the prompt, unless a person accepts them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import BudgetExceeded, UsageError
from whet.online.asked import NONE, Asked, learning_run, now
from whet.online.complaints import Heard, hear
from whet.online.document import Document, open_document
from whet.online.feedback import Feedback, read_feedback
from whet.online.history import (
    LEARN,
    UNDO,
    Step,
    append,
    digest,
    encode,
    events_of,
    ledger_path,
    read_steps,
    replace_file,
    standing,
)
from whet.online.screen import Flag, Screen, by_people, flag_row, in_plain_words
from whet.policies.curator import DISTILLER, Curator
from whet.prompt.diff import text_diff
from whet.prompt.events import Event, Read, Rollback, to_json
from whet.prompt.instructions import Instruction, Ledger, fold
from whet.prompt.ledger import Change, changes, render, surroundings
from whet.run import MemoryRun, Run
from whet.search.critiques import Complaint
from whet.types import content_hash

MOST_CALLS = 20
_NOTHING = "no instruction follows from its words; an optimizer model (--optimizer-lm) may find one"


@dataclass(frozen=True)
class Lesson:
    """What to learn from and with. `feedback` are files or rows; `accepted` the ids of flagged rows or
    instructions that a person accepts; `most_calls` bounds the optimizer's calls; `root` is where journals of
    paid calls go."""

    prompt: Path
    feedback: Sequence[str | Path | Mapping[str, Any]]
    optimizer_lm: str | None = None
    base_url: str | None = None
    region: str | None = None
    accepted: frozenset[str] = frozenset()
    most_calls: int = MOST_CALLS
    root: Path = Path("runs")


@dataclass(frozen=True)
class Proposal:
    """An edit that is not made yet. `changed` are instructions that come, go or change, `supported` those
    that the feedback demands again; `flags` need a person; `skipped` are rows that give nothing, with the
    reason."""

    document: Document
    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    before: Ledger
    after: Ledger
    learned: tuple[Feedback, ...]
    flags: tuple[Flag, ...]
    skipped: tuple[Heard, ...]
    at: str
    asked: Asked
    data: bytes
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> list[Change]:
        """Instructions that differ, in the order of the fence."""
        return changes(self.before, self.after)

    @property
    def supported(self) -> list[Instruction]:
        """Instructions that stand there already and now rest on more feedback."""
        old = self.before.instructions
        return [
            i
            for i in self.after.active
            if i.id in old and i.text == old[i.id].text and i.evidence != old[i.id].evidence
        ]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.changed and not self.supported


async def propose(lesson: Lesson) -> Proposal:
    """What the prompt would learn. Writes nothing but the journal of paid calls, and none without a model.

    Raises UsageError for a prompt, a ledger or feedback that cannot be used, ProviderError for a dead
    endpoint.
    """
    writer = lesson.optimizer_lm not in (None, NONE)
    if lesson.base_url is not None and not writer:
        raise UsageError("--base-url names an endpoint but no model. Add --optimizer-lm openai/NAME.")
    document = open_document(lesson.prompt, lesson.region)
    steps = read_steps(ledger_path(lesson.prompt))
    pupil = _listen(lesson, steps)
    stored = events_of(steps, document.region)
    identity = _identity(lesson, document, stored, pupil)
    address = lesson.optimizer_lm if writer and pupil.complaints else NONE
    warnings: tuple[str, ...] = ()
    async with learning_run(str(address), lesson.base_url, lesson.root, identity, lesson.most_calls) as asked:
        at = await now(asked.run)
        before = document.events(stored, at)
        try:
            told = pupil.complaints
            curator = await _curated(asked.run, lesson, document, before, told, address != NONE, at)
        except BudgetExceeded:
            warnings = (
                f"{lesson.most_calls} optimizer calls did not suffice; the instructions are distilled instead.",
            )
            curator = await _curated(MemoryRun(), lesson, document, before, pupil.complaints, False, at)
    groups = [tuple(group.sources) for group in curator.board.groups]
    old = fold(before)
    new = by_people(curator.events[len(before) :], old, groups, pupil.rows)
    screen = Screen(document.text, surroundings(document.prompt, document.region), lesson.accepted)
    kept, flags = screen.sort(old, in_plain_words(old, new, DISTILLER))
    after = fold([*before, *kept])
    useless, waiting = _useless(curator), _waiting(groups, flags)
    return Proposal(
        document,
        tuple(steps),
        (*before[len(stored) :], *kept),
        old,
        after,
        tuple(h.row for h in pupil.heard if h.complaints and h.row.id not in waiting | useless),
        (*pupil.flags, *flags),
        (*pupil.skipped, *(Heard(pupil.rows[k], (), _NOTHING) for k in sorted(useless & pupil.rows.keys()))),
        at,
        asked,
        document.bytes_with(after),
        warnings,
    )


def _identity(lesson: Lesson, document: Document, stored: Sequence[Event], pupil: _Pupil) -> dict[str, Any]:
    """What a run is about, besides who is asked."""
    return {
        "task": lesson.prompt.stem,
        "prompt": document.prompt.id,
        "region": document.region,
        "ledger": content_hash([to_json(event) for event in stored]),
        "feedback": content_hash([[c.text, c.source] for c in pupil.complaints]),
    }


def _useless(curator: Curator) -> set[str]:
    """Sources of complaints from which no instruction follows."""
    groups = [g for g in curator.board.groups if not curator.tracks[g.id].instruction]
    return {key for group in groups for key in group.sources}


def _waiting(groups: Sequence[Sequence[str]], flags: Sequence[Flag]) -> set[str]:
    """Sources of instructions that wait for a person."""
    rests = [set(flag.rests) for flag in flags]
    return {key for group in groups for key in group if any(r and r <= set(group) for r in rests)}


async def _curated(
    run: Run,
    lesson: Lesson,
    document: Document,
    before: Sequence[Event],
    complaints: Sequence[Complaint],
    writer: bool,
    at: str,
) -> Curator:
    """The curator of the region after it has heard the complaints and written its events."""
    curator = Curator(document.prompt, writer, region=document.region, events=list(before))
    curator.hear(complaints)
    await curator.learn(run, max(1, lesson.most_calls * 3 // 4), at)
    return curator


@dataclass(frozen=True)
class _Pupil:
    """Rows by id, what was heard in those that may be learned from, and the others."""

    rows: Mapping[str, Feedback]
    heard: tuple[Heard, ...]
    flags: tuple[Flag, ...]
    skipped: tuple[Heard, ...]

    @property
    def complaints(self) -> list[Complaint]:
        """All complaints in order."""
        return [complaint for h in self.heard for complaint in h.complaints]


def _listen(lesson: Lesson, steps: Sequence[Step]) -> _Pupil:
    """Read the feedback; leave out what was learned before and what needs a person first."""
    rows = read_feedback(lesson.feedback)
    done = {key for n in standing(steps) for key in steps[n - 1].feedback}
    flags: list[Flag] = []
    heard: list[Heard] = []
    for row in rows:
        flag = flag_row(row) if row.key not in done and row.id not in lesson.accepted else None
        if row.key in done:
            heard.append(Heard(row, (), "it was learned before"))
        elif flag is not None:
            flags.append(flag)
        else:
            heard.append(hear(row))
    skipped = tuple(h for h in heard if not h.complaints)
    return _Pupil({row.id: row for row in rows}, tuple(heard), tuple(flags), skipped)


def apply(proposal: Proposal, out: Path | None = None) -> Path:
    """Write the prompt (or `out`) and its ledger; returns the ledger's path.

    Raises UsageError when the prompt changed since it was read or `out` exists, StorageError when the disk
    refuses.
    """
    document = proposal.document
    if document.path.read_bytes() != document.data:
        raise UsageError(f"{document.path} changed since it was read. Run the command again.")
    step = Step(
        LEARN,
        proposal.at,
        proposal.events,
        tuple(row.key for row in proposal.learned),
        digest(document.data),
        digest(proposal.data),
        document.fence,
        document.region,
        run=proposal.asked.folder,
    )
    if out is None:
        append(ledger_path(document.path), step)
        replace_file(document.path, proposal.data)
        return ledger_path(document.path)
    for path in (out, ledger_path(out)):
        if path.exists():
            raise UsageError(f"{path} exists already. Name a new file, or leave --out away to edit in place.")
    replace_file(ledger_path(out), b"".join(encode(s) for s in (*proposal.steps, step)))
    replace_file(out, proposal.data)
    return ledger_path(out)


@dataclass(frozen=True)
class Undone:
    """What an undo did: the step it took back, the text before and after, and the instructions that
    differ.
    """

    step: Step
    before: str
    after: str
    changed: tuple[Change, ...]

    @property
    def diff(self) -> str:
        """Unified diff of the file."""
        return text_diff(self.before, self.after, "learned", "undone")


def undo(path: Path, at: str) -> Undone:
    """Take back the last step that is not undone: a new event returns to the state before it, byte for byte.

    Raises UsageError when there is none, or when the fence was edited by hand since: that edit would be lost.
    """
    steps = read_steps(ledger_path(path))
    numbers = standing(steps)
    if not numbers:
        raise UsageError(
            f"{path}: there is nothing to undo: no learned step stands in {ledger_path(path).name}."
        )
    step = steps[numbers[-1] - 1]
    document = open_document(path, step.region)
    events = events_of(steps, step.region)
    if document.fence or render(fold(events)) != document.prompt.text(document.region):
        raise UsageError(
            f"{path}: the fence does not hold what was learned last: it was edited by hand since. An undo would lose "
            "that edit; change the fence by hand instead."
        )
    read = next((n for n, event in enumerate(step.events) if not isinstance(event, Read)), len(step.events))
    to = len(events_of(steps[: numbers[-1] - 1], step.region)) + read
    back = Rollback(to=to, reason=f"undo of step {numbers[-1]}", author="hand", at=at)
    after = fold([*events, back])
    data = document.bytes_with(after)
    if step.fence:
        data = data.removesuffix(step.fence.encode("utf-8"))
    if digest(document.data) == step.after and digest(data) != step.before:
        raise UsageError(
            f"{path}: the ledger does not lead back to the text before step {numbers[-1]}. Restore a copy."
        )
    new = Step(UNDO, at, (back,), (), digest(document.data), digest(data), "", step.region, numbers[-1])
    append(ledger_path(path), new)
    replace_file(path, data)
    return Undone(step, document.text, data.decode("utf-8"), tuple(changes(fold(events), after)))
