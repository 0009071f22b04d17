"""Which two prompts to show a person next, and how strong each prompt is by what people preferred.

A duel is one choice: two answers side by side, the better one wins. People's time is the budget, so the next pair
is chosen by what the choices so far leave open:

- `Apohf`: a small network learns the strength of a prompt from its embedding; the strongest prompt meets the
  one that might still beat it (Lin et al., "Prompt optimization with human feedback", arXiv:2405.17346, 2024,
  section 3.2). For many prompts and few choices: a choice also says something about similar prompts.
- `Pdo`: double Thompson sampling on the matrix of wins (Wu and Liu, "Double Thompson sampling for dueling
  bandits", NeurIPS 2016, as used for prompts by Wu et al., "LLM prompt duel optimizer", arXiv:2510.13907, 2025).
  Needs no embedding and assumes no order among the prompts.
- `Uniform`: every pair alike; what the others are measured against.

A selector holds no state: `Duels` is the state, and `next_pair(duels, rng)` reads it, so that a queue may be
closed and opened again, and several people may choose at a time.

Differences from the papers. Apohf: embeddings are turned into the space that they span, which keeps all
distances and makes ten prompts ten numbers each; the noise of a choice is that of the people, not scaled by
10. Pdo: the pool is given (no losers are dropped, no new prompts are written).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError

Array = NDArray[np.float64]
Weights = list[Array]


@dataclass
class Duels:
    """The choices so far among `n` prompts, numbered from 0.

    `rows` are (first, second, outcome): 1 if the first was preferred, 0 if the second, 0.5 if neither.
    """

    n: int
    rows: list[tuple[int, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.n < 2:
            raise UsageError(f"There are {self.n} prompts; a choice needs two.")
        rows, self.rows = self.rows, []
        for row in rows:
            self.observe(*row)

    @classmethod
    def of(cls, names: Sequence[Hashable], choices: Iterable[tuple[Hashable, Hashable, float]]) -> Duels:
        """From choices between names (versions, ids); those that name another one are left out."""
        place = {name: number for number, name in enumerate(names)}
        known = [(place[a], place[b], y) for a, b, y in choices if a in place and b in place and a != b]
        return cls(len(names), known)

    def observe(self, first: int, second: int, outcome: float) -> None:
        """Add a choice. Raises UsageError for unknown prompts, a prompt against itself, another outcome."""
        if not (0 <= first < self.n and 0 <= second < self.n) or first == second:
            raise UsageError(
                f"A choice between {first} and {second} is none; the prompts are 0 to {self.n - 1}."
            )
        if outcome not in (0.0, 0.5, 1.0):
            raise UsageError(f"The outcome of a choice is {outcome}; it must be 1, 0 or 0.5.")
        self.rows.append((first, second, float(outcome)))

    @property
    def wins(self) -> Array:
        """wins[i, j]: how often i was preferred to j, an undecided choice as half of one. (n, n)"""
        counts = np.zeros((self.n, self.n))
        for first, second, outcome in self.rows:
            counts[first, second] += outcome
            counts[second, first] += 1.0 - outcome
        return counts


class Selector(Protocol):
    """Chooses pairs. `next_pair` names two different prompts, `best` the one to take now."""

    def next_pair(self, duels: Duels, rng: np.random.Generator) -> tuple[int, int]:
        """The next two prompts to show."""
        ...

    def best(self, duels: Duels) -> int:
        """The prompt to take, by the choices so far."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Pairs drawn alike; the best is the Copeland winner."""

    def next_pair(self, duels: Duels, rng: np.random.Generator) -> tuple[int, int]:
        """Two prompts at random."""
        first, second = rng.choice(duels.n, size=2, replace=False)
        return int(first), int(second)

    def best(self, duels: Duels) -> int:
        """The Copeland winner."""
        return copeland(duels)


