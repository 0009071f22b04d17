"""The course of a lesson: begun when enough is demanded, taught, examined, gated, and filed or staged.

A lesson is written down before anything is paid for it, its calls are journalled, and its end is one transaction: killed at
any moment, the next learner goes on where this one stopped, and nothing is paid or filed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from whet.engine.model_client import MAX_ATTEMPTS
from whet.feedback.model_session import now
from whet.feedback.sources import self_judged
from whet.instructions.changes import AUTHOR as OPTIMIZER
from whet.live.database import now as clock
from whet.live.learner import learner_store
from whet.live.learner.context import AUTHOR, LearnerContext, region_of
from whet.live.learner.feedback_state import PromptFeedback
from whet.live.learner.gating import gate
from whet.live.learner.learner_store import LearnerSettings, Lesson
from whet.live.learner.leases import Lease
from whet.live.learner.lessons import Inspection, Taught, examine, instructions_of, teach, voters_of
from whet.live.learner.probes import of_traffic
from whet.live.learner.requirements import READY, find_demands, supporters
from whet.live.learner.sessions import discard, model_session
from whet.live.registry import Address, PromptEdit, Proposal, Version
from whet.live.registry.labels import By, put_label
from whet.live.registry.proposals import PROBES, close, open_one, propose
from whet.live.registry.registry_store import MOVE, is_protected, labels_of
from whet.live.registry.values import OPEN, WITHDRAWN
from whet.live.registry.versions import add_version
from whet.live.traffic.erase import erased_after
from whet.prompt.events import Event, to_json
from whet.task import load_task
from whet.types import content_hash

STAGING = "staging"
"""The label that a version learned without a person gets first."""


def begin(desk: LearnerContext, name: str, settings: LearnerSettings, lease: Lease) -> Lesson | None:
    """Write the next lesson down, if there is enough to learn and no earlier one waits for its end."""
    base = desk.base(name, settings)
    state = desk.memory.advance()
    if base is None or name not in state.prompts or _waits(desk, name, base):
        return None
    if settings.mode == learner_store.MODE_AUTO and outstanding(desk, name, settings) is not None:
        return None
    facts = desk.facts(name, base, settings)
    demands = find_demands(state.prompts[name], state.clock, base, region_of(base, settings), facts)
    able = bool(desk.teaching.reader)  # to rewrite an instruction that is violated takes a model
    ready = [demand for demand in demands if demand.state == READY and (able or not demand.instruction)]
    written = base.ledger(region_of(base, settings)).instructions
    fit = [
        demand
        for demand in ready
        if not (demand.rejected or demand.against)
        and (not demand.instruction or written[demand.instruction].author == OPTIMIZER)
    ]
    auto = settings.mode == learner_store.MODE_AUTO and bool(fit)
    chosen = tuple(replace(demand, texts=()) for demand in (fit if auto else ready))
    if not chosen:
        return None
    mode = learner_store.MODE_AUTO if auto else learner_store.MODE_PROPOSE
    key = content_hash([name, base.version, mode, [d.as_json() for d in chosen], clock()])
    lesson = Lesson(key, name, base.version, mode, learner_store.OPEN, chosen, clock())
    desk.memory.keep()  # the snapshot says whose words a lesson quotes, also when the feedback itself has expired
    with desk.registry.change() as connection:
        lease.check(connection)
        if erased_after(connection, state.seq):
            return None
        learner_store.open_lesson(connection, lesson)
    return lesson


def _waits(desk: LearnerContext, name: str, base: Version) -> bool:
    """Whether a proposal of the learner waits for a decision. One that is out of date is taken back first."""
    waiting = False
    for proposal in desk.registry.proposals(state=OPEN, name=name, limit=500).items:
        if proposal.author == AUTHOR and proposal.base == base.version:
            waiting = True
        elif proposal.author == AUTHOR and proposal.target is None:
            _take_back(desk, proposal, base)
    return waiting


def _take_back(desk: LearnerContext, proposal: Proposal, base: Version) -> None:
    """Withdraw a proposal whose version no longer stands; its feedback is learned from anew."""
    reason = f"version {base.version} stands by now; it is learned anew for that"
    with desk.registry.change() as connection:
        close(connection, open_one(connection, proposal.id), WITHDRAWN, AUTHOR, {"reason": reason})
        for lesson in learner_store.read_lessons(connection, proposal.name, learner_store.PROPOSED):
            if lesson.proposal == proposal.id:
                learner_store.close_lesson(connection, lesson, learner_store.STALE, reason=reason)


@dataclass(frozen=True)
class _Ending:
    """All that decides what becomes of a lesson, and what is shown about it. `run` says where it was taught, `probes` what
    a few fixed questions are answered before and after it."""

    lesson: Lesson
    base: Version
    region: str
    taught: Taught
    verdict: Mapping[str, Any] | None
    run: Mapping[str, Any]
    probes: Mapping[str, Any] | None = None

    @property
    def flags(self) -> list[dict[str, Any]]:
        """What was left out, and why."""
        return [
            {"text": f.text, "reasons": list(f.reasons), "rows": list(f.rests)} for f in self.taught.flags
        ]

    @property
    def message(self) -> str:
        """What it is about, in a line."""
        count = len(self.lesson.demands)
        return f"{count} demand{'' if count == 1 else 's'} from {len(self.lesson.rows)} rows of feedback"

    @property
    def evidence(self) -> dict[str, Any]:
        """What the change rests on."""
        demands = [d.as_json() for d in self.lesson.demands]
        return {"demands": demands, "left_out": self.flags, PROBES: self.probes}


async def give(desk: LearnerContext, lesson: Lesson, settings: LearnerSettings, lease: Lease) -> Lesson:
    """Teach, examine, gate, and file or stage a lesson; what became of it.

    Raises ProviderError, UsageError or BudgetExceeded when the gate cannot run: the lesson stays open. Raises RunLocked
    when another learner took over.
    """
    base = desk.registry.get(f"{lesson.name}/{lesson.base}")
    region = region_of(base, settings)
    events, run, folder = await _taught(desk, lesson, base, region)
    taught = examine(base, region, events, _inspection(desk, lesson, settings))
    verdict, probes, bench = None, None, desk.teaching.bench(lesson.name)
    if not taught.empty and bench is not None:
        with desk.database.read() as connection:
            attempt = learner_store.gated(connection, lesson.name) + 1
        verdict = await gate(bench, base.prompt, taught.prompt, attempt)
        probes = verdict.pop(PROBES)
    elif not taught.empty:
        probes = await of_traffic(desk, lesson, base.prompt, taught.prompt)
    if verdict is not None and (why := self_judged(str(run["optimizer"]), verdict["judge"])):
        verdict = {**verdict, "promoted": False, "reason": f"{verdict['reason']}; but {why}"}
    ending = _Ending(lesson, base, region, taught, verdict, run, probes)
    with desk.registry.change() as connection:
        lease.check(connection)
        stored = learner_store.read_lesson(connection, lesson.id)
        # what it rests on may have been deleted meanwhile
        done = _end(connection, ending) if stored.outcome == learner_store.OPEN else stored
    discard(folder)
    return done


async def _taught(
    desk: LearnerContext, lesson: Lesson, base: Version, region: str
) -> tuple[Sequence[Event], dict[str, Any], str]:
    """The events that meet the demands, the model that wrote them, and the folder of its journal."""
    feedback = desk.memory.advance().prompts.get(lesson.name, PromptFeedback())
    facts = desk.facts(lesson.name, base, desk.settings(lesson.name))
    votes = {
        d.instruction: list(supporters(d, feedback, facts).values()) for d in lesson.demands if d.instruction
    }
    identity = {
        "prompt": base.prompt.id,
        "region": region,
        "ledger": content_hash([to_json(event) for event in base.ledgers.get(region, ())]),
        "feedback": content_hash([[d.text, d.instruction, votes.get(d.instruction)] for d in lesson.demands]),
    }
    calls = desk.teaching.calls if desk.teaching.reader else 0
    voters = sum(voters_of(votes[d.instruction], d.needed) for d in lesson.demands if d.instruction)
    most = calls + MAX_ATTEMPTS * voters
    async with model_session(desk.teaching, lesson.name, "lesson", identity, most) as session:
        at = await now(session.run)
        events = await teach(session.run, base, region, lesson.demands, votes, calls=calls, at=at)
    writer = {"optimizer": session.address, "simulated": session.simulated}
    return events, {"kind": "learner", "lesson": lesson.id, **writer}, session.folder


def _inspection(desk: LearnerContext, lesson: Lesson, settings: LearnerSettings) -> Inspection:
    """What the new instructions are held against: the data behind the feedback and of the task, and what people accepted."""
    feedback = desk.memory.advance().prompts.get(lesson.name, PromptFeedback())
    private: list[str] = []
    for key in dict.fromkeys(feedback.rows[row].about for row in lesson.rows if row in feedback.rows):
        stored = desk.traffic.inference(key)
        if stored is not None:
            private += [stored.inference.output, *(str(value) for value in stored.inference.inputs.values())]
    bench = desk.teaching.bench(lesson.name)
    if bench is not None:
        task = load_task(bench.task)
        for example in (*task.train, *task.validation, *task.test):
            private += [*example.values.values(), str(example.target)]
    with desk.database.read() as connection:
        accepted, _ = learner_store.read_verdicts(connection, lesson.name)
    wanted = {row for demand in lesson.demands if demand.accepted for row in demand.rows}
    contrary = {demand.text: demand.contradicts for demand in lesson.demands}
    return Inspection(settings.policy, accepted | wanted, private, contrary)


def _end(connection: Connection, ending: _Ending) -> Lesson:
    """What becomes of a lesson, in the transaction that makes it so, by the settings that hold then."""
    lesson, verdict = ending.lesson, ending.verdict
    settings = learner_store.read_settings(connection, lesson.name)
    values: dict[str, Any] = {"flags": ending.flags, "gate": None if verdict is None else dict(verdict)}
    if settings.mode == learner_store.MODE_OFF:
        return learner_store.close_lesson(
            connection, lesson, learner_store.STALE, reason="learning was turned off", **values
        )
    if labels_of(connection, lesson.name).get(settings.label) != lesson.base:
        reason = f"{settings.label} does not stand on version {lesson.base} any more"
        return learner_store.close_lesson(connection, lesson, learner_store.STALE, reason=reason, **values)
    if ending.taught.empty:
        reason = "nothing was left after the checks" if ending.flags else "no instruction follows from it"
        return learner_store.close_lesson(connection, lesson, learner_store.EMPTY, reason=reason, **values)
    if verdict is not None and verdict["high"] < 0:
        return learner_store.close_lesson(
            connection, lesson, learner_store.REFUSED, reason=verdict["reason"], **values
        )
    _note_instructions(connection, ending)
    approval_reason = (
        ""
        if lesson.mode == learner_store.MODE_PROPOSE
        else _why_not(connection, lesson.name, settings, verdict)
    )
    if lesson.mode == learner_store.MODE_AUTO and not approval_reason:
        values |= {"version": _stage(connection, ending), "reason": "the gate promoted it"}
        return learner_store.close_lesson(connection, lesson, learner_store.STAGED, **values)
    proposal = propose(
        connection, f"{lesson.name}/{lesson.base}", PromptEdit(ending.taught.events, ending.region), author=AUTHOR,
        message=ending.message, label=settings.label, evidence=ending.evidence, gate=values["gate"], run=ending.run,
    )  # fmt: skip
    return learner_store.close_lesson(
        connection, lesson, learner_store.PROPOSED, proposal=proposal.id, reason=approval_reason, **values
    )


def _note_instructions(connection: Connection, ending: _Ending) -> None:
    """Write down which instruction became of each requirement."""
    name = ending.lesson.name
    before = learner_store.read_readings(connection, name)
    made = instructions_of(ending.lesson.demands, ending.taught.events)
    requirements = {
        key: replace(one, instruction=made[key]) if key in made else one
        for key, one in before.requirements.items()
    }
    learner_store.write_readings(connection, name, before, replace(before, requirements=requirements))


def _why_not(
    connection: Connection, name: str, settings: LearnerSettings, verdict: Mapping[str, Any] | None
) -> str:
    """Why a lesson that could have been staged waits for a person; nothing if it need not."""
    if settings.mode != learner_store.MODE_AUTO:
        why = f"the mode is {settings.mode} by now"
    elif verdict is None:
        why = "there is no task to gate it on"
    elif not verdict["promoted"]:
        why = verdict["reason"]
    elif is_protected(connection, name, STAGING):
        why = f"the label {STAGING} is protected"
    else:
        return ""
    return f"a person decides: {why}"


def _stage(connection: Connection, ending: _Ending) -> int:
    """Make the version and put `staging` on it; `production` stays where it is."""
    lesson, base = ending.lesson, ending.base
    events = (*base.ledgers.get(ending.region, ()), *ending.taught.events)
    made = add_version(
        connection, lesson.name, ending.taught.prompt, author=AUTHOR, message=ending.message, parent=lesson.base,
        run=ending.run, evidence={**ending.evidence, "gate": dict(ending.verdict or {})},
        ledgers={ending.region: events},
    )  # fmt: skip
    where = Address(lesson.name, STAGING)
    put_label(connection, MOVE, where, made.version, By(AUTHOR, "learned; the gate promoted it"))
    return made.version


def outstanding(desk: LearnerContext, name: str, settings: LearnerSettings) -> Lesson | None:
    """The staged lesson whose version is still on trial: `staging` stands on it, `label` does not, and the experiment
    that tries it, if there is one, has not ended."""
    with desk.database.read() as connection:
        staged = learner_store.read_lessons(connection, name, learner_store.STAGED, 1)
        standing = labels_of(connection, name) if staged else {}
    if (
        not staged
        or standing.get(STAGING) != staged[0].version
        or standing.get(settings.label) == staged[0].version
    ):
        return None
    if staged[0].experiment is not None and desk.experiments is not None:
        return staged[0] if desk.experiments().get(staged[0].experiment).state == "running" else None
    return staged[0]


def follow_up(desk: LearnerContext, name: str, settings: LearnerSettings) -> Lesson | None:
    """Start the experiment of a staged version that has none yet: part of the traffic, against the version that stands."""
    lesson = outstanding(desk, name, settings) if settings.mode == learner_store.MODE_AUTO else None
    if (
        lesson is None
        or lesson.experiment is not None
        or desk.experiments is None
        or desk.teaching.experiment is None
    ):
        return None
    arms = [{"version": lesson.base}, {"version": lesson.version}]
    definition = {
        **desk.teaching.experiment,
        "prompt": name,
        "label": settings.label,
        "arms": arms,
        "control": lesson.base,
    }
    running = desk.experiments().list(name, state="running").items
    mine = [one for one in running if one.definition.versions == [lesson.base, lesson.version]]
    if running and not mine:
        return None
    started = (
        mine[0]
        if mine
        else desk.experiments().create(definition, author=AUTHOR, message="learned; gated offline")
    )
    with desk.database.begin() as connection:
        return learner_store.close_lesson(connection, lesson, learner_store.STAGED, experiment=started.id)
