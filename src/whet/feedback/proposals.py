"""Learning from feedback, one example included: propose an edit with its reasons, apply it, take it back.

An optimizer model reads what people wrote, verbatim, and writes instructions for the fence of the prompt. Without a model
nothing is written for people: their comments are grouped, and instructions come from rows that carry one and from the person
who writes one for a group. Feedback is data all the way: rows with signs of an attack never reach the model, and instructions
that need a person never reach the prompt, unless they are accepted by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from whet.engine.progress import Progress
from whet.errors import BudgetExceeded, UsageError, did_you_mean, parameter
from whet.feedback.comments import Group, critiques_of, groups_of
from whet.feedback.model_session import NONE, ModelSession, learning_run, step_time
from whet.feedback.prompt_file import (
    LEARN,
    UNDO,
    Document,
    LearnStep,
    append_step,
    digest,
    encode_step,
    events_of,
    ledger_path,
    open_document,
    read_steps,
    replace_file,
    standing,
)
from whet.feedback.rows import FeedbackRow, read_feedback
from whet.feedback.screening import Draft, Flag, flag_row
from whet.instructions.answers import NO_DEMAND, TO_READER, VAGUE
from whet.instructions.propose import propose_events as propose_change
from whet.instructions.questions import Critique
from whet.models.callable import ModelChoice
from whet.prompt.events import Event, Merge, Read, Rollback, event_to_json
from whet.prompt.instructions import Instruction, Ledger, fold_events, reason_to_refuse, without_list_mark
from whet.prompt.ledger import Change, changes, render_instructions, write_ledger
from whet.run import Run
from whet.types import content_hash
from whet_client.storable import repair_surrogates, show_value

MOST_CALLS = 20
HAND = "hand"
_DISMISSED = {
    NO_DEMAND: "it demands nothing",
    VAGUE: "it does not say what should change",
    TO_READER: "it addresses whet or its instructions instead of an answer",
}
_UNMENTIONED = "the answer of the optimizer does not mention it"

Write: TypeAlias = Callable[[dict[str, Any]], str]
"""A function that writes an instruction for a group of comments (as JSON: `feedback`, `texts`); an empty text skips the
group."""


@dataclass(frozen=True)
class LearnRequest:
    """The prompt, the feedback, the models and the limits of one learning."""

    prompt: Path
    feedback: Sequence[str | Path | Mapping[str, object]]
    """Files or rows."""
    optimizer_lm: ModelChoice | Mapping[str, object] | None = None
    base_url: str | Sequence[str] | None = None
    region: str | None = None
    accepted: frozenset[str] = frozenset()
    """Ids of flagged rows or instructions that a person accepts."""
    most_calls: int = MOST_CALLS
    """Calls of the optimizer at most."""
    root: Path = Path("runs")
    """The folder of the journals of paid calls."""
    good: Sequence[str] = ()
    """Values of ratings that are words and mean good."""
    bad: Sequence[str] = ()
    """Values of ratings that are words and mean bad."""
    fresh: bool = False
    """Ask again what was recorded."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that gives nothing, and why."""

    row: FeedbackRow
    reason: str


@dataclass(frozen=True)
class LearnProposal:
    """An edit that is not made yet. `changed` are instructions that come, go or change, `supported` those
    that the feedback demands again; `flags` need a person; `skipped` are rows that give nothing, with the
    reason; `groups` are comments that wait for somebody who writes an instruction."""

    document: Document
    steps: tuple[LearnStep, ...]
    events: tuple[Event, ...]
    before: Ledger
    after: Ledger
    learned: tuple[FeedbackRow, ...]
    flags: tuple[Flag, ...]
    skipped: tuple[Skipped, ...]
    groups: tuple[Group, ...]
    contradictions: tuple[tuple[str, str], ...]
    at: str
    session: ModelSession
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


