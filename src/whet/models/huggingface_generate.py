"""Batched generation in which every row has its own temperature, seed, length and stop sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.models.huggingface_decode import DecodingRow, can_decode, decode, end_tokens, shared_beginnings
from whet.models.huggingface_load import Weights
from whet.models.openai_wire import cut_at_stop
from whet.types import Completion, Request, Usage, content_hash

_DEFAULT_TOKENS = 1024


@dataclass
class RequestRow(DecodingRow):
    """One answer to a request, sampled by `generator` (None: greedy). `first_token`: the likeliest first tokens with their
    log-probabilities, as many as `top`."""

    temperature: float = 0.0
    top: int = 0
    generator: Any = None
    first_token: dict[str, float] | None = None


def generate_batch(weights: Weights, requests: Sequence[Request], size: int) -> list[list[Completion]]:
    """Completions of each request, at most `size` sequences at once.

    Greedy samples of one request, and equal greedy requests, are computed once. A prompt that leaves no room for
    an answer is a Completion with `error`.
    """
    rows = _rows(weights, requests)
    flat = _ordered([row for group in rows for row in group if row.max_tokens > 0])
    for at in range(0, len(flat), size):
        _run(weights, flat[at : at + size])
    answers = []
    for request, group in zip(requests, rows, strict=True):
        completions = [_completion(weights, row, i) for i, row in enumerate(group)]
        answers.append(completions * request.n if len(completions) < request.n else completions)
    return answers


def _ordered(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """The distinct rows; those that begin alike stand together, or, where few do, those of like length."""
    distinct = list({id(row): row for row in rows}.values())
    shared = shared_beginnings([row.ids for row in distinct]) is not None
    return sorted(distinct, key=lambda row: (row.ids if shared else [], len(row.ids)))


def _rows(weights: Weights, requests: Sequence[Request]) -> list[list[RequestRow]]:
    """The sequences of each request; equal greedy requests have the same one."""
    read = weights.read_all([request.messages for request in requests])
    known: dict[Any, RequestRow] = {}
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
    """Seed of one sample, from everything that makes it what it is."""
    messages: list[Any] = [[m.role, m.content] for m in request.messages]
    return int(content_hash([messages, request.temperature, request.seed, request.sample, copy])[:15], 16)


def _completion(weights: Weights, row: RequestRow, copy: int) -> Completion:
    if not row.max_tokens:
        reason = f"the prompt's {len(row.ids)} tokens leave the model no room for an answer"
        return Completion("", "error", error=f"provider: {reason}")
    ends = end_tokens(weights)
    end = next((i for i, token in enumerate(row.written) if token in ends), None)
    whole: str = weights.tokenizer.decode(row.written[:end], skip_special_tokens=True)
    text = cut_at_stop(whole, row.stops)
    usage = Usage(0 if copy else len(row.ids), len(row.written) if end is None else end + 1)
    finish = "stop" if end is not None or len(text) < len(whole) else "length"
    error = None if text.strip() else "provider: empty answer"
    return Completion(text, finish, usage, error, row.first_token)


def _run(weights: Weights, rows: list[RequestRow]) -> None:
    """Write all rows."""
    if not can_decode(weights):
        _generate(weights, rows)
        return
    decode(
        weights, rows, lambda live, logits: _adjusted(weights, live, logits).argmax(-1), end_tokens(weights)
    )


def _adjusted(weights: Weights, rows: Sequence[RequestRow], scores: Any) -> Any:
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


def _top(weights: Weights, logits: Any, count: int) -> dict[str, float]:
    values, tokens = logits.log_softmax(-1).topk(min(count, logits.shape[-1]))
    top: dict[str, float] = {}
    for token, value in zip(tokens.tolist(), values.tolist(), strict=True):
        top.setdefault(weights.tokenizer.decode([token]), value)
    return top


def _generate(weights: Weights, rows: list[RequestRow]) -> None:
    """Write all rows by the model's own `generate`: for models that `decode` does not serve."""
    ids, mask = weights.padded([row.ids for row in rows], left=weights.kind == "causal")
    start = ids.shape[1] if weights.kind == "causal" else 1
    with weights.torch.inference_mode():
        out = weights.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max(row.max_tokens for row in rows),
            logits_processor=[lambda _, scores: _adjusted(weights, rows, scores)],
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

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        for row, tokens in zip(self.rows, input_ids[:, self.start :].tolist(), strict=True):
            if not row.over:
                row.written = tokens
                row.over = len(tokens) >= row.max_tokens or row.stopped(self.weights)
        return self.weights.torch.tensor([row.over for row in self.rows], device=input_ids.device)
