"""When training reward and held-out metric part: found when they do, and not by chance."""

from __future__ import annotations

import random

import pytest

from whet.search.over_optimisation import Figure, OverOptimisation, over_optimisation


def series(values: list[float], every: int = 1, first: int = 0) -> list[Figure]:
    return [Figure(first + i * every, v) for i, v in enumerate(values)]


def test_a_reward_that_rises_while_the_metric_falls_is_noticed() -> None:
    found = over_optimisation(series([0.1, 0.3, 0.5, 0.7, 0.9]), series([0.5, 0.6, 0.7, 0.6, 0.4]), n=200)
    assert found == OverOptimisation(2, pytest.approx(0.4), pytest.approx(0.3))
    assert "rose by 0.4 since call 2" in found.warning and "fell by 0.3" in found.warning


@pytest.mark.parametrize(
    ("rewards", "metrics"),
    [
        ([0.1, 0.3, 0.5, 0.7], [0.5, 0.6, 0.7, 0.8]),  # both rise
        ([0.9, 0.7, 0.5, 0.3], [0.8, 0.6, 0.5, 0.3]),  # both fall
        ([0.5] * 4, [0.8, 0.7, 0.5, 0.3]),  # the reward stays
        ([0.1, 0.3, 0.5, 0.7], [0.6] * 4),  # the metric stays
        ([0.1, 0.9], [0.9, 0.1]),  # two are too few
        ([], []),
    ],
)
def test_nothing_is_said_where_they_did_not_part(rewards: list[float], metrics: list[float]) -> None:
    assert over_optimisation(series(rewards), series(metrics), n=200) is None


def test_a_fall_that_may_be_chance_is_not_one() -> None:
    """.60 to .55: on 100 examples 1.96 standard errors are .137, on 1,000 they are .043."""
    rewards, metrics = series([0.1, 0.3, 0.5]), series([0.5, 0.60, 0.55])
    assert over_optimisation(rewards, metrics, n=100) is None
    assert over_optimisation(rewards, metrics, n=1000) is not None


def test_the_range_of_the_metric_counts() -> None:
    """From 60 to 55 on a scale to 100 is what .60 to .55 is; on a scale from 50 to 61 it is a lot."""
    rewards, metrics = series([0.1, 0.3, 0.5]), series([50.0, 60.0, 55.0])
    assert over_optimisation(rewards, metrics, 100, 0.0, 100.0) is None
    assert over_optimisation(rewards, metrics, 100, 50.0, 61.0) is not None


def test_rewards_between_two_metrics_are_averaged() -> None:
    """Rewards at steps 0 to 9, metrics after steps 2, 5 and 9: means 1, 4 and 7.5."""
    found = over_optimisation(
        series([float(i) for i in range(10)]), [Figure(2, 0.9), Figure(5, 0.5), Figure(9, 0.1)], n=500
    )
    assert found is not None
    assert found.rise == pytest.approx(7.5 - 1.0)
    assert (
        over_optimisation(
            series([5.0, 9.0, 1.0, 5.0, 9.0, 1.0]), [Figure(1, 0.9), Figure(3, 0.5), Figure(5, 0.1)], n=500
        )
        is None
    )


def test_false_alarms_are_rare() -> None:
    """Neither changes: over 400 runs of binomial noise, fewer than one in twenty is called parted."""
    alarms = 0
    for seed in range(400):
        rng = random.Random(seed)

        def noise(n: int, rng: random.Random = rng) -> float:
            return sum(rng.random() < 0.6 for _ in range(n)) / n

        rewards = series([noise(32) for _ in range(24)])
        metrics = [Figure(4 * i + 3, noise(100)) for i in range(6)]
        alarms += over_optimisation(rewards, metrics, n=100) is not None
    assert alarms < 20
