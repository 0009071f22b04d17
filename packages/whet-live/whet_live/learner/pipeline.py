"""The pipeline of an update: begun when enough is required, written, examined, gated, and filed or staged.

An update is written down before anything is paid for it, its calls are journalled, and its end is one transaction: killed at
any moment, the next learner goes on where this one stopped, and nothing is paid or filed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from whet.engine.model_client import MAX_ATTEMPTS
from whet.errors import quantity
from whet.feedback.model_session import step_time
from whet.feedback.sources import self_judged
from whet.instructions.answers import Requirement
from whet.instructions.changes import AUTHOR as OPTIMIZER
from whet.prompt.events import Event, event_to_json
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import changes
from whet.task import load_task
from whet.types import content_hash
from whet_live.learner import learner_store
from whet_live.learner.answer_context import contexts_of
from whet_live.learner.context import AUTHOR, LearnerContext, region_of
from whet_live.learner.feedback_state import PromptFeedback
from whet_live.learner.gate_config import GateConfig
from whet_live.learner.gating import ALPHA, gate, probes_of_traffic, require_no_loss
from whet_live.learner.history import history_of
from whet_live.learner.learner_store import LearnerSettings, PromptUpdate
from whet_live.learner.leases import Lease
from whet_live.learner.paid_steps import discard, model_session
from whet_live.learner.requirements import (
    READY,
    LiveRequirement,
    RequirementEvidence,
    find_requirements,
    supporters,
)
from whet_live.learner.search_config import SEARCH
from whet_live.learner.terms import as_stages_see, locked_ids, read_terms
from whet_live.learner.updates import (
    CandidateUpdate,
    Inspection,
    Voter,
    examine_events,
    generate_events,
    instructions_of,
    voters_of,
)
from whet_live.learner.upkeep import UpkeepView, describe_step, generate_upkeep
from whet_live.registry import Address, PromptEdit, Proposal, Version
from whet_live.registry.labels import ChangeActor, put_label
from whet_live.registry.proposals import PROBES, close, file_proposal, open_one
from whet_live.registry.provenance import ACCEPTER, SOURCE
from whet_live.registry.provenance import AUTHOR as AUTHORS
from whet_live.registry.registry_store import MOVE, is_protected, read_labels
from whet_live.registry.values import OPEN, WITHDRAWN
from whet_live.registry.versions import add_version
from whet_live.traffic.erase import erased_after

STAGING = "staging"
"""The label that a version learned without a person gets first."""
TRIAL_SPANS = 2
"""While other requirements wait for its end, an experiment of the learner without a verdict may take this many times the
shortest time of a winner. Each trial of the same version that ended without a winner doubles the number."""
_MICROSECONDS = 1_000_000


def begin_update(
    context: LearnerContext, name: str, settings: LearnerSettings, lease: Lease
) -> PromptUpdate | None:
    """Write the next update down, if there is enough to learn and no earlier one waits for its end."""
    base = context.base(name, settings)
    state = context.snapshot.advance()
    if base is None or name not in state.prompts:
        return None
    waiting, automatic = _find_waiting(context, name, base), settings.mode == learner_store.MODE_AUTO
    if waiting and not automatic:
        return None
    trial = outstanding(context, name, settings) if automatic else None
    if trial is not None and (context.config.gate(name) is None or not _is_overdue(context, trial)):
        return None
    facts = context.facts(name, base, settings)
    feedback = settings.select_rows(state.prompts[name])
    requirements = find_requirements(feedback, state.clock, base, region_of(base, settings), facts)
    able = bool(context.config.reader)  # to rewrite an instruction that is violated takes a model
    locked = context.locked_instructions(base, region_of(base, settings))
    ready = [
        requirement
        for requirement in requirements
        if requirement.state == READY
        and (not requirement.instruction or (able and requirement.instruction not in locked))
    ]
    written = base.ledger(region_of(base, settings)).instructions
    proposed = {key for proposal in waiting for key in _requirements_of(proposal)}
    fit = [
        requirement
        for requirement in ready
        if requirement.key not in proposed
        and not (requirement.rejected or requirement.against)
        and (not requirement.instruction or written[requirement.instruction].author == OPTIMIZER)
    ]
    if trial is not None:
        tried = {one.key for one in trial.requirements}
        if tried.issuperset(one.key for one in fit):
            return None
        fit = [*fit, *_still_wanted(trial, fit, facts)]
    auto = automatic and bool(fit)
    if waiting and (not auto or context.config.gate(name) is None):
        return None  # what takes a person gathers until one has decided; what the gate can decide does not wait for that
    chosen = tuple(replace(requirement, texts=()) for requirement in (fit if auto else ready))
    if not chosen:
        return None
    mode = learner_store.MODE_AUTO if auto else learner_store.MODE_PROPOSE
    at = context.database.read_time()
    key = content_hash([name, base.version, mode, [d.as_json() for d in chosen], at])
    update = PromptUpdate(key, name, base.version, mode, learner_store.OPEN, chosen, at)
    context.snapshot.keep()  # the snapshot says whose words an update quotes, also when the feedback itself has expired
    with context.registry.change() as connection:
        lease.check(connection)
        if erased_after(connection, state.seq):
            return None
        learner_store.open_update(connection, update)
    return update


def _is_overdue(context: LearnerContext, trial: PromptUpdate) -> bool:
    """Whether the experiment that the learner started for a staged version goes on without a verdict for so long that what
    waits for its end need not wait any longer."""
    if trial.experiment is None or context.experiments is None:
        return False
    experiment = context.experiments().get(trial.experiment)
    if experiment.author != AUTHOR:
        return False
    with context.database.read() as connection:
        staged = learner_store.read_updates(connection, trial.name, learner_store.STAGED)
    earlier = sum(one.base == trial.base and one.experiment is not None for one in staged) - 1
    shortest = experiment.definition.cycle * max(1, experiment.definition.cycles)
    patience: float = TRIAL_SPANS * 2.0**earlier * shortest * _MICROSECONDS
    return context.database.read_time() >= experiment.created + patience


def _still_wanted(
    trial: PromptUpdate, fit: Sequence[LiveRequirement], facts: RequirementEvidence
) -> list[LiveRequirement]:
    """The requirements of a trial without a verdict that the next version meets as well: not what was rejected, dismissed or
    erased since, what a newer requirement contradicts, or changes of instructions, which are asked for anew."""
    keys = {one.key for one in fit}
    contrary = {key for one in fit for key in one.contradicts}
    return [
        one
        for one in trial.requirements
        if one.requirement_id
        and one.rows
        and not one.instruction
        and one.key not in keys | contrary
        and keys.isdisjoint(one.contradicts)
        and one.text not in facts.rejected
        and f"requirement {one.key}" not in facts.dismissed
    ]


def _find_waiting(context: LearnerContext, name: str, base: Version) -> list[Proposal]:
    """The proposals of the learner that wait for a decision. Those that are out of date are taken back first."""
    waiting = list[Proposal]()
    for proposal in context.registry.proposals(state=OPEN, name=name, limit=500).items:
        if proposal.author == AUTHOR and proposal.base == base.version:
            waiting += [proposal] if {"upkeep", SEARCH}.isdisjoint(proposal.evidence or {}) else []
        elif proposal.author == AUTHOR and proposal.target is None:
            _take_back(context, proposal, base)
    return waiting


def _requirements_of(proposal: Proposal) -> list[str]:
    """The keys of the requirements that a proposal of the learner is about."""
    return [str(one["key"]) for one in (proposal.evidence or {}).get("requirements", ())]


def _take_back(context: LearnerContext, proposal: Proposal, base: Version) -> None:
    """Withdraw a proposal whose version no longer stands; its feedback is learned from anew."""
    reason = f"version {base.version} stands by now; it is learned anew for that"
    with context.registry.change() as connection:
        close(connection, open_one(connection, proposal.id), WITHDRAWN, AUTHOR, {"reason": reason})
        for update in learner_store.read_updates(connection, proposal.name, learner_store.PROPOSED):
            if update.proposal == proposal.id:
                learner_store.close_update(connection, update, learner_store.STALE, reason=reason)


@dataclass(frozen=True)
class _UpdateResult:
    """All that decides what becomes of an update, and what is shown about it. `run` says where it was written, `sources`
    who sent the feedback behind it, `probes` what a few fixed questions are answered before and after it."""

    update: PromptUpdate
    base: Version
    region: str
    candidate: CandidateUpdate
    verdict: Mapping[str, Any] | None
    run: Mapping[str, Any]
    sources: Sequence[str] = ()
    probes: Mapping[str, Any] | None = None

    @property
    def flags(self) -> list[dict[str, object]]:
        """The omitted events, with the reasons."""
        return [
            {"text": f.text, "reasons": list(f.reasons), "rows": list(f.rests)} for f in self.candidate.flags
        ]

    @property
    def message(self) -> str:
        """A line about the update."""
        if self.update.plan is not None:
            return describe_step(self.base.ledgers.get(self.region, ()), self.candidate.events)
        requirements, rows = self.update.requirements, self.update.rows
        return f"{quantity(len(requirements), 'requirement')} from {quantity(len(rows), 'row')} of feedback"

    @property
    def evidence(self) -> dict[str, object]:
        """The evidence of the change."""
        requirements = [d.as_json() for d in self.update.requirements]
        rests: dict[str, object] = {"requirements": requirements, "left_out": self.flags, PROBES: self.probes}
        plan = self.update.plan
        return rests if plan is None else {**rests, "upkeep": {"step": plan["step"], "reason": self.message}}


async def run_update(
    context: LearnerContext, update: PromptUpdate, settings: LearnerSettings, lease: Lease
) -> PromptUpdate:
    """Generate, examine, gate, and file or stage an update; what became of it.

    Raises ProviderError, UsageError or BudgetExceeded when the gate cannot run: the update stays open. Raises RunLocked
    when another learner took over.
    """
    base = context.registry.get(f"{update.name}/{update.base}")
    region = region_of(base, settings)
    make = _generate_events if update.plan is None else _generate_upkeep
    events, run, folder = await make(context, update, base, region)
    candidate = examine_events(base, region, events, _inspection(context, update, settings, base))
    verdict, probes, gate_config = None, None, context.config.gate(update.name)
    if not candidate.empty and gate_config is not None:
        verdict = await _verdict(context, update, gate_config, (base, candidate), settings)
        probes = verdict.pop(PROBES)
    elif not candidate.empty:
        probes = await probes_of_traffic(context, update, base.prompt, candidate.prompt)
    if verdict is not None and (why := self_judged(str(run["optimizer"]), verdict["judge"])):
        verdict = {**verdict, "promoted": False, "reason": f"{verdict['reason']}; but {why}"}
    result = _UpdateResult(update, base, region, candidate, verdict, run, _sources(context, update), probes)
    with context.registry.change() as connection:
        lease.check(connection)
        stored = learner_store.read_update(connection, update.id)
        # what it rests on may have been deleted meanwhile
        done = _end(connection, result) if stored.outcome == learner_store.OPEN else stored
    discard(folder)
    return done


async def _verdict(
    context: LearnerContext,
    update: PromptUpdate,
    gate_config: GateConfig,
    sides: tuple[Version, CandidateUpdate],
    settings: LearnerSettings,
) -> dict[str, Any]:
    """The gate's verdict: whether the candidate is better or, for a step of upkeep, whether it loses nothing."""
    before, after = sides[0].prompt, sides[1].prompt
    if update.plan is not None:
        return require_no_loss(await gate(gate_config, before, after, 1, ALPHA), settings.policy.tolerance)
    with context.database.read() as connection:
        attempt = learner_store.count_gated_updates(connection, update.name) + 1
    return await gate(gate_config, before, after, attempt)


