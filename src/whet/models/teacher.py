"""Teacher forcing: log-probabilities of wanted answers under a transformers model, with gradients.

What the model reads is what it reads when it is scored (`whet.models.huggingface_score.items`), so that a gradient
is that of the very number which a score reports.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.errors import UsageError
from whet.models.huggingface_load import Weights, positions
from whet.models.huggingface_score import ScoringItem, items
from whet.prompt import Prompt


@dataclass(frozen=True)
class Forced:
    """A batch of B texts with their wanted answers, padded behind.

    `ids`, `mask`: (B, T) what the model reads; for a causal model the answer stands behind the text, for a masked
    one the mask tokens in its place. `targets`, `valid`: (B, K) the answer's tokens and which of them are real.
    `first`: (B,) the position whose logits are those of the answer's first token.
    """

    ids: Any
    mask: Any
    targets: Any
    valid: Any
    first: Any


def read_answers(
    weights: Weights,
    prompt: Prompt,
    inputs: Sequence[Mapping[str, str]],
    answers: Sequence[str],
    *,
    ends: bool,
) -> list[ScoringItem]:
    """One item for each input, its only continuation the wanted answer; `ends` adds the end token to it.

    Raises UsageError for an answer without a token, or a masked model's prompt without `{{mask}}`.
    """
    rows = items(weights, [prompt], inputs, [[answer] for answer in answers])
    eos = weights.tokenizer.eos_token_id
    for item, answer in zip(rows, answers, strict=True):
        if ends and eos is not None:
            item.choices[0] = [*item.choices[0], eos]
        if not item.choices[0]:
            raise UsageError(f"the wanted answer {answer!r} has no token that the model knows.")
    return rows


def forced(weights: Weights, batch: Sequence[ScoringItem]) -> Forced:
    """A batch of items as tensors on the model's device."""
    answers = [item.choices[0] for item in batch]
    if weights.kind == "masked":
        hole = weights.tokenizer.mask_token_id
        rows = [[*i.before, *[hole] * len(a), *i.after] for i, a in zip(batch, answers, strict=True)]
    elif weights.kind == "causal":
        rows = [[*i.before, *a[:-1]] for i, a in zip(batch, answers, strict=True)]
    else:
        rows = [i.before for i in batch]
    first = [len(i.before) - (weights.kind == "causal") for i in batch]
    ids, mask = weights.padded(rows)
    targets, valid = weights.padded(answers)
    return Forced(ids, mask, targets, valid, weights.torch.tensor(first, device=weights.device))


def log_likelihood(weights: Weights, batch: Forced, **read: Any) -> Any:
    """Natural log-probability of each wanted answer, float32 (B,): the sum over its tokens.

    `read` is `input_ids` or `inputs_embeds`; by default the batch's own ids. Gradients flow into whatever of it, and
    of the model's weights, asks for them.
    """
    torch, model = weights.torch, weights.model
    read = read or {"input_ids": batch.ids}
    steps = torch.arange(batch.targets.shape[1], device=batch.ids.device)
    if weights.kind == "seq2seq":
        settings = model.generation_config
        begin = [t for t in (settings.decoder_start_token_id, settings.forced_bos_token_id) if t is not None]
        head = torch.tensor(begin or [weights.start], device=batch.ids.device).expand(len(batch.ids), -1)
        decoder = torch.cat([head, batch.targets[:, :-1]], -1)
        out = model(**read, attention_mask=batch.mask, decoder_input_ids=decoder, use_cache=False)
        places = (head.shape[1] - 1 + steps).expand_as(batch.targets)
    else:
        extra: dict[str, Any] = {}
        if weights.kind == "causal" and "position_ids" in inspect.signature(model.forward).parameters:
            extra["position_ids"] = positions(batch.mask)
        out = model(**read, attention_mask=batch.mask, **extra)
        places = (batch.first[:, None] + steps).clamp(max=out.logits.shape[1] - 1)
    rows = torch.arange(len(places), device=batch.ids.device)[:, None]
    logp = out.logits[rows, places].float().log_softmax(-1)
    return (logp.gather(-1, batch.targets[..., None])[..., 0] * batch.valid).sum(-1)
