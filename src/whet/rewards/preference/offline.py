"""Which prompt for which query, from a log alone; Prompt-OIRL (Sun, Hüyük, van der Schaar, ICLR 2024, arXiv:2309.06553).

    fit P(success | query, prompt) on logged (query, prompt, success);  use: the prompt with the highest probability

No model is called, neither to learn nor to choose. The paper fits gradient-boosted trees on joined embeddings; here it is a
logistic regression on the query's features, the prompt's, and all their products, without which every query would get the
same prompt. The ridge is chosen by cross-validation over queries. Cross-validation also says whether choosing by query is
better than the one best prompt; where that cannot be told, the one best prompt is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.errors import UsageError
from whet.rewards.preference.logistic import Array, logistic, sigmoid

RIDGES = (1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
REPEATS = 5
Z = 2.576


@dataclass(frozen=True)
class Log:
    """What happened: query `queries[i]` was asked with prompt `prompts[i]`, and succeeded or not; each (n,)."""

    queries: NDArray[np.int64]
    prompts: NDArray[np.int64]
    success: Array


@dataclass(frozen=True)
class Gain:
    """Success of choosing by query, less that of the one best prompt, over held-out queries, with a 99 % interval.

    Measured on the `n` queries whose chosen prompt was logged; the mean over several partitions of the queries, so that
    none of them decides.
    """

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Chooser:
    """A fitted log. `best`: the prompt with the highest mean success; `gain`: what cross-validation says of choosing."""

    weights: Array
    ridge: float
    best: int
    gain: Gain

    def probabilities(self, queries: ArrayLike, prompts: ArrayLike) -> Array:
        """P(success) of each query with each prompt, (q, p), from features (q, d) and (p, e); prompts may be new."""
        x, z = np.asarray(queries, dtype=np.float64), np.asarray(prompts, dtype=np.float64)
        pairs = _joined(np.repeat(x, len(z), 0), np.tile(z, (len(x), 1)))
        return sigmoid(pairs @ self.weights).reshape(len(x), len(z))

    def choose(self, queries: ArrayLike, prompts: ArrayLike) -> NDArray[np.int64]:
        """A prompt for each query (q,): the likeliest to succeed, or `best` for all unless the gain is above zero."""
        if self.gain.low <= 0:
            return np.full(len(np.asarray(queries)), self.best, dtype=np.int64)
        return np.asarray(self.probabilities(queries, prompts).argmax(axis=1), dtype=np.int64)


def fit_log(queries: ArrayLike, prompts: ArrayLike, log: Log, seed: int = 0) -> Chooser:
    """Learn from a log, given features of queries (q, d) and of prompts (p, e).

    Features should be about of size one. The identity matrix serves as features of prompts that are never to be
    extended. Raises UsageError for a log that names what is not there, or has fewer than 5 queries.
    """
    x, z = np.asarray(queries, dtype=np.float64), np.asarray(prompts, dtype=np.float64)
    logged = np.unique(log.queries)
    if len(logged) < FOLDS or log.queries.max() >= len(x) or log.prompts.max() >= len(z):
        raise UsageError(
            f"a log of {len(logged)} queries and {len(z)} prompts: there must be {FOLDS} queries or more, and "
            "features for each query and prompt that is named."
        )
    rng = np.random.default_rng(seed)
    parts = [rng.permutation(len(x)) % FOLDS for _ in range(REPEATS)]
    pairs = _joined(x[log.queries], z[log.prompts])
    held = {ridge: _held_out(pairs, log, parts[0], ridge) for ridge in RIDGES}
    ridge = min(held, key=lambda one: _deviance(held[one], log.success))
    weights = logistic(pairs, log.success, ridge=ridge).weights
    best = int(np.argmax([_mean(log.success[log.prompts == p]) for p in range(len(z))]))
    return Chooser(weights, ridge, best, _gain(x, z, log, parts, ridge))


def _joined(x: Array, z: Array) -> Array:
    """Constant, query, prompt and all their products: (n, (1 + d) (1 + e))."""
    one = np.ones((len(x), 1))
    first, second = np.hstack([one, x]), np.hstack([one, z])
    return np.asarray((first[:, :, None] * second[:, None, :]).reshape(len(x), -1))


def _held_out(pairs: Array, log: Log, folds: NDArray[np.int64], ridge: float) -> Array:
    """Predictions for each row by a fit to the queries of other folds."""
    predicted = np.zeros(len(log.success))
    for fold in range(FOLDS):
        away = folds[log.queries] == fold
        if away.any() and not away.all():
            weights = logistic(pairs[~away], log.success[~away], ridge=ridge).weights
            predicted[away] = sigmoid(pairs[away] @ weights)
    return predicted


def _deviance(predicted: Array, success: Array) -> float:
    p = np.clip(predicted, 1e-9, 1 - 1e-9)
    return float(-(success * np.log(p) + (1 - success) * np.log(1 - p)).mean())


def _gain(x: Array, z: Array, log: Log, parts: Sequence[NDArray[np.int64]], ridge: float) -> Gain:
    differences: dict[int, list[float]] = {}
    for folds in parts:
        for fold in range(FOLDS):
            away = folds[log.queries] == fold
            if away.any() and not away.all():
                for query, difference in _differences(x, z, log, away, ridge):
                    differences.setdefault(query, []).append(difference)
    each = [sum(values) / len(values) for values in differences.values()]
    if len(each) < 2:
        return Gain(0.0, -1.0, 1.0, len(each))
    mean, half = float(np.mean(each)), Z * float(np.std(each, ddof=1)) / len(each) ** 0.5
    return Gain(mean, mean - half, mean + half, len(each))


def _differences(
    x: Array, z: Array, log: Log, away: NDArray[np.bool_], ridge: float
) -> Iterator[tuple[int, float]]:
    """For each held-out query whose prompts were logged: success with the chosen prompt less with the best one."""
    kept, rows = ~away, np.unique(log.queries[away])
    fit = logistic(_joined(x[log.queries[kept]], z[log.prompts[kept]]), log.success[kept], ridge=ridge)
    fixed = int(np.argmax([_mean(log.success[kept & (log.prompts == p)]) for p in range(len(z))]))
    pairs = _joined(np.repeat(x[rows], len(z), 0), np.tile(z, (len(rows), 1)))
    chosen = (pairs @ fit.weights).reshape(len(rows), len(z)).argmax(axis=1)
    held = zip(
        log.queries[away].tolist(), log.prompts[away].tolist(), log.success[away].tolist(), strict=True
    )
    logged = {(q, p): s for q, p, s in held}
    for query, prompt in zip(rows.tolist(), chosen.tolist(), strict=True):
        if (query, prompt) in logged and (query, fixed) in logged:
            yield query, logged[query, prompt] - logged[query, fixed]


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else -np.inf
