"""Intervals of means and quantiles over clusters: by hand, their symmetries, and how often they cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whet.errors import UsageError
from whet.stats.clustered import mean_interval, quantile_interval

AMOUNTS = st.lists(st.floats(0, 1e6), min_size=2, max_size=40)


@given(AMOUNTS)
def test_without_clusters_it_is_the_interval_of_student(values: list[float]) -> None:
    found = mean_interval(values)
    half = float(stats.sem(values)) * stats.t.ppf(0.975, len(values) - 1)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.high - found.mean == pytest.approx(half, rel=1e-6, abs=1e-6)
    assert found.groups is None and found.n == len(values)


@given(AMOUNTS, st.integers(2, 5))
def test_repeated_rows_of_one_user_are_one_piece_of_evidence(values: list[float], times: int) -> None:
    once = mean_interval(values)
    again = mean_interval(
        [v for v in values for _ in range(times)], [n for n in range(len(values)) for _ in range(times)]
    )
    assert (again.mean, again.low, again.high) == pytest.approx(
        (once.mean, once.low, once.high), rel=1e-9, abs=1e-6
    )
    assert again.groups == len(values)


def test_one_user_alone_tells_nothing_of_the_others() -> None:
    found = mean_interval([1.0, 2.0, 3.0], [7, 7, 7], least=0.0)
    assert (found.mean, found.low, found.high) == (2.0, 0.0, math.inf)


@given(AMOUNTS, st.sampled_from([0.1, 0.5, 0.95]))
def test_a_quantile_is_a_value_between_the_ends_of_its_interval(values: list[float], share: float) -> None:
    found = quantile_interval(values, share, least=0.0)
    assert found.mean in values
    assert 0.0 <= found.low <= found.mean <= found.high
    assert np.mean(np.array(values) <= found.mean) >= share - 1e-9


def test_the_intervals_cover_the_truth_of_users_who_differ() -> None:
    """400 samples of 40 users with 1 to 20 answers each, whose levels differ: simulated."""
    rng = np.random.default_rng(7)
    hits, plain = [0, 0], 0
    for _ in range(400):
        sizes = rng.integers(1, 21, 40)
        users = np.repeat(np.arange(40), sizes)
        values = rng.normal(5.0, 1.0, 40)[users] + rng.normal(0.0, 1.0, len(users))
        one, other = mean_interval(values, users), quantile_interval(values, 0.5, users)
        hits[0] += one.low <= 5.0 <= one.high
        hits[1] += other.low <= 5.0 <= other.high
        alone = mean_interval(values)
        plain += alone.low <= 5.0 <= alone.high
    assert all(0.92 <= h / 400 <= 0.985 for h in hits), hits
    assert plain / 400 < 0.7, "the users do not matter in this simulation"


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: mean_interval([]), "no values"),
        (lambda: mean_interval([1.0, math.nan]), "not a finite number"),
        (lambda: mean_interval([1.0], confidence=1.0), "confidence is 1.0"),
        (lambda: mean_interval([1.0, 2.0], [1]), "1 numbers for 2 rows"),
        (lambda: quantile_interval([1.0], 1.0), "share is 1.0"),
    ],
)
def test_what_cannot_be_is_refused(call: object, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        call()  # type: ignore[operator]
