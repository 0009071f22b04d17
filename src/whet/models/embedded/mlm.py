"""``embedded/mlm``: a masked language model of 22.7 million weights.

The base sentence encoder plus a delta that ships with whet: a head (dense, GELU, LayerNorm, bias; the
decoder is tied to the input embeddings) and a low-rank update of every linear map, merged into the
weights when they are read. A label is scored as in RLPrompt (Deng et al. 2022, arXiv:2205.12548): the
log-probability of its word at ``{{mask}}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whet.errors import UsageError
from whet.models.embedded.bert import MAX_TOKENS, Encoder, batches, fast_dtype, pad
from whet.models.embedded.gradients import BATCH, GradientWords
from whet.models.embedded.local import MASK_SLOT, Continuations, EmbeddedModel
from whet.models.embedded.masked_body import Head, merged_weights, read_delta
from whet.models.gradients import Gradient, MarkedPrompt, Wanted, by_word, no_rows, sum_of_right
from whet.prompt import Prompt

PLACE = "\ue000"  # stands for the masked word while a prompt is rendered (a private-use character)


class MaskedModel(EmbeddedModel):
    """The masked language model. `dtype`: arithmetic type; by default bfloat16 where the processor is fast at it, float32
    elsewhere. `batch_tokens`: padded tokens computed at once."""

    def __init__(self, dtype: torch.dtype | None = None, batch_tokens: int = 4096) -> None:
        super().__init__("mlm")
        delta = read_delta()
        self.encoder = Encoder(merged_weights(delta), dtype or fast_dtype())
        self.head = Head(delta, self.encoder.words)
        self.batch_tokens = batch_tokens
        self.first, self.last, self.mask = (
            self.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")
        )

    def word_gradients(self) -> MaskedGradients:
        """The change of this model's loss with the words of a prompt (for autoprompt)."""
        return MaskedGradients(self)

    def compute(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities float64 (P, E, L); a continuation of n pieces fills n masks."""
        words = self.encode(continuations.distinct)
        around = [
            self.around(prompt, values, max(map(len, words))) for prompt in prompts for values in inputs
        ]
        by_prompt = self.table(around, words).reshape(len(prompts), len(inputs), len(words))
        index = np.broadcast_to(continuations.index, (len(prompts), *continuations.index.shape))
        return np.take_along_axis(by_prompt, index, axis=-1)

    def compute_pairs(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities float64 (N, L) of each input under its own prompt."""
        words = self.encode(continuations.distinct)
        longest = max(map(len, words))
        around = [
            self.around(prompt, values, longest) for prompt, values in zip(prompts, inputs, strict=True)
        ]
        return np.take_along_axis(self.table(around, words), continuations.index, axis=-1)

    def table(
        self, around: Sequence[tuple[list[int], list[int]]], words: Sequence[list[int]]
    ) -> NDArray[np.float64]:
        """Log-probability of each word, of one or more pieces, in each context: float64 (contexts, words)."""
        table = np.full((len(around), len(words)), np.nan)
        for size in sorted({len(word) for word in words}):
            members = [at for at, word in enumerate(words) if len(word) == size]
            table[:, members] = self.fill(around, [words[at] for at in members])
        return table

    def around(self, prompt: Prompt, values: Mapping[str, str], masks: int) -> tuple[list[int], list[int]]:
        """Tokens left and right of the mask; beyond 512 tokens the longest input is cut. Raises UsageError: ``{{mask}}`` stands
        in the prompt more than once."""
        room = MAX_TOKENS - 2 - masks
        values = {name: text.replace(PLACE, " ") for name, text in values.items()}
        left, right = self._sides(prompt, values)
        while len(left) + len(right) > room and any(values.values()):
            longest = max(values, key=lambda name: len(values[name]))
            keep = len(values[longest]) * room // (len(left) + len(right)) - 1
            values[longest] = values[longest][: max(0, keep)]
            left, right = self._sides(prompt, values)
        if len(left) + len(right) > room:
            left, right = left[-max(1, room - len(right)) :], right[: room // 2]
        return left, right

    def _sides(self, prompt: Prompt, values: Mapping[str, str]) -> tuple[list[int], list[int]]:
        left, right = self.encode(self.texts(prompt, values))
        return left, right

    @staticmethod
    def texts(prompt: Prompt, values: Mapping[str, str]) -> tuple[str, str]:
        """The texts left and right of the mask, before anything is cut. Raises UsageError: ``{{mask}}`` stands in the prompt
        more than once."""
        text = prompt.render_text({**values, MASK_SLOT: PLACE})
        if not prompt.slots & values.keys():
            text = "\n".join([*values.values(), text])
        if PLACE not in text:
            text = f"{text} {PLACE}"
        left, _, right = text.partition(PLACE)
        if PLACE in right:
            raise UsageError("The slot {{mask}} must stand in the prompt once: one word is masked.")
        return left, right

    def fill(
        self, around: Sequence[tuple[list[int], list[int]]], words: Sequence[list[int]]
    ) -> NDArray[np.float64]:
        """Log-probability of each word at its n masks in each context: float64 (contexts, words)."""
        size = len(words[0])
        masks = [self.mask] * size
        sequences = [[self.first, *left, *masks, *right, self.last] for left, right in around]
        pieces = torch.tensor(words, dtype=torch.long)  # (words, n)
        out = torch.empty(len(around), len(words), dtype=torch.double)
        with torch.inference_mode():
            for rows in batches(sequences, self.batch_tokens):
                ids, seen = pad([sequences[row] for row in rows])
                hidden = self.encoder(ids, seen)
                total = torch.zeros(len(rows), len(words))
                for at in range(size):
                    here = torch.tensor([1 + len(around[row][0]) + at for row in rows])
                    total += self.head(hidden[torch.arange(len(rows)), here])[:, pieces[:, at]]
                out[rows] = total.double()
        result: NDArray[np.float64] = out.numpy()
        return result


@dataclass(frozen=True)
class _Masked:
    """Pieces, the word that owns each of them (-1: none), the place of the first mask, the pieces wanted there, and the
    single pieces that are right as well."""

    ids: list[int]
    owner: list[int]
    at: int
    wanted: list[int]
    others: list[int]


class MaskedGradients(GradientWords):
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
            self.read_words(placed, text, other) for text, other in zip(texts, marked, strict=True)
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
