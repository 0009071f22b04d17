"""Writing: batched sampling with a key-value cache, in which every row has its own random numbers.

A row's token at each place is the inverse of its cumulative distribution at the row's own uniform number: it
depends on the row's seed and on what the row has read, not on the rows that share its batch, beyond rounding.
A prompt is encoded once for all the texts that are written after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.rl.policy_model.backbone import Backbone, diverged
from whet.rl.policy_model.forward import left, positions
from whet.rl.policy_model.sample import Sample
from whet.types import content_hash

_TAIL = 4  # a stop sequence of n characters stands in the last 4 (n + 1) tokens: a byte a token at worst
_COMPACT = 0.5  # finished rows are dropped from the batch when at most this share of it is still writing


@dataclass(frozen=True, slots=True)
class Sampling:
    """How texts are drawn: at most `max_tokens`, until one of `stop`, among the likeliest tokens that make up
    `top_p` of the probability; all chance comes from `seed`."""

    max_tokens: int = 64
    seed: int = 0
    stop: tuple[str, ...] = ()
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens must be 1 or more; this is {self.max_tokens}.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1; this is {self.top_p}.")


@dataclass
class SamplingRow:
    """One text in the making after the tokens `prompt`, at `temperature` (0: the likeliest token); `draws` are
    its uniform numbers (max_tokens,)."""

    prompt: tuple[int, ...]
    temperature: float
    draws: Tensor
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False


def rows_for(
    prompts: Sequence[Sequence[int]], n: int, temperatures: Sequence[float], how: Sampling
) -> list[SamplingRow]:
    """`n` rows for each prompt at its temperature, in order. Equal prompts get different random numbers.

    A row's generator is seeded by the seed, its prompt and how often the prompt came before. Raises UsageError for
    a temperature below 0.
    """
    if min(temperatures, default=0) < 0:
        raise UsageError(f"temperature must be 0 or more; this is {min(temperatures)}.")
    seen: dict[tuple[int, ...], int] = {}
    rows = []
    for prompt, temperature in zip(map(tuple, prompts), temperatures, strict=True):
        digest = content_hash([how.seed, list(prompt)])
        for _ in range(n):
            copy = seen.get(prompt, 0)
            seen[prompt] = copy + 1
            generator = torch.Generator().manual_seed(int(content_hash([digest, copy])[:15], 16))
            rows.append(SamplingRow(prompt, temperature, torch.rand(how.max_tokens, generator=generator)))
    return rows


def write(body: Backbone, rows: Sequence[SamplingRow], how: Sampling, batch_tokens: int) -> list[Sample]:
    """A sample for each row, with at most `batch_tokens` tokens in memory at once.

    `logprobs` are those of the whole distribution at the row's temperature (at 1 for greedy rows), before `top_p`.
    """
    part: list[SamplingRow] = []
    for row in sorted(rows, key=lambda row: len(row.prompt)):
        if part and (len(part) + 1) * (len(row.prompt) + how.max_tokens) > batch_tokens:
            _run(body, part, how)
            part = []
        part.append(row)
    if part:
        _run(body, part, how)
    return [_sample(body, row) for row in rows]


@torch.inference_mode()
def _run(body: Backbone, rows: list[SamplingRow], how: Sampling) -> None:
    device = body.device
    distinct = sorted({row.prompt for row in rows})
    ids, mask = left(distinct, body.weights.pad, device)
    place = {prompt: i for i, prompt in enumerate(distinct)}
    spread = torch.tensor([place[row.prompt] for row in rows], device=device)
    draws = torch.stack([row.draws for row in rows]).to(device)
    heat = torch.tensor([row.temperature for row in rows], device=device)
    with body.forward() as model:
        out = model(ids, attention_mask=mask, position_ids=positions(mask), logits_to_keep=1)
        cache, mask, logits = out.past_key_values, mask[spread], out.logits[spread, -1]
        cache.reorder_cache(spread)
        active = rows
        for step in range(how.max_tokens):
            tokens, logprobs = _choose(logits.float(), heat, draws[:, step], how.top_p)
            if not torch.isfinite(logprobs).all():
                raise diverged("the probability of a token")
            writing = _note(body, active, tokens.tolist(), logprobs.tolist(), how)
            if not any(writing) or step + 1 == how.max_tokens:
                return
            if sum(writing) <= _COMPACT * len(writing):
                kept = torch.tensor([i for i, one in enumerate(writing) if one], device=device)
                cache.reorder_cache(kept)
                mask, tokens, draws, heat = mask[kept], tokens[kept], draws[kept], heat[kept]
                active = [row for row, one in zip(active, writing, strict=True) if one]
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            out = model(
                tokens[:, None],
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=cache,
            )
            logits = out.logits[:, -1]


def _choose(logits: Tensor, heat: Tensor, draws: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probabilities (B,) from logits (B, V), temperatures and uniform numbers (B,)."""
    greedy = heat == 0
    logprobs = (logits / torch.where(greedy, 1.0, heat)[:, None]).log_softmax(-1)
    shares = nucleus(logprobs.exp(), top_p).cumsum(-1)
    drawn = torch.searchsorted(shares, draws[:, None] * shares[:, -1:], right=True)
    tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), drawn)
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


def _note(
    body: Backbone, rows: list[SamplingRow], tokens: list[int], logprobs: list[float], how: Sampling
) -> list[bool]:
    """Append what was drawn to the rows that are still writing; whether each one goes on."""
    for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
        if not row.ended:
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.ended = token in body.ends or _stopped(body.weights.tokenizer, row.tokens, how.stop)
    return [not row.ended for row in rows]


def _stopped(tokenizer: Any, tokens: list[int], stops: tuple[str, ...]) -> bool:
    if not stops:
        return False
    tail = tokenizer.decode(tokens[-_TAIL * (max(map(len, stops)) + 1) :], skip_special_tokens=True)
    return any(stop in tail for stop in stops)


def _sample(body: Backbone, row: SamplingRow) -> Sample:
    text: str = body.weights.tokenizer.decode(row.tokens, skip_special_tokens=True)
    return Sample(
        text,
        row.prompt,
        tuple(row.tokens),
        tuple(row.logprobs),
        (True,) * len(row.tokens),
        row.ended,
        row.temperature or 1.0,
    )
