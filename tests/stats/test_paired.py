"""The fixed-sample test: against scipy and by enumeration, its symmetries, its interval, its errors and its power."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from operator import mul

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from whet.stats.paired import EXACT, FLIPS, GUARDED, clusters_of, gaffke, p_value, paired_test

Array = NDArray[np.float64]
GRADED = st.lists(st.sampled_from([-0.5, -0.25, -0.1, 0.0, 0.1, 0.2, 0.3, 0.7]), min_size=2, max_size=11)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 200))
@settings(max_examples=60)
def test_right_or_wrong_rewards_get_the_exact_test_of_mcnemar(wins: int, losses: int, ties: int) -> None:
    d = [1.0] * wins + [-1.0] * losses + [0.0] * (ties + (wins + losses == 0))
    expected = stats.binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert p_value(d) == pytest.approx(expected, abs=1e-5)
    assert p_value(d) == pytest.approx(expected, rel=1e-4, abs=1e-9) or expected > 0.5


@given(GRADED, st.integers(1, 3), st.sampled_from([0.0, 0.04]))
@settings(max_examples=60)
def test_the_p_value_is_the_share_of_all_flips_of_whole_clusters(
    values: list[float], size: int, effect: float
) -> None:
    clusters = [i // size for i in range(len(values))]
    sums = [
        math.fsum(d - effect for d, c in zip(values, clusters, strict=True) if c == k)
        for k in range(clusters[-1] + 1)
    ]
    signs = list(product((1, -1), repeat=len(sums)))
    roots = [math.copysign(abs(x) ** 0.5, x) if effect == 0 else 0.0 for x in sums]

    def order(flip: tuple[int, ...]) -> tuple[float, float]:
        return tuple(round(sum(map(mul, flip, values)), 9) for values in (sums, roots))  # type: ignore[return-value]

    hits = sum(order(flip) >= order(signs[0]) for flip in signs)
    test = paired_test(values, clusters, effect)
    assert test.clusters == len(sums)
    if test.method == FLIPS:
        assert test.p_value == pytest.approx(hits / len(signs))
    else:
        assert test.p_value >= hits / len(signs) - 1e-9


def test_the_order_of_studentised_means_is_that_of_the_sums() -> None:
    d = np.array([0.1, 0.3, -0.05, 0.22, 0.4, -0.11, 0.09])
    observed = stats.ttest_1samp(d, 0).statistic
    flips = [stats.ttest_1samp(d * signs, 0).statistic for signs in product((1, -1), repeat=len(d))]
    assert p_value(d) == pytest.approx(np.mean(np.array(flips) >= observed - 1e-12))


@pytest.mark.parametrize(
    ("n", "hits", "mean"), [(20, 17, 0.6), (50, 48, 0.9), (10, 10, 0.7), (200, 150, 0.68)]
)
def test_gaffkes_bound_is_clopper_pearson_for_two_values(n: int, hits: int, mean: float) -> None:
    values = np.array([1.0] * hits + [0.0] * (n - hits)) - mean
    assert gaffke(values, -mean) == pytest.approx(stats.binom.sf(hits - 1, n, mean), abs=1e-8)


@pytest.mark.parametrize(
    ("wins", "losses", "ties"),
    [(29, 0, 31), (30, 0, 0), (60, 0, 0), (100, 10, 100), (500, 0, 0), (900, 50, 50), (1000, 1, 9)],
)
def test_the_smallest_p_values_are_mcnemars_too(wins: int, losses: int, ties: int) -> None:
    test = paired_test([1.0] * wins + [-1.0] * losses + [0.0] * ties)
    exact = stats.binom.sf(wins - 1, wins + losses, 0.5)
    assert test.method == EXACT and test.p_value == pytest.approx(exact, rel=1e-9, abs=0.0)


@settings(max_examples=40)
@given(st.integers(1, 400), st.integers(1, 400), st.floats(0.02, 1.0), st.floats(0.02, 1.0))
def test_small_chances_of_unequal_values_are_right_by_hand(m: int, k: int, a: float, b: float) -> None:
    """P(a G_m + b G_k <= E) = (1 + a)^-m (1 + b)^-k, G of the gamma and E of the exponential distribution."""
    exact = math.exp(-m * math.log1p(a) - k * math.log1p(b))
    assert gaffke(np.repeat([a, b], [m, k]), -1.0) == pytest.approx(
        exact, rel=1e-7, abs=1e-305 if exact < 9e-4 else 1e-6
    )


@pytest.mark.parametrize("n", [3, 20, 150])
def test_gaffkes_bound_is_the_chance_that_a_dirichlet_mean_is_at_most_zero(n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.normal(0.1, 0.2, n)
    weights = rng.exponential(size=(100_000, n + 1))
    drawn = (weights[:, :n] @ values - 0.9 * weights[:, n] <= 0).mean()
    assert gaffke(values, -0.9) == pytest.approx(drawn, abs=0.007)
    assert gaffke(np.zeros(3), 0.0) == 1.0
    assert gaffke(np.ones(9000), -1.0) == 0.0
    assert gaffke(-np.ones(9000), -1.0) == 1.0


@given(GRADED | st.lists(st.floats(-1, 1), min_size=1, max_size=25), st.sampled_from([0.0, 0.05]))
@settings(max_examples=40, deadline=None)
def test_interval_p_value_order_and_mirror_agree(values: list[float], effect: float) -> None:
    test = paired_test(values, minimum_effect=effect, alpha=0.1, draws=999)
    assert test.low >= effect if test.p_value <= 0.05 else test.low <= effect
    assert -1 <= test.low <= test.difference + 1e-9
    assert test.difference - 1e-9 <= test.high <= 1
    assert paired_test(values[::-1], minimum_effect=effect, alpha=0.1, draws=999) == test
    if effect == 0:
        mirrored = paired_test([-v for v in values], alpha=0.1, draws=999)
        assert (mirrored.low, mirrored.high) == (-test.high, -test.low)


def test_drawn_flips_are_repeatable_and_close_to_the_t_test() -> None:
    d = np.random.default_rng(3).normal(0.02, 0.1, 60)
    test, t = paired_test(d), stats.ttest_1samp(d, 0, alternative="greater")
    assert test == paired_test(d)
    assert test.p_value == pytest.approx(t.pvalue, abs=0.003)
    ends = stats.t.interval(0.95, 59, d.mean(), stats.sem(d))
    assert (test.low, test.high) == pytest.approx(ends, abs=0.002)


def test_ties_alone_exclude_large_differences_only() -> None:
    """As Clopper and Pearson: no difference in 20 rows excludes what happens in more than 16.8% of them."""
    test = paired_test([0.0] * 20)
    assert (test.low, test.high) == pytest.approx((-0.16843, 0.16843), abs=1e-4)
    assert test.p_value == 1.0


def test_what_is_tested_how() -> None:
    assert paired_test([1, 0, 0, -1, 1]).method == EXACT
    assert paired_test([1, 0, 0, -1, 1], [0, 0, 1, 2, 3]).method != EXACT
    assert paired_test([0.1, 0.2, 0.0, -0.1, 0.2, 0.05]).method == FLIPS
    assert paired_test([0.1] * 30 + [-0.9]).method == GUARDED
    assert paired_test([0.05] * 20).method == GUARDED, (
        "a sample without any spread shows nothing of its tails"
    )
    assert p_value([0.05] * 20) > 0.3


def test_rows_of_a_group_and_equal_requests_are_one_cluster() -> None:
    assert clusters_of(["a", "b", "a", "c"], [None] * 4) == [0, 1, 0, 2]
    assert clusters_of(["a", "b", "c", "d"], ["x", "y", "x", None]) == [0, 1, 0, 2]
    assert clusters_of(["a", "b", "a", "c", "d"], ["x", "y", "y", "z", None]) == [0, 0, 0, 1, 2]


def test_copies_of_a_row_are_no_evidence() -> None:
    d = [1.0] * 9 + [-1.0] * 3 + [0.0] * 8
    copies = paired_test(np.repeat(d, 5), list(np.repeat(range(20), 5)))
    assert p_value(np.repeat(d, 5)) < 0.001
    assert copies.clusters == 20
    assert copies.p_value == pytest.approx(p_value(d), abs=1e-6)


RUNS = 400
Sampler = Callable[[np.random.Generator], tuple[Array, "NDArray[np.int64] | None"]]


def _copied(rows: int, copies: int) -> Sampler:
    def sample(rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
        return np.repeat(rng.choice([-1.0, 0.0, 1.0], rows), copies), np.repeat(np.arange(rows), copies)

    return sample


def _conversations(rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    shared = rng.normal(0, 0.1, (20, 1)) + rng.normal(0, 0.1, (20, 5))
    return shared.ravel(), np.repeat(np.arange(20), 5)


NULLS: dict[str, Sampler] = {
    "20 rows x 5 copies": _copied(20, 5),
    "10 rows x 10 copies": _copied(10, 10),
    "20 conversations x 5 turns": _conversations,
    "ties": lambda rng: (rng.choice([-0.25, 0.0, 0.25], 40, p=[0.1, 0.8, 0.1]), None),
    "skewed to the left": lambda rng: (rng.beta(5, 1, 40) - 5 / 6, None),
    "rare large losses": lambda rng: (np.where(rng.random(100) < 0.9, 0.1, -0.9), None),
    "rare large gains": lambda rng: (np.where(rng.random(100) < 0.9, -0.1, 0.9), None),
}


FEW = ("20 rows x 5 copies", "ties", "rare large losses")


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in NULLS]
)
def test_false_promotions_are_rare(name: str) -> None:
    """At most alpha / 2 = 2.5%: a rate of that passes 16 of 400 (the mean and two standard errors) in 97 of 100 seeds."""
    rng = np.random.default_rng(5)
    hits = sum(p_value(*NULLS[name](rng), draws=999) <= 0.025 for _ in range(RUNS))
    assert hits <= stats.binom.ppf(0.999, RUNS, 0.025)


def test_power_is_that_of_the_t_test() -> None:
    """An effect of 0.05 at a standard deviation of 0.05: the t-test has a power of 80% at 10 rows."""
    rng = np.random.default_rng(6)
    samples = [rng.normal(0.05, 0.05, 11) for _ in range(RUNS)]
    power = np.mean([p_value(d, draws=999) <= 0.025 for d in samples])
    assert power > 0.8 - 3 * 0.02


def test_a_small_alpha_gets_draws_enough_to_be_passed() -> None:
    """After twenty openings of the same rows alpha is below the p-value that 99,999 draws can give."""
    gains = np.random.default_rng(0).uniform(0.2, 0.6, 100)
    test = paired_test(gains, alpha=1e-5)
    assert test.p_value <= 1e-5 / 2 and test.low > 0.2


@pytest.mark.parametrize(
    "differences",
    [
        [0.1, -0.3] * 6,
        [0.1] * 5 + [-0.3] * 3,
        [0.0, 0.3, 0.3, 0.3, 0.0],
        [0, 0, 0, 1 / 3, 0, 0, 2 / 3, 2 / 3],
    ],
)
@pytest.mark.parametrize("minimum", [0.0, 0.1])
def test_no_figure_of_ties_is_out_of_its_range(differences: list[float], minimum: float) -> None:
    """A p-value is at most 1 although it is a sum of shares, and an end at 0 has no sign. It is no proof: the p-value decides."""
    tested = paired_test(differences, None, minimum, 0.1)
    assert 0.0 < tested.p_value <= 1.0
    assert not any(str(end).startswith("-0.0") and end == 0.0 for end in (tested.low, tested.high))
    if tested.low > minimum:
        assert tested.p_value <= 0.05
    if tested.low < minimum:
        assert tested.p_value > 0.05
