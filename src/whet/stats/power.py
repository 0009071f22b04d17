"""What a number of rows can show: the power of the exact test of McNemar, before anything was measured.

A share `worse` of the rows goes from right to wrong and the share `gain + worse` from wrong to right, so that the mean rises by
`gain` of the reward's range. Rewards between right and wrong vary less, and smaller gains show.
"""

from __future__ import annotations

import math

import numpy as np

from whet.stats.paired import Array, clusters_for_power

POWER = 0.8
_MOST_EXACT = 150
_STEPS = 14


def power(rows: int, gain: float, worse: float, alpha: float) -> float:
    """The probability that so many independent rows promote a prompt that is better by `gain`: that of p <= alpha / 2."""
    changed = gain + 2 * worse
    total = 0.0
    for m, chance in enumerate(_binomial(rows, changed)):
        tail = np.cumsum(_binomial(m, 0.5)[::-1])[
            ::-1
        ]  # P(at least so many of m are better) if neither prompt is
        total += float(chance) * float(_binomial(m, (gain + worse) / changed)[tail <= alpha / 2].sum())
    return total


def smallest_gain(rows: int, alpha: float, worse: float = 0.0) -> float | None:
    """The smallest gain, a share of the reward's range in (0, 1], that so many independent rows show with a power of 80 %; None
    where they show none. Above 150 rows by the normal approximation."""

    def shown(gain: float) -> bool:
        if rows <= _MOST_EXACT:
            return power(rows, gain, worse, alpha) >= POWER
        needed = clusters_for_power(gain, _spread(gain, worse), alpha)
        return needed is not None and needed <= rows

    low, high = 0.0, 1.0 - 2 * worse
    if rows < 1 or not shown(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def rows_for_gain(gain: float, alpha: float, worse: float = 0.0) -> int | None:
    """About how many independent rows show a gain with a power of 80 %, by the normal approximation; None above a million."""
    return clusters_for_power(gain, _spread(gain, worse), alpha)


def _spread(gain: float, worse: float) -> float:
    """The standard deviation of the differences of rows."""
    return math.sqrt(max(0.0, gain + 2 * worse - gain * gain))


def _binomial(n: int, p: float) -> Array:
    """Binomial probabilities of 0 to n out of n."""
    if p >= 1.0:
        return np.asarray(np.eye(1, n + 1, n)[0])
    k = np.arange(n + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(n + 1)])
    return np.asarray(np.exp(logs + k * math.log(p) + (n - k) * math.log1p(-p)))
