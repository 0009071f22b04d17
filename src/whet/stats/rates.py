"""Rates of rare events: intervals and one-sided tests for small counts."""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def wilson(hits: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927); (0, 1) when nothing was seen.

    >>> [round(x, 3) for x in wilson(0, 20)]
    [0.0, 0.161]
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = hits / n, z * z
    centre = p + z2 / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = 0.0 if hits == 0 else (centre - half) / (1 + z2 / n)
    high = 1.0 if hits == n else (centre + half) / (1 + z2 / n)
    return max(0.0, low), min(1.0, high)


def newcombe(before: tuple[int, int], after: tuple[int, int], z: float = Z95) -> tuple[float, float, float]:
    """Difference of two proportions (before minus after) with its interval.

    `before` and `after` are (hits, n). Newcombe 1998, method 10, from two Wilson intervals; (0, -1, 1) when one side
    has no observations.
    """
    if before[1] == 0 or after[1] == 0:
        return 0.0, -1.0, 1.0
    p1, p2 = before[0] / before[1], after[0] / after[1]
    low1, high1 = wilson(*before, z)
    low2, high2 = wilson(*after, z)
    difference = p1 - p2
    low = difference - math.hypot(p1 - low1, high2 - p2)
    high = difference + math.hypot(high1 - p1, p2 - low2)
    return difference, max(-1.0, low), min(1.0, high)


def tail(hits: int, n: int, rate: float) -> float:
    """Probability of at least `hits` of `n` when each happens with probability `rate`."""
    if hits <= 0:
        return 1.0
    if rate <= 0.0:
        return 0.0
    if rate >= 1.0:
        return 1.0
    below = 0.0
    for k in range(hits):
        log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        below += math.exp(log + k * math.log(rate) + (n - k) * math.log1p(-rate))
    return max(0.0, 1.0 - below)
