"""Fits to preferences: logistic regression with a ridge, an ensemble of such fits, its temperature and its calibration.

Of two answers with features a and b, P(a is preferred to b) = sigmoid((a - b) . v) (Bradley and Terry 1952), which is
logistic regression on differences:

    minimise  - sum_i log sigmoid(y_i x_i . v)  +  ridge / 2 |v - anchor|^2,     y_i in {-1, 1}

The minimum is unique, so that the result depends on no seed and no rate.

A policy that is trained against one reward model finds where it is wrong. Members that were fitted to resampled data,
each drawn towards a random anchor of its own, agree where they were fitted and differ elsewhere (Coste et al. 2024,
arXiv:2310.02743; anchors: Pearce et al. 2020, arXiv:1810.05546): their disagreement brakes the reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from whet.errors import UsageError
from whet.stats.logistic import Array, logistic, sigmoid

BINS = 10


def hedged_probability(difference: Array, deviation: Array) -> Array:
    """Probability of a preference whose strength difference m is known up to a standard deviation s.

    sigmoid(m / sqrt(1 + pi s^2 / 8)), the mean of sigmoid over a normal distribution (MacKay 1992).
    """
    return sigmoid(difference / np.sqrt(1 + np.pi * deviation**2 / 8))


def ensemble(better: Array, worse: Array, *, members: int, ridge: float, seed: int) -> Array:
    """Weights of the members (m, d), from features (n, d) of preferred and of rejected items, row by row.

    Each member sees the pairs resampled with replacement and is anchored at a draw from the ridge's own distribution,
    N(0, 1 / ridge). Raises UsageError for fewer than 2 members.
    """
    if members < 2:
        raise UsageError(f"an ensemble has 2 or more members; {members} cannot disagree.")
    n, rng = len(better), np.random.default_rng(seed)
    fitted = []
    for _ in range(members):
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        anchor = rng.normal(size=better.shape[1:]) / np.sqrt(ridge)
        fitted.append(logistic(better - worse, np.ones(n), weights=counts, ridge=ridge, anchor=anchor))
    return np.array(fitted)


def conservative_mean(scores: ArrayLike, brake: float) -> Array:
    """Mean over members less `brake` times their standard deviation: `scores` (m, n) to (n,)."""
    s = np.asarray(scores, dtype=np.float64)
    return np.asarray(s.mean(axis=0) - brake * s.std(axis=0))


def temperature(differences: ArrayLike, outcomes: ArrayLike) -> float:
    """T > 0 such that sigmoid(difference / T) fits held-out outcomes best (Guo et al. 2017, arXiv:1706.04599).

    Above 1 for an overconfident model. Where differences carry no information or point the wrong way, T is 1e6: all
    probabilities are then about one half.
    """
    x = np.asarray(differences, dtype=np.float64)[:, None]
    return 1.0 / max(1e-6, float(logistic(x, outcomes, ridge=1e-6)[0]))


@dataclass(frozen=True)
class Calibration:
    """The calibration of predictions.

    `error`: expected calibration error, the mean distance of predicted and observed over ten bins of equal width,
    weighted by their counts (Naeini et al. 2015). `brier`: mean squared distance of prediction and outcome. `accuracy`:
    share on the right side of one half; a prediction of exactly one half counts half.
    """

    error: float
    brier: float
    accuracy: float


def calibration(probabilities: ArrayLike, outcomes: ArrayLike) -> Calibration:
    """Reliability of `probabilities` (n,) in [0, 1] against `outcomes` (n,), n at least 1."""
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    places = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    error = sum(abs((p - y)[places == place].sum()) for place in np.unique(places)) / len(p)
    right = np.where(p == 0.5, 0.5, (p > 0.5) == (y > 0.5)).mean()
    return Calibration(float(error), float(((p - y) ** 2).mean()), float(right))
