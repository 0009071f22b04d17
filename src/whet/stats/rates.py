"""Rates: score intervals of proportions and of their differences, and a one-sided test for rare events."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist


def wilson(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a proportion (Wilson 1927, without continuity correction); (0, 1) when nothing was seen.

    >>> [round(x, 3) for x in wilson(0, 20)]
    [0.0, 0.161]
    """
    if n == 0:
        return 0.0, 1.0
    return score_interval(hits, n, NormalDist().inv_cdf((1.0 + confidence) / 2.0))


def score_interval(hits: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's interval of `hits` of `n`, neither of which need be whole, with the quantile `z`."""
    p, z2 = hits / n, z * z
    centre, scale = p + z2 / (2 * n), 1 + z2 / n
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def pass_at_k(n: int, right: int, k: int) -> float:
    """The unbiased estimate, from n answers of which some are right, of the probability that one of k answers is right.

        1 - C(n - right, k) / C(n, k)        Chen et al. 2021, arXiv:2107.03374, eq. 1

    1 - (1 - right / n)^k would be too low on average. Raises ValueError unless 1 <= k <= n and 0 <= right <= n.

    >>> pass_at_k(5, 2, 2)
    0.7
    """
    if not (1 <= k <= n and 0 <= right <= n):
        raise ValueError(f"pass@{k} of {right} right answers out of {n}: k must be 1 to n, and right 0 to n.")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


@lru_cache(maxsize=256)
def student_quantile(level: float, freedom: int) -> float:
    """Quantile of Student's t with `freedom` >= 1 degrees of freedom at a level in (0, 1), to about 1e-9.

    Up to 1,000 degrees of freedom the distribution function, a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4), is
    inverted by bisection; beyond, the expansion of Fisher and Cornish (1960) is as exact.

    >>> [round(student_quantile(0.975, v), 3) for v in (1, 2, 3, 5, 30)]
    [12.706, 4.303, 3.182, 2.571, 2.042]
    """
    if level < 0.5:
        return -student_quantile(1.0 - level, freedom)
    if freedom == 1:
        return math.tan(math.pi * (level - 0.5))
    if freedom > 1000:
        return _student_expansion(level, freedom)
    low, high = 0.0, 1.0
    while _student_central(high, freedom) < 2 * level - 1 and high < 1e12:
        low, high = high, 2 * high
    while high - low > 1e-11 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_central(middle, freedom) < 2 * level - 1 else (low, middle)
    return (low + high) / 2


def _student_central(t: float, freedom: int) -> float:
    """P(-t <= T <= t) for Student's t (Abramowitz and Stegun 26.7.3 for odd, 26.7.4 for even degrees of freedom)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + sine * (total if freedom > 1 else 0.0))


def _student_expansion(level: float, freedom: int) -> float:
    z, v = NormalDist().inv_cdf(level), freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / v + second / v**2 + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)


def newcombe(before: tuple[int, int], after: tuple[int, int]) -> tuple[float, float, float]:
    """Difference of two proportions (before minus after) with its 95% interval.

    `before` and `after` are (hits, n). Newcombe 1998, method 10, from two Wilson intervals; (0, -1, 1) when one side
    has no observations.
    """
    if before[1] == 0 or after[1] == 0:
        return 0.0, -1.0, 1.0
    p1, p2 = before[0] / before[1], after[0] / after[1]
    (low1, high1), (low2, high2) = wilson(*before), wilson(*after)
    low = p1 - p2 - math.hypot(p1 - low1, high2 - p2)
    high = p1 - p2 + math.hypot(high1 - p1, p2 - low2)
    return p1 - p2, max(-1.0, low), min(1.0, high)


def tail(hits: int, n: int, rate: float) -> float:
    """Probability of at least `hits` of `n` when each happens with probability `rate`."""
    if hits <= 0 or rate >= 1.0:
        return 1.0
    if rate <= 0.0:
        return 0.0
    below = 0.0
    for k in range(hits):
        log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        below += math.exp(log + k * math.log(rate) + (n - k) * math.log1p(-rate))
    return max(0.0, 1.0 - below)
