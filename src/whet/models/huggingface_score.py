"""Log-probabilities of given continuations, batched, for the three kinds of models; and those of wanted answers, with gradients.

causal    The prompt as the model reads it is encoded once per (prompt, input) and its keys and values serve
all continuations. The score is the sum over the continuation's tokens. seq2seq   The encoder reads the prompt
once per (prompt, input); the decoder scores each continuation's tokens. masked    The slot `{{mask}}` of the
prompt becomes one mask token per token of the continuation; the score is the sum over these positions, each
predicted with all of them masked.

Only the model's own arithmetic distinguishes a batch from its rows: padding is masked, positions are
explicit. Teacher forcing reads the same items as scoring, so that a gradient is that of the very number which a score reports.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whet.errors import UsageError
from whet.models.huggingface_load import WHOLE, BatchPart, Weights, positions
from whet.prompt import Prompt
from whet.types import Example, Message, Scores
from whet_client.prompt.document import MASK

if TYPE_CHECKING:
    from torch import Tensor

_BATCH_TOKENS = 4096
_BATCH_LOGITS = 2**26
_SEAM = 16
_HOLE = "\x00"


@dataclass
class ScoringItem:
    """One (prompt, input): its place in the answer, the tokens before each continuation, the
    continuations.
    """

    place: tuple[int, int]
    before: list[int]
    after: list[int]
    choices: list[list[int]]

    @property
    def longest(self) -> int:
        """Tokens of the longest continuation, at least 1."""
        return max(1, *map(len, self.choices)) if self.choices else 1


def score(
    weights: Weights,
    prompts: Sequence[Prompt],
    inputs: Sequence[Mapping[str, str]],
    continuations: Sequence[Sequence[str]],
    part: BatchPart = WHOLE,
) -> Scores:
    """Scores of shape (P, E, L); see `LanguageModel.score`. NaN where another `part` computes them.

    Raises UsageError when inputs and continuations do not fit together, or a masked model's prompt does not
    have exactly one `{{mask}}`.
    """
    width = len(continuations[0]) if continuations else 0
    if len(inputs) != len(continuations) or any(len(row) != width for row in continuations):
        raise UsageError("Scoring needs one list of continuations for each input, all of the same length.")
    logprobs = np.full((len(prompts), len(inputs), width), np.nan)
    tokens = np.zeros((len(inputs), width), dtype=np.int64)
    read = items(weights, prompts, inputs, continuations)
    for item in read[: len(inputs)]:
        tokens[item.place[1]] = [len(choice) for choice in item.choices]
    if width:
        arithmetic = {"causal": _causal, "seq2seq": _seq2seq, "masked": _masked_scores}[weights.kind]
        with weights.torch.inference_mode():
            for batch in part.of(_batches(weights, read, width)):
                for item, values in zip(batch, arithmetic(weights, batch).tolist(), strict=True):
                    logprobs[item.place] = values
    return Scores(logprobs, tokens)


def items(
    weights: Weights,
    prompts: Sequence[Prompt],
    inputs: Sequence[Mapping[str, str]],
    continuations: Sequence[Sequence[str]],
) -> list[ScoringItem]:
    """The model's input: one item for each prompt and input, prompts first, with the input's continuations.

    Raises UsageError when a masked model's prompt does not have exactly one `{{mask}}`.
    """
    build = _masked_item if weights.kind == "masked" else _item
    seams: dict[tuple[str, str], list[int]] = {}
    return [
        build(weights, (p, e), prompt, values, continuations[e], seams)
        for p, prompt in enumerate(prompts)
        for e, values in enumerate(inputs)
    ]


def _item(
    weights: Weights,
    place: tuple[int, int],
    prompt: Prompt,
    values: Mapping[str, str],
    texts: Sequence[str],
    seams: dict[tuple[str, str], list[int]],
) -> ScoringItem:
    text, ids = weights.read(prompt.render(Example("", values)))
    if weights.kind == "seq2seq":
        choices = [weights.encode(choice) for choice in texts]
        return ScoringItem(place, weights.fit(ids, weights.limit), [], choices)
    choices = [_continuation(weights, text[-_SEAM:], choice, seams) for choice in texts]
    room = weights.limit - max([len(choice) for choice in choices], default=0)
    return ScoringItem(place, weights.fit(ids, room), [], choices)


def _continuation(
    weights: Weights, tail: str, choice: str, seams: dict[tuple[str, str], list[int]]
) -> list[int]:
    """Tokens of a continuation as they come after a text that ends in `tail`.

    Without a chat template words are kept apart: a space comes between a prompt and a continuation when
    neither brings white space of its own.
    """
    if not weights.chat and tail.strip() and choice and not tail[-1].isspace() and not choice[0].isspace():
        choice = " " + choice
    if (tail, choice) not in seams:
        before, whole = weights.encode(tail), weights.encode(tail + choice)
        joined = whole[: len(before)] == before
        seams[tail, choice] = whole[len(before) :] if joined else weights.encode(choice)
    return seams[tail, choice]


def sides(weights: Weights, prompt: Prompt, values: Mapping[str, str]) -> tuple[str, str]:
    """The texts left and right of `{{mask}}`. Raises UsageError unless the prompt has exactly one."""
    clean = {name: value.replace(_HOLE, "") for name, value in values.items()} | {MASK: _HOLE}
    messages = prompt.render(Example("", clean))
    if not prompt.slots & values.keys():
        messages = (*messages, Message("user", Example("", values).user_text))
    pieces = weights.text(messages).split(_HOLE)
    if len(pieces) != 2:
        masks = len(pieces) - 1
        raise UsageError(
            f"A masked model answers at the slot {{{{mask}}}}; the prompt has {masks} of them, not 1."
        )
    return pieces[0], pieces[1]


def _masked_item(
    weights: Weights,
    place: tuple[int, int],
    prompt: Prompt,
    values: Mapping[str, str],
    texts: Sequence[str],
    seams: dict[tuple[str, str], list[int]],
) -> ScoringItem:
    left, right = sides(weights, prompt, values)
    gap = " " if left[-1:].isspace() else ""
    choices = [weights.encode(gap + choice.strip()) for choice in texts]
    room = weights.limit - len(weights.lead) - len(weights.tail) - max(map(len, choices), default=0)
    before, after = weights.encode(left), weights.encode(right)
    for_after = min(len(after), max(room // 2, room - len(before)))
    before, after = weights.fit(before, room - for_after), weights.fit(after, for_after)
    return ScoringItem(place, [*weights.lead, *before], [*after, *weights.tail], choices)


def _batches(weights: Weights, items: Sequence[ScoringItem], width: int) -> Iterator[list[ScoringItem]]:
    """Batches of items of similar length, bounded in tokens and in logits."""
    vocabulary = weights.model.config.get_text_config().vocab_size
    every = weights.kind == "masked"
    batch: list[ScoringItem] = []
    length = depth = 0
    for item in sorted(items, key=lambda i: len(i.before) + len(i.after)):
        new_length = max(length, len(item.before) + len(item.after) + item.longest)
        new_depth = max(depth, item.longest)
        rows = len(batch) + 1
        logits = rows * vocabulary * (new_length if every else width * new_depth)
        if batch and (rows * new_length > _BATCH_TOKENS or logits > _BATCH_LOGITS):
            yield batch
            batch, new_length, new_depth = [], len(item.before) + len(item.after) + item.longest, item.longest
        batch.append(item)
        length, depth = new_length, new_depth
    if batch:
        yield batch


def _sum_target_logprobs(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Sum over T of the log-probabilities of targets (B, T) where mask is 1, in float32; shape (B,)."""
    logits = logits.float()
    chosen = logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)
    return (chosen * mask).sum(-1)


