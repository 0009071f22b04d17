"""``embedded/mlm``: a masked language model of 22.7 million weights.

The base sentence encoder plus a delta that ships with whet: a head (dense, GELU, LayerNorm, bias; the
decoder is tied to the input embeddings) and a low-rank update of every linear map, merged into the
weights when they are read. A label is scored as in RLPrompt (Deng et al. 2022, arXiv:2205.12548): the
log-probability of its word at ``{{mask}}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whet.errors import UsageError
from whet.models.embedded.bert import EPS, MAX_TOKENS, WIDTH, Encoder, batches, fast_dtype, pad
from whet.models.embedded.local import MASK_SLOT, Continuations, EmbeddedModel
from whet.models.embedded.weights import base_weights, need, tokenizer
from whet.models.gradients import is_word
from whet.prompt import Prompt

if TYPE_CHECKING:
    from whet.models.embedded.gradients import MaskedGradients

DELTA = Path(__file__).with_name("mlm.safetensors")
PLACE = "\ue000"  # stands for the masked word while a prompt is rendered (a private-use character)


class Head:
    """Hidden state to log-probabilities over the vocabulary. `delta`: tensors of the delta file whose names begin with
    ``head.``. `words`: tied decoder, the input embeddings (30522, 384)."""

    def __init__(self, delta: dict[str, Tensor], words: Tensor) -> None:
        dtype = words.dtype
        self.dense = (delta["head.dense.weight"].float(), delta["head.dense.bias"].float())
        self.norm = (delta["head.norm.weight"].float(), delta["head.norm.bias"].float())
        self.bias = delta["head.bias"].float()
        self.words, self.dtype = words, dtype

    def __call__(self, hidden: Tensor) -> Tensor:
        """Natural-log probabilities float32 (n, 30522) of hidden states (n, 384)."""
        x = self.transform(hidden).to(self.dtype)
        return (F.linear(x, self.words).float() + self.bias).log_softmax(-1)

    def transform(self, hidden: Tensor) -> Tensor:
        """What is compared with the words, float32 (n, 384), of hidden states (n, 384)."""
        return F.layer_norm(F.gelu(F.linear(hidden.float(), *self.dense)), (WIDTH,), *self.norm, EPS)


def read_delta() -> dict[str, Tensor]:
    """Tensors of the delta file, float16. Raises UsageError: the file is absent."""
    if not DELTA.is_file():
        raise UsageError(f"{DELTA} is missing; reinstall whet")
    delta: dict[str, Tensor] = need("safetensors.torch").load_file(str(DELTA))
    return delta


def merged_weights(delta: dict[str, Tensor]) -> dict[str, Tensor]:
    """Base weights plus the low-rank update, float32."""
    weights = base_weights()
    for name in [name for name in delta if name.endswith(".A")]:
        target = name[: -len(".A")]
        weights[target + ".weight"] = (
            weights[target + ".weight"] + delta[target + ".B"].float() @ delta[name].float()
        )
    return weights


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
        """How this model's loss changes with the words of a prompt (autoprompt)."""
        from whet.models.embedded.gradients import MaskedGradients

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


class PolicyBody:
    """Vocabulary, embeddings and states of the masked model, without gradients; computed in `dtype` (None: bfloat16 where the
    processor is fast at it, else float32). `embeddings`: the frozen output matrix, float32 (30522, 384), a row for a piece."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        delta = read_delta()
        weights = merged_weights(delta)
        self.tokenizer = tokenizer()
        self.embeddings: Tensor = weights["embeddings.word_embeddings.weight"].float()
        self._encoder = Encoder(weights, dtype or fast_dtype())
        self._bias = delta["head.bias"].float()
        self._ends = [self.tokenizer.token_to_id(name) for name in ("[CLS]", "[MASK]", "[SEP]")]

    def vocabulary(self, n: int) -> list[str]:
        """The `n` commonest whole words of three or more letters, by the bias of the head; all where there are fewer. Raises
        UsageError for `n` below 2."""
        order = torch.argsort(self._bias, descending=True, stable=True).tolist()
        words = [self.tokenizer.id_to_token(piece) for piece in order]
        words = [word for word in words if is_word(word)]
        if n < 2:
            raise UsageError(f"A vocabulary needs 2 words; {n} of {len(words)} were asked for.")
        return words[:n]

    def ids(self, words: Sequence[str]) -> Tensor:
        """Piece numbers of whole words, int64 (len(words),). Raises UsageError for a word that is not a single piece."""
        ids = [self.tokenizer.token_to_id(word) for word in words]
        if None in ids:
            raise UsageError(f'"{words[ids.index(None)]}" is not a single piece of the vocabulary.')
        return torch.tensor(ids, dtype=torch.long)

    @torch.no_grad()
    def hidden(self, pieces: Tensor) -> Tensor:
        """Encoder state at `[MASK]` in `[CLS] pieces [MASK] [SEP]`: int64 (k, t), t at most 500, to float32 (k, 384)."""
        first, mask, last = (torch.full((len(pieces), 1), end, dtype=torch.long) for end in self._ends)
        ids = torch.cat([first, pieces, mask, last], dim=1)
        return self._encoder(ids, torch.ones_like(ids))[:, -2].float()
