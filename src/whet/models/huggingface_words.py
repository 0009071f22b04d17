"""A transformers model word by word: gradients by the words of a prompt, and the frozen body of a policy over words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.errors import UsageError
from whet.models.gradients import (
    Gradient,
    MarkedPrompt,
    Wanted,
    by_word,
    is_word,
    no_rows,
    owners,
    sum_of_right,
)
from whet.models.huggingface_load import Weights, encodable
from whet.models.huggingface_score import (
    ScoringItem,
    answer_items,
    build_forced_batch,
    items,
    log_likelihood,
    sides,
)
from whet.prompt import Prompt
from whet.types import Example

BATCH = 32
_BEFORE = "the"


@dataclass(frozen=True)
class _Row:
    """The model's input, the word that owns each of its tokens (-1: none), and the other tokens that are right."""

    item: ScoringItem
    owner: list[int]
    others: list[int]


class TransformersGradients:
    """See `whet.models.gradients.WordGradients`. The loss is that of the right continuation alone."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        pieces = whole_words(weights)
        table = weights.model.get_input_embeddings().weight.detach()
        self.words: Sequence[str] = list(pieces)
        self.embeddings: NDArray[np.float32] = table[list(pieces.values())].float().cpu().numpy()

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        """See `WordGradients.gradient`; computed in batches of 32 rows."""
        answers = [row.choices[row.right] for row in rows]
        values = [row.values for row in rows]
        read_items = answer_items(self._weights, placed.prompt, values, answers, ends=False)
        also = items(self._weights, [placed.prompt], values, [row.others for row in rows])
        owned = [self._owner(placed, row, item) for row, item in zip(rows, read_items, strict=True)]
        read = [
            _Row(item, owner, [token for (token,) in other.choices])
            for item, other, owner in zip(read_items, also, owned, strict=True)
            if owner
        ]
        if not read:
            raise no_rows(self._weights.limit)
        loss = 0.0
        total = np.zeros((len(placed.words), self.embeddings.shape[1]), dtype=np.float32)
        for at in range(0, len(read), BATCH):
            part, gradient = self._batch(read[at : at + BATCH], len(placed.words))
            loss, total = loss + part, total + gradient
        return Gradient(loss / len(read), total / np.float32(len(read)))

    def _batch(self, rows: Sequence[_Row], words: int) -> tuple[float, NDArray[np.float32]]:
        batch = build_forced_batch(self._weights, [row.item for row in rows])
        embeds = self._weights.model.get_input_embeddings()(batch.ids).detach().requires_grad_()
        if any(row.others for row in rows):
            out = self._weights.model(inputs_embeds=embeds, attention_mask=batch.mask)
            logp = out.logits[torch.arange(len(rows)), batch.first].float().log_softmax(-1)
            loss = -sum_of_right(logp, [[*row.item.choices[0], *row.others] for row in rows])
        else:
            loss = -log_likelihood(self._weights, batch, inputs_embeds=embeds).sum()
        (gradient,) = torch.autograd.grad(loss, [embeds])
        return float(loss.detach()), by_word(gradient, [row.owner for row in rows], words)

    def _owner(self, placed: MarkedPrompt, row: Wanted, item: ScoringItem) -> list[int]:
        """The word that owns each token that the model reads; empty for a row that had to be cut."""
        weights = self._weights
        texts, marked = _texts(weights, placed.prompt, row), _texts(weights, placed.marked, row)
        owned = [
            owners(self._offsets(text), placed.spans(text, other))
            for text, other in zip(texts, marked, strict=True)
        ]
        before = [*[-1] * (0 if weights.chat else len(weights.lead)), *owned[0]]
        if weights.kind == "masked":
            after = [*owned[1], *[-1] * len(weights.tail)]
            whole = len(before) == len(item.before) and len(after) == len(item.after)
            return [*before, *[-1] * len(item.choices[0]), *after] if whole else []
        ends = len(weights.tail) if weights.kind == "seq2seq" else 0
        return before if len(before) + ends == len(item.before) else []

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        read = self._weights.tokenizer(
            encodable(text),
            add_special_tokens=False,
            split_special_tokens=not self._weights.chat,
            return_offsets_mapping=True,
            verbose=False,
        )
        offsets: list[tuple[int, int]] = read["offset_mapping"]
        return offsets


class MaskedTransformersGradients(TransformersGradients):
    """The gradients of a masked model, which also shows what it predicts the masked word from (`MaskStates`)."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        table = weights.model.get_output_embeddings().weight.detach()
        tokens = whole_words(weights)
        self.outputs: NDArray[np.float32] = table[list(tokens.values())].float().cpu().numpy()

    @torch.no_grad()
    def mask_states(self, prompt: Prompt, inputs: Sequence[Mapping[str, str]]) -> NDArray[np.float32]:
        """See `MaskStates.mask_states`: the input of the output matrix, computed in batches of 32 inputs."""
        weights, seen = self._weights, list[Tensor]()
        answer = self.words[0]
        read = answer_items(weights, prompt, list(inputs), [answer] * len(inputs), ends=False)
        hook = weights.model.get_output_embeddings().register_forward_pre_hook(
            lambda layer, inputs: seen.append(inputs[0])
        )
        states = []
        try:
            for at in range(0, len(read), BATCH):
                batch = build_forced_batch(weights, read[at : at + BATCH])
                weights.model(input_ids=batch.ids, attention_mask=batch.mask)
                states.append(seen.pop()[torch.arange(len(batch.first)), batch.first].float().cpu())
        finally:
            hook.remove()
        joined: NDArray[np.float32] = torch.cat(states).numpy()
        return joined


