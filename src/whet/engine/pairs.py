"""Two prompts on the same sealed rows: asked in turn, failures asked again, what may not count as evidence; and methods in
pairs, on the answers of their best prompts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from whet.engine.cases import decide_over_cases, summary_over_cases
from whet.engine.journal import read_events
from whet.engine.result_json import DifferenceJSON, ImprovementJSON, MeanJSON, PairJSON, SealedRowsJSON
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.environments.program import ProgramEnvironment
from whet.errors import BudgetExceeded
from whet.prompt import Prompt
from whet.rewards import Objectives, RewardFunction
from whet.rewards.cases import CaseRewards
from whet.run import Run
from whet.stats import (
    Improvement,
    JointVerdict,
    clusters_of,
    compare_bounds,
    decide,
    decide_answered,
    decide_anytime,
    holm,
    interval,
)
from whet.task.examples import input_hash
from whet.types import NO_TEXT, Example, Rollout, content_hash, lacks_answer

LARGEST_UNPAID_SHARE = 0.02
START_PROMPT = "start prompt"
UNPAID = "budget: "
"""The beginning of the error of a rollout that the budget cannot pay."""

Side = tuple[Environment, Prompt]
Answers = tuple[Sequence[Rollout], Sequence[Rollout]]
Decide = Callable[[Answers, RewardFunction, Sequence[int], float], Improvement]
"""A test of pairs: the answers, their reward, the cluster of each pair, and alpha."""


async def evaluate_within(
    env: Environment, run: Run, prompt: Prompt, examples: Sequence[Example], again: int = 0
) -> list[Rollout]:
    """Evaluate; a rollout whose retries the budget cannot pay is a failed rollout, and one that failed is asked for again, and
    `again` times more.

    Raises BudgetExceeded when the budget cannot pay so many of them that no verdict could be given.
    """
    if env.scores or env.supports_batching:
        return await env.evaluate(run, prompt, examples)
    return await _rollouts(run, [(env, prompt, example, 0) for example in examples], again)


async def evaluate_payable(
    env: Environment, run: Run, prompt: Prompt, examples: Sequence[Example]
) -> list[Rollout]:
    """Evaluate on as many of the examples as the budget pays for, those whose answers are recorded among them."""
    if env.scores or env.supports_batching:
        try:
            return await env.evaluate(run, prompt, examples)
        except BudgetExceeded:
            return []
    rollouts = await _rollouts(run, [(env, prompt, example, 0) for example in examples], 0, unpaid=1.0)
    return [rollout for rollout in rollouts if not (rollout.error or "").startswith(UNPAID)]


async def evaluate_pairs(
    run: Run, sides: tuple[Side, Side], examples: Sequence[Example], again: int = 0
) -> Answers:
    """Both prompts on every example, the calls for a pair one after the other, and every second pair the other way round.

    What happens to the provider while this goes on happens to both prompts. `again` and what it raises as in `evaluate_within`.
    """
    if any(env.scores or env.supports_batching for env, _ in sides):
        first, second = [await env.evaluate(run, prompt, examples) for env, prompt in sides]
        return first, second
    order = [(i, side) for i in range(len(examples)) for side in ((0, 1), (1, 0))[i % 2]]
    rollouts = await _rollouts(run, [(*sides[side], examples[i], 0) for i, side in order], again)
    placed = dict(zip(order, rollouts, strict=True))
    first, second = [[placed[i, side] for i in range(len(examples))] for side in (0, 1)]
    return first, second


async def evaluate_grid(
    run: Run,
    env: Environment,
    prompts: Sequence[Prompt],
    examples: Sequence[Example],
    samples: Sequence[int] = (),
    again: int = 0,
) -> list[list[Rollout]]:
    """The rollouts of several prompts on the same examples, a list for each prompt; `samples`: which answer each of them is,
    where a prompt is there more than once; `again` as in `evaluate_within`.

    All prompts are asked about an example before the next one, in an order that is drawn for each example: what happens to
    the provider while this goes on happens to all prompts. What it raises as in `evaluate_within`.
    """
    samples = samples or [0] * len(prompts)
    if env.scores or env.supports_batching:
        pairs = zip(prompts, samples, strict=True)
        return [await env.evaluate(run, prompt, examples, sample) for prompt, sample in pairs]
    order = [(i, j) for i in range(len(examples)) for j in run.rng.sample(range(len(prompts)), len(prompts))]
    rollouts = await _rollouts(run, [(env, prompts[j], examples[i], samples[j]) for i, j in order], again)
    placed = dict(zip(order, rollouts, strict=True))
    return [[placed[i, j] for i in range(len(examples))] for j in range(len(prompts))]


async def _rollouts(
    run: Run,
    items: Sequence[tuple[Environment, Prompt, Example, int]],
    again: int,
    unpaid: float = LARGEST_UNPAID_SHARE,
) -> list[Rollout]:
    """A rollout for each item; BudgetExceeded where the budget cannot pay for a larger share of them than `unpaid`."""
    refused: list[BudgetExceeded] = []

    async def ask(branch: Run, item: tuple[Environment, Prompt, Example, int]) -> Rollout:
        env, prompt, example, sample = item
        try:
            return await env.rollout(branch, prompt, example, sample)
        except BudgetExceeded as error:
            refused.append(error)
            return Rollout(prompt.id, example.id, "", env.reward.low, error=f"{UNPAID}{error}")

    async def ask_missing(branch: Run, i: int) -> Rollout:
        return rollouts[i] if rollouts[i].answered else await ask(branch, items[i])

    rollouts = await run.map(ask, items)
    for _ in range(1 + again):
        refused.clear()
        rollouts = await run.map(ask_missing, range(len(items)))
    if len(refused) > unpaid * len(items):
        raise refused[0]
    return rollouts


def hold_no_text(rollouts: Iterable[Rollout]) -> bool:
    """Whether none of them holds a text of the model, so that the endpoint may be the reason."""
    return all(not r.answered or (r.error or "").startswith(NO_TEXT) for r in rollouts)


def answered_pairs(answers: Answers) -> list[int]:
    """The positions of the pairs of which both prompts have an answer. The others enter no mean; what they may hold is counted
    against a promotion (`decide_pairs`)."""
    return [i for i, pair in enumerate(zip(*answers, strict=True)) if all(r.answered for r in pair)]


def summary(
    rollouts: Sequence[Rollout],
    low: float,
    high: float,
    examples: Sequence[Example],
    of: int | None = None,
) -> MeanJSON:
    """Mean reward in [low, high] with its 95% interval over the rollouts that were answered, their number, how the interval was
    made, and `of` how many rollouts they are (default: all that are given). The mean of none is None.

    Where several of them belong to one group of the `examples`, or are copies (one input with one answer, which is asked for
    once), the interval is over groups, and `groups` counts them.
    """
    known = [r for r in rollouts if r.answered]
    if not known:
        nothing: MeanJSON = {"mean": None, "low": None, "high": None, "n": 0, "method": None}
        return nothing | {"answered": 0, "of": len(rollouts) if of is None else of}
    rows = {e.id: e for e in examples}
    requests = [(r.case, input_hash(rows[r.example_id]), r.output) for r in known]
    clusters = clusters_of(requests, [rows[r.example_id].group for r in known])
    if known[0].case:
        over_cases = summary_over_cases(known, clusters)
        return over_cases | {"answered": len(known), "of": len(rollouts) if of is None else of}
    bounds = interval([r.reward for r in known], low, high, clusters=clusters)
    mean: MeanJSON = {
        "mean": bounds.mean,
        "low": bounds.low,
        "high": bounds.high,
        "n": bounds.n,
        "method": bounds.method,
        "answered": len(known),
        "of": len(rollouts) if of is None else of,
    }
    if bounds.groups is not None:
        mean["groups"] = bounds.groups
    return mean


def summary_of_pairs(
    rollouts: Sequence[Rollout], pairs: Sequence[int], low: float, high: float, examples: Sequence[Example]
) -> MeanJSON:
    """The `summary` of one prompt's rollouts over `pairs`, the positions that both prompts answered. `answered` are its own
    answers; where they are more than the pairs, `compared` says how many enter the mean."""
    score = summary([rollouts[i] for i in pairs], low, high, examples, of=len(rollouts))
    answered = sum(rollout.answered for rollout in rollouts)
    return score if answered == len(pairs) else score | {"answered": answered, "compared": len(pairs)}


def summary_with_bounds(
    rollouts: Sequence[Rollout], low: float, high: float, examples: Sequence[Example]
) -> MeanJSON:
    """The `summary`, and what it would be with the lowest and with the highest reward for each row that has no answer."""
    known = summary(rollouts, low, high, examples)
    if all(r.answered for r in rollouts):
        return known
    worst, best = (
        summary(
            [r if r.answered else replace(r, reward=value, error=None) for r in rollouts], low, high, examples
        )
        for value in (low, high)
    )
    known |= {"mean_at_worst": float(worst["mean"] or 0.0), "mean_at_best": float(best["mean"] or 0.0)}
    return known | {"low_at_worst": float(worst["low"] or 0.0), "low_at_best": float(best["low"] or 0.0)}


def verdict_json(verdict: Improvement) -> ImprovementJSON:
    """A verdict as a result holds it."""
    return {
        "difference": verdict.difference,
        "low": verdict.low,
        "high": verdict.high,
        "promoted": verdict.promoted,
        "reason": verdict.reason,
        "e_value": verdict.e_value,
        "n": verdict.n,
        "wins": verdict.wins,
        "losses": verdict.losses,
        "ties": verdict.ties,
        "p_value": verdict.p_value,
        "clusters": verdict.clusters,
        "alpha": verdict.alpha,
        "method": verdict.method,
        "more_examples": verdict.more_examples,
        "missing": verdict.missing,
        "withheld": verdict.withheld,
    }


def known_rewards(rollouts: Sequence[Rollout]) -> list[float | None]:
    """The reward of each rollout, None for one without an answer."""
    return [r.reward if r.answered else None for r in rollouts]


def example_clusters(sides: Sequence[Side], examples: Sequence[Example]) -> list[int]:
    """The cluster of each example: those of one group, and those that make the same requests of both prompts.

    The start of an episode does not tell what it will ask, so that each example of a world is taken to be its own, and each
    input of a program.
    """

    def requests(example: Example) -> str:
        if any(isinstance(env, MultiTurn) and env.world is not None for env, _ in sides):
            return example.id
        if any(isinstance(env, ProgramEnvironment) for env, _ in sides):
            return content_hash(example.text if example.text is not None else dict(example.values))
        rendered = (message for env, prompt in sides for message in env.messages(prompt, example))
        return content_hash([message.as_list() for message in rendered])

    return clusters_of([requests(e) for e in examples], [e.group for e in examples])


def decide_jointly(
    answers: Answers, reward: RewardFunction, clusters: Sequence[int], alpha: float = 0.05
) -> JointVerdict | None:
    """The verdict on every objective; None where the reward has none.

    Where answers are missing it is the verdict of the worst case, and withheld where the best case would promote.
    """
    if not isinstance(reward, Objectives):
        return None
    whole = answered_pairs(answers)
    if len(whole) == len(clusters):
        return reward.decide(*answers, clusters, alpha)
    worst, best = (
        reward.decide(*_fill_missing(answers, reward, against), clusters, alpha) for against in (True, False)
    )
    before, after = ([rollouts[i] for i in whole] for rollouts in answers)
    seen = reward.decide(before, after, [clusters[i] for i in whole], alpha) if whole else worst
    figures = {
        name: replace(
            one,
            baseline=seen.objectives[name].baseline,
            best=seen.objectives[name].best,
            difference=seen.objectives[name].difference,
            low=min(one.low, best.objectives[name].low),
            high=max(one.high, best.objectives[name].high),
        )
        for name, one in worst.objectives.items()
    }
    lost = f"{len(clusters) - len(whole)} of {len(clusters)} pairs have no answer"
    withheld = best.promoted and not worst.promoted
    reason = f"{worst.reason} {lost}; they count in the worst case for the new prompt."
    if withheld:
        reason = f"Not promoted: no verdict. {lost}. The missing answers would decide."
    return replace(worst, objectives=figures, reason=reason, withheld=withheld)


def _fill_missing(answers: Answers, reward: Objectives, against: bool) -> Answers:
    """The pairs with the extreme rewards where an answer is missing, `against` the candidate or for it, and the cost and time of
    the pair's other answer."""
    poor = {i.name: i.worst for i in reward.items if i.metric is None}
    rich = {i.name: i.best for i in reward.items if i.metric is None}
    fillings = (rich, poor) if against else (poor, rich)
    exact = [i.name for i in reward.items if i.goal.exact]
    own = [
        next(({name: r.parts[name] for name in exact} for r in side if r.answered), {}) for side in answers
    ]
    filled: tuple[list[Rollout], list[Rollout]] = ([], [])
    for pair in zip(*answers, strict=True):
        other = next((r.parts for r in pair if r.answered), {i.name: 0.0 for i in reward.items})
        for side, rollout, known, ends in zip(filled, pair, own, fillings, strict=True):
            parts = rollout.parts if rollout.answered else {**other, **known, **ends}
            side.append(replace(rollout, parts=parts))
    return filled


