"""Batched generation in which every row has its own temperature, seed, length and stop sequences.

A causal model writes token by token over its key-value cache (`decode`). Rows whose token sequences begin alike share that
beginning: it is encoded once and its cache copied. Rows that are over leave the batch. What a row gets does not depend on
the others, beyond rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from whet.models.huggingface_load import WHOLE, BatchPart, Weights, positions
from whet.models.openai_answers import add_logprobs, cut_at_stop
from whet.replies.thoughts import opening_at_end, separate_thought
from whet.types import Completion, Request, Usage, content_hash

if TYPE_CHECKING:
    from torch import Tensor

_BYTES_PER_CHARACTER = 4
_WORTH_SHARING = 0.25  # share of the prompts' tokens that must be saved before beginnings are shared
_ROOM = 64  # tokens for which the cache has room before it is copied
_ROOM_TO_DROP = 0.8  # finished rows leave when the others are at most this share of the batch


Choose: TypeAlias = "Callable[..., Tensor]"
"""From the rows that are still written and the logits (B, V) after what they wrote, of each model, to their next tokens, int64
(B,)."""
_DEFAULT_TOKENS = 1024
_MARK_TOKENS = 16  # tokens at the end of a prompt among which the opening mark of a thought is looked for


@dataclass
class DecodingRow:
    """One sequence to generate after the tokens `ids`: `written` so far, end token included; `over` once it is done, `ended`
    if that was by an end token or a stop sequence and not by the bound `max_tokens`."""

    ids: Sequence[int]
    max_tokens: int
    stops: tuple[str, ...] = ()
    written: list[int] = field(default_factory=list)
    over: bool = False
    ended: bool = False

    def append(self, weights: Weights, token: int, ends: Collection[int]) -> None:
        """Add a token, unless the row is over."""
        if self.over:
            return
        self.written.append(token)
        self.ended = token in ends or self.is_stopped(weights)
        self.over = self.ended or len(self.written) >= self.max_tokens

    def is_stopped(self, weights: Weights) -> bool:
        """Whether one of the row's stop sequences stands at the end of what it wrote."""
        if not self.stops:
            return False
        reach = _BYTES_PER_CHARACTER * (max(map(len, self.stops)) + 1)
        tail = weights.tokenizer.decode(self.written[-reach:], skip_special_tokens=True)
        return any(stop in tail for stop in self.stops if stop)


def end_tokens(weights: Weights) -> frozenset[int]:
    """The tokens that end an answer."""
    eos = weights.model.generation_config.eos_token_id
    return frozenset({eos} if isinstance(eos, int) else set(eos or ()))


def can_decode(weights: Weights) -> bool:
    """Whether the model is a causal one with a key-value cache and explicit positions."""
    known = inspect.signature(weights.model.forward).parameters
    stateful = getattr(weights.model, "_is_stateful", False)
    return weights.kind == "causal" and not stateful and {"past_key_values", "position_ids"} <= known.keys()


def generate_rows(
    weights: Weights,
    rows: Sequence[DecodingRow],
    choose: Choose,
    ends: Collection[int],
    beside: Sequence[Weights] = (),
) -> None:
    """Write all rows, each until one of the tokens `ends`, a stop sequence or its bound; one row's failure is everybody's.

    The models `beside` read the same rows: `choose` gets their logits behind those of the first.
    """
    with weights.torch.inference_mode():
        batches = [_prefill(one, rows) for one in (weights, *beside)]
        live = list(rows)
        while True:
            chosen = choose(live, *(batch.logits for batch in batches))
            for row, token in zip(live, chosen.tolist(), strict=True):
                row.append(weights, token, ends)
            open_ = [place for place, row in enumerate(live) if not row.over]
            if not open_:
                return
            if len(open_) <= _ROOM_TO_DROP * len(live):
                keep = weights.torch.tensor(open_, device=weights.device)
                for batch in batches:
                    batch.keep(keep)
                chosen, live = chosen[keep], [live[place] for place in open_]
            for batch in batches:
                batch.step(chosen)


