"""The interval of one mean: its range, its symmetries, and Wilson's formula against scipy."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.errors import UsageError
from whet.stats import Interval, difference_interval, interval

GRADED = st.lists(st.floats(0, 1), min_size=1, max_size=40)
BINARY = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40)


def same(found: Interval, expected: Interval, scale: float = 1.0, shift: float = 0.0) -> bool:
    """Whether `found` is `expected` times scale plus shift."""
    ends = [(getattr(found, k), getattr(expected, k) * scale + shift) for k in ("mean", "low", "high")]
    return found.n == expected.n and all(a == pytest.approx(b, abs=1e-8 * scale) for a, b in ends)


@given(GRADED | BINARY)
def test_the_interval_contains_the_mean_and_stays_in_the_range(values: list[float]) -> None:
    found = interval(values, 0, 1)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.n == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))


@given(GRADED | BINARY, st.randoms())
def test_the_order_does_not_matter(values: list[float], random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert interval(shuffled, 0, 1) == interval(values, 0, 1)


@given(GRADED | BINARY, st.sampled_from([0.01, 1.0, 250.0]), st.sampled_from([-40.0, 0.0, 3.0]))
def test_units_do_not_matter(values: list[float], scale: float, shift: float) -> None:
    moved = interval([shift + scale * v for v in values], shift, shift + scale)
    assert same(moved, interval(values, 0, 1), scale, shift) or _on_the_ends(values)


def _on_the_ends(values: list[float]) -> bool:
    """Whether a value is so close to an end of the range that rounding decides between the two formulas."""
    return any(0 < v < 1e-9 or 1 - 1e-9 < v < 1 for v in values)


@given(GRADED | BINARY)
def test_more_confidence_is_a_wider_interval(values: list[float]) -> None:
    narrow, wide = interval(values, 0, 1, 0.8), interval(values, 0, 1, 0.99)
    assert wide.low <= narrow.low + 1e-9
    assert wide.high >= narrow.high - 1e-9


@pytest.mark.parametrize("n", [1, 2, 7, 30, 500])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_right_or_wrong_is_wilsons_interval(n: int, confidence: float) -> None:
    for successes in {0, 1, n // 3, n}:
        expected = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
        found = interval([1.0] * successes + [0.0] * (n - successes), 0, 1, confidence)
        assert found.low == pytest.approx(expected.low, abs=1e-12)
        assert found.high == pytest.approx(expected.high, abs=1e-12)


def test_wilson_is_scaled_to_the_declared_range() -> None:
    assert same(interval([-2, 6, 6], -2, 6), interval([0, 1, 1], 0, 1), 8, -2)


def test_one_graded_value_by_hand() -> None:
    """One value x: K(m) = 1 + E[b](x/m - 1) with E[b] = 1/2 reaches 2/alpha = 40 at m = x/79."""
    found = interval([0.5], 0, 1)
    assert found.low == pytest.approx(0.5 / 79, rel=0.01)
    assert found.high == pytest.approx(1 - 0.5 / 79, rel=0.01)


def test_a_rounding_error_beyond_the_range_is_forgiven() -> None:
    assert interval([1.0 + 1e-12, -1e-12], 0, 1).n == 2


@pytest.mark.parametrize(
    ("values", "low", "high", "confidence", "message"),
    [
        ([], 0, 1, 0.95, "at least one example"),
        ([0.5, 1.5], 0, 1, 0.95, r"Value 1.5 \(position 1\) is not in the declared range"),
        ([0.5, float("nan")], 0, 1, 0.95, "Value nan"),
        ([0.5], 1, 1, 0.95, "low must be below high"),
        ([0.5], 0, float("inf"), 0.95, "not finite"),
        ([0.5], 0, 1, 1.0, "confidence is 1.0"),
    ],
)
def test_unusable_input_is_refused(
    values: list[float], low: float, high: float, confidence: float, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        interval(values, low, high, confidence)


def test_the_interval_of_differences_is_students_with_one_more_row_of_no_difference() -> None:
    values = [0.3, 1.2, -0.4, 0.8, 0.1, 0.6, -0.2, 0.9, 0.5]
    padded = np.array([*values, 0.0])
    half = stats.t.ppf(0.975, 9) * padded.std(ddof=1) / 10**0.5
    expected = padded.mean() - half, padded.mean() + half
    assert difference_interval(values) == pytest.approx(expected, abs=0.005)
    low, high = difference_interval([1.0, 1.0])
    assert low < 0 < high, "two rows that agree prove nothing"


def test_clusters_of_one_value_change_nothing() -> None:
    for values in ([1.0, 0.0, 1.0, 1.0], [0.3, 0.9, 1.0, 0.2]):
        assert interval(values, 0, 1, clusters=[7, 3, 5, 1]) == interval(values, 0, 1)


@pytest.mark.parametrize("values", [[0.0, 1.0] * 5, [0.2, 0.7] * 5, [1.0] * 10])
def test_one_cluster_says_nothing_about_others(values: list[float]) -> None:
    found = interval(values, 0, 1, clusters=[0] * 10)
    assert (found.low, found.high, found.n, found.groups) == (0, 1, 10, 1)


@pytest.mark.parametrize("values", [[1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [0.4, 0.1, 0.9, 1.0, 0.3, 0.8]])
def test_copies_of_every_value_in_its_own_cluster_are_no_evidence(values: list[float]) -> None:
    alone = interval(values, 0, 1)
    copied = interval(
        [v for v in values for _ in range(10)], 0, 1, clusters=[i for i in range(6) for _ in range(10)]
    )
    assert copied.mean == pytest.approx(alone.mean)
    assert copied.low <= alone.low + 1e-9 and copied.high >= alone.high - 1e-9
    assert (copied.n, copied.groups, copied.method) == (60, 6, alone.method)


def test_a_cluster_number_for_every_value_is_needed() -> None:
    with pytest.raises(UsageError, match="clusters has 1 numbers for 2 rows"):
        interval([0.0, 1.0], 0, 1, clusters=[1])


COVERAGE = [  # clusters, their sizes, correlation within a cluster, least coverage
    (30, "equal", 1.0, 0.93),
    (30, "equal", 0.3, 0.92),
    (9, "equal", 1.0, 0.93),
    (5, "equal", 0.5, 0.93),
    (12, "unequal", 0.5, 0.90),
]


@pytest.mark.parametrize(("k", "sizes", "correlation", "least"), COVERAGE)
@pytest.mark.parametrize("mean", [0.5, 0.8])
def test_the_interval_over_clusters_holds_the_mean_about_as_often_as_it_says(
    k: int, sizes: str, correlation: float, least: float, mean: float
) -> None:
    """30 users with 10 equal rows each: Wilson over rows held the mean in 4 of 12 cases."""
    random = np.random.default_rng(7)
    held, times = 0, 600
    for _ in range(times):
        rows = np.full(k, 10) if sizes == "equal" else random.integers(2, 30, k)
        own = random.random(k) < mean
        same_as_cluster = random.random(rows.sum()) < correlation**0.5
        clusters = np.repeat(np.arange(k), rows)
        values = np.where(same_as_cluster, own[clusters], random.random(rows.sum()) < mean)
        found = interval(values.astype(float), 0, 1, clusters=clusters.tolist())
        held += found.low <= mean <= found.high
    assert held / times >= least


def test_clusters_of_independent_values_cost_little() -> None:
    random = np.random.default_rng(3)
    values = (random.random(300) < 0.7).astype(float).tolist()
    clusters = [i // 10 for i in range(300)]
    found, alone = interval(values, 0, 1, clusters=clusters), interval(values, 0, 1)
    assert found.high - found.low < 1.5 * (alone.high - alone.low)


def test_graded_clusters_hold_the_mean() -> None:
    random = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        values = np.repeat(random.beta(1.0, 1.0, 30), 10)
        found = interval(values.tolist(), 0, 1, clusters=[i // 10 for i in range(300)])
        held += found.low <= 0.5 <= found.high
        assert found.method == "confidence sequence"
    assert held >= 95
