"""A transformers model as the frozen body of a token-level policy (RLPrompt, Deng et al. 2022, arXiv:2205.12548)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.models.huggingface_gradients import whole_words
from whet.models.huggingface_load import Weights


class TransformersBody:
    """Words, output matrix and states of a model, without gradients.

    The state after some words is the last hidden one: of a causal model behind them, of a masked one at a mask behind
    them, of a sequence-to-sequence one where its decoder begins. `embeddings`: float32 (pieces, width).
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._words = whole_words(weights)
        self.embeddings: Tensor = weights.model.get_output_embeddings().weight.detach().float().cpu()

    def vocabulary(self, n: int) -> list[str]:
        """`n` words that are single tokens, in the order of these. Raises UsageError where there are fewer, or below 2."""
        if not 2 <= n <= len(self._words):
            raise UsageError(f"The vocabulary can have 2 to {len(self._words)} words, {n} were asked for.")
        return list(self._words)[:n]

    def ids(self, words: Sequence[str]) -> Tensor:
        """Tokens of words, int64 (len(words),). Raises UsageError for one that is no single token."""
        for word in words:
            if word not in self._words:
                raise UsageError(f'"{word}" is not a single token of the vocabulary.')
        return torch.tensor([self._words[word] for word in words], dtype=torch.long)

    @torch.no_grad()
    def hidden(self, pieces: Tensor) -> Tensor:
        """State after the tokens: int64 (k, t), t >= 0, to float32 (k, width), without gradient."""
        w = self._weights
        masked = w.kind == "masked"
        before = w.lead or (() if masked or w.kind == "seq2seq" else (w.start,))
        after = (*([w.tokenizer.mask_token_id] if masked else []), *(() if w.kind == "causal" else w.tail))
        ends = [torch.tensor(end, dtype=torch.long).expand(len(pieces), -1) for end in (before, after)]
        ids = torch.cat([ends[0], pieces, ends[1]], 1).to(w.device)
        read: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if w.kind == "seq2seq":
            begin = torch.full((len(ids), 1), w.model.config.decoder_start_token_id, device=w.device)
            out = w.model(**read, decoder_input_ids=begin, output_hidden_states=True)
            states = out.decoder_hidden_states[-1]
        else:
            states = w.model.base_model(**read).last_hidden_state
        place = -1 - len(w.tail) if masked else -1
        state: Tensor = states[:, place].float().cpu()
        return state
