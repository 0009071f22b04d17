"""Best-arm identification: budgets are kept, pulls are counted, the best arms are found."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import get_args

import pytest

from whet.prompt import Prompt
from whet.run import MemoryRun, Run
from whet.search.bandits import Arms, Rule, explore, select_prompts, ucb, ucb_e
from whet.testing.simulated_task import review_world
from whet.types import Example

RULES: tuple[Rule, ...] = get_args(Rule)
EXAMPLES = tuple(Example(str(i), {"input": str(i)}) for i in range(3000))


def arms_of(
    means: Sequence[float], budget: int, *, examples: int = 3000, seed: int = 0, scale: float = 1.0
) -> Arms:
    """Arms with Bernoulli rewards of known means, times a scale."""

    async def evaluate(run: Run, arm: int, batch: Sequence[Example]) -> float:
        draws = [random.Random(f"{seed}|{arm}|{example.id}").random() < means[arm] for example in batch]
        return scale * sum(draws) / len(draws)

    return Arms(len(means), EXAMPLES[:examples], budget, evaluate, 0.0, scale)


async def explored(arms: Arms, rule: Rule, keep: int = 4, size: int = 32, c: float = 1.0) -> list[int]:
    return await explore(MemoryRun(), arms, rule, keep, size, c)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("budget", [1, 3, 8, 50, 300, 2048])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 9, 36])
async def test_no_rule_exceeds_its_budget_or_forgets_an_arm(rule: Rule, budget: int, n: int) -> None:
    arms = arms_of([0.5] * n, budget)
    order = await explored(arms, rule)
    assert sorted(order) == list(range(n))
    assert 0 < sum(arms.seen) <= budget
    assert sum(arms.seen) == budget - arms.left
    if budget >= 2 * n:
        assert min(arms.seen) > 0


@pytest.mark.parametrize("rule", RULES)
async def test_most_of_the_budget_is_used(rule: Rule) -> None:
    arms = arms_of([0.5] * 20, 2048)
    await explored(arms, rule)
    assert sum(arms.seen) > 0.9 * 2048


@pytest.mark.parametrize("rule", RULES)
async def test_the_best_arms_are_found(rule: Rule) -> None:
    means = [0.4] * 16 + [0.8] * 4
    hits = [
        len({16, 17, 18, 19} & set((await explored(arms_of(means, 1600, seed=s), rule))[:4]))
        for s in range(10)
    ]
    assert sum(hits) >= 36


@pytest.mark.parametrize("rule", ["ucb", "ucb_e", "successive_rejects", "successive_halving"])
async def test_promising_arms_get_more_of_the_budget(rule: Rule) -> None:
    arms = arms_of([0.2] * 12 + [0.9] * 4, 1600)
    await explored(arms, rule, size=10)
    assert min(arms.seen[12:]) > 1.5 * sum(arms.seen[:12]) / 12


@pytest.mark.parametrize("rule", RULES)
async def test_a_single_prompt_is_measured_not_assumed(rule: Rule) -> None:
    arms = arms_of([0.3], 100)
    assert await explored(arms, rule) == [0]
    assert arms.seen == [100]
    assert 0.1 < arms.mean(0) < 0.5


@pytest.mark.parametrize("rule", RULES)
async def test_no_example_is_paid_twice_for_one_arm(rule: Rule) -> None:
    arms = arms_of([0.5] * 6, 2048, examples=20)
    await explored(arms, rule, keep=2)
    assert max(arms.seen) == 20
    assert arms.left == 2048 - sum(arms.seen) > 0


@pytest.mark.parametrize("rule", RULES)
async def test_ties_keep_the_earlier_arm(rule: Rule) -> None:
    order = await explored(arms_of([1.0] * 9, 400), rule, keep=3)
    if rule.startswith("ucb"):
        assert order == list(range(9))
    else:
        assert order[:3] == [0, 1, 2]


async def test_halving_drops_the_lower_half_not_what_is_below_the_mean() -> None:
    # Seven good arms and one hopeless one: all but one are above the mean. The lower half goes all the same.
    arms = arms_of([0.0, *[0.8 + i / 50 for i in range(7)]], 800)
    await explored(arms, "successive_halving", keep=2)
    assert sorted(arms.pulls) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert sorted(set(arms.seen)) == [50, 150]


async def test_rejects_follow_the_published_schedule() -> None:
    n, budget = 6, 600
    arms = arms_of([0.1 * i for i in range(n)], budget)
    await explored(arms, "successive_rejects", keep=1)
    log_bar = 0.5 + sum(1 / i for i in range(2, n + 1))
    levels = [math.floor(budget / (log_bar * (n + 1 - j))) for j in range(1, n)]
    assert sorted(arms.seen) == sorted([*levels, levels[-1]])


async def test_ucb_counts_pulls_and_starts_with_every_arm_pulled_once() -> None:
    arms = arms_of([0.5] * 5, 1000)
    await arms.pull(MemoryRun(), range(5), 32)
    assert arms.pulls == [1] * 5 and arms.seen == [32] * 5
    await arms.pull(MemoryRun(), [2], 32)
    assert ucb(2.0)(arms, 2) == pytest.approx(2 * math.sqrt(math.log(6) / 2))
    assert ucb(2.0)(arms, 0) == pytest.approx(2 * math.sqrt(math.log(6)))
    assert ucb_e(2.0)(arms, 2) == pytest.approx(math.sqrt(2 / 2))


async def test_the_scale_of_the_reward_does_not_matter() -> None:
    means = [0.2, 0.4, 0.6, 0.8, 0.5, 0.3]
    plain, scaled = arms_of(means, 600), arms_of(means, 600, scale=200.0)
    assert await explored(plain, "ucb", 2, 10) == await explored(scaled, "ucb", 2, 10)
    assert plain.seen == scaled.seen


async def test_no_exploration_is_greedy() -> None:
    arms = arms_of([0.0, 1.0, 1.0], 90)
    await explored(arms, "ucb", keep=1, size=10, c=0.0)
    assert arms.seen == [10, 70, 10]


async def test_select_scores_prompts_on_a_task() -> None:
    env = review_world()
    prompts = [
        Prompt.parse(t)
        for t in ("Guess, be quick.", "Sort.", "Read carefully, look for evidence, mind the tone.")
    ]
    found = await select_prompts(
        MemoryRun({"task": env.model}), env, prompts, env.train, rule="brute_force", keep=1, budget=150
    )
    assert [number for number, _ in found] == [2, 1, 0]
    assert [score.n for _, score in found] == [50, 50, 50]


async def test_select_leaves_out_what_the_budget_never_reached() -> None:
    env = review_world()
    prompts = [Prompt.parse(f"Sort {i}.") for i in range(9)]
    run = MemoryRun({"task": env.model})
    found = await select_prompts(run, env, prompts, env.train, rule="successive_rejects", keep=4, budget=3)
    assert sorted(number for number, _ in found) == [0, 1, 2]
