"""The rules by which a bandit shares the next units among the arms: from the known outcomes to weights, without chance.

Assignment by a hash with these weights is the random draw, so that the weights are the whole rule: Thompson
sampling is the vector of probabilities of being best. Means are on the scale from 0 (worst) to 1 (best).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet_live.experiments.definition import AllocationPolicy
from whet_live.experiments.effects import Array

_GRID = 401
_BISECTIONS = 60
_SMALLEST_GAP = 1e-3
_SMALLEST_VARIANCE = 1e-4


@dataclass(frozen=True)
class ArmTally:
    """Outcomes of one arm: how many, their sum and the sum of their squares, each outcome in [0, 1]."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean outcome, drawn to 1/2 by one observation."""
        return (self.total + 0.5) / (self.n + 1.0)

    @property
    def variance(self) -> float:
        """Variance of one outcome, drawn to that of a fair coin by one observation."""
        spread = self.squares - self.total * self.total / self.n if self.n else 0.0
        return max(_SMALLEST_VARIANCE, (max(0.0, spread) + 0.25) / (self.n + 1.0))

    @property
    def beta(self) -> tuple[float, float]:
        """Parameters of the Beta posterior of the mean, uniform prior: exact for outcomes 0 and 1, and wider than
        it need be for others, whose variance is smaller."""
        return 1.0 + self.total, 1.0 + self.n - self.total

    @property
    def posterior(self) -> tuple[float, float]:
        """Mean and standard deviation of that posterior."""
        a, b = self.beta
        return a / (a + b), math.sqrt(a * b / (a + b + 1.0)) / (a + b)


def density(tally: ArmTally, grid: Array) -> Array:
    """Density of the arm's posterior at points inside (0, 1)."""
    a, b = tally.beta
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    densities: Array = np.exp(norm + (a - 1.0) * np.log(grid) + (b - 1.0) * np.log1p(-grid))
    return densities


def best_chances(arms: Sequence[ArmTally]) -> Array:
    """Probability of each arm to be the best, by numerical integration; they add up to 1.

    The grid covers where the posteriors have their mass: eight standard deviations around every mean.
    """
    points = [
        np.linspace(max(1e-9, m - 8 * s), min(1 - 1e-9, m + 8 * s), _GRID)
        for m, s in (arm.posterior for arm in arms)
    ]
    grid = np.unique(np.concatenate(points))
    steps = np.diff(grid)
    middle = (grid[1:] + grid[:-1]) / 2.0
    masses = np.array([density(arm, middle) * steps for arm in arms])
    masses /= masses.sum(axis=1, keepdims=True)
    below = np.cumsum(masses, axis=1) - masses / 2.0
    chances = np.array(
        [(masses[i] * np.prod(np.delete(below, i, axis=0), axis=0)).sum() for i in range(len(arms))]
    )
    normalised: Array = chances / chances.sum()
    return normalised


def top_two(best: Array) -> Array:
    """Shares of top-two Thompson sampling, in closed form: the best drawn arm half of the time, else the best
    of a new draw that is another one (Russo, Operations Research 68(6), 2020, section 3.3.2)."""
    others = np.clip(best, 0.0, 1.0 - 1e-9)
    odds = others / (1.0 - others)
    weights = others * (1.0 + odds.sum() - odds)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def track_and_stop(arms: Sequence[ArmTally]) -> Array:
    """Shares that prove the leader best with the fewest units (Garivier and Kaufmann, COLT 2016, Theorem 5, for
    normal outcomes with the variances observed).

    With the leader's share w and those of the others w_j, the evidence against j grows as
    gap_j^2 / (var / w + var_j / w_j). At the optimum it is the same for all j, and w^2 / var = sum w_j^2 / var_j.
    """
    means = np.array([arm.mean for arm in arms])
    variances = np.array([arm.variance for arm in arms])
    leader = int(means.argmax())
    rest = np.delete(np.arange(len(arms)), leader)
    gaps = np.maximum(means[leader] - means[rest], _SMALLEST_GAP) ** 2
    own = variances[leader]

    def shares(rate: float) -> Array:
        """Shares of the others relative to the leader's, when 1/rate is the common growth of the evidence."""
        return np.asarray(variances[rest] / (gaps * rate - own), dtype=np.float64)

    low = own / gaps.min() * (1.0 + 1e-9)
    high = low + 1.0
    while float((shares(high) ** 2 / variances[rest]).sum()) * own > 1.0:
        high *= 2.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if float((shares(middle) ** 2 / variances[rest]).sum()) * own > 1.0:
            low = middle
        else:
            high = middle
    weights = np.ones(len(arms))
    weights[rest] = shares(high)
    normalised: Array = weights / weights.sum()
    return normalised


def with_floor(weights: Array, floor: float) -> Array:
    """Shares that add up to 1, none below `floor` (at most 1/n): the part above the floor is shared as given."""
    floored: Array = floor + (1.0 - floor * len(weights)) * weights / weights.sum()
    return floored


def shares(policy: AllocationPolicy, arms: Sequence[ArmTally]) -> Array:
    """Shares of the live arms under a bandit policy; equal ones until each arm has ten outcomes."""
    if len(arms) == 1 or min(arm.n for arm in arms) < 10:
        return np.full(len(arms), 1.0 / len(arms))
    if policy.kind == "track_and_stop":
        return with_floor(track_and_stop(arms), policy.floor)
    best = best_chances(arms)
    return with_floor(top_two(best) if policy.kind == "top_two" else best, policy.floor)
