"""The gain that a number of rows can show: the power of the exact test of McNemar, before any measurement.

A share `worse` of the rows goes from right to wrong and the share `gain + worse` from wrong to right, so that the mean rises by
`gain` of the reward's range. Rewards between right and wrong vary less, and smaller gains show.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from whet.stats.paired import Array, clusters_for_power

POWER = 0.8
_MOST_EXACT = 400
_STEPS = 14


def power(rows: int, gain: float, worse: float, alpha: float) -> float:
    """The probability that so many independent rows promote a prompt that is better by `gain`: that of p <= alpha / 2."""
    changed = gain + 2 * worse
    better = (gain + worse) / changed
    chances = np.eye(rows + 1) if better >= 1.0 else _binomials(rows, better)
    return float(_binomial(rows, changed) @ (chances * _decisive(rows, alpha)).sum(axis=1))


def smallest_gain(rows: int, alpha: float, worse: float = 0.0) -> float | None:
    """The smallest gain, a share of the reward's range in (0, 1], that so many independent rows show with a power of 80%; None
    where they show none. Above 400 rows by the normal approximation."""

    def is_shown(gain: float) -> bool:
        if rows <= _MOST_EXACT:
            return power(rows, gain, worse, alpha) >= POWER
        needed = clusters_for_power(gain, _spread(gain, worse), alpha, exact=True)
        return needed is not None and needed <= rows

    low, high = 0.0, 1.0 - 2 * worse
    if rows < 1 or not is_shown(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def rows_for_gain(gain: float, alpha: float, worse: float = 0.0) -> int | None:
    """Return the number of independent rows that show a gain with a power of 80%; above 400 by the normal approximation, None
    above a million."""
    rows = clusters_for_power(gain, _spread(gain, worse), alpha, exact=True)
    while rows is not None and rows <= _MOST_EXACT and power(rows, gain, worse, alpha) < POWER:
        rows += 1
    while rows is not None and 1 < rows <= _MOST_EXACT and power(rows - 1, gain, worse, alpha) >= POWER:
        rows -= 1
    return rows


def _spread(gain: float, worse: float) -> float:
    """The standard deviation of the differences of rows."""
    return math.sqrt(max(0.0, gain + 2 * worse - gain * gain))


def _binomial(n: int, p: float) -> Array:
    """Binomial probabilities of 0 to n out of n."""
    return np.asarray(np.eye(1, n + 1, n)[0] if p >= 1.0 else _binomials(n, p)[n])


def _binomials(n: int, p: float) -> Array:
    """Binomial probabilities of 0 to m out of m, a row for each m from 0 to n; p in (0, 1)."""
    k, m = np.arange(n + 1), np.arange(n + 1)[:, None]
    return np.asarray(np.exp(_log_choices(n) + k * math.log(p) + np.maximum(m - k, 0) * math.log1p(-p)))


@lru_cache(maxsize=8)
def _log_choices(n: int) -> Array:
    """Logarithms of the numbers of ways to choose k of m, for m (rows) and k up to n."""
    logs = np.array([math.lgamma(i + 1) for i in range(n + 1)])
    k, m = np.arange(n + 1), np.arange(n + 1)[:, None]
    return np.where(k <= m, logs[m] - logs[k] - logs[np.maximum(m - k, 0)], -np.inf)


@lru_cache(maxsize=8)
def _decisive(n: int, alpha: float) -> Array:
    """Whether k better ones of m that differ decide: P(at least so many if neither prompt is better) <= alpha / 2."""
    chances = _binomials(n, 0.5)
    k, m = np.arange(n + 1), np.arange(n + 1)[:, None]
    return np.asarray((np.cumsum(chances[:, ::-1], axis=1)[:, ::-1] <= alpha / 2) & (k <= m))
