"""Two prompts on the same sealed rows: asked in turn, failures asked again, what may not count as evidence; and methods in
pairs, on the answers of their best prompts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.engine.journal import read_events
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.environments.program import ProgramEnvironment
from whet.errors import BudgetExceeded
from whet.prompt import Prompt
from whet.rewards import Objectives, RewardFunction
from whet.run import Run
from whet.stats import Improvement, JointVerdict, clusters_of, decide, holm
from whet.stats.paired import p_value, paired_test
from whet.types import NO_TEXT, Example, Rollout, content_hash, lacks_answer

LARGEST_UNPAID_SHARE = 0.1
LARGEST_FAILED_SHARE = 0.02

Side = tuple[Environment, Prompt]
Answers = tuple[Sequence[Rollout], Sequence[Rollout]]


async def evaluate_within(
    env: Environment, run: Run, prompt: Prompt, examples: Sequence[Example]
) -> list[Rollout]:
    """Evaluate; a rollout whose retries the budget cannot pay is a failed rollout, and one that failed is asked for again.

    Raises BudgetExceeded when the budget cannot pay more than a tenth of them.
    """
    if env.scores or env.asks_together:
        return await env.evaluate(run, prompt, examples)
    return await _rollouts(run, [(env, prompt, example) for example in examples])


async def evaluate_pairs(run: Run, sides: tuple[Side, Side], examples: Sequence[Example]) -> Answers:
    """Both prompts on every example, the calls for a pair one after the other, and every second pair the other way round.

    What happens to the provider while this goes on happens to both prompts. Raises BudgetExceeded as `evaluate_within` does.
    """
    if any(env.scores or env.asks_together for env, _ in sides):
        first, second = [await env.evaluate(run, prompt, examples) for env, prompt in sides]
        return first, second
    order = [(i, side) for i in range(len(examples)) for side in ((0, 1), (1, 0))[i % 2]]
    rollouts = await _rollouts(run, [(*sides[side], examples[i]) for i, side in order])
    placed = dict(zip(order, rollouts, strict=True))
    first, second = [[placed[i, side] for i in range(len(examples))] for side in (0, 1)]
    return first, second


async def _rollouts(run: Run, items: Sequence[tuple[Environment, Prompt, Example]]) -> list[Rollout]:
    refused: list[BudgetExceeded] = []

    async def one(branch: Run, item: tuple[Environment, Prompt, Example]) -> Rollout:
        env, prompt, example = item
        try:
            return await env.rollout(branch, prompt, example)
        except BudgetExceeded as error:
            refused.append(error)
            return Rollout(prompt.id, example.id, "", env.reward.low, error=f"budget: {error}")

    rollouts = await run.map(one, items)
    again = [i for i, rollout in enumerate(rollouts) if not rollout.answered]
    refused.clear()
    for i, rollout in zip(again, await run.map(one, [items[i] for i in again]), strict=True):
        rollouts[i] = rollout
    if len(refused) > LARGEST_UNPAID_SHARE * len(items):
        raise refused[0]
    return rollouts


def hold_no_text(rollouts: Iterable[Rollout]) -> bool:
    """Whether none of them holds a text of the model, so that the endpoint may be the reason."""
    return all(not r.answered or (r.error or "").startswith(NO_TEXT) for r in rollouts)


def counted(answers: Answers) -> list[int]:
    """The positions of the pairs that count: those in which the baseline was answered.

    Where the candidate alone was not, also when it was asked again, it has the lowest reward: a provider that refuses certain
    requests refuses what the candidate makes of certain rows, and to leave those out would choose the rows by their outcome.
    """
    return [i for i, rollout in enumerate(answers[0]) if rollout.answered]


def missing(answers: Answers) -> int:
    """The number of pairs in which one of the prompts was not answered."""
    return sum(not first.answered or not second.answered for first, second in zip(*answers, strict=True))


def example_clusters(sides: tuple[Side, Side], examples: Sequence[Example]) -> list[int]:
    """The cluster of each example: those of one group, and those that make the same requests of both prompts.

    The start of an episode does not tell what it will ask, so that each example of a world is taken to be its own, and each
    input of a program.
    """

    def requests(example: Example) -> str:
        if any(isinstance(env, MultiTurn) and env.world is not None for env, _ in sides):
            return example.id
        if any(isinstance(env, ProgramEnvironment) for env, _ in sides):
            return content_hash(example.text if example.text is not None else dict(example.values))
        rendered = (message for _, prompt in sides for message in prompt.render(example))
        return content_hash([[message.role, message.content] for message in rendered])

    return clusters_of([requests(e) for e in examples], [e.group for e in examples])


def decide_jointly(
    answers: Answers, reward: RewardFunction, clusters: Sequence[int], alpha: float = 0.05
) -> JointVerdict | None:
    """The verdict on every objective; None where the reward has none, or where too few pairs were answered for any verdict."""
    kept = counted(answers)
    if not isinstance(reward, Objectives) or too_few(answers):
        return None
    before, after = ([rollouts[i] for i in kept] for rollouts in answers)
    after = [_worst(reward, *pair) for pair in zip(before, after, strict=True)]
    return reward.decide(before, after, [clusters[i] for i in kept], alpha)


def _worst(reward: Objectives, before: Rollout, after: Rollout) -> Rollout:
    """The candidate's rollout; without an answer it has the lowest rewards, and the baseline's cost and time."""
    if after.answered:
        return after
    known = {
        **before.parts,
        **{i.name: after.parts[i.name] for i in reward.items if i.goal.exact and after.parts},
    }
    return replace(after, parts=known | {i.name: i.worst for i in reward.items if i.metric is None})


def too_few(answers: Answers) -> bool:
    """Whether so many pairs have no answer that an outage could decide."""
    return missing(answers) > LARGEST_FAILED_SHARE * len(answers[0])


def decide_pairs(
    answers: Answers,
    reward: RewardFunction,
    clusters: Sequence[int],
    alpha: float = 0.05,
    same: bool = False,
    minimum_effect: float = 0.0,
) -> Improvement:
    """`decide` on the pairs that count; no verdict when more than 2 % were not answered."""
    n = len(clusters)
    kept = counted(answers) or list(range(n))
    before, after = ([rollouts[i].reward for i in kept] for rollouts in answers)
    own = [clusters[i] for i in kept]
    verdict = decide(before, after, reward.low, reward.high, alpha, same, minimum_effect, own)
    if same or not too_few(answers):
        return verdict
    reason = (
        f"Not promoted: no verdict. {missing(answers)} of {n} pairs have no answer, also after they were asked for again; above "
        f"{100 * LARGEST_FAILED_SHARE:g}% an outage could decide. Make a new run (another --out) when the provider "
        "answers and the budget allows for retries; what was answered comes from the cache."
    )
    return replace(verdict, promoted=False, reason=reason)


@dataclass(frozen=True)
class SealedAnswers:
    """Rewards of a run's best prompt by row, without the rows that have no answer, and the cluster of each row."""

    rewards: Mapping[str, float]
    clusters: Mapping[str, int]
    width: float