def _texts(weights: Weights, prompt: Prompt, row: Wanted) -> tuple[str, ...]:
    if weights.kind == "masked":
        return sides(weights, prompt, row.values)
    return (weights.text(prompt.render(Example("", row.values))),)


def whole_words(weights: Weights) -> dict[str, int]:
    """Words that are single tokens after another word, with their tokens, in the order of these."""
    tokenizer = weights.tokenizer
    special = set(tokenizer.all_special_ids)
    texts = {
        token: tokenizer.decode([token]).strip() for token in range(len(tokenizer)) if token not in special
    }
    words = {token: text for token, text in texts.items() if is_word(text)}
    whole = [f"{_BEFORE} {text}" for text in words.values()]
    ids = tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"] if whole else []
    return {
        text: token
        for (token, text), row in zip(words.items(), ids, strict=True)
        if row[-1] == token and len(row) == len(weights.encode(_BEFORE)) + 1
    }


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
        """The first `n` words that are single tokens, in the order of these; all where a small tokenizer has fewer. Raises
        UsageError for `n` below 2, or where there are not two."""
        if n < 2 or len(self._words) < 2:
            raise UsageError(f"A vocabulary needs 2 words; {n} of {len(self._words)} were asked for.")
        return list(self._words)[:n]

    def ids(self, words: Sequence[str]) -> Tensor:
        """Tokens of words, int64 (len(words),). Raises UsageError for one that is no single token."""
        for word in words:
            if word not in self._words:
                raise UsageError(f'"{word}" is not a single token of the vocabulary.')
        return torch.tensor([self._words[word] for word in words], dtype=torch.long)

    def read(self, text: str) -> list[int]:
        """Tokens of any text."""
        return list(self._weights.encode(text))

    @torch.no_grad()
    def hidden(self, pieces: Tensor) -> Tensor:
        """State after the tokens: int64 (k, t), t >= 0, to float32 (k, width), without gradient."""
        w = self._weights
        masked = w.kind == "masked"
        before = w.lead or (() if masked or w.kind == "seq2seq" else (w.start,))
        after = (*([w.tokenizer.mask_token_id] if masked else []), *(() if w.kind == "causal" else w.tail))
        ends = [torch.tensor(end, dtype=torch.long).expand(len(pieces), -1) for end in (before, after)]
        ids = torch.cat([ends[0], pieces, ends[1]], 1).to(w.device)
        read: dict[str, object] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if w.kind == "seq2seq":
            begin = torch.full((len(ids), 1), w.model.config.decoder_start_token_id, device=w.device)
            out = w.model(**read, decoder_input_ids=begin, output_hidden_states=True)
            states = out.decoder_hidden_states[-1]
        else:
            states = w.model.base_model(**read).last_hidden_state
        place = -1 - len(w.tail) if masked else -1
        state: Tensor = states[:, place].float().cpu()
        return state