async def _generate_upkeep(
    context: LearnerContext, update: PromptUpdate, base: Version, region: str
) -> tuple[Sequence[Event], dict[str, object], str]:
    """The same for a step of upkeep."""
    with context.database.read() as connection:
        terms = read_terms(connection, update.name, region, base.ledger(region))
    ledger = as_stages_see(base.ledger(region), terms)
    identity = {"prompt": base.prompt.id, "region": region, "plan": content_hash(update.plan)}
    identity["locked"] = content_hash(sorted(locked_ids(terms)))
    async with model_session(context.config, update.name, "upkeep", identity) as session:
        at = await step_time(session.run, context.database.read_time)
        events = await generate_upkeep(
            session.run, update, base, region, ledger, calls=context.config.calls, at=at
        )
    writer = {"optimizer": session.address, "simulated": session.simulated}
    return events, {"kind": "learner", "update": update.id, **writer}, session.folder


def _is_tried(context: LearnerContext, name: str, label: str) -> bool:
    """Whether an experiment on the label is running, or the watch of a winner: a move of the label would end it."""
    running = [] if context.experiments is None else context.experiments().list(name, state="running").items
    return any(one.definition.label == label for one in running)


def begin_upkeep(
    context: LearnerContext, name: str, settings: LearnerSettings, lease: Lease
) -> PromptUpdate | None:
    """Write the next step of upkeep down, if one is due and nothing waits for its end."""
    base, state = context.base(name, settings), context.snapshot.advance()
    if (
        base is None
        or not context.config.reader
        or not settings.policy.upkeep
        or _find_waiting(context, name, base)
    ):
        return None
    open_ones = context.registry.proposals(state=OPEN, name=name, limit=500).items
    if any(one.author == AUTHOR and one.base == base.version for one in open_ones):
        return None
    if settings.mode == learner_store.MODE_AUTO and (
        outstanding(context, name, settings) is not None or _is_tried(context, name, settings.label)
    ):
        return None
    region = region_of(base, settings)
    ledger = base.ledger(region)
    with context.database.read() as connection:
        terms = read_terms(connection, name, region, ledger)
        known = learner_store.read_updates(connection, name)
        readings = learner_store.read_readings(connection, name)
    feedback = settings.select_rows(state.prompts.get(name, PromptFeedback()))
    effects = history_of(context, base, region, feedback, readings).effects
    view = UpkeepView(as_stages_see(ledger, terms), effects, known)
    due = [key for key, one in terms.items() if one.due_for_review(context.today())]
    plan = view.plan(settings.policy.upkeep, context.config.gate(name) is not None, due)
    if plan is None:
        return None
    at = context.database.read_time()
    key = content_hash([name, base.version, plan, at])
    update = PromptUpdate(key, name, base.version, settings.mode, learner_store.OPEN, (), at, plan=plan)
    with context.registry.change() as connection:
        lease.check(connection)
        learner_store.open_update(connection, update)
    return update


