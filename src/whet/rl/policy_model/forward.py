"""Forward passes over written tokens, with or without gradients: a prompt that many samples share is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from whet.models.huggingface_load import positions
from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.sample import Sample

SHARED = 2
"""From how many samples a prompt on average a prompt is read once for all of them."""
BATCH_LOGITS = 2**27
"""Most logits (rows x tokens x vocabulary) of one forward pass: 512 MiB in float32."""


@dataclass(frozen=True)
class TokenScores:
    """What the weights say about responses of T tokens at most: per token (B, T), padding last.

    `logprobs` of the written tokens and `entropy` of the whole distribution, in nats, at the samples' temperatures;
    `own` is 1 where the policy wrote the token and 0 elsewhere; `hidden` (B, T, d), detached, is the last state
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


def padded(rows: Sequence[Sequence[float]], device: str) -> Tensor:
    """Rows of different lengths as float32 (B, T), zeros behind them."""
    width = max(map(len, rows))
    full = [[*map(float, row), *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=torch.float32, device=device)


def read(
    body: Backbone, samples: Sequence[Sample], *, reference: bool = False, states: bool = False
) -> TokenScores:
    """One forward pass over all samples, prompts that they share once; `states` keeps the hidden states.

    With `reference` the adapters are off, or, where the body has an anchor, the trainable weights are the anchor's.
    Gradients flow to the trainable weights unless the caller has turned them off.
    """
    logits, hidden = _predictions(body, samples, reference=reference, states=states)
    tokens, _ = body.weights.padded([sample.tokens for sample in samples])
    temperatures = torch.tensor([sample.temperature for sample in samples], device=body.device)
    logprobs = (logits.float() / temperatures[:, None, None]).log_softmax(-1)
    return TokenScores(
        logprobs.gather(-1, tokens[..., None])[..., 0],
        padded([sample.own for sample in samples], body.device),
        -(logprobs.exp() * logprobs).sum(-1),
        None if hidden is None else hidden.detach().float(),
    )


def _predictions(
    body: Backbone, samples: Sequence[Sample], *, reference: bool, states: bool
) -> tuple[Tensor, Tensor | None]:
    """Logits (B, T, V) before each response token, and the last hidden states there (B, T, d) where `states` asks.

    Where samples share their prompts, each prompt is read once and gradients flow through its keys and values.
    """
    if len({sample.prompt for sample in samples}) * SHARED <= len(samples):
        shared = _shared(body, samples, reference, states)
        if shared is not None:
            return shared
    prompts, read = body.weights.padded([sample.prompt for sample in samples], left=True)
    tokens, written = body.weights.padded([sample.tokens for sample in samples])
    mask = torch.cat([read, written], 1)
    with _network(body, reference) as network:
        out = network(
            input_ids=torch.cat([prompts, tokens], 1),
            attention_mask=mask,
            position_ids=positions(mask),
            logits_to_keep=tokens.shape[1] + 1,
            use_cache=False,
            output_hidden_states=states,
        )
    hidden = out.hidden_states[-1][:, prompts.shape[1] - 1 : -1] if states else None
    return out.logits[:, :-1], hidden


def _shared(
    body: Backbone, samples: Sequence[Sample], reference: bool, states: bool
) -> tuple[Tensor, Tensor | None] | None:
    """`_predictions` with each distinct prompt read once; None for a model whose memory is not plain keys and values."""
    from transformers.cache_utils import DynamicLayer

    distinct = sorted({sample.prompt for sample in samples})
    place = {prompt: i for i, prompt in enumerate(distinct)}
    spread = torch.tensor([place[sample.prompt] for sample in samples], device=body.device)
    prompts, read = body.weights.padded(distinct, left=True)
    with _network(body, reference) as network:
        first = network(
            input_ids=prompts,
            attention_mask=read,
            position_ids=positions(read),
            logits_to_keep=1,
            use_cache=True,
            output_hidden_states=states,
        )
        cache = first.past_key_values
        if any(type(layer) is not DynamicLayer for layer in getattr(cache, "layers", [None])):
            return None
        logits = first.logits[spread]
        hidden = first.hidden_states[-1][spread, -1:] if states else None
        if max(len(sample.tokens) for sample in samples) == 1:
            return logits, hidden
        cache.reorder_cache(spread)
        tokens, written = body.weights.padded([sample.tokens[:-1] for sample in samples])
        mask = torch.cat([read[spread], written], 1)
        out = network(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions(mask)[:, -tokens.shape[1] :],
            past_key_values=cache,
            use_cache=True,
            output_hidden_states=states,
        )
    if hidden is not None:
        hidden = torch.cat([hidden, out.hidden_states[-1]], 1)
    return torch.cat([logits, out.logits], 1), hidden


@contextmanager
def _network(body: Backbone, reference: bool) -> Iterator[Any]:
    """What to call with a forward pass's arguments: the policy, or the reference policy."""
    anchor = body.anchor if reference else None
    with body.forward() as model, _adapters_off(model, reference and anchor is None):
        yield model if anchor is None else lambda **inputs: functional_call(model, anchor, (), inputs)


def _adapters_off(model: Any, off: bool) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = model.disable_adapter() if off else nullcontext()
    return context
