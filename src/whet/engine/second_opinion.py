"""A second opinion: before a prompt is promoted, another reward grades the same answers to the sealed test.

A search maximises its reward, and a prompt can talk a judge into a good mark. The second reward was never maximised. It is
asked once, at the end, and only about a prompt that the first reward promotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.engine.assemble import with_encoder
from whet.engine.durable import DurableRun
from whet.engine.pairs import Answers, Decide, answered_pairs, decide_pairs, summary_of_pairs, verdict_json
from whet.engine.result_json import SecondOpinionJSON
from whet.rewards import JUDGE, RewardFailed, RewardFunction
from whet.run import Run
from whet.stats import Improvement, hold_to_second_judge
from whet.task.spec import SECOND
from whet.types import Completion, Example, Rollout


@dataclass(frozen=True)
class Opinion:
    """The verdict after the second opinion, its figures as JSON (None: no second judge), and warnings for a reader."""

    verdict: Improvement
    figures: SecondOpinionJSON | None = None
    warnings: Sequence[str] = ()


async def second_opinion(
    run: DurableRun,
    reward: RewardFunction | None,
    judge: str | None,
    examples: Sequence[Example],
    answers: Answers,
    verdict: Improvement,
    alpha: float = 0.05,
    clusters: Sequence[int] | None = None,
    decide: Decide = decide_pairs,
) -> Opinion:
    """Hold a promotion to what `reward` says of the `answers` of baseline and candidate to the same `examples`.

    `judge` is the address of its model, that of the role `second`; None where it asks none. An answer that
    failed, or that cannot be graded, has the lowest reward; what nobody answered is counted as by `decide`, the test that the
    first opinion came from: one that looks once, or one whose promise holds at all looks. `clusters` as in `whet.stats.decide`.
    Raises BudgetExceeded.
    """
    if reward is None or not verdict.promoted:
        return Opinion(verdict)
    name = reward.name if judge is None else f"{reward.name} by {judge}"
    rows = [(e, r) for rollouts in answers for e, r in zip(examples, rollouts, strict=True)]
    graded = await grade_again(run.with_roles({JUDGE: SECOND}), reward, rows)
    halves = graded[: len(examples)], graded[len(examples) :]
    second = decide(halves, reward, clusters or range(len(examples)), alpha)
    pairs = answered_pairs(halves)
    baseline, best = (summary_of_pairs(half, pairs, reward.low, reward.high, examples) for half in halves)
    figures: SecondOpinionJSON = {
        "reward": reward.name,
        "judge": judge,
        "baseline": baseline,
        "best": best,
        **verdict_json(second),
    }
    whole = replace(hold_to_second_judge(verdict, second, name), withheld=second.withheld)
    return Opinion(whole, figures, _warnings(graded))


async def grade_again(
    run: Run, reward: RewardFunction, rows: Sequence[tuple[Example, Rollout]]
) -> list[Rollout]:
    """The same answers with the rewards of another judge."""
    used = with_encoder(reward)

    async def one(branch: Run, row: tuple[Example, Rollout]) -> Rollout:
        example, answer = row
        lowest = replace(answer, reward=used.low, parts={}, critique=None)
        if answer.error is not None:
            return lowest
        try:
            graded = await used.grade(branch, example, Completion(answer.output))
        except RewardFailed as error:
            return replace(lowest, error=error.where)
        return replace(answer, reward=graded.value, parts=graded.parts, critique=graded.critique)

    return await run.map(one, rows)


def _warnings(graded: Sequence[Rollout]) -> list[str]:
    errors = [r for r in graded if r.error is not None and r.answered and not r.has_reward]
    if not errors:
        return []
    summary = f"{len(errors)} of {len(graded)} answers could not be graded for the second opinion and count as the lowest"
    return [f"{summary}; the first (row {errors[0].example_id}): {errors[0].error}"]
