"""Plans keep within what a run may spend, use most of it, and leave room for validation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whet.prompt import Prompt
from whet.run import Budget, MemoryRun
from whet.search.archive import Archive, Candidate
from whet.search.plan import (
    SMALLEST,
    SearchPlan,
    fit,
    payable_rollouts,
    share_out,
    validate_finalists,
    validate_leader,
)
from whet.search.vocabulary import vocabulary
from whet.testing.simulated_task import ConstantReward, review_world
from whet.types import Example

ENV = review_world(train=80, validation=30)


def limited(**limits: int) -> MemoryRun:
    run = MemoryRun({"task": ENV.model})
    run.limits = Budget(**limits)
    return run


def worst_case(plan: SearchPlan) -> int:
    return plan.validations * len(plan.env.validation) + plan.examples * (1 + plan.rounds * plan.width)


@pytest.mark.parametrize("rounds,width,examples", [(200, 8, 50), (10, 5, 100), (7, 64, None), (1, 1, 1)])
def test_plans_keep_within_the_limit(rounds: int, width: int, examples: int | None) -> None:
    for most in [*range(SMALLEST, 200), 300, 1000, 5000, 50_000]:
        plan = fit(limited(task_calls=most), ENV, rounds, width, examples)
        assert worst_case(plan) <= most, most
        assert plan.rounds <= rounds and plan.width <= width and plan.examples <= (examples or 80)
        assert plan.rounds >= 1 and plan.validations >= 2


def test_small_budgets_buy_two_rounds_and_most_of_the_budget_is_used() -> None:
    for most in (150, 200, 300):
        plan = fit(limited(task_calls=most), ENV, 200, 8, 50)
        assert plan.rounds >= 2 and plan.width >= 3 and plan.examples >= 8
        assert worst_case(plan) > 0.85 * most


def test_a_generous_budget_gives_the_wanted_sizes() -> None:
    plan = fit(limited(task_calls=1_000_000), ENV, 200, 8, 50)
    assert (plan.rounds, plan.width, plan.examples) == (200, 8, 50)
    free = fit(MemoryRun(), ENV, 200, 8, 50)
    assert (free.rounds, free.width, free.examples) == (200, 8, 50)
    assert free.env.validation == ENV.validation


def test_optimizer_calls_bound_the_rounds() -> None:
    plan = fit(limited(optimizer_calls=20), ENV, 200, 8, 50)
    assert 10 <= plan.rounds * plan.width <= 20
    assert plan.rounds >= 2
    assert fit(limited(optimizer_calls=0), ENV, 200, 8, 50).rounds == 0
    assert fit(limited(optimizer_calls=0), ENV, 10, 5, 50, asks=0).rounds == 10


def test_all_calls_are_shared_with_the_optimizer() -> None:
    assert share_out(limited(calls=100), ENV, 5, 3).asks == 15
    assert share_out(limited(calls=100, task_calls=40), ENV, 5, 3).asks == 45
    assert share_out(limited(calls=100, optimizer_calls=8), ENV, 5, 3).asks == 6
    for most in (40, 150, 300, 2000):
        plan = fit(limited(calls=most), ENV, 200, 8, 50)
        assert worst_case(plan) + plan.rounds * plan.width <= most


def test_a_small_budget_cuts_the_validation_split_reproducibly() -> None:
    cut = [share_out(limited(task_calls=60), ENV, 5, 3).env.validation for _ in range(2)]
    assert cut[0] == cut[1]
    assert len(cut[0]) == 12
    assert set(e.id for e in cut[0]) < set(e.id for e in ENV.validation)


def test_every_call_of_a_rollout_is_counted() -> None:
    scored = replace(ENV, reward=ConstantReward(0.5, needs=frozenset({"target_score"})))
    assert payable_rollouts(limited(task_calls=100), scored, writes=False) == 50

    class Judged(ConstantReward):
        judge_calls = 3

    judged = replace(ENV, reward=Judged(0.5))
    assert payable_rollouts(limited(calls=100), judged, writes=False) == 25
    assert payable_rollouts(limited(calls=100), judged, writes=True) == 20
    assert payable_rollouts(limited(judge_calls=100), judged, writes=True) == 33
    assert payable_rollouts(limited(tokens=5, cost_usd=1), judged, writes=True) is None


async def test_leaders_and_finalists_share_the_planned_validations() -> None:
    run, archive = MemoryRun({"task": ENV.model}), Archive()
    share = SearchPlan(ENV, 100, None, 4, 2)
    prompts = [Candidate(Prompt.parse(f"Sort {i}.")) for i in range(9)]
    await archive.validate(run, ENV, prompts[:1])
    for prompt in prompts[1:4]:
        await validate_leader(run, share, archive, prompt)
    assert len(archive.validated) == 2
    best = await validate_finalists(run, share, archive, prompts)
    assert len(archive.validated) == 4
    assert best.prompt.id in archive.validated


def test_words_come_from_the_model_or_from_the_data() -> None:
    rows = tuple(
        Example(str(i), {}, text=t) for i, t in enumerate(["The red fox", "the red, red hen", "A dog 42"])
    )
    assert vocabulary(replace(ENV, train=rows), 3) == ["red", "the", "dog"]

    class Wordy:
        def vocabulary(self, n: int) -> list[str]:
            return ["alpha", "beta", "gamma"][:n]

    assert vocabulary(replace(ENV, model=Wordy()), 2) == ["alpha", "beta"]  # type: ignore[arg-type]


def test_a_group_is_not_cut_below_what_can_be_compared() -> None:
    for most in range(SMALLEST, 300):
        plan = fit(limited(task_calls=most), ENV, 60, 8, 16, asks=0, least=3)
        assert worst_case(plan) <= most, most
        assert plan.width >= 3, "rather no round at all"
    assert fit(limited(task_calls=SMALLEST), ENV, 60, 8, 16, asks=0, least=3).rounds == 0
    assert fit(limited(task_calls=60), ENV, 60, 8, 16, asks=0, least=3).rounds > 0
    assert fit(limited(task_calls=60), ENV, 60, 2, 16, asks=0, least=3).width == 2, (
        "never more than is wanted"
    )