@dataclass(frozen=True)
class Pdo:
    """Double Thompson sampling. `alpha` widens the confidence bounds, 1.2 as in the paper's code."""

    alpha: float = 1.2

    def next_pair(self, duels: Duels, rng: np.random.Generator) -> tuple[int, int]:
        """The best of the possible Copeland winners under a draw, and the one that most likely still beats it."""
        wins, n = duels.wins, duels.n
        counts = wins + wins.T
        known, share = counts > 0, np.divide(wins, counts, out=np.zeros_like(wins), where=counts > 0)
        width = np.sqrt(self.alpha * math.log(max(2, len(duels.rows) + 1)) / np.maximum(counts, 1.0))
        upper, lower = np.where(known, share + width, 1.0), np.where(known, share - width, 0.0)
        np.fill_diagonal(upper, 0.0)
        optimistic = (upper > 0.5).sum(axis=1)

        drawn = np.triu(rng.beta(wins + 1.0, wins.T + 1.0), 1)
        drawn += np.tril(1.0 - drawn.T, -1)
        beaten = np.where(optimistic == optimistic.max(), (drawn > 0.5).sum(axis=1), -1)
        first = int(rng.choice(np.flatnonzero(beaten == beaten.max())))

        against = rng.beta(wins[:, first] + 1.0, wins[first] + 1.0)
        open_ones = lower[:, first] <= 0.5
        open_ones[first] = False
        if not open_ones.any():
            open_ones = np.arange(n) != first
        return first, int(np.where(open_ones, against, -1.0).argmax())

    def best(self, duels: Duels) -> int:
        """The Copeland winner."""
        return copeland(duels)


def copeland(duels: Duels) -> int:
    """The prompt that beats most others; among equals the one with the larger share of its choices (Borda)."""
    wins = duels.wins
    counts = wins + wins.T
    beats = (wins > wins.T).sum(axis=1)
    borda = (wins.sum(axis=1) + 0.5) / (counts.sum(axis=1) + 1.0)
    return int(np.lexsort((-borda, -beats))[0])


@dataclass(frozen=True)
class Apohf:
    """A neural dueling bandit on embeddings `features`, one row for each prompt.

    `nu` weighs exploration, `ridge` is the paper's lambda, `first` the number of random pairs at the start; the
    network has two hidden layers of `hidden` units and is trained for `steps` steps of Adam at the rate `rate` from
    the same weights, those of `seed`, after every choice.
    """

    features: Array
    nu: float = 1.0
    ridge: float = 0.1
    first: int = 5
    hidden: int = 32
    steps: int = 1000
    rate: float = 1e-3
    seed: int = 0

    def next_pair(self, duels: Duels, rng: np.random.Generator) -> tuple[int, int]:
        """The strongest prompt, and the one with the largest strength and uncertainty about their difference."""
        if len(duels.rows) < self.first:
            return Uniform().next_pair(duels, rng)
        x = self._inputs(duels)
        weights = self._fitted(x, duels)
        strengths, gradients = _strengths(x, weights), _gradients(x, weights)
        first = int(strengths.argmax())
        counts = duels.wins + duels.wins.T
        met = (counts.sum(axis=1, keepdims=True) * gradients - counts @ gradients) * gradients
        spread = np.maximum(met.sum(axis=0), 0.0) + self.ridge
        bonus = np.sqrt(self.nu * ((gradients - gradients[first]) ** 2 / spread).sum(axis=1))
        wanted = strengths + bonus
        wanted[first] = -math.inf
        return first, int(wanted.argmax())

    def best(self, duels: Duels) -> int:
        """The strongest of the prompts that were shown; prompt 0 before the first choice."""
        if not duels.rows:
            return 0
        x = self._inputs(duels)
        strengths = _strengths(x, self._fitted(x, duels))
        shown = sorted({number for a, b, _ in duels.rows for number in (a, b)})
        return shown[int(strengths[shown].argmax())]

    def _inputs(self, duels: Duels) -> Array:
        """The embeddings in the space that they span, (n, at most n); all distances are kept."""
        embeddings = np.asarray(self.features, dtype=np.float64)
        if embeddings.ndim != 2 or len(embeddings) != duels.n:
            raise UsageError(f"{len(embeddings)} embeddings do not fit {duels.n} prompts; give one for each.")
        if not np.isfinite(embeddings).all():
            raise UsageError("An embedding holds a number that is not finite.")
        u, s, _ = np.linalg.svd(embeddings, full_matrices=False)
        kept = s > 1e-9 * max(s.max(initial=0.0), 1e-9)
        coordinates: Array = u[:, kept] * s[kept] if kept.any() else np.zeros((duels.n, 1))
        return coordinates

    def _fitted(self, x: Array, duels: Duels) -> Weights:
        """Weights after training on all choices: logistic loss of the difference of strengths, with decay."""
        wins, n = duels.wins, len(duels.rows)
        counts = wins + wins.T
        weights = _initial(x.shape[1], self.hidden, self.seed)
        decay = self.ridge / (n + 50.0)
        m, v = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
        for step in range(1, self.steps + 1):
            layers = _layers(x, weights)
            preferred = 0.5 + 0.5 * np.tanh(0.5 * (layers[-1] - layers[-1].T))
            output = (counts * preferred - wins).sum(axis=1) / n
            for k, g in enumerate(_backward(x, weights, layers, output)):
                g += decay * weights[k]
                m[k] = 0.9 * m[k] + 0.1 * g
                v[k] = 0.999 * v[k] + 0.001 * g * g
                size = self.rate * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                weights[k] = weights[k] - size * m[k] / (np.sqrt(v[k]) + 1e-8)
        return weights