def decide_pairs(
    answers: Answers,
    reward: RewardFunction,
    clusters: Sequence[int],
    alpha: float = 0.05,
    same: bool = False,
    minimum_effect: float = 0.0,
) -> Improvement:
    """`decide` on pairs some of which may have no answer: see `whet.stats.decide_answered`."""
    low, high = reward.low, reward.high
    if isinstance(reward, CaseRewards) and not same:
        return decide_over_cases(answers, reward, clusters, alpha, minimum_effect)

    def test(before: Sequence[float], after: Sequence[float], own: Sequence[int]) -> Improvement:
        return decide(before, after, low, high, alpha, same, minimum_effect, own)

    if same:
        first, second = ([r.reward for r in rollouts] for rollouts in answers)
        return test(first, second, clusters)
    before, after = map(known_rewards, answers)
    return decide_answered(test, before, after, low, high, list(clusters), minimum_effect)


def decide_pairs_anytime(
    answers: Answers,
    reward: RewardFunction,
    clusters: Sequence[int],
    alpha: float = 0.05,
    minimum_effect: float = 0.0,
    largest: int = 1,
) -> Improvement:
    """`decide_anytime` on pairs some of which may have no answer; `largest` as there."""
    low, high = reward.low, reward.high

    def test(before: Sequence[float], after: Sequence[float], own: Sequence[int]) -> Improvement:
        return decide_anytime(before, after, low, high, alpha, minimum_effect, own, largest)

    before, after = map(known_rewards, answers)
    return decide_answered(test, before, after, low, high, list(clusters), minimum_effect)


