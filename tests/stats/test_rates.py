"""Rates of rare events: Newcombe's published example; the binomial tail and the quantiles of Student's t against scipy."""

from __future__ import annotations

import pytest
from scipy import stats

from whet.stats.rates import newcombe, pass_at_k, student_quantile, tail, wilson


def test_the_example_of_newcombe() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 873-890), table II, method 10: 56/70 against 48/80."""
    assert newcombe((56, 70), (48, 80)) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert newcombe((0, 0), (1, 2)) == (0.0, -1.0, 1.0)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 5, 300])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.4, 1.0])
def test_the_tail_is_that_of_the_binomial_distribution(n: int, rate: float) -> None:
    for hits in {0, 1, n // 2, n}:
        assert tail(hits, n, rate) == pytest.approx(float(stats.binom.sf(hits - 1, n, rate)), abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 30, 31, 999, 1000, 1001, 10**6])
def test_the_quantiles_of_student_are_exact(freedom: int) -> None:
    for level in (0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.995, 0.9999):
        wanted = float(stats.t.ppf(level, freedom))
        assert student_quantile(level, freedom) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_pass_at_k_by_hand_and_without_bias() -> None:
    """2 of 5 right: of 10 pairs of answers, 3 have none. Over all draws the mean is 1 - (1 - p)^k; the plain formula's is not."""
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert (pass_at_k(5, 0, 3), pass_at_k(5, 3, 3), pass_at_k(4, 1, 1)) == (0.0, 1.0, 0.25)
    n, k, p = 6, 3, 0.3
    chances = [float(stats.binom.pmf(c, n, p)) for c in range(n + 1)]
    mean = sum(chance * pass_at_k(n, c, k) for c, chance in enumerate(chances))
    plain = sum(chance * (1 - (1 - c / n) ** k) for c, chance in enumerate(chances))
    assert mean == pytest.approx(1 - (1 - p) ** k) and plain < mean - 0.05
    for wrong in ((5, 2, 6), (5, 2, 0), (5, 6, 1)):
        with pytest.raises(ValueError, match="k must be"):
            pass_at_k(*wrong)
