"""Generation of a batch of sequences by a causal model, token by token over its key-value cache.

Rows whose token sequences begin alike share that beginning: it is encoded once and its cache copied. Rows
that are over leave the batch. What a row gets does not depend on the others, beyond rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from whet.models.huggingface_load import Weights

_BYTES_PER_CHARACTER = 4
_WORTH_SHARING = 0.25  # share of the prompts' tokens that must be saved before beginnings are shared
_ROOM = 64  # tokens for which the cache has room before it is copied
_ROOM_TO_DROP = 0.8  # finished rows leave when the others are at most this share of the batch


@dataclass
class DecodingRow:
    """One sequence to generate. `ends` is its number of generated tokens once it is over."""

    ids: list[int]
    temperature: float
    max_tokens: int
    stops: tuple[str, ...]
    seed: int
    top: int
    ends: int | None = None
    first_token: dict[str, float] | None = None
    generator: Any = field(default=None)

    def stopped(self, weights: Weights, made: Sequence[int]) -> bool:
        """Whether one of the row's stop sequences stands at the end of what it wrote."""
        if not self.stops:
            return False
        reach = _BYTES_PER_CHARACTER * (max(map(len, self.stops)) + 1)
        tail = weights.tokenizer.decode(list(made[-reach:]), skip_special_tokens=True)
        return any(stop in tail for stop in self.stops if stop)


def end_tokens(weights: Weights) -> set[int]:
    """The tokens that end an answer."""
    eos = weights.model.generation_config.eos_token_id
    return {eos} if isinstance(eos, int) else set(eos or ())


def can_decode(weights: Weights) -> bool:
    """Whether the model is a causal one with a key-value cache and explicit positions."""
    known = inspect.signature(weights.model.forward).parameters
    stateful = getattr(weights.model, "_is_stateful", False)
    return weights.kind == "causal" and not stateful and {"past_key_values", "position_ids"} <= known.keys()


def adjust(weights: Weights, rows: Sequence[DecodingRow], scores: Any, first: bool) -> Any:
    """Scores (B, V) whose largest entry is each row's next token; notes the first token's candidates.

    Sampling adds Gumbel noise, drawn from the row's own generator, to the row's logits and takes the largest: a
    sample from the softmax that depends on the row's seed and not on the rows that share its batch.
    """
    for i, row in enumerate(rows):
        if first and row.top:
            row.first_token = _top(weights, scores[i], row.top)
        if row.temperature > 0:
            noise = weights.torch.empty_like(scores[i]).exponential_(generator=row.generator).log()
            scores[i] = scores[i] / row.temperature - noise
    return scores


def _top(weights: Weights, logits: Any, count: int) -> dict[str, float]:
    values, tokens = logits.log_softmax(-1).topk(min(count, logits.shape[-1]))
    top: dict[str, float] = {}
    for token, value in zip(tokens.tolist(), values.tolist(), strict=True):
        top.setdefault(weights.tokenizer.decode([token]), value)
    return top


def decode(weights: Weights, rows: Sequence[DecodingRow]) -> list[list[int]]:
    """The tokens that each row writes, its end token included; one row's failure is everybody's."""
    ends, made = end_tokens(weights), [list[int]() for _ in rows]
    with weights.torch.inference_mode():
        batch = _prefilled(weights, rows)
        live = list(range(len(rows)))
        while live:
            first = not made[live[0]]
            chosen = adjust(weights, [rows[i] for i in live], batch.logits, first).argmax(-1)
            going = []
            for place, (i, token) in enumerate(zip(live, chosen.tolist(), strict=True)):
                row = rows[i]
                if row.ends is not None:
                    continue
                made[i].append(token)
                if token in ends or len(made[i]) >= row.max_tokens or row.stopped(weights, made[i]):
                    row.ends = len(made[i])
                else:
                    going.append(place)
            if not going:
                break
            if len(going) <= _ROOM_TO_DROP * len(live):
                keep = weights.torch.tensor(going, device=weights.device)
                batch.keep(keep)
                chosen, live = chosen[keep], [live[place] for place in going]
            batch.step(chosen)
    return made


