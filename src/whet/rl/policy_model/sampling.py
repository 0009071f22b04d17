"""Texts that policies wrote, as samples; and batched sampling in which every row has its own random numbers.

A row's token at each place is the inverse of its cumulative distribution at the row's own uniform number: it
depends on the row's seed and on what the row has read, not on the rows that share its batch, beyond rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from whet.errors import UsageError
from whet.models.huggingface_generate import DecodingRow, generate_rows
from whet.rl.policy_model.backbone import Backbone, divergence_error
from whet.types import JSON, Message, content_hash

_MARK = "whet0turn0mark"
MASKED = -1e9
"""The logit of a token that a mask leaves out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One text that a policy wrote, with the tokens that it read and wrote."""

    text: str
    """The decoded response, stop sequence included; of a conversation, its newest turn."""
    prompt: tuple[int, ...]
    """The tokens that the policy read."""
    tokens: tuple[int, ...]
    """The tokens of the response, the end token included if it was written; in a conversation, also what others said in
    between."""
    logprobs: tuple[float, ...]
    """Per token of the response: its log-probability under the policy that wrote it, at its `temperature` (at 1 for greedy and
    given texts); 0 for tokens of others."""
    own: tuple[bool, ...]
    """Per token of the response: whether the policy wrote it."""
    ended: bool
    """Whether an end token or a stop sequence ended it, not the bound on tokens."""
    temperature: float = 1.0

    def to_json(self) -> dict[str, JSON]:
        """The sample as a JSON object: what an effect records."""
        return {
            "text": self.text,
            "prompt": list(self.prompt),
            "tokens": list(self.tokens),
            "logprobs": list(self.logprobs),
            "own": None if all(self.own) else [int(own) for own in self.own],
            "ended": self.ended,
            "temperature": self.temperature,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sample:
        """The sample that `to_json` wrote."""
        tokens = tuple(int(token) for token in value["tokens"])
        own = value["own"]
        return cls(
            str(value["text"]),
            tuple(int(token) for token in value["prompt"]),
            tokens,
            tuple(float(logprob) for logprob in value["logprobs"]),
            (True,) * len(tokens) if own is None else tuple(bool(one) for one in own),
            bool(value["ended"]),
            float(value["temperature"]),
        )


def tokens_between_turns(body: Backbone, sample: Sample, replies: Sequence[Message]) -> tuple[int, ...]:
    """The tokens from the end of a sample to the beginning of the policy's next turn.

    They are what the chat template puts after an assistant's message: its end (unless the sample wrote it), the
    messages of others, and the head of the next turn. Without a template, messages are set apart by blank lines.
    """
    weights = body.weights
    if not weights.chat:
        return tuple(weights.encode("".join(f"\n\n{reply.content}" for reply in replies) + "\n\n"))
    turns = [Message("user", _MARK), Message("assistant", _MARK), *replies]
    text = weights.text(turns).split(_MARK, 2)[-1]
    ids = tuple(weights.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    last = sample.tokens[-1] if sample.tokens else None
    return ids[1:] if ids and last in body.ends and ids[0] == last else ids


def join_turn(sample: Sample, reply: Sequence[int], turn: Sample) -> Sample:
    """A sample, the messages of others after it, and the next turn, as one sample of the whole conversation."""
    return Sample(
        turn.text,
        sample.prompt,
        (*sample.tokens, *reply, *turn.tokens),
        (*sample.logprobs, *(0.0 for _ in reply), *turn.logprobs),
        (*sample.own, *(False for _ in reply), *turn.own),
        turn.ended,
        turn.temperature,
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings of sampling: at most `max_tokens`, until one of `stop`, at `temperature` (0: the likeliest token), among the
    likeliest tokens that make up `top_p` of the probability, and those that make up `mask` of it under the masking policy
    (`mask_logits`; 0: all); all chance comes from `seed`."""

    max_tokens: int = 64
    temperature: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    mask: float = 0.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens must be 1 or more; this is {self.max_tokens}.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1; this is {self.top_p}.")
        if self.temperature < 0:
            raise UsageError(f"temperature must be 0 or more; this is {self.temperature}.")


@dataclass
class SamplingRow(DecodingRow):
    """One text in the making: `draws` are its uniform numbers from `seed`, one for each token, `logprobs` what was recorded."""

    seed: int = 0
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
            seed = int(content_hash([digest, copy])[:15], 16)
            draws = torch.rand(how.max_tokens, generator=torch.Generator().manual_seed(seed)).tolist()
            rows.append(SamplingRow(prompt, how.max_tokens, how.stop, seed=seed, draws=draws))
    return rows


def write_samples(
    body: Backbone, rows: Sequence[SamplingRow], how: Sampling, batch_tokens: int
) -> list[Sample]:
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
    return [sample_of(body, row, how.temperature or 1.0) for row in rows]


def _write(body: Backbone, rows: list[SamplingRow], how: Sampling) -> None:
    def choose(live: Sequence[SamplingRow], logits: Tensor, *masking: Tensor) -> Tensor:
        heat = how.temperature or 1.0
        for other in masking:
            logits = mask_logits(logits / heat, other / heat, how.mask) * heat
        draws = torch.tensor([row.draws[len(row.written)] for row in live], device=body.device)
        tokens, logprobs = _choose(logits, draws, how)
        if not torch.isfinite(logprobs).all():
            raise divergence_error("the probability of a token")
        for row, logprob in zip(live, logprobs.tolist(), strict=True):
            if not row.over:
                row.logprobs.append(logprob)
        return tokens

    with body.forward() as model:
        weights, mask = dataclasses.replace(body.weights, model=model), body.mask
        beside = []
        if how.mask and mask is not None:

            def masking_policy(**inputs: Any) -> Any:
                return functional_call(model, mask, (), inputs)

            beside = [dataclasses.replace(body.weights, model=masking_policy)]
        generate_rows(weights, rows, choose, body.ends, beside)


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


def mask_logits(logits: Tensor, masking: Tensor, top_p: float, keep: Tensor | None = None) -> Tensor:
    """Logits (..., V) of a policy that may choose only what a masking policy finds likely: the action mask of NLPO.

        pi(a | s, psi) = pi(a | s) [a in N(s)] / sum over b in N(s) of pi(b | s)

    N(s) is the nucleus of the masking policy psi, the fewest tokens that make up `top_p` of its probability; psi is a copy of the
    policy that is renewed from time to time. Ramamurthy et al., ICLR 2023, arXiv:2210.01241, section 4.1 and algorithm 1.
    `masking`: the logits (..., V) of psi. `keep`: tokens (...) that were written; each stays, also where rounding puts it
    outside. Tokens outside get `MASKED`.

    >>> mask_logits(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.9, 0.06, 0.04]).log(), 0.92).tolist()
    [1.0, 2.0, -1000000000.0]
    """
    inside = nucleus(masking.softmax(-1), top_p) > 0
    if keep is not None:
        inside = inside.scatter(-1, keep[..., None], True)
    return logits.masked_fill(~inside, MASKED)


def sample_of(body: Backbone, row: SamplingRow, temperature: float) -> Sample:
    """A row's answer as a sample."""
    text: str = body.weights.tokenizer.decode(row.written, skip_special_tokens=True)
    own = (True,) * len(row.written)
    tokens, logprobs = tuple(row.written), tuple(row.logprobs)
    return Sample(text, tuple(row.ids), tokens, logprobs, own, row.ended, temperature)
