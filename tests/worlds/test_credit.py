"""Credit per turn, by hand."""

from __future__ import annotations

import math

import pytest

from whet.worlds import returns_to_go, turn_advantages


def test_returns_to_go_by_hand() -> None:
    # 3; 2 + 0.5 * 3; 1 + 0.5 * 3.5
    assert returns_to_go([1.0, 2.0, 3.0], 0.5) == [2.75, 3.5, 3.0]


def test_without_discount_every_turn_sees_all_that_follows() -> None:
    assert returns_to_go([0.0, -1.0, 20.0]) == [19.0, 19.0, 20.0]
    assert returns_to_go([]) == []


def test_with_discount_zero_every_turn_has_its_own_reward() -> None:
    assert returns_to_go([1.0, 2.0, 3.0], 0.0) == [1.0, 2.0, 3.0]


def test_advantages_by_hand() -> None:
    # to go: [3, 2], [1, 1], [2]; means: 2 at the first turn, 1.5 at the second
    found = turn_advantages([[1.0, 2.0], [0.0, 1.0], [2.0]])
    assert found == [[1.0, 0.5], [-1.0, -0.5], [0.0]]


def test_advantages_divided_by_the_deviation_by_hand() -> None:
    # to go 3, 1, 2: mean 2, sample deviation 1
    found = turn_advantages([[3.0], [1.0], [2.0]], scale=True)
    assert found == [[pytest.approx(1 / (1 + 1e-6))], [pytest.approx(-1 / (1 + 1e-6))], [0.0]]


def test_one_turn_is_the_group_advantage() -> None:
    rewards = [0.2, 0.9, 0.4, 0.5]
    mean = sum(rewards) / 4
    spread = math.sqrt(sum((r - mean) ** 2 for r in rewards) / 3) + 1e-6
    plain = turn_advantages([[r] for r in rewards])
    scaled = turn_advantages([[r] for r in rewards], scale=True)
    assert [a[0] for a in plain] == pytest.approx([r - mean for r in rewards])
    assert [a[0] for a in scaled] == pytest.approx([(r - mean) / spread for r in rewards])


def test_a_turn_that_only_one_reached_keeps_its_last_comparison() -> None:
    # to go: [2, 2, 1], [0]: first turn +1 and -1, then nothing to compare with
    assert turn_advantages([[0.0, 1.0, 1.0], [0.0]]) == [[1.0, 1.0, 1.0], [-1.0]]
    assert turn_advantages([[1.0, 1.0]]) == [[0.0, 0.0]]


def test_equal_rewards_give_no_advantage() -> None:
    assert turn_advantages([[1.0, 0.5]] * 3, scale=True) == [[0.0, 0.0]] * 3
    assert turn_advantages([]) == []


def test_advantages_of_a_full_turn_sum_to_zero() -> None:
    group = [[0.3, 1.0], [0.1, -2.0], [0.7, 0.25]]
    for turn in zip(*turn_advantages(group, 0.9), strict=True):
        assert sum(turn) == pytest.approx(0.0, abs=1e-12)
