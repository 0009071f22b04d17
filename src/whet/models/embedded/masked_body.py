"""The body and the head of ``embedded/mlm``: the base encoder with the delta that ships with whet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from whet.errors import UsageError
from whet.models.embedded.bert import EPS, WIDTH, Encoder, fast_dtype
from whet.models.embedded.weights import base_weights, need, tokenizer
from whet.models.gradients import is_word

DELTA = Path(__file__).with_name("mlm.safetensors")


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
        """The states that are compared with the words, float32 (n, 384), from hidden states (n, 384)."""
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

    def read(self, text: str) -> list[int]:
        """Piece numbers of any text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @torch.no_grad()
    def hidden(self, pieces: Tensor) -> Tensor:
        """Encoder state at `[MASK]` in `[CLS] pieces [MASK] [SEP]`: int64 (k, t), t at most 500, to float32 (k, 384)."""
        first, mask, last = (torch.full((len(pieces), 1), end, dtype=torch.long) for end in self._ends)
        ids = torch.cat([first, pieces, mask, last], dim=1)
        return self._encoder(ids, torch.ones_like(ids))[:, -2].float()
