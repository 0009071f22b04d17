"""Several reward models that differ where the data do not decide, and whose disagreement brakes the reward.

    reward(x) = mean_m r_m(x) - brake x std_m r_m(x)

A policy that is trained against one reward model finds where it is wrong. Members that were fitted to resampled
data, each drawn towards a random anchor of its own, agree where they were fitted and differ elsewhere (Coste et al. 2024,
arXiv:2310.02743; anchors: Pearce et al. 2020, arXiv:1810.05546), so that nothing is gained by leaving the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from whet.errors import UsageError
from whet.rewards.preference.bradley_terry import preference
from whet.rewards.preference.logistic import Array


def ensemble(
    better: ArrayLike,
    worse: ArrayLike,
    *,
    members: int = 8,
    ridge: float = 1.0,
    seed: int = 0,
    weights: ArrayLike | None = None,
) -> Array:
    """Weights of the members (m, d), from features (n, d) of preferred and of rejected items.

    Each member sees the pairs resampled with replacement and is anchored at a draw from the ridge's own distribution,
    N(0, 1 / ridge). Raises UsageError for fewer than 2 members, or as `preference` does.
    """
    if members < 2:
        raise UsageError(f"an ensemble has 2 or more members; {members} cannot disagree.")
    x, y = np.asarray(better, dtype=np.float64), np.asarray(worse, dtype=np.float64)
    shares = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = np.random.default_rng(seed)
    fitted = []
    for _ in range(members):
        drawn = rng.integers(len(x), size=len(x)) if len(x) else np.zeros(0, dtype=np.int64)
        counts = np.bincount(drawn, minlength=len(x)) * shares
        anchor = rng.normal(size=x.shape[1:]) / np.sqrt(max(ridge, 1e-300))
        fitted.append(preference(x, y, weights=counts, ridge=ridge, anchor=anchor).weights)
    return np.array(fitted)


def braked(scores: ArrayLike, brake: float) -> Array:
    """Mean over members less `brake` times their standard deviation: `scores` (m, n) to (n,)."""
    s = np.asarray(scores, dtype=np.float64)
    return np.asarray(s.mean(axis=0) - brake * s.std(axis=0))