async def _generate_events(
    context: LearnerContext, update: PromptUpdate, base: Version, region: str
) -> tuple[Sequence[Event], dict[str, object], str]:
    """The events that meet the requirements, the model that wrote them, and the folder of its journal."""
    feedback, settings = context.feedback(update.name), context.settings(update.name)
    facts = context.facts(update.name, base, settings)
    behind = {d.instruction: supporters(d, feedback, facts) for d in update.requirements if d.instruction}
    shown = contexts_of(
        context.traffic, [feedback.rows[row] for rows in behind.values() for row in rows], settings.reads
    )
    votes = {
        key: [Voter(text, shown.get(row, ())) for row, text in rows.items()] for key, rows in behind.items()
    }
    identity = {
        "prompt": base.prompt.id,
        "region": region,
        "ledger": content_hash([event_to_json(event) for event in base.ledgers.get(region, ())]),
        "feedback": content_hash(
            [
                [d.text, d.instruction, [vars(one) for one in votes.get(d.instruction, ())]]
                for d in update.requirements
            ]
        ),
    }
    calls = context.config.calls if context.config.reader else 0
    voters = sum(voters_of(votes[d.instruction], d.needed) for d in update.requirements if d.instruction)
    most = calls + MAX_ATTEMPTS * voters
    async with model_session(context.config, update.name, "update", identity, most) as session:
        at = await step_time(session.run, context.database.read_time)
        events = await generate_events(
            session.run, base, region, update.requirements, votes, calls=calls, at=at
        )
    writer = {"optimizer": session.address, "simulated": session.simulated}
    return events, {"kind": "learner", "update": update.id, **writer}, session.folder


