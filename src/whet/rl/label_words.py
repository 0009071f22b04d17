"""The words that stand for a label: a classifier of a masked model's states rates the words that the model can write.

Shin et al. 2020 (arXiv:2010.15980), section 2.3: a logistic classifier learns the labels from the states at the mask; it then
reads the output embedding of each word as if that were a state, and the words that it is surest of stand for the label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from whet.environments.environment import Environment, as_environment_type
from whet.prompt import Prompt
from whet.rl.blob import pack, read_blob
from whet.types import Example

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelWords:
    """The words that stand for each label, in the order of the labels; the bytes of it are what a candidate keeps."""

    words: Mapping[str, Sequence[str]]

    def save(self) -> bytes:
        """The words as the facts of a blob without tensors."""
        return pack({}, {"words": {label: list(words) for label, words in self.words.items()}})

    @classmethod
    def restore(cls, blob: bytes) -> LabelWords:
        """The words that `save` wrote."""
        facts, _ = read_blob(blob, "the words of labels")
        return cls(facts["words"])

    def load(self, blob: bytes) -> None:
        """Nothing: the words are found once and never change."""


@dataclass(frozen=True)
class LabelWordsEnvironment(Environment):
    """A task whose labels have several words each: the probability of a label is the sum over its words."""

    words: Mapping[str, Sequence[str]] = field(default_factory=dict)

    async def label_probs(self, prompts: Sequence[Prompt], examples: Sequence[Example]) -> Floats:
        """See `Environment.label_probs`; the labels' sums are divided by the sum of all."""
        sizes = [len(self.words[label]) for label in self.labels]
        flat = [word for label in self.labels for word in self.words[label]]
        scores = await self.model.score(prompts, [e.values for e in examples], [flat] * len(examples))
        weights = np.exp(scores.logprobs - scores.logprobs.max(axis=-1, keepdims=True))
        sums: Floats = np.add.reduceat(weights, np.cumsum([0, *sizes[:-1]]), axis=-1)
        shares: Floats = sums / sums.sum(axis=-1, keepdims=True)
        return shares


def with_label_words(env: Environment, label_words: LabelWords) -> LabelWordsEnvironment:
    """The same task with these words for its labels."""
    return as_environment_type(env, LabelWordsEnvironment, words=label_words.words)


def fit_logistic(states: object, classes: Sequence[int], n: int) -> tuple[Floats, Floats]:
    """Weights (n, d) and biases (n,) of a logistic classifier: states (rows, d) of `n` classes.

    They minimise half the squared norm of the weights plus the sum of -log p(class), as scikit-learn does at its default C = 1.
    """
    rows = torch.tensor(np.asarray(states), dtype=torch.float64)
    right = torch.tensor(list(classes))
    weights = torch.zeros(n, rows.shape[1], dtype=torch.float64, requires_grad=True)
    biases = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights, biases], max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> object:
        value = torch.nn.functional.cross_entropy(rows @ weights.T + biases, right, reduction="sum")
        value = value + weights.square().sum() / 2
        weights.grad, biases.grad = torch.autograd.grad(value, [weights, biases])
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach().numpy(), biases.detach().numpy()


def surest_words(
    classifier: tuple[Floats, Floats], embeddings: object, words: Sequence[str], k: int
) -> list[list[str]]:
    """For each class the `k` words whose output embeddings (words, d) the classifier takes for it with the highest
    probability; the first of equals."""
    weights, biases = classifier
    logits = np.asarray(embeddings, dtype=np.float64) @ weights.T + biases
    logits = logits - logits.max(axis=1, keepdims=True)
    sure = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return [[words[w] for w in np.argsort(-column, kind="stable")[:k]] for column in sure.T]