@dataclass(frozen=True)
class SealedAnswers:
    """Rewards of a run's best prompt by row (None: no answer), the cluster of each row, and the range of the reward. `weights`:
    how often a row counts where the task is made of several, so that each case counts alike; empty elsewhere."""

    rewards: Mapping[str, float | None]
    clusters: Mapping[str, int]
    low: float
    high: float
    weights: Mapping[str, float] = field(default_factory=dict)

    def means(self, name: str) -> tuple[float, float]:
        """The least and the largest reward that a row may have: those of the range where nobody answered."""
        reward = self.rewards[name]
        return (self.low, self.high) if reward is None else (reward, reward)


def sealed_answers(run: Path, side: Literal["baseline", "best"] = "best") -> SealedAnswers:
    """The sealed test of a finished run's best prompt, or of its `baseline`, as the journal holds it."""
    event: SealedRowsJSON = read_events(run / "journal.sqlite", ["final"])[-1].value
    rows = event[side]
    clusters = event.get("clusters", range(len(rows)))
    return SealedAnswers(
        {row["id"]: None if lacks_answer(row["error"]) else row["reward"] for row in rows},
        {row["id"]: cluster for row, cluster in zip(rows, clusters, strict=True)},
        event["low"],
        event["high"],
        event.get("weights", {}),
    )


