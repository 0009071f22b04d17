"""Over-optimisation: a reward on training examples that keeps rising while a held-out metric falls.

Such a reward is being exploited (Gao, Schulman, Hilton 2023, "Scaling Laws for
Reward Model Overoptimization", arXiv:2210.10760). Pure functions over the figures of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

Z = 1.96
TRAINED = ("answer", "reward")
"""The names of the mean reward of samples in steps of training: of the answers alone, where that is told apart."""


def trained_reward(figures: Mapping[str, float]) -> float | None:
    """The mean reward of a step, None where it has none."""
    return next((figures[name] for name in TRAINED if name in figures), None)


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and when it was measured, in model calls."""

    at: int
    value: float


@dataclass(frozen=True, slots=True)
class OverOptimisation:
    """Since `at`, where the held-out metric was best, the reward rose by `rise` and the metric fell by `fall`."""

    at: int
    rise: float
    fall: float

    @property
    def warning(self) -> str:
        """One sentence for a report."""
        return (
            f"The training reward rose by {self.rise:.3g} since call {self.at} while the reward on validation examples fell "
            f"by {self.fall:.3g}: the reward is being exploited, or the search fits its training examples."
        )


def over_optimisation(
    rewards: Sequence[Figure], metrics: Sequence[Figure], n: int, low: float = 0.0, high: float = 1.0
) -> OverOptimisation | None:
    """Compare the trends of reward and metric at the end of a run; None if they have not moved apart, or if that may be chance.

    `metrics` are means over `n` held-out examples in the range [low, high]; at least 3 are needed. A reward belongs to the
    first metric that was measured at its time or later; between two metrics the mean counts. The fall must be more than
    1.96 standard errors of a difference of such means, each at its largest for its value, and the rise more than the
    standard error of the difference of the two means of rewards.
    """
    paired = [(m, values) for m, values in zip(metrics, _between(rewards, metrics), strict=True) if values]
    if len(paired) < 3 or n < 1:
        return None
    best = max(range(len(paired)), key=lambda i: (paired[i][0].value, -i))
    if best == len(paired) - 1:
        return None
    (top, before), (end, after) = paired[best], paired[-1]
    fall = top.value - end.value
    chance = Z * math.sqrt((_variance(top.value, low, high) + _variance(end.value, low, high)) / n)
    rise = fmean(after) - fmean(before)
    noise = Z * math.sqrt(_error(before) + _error(after))
    return OverOptimisation(top.at, rise, fall) if fall > chance and rise > noise else None


def _between(rewards: Sequence[Figure], metrics: Sequence[Figure]) -> list[list[float]]:
    """For each metric the rewards that were measured since the one before; for the first, where there are none, the next
    one: that of the policy as it was then."""
    groups: list[list[float]] = []
    since = -math.inf
    for metric in metrics:
        here = [r.value for r in rewards if since < r.at <= metric.at]
        groups.append(here if here or groups else [r.value for r in rewards[:1]])
        since = metric.at
    return groups


def _variance(mean: float, low: float, high: float) -> float:
    """The largest variance of one value in [low, high] with that mean."""
    return max(0.0, (mean - low) * (high - mean))


def _error(values: Sequence[float]) -> float:
    """Squared standard error of the mean; 0 for a single value."""
    return variance(values) / len(values) if len(values) > 1 else 0.0
