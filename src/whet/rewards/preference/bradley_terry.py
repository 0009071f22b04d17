"""Bradley-Terry: strengths from pairwise preferences (Bradley and Terry 1952, Biometrika 39, 324-345).

    P(a is preferred to b) = sigmoid(r(a) - r(b))

`strengths` gives every item a strength of its own; `preference` makes r linear in features, so that it also judges items
that nobody compared. Both are one convex fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from whet.errors import UsageError
from whet.rewards.preference.logistic import Array, Fit, logistic, sigmoid


@dataclass(frozen=True, slots=True)
class Duel:
    """Item `better` was preferred to item `worse`, both numbers from 0; `weight` says how often it counts, say the
    confidence of who judged."""

    better: int
    worse: int
    weight: float = 1.0


@dataclass(frozen=True)
class Strengths:
    """Strengths r (n,) with mean 0, in nats of odds, and what the data leave open of them, covariance (n, n)."""

    mean: Array
    covariance: Array

    def deviation(self, a: int, b: int) -> float:
        """Standard deviation of r(a) - r(b)."""
        c = self.covariance
        return float(np.sqrt(max(0.0, c[a, a] + c[b, b] - 2 * c[a, b])))

    def probability(self, a: int, b: int) -> float:
        """P(a is preferred to b), drawn towards one half by what is not known of it.

        sigmoid(m / sqrt(1 + pi s^2 / 8)), the mean of sigmoid over a normal distribution (MacKay 1992).
        """
        return float(hedged(self.mean[a] - self.mean[b], self.deviation(a, b)))


def strengths(count: int, duels: Sequence[Duel], ridge: float = 0.01) -> Strengths:
    """Strengths of `count` items from duels. The ridge keeps items that always win or never met finite.

    Raises UsageError for no duels or a number that names no item.
    """
    for duel in duels:
        if not (0 <= duel.better < count and 0 <= duel.worse < count) or duel.better == duel.worse:
            raise UsageError(f"{duel} does not name two of {count} items, numbered from 0.")
    if not duels:
        raise UsageError("strengths need at least one duel.")
    rows = np.zeros((len(duels), count))
    for row, duel in zip(rows, duels, strict=True):
        row[duel.better], row[duel.worse] = 1.0, -1.0
    weights = [duel.weight for duel in duels]
    fit = logistic(rows, np.ones(len(duels)), weights=weights, ridge=ridge)
    return Strengths(fit.weights - fit.weights.mean(), fit.covariance)


def preference(
    better: ArrayLike,
    worse: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    ridge: float = 1.0,
    anchor: ArrayLike | None = None,
) -> Fit:
    """Weights v (d,) of r(x) = x . v from features (n, d) of preferred and of rejected items, row by row.

    `weights` (n,) say how often a pair counts. A pair that was judged both ways stands there twice. Raises UsageError.
    """
    difference = np.asarray(better, dtype=np.float64) - np.asarray(worse, dtype=np.float64)
    return logistic(difference, np.ones(len(difference)), weights=weights, ridge=ridge, anchor=anchor)


def hedged(difference: ArrayLike, deviation: ArrayLike) -> Array:
    """Probability of a preference whose strength difference is known up to a standard deviation."""
    s = np.asarray(deviation, dtype=np.float64)
    return sigmoid(np.asarray(difference, dtype=np.float64) / np.sqrt(1 + np.pi * s**2 / 8))