def _inspection(
    context: LearnerContext, update: PromptUpdate, settings: LearnerSettings, base: Version
) -> Inspection:
    """The data that new instructions are checked against: the data behind the feedback and of the task, and what people
    accepted."""
    feedback = context.feedback(update.name)
    private: list[str] = []
    for key in dict.fromkeys(feedback.rows[row].about for row in update.rows if row in feedback.rows):
        stored = context.traffic.inference(key)
        if stored is not None:
            private += [stored.inference.output, *(str(value) for value in stored.inference.inputs.values())]
    gate_config = context.config.gate(update.name)
    if gate_config is not None:
        task = load_task(gate_config.task)
        for example in (*task.train, *task.validation, *task.test):
            private += [*example.values.values(), str(example.target)]
    with context.database.read() as connection:
        accepted, _ = learner_store.read_decisions(connection, update.name)
    wanted = {row for requirement in update.requirements if requirement.accepted for row in requirement.rows}
    contrary = {requirement.text: requirement.contradicts for requirement in update.requirements}
    region = region_of(base, settings)
    locked, giving = (
        context.locked_instructions(base, region),
        _find_giving_way(context, update, settings, base, feedback),
    )
    return Inspection(settings.policy, accepted | wanted, private, contrary, locked, giving)


def _find_giving_way(
    context: LearnerContext,
    update: PromptUpdate,
    settings: LearnerSettings,
    base: Version,
    feedback: PromptFeedback,
) -> list[str]:
    """The instructions of models that give way to a requirement of the update: as many as it takes want the contrary, and a
    larger share of those who were answered object to the instruction than objected to what it once took the place of."""
    facts, region = context.facts(update.name, base, settings), region_of(base, settings)
    wanted = [
        requirement
        for requirement in update.requirements
        if requirement.confirmed >= requirement.needed and not requirement.instruction
    ]
    keys = {key for one in wanted for key in one.contradicts if key in facts.models_own}
    if not keys:
        return []
    known, ledger = history_of(context, base, region, feedback, facts.readings), base.ledger(region)
    return [key for key in keys if known.replaces(Requirement(""), ledger[key])]


