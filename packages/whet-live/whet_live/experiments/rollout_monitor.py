"""The watch after a winner's move: an experiment of two arms on the same label that decides nothing but harm.

What looked better on part of the traffic may do harm on all of it, or tomorrow. So the guard-rails stay, on units that are
drawn anew: the salt is another one, so that people who were in the experiment are no selection of it, and the tests begin
again with their own alpha, because evidence that an experiment gathered before its winner was known has little to say
about what comes after. Most units get the winner, and a few, the hold-out, the control: a difference between the two is
the versions', while one between today and last week may be anything.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from whet_live.experiments import experiment_store
from whet_live.experiments.definition import AllocationPolicy, Definition, Guard
from whet_live.experiments.experiment_store import WAITING, Experiment
from whet_live.experiments.reducer import MICROSECONDS, Snapshot
from whet_live.experiments.verdict import ExperimentVerdict, count_outcomes
from whet_live.registry import EXPERIMENT, Move, audit, proposals
from whet_live.registry.registry_store import read_labels


def build_watch(definition: Definition, winner: int) -> Definition | None:
    """The definition of the watch on a winner, the control first; None where there is nothing to watch."""
    watch = definition.watch
    if watch is None or winner == definition.control:
        return None
    guards = tuple(guard for guard in definition.guards if watch.holdout > 0 or guard.against == "value")
    if not guards:
        return None
    arms = tuple(
        arm for version in (definition.control, winner) for arm in definition.arms if arm.version == version
    )
    return replace(definition, arms=arms, guards=guards, policy=AllocationPolicy())


def begin(connection: Connection, experiment: Experiment, move: Move) -> None:
    """Start the watch on a winner whose label has just moved, unless another experiment is there by now."""
    definition = build_watch(experiment.definition, int(experiment.winner or 0))
    if (
        definition is None
        or definition.watch is None
        or experiment_store.running_on(connection, definition.prompt, definition.label)
    ):
        experiment_store.record_outcome(connection, experiment.id, watch=None)
        return
    shares = (definition.watch.holdout, 1.0 - definition.watch.holdout)
    message = f"Watch after the experiment {experiment.id}."
    key = experiment_store.start(
        connection, definition, shares, experiment.author, message=message, watches=experiment.id
    )
    experiment_store.record_outcome(connection, experiment.id, watch=key)
    details = {"experiment": key, "after": experiment.id, "label": definition.label, "version": move.new}
    audit.append_entry(
        connection,
        actor=f"{EXPERIMENT}{experiment.id}",
        action="experiment.watch",
        subject=definition.prompt,
        details=details,
    )


def is_due(connection: Connection, experiment: Experiment) -> bool:
    """Whether the approval that a watch waits for has come, or will not."""
    if experiment.watch != WAITING:
        return False
    return experiment_store.latest_foreign_move(connection, experiment) is not None or _is_closed(
        connection, experiment
    )


def follow(connection: Connection, experiment: Experiment) -> None:
    """Start the watch on a winner that was approved; none where the label was moved otherwise, or the request was
    rejected."""
    if experiment.watch != WAITING:
        return
    move = experiment_store.latest_foreign_move(connection, experiment)
    standing = read_labels(connection, experiment.definition.prompt).get(experiment.definition.label)
    approved = move is not None and move.proposal == experiment.proposal and standing == experiment.winner
    if move is not None and approved:
        begin(connection, experiment, move)
    elif move is not None or _is_closed(connection, experiment):
        experiment_store.record_outcome(connection, experiment.id, watch=None)


def _is_closed(connection: Connection, experiment: Experiment) -> bool:
    return (
        experiment.proposal is None
        or proposals.read_proposal(connection, experiment.proposal).state != "open"
    )


def until(experiment: Experiment) -> int:
    """The latest end of a watch, in microseconds: its time, and the time until the last outcomes are settled."""
    seconds = 0.0 if experiment.definition.watch is None else experiment.definition.watch.seconds
    window = max(guard.metric.window for guard in experiment.definition.guards)
    return experiment.created + round((seconds + window) * MICROSECONDS)


def over(experiment: Experiment, seen: Snapshot, moment: int) -> bool:
    """Whether a watch has lasted as long as its definition says, at a time in microseconds."""
    watch = experiment.definition.watch
    if experiment.watches is None or watch is None:
        return False
    settled = min(len(seen.samples[guard.metric.name].arms) for guard in experiment.definition.guards)
    return moment >= until(experiment) or (watch.units is not None and settled >= watch.units)


def verdict_of_watch(verdict: ExperimentVerdict, seen: Snapshot) -> ExperimentVerdict:
    """The verdict of a watch that is over: `passed`, or `unmeasured` where no guard-rail had outcomes to compare."""
    names = [guard.metric.name for guard in seen.definition.guards]
    missing = [guard.metric.name for guard in seen.definition.guards if not _is_measured(seen, guard)]
    if len(missing) == len(names):
        reason = (
            f"The watch is over, and nothing was measured: the units have no outcomes of {' and '.join(missing)} to compare. "
            "Nobody knows whether the winner does harm."
        )
        return replace(verdict, state="unmeasured", reason=reason)
    lack = f" Not measured, for want of outcomes: {', '.join(missing)}." if missing else ""
    return replace(verdict, state="passed", reason=f"The watch is over. {verdict.reason}{lack}")


def _is_measured(seen: Snapshot, guard: Guard) -> bool:
    """Whether each arm that a guard-rail looks at has an outcome."""
    definition, sample = seen.definition, seen.samples[guard.metric.name]
    return all(
        count_outcomes(sample, arm).n
        for arm, version in enumerate(definition.versions)
        if guard.against == "control" or version != definition.control
    )
