"""Batched generation in which every row has its own temperature, seed, length and stop sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.models.huggingface_decode import (
    DecodingRow,
    adjust,
    can_decode,
    decode,
    end_tokens,
    shared_beginnings,
)
from whet.models.huggingface_load import Weights
from whet.models.openai_wire import cut_at_stop
from whet.types import Completion, Request, Usage, content_hash

_DEFAULT_TOKENS = 1024


def generate_batch(weights: Weights, requests: Sequence[Request], size: int) -> list[list[Completion]]:
    """Completions of each request, at most `size` sequences at once.

    Greedy samples of one request, and equal greedy requests, are computed once. A prompt that leaves no room for
    an answer is a Completion with `error`.
    """
    rows = _rows(weights, requests)
    flat = _ordered([row for group in rows for row in group if row.max_tokens > 0])
    texts: dict[int, tuple[str, bool, int]] = {}
    for at in range(0, len(flat), size):
        batch = flat[at : at + size]
        texts.update(zip(map(id, batch), _run(weights, batch), strict=True))
    answers = []
    for request, group in zip(requests, rows, strict=True):
        completions = [_completion(row, texts.get(id(row)), i) for i, row in enumerate(group)]
        answers.append(completions * request.n if len(completions) < request.n else completions)
    return answers


def _ordered(rows: Sequence[DecodingRow]) -> list[DecodingRow]:
    """The distinct rows; those that begin alike stand together, or, where few do, those of like length."""
    distinct = list({id(row): row for row in rows}.values())
    shared = shared_beginnings([row.ids for row in distinct]) is not None
    return sorted(distinct, key=lambda row: (row.ids if shared else [], len(row.ids)))


def _rows(weights: Weights, requests: Sequence[Request]) -> list[list[DecodingRow]]:
    """The sequences of each request; equal greedy requests have the same one."""
    read = weights.read_all([request.messages for request in requests])
    known: dict[Any, DecodingRow] = {}
    return [_rows_of(weights, request, ids, known) for request, ids in zip(requests, read, strict=True)]


def _rows_of(
    weights: Weights, request: Request, ids: list[int], known: dict[Any, DecodingRow]
) -> list[DecodingRow]:
    taken = len(ids) if weights.kind == "causal" or len(ids) > weights.limit else 0
    bound = _DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    room = max(0, min(bound, weights.limit - taken))
    if request.temperature > 0:
        return [
            DecodingRow(ids, request.temperature, room, request.stop, _seed(request, i), request.top_logprobs)
            for i in range(request.n)
        ]
    key = (tuple(ids), room, request.stop, request.top_logprobs)
    return [known.setdefault(key, DecodingRow(ids, 0.0, room, request.stop, 0, request.top_logprobs))]


def _seed(request: Request, copy: int) -> int:
    """Seed of one sample, from everything that makes it what it is."""
    messages: list[Any] = [[m.role, m.content] for m in request.messages]
    return int(content_hash([messages, request.temperature, request.seed, request.sample, copy])[:15], 16)


def _completion(row: DecodingRow, text: tuple[str, bool, int] | None, copy: int) -> Completion:
    if text is None:
        reason = f"the prompt's {len(row.ids)} tokens leave the model no room for an answer"
        return Completion("", "error", error=f"provider: {reason}")
    answer, ended, count = text
    usage = Usage(0 if copy else len(row.ids), count)
    error = None if answer.strip() else "provider: empty answer"
    return Completion(answer, "stop" if ended else "length", usage, error, row.first_token)


def _run(weights: Weights, rows: list[DecodingRow]) -> list[tuple[str, bool, int]]:
    """Text, whether the row ended by itself, and number of generated tokens, for each row."""
    made = decode(weights, rows) if can_decode(weights) else _generated(weights, rows)
    return [_text(weights, row, tokens) for row, tokens in zip(rows, made, strict=True)]


def _generated(weights: Weights, rows: list[DecodingRow]) -> list[list[int]]:
    """The tokens that each row writes, by the model's own `generate`: for models that `decode` does not serve."""
    torch = weights.torch
    width = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), width), weights.pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        at = slice(width - len(row.ids), None) if weights.kind == "causal" else slice(0, len(row.ids))
        ids[i, at] = torch.tensor(row.ids)
        mask[i, at] = 1
        if row.temperature > 0:
            row.generator = torch.Generator(weights.device).manual_seed(row.seed)
    start = width if weights.kind == "causal" else 1
    with torch.inference_mode():
        out = weights.model.generate(
            input_ids=ids.to(weights.device),
            attention_mask=mask.to(weights.device),
            max_new_tokens=max(row.max_tokens for row in rows),
            logits_processor=[_Choose(weights, rows, start)],
            stopping_criteria=[_Stop(weights, rows, start)],
        )
    return [out[i, start:].tolist() for i in range(len(rows))]


def _text(weights: Weights, row: DecodingRow, made: list[int]) -> tuple[str, bool, int]:
    made = made[: row.ends]
    ends = end_tokens(weights)
    at = next((i for i, token in enumerate(made) if token in ends), None)
    whole: str = weights.tokenizer.decode(made if at is None else made[:at], skip_special_tokens=True)
    text = cut_at_stop(whole, row.stops)
    return text, at is not None or len(text) < len(whole), len(made) if at is None else at + 1


@dataclass
class _Choose:
    """Logits processor: `adjust`, which notes the first token's candidates and adds the noise of sampling."""

    weights: Weights
    rows: list[DecodingRow]
    start: int

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return adjust(self.weights, self.rows, scores, input_ids.shape[1] == self.start)


@dataclass
class _Stop:
    """Stopping criterion: a row is over at its own token limit or when a stop sequence stands in its tail."""

    weights: Weights
    rows: list[DecodingRow]
    start: int

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        made = input_ids.shape[1] - self.start
        for i, row in enumerate(self.rows):
            written = input_ids[i, self.start :].tolist() if row.ends is None else []
            if row.ends is None and (made >= row.max_tokens or row.stopped(self.weights, written)):
                row.ends = made
        over = [row.ends is not None for row in self.rows]
        return self.weights.torch.tensor(over, device=input_ids.device)
