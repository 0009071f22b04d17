"""Diversity by determinant: the kernel by hand, who survives, and what the bandit learns."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import cast

import pytest

from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.search.diversity import (
    DiversityBandit,
    Survival,
    behaviour_kernel,
    diverse_members,
    population_diversity,
)
from whet.search.population import Individual, fittest
from whet.types import Score


def member(name: str, rewards: Sequence[float], rows: str = "abcd") -> Individual[str]:
    """A member with a reward on each row."""
    score = Score(sum(rewards) / len(rewards), len(rewards), rewards=dict(zip(rows, rewards, strict=True)))
    return Individual(Candidate(Prompt.parse(name), score=score), name, score.mean)


def names(members: Sequence[Individual[str]]) -> list[str]:
    return [one.genome for one in members]


LEFT, ALIKE, RIGHT = (
    member("left", [1, 1, 0, 0]),
    member("alike", [1, 1, 0, 0]),
    member("right", [0, 0, 0.9, 0.9]),
)


def test_the_determinant_by_hand() -> None:
    """Rewards 1, 1 against 0, 1: mean squared distance 1/2, so K_12 = e^-0.5 and det K = 1 - e^-1."""
    assert behaviour_kernel([[1, 1], [0, 1]])[0, 1] == pytest.approx(math.exp(-0.5))
    two = [member("a", [1, 1], "ab"), member("b", [0, 1], "ab")]
    assert population_diversity(two) == pytest.approx(1 - math.exp(-1))
    assert population_diversity([LEFT, ALIKE, RIGHT]) == pytest.approx(0.0, abs=1e-9), "two behave alike"
    assert population_diversity([LEFT]) == 1.0


def test_a_member_that_behaves_otherwise_survives_a_fitter_copy() -> None:
    pool = [LEFT, ALIKE, RIGHT, member("worst", [0, 0, 0.1, 0.1])]
    assert names(diverse_members(pool, 2, 0.0)) == names(fittest(pool, 2)) == ["left", "alike"]
    assert names(diverse_members(pool, 2, 0.5)) == ["left", "right"]


def test_rewards_of_another_range_have_the_same_diversity() -> None:
    wide = [member("a", [10, 10], "ab"), member("b", [0, 10], "ab")]
    assert population_diversity(wide, span=10.0) == pytest.approx(1 - math.exp(-1))


def test_without_common_rows_fitness_decides() -> None:
    pool = [LEFT, member("other", [0.9, 0.9], "xy"), RIGHT]
    assert names(diverse_members(pool, 2, 0.5)) == ["other", "left"]


def test_the_bandit_counts_what_a_choice_led_to() -> None:
    """The best rewards of seven generations: the sixth beats the five before it, the seventh ties. A tie counts one half."""
    bandit = DiversityBandit(choices=[0, 0, 0, 0, 1, 0], best=[0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3])
    assert bandit.posterior(1) == (2.0, 1.0)
    assert bandit.posterior(0) == (1.5, 1.5)


def test_the_bandit_learns_which_weight_pays() -> None:
    rng, bandit, best = random.Random(0), DiversityBandit(), 0.0
    bandit.observe(best)
    for _ in range(60):
        weight = bandit.choose(rng)
        best = best + 0.01 if weight else best
        bandit.observe(best if weight else best - 0.01)
    assert sum(bandit.choices[-20:]) > 15


async def test_survival_logs_weight_and_determinant_and_none_is_fitness_alone() -> None:
    run = MemoryRun(seed=0)
    assert names(Survival("none", 1.0).choose(run, [LEFT], [ALIKE, RIGHT], 2)) == ["left", "alike"]
    assert not run.logged
    worst = member("worst", [0, 0, 0.1, 0.1])
    assert names(Survival("half", 1.0).choose(run, [LEFT, worst], [ALIKE, RIGHT], 2)) == ["left", "right"]
    ((name, figures),) = cast("list[tuple[str, dict[str, float]]]", run.logged)
    assert name == "diversity" and figures["weight"] == 0.5 and figures["determinant"] > 0.5