def compare_pairs(methods: Mapping[str, Sequence[SealedAnswers]], alpha: float = 0.05) -> list[PairJSON]:
    """Each pair of methods by the paired test, the rewards of a row averaged over the runs of a method.

    `p` is two-sided, `p_adjusted` by Holm over the pairs; the intervals hold together with the confidence 1 - alpha, each
    alone with 1 minus its own `alpha`. The difference is that of the `n` rows (`of` so many) that all runs have an answer to; p
    and interval are those of the worst case for each direction.
    """
    pairs = list(itertools.combinations(methods, 2))
    rows = [_compare_two(methods[a], methods[b], alpha / max(1, len(pairs))) for a, b in pairs]
    adjusted = holm([row["p"] for row in rows])
    return [
        {"a": a, "b": b, **row, "p_adjusted": p} for (a, b), row, p in zip(pairs, rows, adjusted, strict=True)
    ]


def compare_with_start(
    methods: Mapping[str, Sequence[SealedAnswers]],
    starts: Mapping[str, Sequence[SealedAnswers]],
    alpha: float = 0.05,
) -> list[PairJSON]:
    """Each method beside the start prompt as its own runs measured it, by the test of `compare_pairs` and adjusted as there."""
    rows = [_compare_two(methods[name], starts[name], alpha / len(methods)) for name in methods]
    adjusted = holm([row["p"] for row in rows])
    return [
        {"a": name, "b": START_PROMPT, **row, "p_adjusted": p}
        for name, row, p in zip(methods, rows, adjusted, strict=True)
    ]


def _compare_two(
    first: Sequence[SealedAnswers], second: Sequence[SealedAnswers], alpha: float
) -> DifferenceJSON:
    runs, width = (*first, *second), first[0].high - first[0].low
    ids = list(first[0].rewards)
    clusters: Sequence[int] = [runs[0].clusters[name] for name in ids]
    for run in runs[1:]:  # together in one of the runs is together
        clusters = clusters_of(clusters, [str(run.clusters[name]) for name in ids])

    weights = first[0].weights
    width *= max(weights.values(), default=1.0)

    def gaps(mine: int, other: int) -> list[float]:
        """The differences of the rows where the first has its least (0) or largest (1) rewards, and the second its own."""
        return [
            (fmean(run.means(name)[mine] for run in first) - fmean(run.means(name)[other] for run in second))
            * weights.get(name, 1.0)
            / width
            for name in ids
        ]

    tested = compare_bounds(np.asarray(gaps(0, 1)), np.asarray(gaps(1, 0)), width, clusters, alpha)
    return {
        "difference": tested.difference,
        "low": tested.low,
        "high": tested.high,
        "p": tested.p,
        "n": tested.n,
        "of": len(ids),
        "clusters": tested.clusters,
        "alpha": alpha,
        "method": tested.method,
    }