def sealed_answers(run: Path) -> SealedAnswers:
    """What the journal of a finished run holds of the sealed test of its best prompt."""
    event: Any = read_events(run / "journal.sqlite", ["final"])[-1].value
    rows = event["best"]
    clusters = event.get("clusters", range(len(rows)))
    return SealedAnswers(
        {row["id"]: row["reward"] for row in rows if not lacks_answer(row["error"])},
        {row["id"]: cluster for row, cluster in zip(rows, clusters, strict=True)},
        event["high"] - event["low"],
    )


def compare_pairs(
    methods: Mapping[str, Sequence[SealedAnswers]], alpha: float = 0.05
) -> list[dict[str, Any]]:
    """Each pair of methods by the paired test, the rewards of a row averaged over the runs of a method.

    `p` is two-sided, `p_adjusted` by Holm over the pairs; the intervals hold together with the confidence 1 - alpha, each
    alone with 1 minus its own `alpha`. Rows that any run of the two has no answer to are left out.
    """
    pairs = list(itertools.combinations(methods, 2))
    rows = [_compared(methods[a], methods[b], alpha / max(1, len(pairs))) for a, b in pairs]
    adjusted = holm([row["p"] for row in rows])
    return [
        {"a": a, "b": b, **row, "p_adjusted": p} for (a, b), row, p in zip(pairs, rows, adjusted, strict=True)
    ]


def _compared(
    first: Sequence[SealedAnswers], second: Sequence[SealedAnswers], alpha: float
) -> dict[str, Any]:
    runs, width = (*first, *second), first[0].width
    ids = [name for name in first[0].rewards if all(name in run.rewards for run in runs)]
    if not ids:
        nothing = {"difference": 0.0, "low": -width, "high": width, "p": 1.0, "n": 0, "clusters": 0}
        return {**nothing, "alpha": alpha, "method": "none"}
    gaps = [
        (fmean(run.rewards[name] for run in first) - fmean(run.rewards[name] for run in second)) / width
        for name in ids
    ]
    clusters = [runs[0].clusters[name] for name in ids]
    for run in runs[1:]:  # together in one of the runs is together
        clusters = clusters_of(clusters, [str(run.clusters[name]) for name in ids])
    test = paired_test(gaps, clusters, 0.0, alpha)
    p = min(1.0, 2 * min(test.p_value, p_value([-gap for gap in gaps], clusters)))
    ends = {name: getattr(test, name) * width for name in ("difference", "low", "high")}
    sizes = {"n": len(ids), "clusters": test.clusters}
    return {**ends, "p": p, **sizes, "alpha": alpha, "method": test.method}
