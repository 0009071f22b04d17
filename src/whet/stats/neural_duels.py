"""Preferences that a small network learns from duels, and the choice of the next pair to compare.

Lin, Dai, Verma, Ng, Jaillet, Low: Prompt Optimization with Human Feedback. 2024 (arXiv:2405.17346): the network h has two hidden
layers of 32 and is fitted to P(i beats j) = sigmoid(h(x_i) - h(x_j)). With g(x), the gradient of h by its weights:

    first  = argmax h(x)
    second = argmax h(x) + sqrt(nu * sum_k (g(x) - g(x_first))_k^2 / U_k),   U = lambda + sum over duels (g(x_i) - g(x_j))^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.stats.duels import Choice
from whet.stats.logistic import Array, sigmoid

WIDTH = 32
_RATE, _FIRST, _SECOND, _TINY = 1e-3, 0.9, 0.999, 1e-8
_AFTER = 50


@dataclass(frozen=True)
class PreferenceNetwork:
    """All weights in one vector: two hidden layers of rectified units, and the sum of the second one, each with a constant."""

    weights: Array
    size: int

    @classmethod
    def draw(cls, size: int, seed: int) -> PreferenceNetwork:
        """A network for vectors of that size; the same seed draws the same weights."""
        rng = np.random.default_rng(seed)
        shapes = (size + 1, WIDTH), (WIDTH + 1, WIDTH), (WIDTH + 1, 1)
        layers = [rng.uniform(-1.0, 1.0, shape).ravel() / np.sqrt(shape[0]) for shape in shapes]
        return cls(np.concatenate(layers), size)

    def scores(self, points: Array) -> Array:
        """The scores (n,) of points (n, d)."""
        scores: Array = self._inputs(_with_constant(points))[2] @ self._layers()[2]
        return scores

    def gradients(self, points: Array) -> Array:
        """The gradient of each point's score by all weights: (n, weights)."""
        x, a1, a2 = self._inputs(_with_constant(points))
        d1, d2 = self._slopes(a1, a2)
        gradients, n, end = np.empty((len(points), self.weights.size)), len(points), 0
        for into, slopes in ((x, d1), (a1, d2), (a2, np.ones((n, 1)))):
            begin, end = end, end + into.shape[1] * slopes.shape[1]
            part = gradients[:, begin:end].reshape(n, into.shape[1], slopes.shape[1])
            np.multiply(into[:, :, None], slopes[:, None, :], out=part)
        return gradients

    def fit(self, points: Array, choices: Sequence[Choice], steps: int, penalty: float) -> PreferenceNetwork:
        """The network after `steps` steps of Adam from these weights on the cross-entropy of the duels of points (n, d).

        `penalty` weighs the squares of the weights; its part of the loss falls with the number of duels.
        """
        pairs = np.array([choice[:2] for choice in choices])
        won = np.array([choice[2] for choice in choices])
        both = _with_constant(np.vstack([points[pairs[:, 0]], points[pairs[:, 1]]]))
        decay = penalty / (len(won) + _AFTER)
        weights, mean, square = self.weights, np.zeros_like(self.weights), np.zeros_like(self.weights)
        for step in range(1, steps + 1):
            slope = PreferenceNetwork(weights, self.size)._loss_gradient(both, won) + decay * weights
            mean, square = _FIRST * mean + (1 - _FIRST) * slope, _SECOND * square + (1 - _SECOND) * slope**2
            rate = _RATE * np.sqrt(1 - _SECOND**step) / (1 - _FIRST**step)
            weights = weights - rate * mean / (np.sqrt(square) + _TINY)
        return PreferenceNetwork(weights, self.size)

    def _layers(self) -> tuple[Array, Array, Array]:
        """The weights by layer; those of the sum are (width + 1,)."""
        end = (self.size + 1) * WIDTH
        last = end + (WIDTH + 1) * WIDTH
        weights = self.weights
        return weights[:end].reshape(-1, WIDTH), weights[end:last].reshape(-1, WIDTH), weights[last:]

    def _inputs(self, x: Array) -> tuple[Array, Array, Array]:
        """The inputs of each layer, with the constant; `x`: the points with theirs, (n, d + 1)."""
        first, second, _ = self._layers()
        a1 = _with_constant(np.maximum(x @ first, 0.0))
        return x, a1, _with_constant(np.maximum(a1 @ second, 0.0))

    def _slopes(self, a1: Array, a2: Array) -> tuple[Array, Array]:
        """The slopes of the scores by what goes into the units of the two hidden layers, from what comes out of them."""
        _, second, last = self._layers()
        d2 = last[:-1] * (a2[:, :-1] > 0)
        return (d2 @ second[:-1].T) * (a1[:, :-1] > 0), d2

    def _loss_gradient(self, both: Array, won: Array) -> Array:
        """The gradient by all weights of the mean cross-entropy of duels; `both`: the first points, then the second ones, each
        with the constant."""
        x, a1, a2 = self._inputs(both)
        d1, d2 = self._slopes(a1, a2)
        scores = a2 @ self._layers()[2]
        missed = (sigmoid(scores[: len(won)] - scores[len(won) :]) - won) / len(won)
        by = np.concatenate([missed, -missed])
        parts = x.T @ (d1 * by[:, None]), a1.T @ (d2 * by[:, None]), a2.T @ by
        return np.concatenate([part.ravel() for part in parts])


def next_duel(
    network: PreferenceNetwork, points: Array, choices: Sequence[Choice], nu: float, ridge: float
) -> tuple[int, int]:
    """The place of the best of the points, and of the one with the largest upper bound beside it, which is another one.

    `nu` is the weight of what is unknown, `ridge` (above 0) what is known before the first duel.
    """
    scores, slopes = network.scores(points), network.gradients(points)
    first = int(scores.argmax())
    spread = np.full(slopes.shape[1], ridge)
    for one, other, _ in choices:
        spread += (slopes[one] - slopes[other]) ** 2
    slopes -= slopes[first].copy()
    slopes *= slopes
    slopes /= spread
    bounds = scores + np.sqrt(nu * slopes.sum(axis=1))
    bounds[first] = -np.inf
    return first, int(bounds.argmax())


def _with_constant(rows: Array) -> Array:
    n, size = rows.shape
    constant = np.ones((n, size + 1))
    constant[:, :size] = rows
    return constant