@dataclass
class _Batch:
    """The state of a batch: cache, mask (B, length so far) and the logits (B, V) of the next token."""

    weights: Weights
    cache: Any
    mask: Any
    logits: Any = None

    def read(self, ids: Any, mask: Any) -> None:
        """Read further tokens, (B, T) with their mask; positions count the tokens that are there."""
        torch = self.weights.torch
        self.mask = mask if self.mask is None else torch.cat([self.mask, mask], 1)
        places = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.weights.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=places,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache, self.logits = out.past_key_values, out.logits[:, -1].float()

    def step(self, tokens: Any) -> None:
        """Read one token a row, (B,)."""
        self.read(tokens[:, None], self.weights.torch.ones_like(tokens)[:, None])

    def keep(self, rows: Any) -> None:
        """Keep the given rows, in that order; a row may be kept several times."""
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]


def _prefilled(weights: Weights, rows: Sequence[DecodingRow]) -> _Batch:
    from whet.models.huggingface_cache import give_room

    torch, device = weights.torch, weights.device
    for row in rows:
        if row.temperature > 0:
            row.generator = torch.Generator(device).manual_seed(row.seed)
    batch = _Batch(weights, None, None)
    heads = shared_beginnings([row.ids for row in rows])
    sequences = [row.ids for row in rows]
    if heads is not None:
        distinct = {tuple(row.ids[:n]): 0 for row, n in zip(rows, heads, strict=True)}
        distinct = {head: place for place, head in enumerate(distinct)}
        batch.read(*_padded(weights, [list(head) for head in distinct]))
        places = [distinct[tuple(row.ids[:n])] for row, n in zip(rows, heads, strict=True)]
        batch.keep(torch.tensor(places, device=device))
        sequences = [row.ids[n:] for row, n in zip(rows, heads, strict=True)]
    batch.read(*_padded(weights, sequences))
    give_room(batch.cache, min(_ROOM, max(row.max_tokens for row in rows)))
    return batch


def _padded(weights: Weights, sequences: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Token ids (B, T) filled up on the left, and their mask."""
    torch = weights.torch
    width = max(map(len, sequences))
    ids = torch.tensor([[weights.pad] * (width - len(s)) + list(s) for s in sequences], device=weights.device)
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences], device=weights.device)
    return ids, mask


def shared_beginnings(sequences: Sequence[Sequence[int]]) -> list[int] | None:
    """For each sequence how many of its first tokens to encode with those of its neighbours in sorted order.

    At least one token of every sequence is left. None when less than a quarter of the tokens would be saved.

    >>> shared_beginnings([[7, 7, 7, 1], [7, 7, 7, 2], [8, 9, 8, 3], [8, 9, 8, 4]])
    [3, 3, 3, 3]
    >>> shared_beginnings([[1, 2, 3], [4, 5, 6]])
    """
    order = sorted(range(len(sequences)), key=lambda i: tuple(sequences[i]))
    common = [_common(sequences[a], sequences[b]) for a, b in pairwise(order)]
    heads, saved, at = [0] * len(sequences), 0, 0
    while at < len(order):
        end = at + 1
        while end < len(order) and not _valley(common, end - 1):
            end += 1
        group = order[at:end]
        shared = min([*common[at : end - 1], min(len(sequences[i]) for i in group) - 1])
        if len(group) > 1:
            saved += (len(group) - 1) * shared
        for i in group:
            heads[i] = shared
        at = end
    whole = sum(map(len, sequences))
    return heads if min(heads, default=0) > 0 and saved >= _WORTH_SHARING * whole else None


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    limit = min(len(a), len(b))
    return next((i for i in range(limit) if a[i] != b[i]), limit)


def _valley(common: Sequence[int], at: int) -> bool:
    """Whether two neighbours have much less in common than one of them has with its other neighbour."""
    around = (common[at - 1] if at else 0, common[at + 1] if at + 1 < len(common) else 0)
    return common[at] < max(around) / 2