def _sources(context: LearnerContext, update: PromptUpdate) -> list[str]:
    """The senders of the feedback behind an update, or of the rows from which its texts were written: users of apps and
    accounts, by name."""
    kept = context.feedback(update.name).rows
    keys = dict.fromkeys(
        row for requirement in update.requirements for row in (*requirement.rows, *requirement.origin)
    )
    senders = [kept[key].who if key in kept else context.traffic.sender(key) for key in keys]
    return sorted({who.partition(":")[2] for who in senders} - {""})


def _provenance(connection: Connection, result: _UpdateResult) -> dict[str, list[str]]:
    """The people who shaped an update: those who wrote texts of it, accepted a requirement that it rests on, or sent feedback
    behind it."""
    requirements = result.update.requirements
    return {
        AUTHORS: [requirement.author for requirement in requirements],
        ACCEPTER: learner_store.read_accepters(connection, result.update.name, requirements),
        SOURCE: list(result.sources),
    }


def _end(connection: Connection, result: _UpdateResult) -> PromptUpdate:
    """Close an update, in the transaction that changes the prompt, by the settings that apply then."""
    update, verdict = result.update, result.verdict
    settings = learner_store.read_settings(connection, update.name)
    measured = None if verdict is None else dict(verdict)

    def end(outcome: str, reason: str, **made: object) -> PromptUpdate:
        values = {"reason": reason, "flags": result.flags, "gate": measured, **made}
        return learner_store.close_update(connection, update, outcome, **values)

    if settings.mode == learner_store.MODE_OFF:
        return end(learner_store.STALE, "learning was turned off")
    if read_labels(connection, update.name).get(settings.label) != update.base:
        reason = f"{settings.label} does not stand on version {update.base} any more"
        return end(learner_store.STALE, reason)
    if touched := _find_locked(connection, result):
        return end(learner_store.STALE, f"locked meanwhile: {', '.join(touched)}")
    if result.candidate.empty:
        reason = "nothing was left after the checks" if result.flags else "no instruction follows from it"
        return end(learner_store.EMPTY, reason)
    if verdict is not None and (verdict["high"] < 0 or (update.plan is not None and not verdict["promoted"])):
        return end(learner_store.REFUSED, verdict["reason"])
    auto = update.mode == learner_store.MODE_AUTO
    label = STAGING if update.plan is None else settings.label
    why_not = _why_not(connection, Address(update.name, label), settings, verdict) if auto else ""
    if update.plan is None:
        _note_instructions(connection, result)
        if auto and not why_not:
            return end(learner_store.STAGED, "the gate promoted it", version=_stage(connection, result))
    elif auto and verdict is not None and not why_not:
        return end(learner_store.MOVED, verdict["reason"], version=_move(connection, result, label))
    proposal = file_proposal(
        connection, f"{update.name}/{update.base}", PromptEdit(result.candidate.events, result.region), author=AUTHOR,
        message=result.message, label=settings.label, evidence=result.evidence, gate=measured, run=result.run,
        provenance=_provenance(connection, result),
    )  # fmt: skip
    return end(learner_store.PROPOSED, why_not, proposal=proposal.id)