async def propose_learning(
    request: LearnRequest, write: Write | None = None, progress: Progress | None = None
) -> LearnProposal:
    """Propose changes of the prompt from feedback. Writes nothing but the journal of paid calls, and no journal without a
    model.

    `write` is called for each group of comments that no model reads. Raises UsageError for a prompt, a ledger or feedback
    that cannot be used and for a text of `write` that cannot be an instruction, ProviderError for a dead endpoint.
    """
    model = request.optimizer_lm not in (None, NONE)
    if request.base_url is not None and not model:
        raise UsageError(
            f"{parameter('base_url')} names an endpoint but no model. Add {parameter('optimizer_lm', 'openai/NAME')}."
        )
    document = open_document(request.prompt, request.region)
    steps = read_steps(ledger_path(request.prompt))
    intake = _read_intake(request, steps)
    stored = events_of(steps, document.region)
    identity = _identity(request, document, stored, intake)
    choice = request.optimizer_lm if model and request.optimizer_lm and intake.critiques else NONE
    async with learning_run(
        choice,
        request.base_url,
        request.root,
        identity,
        request.most_calls,
        fresh=request.fresh,
        progress=progress,
    ) as session:
        at = await step_time(session.run)
        opening = document.events(stored, at)
        draft = Draft(document, request.accepted, intake.rows, at, list(opening))
        for row in intake.instructed:
            draft.write(
                without_list_mark(str(row.instruction)), critiques_of(row)[0], [row.id], row.user or HAND
            )
        groups = await _read_or_grouped(session, draft, intake, request)
    if write is not None:
        groups = tuple(replace(group, instruction=_write_instruction(write, group)) for group in groups)
    for group in groups:
        if group.instruction:
            draft.write(group.instruction, group.texts, group.rows, HAND, own=True)
    _check_accepted(request.accepted, intake, draft)
    waiting = {key for flag in draft.flags for key in flag.rests}
    return LearnProposal(
        document,
        tuple(steps),
        tuple(draft.events[len(stored) :]),
        fold_events(opening),
        draft.ledger,
        tuple(row for key, row in intake.rows.items() if key in draft.learned - waiting),
        (*intake.flags, *draft.flags),
        (*intake.skipped, *_skipped_rows(intake, draft, waiting, groups)),
        groups,
        tuple(draft.contradictions),
        at,
        session,
        document.bytes_with(draft.ledger),
        (*intake.notes, *draft.warnings),
    )


def _check_accepted(accepted: Collection[str], intake: _Intake, draft: Draft) -> None:
    """Raise UsageError for an id of no row and of no instruction."""
    flagged = {flag.id for flag in (*intake.flags, *draft.flags)}
    known = {*intake.rows, *draft.ledger.instructions, *flagged}
    for one in sorted(set(accepted) - known):
        near = did_you_mean(one, flagged or known)
        raise UsageError(f'{parameter("accepted")}: no row and no instruction has the id "{one[:60]}".{near}')


def _identity(
    request: LearnRequest, document: Document, stored: Sequence[Event], intake: _Intake
) -> dict[str, object]:
    """The identity of a run, without the model that is called."""
    return {
        "task": request.prompt.stem,
        "prompt": document.prompt.id,
        "region": document.region,
        "ledger": content_hash([event_to_json(event) for event in stored]),
        "feedback": content_hash([[c.text, c.source] for c in intake.critiques]),
        "instructed": content_hash([row.key for row in intake.instructed]),
    }


# The rows


