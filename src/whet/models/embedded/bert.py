"""Forward pass of a BERT encoder (Devlin et al. 2018, arXiv:1810.04805) in plain torch, without dropout.

Post-norm blocks, exact GELU, absolute positions, token type 0 everywhere. Checked against the reference
implementation in the tests. Sequences of unequal length are sorted, cut into batches and padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTH, LAYERS, HEADS, MAX_TOKENS, EPS = 384, 6, 12, 512, 1e-12
MAPS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


def fast_dtype() -> torch.dtype:
    """bfloat16 on a CPU with bfloat16 matrix units (AMX) or AVX-512 bf16, float32 on every other."""
    flags = torch.cpu.get_capabilities()
    has_units = bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))
    return torch.bfloat16 if has_units else torch.float32


class Encoder:
    """A frozen BERT encoder. `weights`: name to tensor as in the safetensors file; only ``embeddings.*`` and ``encoder.*`` are
    used. `dtype`: arithmetic type of the forward pass."""

    def __init__(self, weights: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.w = {
            name: tensor.to(dtype)
            for name, tensor in weights.items()
            if name.startswith(("embeddings.", "encoder.")) and tensor.is_floating_point()
        }
        self.words = self.w["embeddings.word_embeddings.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Affine map ``name`` applied to ``x`` (..., in) giving (..., out)."""
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Layer normalisation ``name`` over the last axis of ``x``."""
        return F.layer_norm(x, (WIDTH,), self.w[name + ".weight"], self.w[name + ".bias"], EPS)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention: ``q``, ``k``, ``v`` (batch, heads, time, 32); ``bias`` (batch, 1, 1, time)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def block(self, layer: int, x: Tensor, bias: Tensor) -> Tensor:
        """One encoder layer: ``x`` (batch, time, 384) to the same shape."""
        at = f"encoder.layer.{layer}."
        n, t, _ = x.shape
        q, k, v = (self.linear(at + m, x).view(n, t, HEADS, WIDTH // HEADS).transpose(1, 2) for m in MAPS[:3])
        mixed = self.attend(q, k, v, bias).transpose(1, 2).reshape(n, t, WIDTH)
        x = self.norm(at + "attention.output.LayerNorm", self.linear(at + MAPS[3], mixed) + x)
        inner = F.gelu(self.linear(at + MAPS[4], x))
        return self.norm(at + "output.LayerNorm", self.linear(at + MAPS[5], inner) + x)

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Last hidden state. `ids`: token numbers, int64 (batch, time), time at most 512. `mask`: 1 for a token, 0 for padding
        (batch, time). Returns Tensor (batch, time, 384) in the encoder's dtype; values at padding are meaningless."""
        return self.read(F.embedding(ids, self.words), mask)

    def read(self, words: Tensor, mask: Tensor) -> Tensor:
        """Compute the states as `__call__` does, from word embeddings (batch, time, 384) instead of token numbers."""
        positions = self.w["embeddings.position_embeddings.weight"][: words.shape[1]]
        kinds = self.w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", words + kinds + positions)
        bias = (1.0 - mask[:, None, None, :].to(self.dtype)) * torch.finfo(self.dtype).min
        for layer in range(LAYERS):
            x = self.block(layer, x, bias)
        return x


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token lists to one length: ids and mask, both int64 (batch, longest)."""
    longest = max(map(len, sequences))
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
        mask[row, : len(sequence)] = 1
    return ids, mask


def batches(sequences: Sequence[Sequence[int]], tokens: int = 8192) -> Iterator[list[int]]:
    """Positions in batches of similar length, of at most ``tokens`` padded tokens and at least one row."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * len(sequences[i]) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