def _causal(weights: Weights, batch: Sequence[ScoringItem]) -> Tensor:
    """(B, L) scores. The prompts are left-padded, so that all of them end at the same column."""
    torch, model = weights.torch, weights.model
    takes = inspect.signature(model.forward).parameters
    ids, mask = weights.pad_rows([item.before for item in batch], left=True)
    deeper = any(len(choice) > 1 for item in batch for choice in item.choices)
    extra: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
    if "position_ids" in takes:
        extra["position_ids"] = positions(mask)
    out = model(input_ids=ids, attention_mask=mask, use_cache=deeper, **extra)
    width = len(batch[0].choices)
    choices, real = weights.pad_rows([choice for item in batch for choice in item.choices])
    first = out.logits[:, -1:].float().log_softmax(-1).expand(-1, width, -1).flatten(0, 1)
    scores = first.gather(-1, choices[:, :1])[:, 0] * real[:, 0]
    if deeper:
        cache = out.past_key_values
        cache.batch_repeat_interleave(width)
        seen = mask.repeat_interleave(width, 0)
        extra = {}
        if "position_ids" in takes:
            steps = torch.arange(choices.shape[1] - 1, device=weights.device)
            extra["position_ids"] = seen.sum(-1, keepdim=True) + steps
        rest = model(
            input_ids=choices[:, :-1],
            attention_mask=torch.cat([seen, real[:, :-1]], -1),
            past_key_values=cache,
            use_cache=True,
            **extra,
        )
        scores = scores + _sum_target_logprobs(rest.logits, choices[:, 1:], real[:, 1:])
    summed: Tensor = scores.view(len(batch), width).double()
    return summed


