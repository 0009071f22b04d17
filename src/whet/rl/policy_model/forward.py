"""Forward passes: prompts padded on the left, responses on the right, and a prompt that many share read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.sample import Sample

SHARED = 2
"""From how many samples a prompt on average a prompt is read once for all of them."""


def left(rows: Sequence[Sequence[int]], pad: int, device: str) -> tuple[Tensor, Tensor]:
    """Rows of tokens, padded on the left, and their mask: int64 (B, T) each."""
    width = max(map(len, rows))
    ids = [[pad] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def right(rows: Sequence[Sequence[int]], pad: int, device: str) -> tuple[Tensor, Tensor]:
    """Rows of tokens, padded on the right, and their mask: int64 (B, T) each."""
    width = max(map(len, rows))
    ids = [list(row) + [pad] * (width - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def positions(mask: Tensor) -> Tensor:
    """Position of each token among those that `mask` (B, T) lets through; 0 for the others."""
    return (mask.cumsum(1) - 1).clamp_min(0)


def predictions(
    body: Backbone, samples: Sequence[Sample], *, reference: bool, states: bool
) -> tuple[Tensor, Tensor | None]:
    """Logits (B, T, V) before each response token, and the last hidden states there (B, T, d) where `states` asks.

    Where samples share their prompts, each prompt is read once and gradients flow through its keys and values.
    """
    if len({sample.prompt for sample in samples}) * SHARED <= len(samples):
        shared = _shared(body, samples, reference, states)
        if shared is not None:
            return shared
    prompts, read = left([sample.prompt for sample in samples], body.weights.pad, body.device)
    tokens, written = right([sample.tokens for sample in samples], body.weights.pad, body.device)
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
    """`predictions` with each distinct prompt read once; None for a model whose memory is not plain keys and values."""
    from transformers.cache_utils import DynamicLayer

    distinct = sorted({sample.prompt for sample in samples})
    place = {prompt: i for i, prompt in enumerate(distinct)}
    spread = torch.tensor([place[sample.prompt] for sample in samples], device=body.device)
    prompts, read = left(distinct, body.weights.pad, body.device)
    tokens, written = right([sample.tokens[:-1] for sample in samples], body.weights.pad, body.device)
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
        if not tokens.shape[1]:
            return logits, hidden
        cache.reorder_cache(spread)
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
    """What to call with a forward pass's arguments: the policy, or the reference."""
    anchor = body.anchor if reference else None
    with body.forward() as model, _adapters_off(model, reference and anchor is None):
        yield model if anchor is None else lambda **inputs: functional_call(model, anchor, (), inputs)


def _adapters_off(model: Any, off: bool) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = model.disable_adapter() if off else nullcontext()
    return context
