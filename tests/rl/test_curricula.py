"""Curricula: who is chosen, what is learned from an attempt, and the trap of a single rollout."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.rl import curricula as c


def test_uniform_takes_different_examples_and_no_more_than_there_are() -> None:
    chosen = c.uniform(random.Random(0), 10, 4)
    assert len(set(chosen)) == 4 and set(chosen) <= set(range(10))
    assert sorted(c.uniform(random.Random(0), 3, 9)) == [0, 1, 2]


def test_mopps_counts_successes_and_failures_by_hand() -> None:
    assert c.mopps_update((1.0, 1.0), 0.75, 4) == (4.0, 2.0)
    assert c.mopps_update((4.0, 2.0), 0.0, 4) == (4.0, 6.0)


def test_mopps_forgets_towards_the_prior() -> None:
    # .5 * 5 + .5 * 1 + 1 = 4;  .5 * 3 + .5 * 1 + 1 = 3
    assert c.mopps_update((5.0, 3.0), 0.5, 2, decay=0.5) == (4.0, 3.0)


@pytest.mark.parametrize(("rate", "expected"), [(1.0, (2.0, 1.0)), (0.0, (1.0, 2.0))])
def test_mopps_counts_one_rollout_as_one(rate: float, expected: tuple[float, float]) -> None:
    assert c.mopps_update((1.0, 1.0), rate, 1) == expected
    assert c.mopps_update((3.0, 4.0), rate, 0) == (3.0, 4.0)


@given(st.floats(0, 1), st.integers(0, 9), st.floats(0, 1))
def test_mopps_counts_stay_positive_and_add_up(rate: float, rollouts: int, decay: float) -> None:
    alpha, beta = c.mopps_update((2.0, 3.0), rate, rollouts, decay)
    assert alpha > 0 and beta > 0
    assert alpha + beta == pytest.approx(decay * 5 + (1 - decay) * 2 + rollouts)


def test_mopps_prefers_examples_of_middling_difficulty() -> None:
    counts = [(900.0, 100.0), (500.0, 500.0), (100.0, 900.0), (510.0, 490.0)]
    assert sorted(c.mopps(random.Random(1), counts, 2)) == [1, 3]


def test_mopps_with_a_band_takes_those_within_it_before_the_nearest() -> None:
    counts = [(350.0, 650.0), (5000.0, 5000.0), (990.0, 10.0), (800.0, 200.0)]
    within = c.mopps(random.Random(0), counts, 2, band=(0.3, 0.4))
    assert within[0] == 0  # the only one within
    assert within[1] == 1  # then the nearest to one half
    assert len(set(c.mopps(random.Random(0), counts, 3, band=(0.3, 0.7)))) == 3


def test_mopps_looks_only_at_its_pool() -> None:
    counts = [(1.0, 1.0)] * 50
    rng = random.Random(3)
    pool = set(c.uniform(random.Random(3), 50, 4))
    assert set(c.mopps(rng, counts, 2, pool=2)) <= pool


def test_pcl_takes_predictions_near_one_half() -> None:
    assert sorted(c.pcl(random.Random(0), [0.9, 0.45, 0.1, 0.6], 2)) == [1, 3]


def test_pcl_knows_nothing_at_first() -> None:
    assert c.pcl_value([0.0] * c.FEATURES, c.pcl_features("any words at all")) == 0.5


def test_pcl_update_by_hand() -> None:
    # V = .5, slope (.5 - 1) * .25 = -.125
    assert c.pcl_update([0.0, 0.0], [{0: 1.0, 1: 0.5}], [1.0], lr=2.0) == [0.25, 0.125]


def test_pcl_learns_which_words_are_hard() -> None:
    hard, easy = c.pcl_features("reverse everything twice"), c.pcl_features("copy this")
    weights = [0.0] * c.FEATURES
    for _ in range(200):
        weights = c.pcl_update(weights, [hard, easy], [0.1, 0.9], lr=4.0)
    assert c.pcl_value(weights, hard) == pytest.approx(0.1, abs=0.1)
    assert c.pcl_value(weights, easy) == pytest.approx(0.9, abs=0.1)
    assert c.pcl_update(weights, [hard], [c.pcl_value(weights, hard)]) == weights  # nothing to learn


def test_features_do_not_depend_on_order_or_case_and_have_length_one() -> None:
    found = c.pcl_features("Alpha beta GAMMA")
    assert found == c.pcl_features("gamma, alpha; BETA")
    assert sum(x * x for place, x in found.items() if place) == pytest.approx(1)
    assert c.pcl_features("") == {0: 1.0}