def _decoder_head(weights: Weights, rows: int) -> Tensor:
    """The tokens that the decoder of a sequence-to-sequence model begins with, (rows, n)."""
    settings = weights.model.generation_config
    begin = [t for t in (settings.decoder_start_token_id, settings.forced_bos_token_id) if t is not None]
    head: Tensor = weights.torch.tensor(begin or [weights.start], device=weights.device)
    return head.expand(rows, -1)


def _seq2seq(weights: Weights, batch: Sequence[ScoringItem]) -> Tensor:
    """(B, L) scores. The encoder's states are repeated for the continuations."""
    torch, model = weights.torch, weights.model
    ids, mask = weights.pad_rows([item.before for item in batch])
    width = len(batch[0].choices)
    states = model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    choices, real = weights.pad_rows([choice for item in batch for choice in item.choices])
    head = _decoder_head(weights, len(choices))
    out = model(
        encoder_outputs=(states.repeat_interleave(width, 0),),
        attention_mask=mask.repeat_interleave(width, 0),
        decoder_input_ids=torch.cat([head, choices[:, :-1]], -1),
        use_cache=False,
    )
    return (
        _sum_target_logprobs(out.logits[:, head.shape[1] - 1 :], choices, real)
        .view(len(batch), width)
        .double()
    )


def _masked_scores(weights: Weights, batch: Sequence[ScoringItem]) -> Tensor:
    """(B, L) scores; one pass for each number of tokens that a continuation has."""
    torch, model = weights.torch, weights.model
    scores: Tensor = torch.zeros(len(batch), len(batch[0].choices), dtype=torch.float64)
    for count in sorted({len(choice) for item in batch for choice in item.choices} - {0}):
        hole = [weights.tokenizer.mask_token_id] * count
        ids, mask = weights.pad_rows([[*item.before, *hole, *item.after] for item in batch])
        logits = model(input_ids=ids, attention_mask=mask).logits
        for i, item in enumerate(batch):
            at = len(item.before)
            logp = logits[i, at : at + count].float().log_softmax(-1)
            for k, choice in enumerate(item.choices):
                if len(choice) == count:
                    scores[i, k] = sum(float(logp[step, token]) for step, token in enumerate(choice))
    return scores


@dataclass(frozen=True)
class Forced:
    """A batch of B texts with their wanted answers, padded behind.

    `ids`, `mask`: (B, T) what the model reads; for a causal model the answer stands behind the text, for a masked
    one the mask tokens in its place. `targets`, `valid`: (B, K) the answer's tokens and which of them are real.
    `first`: (B,) the position whose logits are those of the answer's first token.
    """

    ids: Tensor
    mask: Tensor
    targets: Tensor
    valid: Tensor
    first: Tensor


def answer_items(
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


def build_forced_batch(weights: Weights, batch: Sequence[ScoringItem]) -> Forced:
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
    ids, mask = weights.pad_rows(rows)
    targets, valid = weights.pad_rows(answers)
    return Forced(ids, mask, targets, valid, weights.torch.tensor(first, device=weights.device))


def log_likelihood(weights: Weights, batch: Forced, **read: Any) -> Tensor:
    """Natural log-probability of each wanted answer, float32 (B,): the sum over its tokens.

    `read` is `input_ids` or `inputs_embeds`; by default the batch's own ids. Gradients flow into whatever of it, and
    of the model's weights, asks for them.
    """
    torch, model = weights.torch, weights.model
    read = read or {"input_ids": batch.ids}
    steps = torch.arange(batch.targets.shape[1], device=batch.ids.device)
    if weights.kind == "seq2seq":
        head = _decoder_head(weights, len(batch.ids))
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
    logp: Tensor = out.logits[rows, places].float().log_softmax(-1)
    return (logp.gather(-1, batch.targets[..., None])[..., 0] * batch.valid).sum(-1)
