"""Gradients by the words of a prompt through the embedded models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whet.models.embedded.bert import MAX_TOKENS, Encoder, pad
from whet.models.embedded.encoder import LONGEST, TEMPERATURE, hypothesis
from whet.models.embedded.local import EmbeddedModel, defuse_mask_tokens
from whet.models.embedded.mlm import PLACE
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
from whet.prompt import Prompt

if TYPE_CHECKING:
    from whet.models.embedded.encoder import EncoderModel
    from whet.models.embedded.mlm import MaskedModel

BATCH = 32


class _Words:
    """The words that are single pieces, and the texts of a prompt as pieces with their owners."""

    def __init__(self, model: EmbeddedModel, encoder: Encoder) -> None:
        self._tokenizer = model.tokenizer
        pieces = {text: piece for text, piece in model.tokenizer.get_vocab().items() if is_word(text)}
        order = sorted(pieces, key=lambda text: pieces[text])
        self.words: Sequence[str] = order
        self.embeddings: NDArray[np.float32] = encoder.words[[pieces[text] for text in order]].float().numpy()

    def _read(self, placed: MarkedPrompt, text: str, marked: str) -> tuple[list[int], list[int]]:
        """The pieces of a text, and for each the word of the prompt that owns it (-1: none)."""
        text, marked = defuse_mask_tokens(text), defuse_mask_tokens(marked)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, owners(encoding.offsets, placed.spans(text, marked))


@dataclass(frozen=True)
class _Masked:
    """Pieces, the word that owns each of them (-1: none), the place of the first mask, the pieces wanted there, and the
    single pieces that are right as well."""

    ids: list[int]
    owner: list[int]
    at: int
    wanted: list[int]
    others: list[int]


class MaskedGradients(_Words):
    """See `whet.models.gradients.WordGradients`; the loss is that of the right label's words at ``{{mask}}`` alone. The states
    at the mask are those behind the head's transformation (`MaskStates`)."""

    def __init__(self, model: MaskedModel) -> None:
        super().__init__(model, model.encoder)
        self._model = model
        self.outputs = self.embeddings

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        """See `WordGradients.gradient`; computed in batches of 32 rows."""
        read = [one for row in rows if len((one := self._row(placed, row)).ids) <= MAX_TOKENS]
        if not read:
            raise no_rows(MAX_TOKENS)
        loss, total = 0.0, np.zeros((len(placed.words), self.embeddings.shape[1]), dtype=np.float32)
        for at in range(0, len(read), BATCH):
            batch = read[at : at + BATCH]
            part, gradient = self._batch(batch)
            loss, total = loss + part, total + by_word(gradient, [row.owner for row in batch], len(total))
        return Gradient(loss / len(read), total / np.float32(len(read)))

    @torch.inference_mode()
    def mask_states(self, prompt: Prompt, inputs: Sequence[Mapping[str, str]]) -> NDArray[np.float32]:
        """See `MaskStates.mask_states`; computed in batches of 32 inputs."""
        model = self._model
        around = [model.around(prompt, values, 1) for values in inputs]
        states = []
        for at in range(0, len(around), BATCH):
            batch = around[at : at + BATCH]
            ids, mask = pad([[model.first, *left, model.mask, *right, model.last] for left, right in batch])
            places = torch.tensor([1 + len(left) for left, _ in batch])
            states.append(model.head.transform(model.encoder(ids, mask)[torch.arange(len(batch)), places]))
        joined: NDArray[np.float32] = torch.cat(states).numpy()
        return joined

    def _row(self, placed: MarkedPrompt, row: Wanted) -> _Masked:
        model = self._model
        values = {name: text.replace(PLACE, " ") for name, text in row.values.items()}
        texts, marked = model.texts(placed.prompt, values), model.texts(placed.marked, values)
        (left, left_owner), (right, right_owner) = (
            self._read(placed, text, other) for text, other in zip(texts, marked, strict=True)
        )
        wanted, *others = model.encode([row.choices[row.right], *row.others])
        ids = [model.first, *left, *[model.mask] * len(wanted), *right, model.last]
        owner = [-1, *left_owner, *[-1] * len(wanted), *right_owner, -1]
        return _Masked(ids, owner, 1 + len(left), wanted, [piece for (piece,) in others])

    def _batch(self, rows: Sequence[_Masked]) -> tuple[float, Tensor]:
        ids, mask = pad([row.ids for row in rows])
        embeds = F.embedding(ids, self._model.encoder.words).detach().requires_grad_()
        hidden = self._model.encoder.read(embeds, mask)
        places = [(i, row.at + k) for i, row in enumerate(rows) for k in range(len(row.wanted))]
        right = [
            [piece, *(row.others if len(row.wanted) == 1 else [])] for row in rows for piece in row.wanted
        ]
        i, column = (torch.tensor(one) for one in zip(*places, strict=True))
        logp = self._model.head(hidden[i, column])
        loss = -sum_of_right(logp, right)
        return float(loss.detach()), torch.autograd.grad(loss, [embeds])[0]


class EncoderGradients(_Words):
    """See `whet.models.gradients.WordGradients`; the loss is that of the right label among the labels."""

    def __init__(self, model: EncoderModel) -> None:
        super().__init__(model, model.encoder)
        self._model = model

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        """See `WordGradients.gradient`. All rows have the same choices: the labels' words."""
        model, (first, last) = self._model, self._model.ends
        premises = model.memo.get(["\n".join(row.values.values()) for row in rows], model.embed).clone()
        choices = rows[0].choices
        read = [
            self._read(
                placed, hypothesis(placed.prompt, word, choices), hypothesis(placed.marked, word, choices)
            )
            for word in choices
        ]
        ids, mask = pad([[first, *pieces[: LONGEST - 2], last] for pieces, _ in read])
        embeds = F.embedding(ids, model.encoder.words).detach().requires_grad_()
        hidden = model.encoder.read(embeds, mask).float() * mask[..., None]
        vectors = F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=1)
        logp = (premises @ vectors.T).div(TEMPERATURE).log_softmax(-1)  # (rows, labels)
        loss = -logp.gather(1, torch.tensor([[row.right] for row in rows])).mean()
        (gradient,) = torch.autograd.grad(loss, [embeds])
        owner = [[-1, *owned[: LONGEST - 2], -1] for _, owned in read]
        return Gradient(float(loss.detach()), by_word(gradient, owner, len(placed.words)))
