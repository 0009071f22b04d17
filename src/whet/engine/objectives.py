"""Objectives in a run: the baseline's means as the measure, calls that are timed, and the front in the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.engine.cases import with_weakest
from whet.engine.durable import RunState
from whet.engine.journal import read_events
from whet.engine.result_json import (
    DominatedJSON,
    FrontMeanJSON,
    FrontPointJSON,
    ObjectiveFiguresJSON,
    ObjectiveJSON,
)
from whet.environments.environment import Environment
from whet.rewards import Objectives, RewardFunction
from whet.rewards.objectives import LATENCY
from whet.search.archive import Candidate, candidate_of
from whet.search.front import Front
from whet.stats import JointVerdict
from whet.stats.joint import ObjectiveVerdict
from whet.types import Rollout

UNTESTED = "not tested"


def needs_call_times(reward: RewardFunction) -> bool:
    """Whether calls must be recorded with the time that they took."""
    return isinstance(reward, Objectives) and LATENCY in reward.metrics


def calibrate(env: Environment, baseline: list[Rollout]) -> tuple[Environment, list[Rollout]]:
    """The environment that measures every vector by the baseline's means, and the baseline measured so; of a task made of several
    the environment that knows its weakest case."""
    if not isinstance(env.reward, Objectives):
        return with_weakest(env, baseline), baseline
    reward = env.reward.calibrate([r for r in baseline if r.error is None] or baseline)
    return replace(env, reward=reward), [reward.weigh(r) for r in baseline]


def objective_figures(
    reward: RewardFunction,
    core: RunState,
    tested: Sequence[tuple[Candidate, Sequence[Rollout]]],
    joint: JointVerdict | None,
    promoted: bool,
) -> ObjectiveFiguresJSON:
    """The part of the result about objectives: the verdict on each, and the front on validation. Empty without objectives."""
    if not isinstance(reward, Objectives):
        return {}
    front, start, best = Front(reward.items), tested[0][0], tested[1][0]
    for candidate, validation in tested:
        if values := {r.example_id: reward.values(r) for r in validation if r.answered}:
            front.add(candidate, values)
    for event in read_events(core.journal.path, ["validated"]):
        if "objectives" in event.value:
            front.add(candidate_of(event.value), event.value["objectives"])
    gate = {best.id: "promoted" if promoted else "not promoted", start.id: "baseline"}
    free = front.front()
    points = [_point(front, start.id, one, gate.get(one.id, UNTESTED)) for one in free]
    return {
        "objectives": {} if joint is None else {name: _verdict(o) for name, o in joint.objectives.items()},
        "front": points,
        "dominated": [
            _means(front, member) for member in front.members if member not in {one.id for one in free}
        ],
    }


def _verdict(verdict: ObjectiveVerdict) -> ObjectiveJSON:
    """The verdict on one objective as a result holds it."""
    return {
        "goal": verdict.goal,
        "baseline": verdict.baseline,
        "best": verdict.best,
        "difference": verdict.difference,
        "low": verdict.low,
        "high": verdict.high,
        "bound": verdict.bound,
        "p_better": verdict.p_better,
        "p_bound": verdict.p_bound,
        "verdict": verdict.verdict,
    }


def _means(front: Front, member: str) -> DominatedJSON:
    """A validated prompt beside the front: its means."""
    return {
        "id": member,
        "validation": {i.name: {"mean": front.mean(member, i.name)} for i in front.objectives},
    }


def _point(front: Front, start: str, candidate: Candidate, gate: str) -> FrontPointJSON:
    """A point of the front: its means on validation, its lead over the baseline, and the verdict of the gate."""
    gains = front.gains(candidate.id, start)
    validation: dict[str, FrontMeanJSON] = {}
    for item in front.objectives if gains else ():
        goal, gain, mean = item.goal, gains[item.name], front.mean(candidate.id, item.name)
        ends = [gain.low, gain.high] if goal.maximise else [0.0 - gain.high, 0.0 - gain.low]
        validation[item.name] = {
            "goal": "max" if goal.maximise else "min",
            "mean": mean,
            "difference": gain.mean if goal.maximise else 0.0 - gain.mean,
            "low": ends[0],
            "high": ends[1],
            "holds": goal.holds(mean, front.mean(start, item.name)),
        }
    point: FrontPointJSON = {
        "id": candidate.id,
        "prompt": candidate.prompt.source,
        "messages": [m.as_list() for m in candidate.prompt.messages],
        "operator": candidate.operator,
        "gate": gate,
        "holds": bool(validation) and all(one["holds"] for one in validation.values()),
        "validation": validation,
    }
    if candidate.system is not None:
        point["system"] = candidate.system
    return point