@dataclass
class _Batch:
    """The state of a batch: cache, mask (B, length so far) and the logits (B, V) of the next token."""

    weights: Weights
    cache: Any
    mask: Tensor | None
    logits: Tensor | None = None

    def read(self, ids: Tensor, mask: Tensor) -> None:
        """Read further tokens, (B, T) with their mask; positions count the tokens that are there."""
        torch = self.weights.torch
        self.mask = mask if self.mask is None else torch.cat([self.mask, mask], 1)
        places = positions(self.mask)[:, -ids.shape[1] :]
        out = self.weights.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=places,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache, self.logits = out.past_key_values, out.logits[:, -1].float()

    def step(self, tokens: Tensor) -> None:
        """Read one token a row, (B,)."""
        self.read(tokens[:, None], self.weights.torch.ones_like(tokens)[:, None])

    def keep(self, rows: Tensor) -> None:
        """Keep the given rows, in that order; a row may be kept several times."""
        self.cache.batch_select_indices(rows)
        self.mask = None if self.mask is None else self.mask[rows]


def _prefill(weights: Weights, rows: Sequence[DecodingRow]) -> _Batch:
    from whet.models.huggingface_cache import give_room

    batch = _Batch(weights, None, None)
    heads = shared_beginnings([row.ids for row in rows])
    sequences = [row.ids for row in rows]
    if heads is not None:
        distinct = {tuple(row.ids[:n]): 0 for row, n in zip(rows, heads, strict=True)}
        distinct = {head: place for place, head in enumerate(distinct)}
        batch.read(*weights.pad_rows(list(distinct), left=True))
        places = [distinct[tuple(row.ids[:n])] for row, n in zip(rows, heads, strict=True)]
        batch.keep(weights.torch.tensor(places, device=weights.device))
        sequences = [row.ids[n:] for row, n in zip(rows, heads, strict=True)]
    batch.read(*weights.pad_rows(sequences, left=True))
    give_room(batch.cache, min(_ROOM, max(row.max_tokens for row in rows)))
    return batch


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


@dataclass
class RequestRow(DecodingRow):
    """One answer to a request, sampled by `generator` (None: greedy). `first_token`: the likeliest first tokens with their
    log-probabilities, as many as `top`."""

    temperature: float = 0.0
    top: int = 0
    generator: object = None
    first_token: dict[str, float] | None = None


def generate_batch(
    weights: Weights, requests: Sequence[Request], size: int, part: BatchPart = WHOLE
) -> list[list[Completion | None]]:
    """Completions of each request, at most `size` sequences at once; None where another `part` computes them.

    Greedy samples of one request, and equal greedy requests, are computed once. A prompt that leaves no room for
    an answer is a Completion with `error`.
    """
    rows = _rows(weights, requests)
    flat = _order_by_prefix([row for group in rows for row in group if row.max_tokens > 0])
    left_out = {id(row) for row in flat}
    for at in part.of(range(0, len(flat), size)):
        batch = flat[at : at + size]
        _run(weights, batch)
        left_out -= {id(row) for row in batch}
    answers = []
    for request, group in zip(requests, rows, strict=True):
        completions = [
            None if id(row) in left_out else _completion(weights, row, i) for i, row in enumerate(group)
        ]
        answers.append(completions * request.n if len(completions) < request.n else completions)
    return answers