def _move(connection: Connection, result: _UpdateResult, label: str) -> int:
    """Make the version of a step of upkeep that the gate let pass, and put the label on it."""
    update = result.update
    events = (*result.base.ledgers.get(result.region, ()), *result.candidate.events)
    made = add_version(
        connection, update.name, result.candidate.prompt, author=AUTHOR, message=result.message, parent=update.base,
        run=result.run, evidence={**_lasting_evidence(result), "gate": dict(result.verdict or {})},
        ledgers={result.region: events}, provenance=_provenance(connection, result),
    )  # fmt: skip
    by = ChangeActor(AUTHOR, f"upkeep: {result.message}")
    put_label(connection, MOVE, Address(update.name, label), made.version, by)
    return made.version


def _lasting_evidence(result: _UpdateResult) -> dict[str, object]:
    """The evidence that a version keeps: without the answers, which may quote users."""
    return {key: value for key, value in result.evidence.items() if key != PROBES}


def _find_locked(connection: Connection, result: _UpdateResult) -> list[str]:
    """The locked instructions that an update would change."""
    terms = read_terms(connection, result.update.name, result.region, result.base.ledger(result.region))
    before = fold_events(result.base.ledgers.get(result.region, ()))
    after = fold_events([*result.base.ledgers.get(result.region, ()), *result.candidate.events])
    return [change.id for change in changes(before, after) if change.id in locked_ids(terms)]


def _note_instructions(connection: Connection, result: _UpdateResult) -> None:
    """Write down which instruction became of each requirement."""
    name = result.update.name
    before = learner_store.read_readings(connection, name)
    made = instructions_of(result.update.requirements, result.candidate.events)
    requirements = {
        key: replace(one, instruction=made[key]) if key in made else one
        for key, one in before.requirements.items()
    }
    learner_store.write_readings(connection, name, before, replace(before, requirements=requirements))