def _initial(inputs: int, hidden: int, seed: int) -> Weights:
    """Weights and biases of three layers, uniform within 1/sqrt(inputs of the layer)."""
    rng = np.random.default_rng(seed)
    sizes = ((inputs, hidden), (hidden, hidden), (hidden, 1))
    return [
        rng.uniform(-1 / math.sqrt(a), 1 / math.sqrt(a), shape) for a, b in sizes for shape in ((a, b), (b,))
    ]


def _layers(x: Array, weights: Weights) -> list[Array]:
    """Outputs of the two hidden layers (n, hidden) and of the last one (n, 1)."""
    first = np.maximum(x @ weights[0] + weights[1], 0.0)
    second = np.maximum(first @ weights[2] + weights[3], 0.0)
    return [first, second, second @ weights[4] + weights[5]]


def _strengths(x: Array, weights: Weights) -> Array:
    return _layers(x, weights)[-1][:, 0]


def _backward(x: Array, weights: Weights, layers: list[Array], output: Array) -> Weights:
    """Gradients of sum_i output_i h(x_i) with respect to the weights."""
    first, second, _ = layers
    last = output[:, None]
    d2 = (last @ weights[4].T) * (second > 0)
    d1 = (d2 @ weights[2].T) * (first > 0)
    return [x.T @ d1, d1.sum(axis=0), first.T @ d2, d2.sum(axis=0), second.T @ last, last.sum(axis=0)]


def _gradients(x: Array, weights: Weights) -> Array:
    """The gradient of each prompt's strength with respect to all weights, (n, weights)."""
    rows = [
        np.concatenate([g.ravel() for g in _backward(one, weights, _layers(one, weights), np.ones(1))])
        for one in x[:, None, :]
    ]
    return np.array(rows)


@dataclass(frozen=True)
class Strength:
    """How strong a prompt is: log-odds of being preferred to an average one of the pool, with an interval.

    `against_average` is the same as a probability; `n` the number of its choices.
    """

    strength: float
    low: float
    high: float
    n: int

    @property
    def against_average(self) -> float:
        """Probability of being preferred to a prompt of average strength."""
        return 1.0 / (1.0 + math.exp(-self.strength))


def bradley_terry(duels: Duels, confidence: float = 0.95, spread: float = 2.0) -> list[Strength]:
    """Strengths under the model of Bradley and Terry (Biometrika 39, 1952): P(i beats j) = sigmoid(s_i - s_j).

    The most probable strengths under a normal prior of mean 0 and standard deviation `spread`, which keeps
    prompts that always won finite, with normal intervals from the curvature there (Laplace). An undecided
    choice is half a win for both. Assumes one order of strength and independent choices; the intervals are for
    one look, not for continuous peeking. Raises UsageError for a confidence outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie in (0, 1).")
    wins, n = duels.wins, duels.n
    counts = wins + wins.T
    s = np.zeros(n)
    for _ in range(100):
        p = 1.0 / (1.0 + np.exp(s[None, :] - s[:, None]))
        slope = (wins - counts * p).sum(axis=1) - s / spread**2
        weight = counts * p * (1.0 - p)
        curvature = np.diag(weight.sum(axis=1) + 1.0 / spread**2) - weight
        step = np.linalg.solve(curvature, slope)
        s = s + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-10:
            break
    centre = np.eye(n) - 1.0 / n
    errors = np.sqrt(np.diag(centre @ np.linalg.inv(curvature) @ centre))
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    s = s - s.mean()
    return [
        Strength(float(m), float(m - z * e), float(m + z * e), int(c))
        for m, e, c in zip(s, errors, counts.sum(axis=1), strict=True)
    ]
