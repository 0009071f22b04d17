"""A Gaussian process over vectors with the neural tangent kernel of a random network, as a surrogate of rewards.

Jacot, Gabriel, Hongler: Neural Tangent Kernel. NeurIPS 2018. The kernel of two inputs is the inner product of the gradients of
the network's output with respect to its weights. For f(x) = w3 . relu(W2 relu(W1 x)), each layer divided by the root of its
width:

    k(x, x') = (x . x') (d1 . d1') + (a1 . a1') (d2 . d2') + a2 . a2'

with the activations a1, a2 and the gradients d1, d2 with respect to what goes into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Layers: TypeAlias = tuple[tuple[Array, Array], ...]
WIDTH = 32
_STEP = 1e-4


@dataclass(frozen=True)
class RandomNetwork:
    """Weights of two hidden layers, drawn from the standard normal distribution."""

    first: Array
    second: Array
    last: Array

    @classmethod
    def draw(cls, size: int, seed: int) -> RandomNetwork:
        """A network for vectors of that size; a constant is added to them."""
        rng = np.random.default_rng(seed)
        shapes = (size + 1, WIDTH), (WIDTH, WIDTH), (WIDTH,)
        return cls(*(rng.normal(size=shape) / np.sqrt(shape[0]) for shape in shapes))

    def layers(self, x: Array) -> Layers:
        """The factors of the kernel for inputs x (n, d): inputs and gradients of each layer."""
        x = np.hstack([x, np.ones((len(x), 1))])
        h1 = x @ self.first
        a1 = np.maximum(h1, 0.0)
        h2 = a1 @ self.second
        a2 = np.maximum(h2, 0.0)
        d2 = self.last * (h2 > 0)
        d1 = (d2 @ self.second.T) * (h1 > 0)
        return (x, d1), (a1, d2), (a2, np.ones((len(x), 1)))


@dataclass(frozen=True)
class NeuralProcess:
    """The process, given the values (n,) of points (n, d): its mean and its covariances elsewhere."""

    network: RandomNetwork
    known: Layers
    weights: Array
    inverse: Array
    level: float
    scale: float
    spread: float

    @classmethod
    def fit(cls, points: Array, values: Array, noise: float, seed: int) -> NeuralProcess:
        """Fit to points; `noise` is the standard deviation of a value, in units of the spread of all values."""
        network = RandomNetwork.draw(points.shape[1], seed)
        known = network.layers(points)
        level = float(values.mean())
        covariance = kernel(known, known)
        scale = float(np.trace(covariance)) / len(points) or 1.0
        inverse = np.asarray(np.linalg.inv(covariance / scale + noise**2 * np.eye(len(points))), np.float64)
        spread = float(values.std()) or 1.0
        return cls(network, known, inverse @ (values - level), inverse, level, scale, spread)

    def mean(self, x: Array) -> Array:
        """The expected values at points (m, d): (m,)."""
        mean: Array = self.level + kernel(self.network.layers(x), self.known) / self.scale @ self.weights
        return mean

    def covariance(self, x: Array) -> Array:
        """The covariances of the values at points (m, d), in squared units of the spread of the values: (m, m)."""
        layers = self.network.layers(x)
        cross = kernel(layers, self.known) / self.scale
        covariance: Array = kernel(layers, layers) / self.scale - cross @ self.inverse @ cross.T
        return covariance

    def rise(self, start: Array, end: Array) -> tuple[float, float]:
        """The expected rise of the value from one point (d,) to another, and its standard deviation; both in units of the
        spread of the values."""
        points = np.vstack([end, start])
        covariance, (after, before) = self.covariance(points), self.mean(points)
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        return float(after - before) / self.spread, float(np.sqrt(max(variance, 0.0)))

    def gradient(self, x: Array) -> Array:
        """The gradient of the mean at one point (d,), by central differences."""
        steps = _STEP * np.eye(len(x))
        gradient: Array = (self.mean(x + steps) - self.mean(x - steps)) / (2 * _STEP)
        return gradient


def kernel(one: Layers, other: Layers) -> Array:
    """The kernel of inputs (n) and others (m), by their layers: (n, m)."""
    total: Array = sum((a @ b.T) * (c @ d.T) for (a, c), (b, d) in zip(one, other, strict=True))  # type: ignore[assignment]
    return total


def project(vectors: Array, size: int) -> Array:
    """Vectors (n, d) in `size` random directions, always the same ones: about as far from each other as before (Johnson and
    Lindenstrauss 1984)."""
    directions = np.random.default_rng(0).normal(size=(vectors.shape[1], size)) / np.sqrt(size)
    points: Array = vectors @ directions
    return points
