"""Gradients by the words of a prompt through the embedded models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.models.embedded.bert import Encoder
from whet.models.embedded.local import EmbeddedModel, defuse_mask_tokens
from whet.models.gradients import MarkedPrompt, is_word, owners

BATCH = 32


class GradientWords:
    """The words that are single pieces, and the texts of a prompt as pieces with their owners."""

    def __init__(self, model: EmbeddedModel, encoder: Encoder) -> None:
        self._tokenizer = model.tokenizer
        pieces = {text: piece for text, piece in model.tokenizer.get_vocab().items() if is_word(text)}
        order = sorted(pieces, key=lambda text: pieces[text])
        self.words: Sequence[str] = order
        self.embeddings: NDArray[np.float32] = encoder.words[[pieces[text] for text in order]].float().numpy()

    def read_words(self, placed: MarkedPrompt, text: str, marked: str) -> tuple[list[int], list[int]]:
        """The pieces of a text, and for each the word of the prompt that owns it (-1: none)."""
        text, marked = defuse_mask_tokens(text), defuse_mask_tokens(marked)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, owners(encoding.offsets, placed.spans(text, marked))
