"""Advantages against numbers worked out by hand, their limiting cases, and defects that published code has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.rl import advantages as a

NUMBERS = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))
GROUPS = st.lists(NUMBERS, min_size=2, max_size=6)


def test_grpo_by_hand() -> None:
    # mean 0.5, deviations +-.5, std with n - 1: sqrt(4 * .25 / 3) = .57735
    assert a.grpo([1.0, 0.0, 1.0, 0.0], eps=0.0) == pytest.approx([0.866025, -0.866025, 0.866025, -0.866025])
    assert a.grpo([1.0, 0.0], eps=1e-6) == pytest.approx([0.5 / (math.sqrt(0.5) + 1e-6), -0.707106], abs=1e-5)


def test_a_group_of_one_keeps_its_reward_in_grpo_and_rloo_and_gets_nothing_in_dr_grpo() -> None:
    assert a.grpo([0.7], eps=0.0) == [0.7]
    assert a.rloo([0.7]) == [0.7]
    assert a.dr_grpo([0.7]) == [0.0]


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -2.5])
def test_equal_rewards_teach_nothing(value: float) -> None:
    rewards = [value] * 3
    assert a.grpo(rewards) == a.dr_grpo(rewards) == a.rloo(rewards) == [0.0, 0.0, 0.0]


def test_dr_grpo_and_rloo_by_hand() -> None:
    assert a.dr_grpo([3.0, 0.0, 0.0]) == pytest.approx([2.0, -1.0, -1.0])
    assert a.rloo([3.0, 0.0, 0.0]) == pytest.approx([3.0, -1.5, -1.5])  # minus the mean of the other two


def test_rloo_of_two_is_their_difference() -> None:
    assert a.rloo([0.9, 0.4]) == pytest.approx([0.5, -0.5])


@given(GROUPS)
def test_rloo_is_each_reward_minus_the_mean_of_the_others(rewards: list[float]) -> None:
    others = [(sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
    assert a.rloo(rewards) == pytest.approx([r - o for r, o in zip(rewards, others, strict=True)], abs=1e-9)


@given(GROUPS, NUMBERS)
def test_group_baselines_ignore_a_shift_and_sum_to_zero(rewards: list[float], shift: float) -> None:
    for estimate in (a.grpo, a.dr_grpo, a.rloo):
        found = estimate(rewards)
        assert sum(found) == pytest.approx(0, abs=1e-6)
        if not a.equal(rewards):
            assert estimate([r + shift for r in rewards]) == pytest.approx(found, rel=1e-6, abs=1e-6)


def test_whitening_a_constant_or_a_single_number_gives_zero() -> None:
    assert a.whiten([[0.4, 0.4], [0.4]]) == [[0.0, 0.0], [0.0]]
    assert a.whiten([[5.0]]) == [[0.0]]


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=2, max_size=4))
def test_whitened_numbers_have_mean_zero_and_variance_one(rows: list[list[float]]) -> None:
    flat = [value for row in a.whiten(rows) for value in row]
    assert sum(flat) == pytest.approx(0, abs=1e-6)
    if not a.equal([value for row in rows for value in row]):
        assert sum(v * v for v in flat) / (len(flat) - 1) == pytest.approx(1, rel=1e-6)


def test_gae_by_hand() -> None:
    # delta_2 = 1 - .4 = .6; delta_1 = 0 + .5 * .4 - .2 = 0; A_1 = 0 + .5 * .8 * .6
    found, returns = a.gae([0.0, 1.0], [0.2, 0.4], gamma=0.5, lam=0.8)
    assert found == pytest.approx([0.24, 0.6])
    assert returns == pytest.approx([0.44, 1.0])


def test_gae_without_trace_is_the_temporal_difference_and_with_full_trace_the_return_minus_the_value() -> (
    None
):
    rewards, values = [0.5, -1.0, 2.0], [0.3, 0.1, -0.4]
    td, _ = a.gae(rewards, values, gamma=0.9, lam=0.0)
    assert td == pytest.approx([0.5 + 0.9 * 0.1 - 0.3, -1.0 + 0.9 * -0.4 - 0.1, 2.0 + 0.4])
    full, returns = a.gae(rewards, values, gamma=0.9, lam=1.0)
    to_go = [0.5 - 0.9 + 0.81 * 2, -1 + 0.9 * 2, 2.0]
    assert full == pytest.approx([g - v for g, v in zip(to_go, values, strict=True)])
    assert returns == pytest.approx(to_go)


def test_equal_rewards_that_rounding_tells_apart_are_equal() -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last digit; whitened, that digit was all there is."""
    rewards = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]
    assert rewards[0] != rewards[1]
    assert a.grpo(rewards) == a.dr_grpo(rewards) == [0.0, 0.0]
    assert a.whiten([[one] for one in rewards]) == [[0.0], [0.0]]
    assert not a.equal([0.5, 0.5 + 1e-9]) and not a.equal([0.0, 1e-300])
