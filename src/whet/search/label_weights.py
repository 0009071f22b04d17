"""Weights of labels: what the probabilities of the labels are multiplied with before the likeliest one is the answer.

After ReAnchor of DSPy 3.4.1 (stanfordnlp/dspy, `teleprompt/reanchor`). A prompt can lead a model to say one label too often; a
weight for each label mends that, and no call is needed to fit them to probabilities that are known. Without right labels, the
answers to inputs that say nothing show which label the prompt itself prefers (`contextual_weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.types import Example

Array = NDArray[np.float64]
Score = Callable[[Array, NDArray[np.int64]], Array]
"""From the probabilities of the labels (n, L), their sum 1, and the right labels (n,) to rewards (n,)."""

LEAST, LARGEST, BEYOND = 1e-3, 1e3, 4.0
_CANDIDATES = 40
CONTENT_FREE = ("N/A", "[MASK]", "")
"""Inputs that say nothing, as in the paper of `contextual_weights`."""


def weigh(probs: Array, weights: Array) -> Array:
    """Probabilities (..., L) times weights (L,), their sum 1 again."""
    raised = probs * weights
    normal: Array = raised / np.maximum(raised.sum(axis=-1, keepdims=True), 1e-300)
    return normal


def contextual_weights(probs: Array) -> Array:
    """Weights (L,) from the probabilities (n, L) of the labels on inputs that say nothing: contextual calibration.

        w_c = 1 / p_c,    p_c = mean over the inputs of p(c | prompt, input)

    Zhao et al., "Calibrate Before Use", ICML 2021, arXiv:2102.09690, section 5: W = diag(p)^-1 and b = 0. Under these weights
    the labels are equally likely on such inputs. The geometric mean of the weights is 1.

    >>> contextual_weights(np.array([[0.7, 0.3], [0.9, 0.1]])).round(6).tolist()
    [0.5, 2.0]
    """
    logs = -np.log(np.maximum(probs.mean(axis=0), 1e-300))
    weights: Array = np.exp(logs - logs.mean())
    return weights


def content_free_rows(row: Example) -> list[Example]:
    """A row with nothing in it for each text of `CONTENT_FREE`: it stands in place of every value of `row`."""
    return [
        Example(f"content-free-{i}", dict.fromkeys(row.values, text), text=text)
        for i, text in enumerate(CONTENT_FREE)
    ]


def candidates(probs: Array, weights: Array, label: int) -> list[float]:
    """Weights of one label between which answers change: between each two neighbouring flip points the geometric middle, and one
    beyond each end. A flip point is where the label is as likely as its likeliest rival. At most 40."""
    raised = probs * weights
    rivals = np.delete(raised, label, axis=1).max(axis=1)
    flips = np.unique(np.clip(rivals / np.maximum(probs[:, label], 1e-300), LEAST, LARGEST))
    middles = np.sqrt(flips[1:] * flips[:-1])
    inner = (
        np.unique(np.quantile(middles, np.linspace(0, 1, _CANDIDATES - 2), method="nearest"))
        if len(middles)
        else middles
    )
    return [float(flips[0] / BEYOND), *map(float, inner), float(flips[-1] * BEYOND)]


@dataclass(frozen=True)
class WeightFit:
    """A fit of weights to known probabilities (n, L) and right labels (n,). `folds` are groups of rows, each row in one; without
    any nothing is checked."""

    probs: Array
    right: NDArray[np.int64]
    score: Score
    folds: Sequence[NDArray[np.int64]]

    def rewards(self, weights: Array) -> Array:
        """The reward of each row under weights."""
        return self.score(weigh(self.probs, weights), self.right)

    def choice(self, weights: Array, label: int) -> Array:
        """The weights with the best one of a label; of equals the old one, then the one that is nearest to it."""
        old = weights[label]
        tried = [old, *sorted(candidates(self.probs, weights, label), key=lambda w: abs(np.log(w / old)))]
        options = [np.where(np.arange(len(weights)) == label, one, weights) for one in tried]
        return max(options, key=lambda one: float(self.rewards(one).sum()))

    def fit(self, passes: int) -> Array:
        """Weights, chosen label by label. A change stays where it earns more on all rows, and, chosen without a fold, more on
        that fold, all folds together. In the end all of it must earn more than no weights in the same check."""
        weights = np.ones(self.probs.shape[1])
        for _ in range(passes):
            for label in range(len(weights)):
                new = self.choice(weights, label)
                if self.rewards(new).sum() <= self.rewards(weights).sum():
                    continue
                if self.holds(lambda part, label=label, old=weights: part.choice(old, label), weights):  # type: ignore[misc]
                    weights = new
        whole = self.holds(lambda part: replace(part, folds=()).fit(passes), np.ones_like(weights))
        return weights if whole else np.ones_like(weights)

    def holds(self, choose: Callable[[WeightFit], Array], old: Array) -> bool:
        """Whether weights that are chosen without a fold earn more on it than the old ones do, all folds together."""
        if not self.folds:
            return True
        gain = 0.0
        for fold in self.folds:
            rest = np.setdiff1d(np.arange(len(self.right)), fold)
            part = replace(self, probs=self.probs[rest], right=self.right[rest])
            gain += float((self.rewards(choose(part)) - self.rewards(old))[fold].sum())
        return gain > 0


def deal(rows: Sequence[Example], folds: int) -> list[NDArray[np.int64]]:
    """So many groups of rows by their places, or as many as there are inputs; rows of one group, or with one input, come to one
    fold. None for 0."""
    keys = [row.group or row.user_text for row in rows]
    places = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    folds = min(folds, len(places))
    numbers = np.array([places[key] for key in keys])
    return [np.flatnonzero(numbers % folds == fold) for fold in range(folds)]


@dataclass(frozen=True)
class Reweighted(Environment):
    """A task that scores labels, with a weight for each."""

    weights: tuple[float, ...] = ()

    async def label_probs(self, prompts: Sequence[Prompt], examples: Sequence[Example]) -> Any:
        """The weighted probabilities of the labels, shape (P, E, L)."""
        return weigh(await super().label_probs(prompts, examples), np.array(self.weights))
