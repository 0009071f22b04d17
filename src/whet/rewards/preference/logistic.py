"""Logistic regression with a ridge, fitted by Newton's method: the convex heart of the reward models.

    minimise  - sum_i w_i log sigmoid(y_i x_i . v)  +  ridge / 2 |v - anchor|^2,     y_i in {-1, 1}

The minimum is unique, so that the result depends on no seed and no rate. The inverse of the Hessian there is the
covariance of v (Laplace's approximation): what the data leave open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.errors import UsageError

STEPS = 100
TOLERANCE = 1e-10
SMALLEST = 1e-12

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Weights (d,), their covariance (d, d), and the mean loss of the data in nats, without the ridge."""

    weights: Array
    covariance: Array
    loss: float


def logistic(
    features: ArrayLike,
    outcomes: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    ridge: float = 1.0,
    anchor: ArrayLike | None = None,
) -> Fit:
    """Fit `outcomes` (n,), true or false (or a probability between), from `features` (n, d).

    `weights` (n,), 0 or more, say how often a row counts (1 by default); `anchor` (d,) is what the ridge pulls to (0).
    Raises UsageError for no rows, numbers that are not finite, shapes that do not fit, or a ridge of 0 or less.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    if x.ndim != 2 or len(x) == 0 or y.shape != (len(x),) or w.shape != (len(x),):
        raise UsageError(f"{x.shape} features, {y.shape} outcomes and {w.shape} weights do not fit together.")
    base = np.zeros(x.shape[1]) if anchor is None else np.asarray(anchor, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(base).all() and (w >= 0).all()):
        raise UsageError("features, outcomes and anchor must be finite numbers, and weights 0 or more.")
    if not ridge > 0 or ((y < 0) | (y > 1)).any():
        raise UsageError(f"the ridge must be above 0 (it is {ridge}) and outcomes between 0 and 1.")
    v = base.copy()
    for _ in range(STEPS):
        gradient, hessian = _slopes(x, y, w, v, ridge, base)
        step = np.linalg.solve(hessian, gradient)
        here, size = _objective(x, y, w, v, ridge, base), 1.0
        while _objective(x, y, w, v - size * step, ridge, base) > here and size > SMALLEST:
            size /= 2
        v = np.asarray(v - size * step)
        if float(np.abs(size * step).max()) < TOLERANCE:
            break
    covariance = np.asarray(np.linalg.inv(_slopes(x, y, w, v, ridge, base)[1]), dtype=np.float64)
    return Fit(v, covariance, _loss(x, y, w, v) / max(float(w.sum()), SMALLEST))


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))


def _slopes(x: Array, y: Array, w: Array, v: Array, ridge: float, base: Array) -> tuple[Array, Array]:
    p = sigmoid(x @ v)
    gradient = x.T @ (w * (p - y)) + ridge * (v - base)
    return gradient, (x * (w * p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(v))


def _objective(x: Array, y: Array, w: Array, v: Array, ridge: float, base: Array) -> float:
    return _loss(x, y, w, v) + ridge / 2 * float((v - base) @ (v - base))


def _loss(x: Array, y: Array, w: Array, v: Array) -> float:
    z = x @ v
    return float(w @ (np.logaddexp(0.0, z) - y * z))