def _order_by_prefix(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """The distinct rows; those that begin alike stand together, or, where few do, those of like length."""
    distinct = list({id(row): row for row in rows}.values())
    shared = shared_beginnings([row.ids for row in distinct]) is not None
    return sorted(distinct, key=lambda row: (row.ids if shared else [], len(row.ids)))


def _rows(weights: Weights, requests: Sequence[Request]) -> list[list[RequestRow]]:
    """The sequences of each request; equal greedy requests have the same one."""
    read = weights.read_all([request.messages for request in requests])
    known: dict[object, RequestRow] = {}
    return [_rows_of(weights, request, ids, known) for request, ids in zip(requests, read, strict=True)]


def _rows_of(
    weights: Weights, request: Request, ids: list[int], known: dict[Any, RequestRow]
) -> list[RequestRow]:
    taken = len(ids) if weights.kind == "causal" or len(ids) > weights.limit else 0
    bound = _DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    room = max(0, min(bound, weights.limit - taken))
    row = RequestRow(ids, room, request.stop, temperature=request.temperature, top=request.top_logprobs)
    if request.temperature == 0:
        return [known.setdefault((tuple(ids), room, request.stop, request.top_logprobs), row)]
    seeds = [_seed(request, copy) for copy in range(request.n)]
    generators = [weights.torch.Generator(weights.device).manual_seed(seed) for seed in seeds]
    return [replace(row, written=[], generator=generator) for generator in generators]


def _seed(request: Request, copy: int) -> int:
    """Seed of one sample, from everything that determines it."""
    messages: list[object] = [m.as_list() for m in request.messages]
    return int(content_hash([messages, request.temperature, request.seed, request.sample, copy])[:15], 16)


def _completion(weights: Weights, row: RequestRow, copy: int) -> Completion:
    if not row.max_tokens:
        reason = f"the prompt's {len(row.ids)} tokens leave the model no room for an answer"
        return Completion("", "error", error=f"model: {reason}")
    ends = end_tokens(weights)
    end = next((i for i, token in enumerate(row.written) if token in ends), None)
    written = _without_thought(weights, row.ids, row.written[:end])
    whole = written.text
    text = cut_at_stop(whole, row.stops)
    usage = Usage(0 if copy else len(row.ids), len(row.written) if end is None else end + 1)
    finish = "stop" if end is not None or len(text) < len(whole) else "length"
    finish = "length" if written.finish == "length" else finish
    error = written.error or (None if text.strip() else "model: empty answer")
    first = None if written.thought else row.first_token
    return Completion(text, finish, usage, error, first, thought=written.thought)


def _without_thought(weights: Weights, ids: Sequence[int], written: Sequence[int]) -> Completion:
    """The written text, and its thought separately. The marks of a thought may be special tokens, and a chat template may write
    the opening one."""
    tokenizer = weights.tokenizer
    plain: str = tokenizer.decode(written, skip_special_tokens=True)
    raw = f"{opening_at_end(tokenizer.decode(ids[-_MARK_TOKENS:]))}{tokenizer.decode(written)}"
    parted = separate_thought(Completion(raw))
    if not parted.thought:
        return separate_thought(Completion(plain))
    answer = parted.text
    for token in tokenizer.all_special_tokens:
        answer = answer.replace(token, "")
    return replace(parted, text=answer.strip())


def _run(weights: Weights, rows: list[RequestRow]) -> None:
    """Write all rows."""
    if not can_decode(weights):
        _generate(weights, rows)
        return
    generate_rows(
        weights,
        rows,
        lambda live, logits: _adjust_scores(weights, live, logits).argmax(-1),
        end_tokens(weights),
    )


def _adjust_scores(weights: Weights, rows: Sequence[RequestRow], scores: Tensor) -> Tensor:
    """Scores (B, V) whose largest entry is each row's next token; notes the first token's candidates.

    Sampling adds Gumbel noise, drawn from the row's own generator, to the row's logits and takes the largest: a
    sample from the softmax that depends on the row's seed and not on the rows that share its batch.
    """
    for i, row in enumerate(rows):
        if row.top and row.first_token is None:
            row.first_token = _top(weights, scores[i], row.top)
        if row.generator is not None:
            noise = weights.torch.empty_like(scores[i]).exponential_(generator=row.generator).log()
            scores[i] = scores[i] / row.temperature - noise
    return scores


def _top(weights: Weights, logits: Tensor, count: int) -> dict[str, float]:
    values, tokens = logits.log_softmax(-1).topk(min(count, logits.shape[-1]))
    top: dict[str, list[float]] = {}
    for token, value in zip(tokens.tolist(), values.tolist(), strict=True):
        top.setdefault(weights.tokenizer.decode([token]), []).append(value)
    return {text: add_logprobs(same) for text, same in top.items()}


def _generate(weights: Weights, rows: list[RequestRow]) -> None:
    """Write all rows by the model's own `generate`: for models that `decode` does not serve."""
    ids, mask = weights.pad_rows([row.ids for row in rows], left=weights.kind == "causal")
    start = ids.shape[1] if weights.kind == "causal" else 1
    with weights.torch.inference_mode():
        out = weights.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max(row.max_tokens for row in rows),
            logits_processor=[lambda _, scores: _adjust_scores(weights, rows, scores)],
            stopping_criteria=[_Stop(weights, rows, start)],
        )
    for row, tokens in zip(rows, out[:, start:].tolist(), strict=True):
        row.written = row.written if row.over else tokens


@dataclass
class _Stop:
    """Stopping criterion: a row is over at its own token limit or when a stop sequence stands in its tail."""

    weights: Weights
    rows: list[RequestRow]
    start: int

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> object:
        for row, tokens in zip(self.rows, input_ids[:, self.start :].tolist(), strict=True):
            if not row.over:
                row.written = tokens
                row.over = len(tokens) >= row.max_tokens or row.is_stopped(self.weights)
        return self.weights.torch.tensor([row.over for row in self.rows], device=input_ids.device)
