"""Advantages against numbers worked out by hand, their limiting cases, and defects that published code has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.rl import advantages as a
from whet.rl import certainty, erpo

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
def test_equal_rewards_teach_nothing_but_in_rl_zvp(value: float) -> None:
    rewards = [value] * 3
    assert a.grpo(rewards) == a.dr_grpo(rewards) == a.rloo(rewards) == [0.0, 0.0, 0.0]
    rows = a.rl_zvp(rewards, [[1.0, 2.0], [0.5], [0.3, 0.1]], alpha=0.1)
    assert any(value for row in rows for value in row)


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


def test_returns_to_go_by_hand() -> None:
    assert a.returns_to_go([1.0, 0.0, 2.0], gamma=0.5) == [1.5, 1.0, 2.0]
    assert a.returns_to_go([0.0, 0.0, 1.0]) == [1.0, 1.0, 1.0]
    assert a.returns_to_go([]) == []


def test_reinforce_pp_whitens_over_all_valid_tokens_of_the_batch() -> None:
    # returns to go: 1 1 | 0; mean 2/3, squared deviations 1/9 1/9 4/9, variance with n - 1: 1/3
    found = a.reinforce_pp([[0.0, 1.0], [0.0]])
    scale = math.sqrt(1 / 3)
    assert found[0] == pytest.approx([1 / 3 / scale] * 2)
    assert found[1] == pytest.approx([-2 / 3 / scale])


def test_whitening_a_constant_or_a_single_number_gives_zero() -> None:
    assert a.whiten([[0.4, 0.4], [0.4]]) == [[0.0, 0.0], [0.0]]
    assert a.whiten([[5.0]]) == [[0.0]]


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=2, max_size=4))
def test_whitened_numbers_have_mean_zero_and_variance_one(rows: list[list[float]]) -> None:
    flat = [value for row in a.whiten(rows) for value in row]
    assert sum(flat) == pytest.approx(0, abs=1e-6)
    if not a.equal([value for row in rows for value in row]):
        assert sum(v * v for v in flat) / (len(flat) - 1) == pytest.approx(1, rel=1e-6)


def test_reinforce_pp_baseline_by_hand() -> None:
    # r - mean: +.5 (two tokens), -.5 (one token), 0 (one token); mean .125, variance with n - 1 over four tokens
    found = a.reinforce_pp_baseline([[1.0, 0.0], [0.3]], [[2, 1], [1]])
    deviations = [0.375, 0.375, -0.625, -0.125]
    scale = math.sqrt(sum(d * d for d in deviations) / 3)
    flat = [value for row in found for value in row]
    assert [len(row) for row in found] == [2, 1, 1]
    assert flat == pytest.approx([d / scale for d in deviations])


def test_remax_takes_the_greedy_reward_off() -> None:
    assert a.remax([0.0, 1.0], greedy=0.4) == pytest.approx([0.6, 0.6])
    assert a.remax([0.0, 0.4], greedy=0.4) == pytest.approx([0.0, 0.0])


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
    to_go = a.returns_to_go(rewards, 0.9)
    assert full == pytest.approx([g - v for g, v in zip(to_go, values, strict=True)])
    assert returns == pytest.approx(to_go)


def test_rl_zvp_is_grpo_where_rewards_differ() -> None:
    rows = a.rl_zvp([1.0, 0.0], [[1.0, 2.0], [3.0]], alpha=0.1)
    first, second = a.grpo([1.0, 0.0])
    assert rows == [[first, first], [second]]


def test_rl_zvp_encourages_unsure_tokens_of_right_answers() -> None:
    assert a.rl_zvp([1.0, 1.0], [[1.0, 2.0], [0.5]], alpha=0.1) == [[0.1, 0.2], [0.05]]


def test_rl_zvp_spares_the_most_unsure_token_of_a_wrong_answer() -> None:
    rows = a.rl_zvp([0.0, 0.0], [[1.0, 3.0, 2.0], [0.5]], alpha=0.1)
    assert rows[0] == pytest.approx([-0.2, 0.0, -0.1])
    assert rows[1] == [0.0]  # a single token is its own maximum


def test_rl_zvp_judges_a_group_of_one_by_its_reward() -> None:
    assert a.rl_zvp([0.9], [[2.0]], alpha=0.5) == [[1.0]]
    assert a.rl_zvp([0.2], [[2.0, 1.0]], alpha=0.5) == [[0.0, -0.5]]


def test_dynamic_sampling_keeps_the_groups_that_differ() -> None:
    assert a.dynamic_sampling([[1.0, 1.0], [0.0, 1.0], [0.0], [0.2, 0.3]]) == [1, 3]


def test_dro_takes_the_value_that_its_loss_wants() -> None:
    # V = mean(1 - .1 * 2, 0 - .1 * -1) = mean(.8, .1) = .45
    assert a.dro_advantages([1.0, 0.0], [2.0, -1.0], tau=0.1) == pytest.approx([0.55, -0.45])
    assert a.dro_advantages([0.3], [0.0], tau=0.1) == [0.0]


def test_erpo_heats_what_is_always_right_and_forgets_at_the_first_wrong_answer() -> None:
    visits = 0
    for _ in range(3):
        visits = erpo.erpo_visits(visits, [1.0, 0.8])
    assert visits == 3
    assert erpo.erpo_temperature(1.0, visits, step=0.1, hottest=1.5) == pytest.approx(1.3)
    assert erpo.erpo_temperature(1.0, 50, step=0.1, hottest=1.5) == 1.5
    assert erpo.erpo_temperature(2.0, 50, step=0.1, hottest=1.5) == 2.0
    assert erpo.erpo_visits(visits, [1.0, 0.4]) == 0
    assert erpo.erpo_temperature(1.0, 0) == 1.0


def test_erpo_brings_a_group_that_is_all_right_back_to_life() -> None:
    assert erpo.erpo_reactivated([1.0, 1.0], penalty=0.1) == pytest.approx([1.0, 1.0, 0.9])
    assert a.grpo(erpo.erpo_reactivated([1.0] * 3, 0.1), eps=0.0)[:3] == pytest.approx([0.5] * 3)
    assert a.dr_grpo(erpo.erpo_reactivated([1.0] * 3, 0.1))[:3] == pytest.approx([0.025] * 3)


def test_erpo_leaves_wrong_and_mixed_groups_alone() -> None:
    assert erpo.erpo_reactivated([0.0, 0.0]) == [0.0, 0.0]
    assert erpo.erpo_reactivated([1.0, 0.0]) == [1.0, 0.0]


def test_r3_weighs_the_tokens_that_the_texts_disagree_about() -> None:
    # deviations of the columns: 0, 1, 3 -> weights 0, 1/4, 3/4
    certainties = [[-1.0, -1.0, 0.0], [-1.0, -3.0, -6.0]]
    assert certainty.r3_weights(certainties) == pytest.approx([0.0, 0.25, 0.75])
    assert certainty.r3(certainties) == pytest.approx([-0.25, -0.75 - 4.5])
    assert certainty.r3(certainties, [-1.0, -2.0, -2.0]) == pytest.approx([0.25 + 1.5, -0.25 - 3.0])


def test_r3_without_disagreement_weighs_all_tokens_alike() -> None:
    assert certainty.r3_weights([[-1.0, -2.0], [-1.0, -2.0]]) == [0.5, 0.5]
    assert certainty.r3([[-1.0, -2.0]]) == [-1.5]


def test_r3_filter_drops_questions_whose_certainty_does_not_vary() -> None:
    assert certainty.r3_filter([[[-1.0], [-1.0]], [[-1.0], [-3.0]]], least=0.5) == [1]
