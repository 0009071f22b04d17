"""Ridge regression of values on vectors, in its dual form, for many more directions than values (Hoerl and Kennard 1970)."""

from __future__ import annotations

import numpy as np

from whet.stats.logistic import Array


def predict_by_ridge(points: Array, values: Array, others: Array, noise: float) -> Array:
    """The expected values (m,) at `others` (m, d), from values (n,) at points (n, d).

    `noise` (above 0) is the share of the spread of the values that vectors do not explain: the larger it is, the nearer is what
    is expected to the mean of the values.
    """
    centre, level = points.mean(axis=0), values.mean()
    inside, outside = points - centre, others - centre
    kernel = inside @ inside.T
    scale = np.trace(kernel) / len(points) or 1.0
    weights = np.linalg.solve(kernel / scale + noise * np.eye(len(points)), values - level)
    return np.asarray(level + outside @ inside.T / scale @ weights)
