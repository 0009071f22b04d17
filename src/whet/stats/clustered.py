"""Intervals for the mean and for a quantile of values without a range, such as seconds and dollars, that come in clusters.

Values of one user resemble each other, so that a thousand answers to one user tell as much as a few. The clusters are taken
to be independent; within one anything may hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whet.errors import UsageError
from whet.stats.intervals import Interval, interval
from whet.stats.paired import Array, cluster_sums
from whet.stats.rates import student_quantile

STUDENT = "Student's t over clusters"
WOODRUFF = "Woodruff"


def mean_interval(
    values: Sequence[float] | Array,
    clusters: Sequence[int] | None = None,
    confidence: float = 0.95,
    least: float = -math.inf,
) -> Interval:
    """Confidence interval for the mean over values that have no declared range.

    The mean is a ratio of sums over k clusters; its variance is the linearised one with the factor k / (k - 1) (Cochran 1977,
    Sampling Techniques, chapter 6), its quantile Student's with k - 1 degrees of freedom. It trusts the normal approximation:
    with few clusters of very skewed values it covers less often than it says. One cluster alone tells nothing of the others: the
    interval then reaches from `least`, the smallest value that can be, to infinity.

    Raises UsageError for no values, one that is not finite, a confidence outside (0, 1), or where `clusters` has not one
    number for each value.

    >>> one = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> one.mean, round(one.low, 3), round(one.high, 3)
    (2.5, 0.446, 4.554)
    """
    known = _finite(values, confidence)
    sums, sizes = cluster_sums(known, clusters)
    n, k = len(known), len(sums)
    mean = math.fsum(known) / n
    groups = k if k < n else None
    if k < 2:
        return Interval(mean, least, math.inf, n, STUDENT, groups)
    spread = float(((sums - mean * sizes) ** 2).sum()) * k / (k - 1)
    half = student_quantile((1.0 + confidence) / 2, k - 1) * math.sqrt(spread) / n
    return Interval(mean, max(least, mean - half), mean + half, n, STUDENT, groups)


def quantile_interval(
    values: Sequence[float] | Array,
    share: float,
    clusters: Sequence[int] | None = None,
    confidence: float = 0.95,
    least: float = -math.inf,
) -> Interval:
    """Confidence interval for the value below which a `share` in (0, 1) of all values lies; the field `mean` holds that value.

    The share of values up to the sample quantile is a proportion, whose interval over clusters (`interval`) is carried back to
    values (Woodruff 1952, JASA 47:635-646). Where it reaches beyond the sample, so does the interval: from `least`, the
    smallest value that can be, to infinity. Raises UsageError as `mean_interval` does, and for a share outside (0, 1).

    >>> one = quantile_interval(list(range(101)), 0.5)
    >>> one.mean, one.low, one.high
    (50.0, 40.0, 60.0)
    """
    if not 0.0 < share < 1.0:
        raise UsageError(f"share is {share}; it must lie in (0, 1).")
    known = _finite(values, confidence)
    ordered = np.sort(known)
    n = len(ordered)
    middle = float(ordered[_place(share, n)])
    below = interval((known <= middle).astype(np.float64).tolist(), 0.0, 1.0, confidence, clusters)
    first, last = share - (below.mean - below.low), share + (below.high - below.mean)
    low = least if first <= 0.0 else float(ordered[_place(first, n)])
    high = math.inf if last >= 1.0 else float(ordered[_place(last, n)])
    return Interval(middle, min(low, middle), max(high, middle), n, WOODRUFF, below.groups)


def _place(share: float, n: int) -> int:
    """The place of a quantile among n ordered values: of the first one up to which at least that share lies."""
    return min(n - 1, max(0, math.ceil(share * n - 1e-9) - 1))


def _finite(values: Sequence[float] | Array, confidence: float) -> Array:
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie in (0, 1).")
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise UsageError("There are no values; an interval needs at least one.")
    if not np.isfinite(array).all():
        raise UsageError("A value is not a finite number; leave it out.")
    return array
