"""Does a probability mean what it says? Reliability by bins, and the temperature that mends over-confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from whet.errors import UsageError
from whet.rewards.preference.logistic import logistic


@dataclass(frozen=True, slots=True)
class Bin:
    """`count` predictions between two limits: their mean, and the share of them that came true."""

    predicted: float
    observed: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """How far predictions can be taken at their word.

    `error`: expected calibration error, the mean distance of predicted and observed over the bins, weighted by their
    counts (Naeini et al. 2015). `brier`: mean squared distance of prediction and outcome. `accuracy`: share on the right
    side of one half; a prediction of exactly one half counts half.
    """

    error: float
    brier: float
    accuracy: float
    bins: tuple[Bin, ...]


def calibration(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = 10) -> Calibration:
    """Reliability of `probabilities` (n,) against `outcomes` (n,), in bins of equal width without the empty ones.

    Raises UsageError for no rows, or numbers outside of [0, 1].
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if p.shape != y.shape or p.size == 0 or not (((p >= 0) & (p <= 1)).all() and ((y >= 0) & (y <= 1)).all()):
        raise UsageError("calibration needs as many probabilities as outcomes, all of them between 0 and 1.")
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    intervals = tuple(
        Bin(float(p[place == b].mean()), float(y[place == b].mean()), int((place == b).sum()))
        for b in range(bins)
        if (place == b).any()
    )
    error = sum(b.count * abs(b.predicted - b.observed) for b in intervals) / len(p)
    right = np.where(p == 0.5, 0.5, (p > 0.5) == (y > 0.5)).mean()
    return Calibration(error, float(((p - y) ** 2).mean()), float(right), intervals)


def temperature(differences: ArrayLike, outcomes: ArrayLike) -> float:
    """T > 0 such that sigmoid(difference / T) fits held-out outcomes best (Guo et al. 2017, arXiv:1706.04599).

    Above 1 for a model that is too sure. Where differences say nothing or the opposite of the truth, T is 1e6:
    everything is then about even. Raises UsageError.
    """
    x = np.asarray(differences, dtype=np.float64)[:, None]
    return 1.0 / max(1e-6, float(logistic(x, outcomes, ridge=1e-6).weights[0]))
