"""Direct Reasoning Optimization: the certainty of a reference answer as a reward, for tasks without a checker.

Xu et al. 2025, arXiv:2506.13351 (DRO, reward R3). G texts c_1..c_G were written about one question with the reference
answer y; l_ij = log pi(y_j | question, c_i, y_<j) is how certain the model is of token j after text i. Not to be confused
with Direct Reward Optimisation, which is `whet.rl.losses.dro`. The paper's weighting is not available to us:
weights proportional to the standard deviation are our reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def r3_weights(certainties: Sequence[Sequence[float]]) -> list[float]:
    """Weight of each token of the reference answer: how much its certainty varies over the texts; they sum to 1.

    `certainties` l (G, J). A token that every text makes equally certain weighs nothing; if none varies, all weigh
    alike.
    """
    deviations = np.asarray(certainties, dtype=np.float64).std(axis=0)
    total = float(deviations.sum())
    if total == 0.0:
        return [1 / len(deviations)] * len(deviations)
    return [float(d) / total for d in deviations]


def r3(certainties: Sequence[Sequence[float]], without: Sequence[float] | None = None) -> list[float]:
    """Reward of each text: sum_j w_j l_ij, at most 0. `without` (J,): certainties with no text at all, subtracted."""
    weights = np.asarray(r3_weights(certainties))
    matrix = np.asarray(certainties, dtype=np.float64)
    if without is not None:
        matrix = matrix - np.asarray(without, dtype=np.float64)
    return [float(reward) for reward in matrix @ weights]


def r3_filter(groups: Sequence[Sequence[Sequence[float]]], least: float) -> list[int]:
    """Positions of the questions worth training on: the standard deviation of the mean certainty over texts is
    at least `least`."""
    return [
        i
        for i, certainties in enumerate(groups)
        if np.asarray(certainties, dtype=np.float64).mean(axis=1).std() >= least
    ]
