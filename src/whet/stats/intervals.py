"""Intervals for one mean reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from whet.errors import UsageError, show_size
from whet.stats.betting import confidence_sequence, unit_values
from whet.stats.rates import wilson

WILSON = "Wilson"
SEQUENCE = "confidence sequence"


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of n values with the ends of its confidence interval: low <= mean <= high. `method`: `WILSON` or `SEQUENCE`."""

    mean: float
    low: float
    high: float
    n: int
    method: str


def interval(values: Sequence[float], low: float, high: float, confidence: float = 0.95) -> Interval:
    """Confidence interval for the mean of independent values in the declared range [low, high].

    Values that all sit at the two ends of the range (right or wrong) get the score interval of Wilson
    (1927, JASA 22:209-212): its coverage is close to `confidence` on average over the possible means,
    and may fall a few points short at some of them. All others get the betting confidence sequence at the
    present n (`confidence_sequence`): valid for every distribution on the range and every n,
    after any number of looks, and wider than an interval that trusts the normal approximation.

    Raises UsageError for no values, a value outside the range, an empty range, or a confidence outside
    (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie in (0, 1).")
    unit = unit_values(values, low, high)
    n = len(unit)
    mean = min(high, max(low, math.fsum(values) / n))
    method = WILSON if np.all((unit == 0.0) | (unit == 1.0)) else SEQUENCE
    if method == WILSON:
        below, above = wilson(int(unit.sum()), n, confidence)
        below, above = low + (high - low) * below, low + (high - low) * above
    else:
        below, above = confidence_sequence(values, low, high, 1.0 - confidence)
    return Interval(mean, min(mean, max(low, below)), max(mean, min(high, above)), n, method)


def difference_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Ends of a 95% interval for the mean of paired differences, quick enough for a search that compares many prompts.

    Student's, with one more difference of 0, so that few rows that all agree prove little. It trusts the normal approximation:
    a search may, the gate does not. Needs one difference.
    """
    values = [*differences, 0.0]
    v, z = len(values) - 1, NormalDist().inv_cdf(0.975)
    t = z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v * v)
    mean = math.fsum(values) / len(values)
    half = t * math.sqrt(math.fsum((value - mean) ** 2 for value in values) / v / len(values))
    return mean - half, mean + half


def show_number(value: float) -> str:
    """Three significant digits, without exponent for ordinary rewards and without a negative zero."""
    return f"{float(show_size(value, 3)) + 0.0:.9g}"


def percent(level: float) -> str:
    """A level of confidence below 1 in percent, with digits enough that it is not called certain.

    >>> percent(0.95), percent(0.999905), percent(1 - 2e-9)
    ('95', '99.99', '99.9999998')
    """
    digits = next((digits for digits in range(3, 17) if float(f"{100 * level:.{digits}g}") < 100), 17)
    return f"{100 * level:.{digits}g}"
