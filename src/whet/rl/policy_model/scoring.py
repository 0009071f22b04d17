"""Reading: log-probabilities of written tokens in one padded forward pass, with or without gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.forward import predictions, right
from whet.rl.policy_model.sample import Sample

BATCH_LOGITS = 2**27
"""Most logits (rows x tokens x vocabulary) of one forward pass: 512 MiB in float32."""


@dataclass(frozen=True)
class TokenScores:
    """What the weights say about responses of T tokens at most: per token (B, T), padding last.

    `logprobs` of the written tokens and `entropy` of the whole distribution, in nats, at the asked temperature;
    `own` is 1 where the writer wrote the token and 0 elsewhere; `hidden` (B, T, d), detached, is the last state
    before each token, where it was asked for.
    """

    logprobs: Tensor
    own: Tensor
    entropy: Tensor
    hidden: Tensor | None = None


def parts(samples: Sequence[Sample], batch_tokens: int, vocabulary: int) -> Iterator[slice]:
    """Slices of the samples, in order, whose padded batch stays within `batch_tokens` and `BATCH_LOGITS`."""
    start = prompt = response = 0
    for i, sample in enumerate(samples):
        prompt, response = max(prompt, len(sample.prompt)), max(response, len(sample.tokens))
        rows = i - start + 1
        if rows > 1 and (
            rows * (prompt + response) > batch_tokens or rows * response * vocabulary > BATCH_LOGITS
        ):
            yield slice(start, i)
            start, prompt, response = i, len(sample.prompt), len(sample.tokens)
    if samples:
        yield slice(start, len(samples))


def own_tokens(samples: Sequence[Sample], device: str) -> Tensor:
    """1 where the writer wrote the token, else 0: float32 (B, T)."""
    return padded([sample.own for sample in samples], device)


def padded(rows: Sequence[Sequence[float]], device: str) -> Tensor:
    """Rows of different lengths as float32 (B, T), zeros behind them."""
    width = max(map(len, rows))
    full = [[*map(float, row), *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=torch.float32, device=device)


def read(
    body: Backbone,
    samples: Sequence[Sample],
    temperatures: Sequence[float],
    *,
    reference: bool = False,
    states: bool = False,
) -> TokenScores:
    """One forward pass over all samples, prompts that they share once.

    With `reference` the adapters are off, or, where the body has an anchor, the trainable weights are the anchor's.
    `temperatures`: one for each sample. Gradients flow to the trainable weights unless the caller has turned them off.
    """
    logits, hidden = predictions(body, samples, reference=reference, states=states)
    tokens, _ = right([sample.tokens for sample in samples], body.weights.pad, body.device)
    heat = torch.tensor(temperatures, device=body.device)[:, None, None]
    taken, entropy = _measured(logits.float() / heat, tokens)
    before = None if hidden is None else hidden.detach().float()
    return TokenScores(taken, own_tokens(samples, body.device), entropy, before)


def _measured(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of tokens (B, T) and entropies (B, T) under logits (B, T, V)."""
    logprobs = logits.log_softmax(-1)
    taken = logprobs.gather(-1, tokens[..., None])[..., 0]
    return taken, -(logprobs.exp() * logprobs).sum(-1)


def widened(tensor: Tensor, width: int) -> Tensor:
    """(B, T) with zeros behind, up to `width` columns."""
    return torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]))