@dataclass(frozen=True)
class _Intake:
    """Rows by id, those that carry an instruction, what the others criticise, the rows that are left out, and how tables were
    read."""

    rows: Mapping[str, FeedbackRow]
    instructed: tuple[FeedbackRow, ...]
    critiques: tuple[Critique, ...]
    flags: tuple[Flag, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


def _read_intake(request: LearnRequest, steps: Sequence[LearnStep]) -> _Intake:
    """Read the feedback; leave out what was learned before and what needs a person first."""
    notes: list[str] = []
    rows = read_feedback(request.feedback, notes, request.good, request.bad)
    done = {key for n in standing(steps) for key in steps[n - 1].feedback}
    instructed: list[FeedbackRow] = []
    critiques: list[Critique] = []
    flags: list[Flag] = []
    skipped: list[Skipped] = []
    for row in rows:
        flag = flag_row(row) if row.key not in done and row.id not in request.accepted else None
        texts, why_none = critiques_of(row)
        refused = reason_to_refuse(row.instruction) if row.instruction else None
        if row.key in done:
            skipped.append(Skipped(row, "it was learned before"))
        elif flag is not None:
            flags.append(flag)
        elif refused is not None:
            skipped.append(Skipped(row, f"its instruction is refused: {refused}"))
        elif row.instruction:
            instructed.append(row)
        elif texts:
            critiques += [Critique(text, row.id) for text in texts]
        else:
            skipped.append(Skipped(row, why_none))
    by_id = {row.id: row for row in rows}
    return _Intake(by_id, tuple(instructed), tuple(critiques), tuple(flags), tuple(skipped), tuple(notes))


# What becomes of the comments


async def _read_or_grouped(
    session: ModelSession, draft: Draft, intake: _Intake, request: LearnRequest
) -> tuple[Group, ...]:
    """Let the model read the comments into the draft; the groups of them where no model did."""
    if session.address == NONE:
        return groups_of(intake.critiques)
    try:
        unread = await _read(session.run, draft, intake.critiques, request.most_calls)
    except BudgetExceeded:
        draft.warnings.append(
            f"{request.most_calls} optimizer calls did not suffice. Raise that limit; no answer is paid twice."
        )
        unread = intake.critiques
    if session.unread_replies:
        waits = f" {len(unread)} of {len(intake.critiques)} comments stay unread." if unread else ""
        draft.warnings.append(f"{session.unread_replies}{waits}")
    return groups_of(unread)


async def _read(run: Run, draft: Draft, critiques: Sequence[Critique], most: int) -> Sequence[Critique]:
    """Let the optimizer model read the critiques, and take in what it writes; those about which no reply could be read. Where all
    of them are of one row, what the model writes rests on that row, also when its numbers are wrong."""
    region = draft.document.region
    prompt = write_ledger(draft.document.prompt, draft.ledger, region)
    change = await propose_change(run, prompt, critiques, draft.events, region=region, at=draft.at, most=most)
    draft.contradictions += [
        (contradiction.first, contradiction.second) for contradiction in change.contradictions
    ]
    alone = len({c.source for c in critiques}) == 1
    everywhere = tuple(range(len(critiques)))
    requirements = [
        replace(r, critiques=everywhere) if alone and not r.critiques else r
        for r in change.reading.requirements
    ]
    draft.read(requirements, critiques)
    draft.take([event for event in change.new if isinstance(event, Merge)], {}, {})
    for place, why in change.reading.dismissed.items():
        draft.reasons.setdefault(critiques[place].source, _DISMISSED[why])
    behind = {place for requirement in requirements for place in requirement.critiques}
    return [critiques[place] for place in change.reading.unreadable if place not in behind]


def _skipped_rows(
    intake: _Intake, draft: Draft, waiting: Collection[str], groups: Sequence[Group]
) -> list[Skipped]:
    """Rows that a model read and that give nothing."""
    elsewhere = {*draft.learned, *waiting, *(key for group in groups for key in group.rows)}
    read = dict.fromkeys(c.source for c in intake.critiques)
    return [
        Skipped(intake.rows[key], draft.reasons.get(key, _UNMENTIONED))
        for key in read
        if key not in elsewhere
    ]


def _write_instruction(write: Write, group: Group) -> str:
    text = write(group.as_json())
    if not isinstance(text, str):
        raise UsageError(
            f"{parameter('write')} must return a text, empty for no instruction; this is {show_value(text)}."
        )
    text = without_list_mark(repair_surrogates(text).strip())
    reason = reason_to_refuse(text) if text else None
    if reason is not None:
        raise UsageError(f"The instruction {text[:60]!r} cannot be used: {reason}. Write another one.")
    return text


# Apply and undo


def write_proposal(proposal: LearnProposal, out: Path | None = None) -> Path:
    """Write the prompt (or `out`) and its ledger; returns the ledger's path.

    Raises UsageError when the prompt changed since it was read or `out` exists, StorageError when the disk
    refuses.
    """
    document = proposal.document
    if document.path.read_bytes() != document.data:
        raise UsageError(f"{document.path} changed since it was read. Run the command again.")
    step = LearnStep(
        LEARN,
        proposal.at,
        proposal.events,
        tuple(row.key for row in proposal.learned),
        digest(document.data),
        digest(proposal.data),
        document.fence,
        document.region,
        run=proposal.session.folder,
    )
    if out is None:
        append_step(ledger_path(document.path), step)
        replace_file(document.path, proposal.data)
        return ledger_path(document.path)
    for path in (out, ledger_path(out)):
        if path.exists():
            raise UsageError(
                f"{path} exists already. Name a new file, or leave {parameter('out')} away to edit in place."
            )
    replace_file(ledger_path(out), b"".join(encode_step(s) for s in (*proposal.steps, step)))
    replace_file(out, proposal.data)
    return ledger_path(out)


@dataclass(frozen=True)
class Undone:
    """The result of an undo: the step that was undone, the text before and after, and the instructions that differ."""

    step: LearnStep
    before: str
    after: str
    changed: tuple[Change, ...]


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
    if document.fence or render_instructions(fold_events(events)) != document.prompt.region_text(
        document.region
    ):
        raise UsageError(
            f"{path}: the fence does not hold what was learned last: it was edited by hand since. An undo would lose "
            "that edit; change the fence by hand instead."
        )
    read = next((n for n, event in enumerate(step.events) if not isinstance(event, Read)), len(step.events))
    to = len(events_of(steps[: numbers[-1] - 1], step.region)) + read
    if any(isinstance(event, Read) for event in events[to:]):
        raise UsageError(
            f"{path}: the fence was edited by hand after step {numbers[-1]}, and a later step took the edit in. An undo would "
            "lose that edit; change the fence by hand instead."
        )
    back = Rollback(to=to, reason=f"undo of step {numbers[-1]}", author="hand", at=at)
    after = fold_events([*events, back])
    data = document.bytes_with(after)
    if step.fence:
        data = data.removesuffix(step.fence.encode("utf-8"))
    if digest(document.data) == step.after and digest(data) != step.before:
        raise UsageError(
            f"{path}: the ledger does not lead back to the text before step {numbers[-1]}. Restore a copy."
        )
    new = LearnStep(UNDO, at, (back,), (), digest(document.data), digest(data), "", step.region, numbers[-1])
    append_step(ledger_path(path), new)
    replace_file(path, data)
    return Undone(step, document.text, data.decode("utf-8"), tuple(changes(fold_events(events), after)))
