"""Shares of a bandit: the closed forms against sampling and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet_live.experiments.allocation import (
    ArmTally,
    best_chances,
    density,
    shares,
    top_two,
    track_and_stop,
    with_floor,
)
from whet_live.experiments.definition import AllocationPolicy

ARMS = [ArmTally(200, 100, 100), ArmTally(200, 120, 120), ArmTally(200, 110, 110)]
tallies = st.integers(0, 500).flatmap(
    lambda n: st.integers(0, n).map(lambda hits: ArmTally(n, float(hits), float(hits)))
)


def draws(arms: list[ArmTally], n: int = 200_000) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.stack([rng.beta(*arm.beta, n) for arm in arms])


def test_the_chance_of_being_best_is_that_of_sampling() -> None:
    found = best_chances(ARMS)
    sampled = np.bincount(draws(ARMS).argmax(axis=0), minlength=3) / 200_000
    assert found == pytest.approx(sampled, abs=0.005)


@given(st.lists(tallies, min_size=2, max_size=5))
def test_chances_are_chances(arms: list[ArmTally]) -> None:
    found = best_chances(arms)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0).all()
    for rule in (found, top_two(found), track_and_stop(arms)):
        floored = with_floor(np.asarray(rule), 0.05)
        assert floored.sum() == pytest.approx(1.0)
        assert floored.min() >= 0.05 - 1e-12


def test_equal_arms_get_equal_chances_and_a_certain_best_all() -> None:
    assert best_chances([ArmTally(50, 25, 25)] * 4) == pytest.approx([0.25] * 4)
    sure = best_chances([ArmTally(10_000, 9_000, 9_000), ArmTally(10_000, 1_000, 1_000)])
    assert sure == pytest.approx([1.0, 0.0])


def test_top_two_is_that_of_drawing_until_another_arm_is_best() -> None:
    order = draws(ARMS).argmax(axis=0)
    best = np.bincount(order, minlength=3) / len(order)
    second = np.zeros(3)
    for first in range(3):
        others = np.delete(best, first) / np.delete(best, first).sum()
        second[np.delete(np.arange(3), first)] += best[first] * others
    assert top_two(best_chances(ARMS)) == pytest.approx(0.5 * best + 0.5 * second, abs=0.005)


def test_track_and_stop_is_the_best_of_all_shares() -> None:
    rng = np.random.default_rng(2)
    means, variances = np.array([a.mean for a in ARMS]), np.array([a.variance for a in ARMS])

    def evidence(w: np.ndarray) -> np.ndarray:
        return np.min(
            [
                (means[1] - means[j]) ** 2 / (variances[1] / w[..., 1] + variances[j] / w[..., j])
                for j in (0, 2)
            ],
            axis=0,
        )

    tried = rng.dirichlet([1, 1, 1], 100_000)
    chosen = evidence(track_and_stop(ARMS))
    assert evidence(tried).max() <= chosen * (1 + 1e-9)
    assert evidence(tried).max() >= chosen * 0.97


def test_two_arms_are_shared_by_their_spread() -> None:
    wide, narrow = ArmTally(100, 50, 50), ArmTally(100, 90, 82)
    found = track_and_stop([wide, narrow])
    assert found[0] / found[1] == pytest.approx(np.sqrt(wide.variance / narrow.variance), rel=1e-3)


def test_the_density_is_one() -> None:
    grid = (np.arange(10_000) + 0.5) / 10_000
    assert density(ArmTally(30, 12.5, 9.0), grid).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["thompson", "top_two", "track_and_stop"])
def test_the_first_units_are_shared_evenly(kind: str) -> None:
    policy = AllocationPolicy(kind)  # type: ignore[arg-type]
    assert shares(policy, [ArmTally(9, 9, 9), ArmTally(400, 0, 0)]).tolist() == [0.5, 0.5]
    assert shares(policy, [ArmTally(400, 10, 10)]).tolist() == [1.0]
    assert shares(policy, [ArmTally(400, 100, 100), ArmTally(400, 350, 350)])[1] >= 0.5 - 0.1
