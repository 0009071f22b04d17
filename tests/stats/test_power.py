"""What a number of rows can show, against simulations of the test that decides."""

from __future__ import annotations

import numpy as np
import pytest

from whet.stats import fewest_clusters, opening_alpha, rows_for_gain, smallest_gain
from whet.stats.paired import clusters_for_power, p_value
from whet.stats.power import power

ALPHA = opening_alpha(0.05, 1)


def promoted(rows: int, gain: float, worse: float, runs: int = 300) -> float:
    """The share of samples that the test of the gate decides for the better prompt."""
    rng = np.random.default_rng(rows)
    changes = rng.choice([1.0, -1.0, 0.0], (runs, rows), p=[gain + worse, worse, 1 - gain - 2 * worse])
    return float(np.mean([p_value(one) <= ALPHA / 2 for one in changes]))


@pytest.mark.parametrize(("rows", "worse"), [(8, 0.0), (20, 0.0), (20, 0.1), (60, 0.05)])
def test_the_gate_promotes_the_smallest_gain_in_four_of_five_cases(rows: int, worse: float) -> None:
    gain = smallest_gain(rows, ALPHA, worse)
    assert gain is not None
    assert power(rows, gain, worse, ALPHA) == pytest.approx(0.8, abs=0.01)
    assert promoted(rows, gain, worse) == pytest.approx(0.8, abs=0.07)
    assert promoted(rows, gain / 2, worse) < 0.6


def test_rows_below_the_fewest_show_nothing_and_more_rows_show_less() -> None:
    fewest = fewest_clusters(ALPHA)
    assert smallest_gain(0, ALPHA) is None and smallest_gain(fewest - 1, ALPHA) is None
    gains = [smallest_gain(n, ALPHA, 0.05) for n in (40, 100, 390, 410, 1000)]
    assert gains == sorted(gains, key=lambda gain: -(gain or 2.0)) and gains[-1] is not None


def test_the_rows_for_a_gain_are_the_first_that_show_it() -> None:
    for gain, worse in ((0.1, 0.05), (0.1, 0.0), (0.2, 0.05), (0.9, 0.0)):
        rows = rows_for_gain(gain, ALPHA, worse)
        assert rows is not None and power(rows, gain, worse, ALPHA) >= 0.8 > power(
            rows - 1, gain, worse, ALPHA
        )
    assert rows_for_gain(0.1, ALPHA, 0.05) == 178, (
        "the exact test of McNemar, 15% repaired and 5% broken, one-sided at 2%"
    )
    assert rows_for_gain(1e-6, ALPHA) is None


def test_the_approximation_is_near_the_exact_number() -> None:
    for gain, worse, alpha in ((0.1, 0.05, 0.04), (0.2, 0.05, 0.04), (0.05, 0.05, 0.05), (0.3, 0.1, 0.05)):
        spread = (gain + 2 * worse - gain * gain) ** 0.5
        rows = clusters_for_power(gain, spread, alpha, exact=True)
        assert rows is not None and power(rows, gain, worse, alpha) == pytest.approx(0.8, abs=0.03)
