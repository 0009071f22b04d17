"""Groups of words that mean nearly the same: k-means over their vectors, and the word nearest to each centre."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS = 20


def representatives(vectors: Array, draws: Sequence[float]) -> list[int]:
    """The rows of `vectors` that lie nearest to the centres of clusters, in order, each once.

    Lloyd's algorithm on vectors of unit length. There is a centre for each of the `draws` from [0, 1): the first ones are rows,
    each drawn in proportion to its squared distance from those before (k-means++, Arthur and Vassilvitskii 2007). A centre that
    loses all its rows stays where it is.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    chosen, away = list[int](), np.full(len(unit), np.inf)
    for draw in draws:
        reached = np.cumsum(away if chosen else np.ones(len(unit)))
        chosen.append(min(int(np.searchsorted(reached, draw * reached[-1], "right")), len(unit) - 1))
        away = np.minimum(away, np.maximum(_distances(unit, unit[chosen[-1:]])[:, 0], 0.0))
    centres, nearest = unit[chosen], np.full(len(unit), -1)
    for _ in range(STEPS):
        before, nearest = nearest, np.argmin(_distances(unit, centres), axis=1)
        if np.array_equal(before, nearest):
            break
        sums, sizes = np.zeros_like(centres), np.bincount(nearest, minlength=len(centres))
        np.add.at(sums, nearest, unit)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return sorted({int(row) for row in np.argmin(_distances(unit, centres), axis=0)})


def _distances(rows: Array, centres: Array) -> Array:
    squares: Array = (centres**2).sum(axis=1)[None, :] - 2 * rows @ centres.T
    squares += (rows**2).sum(axis=1)[:, None]
    return squares
