"""Batched sampling in which every row has its own random numbers.

A row's token at each place is the inverse of its cumulative distribution at the row's own uniform number: it
depends on the row's seed and on what the row has read, not on the rows that share its batch, beyond rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.models.huggingface_decode import DecodingRow, decode
from whet.rl.policy_model.backbone import Backbone, diverged
from whet.rl.policy_model.sample import Sample
from whet.types import content_hash


@dataclass(frozen=True, slots=True)
class Sampling:
    """How texts are drawn: at most `max_tokens`, until one of `stop`, at `temperature` (0: the likeliest token), among the
    likeliest tokens that make up `top_p` of the probability; all chance comes from `seed`."""

    max_tokens: int = 64
    temperature: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens must be 1 or more; this is {self.max_tokens}.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1; this is {self.top_p}.")
        if self.temperature < 0:
            raise UsageError(f"temperature must be 0 or more; this is {self.temperature}.")


@dataclass
class SamplingRow(DecodingRow):
    """One text in the making: `draws` are its uniform numbers, one for each token, `logprobs` what was recorded."""

    draws: Sequence[float] = ()
    logprobs: list[float] = dataclasses.field(default_factory=list)


def rows_for(prompts: Sequence[Sequence[int]], n: int, how: Sampling) -> list[SamplingRow]:
    """`n` rows for each prompt, in order. Equal prompts get different random numbers.

    A row's generator is seeded by the seed, its prompt and how often the prompt came before.
    """
    seen: dict[tuple[int, ...], int] = {}
    rows = []
    for prompt in map(tuple, prompts):
        digest = content_hash([how.seed, list(prompt)])
        for _ in range(n):
            copy = seen.get(prompt, 0)
            seen[prompt] = copy + 1
            generator = torch.Generator().manual_seed(int(content_hash([digest, copy])[:15], 16))
            draws = torch.rand(how.max_tokens, generator=generator).tolist()
            rows.append(SamplingRow(prompt, how.max_tokens, how.stop, draws=draws))
    return rows


def write(body: Backbone, rows: Sequence[SamplingRow], how: Sampling, batch_tokens: int) -> list[Sample]:
    """A sample for each row, with at most `batch_tokens` tokens in memory at once.

    `logprobs` are those of the whole distribution at the temperature (at 1 for greedy rows), before `top_p`.
    """
    part: list[SamplingRow] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if part and (len(part) + 1) * (len(row.ids) + how.max_tokens) > batch_tokens:
            _write(body, part, how)
            part = []
        part.append(row)
    if part:
        _write(body, part, how)
    return [_sample(body, row, how.temperature or 1.0) for row in rows]


def _write(body: Backbone, rows: list[SamplingRow], how: Sampling) -> None:
    def choose(live: Sequence[SamplingRow], logits: Tensor) -> Tensor:
        draws = torch.tensor([row.draws[len(row.written)] for row in live], device=body.device)
        tokens, logprobs = _choose(logits, draws, how)
        if not torch.isfinite(logprobs).all():
            raise diverged("the probability of a token")
        for row, logprob in zip(live, logprobs.tolist(), strict=True):
            if not row.over:
                row.logprobs.append(logprob)
        return tokens

    with body.forward() as model:
        decode(dataclasses.replace(body.weights, model=model), rows, choose, body.ends)


def _choose(logits: Tensor, draws: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probabilities (B,) from logits (B, V) and uniform numbers (B,)."""
    logprobs = (logits / (how.temperature or 1.0)).log_softmax(-1)
    if how.temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
    else:
        shares = nucleus(logprobs.exp(), how.top_p).cumsum(-1)
        tokens = torch.searchsorted(shares, draws[:, None] * shares[:, -1:], right=True)
        tokens = tokens.clamp_max(logits.shape[-1] - 1)
    return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


def nucleus(shares: Tensor, top_p: float) -> Tensor:
    """Probabilities (B, V) with all but the likeliest set to 0: as few as make up `top_p` of the whole.

    Holtzman et al. 2020, arXiv:1904.09751; not normalised. `top_p` 1 keeps all.
    """
    if top_p >= 1:
        return shares
    ordered, order = shares.sort(-1, descending=True)
    ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
    return torch.zeros_like(shares).scatter(-1, order, ordered)


def _sample(body: Backbone, row: SamplingRow, temperature: float) -> Sample:
    text: str = body.weights.tokenizer.decode(row.written, skip_special_tokens=True)
    own = (True,) * len(row.written)
    tokens, logprobs = tuple(row.written), tuple(row.logprobs)
    return Sample(text, tuple(row.ids), tokens, logprobs, own, row.ended, temperature)
