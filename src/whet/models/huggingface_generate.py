"""Batched generation in which every row has its own temperature, seed, length and stop sequences.

Sampling adds Gumbel noise, drawn from the row's own generator, to the row's logits and takes the largest: a
sample from the softmax that depends on the row's seed and not on the rows that happen to share its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.models.huggingface_load import Weights
from whet.models.openai_wire import cut_at_stop
from whet.types import Completion, Request, Usage, content_hash

_BYTES_PER_CHARACTER = 4
_DEFAULT_TOKENS = 1024


@dataclass
class Row:
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


def generate_batch(weights: Weights, requests: Sequence[Request], size: int) -> list[list[Completion]]:
    """Completions of each request, at most `size` sequences at once.

    Greedy samples of one request are alike and computed once.
    A prompt that leaves no room for an answer is a Completion with `error`.
    """
    rows: list[list[Row]] = [_rows(weights, request) for request in requests]
    flat = [row for group in rows for row in group if row.max_tokens > 0]
    texts: dict[int, tuple[str, bool, int]] = {}
    for at in range(0, len(flat), size):
        batch = flat[at : at + size]
        texts.update(zip(map(id, batch), _run(weights, batch), strict=True))
    answers = []
    for request, group in zip(requests, rows, strict=True):
        found = [_completion(row, texts.get(id(row)), i) for i, row in enumerate(group)]
        answers.append(found * request.n if len(found) < request.n else found)
    return answers


def _rows(weights: Weights, request: Request) -> list[Row]:
    _, ids = weights.read(request.messages)
    taken = len(ids) if weights.kind == "causal" or len(ids) > weights.limit else 0
    bound = _DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    room = max(0, min(bound, weights.limit - taken))
    copies = request.n if request.temperature > 0 else 1
    return [
        Row(ids, request.temperature, room, request.stop, _seed(request, i), request.top_logprobs)
        for i in range(copies)
    ]


def _seed(request: Request, copy: int) -> int:
    """Seed of one sample, from everything that makes it what it is."""
    messages: list[Any] = [[m.role, m.content] for m in request.messages]
    return int(content_hash([messages, request.temperature, request.seed, request.sample, copy])[:15], 16)


def _completion(row: Row, text: tuple[str, bool, int] | None, copy: int) -> Completion:
    if text is None:
        said = f"the prompt's {len(row.ids)} tokens leave the model no room for an answer"
        return Completion("", "error", error=f"provider: {said}")
    answer, ended, count = text
    usage = Usage(0 if copy else len(row.ids), count)
    error = None if answer.strip() else "provider: empty answer"
    return Completion(answer, "stop" if ended else "length", usage, error, row.first_token)


def _run(weights: Weights, rows: list[Row]) -> list[tuple[str, bool, int]]:
    """Text, whether the row ended by itself, and number of generated tokens, for each row."""
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
    return [_text(weights, row, out[i, start:].tolist()) for i, row in enumerate(rows)]


def _text(weights: Weights, row: Row, made: list[int]) -> tuple[str, bool, int]:
    made = made[: row.ends]
    eos = weights.model.generation_config.eos_token_id
    ends = {eos} if isinstance(eos, int) else set(eos or ())
    at = next((i for i, token in enumerate(made) if token in ends), None)
    whole: str = weights.tokenizer.decode(made if at is None else made[:at], skip_special_tokens=True)
    text = cut_at_stop(whole, row.stops)
    return text, at is not None or len(text) < len(whole), len(made) if at is None else at + 1


@dataclass
class _Choose:
    """Logits processor: keeps the first token's log-probabilities, then adds each sampled row's noise."""

    weights: Weights
    rows: list[Row]
    start: int

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        first = input_ids.shape[1] == self.start
        for i, row in enumerate(self.rows):
            if first and row.top:
                row.first_token = self._top(scores[i], row.top)
            if row.temperature > 0:
                noise = self.weights.torch.empty_like(scores[i]).exponential_(generator=row.generator).log()
                scores[i] = scores[i] / row.temperature - noise
        return scores

    def _top(self, logits: Any, count: int) -> dict[str, float]:
        values, tokens = logits.log_softmax(-1).topk(min(count, logits.shape[-1]))
        found: dict[str, float] = {}
        for token, value in zip(tokens.tolist(), values.tolist(), strict=True):
            found.setdefault(self.weights.tokenizer.decode([token]), value)
        return found


@dataclass
class _Stop:
    """Stopping criterion: a row is over at its own token limit or when a stop sequence stands in its tail."""

    weights: Weights
    rows: list[Row]
    start: int

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        made = input_ids.shape[1] - self.start
        for i, row in enumerate(self.rows):
            if row.ends is None and (
                made >= row.max_tokens or self._stopped(row, input_ids[i, self.start :])
            ):
                row.ends = made
        over = [row.ends is not None for row in self.rows]
        return self.weights.torch.tensor(over, device=input_ids.device)

    def _stopped(self, row: Row, made: Any) -> bool:
        if not row.stops:
            return False
        reach = _BYTES_PER_CHARACTER * (max(map(len, row.stops)) + 1)
        tail = self.weights.tokenizer.decode(made[-reach:].tolist(), skip_special_tokens=True)
        return any(stop in tail for stop in row.stops if stop)
