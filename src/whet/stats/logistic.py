"""Logistic regression with a ridge: the weights v that minimise, over rows x_i with outcomes y_i in [0, 1],

    sum_i w_i (log(1 + exp(x_i . v)) - y_i x_i . v)  +  ridge / 2 |v - anchor|^2

The minimum is unique, so that the result depends on no seed and no rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.errors import UsageError

STEPS = 100
TOLERANCE = 1e-10
SMALLEST = 1e-12

Array = NDArray[np.float64]


def logistic(
    features: ArrayLike,
    outcomes: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    ridge: float | Array = 1.0,
    anchor: ArrayLike | None = None,
) -> Array:
    """Weights v (d,) that fit `outcomes` (n,) in [0, 1] from `features` (n, d), by Newton's method.

    `weights` (n,), 0 or more, say how often a row counts (1 by default); `anchor` (d,) is what the ridge, above 0 and one number
    or (d,), pulls to (0). Raises UsageError for features or weights that are not finite, and for negative weights.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    base = np.zeros(x.shape[1]) if anchor is None else np.asarray(anchor, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(w).all() and (w >= 0).all()):
        raise UsageError("features must be finite numbers, and weights finite numbers of 0 or more.")

    def objective(v: Array) -> float:
        z = x @ v
        return float(w @ (np.logaddexp(0.0, z) - y * z) + (ridge * (v - base)) @ (v - base) / 2)

    v = base.copy()
    for _ in range(STEPS):
        p = sigmoid(x @ v)
        hessian = (x * (w * p * (1 - p))[:, None]).T @ x + np.diag(np.broadcast_to(ridge, len(v)))
        step = np.linalg.solve(hessian, x.T @ (w * (p - y)) + ridge * (v - base))
        here, size = objective(v), 1.0
        while objective(v - size * step) > here and size > SMALLEST:
            size /= 2
        v = np.asarray(v - size * step)
        if float(np.abs(size * step).max()) < TOLERANCE:
            break
    return v


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))