def _why_not(
    connection: Connection, where: Address, settings: LearnerSettings, verdict: Mapping[str, Any] | None
) -> str:
    """Why an update that could have got the label `where` waits for a person; nothing if it need not."""
    if settings.mode != learner_store.MODE_AUTO:
        why = f"the mode is {settings.mode} by now"
    elif verdict is None:
        why = "there is no task to gate it on"
    elif not verdict["promoted"]:
        why = verdict["reason"]
    elif is_protected(connection, where.name, str(where.label)):
        why = f"the label {where.label} is protected"
    else:
        return ""
    return f"a person decides: {why}"


def _stage(connection: Connection, result: _UpdateResult) -> int:
    """Make the version and put `staging` on it; `production` stays where it is."""
    update, base = result.update, result.base
    events = (*base.ledgers.get(result.region, ()), *result.candidate.events)
    made = add_version(
        connection, update.name, result.candidate.prompt, author=AUTHOR, message=result.message, parent=update.base,
        run=result.run, evidence={**result.evidence, "gate": dict(result.verdict or {})},
        ledgers={result.region: events}, provenance=_provenance(connection, result),
    )  # fmt: skip
    where = Address(update.name, STAGING)
    put_label(connection, MOVE, where, made.version, ChangeActor(AUTHOR, "learned; the gate promoted it"))
    return made.version


def outstanding(context: LearnerContext, name: str, settings: LearnerSettings) -> PromptUpdate | None:
    """The staged update whose version is still on trial: `staging` stands on it, `label` does not, and the experiment
    that tries it, if there is one, has not ended."""
    with context.database.read() as connection:
        staged = learner_store.read_updates(connection, name, learner_store.STAGED, 1)
        standing = read_labels(connection, name) if staged else {}
    if (
        not staged
        or standing.get(STAGING) != staged[0].version
        or standing.get(settings.label) == staged[0].version
    ):
        return None
    if staged[0].experiment is not None and context.experiments is not None:
        return staged[0] if context.experiments().get(staged[0].experiment).state == "running" else None
    return staged[0]


def follow_up(context: LearnerContext, name: str, settings: LearnerSettings) -> PromptUpdate | None:
    """Start the experiment of a staged version that has none yet: part of the traffic, against the version that stands."""
    update = outstanding(context, name, settings) if settings.mode == learner_store.MODE_AUTO else None
    if (
        update is None
        or update.experiment is not None
        or context.experiments is None
        or context.config.experiment is None
    ):
        return None
    with context.database.read() as connection:
        standing = read_labels(connection, name).get(settings.label)
    if standing != update.base:
        reason = f"{settings.label} does not stand on version {update.base} any more"
        with context.database.begin() as connection:
            return learner_store.close_update(connection, update, learner_store.STALE, reason=reason)
    arms = [{"version": update.base}, {"version": update.version}]
    definition = {
        **context.config.experiment,
        "prompt": name,
        "label": settings.label,
        "arms": arms,
        "control": update.base,
    }
    running = context.experiments().list(name, state="running").items
    mine = [one for one in running if one.definition.versions == [update.base, update.version]]
    if running and not mine and not _end_earlier_trial(context, update, [one.id for one in running]):
        return None
    started = (
        mine[0]
        if mine
        else context.experiments().create(definition, author=AUTHOR, message="learned; gated offline")
    )
    with context.database.begin() as connection:
        return learner_store.close_update(connection, update, learner_store.STAGED, experiment=started.id)


def _end_earlier_trial(context: LearnerContext, update: PromptUpdate, running: Sequence[str]) -> bool:
    """End the only running experiment for the next one, where it tries an earlier version of the learner; whether it did."""
    assert context.experiments is not None
    with context.database.read() as connection:
        staged = learner_store.read_updates(connection, update.name, learner_store.STAGED)
    earlier = {one.experiment for one in staged if one.base == update.base}
    if len(running) != 1 or not earlier.issuperset(running):
        return False
    if context.experiments().get(running[0]).author != AUTHOR:
        return False
    reason = f"no verdict so far, and version {update.version} meets newer requirements too"
    context.experiments().stop(running[0], actor=AUTHOR, reason=reason)
    return True
