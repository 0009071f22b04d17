"""Gradients of the loss of the wanted answers by the words of a prompt, through a frozen local model.

For every word of a prompt the derivative of the mean loss by the word's input embedding. To a first order, putting
word v in its place changes the loss by (E_v - E_word) . gradient (HotFlip, Ebrahimi et al. 2018, arXiv:1712.06751;
AutoPrompt, Shin et al. 2020, arXiv:2010.15980, eq. 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, parameter
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt

MARK = "\ue001"
"""Stands where the words stand while they are looked for in a text (a private-use character)."""

Spans = list[tuple[int, int]]
"""The position of each word in a text: its first character and the character after its last; empty where the text does not hold
the words."""


@dataclass(frozen=True)
class Wanted:
    """An input, the continuations that compete for it, and which of them is right. `others` are further ones that are right
    as well, single tokens each as the right one is: the loss is that of the sum of their probabilities."""

    values: Mapping[str, str]
    choices: Sequence[str]
    right: int
    others: Sequence[str] = ()


@dataclass(frozen=True)
class MarkedPrompt:
    """A prompt that has T words in it, and the same prompt with MARK in their place."""

    prompt: Prompt
    marked: Prompt
    words: Sequence[str]

    def spans(self, text: str, marked: str) -> Spans:
        """The positions of the words in the rendered prompt, given the rendered prompt with marks."""
        at = marked.find(MARK)
        places: Spans = []
        if at < 0:
            return places
        for word in self.words:
            at = text.index(word, at)
            places.append((at, at + len(word)))
            at += len(word)
        return places


@dataclass(frozen=True)
class Gradient:
    """Mean loss of some rows in nats, and its derivative by the embedding of each word, float32 (T, d)."""

    loss: float
    words: NDArray[np.float32]


class WordGradients(Protocol):
    """A frozen model that says how its loss changes with words.

    `words`: V whole words that are single tokens; `embeddings`: their input embeddings, float32 (V, d).
    """

    words: Sequence[str]
    embeddings: NDArray[np.float32]

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        """Of the mean over rows of -log p(right continuation). Rows that are longer than the model reads are left
        out. Raises UsageError when that leaves none."""
        ...


@runtime_checkable
class MaskStates(Protocol):
    """A frozen masked model that shows what it predicts the masked word from.

    `outputs`: what each of `words` is compared with there, its row of the output matrix, float32 (V, d).
    """

    words: Sequence[str]
    outputs: NDArray[np.float32]

    def mask_states(self, prompt: Prompt, inputs: Sequence[Mapping[str, str]]) -> NDArray[np.float32]:
        """The vector at the mask that is multiplied with the output matrix, for each input: float32 (inputs, d)."""
        ...


def word_gradients(model: LanguageModel) -> WordGradients:
    """The gradients of a model in this process. Raises UsageError for any other one."""
    make = getattr(model, "word_gradients", None)
    if make is None:
        raise UsageError(
            f"{model.address} gives no gradients: its weights must be in this process. "
            f"Use {parameter('lm', 'embedded/mlm')}, embedded/encoder, embedded/tiny or hf/PATH."
        )
    gradients: WordGradients = make()
    return gradients


def owners(offsets: Sequence[tuple[int, int]], spans: Spans) -> list[int]:
    """For each token the position of the word that it overlaps, -1 for a token of other text."""
    return [
        next((w for w, (a, b) in enumerate(spans) if start < b and stop > a), -1) for start, stop in offsets
    ]


def by_word(gradient: Any, owner: Sequence[Sequence[int]], words: int) -> NDArray[np.float32]:
    """Sums over the tokens of each word, (words, d), of a gradient by tokens (B, T, d); `owner` has a row for each."""
    rows = gradient.float().cpu().numpy()
    sums = np.zeros((words, rows.shape[-1]), dtype=np.float32)
    for row, owned in zip(rows, owner, strict=True):
        for at, word in enumerate(owned):
            if word >= 0:
                sums[word] += row[at]
    return sums


def sum_of_right(logp: Any, right: Sequence[Sequence[int]]) -> Any:
    """Sum over rows of log-probabilities (B, V) of the log of the summed probability of each row's right tokens."""
    return sum(row[tokens].logsumexp(0) for row, tokens in zip(logp, map(list, right), strict=True))


def is_word(text: str) -> bool:
    """Whether a token may stand in a searched prompt: three or more small ASCII letters and nothing else."""
    return len(text) >= 3 and text.isascii() and text.isalpha() and text.islower()


def no_rows(limit: int) -> UsageError:
    """Every row is too long."""
    return UsageError(
        f"every training row is longer than the {limit} tokens that the model reads with this prompt."
    )
