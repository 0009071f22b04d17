"""Duels: from who was preferred to whom, which pair to compare next, and who is best.

The next pair comes from double Thompson sampling on the matrix of wins (Wu and Liu, "Double Thompson sampling for dueling
bandits", NeurIPS 2016, as used for prompts by Wu et al., "LLM prompt duel optimizer", arXiv:2510.13907, 2025).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whet.stats.logistic import Array, logistic, sigmoid

_ALPHA = 1.2
"""Width of the confidence bounds, as in the paper's code."""
_PRIOR_DEVIATION = 2.0
"""Standard deviation of a strength before any choice; it keeps versions that always won finite."""

Choice = tuple[int, int, float]
"""(version, other version, 1 if the first was preferred, 0 if the second, 0.5 if neither)."""


def wins_of(versions: Sequence[int], choices: Sequence[Choice]) -> Array:
    """wins[i, j]: how often version i was preferred to version j, an undecided choice as half of one. (n, n)"""
    place = {version: number for number, version in enumerate(versions)}
    wins = np.zeros((len(versions), len(versions)))
    for first, second, outcome in choices:
        if first in place and second in place:
            wins[place[first], place[second]] += outcome
            wins[place[second], place[first]] += 1.0 - outcome
    return wins


def double_thompson(wins: Array, rng: np.random.Generator) -> tuple[int, int]:
    """The best of the possible Copeland winners under a draw, and the version that most likely still beats it."""
    n, counts = len(wins), wins + wins.T
    known, share = counts > 0, np.divide(wins, counts, out=np.zeros_like(wins), where=counts > 0)
    width = np.sqrt(_ALPHA * math.log(max(2.0, wins.sum() + 1.0)) / np.maximum(counts, 1.0))
    upper, lower = np.where(known, share + width, 1.0), np.where(known, share - width, 0.0)
    np.fill_diagonal(upper, 0.0)
    optimistic = (upper > 0.5).sum(axis=1)

    drawn = np.triu(rng.beta(wins + 1.0, wins.T + 1.0), 1)
    drawn += np.tril(1.0 - drawn.T, -1)
    beaten = np.where(optimistic == optimistic.max(), (drawn > 0.5).sum(axis=1), -1)
    first = int(rng.choice(np.flatnonzero(beaten == beaten.max())))

    against = rng.beta(wins[:, first] + 1.0, wins[first] + 1.0)
    uncertain = lower[:, first] <= 0.5
    uncertain[first] = False
    if not uncertain.any():
        uncertain = np.arange(n) != first
    return first, int(np.where(uncertain, against, -1.0).argmax())


def draw_pair(wins: Array, seed: int) -> tuple[int, int]:
    """The next pair to duel, by double Thompson sampling; the same seed gives the same pair."""
    return double_thompson(wins, np.random.default_rng(seed))


def bradley_terry(wins: Array) -> tuple[Array, Array]:
    """Strengths with mean 0, and their standard errors: P(i beats j) = sigmoid(s_i - s_j) (Biometrika 39, 1952).

    The most probable strengths under a normal prior, and the curvature there (Laplace).
    """
    n, ridge, (first, second) = len(wins), _PRIOR_DEVIATION**-2, np.nonzero(wins)
    pairs, each = np.eye(n)[first] - np.eye(n)[second], wins[first, second]
    s = logistic(pairs, np.ones(len(pairs)), weights=each, ridge=ridge)
    p = sigmoid(pairs @ s)
    curvature = (pairs * (each * p * (1.0 - p))[:, None]).T @ pairs + ridge * np.eye(n)
    centre = np.eye(n) - 1.0 / n
    errors = np.sqrt(np.diag(centre @ np.linalg.inv(curvature) @ centre))
    return np.asarray(s - s.mean()), errors


def copeland(wins: Array) -> list[int]:
    """All versions, the best first: by how many others they beat, then by their share of wins (Borda), then in their order.

    >>> copeland(np.array([[0, 1, 3], [2, 0, 1], [0, 2, 0]]))
    [0, 1, 2]
    """
    beats = (wins > wins.T).sum(axis=1)
    shares = (wins.sum(axis=1) + 0.5) / ((wins + wins.T).sum(axis=1) + 1.0)
    return [int(one) for one in np.lexsort((np.arange(len(wins)), -shares, -beats))]
