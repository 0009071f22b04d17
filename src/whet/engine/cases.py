"""Several tasks or models in one run: the weakest case, the gate over cases, and the cases in plan and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from whet.engine.result_json import CasesJSON, MeanJSON
from whet.environments.environment import Environment
from whet.rewards.cases import CaseRewards
from whet.stats import Improvement, Interval, interval
from whet.stats.cases import CasesVerdict, decide_cases
from whet.task import Task
from whet.task.several import case_rows
from whet.types import Rollout, case_means, over_cases

SAME = "same prompt"
"""The verdict on each case where the search found no other prompt."""


def with_weakest(env: Environment, baseline: Sequence[Rollout]) -> Environment:
    """The environment that knows on which case the start prompt was worst on validation rows."""
    if not isinstance(env.reward, CaseRewards):
        return env
    means = case_means([r for r in baseline if r.answered] or baseline)
    return replace(env, reward=replace(env.reward, weakest=min(means, key=lambda name: means[name])))


def judge_cases(
    answers: tuple[Sequence[Rollout], Sequence[Rollout]],
    reward: CaseRewards,
    clusters: Sequence[int],
    alpha: float,
    minimum_effect: float = 0.0,
) -> CasesVerdict:
    """The verdict on two prompts over cases. Pairs without an answer count in the worst case for the new prompt; where the best
    case would promote it and the worst would not, the verdict is withheld."""
    weakest = reward.weakest or None if reward.worst else None
    cases = [r.case for r in answers[0]]
    if reward.worst and weakest is None:
        raise ValueError("the weakest case is not known: call with_weakest first")

    def judge_places(lost: tuple[float, float], places: Sequence[int]) -> CasesVerdict:
        before, after = (
            [side[i].reward if side[i].answered else fill for i in places]
            for side, fill in zip(answers, lost, strict=True)
        )
        names, own = [cases[i] for i in places], [clusters[i] for i in places]
        return decide_cases(names, before, after, own, alpha, weakest=weakest, minimum_effect=minimum_effect)

    everything = range(len(cases))
    whole = [i for i in everything if answers[0][i].answered and answers[1][i].answered]
    worst = judge_places((1.0, 0.0), everything)
    if len(whole) == len(cases):
        return worst
    best = judge_places((0.0, 1.0), everything).improvement
    seen = judge_places((0.0, 0.0), whole) if {cases[i] for i in whole} == set(cases) else worst
    poor, withheld = worst.improvement, best.promoted and not worst.improvement.promoted
    lost = f"{len(cases) - len(whole)} of {len(cases)} pairs have no answer"
    reason = f"{poor.reason} {lost}; they count in the worst case for the new prompt."
    verdict = replace(
        seen.improvement,
        low=poor.low,
        high=best.high,
        p_value=poor.p_value,
        e_value=poor.e_value,
        promoted=poor.promoted,
        missing=len(cases) - len(whole),
        withheld=withheld,
        reason=f"Not promoted: no verdict. {lost}. The missing answers would decide." if withheld else reason,
    )
    return CasesVerdict(verdict, seen.cases)


def decide_over_cases(
    answers: tuple[Sequence[Rollout], Sequence[Rollout]],
    reward: CaseRewards,
    clusters: Sequence[int],
    alpha: float,
    minimum_effect: float,
) -> Improvement:
    """The verdict on all cases together. It counts no rows that are missing: a finished run of several cases takes none."""
    verdict = judge_cases(answers, reward, clusters, alpha, minimum_effect).improvement
    return replace(verdict, more_examples=None)


def case_figures(
    task: Task,
    answers: tuple[Sequence[Rollout], Sequence[Rollout]],
    reward: object,
    clusters: Sequence[int],
    alpha: float,
    addresses: Mapping[str, str],
) -> CasesJSON:
    """The part `cases` of the result: the sealed test of two prompts by case. Empty for a single task."""
    if not isinstance(reward, CaseRewards):
        return {}
    judged = judge_cases(answers, reward, clusters, alpha).cases
    if answers[0] is answers[1]:
        judged = {
            name: replace(one, low=0.0, high=0.0, p_better=1.0, verdict=SAME) for name, one in judged.items()
        }
    rows = {case["name"]: case for case in describe_cases(task, addresses)}
    return {
        "aggregate": task.aggregate,
        "cases": {name: {**rows[name], **asdict(verdict)} for name, verdict in judged.items()},
    }


def row_weights(task: Task) -> dict[str, float]:
    """The weight of each row of the sealed test, by its id, so that all cases count alike. Empty for a single task."""
    sizes = {case["name"]: case["test"] for case in case_rows(task)}
    if not sizes:
        return {}
    each = len(task.test) / len(sizes)
    return {row.id: each / sizes[row.case] for row in task.test}


def describe_cases(task: Task, addresses: Mapping[str, str]) -> list[dict[str, Any]]:
    """The name of each case, the address of its model, and the number of rows of each split."""
    return [
        {**{k: v for k, v in case.items() if k != "role"}, "model": addresses[case["role"]]}
        for case in case_rows(task)
    ]


def summary_over_cases(known: Sequence[Rollout], clusters: Sequence[int]) -> MeanJSON:
    """The joint mean of answered rollouts of several cases, with an interval: over all rows, each case alike, or of the worst
    case.

    The case with the lowest mean here may not be the worst one. The lower end is thus the lowest one of all cases; the upper end
    is the lowest one too, each at a share of the error, so that all hold together.
    """
    means, worst = case_means(known), known[0].of_worst
    if worst:
        own = {name: [i for i, r in enumerate(known) if r.case == name] for name in means}

        def bounds_at(name: str, error: float) -> Interval:
            rows = own[name]
            values = [known[i].reward for i in rows]
            return interval(values, 0.0, 1.0, 1.0 - error, clusters=[clusters[i] for i in rows])

        bounds = min((bounds_at(name, 0.05) for name in means), key=lambda one: one.low)
        ends = bounds.low, min(bounds_at(name, 0.05 / len(means)).high for name in means)
    else:
        sizes = {name: sum(r.case == name for r in known) for name in means}
        scale = {name: len(known) / (len(means) * size) for name, size in sizes.items()}
        most = max(scale.values())
        bounds = interval([r.reward * scale[r.case] for r in known], 0.0, most, clusters=clusters)
        ends = bounds.low, min(1.0, bounds.high)
    return {
        "mean": over_cases(means, worst),
        "low": ends[0],
        "high": ends[1],
        "n": len(known),
        "method": bounds.method,
        "cases": means,
    }
