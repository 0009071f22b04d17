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

from whet.live.experiments import experiment_store
from whet.live.experiments.definition import AllocationPolicy, Definition
from whet.live.experiments.experiment_store import WAITING, Experiment
from whet.live.experiments.reducer import MICROSECONDS, Snapshot
from whet.live.experiments.verdict import ExperimentVerdict
from whet.live.registry import Move, audit, proposals
from whet.live.registry.registry_store import labels_of


def watched(asked: Definition, winner: int) -> Definition | None:
    """The definition of the watch on a winner, the control first; None where there is nothing to watch."""
    watch = asked.watch
    if watch is None or winner == asked.control:
        return None
    guards = tuple(one for one in asked.guards if watch.holdout > 0 or one.against == "value")
    if not guards:
        return None
    arms = tuple(arm for version in (asked.control, winner) for arm in asked.arms if arm.version == version)
    return replace(asked, arms=arms, guards=guards, policy=AllocationPolicy())


def begin(connection: Connection, found: Experiment, move: Move) -> None:
    """Start the watch on a winner whose label has just moved, unless another experiment is there by now."""
    asked = watched(found.definition, int(found.winner or 0))
    if (
        asked is None
        or asked.watch is None
        or experiment_store.running_on(connection, asked.prompt, asked.label)
    ):
        experiment_store.set_watch(connection, found.id, None)
        return
    shares = (asked.watch.holdout, 1.0 - asked.watch.holdout)
    message = f"Watch after the experiment {found.id}."
    key = experiment_store.start(connection, asked, shares, found.author, message=message, watches=found.id)
    experiment_store.set_watch(connection, found.id, key)
    details = {"experiment": key, "after": found.id, "label": asked.label, "version": move.new}
    audit.append(
        connection,
        actor=f"experiment:{found.id}",
        action="experiment.watch",
        subject=asked.prompt,
        details=details,
    )


def is_due(connection: Connection, found: Experiment) -> bool:
    """Whether the approval that a watch waits for has come, or will not."""
    if found.watch != WAITING:
        return False
    return experiment_store.moved(connection, found) is not None or _is_closed(connection, found)


def follow(connection: Connection, found: Experiment) -> None:
    """Start the watch on a winner that was approved; none where the label was moved otherwise, or the request was
    rejected."""
    if found.watch != WAITING:
        return
    move = experiment_store.moved(connection, found)
    standing = labels_of(connection, found.definition.prompt).get(found.definition.label)
    approved = move is not None and move.proposal == found.proposal and standing == found.winner
    if move is not None and approved:
        begin(connection, found, move)
    elif move is not None or _is_closed(connection, found):
        experiment_store.set_watch(connection, found.id, None)


def _is_closed(connection: Connection, found: Experiment) -> bool:
    return found.proposal is None or proposals.read(connection, found.proposal).state != "open"


def until(found: Experiment) -> int:
    """When a watch is over at the latest, in microseconds: its time, and until the last outcomes are settled."""
    seconds = 0.0 if found.definition.watch is None else found.definition.watch.seconds
    window = max(guard.metric.window for guard in found.definition.guards)
    return found.created + round((seconds + window) * MICROSECONDS)


def over(found: Experiment, seen: Snapshot, moment: int) -> bool:
    """Whether a watch has lasted as long as was asked, at a time in microseconds."""
    watch = found.definition.watch
    if found.watches is None or watch is None:
        return False
    settled = min(len(seen.samples[guard.metric.name].arms) for guard in found.definition.guards)
    return moment >= until(found) or (watch.units is not None and settled >= watch.units)


def passed(verdict: ExperimentVerdict) -> ExperimentVerdict:
    """The verdict of a watch that is over."""
    return replace(verdict, state="passed", reason=f"The watch is over. {verdict.reason}")
