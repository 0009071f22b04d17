"""The e-process and the confidence sequence: values worked by hand, symmetries, limits."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.errors import UsageError
from whet.stats import EProcess, confidence_sequence
from whet.stats.betting import BETS, LOG_WEIGHTS

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=1, max_size=30)
UNIT = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def test_one_win_and_one_loss_by_hand() -> None:
    weights = np.exp(LOG_WEIGHTS)
    assert weights.sum() == pytest.approx(1)
    assert EProcess().update([1]).e_value == pytest.approx(1 + weights @ BETS)
    assert EProcess().update([1, -1]).e_value == pytest.approx(1 - weights @ BETS**2)


@pytest.mark.parametrize(
    ("differences", "by_hand"),
    [
        ([1], 3 / 2),  # 1 + E[b]
        ([1, 1], 23 / 10),  # 1 + 2 E[b] + E[b^2]
        ([1, -1], 7 / 10),  # 1 - E[b^2]
        ([1, 1, -1], 1),  # 6 * integral of b - 2 b^3 + b^5
        ([1] * 5, 9 + 9 / 28),  # 1 + 5/2 + 10 * 3/10 + 10 * 1/5 + 5 * 1/7 + 3/28
        ([0.5], 5 / 4),
        ([0.0], 1),
    ],
)
def test_the_grid_stands_for_the_beta_2_2_mixture(differences: list[float], by_hand: float) -> None:
    """Under Beta(2, 2), E[b^k] = 6 / ((k + 2)(k + 3)): 1/2, 3/10, 1/5, 1/7, 3/28."""
    assert EProcess().update(differences).e_value == pytest.approx(by_hand, rel=0.005)


@pytest.mark.parametrize("null", [-0.5, 0.0, 0.2, 0.9])
def test_the_expected_e_value_under_the_null_is_one(null: float) -> None:
    """Over all 2^6 sequences of wins and losses with the mean `null`, weighted by their probability."""
    p = (1 + null) / 2
    total = sum(
        math.comb(6, wins)
        * p**wins
        * (1 - p) ** (6 - wins)
        * EProcess(null).update([1] * wins + [-1] * (6 - wins)).e_value
        for wins in range(7)
    )
    assert total == pytest.approx(1)


@given(DIFFERENCES, DIFFERENCES, st.sampled_from([-0.3, 0.0, 0.4]))
def test_batches_in_any_order_give_the_same_e_value(
    first: list[float], second: list[float], null: float
) -> None:
    together = EProcess(null).update(first + second)
    one = EProcess(null).update(first).update(second)
    other = EProcess(null).update(second[::-1]).update(first)
    assert together.n == one.n == len(first) + len(second)
    assert one.log_e_value == pytest.approx(together.log_e_value, abs=1e-9)
    assert other.log_e_value == pytest.approx(together.log_e_value, abs=1e-9)


@given(DIFFERENCES)
def test_a_stronger_claim_has_less_evidence(differences: list[float]) -> None:
    weak, strong = EProcess(0.0).update(differences), EProcess(0.1).update(differences)
    assert strong.log_e_value <= weak.log_e_value + 1e-12


def test_the_e_value_is_finite_and_safe_at_the_extremes() -> None:
    assert EProcess().e_value == 1
    assert math.isfinite(EProcess().update([1.0] * 20_000).e_value)
    assert EProcess().update([-1.0] * 20_000).e_value > 0
    assert EProcess().update([0.0] * 100).e_value == pytest.approx(1)


def test_examples_needed_is_the_smallest_number_that_reaches_the_threshold() -> None:
    wins = EProcess().update([1.0])
    needed = wins.examples_needed(40)
    assert needed == 8
    assert EProcess().update([1.0] * 8).e_value >= 40 > EProcess().update([1.0] * 7).e_value
    mixed = EProcess().update([1, 1, 1, -1, 0, 0, 0, 0, 0, 0])
    again = mixed.examples_needed(40)
    assert again is not None
    repeats = again // 10
    assert EProcess().update([1, 1, 1, -1, 0, 0, 0, 0, 0, 0] * (repeats + 1)).e_value >= 40
    assert EProcess().update([1, 1, 1, -1, 0, 0, 0, 0, 0, 0] * repeats).e_value < 41
    assert EProcess().update([1, -1]).examples_needed(40) is None


@pytest.mark.parametrize("null", [-1.0, 1.0, float("nan")])
def test_a_null_hypothesis_outside_the_range_is_refused(null: float) -> None:
    with pytest.raises(UsageError, match="null is"):
        EProcess(null)


@given(UNIT, st.sampled_from([0.001, 0.05, 0.5]))
def test_the_ends_are_where_the_capital_reaches_the_threshold(values: list[float], alpha: float) -> None:
    low, high = confidence_sequence(values, 0, 1, alpha)
    assert 0 <= low <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= high <= 1
    for end, sign in ((low, 1), (high, -1)):
        if 1e-6 < end < 1 - 1e-6:
            process = EProcess(sign * (2 * end - 1)).update([sign * (2 * v - 1) for v in values])
            assert process.log_e_value == pytest.approx(math.log(2 / alpha), abs=1e-6)


@given(UNIT)
def test_the_confidence_sequence_is_mirrored_with_the_values(values: list[float]) -> None:
    low, high = confidence_sequence(values, 0, 1)
    assert confidence_sequence([1 - v for v in values], 0, 1) == pytest.approx((1 - high, 1 - low), abs=1e-8)


@given(UNIT)
def test_it_widens_as_alpha_falls(values: list[float]) -> None:
    ends = [confidence_sequence(values, 0, 1, alpha) for alpha in (0.5, 0.1, 0.05, 0.001)]
    assert all(a[0] >= b[0] - 1e-9 and a[1] <= b[1] + 1e-9 for a, b in pairwise(ends))


@pytest.mark.parametrize("alpha", [0.0, 1.0, float("nan")])
def test_an_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match="alpha is"):
        confidence_sequence([0.5], 0, 1, alpha)


def test_values_at_the_ends_of_the_range() -> None:
    assert confidence_sequence([0.0] * 5, 0, 1)[0] == 0
    assert confidence_sequence([1.0] * 5, 0, 1)[1] == 1
    assert confidence_sequence([0.0] * 500, 0, 1)[1] < 0.03
    assert confidence_sequence([5e-324, 0.0], 0, 1)[0] == 0


@pytest.mark.parametrize("n", [50, 200, 1000, 20_000])
def test_large_samples_are_within_a_bounded_factor_of_the_t_interval(n: int) -> None:
    """A law of the iterated logarithm forbids the ratio 1; it grows slowly and stays between 1.2 and 2.3."""
    rng = np.random.default_rng(n)
    for values in (rng.beta(5, 3, n), rng.choice([0, 0.5, 1.0], n, p=[0.2, 0.6, 0.2])):
        low, high = confidence_sequence(values, 0, 1)
        expected = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
        assert 1.2 < (high - low) / (expected[1] - expected[0]) < 2.3


def test_twenty_thousand_different_values_take_well_under_a_second() -> None:
    values = np.random.default_rng(0).random(20_000)
    before = time.process_time()
    confidence_sequence(values, 0, 1)
    assert time.process_time() - before < 1.0
