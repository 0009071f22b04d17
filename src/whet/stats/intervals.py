"""Intervals for one mean reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.errors import UsageError, show_size
from whet.stats.betting import ClusterBets, confidence_sequence, unit_values
from whet.stats.paired import Array, cluster_sums
from whet.stats.rates import score_interval, student_quantile, wilson

WILSON = "Wilson"
SEQUENCE = "confidence sequence"


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of n values with the ends of its confidence interval: low <= mean <= high. `method`: `WILSON` or `SEQUENCE`.
    `groups`: how many clusters the values form; None where each is its own."""

    mean: float
    low: float
    high: float
    n: int
    method: str
    groups: int | None = None


def interval(
    values: Sequence[float],
    low: float,
    high: float,
    confidence: float = 0.95,
    clusters: Sequence[int] | None = None,
) -> Interval:
    """Confidence interval for the mean of values in the declared range [low, high]: independent ones, or those of independent
    `clusters`, of which each value has its number.

    Values that all sit at the two ends of the range (right or wrong) get the score interval of Wilson
    (1927, JASA 22:209-212): its coverage is close to `confidence` on average over the possible means,
    and may fall a few points short at some of them. All others get the betting confidence sequence at the
    present n (`confidence_sequence`): valid for every distribution on the range and every n,
    after any number of looks, and wider than an interval that trusts the normal approximation.

    Of clusters, Wilson's interval is that of as many independent values as the clusters are worth
    (`_worth`), with Student's quantile in place of the normal one, and the confidence sequence stakes the sums
    of the clusters (`ClusterBets`). The mean is that over values: a cluster weighs what its values do.

    Raises UsageError for no values, a value outside the range, an empty range, a confidence outside
    (0, 1), or where `clusters` has not one number for each value.
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie in (0, 1).")
    unit = unit_values(values, low, high)
    n = len(unit)
    mean = min(high, max(low, math.fsum(values) / n))
    method = WILSON if np.all((unit == 0.0) | (unit == 1.0)) else SEQUENCE
    sums, sizes = cluster_sums(unit, clusters)
    groups = len(sums) if len(sums) < n else None
    if groups is not None:
        below, above = _clustered_interval(sums, sizes, method, confidence)
    elif method == WILSON:
        below, above = wilson(int(unit.sum()), n, confidence)
    else:
        below, above = confidence_sequence(unit, 0.0, 1.0, 1.0 - confidence)
    below, above = low + (high - low) * below, low + (high - low) * above
    return Interval(mean, min(mean, max(low, below)), max(mean, min(high, above)), n, method, groups)


def _clustered_interval(sums: Array, sizes: Array, method: str, confidence: float) -> tuple[float, float]:
    """The ends of the interval of `sum sums / sum sizes` over clusters of values in [0, 1]; one cluster tells nothing."""
    if len(sums) == 1:
        return 0.0, 1.0
    if method == SEQUENCE:
        below, above = ClusterBets(2 * sums - sizes, sizes, sizes.max()).interval(1.0 - confidence)
        return (1.0 + below) / 2, (1.0 + above) / 2
    worth = _worth(sums, sizes)
    share = float(sums.sum() / sizes.sum())
    return score_interval(share * worth, worth, student_quantile((1.0 + confidence) / 2, len(sums) - 1))


def _worth(sums: Array, sizes: Array) -> float:
    """The number of independent right-or-wrong values that tell as much as these clusters: between sum^2 / sum of squares of
    the sizes and their number.

    That is the number of values over the design effect (Kish 1965), estimated from the linearised variance of a ratio. One more
    cluster of the usual size with equal values is counted in: a few clusters that are alike by chance do not show that their
    values are independent.
    """
    n, k = float(sizes.sum()), len(sizes)
    usual = float(sizes @ sizes) / n
    share = float(sums.sum()) / n
    guess = (share * k + 0.5) / (k + 1)
    extra = guess * (1.0 - guess) * usual
    between = float(((sums - share * sizes) ** 2).sum()) * k / (k - 1)
    effect = (between + extra * usual) / (n * share * (1.0 - share) + extra)
    return n / min(usual, max(1.0, effect))


def difference_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Ends of a 95% interval for the mean of paired differences, quick enough for a search that compares many prompts.

    Student's, with one more difference of 0, so that few rows that all agree prove little. It trusts the normal approximation:
    a search may, the gate does not. Needs one difference.
    """
    values = [*differences, 0.0]
    v = len(values) - 1
    mean = math.fsum(values) / len(values)
    half = student_quantile(0.975, v) * math.sqrt(
        math.fsum((value - mean) ** 2 for value in values) / v / len(values)
    )
    return mean - half, mean + half


def show_number(value: float) -> str:
    """Three significant digits, without exponent for ordinary rewards and without a negative zero."""
    return f"{float(show_size(value, 3)) + 0.0:.9g}"


SMALLEST_P = 1e-300
"""Smaller p-values are named by this bound: below 5e-324 a float is 0, which no p-value is."""


def show_p(value: float, digits: int = 3) -> str:
    """A p-value for a table.

    >>> show_p(0.01234), show_p(1.88e-9), show_p(0.0)
    ('0.0123', '1.88e-09', '< 1e-300')
    """
    return f"{value:.{digits}g}" if value >= SMALLEST_P else f"< {SMALLEST_P:g}"


def say_p(value: float) -> str:
    """A p-value in a sentence.

    >>> say_p(0.01234), say_p(0.0)
    ('p = 0.0123', 'p < 1e-300')
    """
    return f"p = {show_number(value)}" if value >= SMALLEST_P else f"p {show_p(value)}"


def percent(level: float) -> str:
    """A level of confidence below 1 in percent, with digits enough that it is not called certain.

    >>> percent(0.95), percent(0.999905), percent(1 - 2e-9)
    ('95', '99.99', '99.9999998')
    """
    digits = next((digits for digits in range(3, 17) if float(f"{100 * level:.{digits}g}") < 100), 17)
    return f"{100 * level:.{digits}g}"
