"""The frozen body of a token-level policy (RLPrompt, Deng et al. 2022, arXiv:2205.12548).

A policy network with few trained weights stands on the masked model's encoder: it reads the encoder's
state at ``[MASK]`` after the tokens chosen so far and answers with scores over a vocabulary, through the
frozen embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.models.embedded.bert import Encoder, fast_dtype
from whet.models.embedded.mlm import merged_weights, read_delta
from whet.models.embedded.weights import tokenizer
from whet.models.gradients import is_word


class PolicyBody:
    """Vocabulary, embeddings and states of the masked model, without gradients.

    Args:
        dtype: arithmetic type; by default bfloat16 where the processor is fast at it, float32 elsewhere.

    Attributes:
        embeddings: frozen output matrix, float32 (30522, 384), one row per piece.
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        delta = read_delta()
        weights = merged_weights(delta)
        self.tokenizer = tokenizer()
        self.embeddings: Tensor = weights["embeddings.word_embeddings.weight"].float()
        self._encoder = Encoder(weights, dtype or fast_dtype())
        self._bias = delta["head.bias"].float()
        self._ends = [self.tokenizer.token_to_id(name) for name in ("[CLS]", "[MASK]", "[SEP]")]

    def vocabulary(self, n: int) -> list[str]:
        """The ``n`` commonest whole words of three or more letters, by the bias of the masked model's head.

        Raises:
            UsageError: ``n`` is below 2 or above the number of such words.
        """
        order = torch.argsort(self._bias, descending=True, stable=True).tolist()
        words = [self.tokenizer.id_to_token(piece) for piece in order]
        words = [word for word in words if is_word(word)]
        if not 2 <= n <= len(words):
            raise UsageError(f"The vocabulary can have 2 to {len(words)} words, {n} were asked for.")
        return words[:n]

    def ids(self, words: Sequence[str]) -> Tensor:
        """Piece numbers of whole words, int64 (len(words),).

        Raises:
            UsageError: a word is not a single piece.
        """
        ids = [self.tokenizer.token_to_id(word) for word in words]
        if None in ids:
            raise UsageError(f'"{words[ids.index(None)]}" is not a single piece of the vocabulary.')
        return torch.tensor(ids, dtype=torch.long)

    @torch.no_grad()
    def hidden(self, pieces: Tensor) -> Tensor:
        """Encoder state at ``[MASK]`` in ``[CLS] pieces [MASK] [SEP]``.

        Args:
            pieces: int64 (k, t), 0 <= t <= 500.

        Returns:
            float32 (k, 384), without gradient.
        """
        first, mask, last = (torch.full((len(pieces), 1), end, dtype=torch.long) for end in self._ends)
        ids = torch.cat([first, pieces, mask, last], dim=1)
        return self._encoder(ids, torch.ones_like(ids))[:, -2].float()
