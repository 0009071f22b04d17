"""The reward of a prompt with the model that it was found with, beyond the effects of the prompt and of the model.

Of n models, y_ij is the mean reward of the prompt that was found for model i, used on model j. It is taken apart as

    y_ij = mean + origin_i + model_j + home [i = j] + rest_ij

with effects that sum to 0. By least squares, `home` is the mean of the diagonal minus the mean of all other cells: rows and
columns all hold one diagonal cell, so that their effects cancel. What a single cell of the diagonal has beyond its row mean and
its column mean, y_ii - y_i. - y_.j + y.., says where it lies; those sum to (n - 1) home.

All cells answer the same rows, and every effect is a contrast of the cells of a row: the tests are those of
`whet.stats.contrasts`. `home` is tested at alpha alone; all other effects together hold with 1 - alpha (Bonferroni).

The parts of the variance of the cells (sums of squares over n^2) are without what the rows alone would make of them: the
expected part of sampling is subtracted, by the covariance of the cell means over clusters. The part of `home` is
(n - 1) home^2 / n^2, and the ends of its interval are those of `home`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.stats.contrasts import ContrastTest, evaluate_contrasts
from whet.stats.paired import cluster_sums

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """Parts of the variance of the cells, in squared units of the reward, each 0 or more; the ends of the interval of `home`."""

    model: float
    origin: float
    home: float
    rest: float
    home_low: float
    home_high: float

    @property
    def share_of_home(self) -> float | None:
        """The part of `home` in the whole; None where the cells do not differ beyond chance."""
        whole = self.model + self.origin + self.home + self.rest
        return self.home / whole if whole > 0 else None


@dataclass(frozen=True, slots=True)
class HomeAdvantage:
    """The home advantage, the effects of each model and of each origin, what each cell of the diagonal has beyond its row and its
    column, and the parts of the variance (None where no row is answered in all cells)."""

    home: ContrastTest
    models: list[ContrastTest]
    origins: list[ContrastTest]
    own: list[ContrastTest]
    variance: VarianceParts | None


def evaluate_home(
    rewards: Array, low: float, high: float, clusters: Sequence[int] | None = None, alpha: float = 0.05
) -> HomeAdvantage:
    """Take the cells of a matrix apart. `rewards`: rows x origins x models in [low, high], not a number where there is no answer;
    `clusters` as in `whet.stats.paired.paired_test`. Raises UsageError for fewer than two models or unequal numbers of both."""
    n = rewards.shape[1]
    if n < 2 or rewards.shape[2] != n:
        raise UsageError(
            f"The matrix has {n} origins and {rewards.shape[2]} models; it needs equally many, two or more."
        )
    cells = rewards.reshape(len(rewards), n * n)
    diagonal = np.eye(n)
    grand = np.full((n, n), 1 / n**2)
    models, origins, own = [], [], []
    for i in range(n):
        column, row = np.outer(np.ones(n), diagonal[i]) / n, np.outer(diagonal[i], np.ones(n)) / n
        models.append(column - grand)
        origins.append(row - grand)
        own.append(np.outer(diagonal[i], diagonal[i]) - column - row + grand)
    home = diagonal / n - (1 - diagonal) / (n * (n - 1))
    (advantage,) = _tests(cells, [home], low, high, clusters, alpha)
    effects = _tests(cells, [*models, *origins, *own], low, high, clusters, alpha)
    parts = _variance(cells, n, clusters, advantage)
    return HomeAdvantage(advantage, effects[:n], effects[n : 2 * n], effects[2 * n :], parts)


def _tests(
    cells: Array,
    weights: Sequence[Array],
    low: float,
    high: float,
    clusters: Sequence[int] | None,
    alpha: float,
) -> list[ContrastTest]:
    """Contrasts of any size: those whose absolute values sum to more than 2 are tested in smaller units."""
    flat = np.stack([weight.ravel() for weight in weights])
    units = np.maximum(1.0, np.abs(flat).sum(axis=1) / 2)
    tests = evaluate_contrasts(cells, flat / units[:, None], low, high, clusters, alpha)
    return [
        replace(
            test,
            difference=None if test.difference is None else test.difference * unit,
            low=test.low * unit,
            high=test.high * unit,
        )
        for test, unit in zip(tests, units.tolist(), strict=True)
    ]


def _variance(
    cells: Array, n: int, clusters: Sequence[int] | None, home: ContrastTest
) -> VarianceParts | None:
    whole = np.flatnonzero(~np.isnan(cells).any(axis=1))
    if not len(whole):
        return None
    known = cells[whole]
    own = [at if clusters is None else clusters[at] for at in whole.tolist()]
    means = known.mean(axis=0)
    sums = np.stack([cluster_sums(column, own)[0] for column in (known - means).T])
    count = sums.shape[1]
    noise = sums @ sums.T / len(known) ** 2 * (count / max(1, count - 1))
    flat, spread = np.full((n, n), 1 / n), np.eye(n) - 1 / n
    centred = (np.eye(n) - 1 / n).ravel() / np.sqrt(n - 1)
    at_home = np.outer(centred, centred)
    model, origin, home_part, rest = (
        max(0.0, float(means @ part @ means - np.trace(part @ noise)) / n**2)
        for part in (np.kron(flat, spread), np.kron(spread, flat), at_home, np.kron(spread, spread) - at_home)
    )
    scale = (n - 1) / n**2
    ends = sorted((home.low**2 * scale, home.high**2 * scale))
    least = 0.0 if home.low <= 0 <= home.high else ends[0]
    return VarianceParts(model, origin, home_part, rest, least, ends[1])
