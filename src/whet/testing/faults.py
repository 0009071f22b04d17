"""The faults of the local server, and the ledger of the requests that reached it."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean, named_fields


@named_fields
@dataclass(frozen=True)
class Faults:
    """Probabilities (0 to 1, together at most 1) that a request meets a fault, and how the server behaves."""

    error_500: float = 0.0
    rate_429: float = 0.0
    malformed: float = 0.0
    truncated: float = 0.0
    empty: float = 0.0
    refusal: float = 0.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        chances = [getattr(self, f.name) for f in fields(self)]
        if any(c < 0 for c in chances) or sum(chances) > 1:
            raise UsageError(f"Faults are probabilities from 0 to 1 that sum to at most 1, found {chances}.")

    def draw(self, chance: random.Random) -> str | None:
        """Name of the fault that a request meets, or None."""
        at = chance.random()
        for field in fields(self):
            at -= getattr(self, field.name)
            if at < 0:
                return field.name
        return None


_THOUGHT = "refund? technical? other? I do not know."
THOUGHTS: Mapping[str, str] = {
    "think": f"<think>\n{_THOUGHT}\n</think>\n\n[ANSWER]",
    "thinking": f"<thinking>{_THOUGHT}</thinking>\n[ANSWER]",
    "thought": f"<thought>\n{_THOUGHT}\n</thought>\n[ANSWER]",
    "reasoning": f"<reasoning>{_THOUGHT}</reasoning>[ANSWER]",
    "square": f"[THINK]{_THOUGHT}[/THINK][ANSWER]",
    "seed": f"<seed:think>{_THOUGHT}</seed:think>[ANSWER]",
    "maker": f"<mm:think>{_THOUGHT}</mm:think>[ANSWER]",
    "fast": f"<think_fast>{_THOUGHT}</think_fast>\n[ANSWER]",
    "unused": f"<unused94>thought\n{_THOUGHT}<unused95>[ANSWER]",
    "start_thinking": f"<|START_THINKING|>{_THOUGHT}<|END_THINKING|><|START_RESPONSE|>[ANSWER]<|END_RESPONSE|>",
    "begin_of_thought": f"<|begin_of_thought|>{_THOUGHT}<|end_of_thought|>\n[ANSWER]",
    "channel_thought": f"<|channel>thought\n{_THOUGHT}<channel|>[ANSWER]",
    "harmony": f"<|channel|>analysis<|message|>{_THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>[ANSWER]<|return|>",
    "bare_harmony": f"analysis{_THOUGHT}assistantfinal[ANSWER]",
    "eaten": f"{_THOUGHT}\n</think>[ANSWER]",
    "eaten_maker": f"{_THOUGHT}</mm:think>[ANSWER]",
    "eaten_square": f"{_THOUGHT}[/THINK][ANSWER]",
    "twice": f"<think>{_THOUGHT}</think>\n<think>Again: {_THOUGHT}</think>\n[ANSWER]",
    "nested": f"<think>I write <think>{_THOUGHT}</think> first.</think>[ANSWER]",
}
"""Forms in which models and servers put a thought before an answer; the habit `thought_NAME` answers in one of them."""
THOUGHT_PARTS: Mapping[str, Mapping[str, object]] = {
    "reasoning": {"type": "reasoning", "text": _THOUGHT},
    "thinking": {"type": "thinking", "thinking": [{"type": "text", "text": _THOUGHT}]},
    "marked": {"type": "text", "text": _THOUGHT, "thought": True},
}
"""Parts of a content that are a thought; the habit `part_NAME` puts one before the answer."""
THOUGHT_FIELDS = ("reasoning_content", "reasoning")
"""Fields of a message that hold its thought; the habit of the same name fills one."""
HABITS = {
    "one_choice": "`n` is ignored: one choice",
    "no_seed": "`seed` is ignored",
    "ignore_completion_limit": "`max_completion_tokens` is ignored",
    "ignore_limit": "`max_tokens` is ignored",
    "keep_stop": "the stop text is left in the answer",
    "no_logprobs": "no log-probabilities, and no field for them",
    "null_logprobs": "the field of log-probabilities is null",
    "wrong_logprobs": "log-probabilities that are none",
    "free_json": "`response_format` is ignored",
    "schema_500": "a JSON schema is answered by a 500",
    "all_500": "what a client does wrong is answered by a 500",
    "plain_errors": "errors are plain text, and the connection takes no further request",
    "no_usage": "no usage",
    "serial": "one call after the other",
    "interrupt": "a new request cuts off a running stream",
    **{f"thought_{name}": f"a thought stands in the text: {form[:12]}" for name, form in THOUGHTS.items()},
    **{f"part_{name}": "a thought is a part of the content" for name in THOUGHT_PARTS},
    **{field: f"a thought stands in the field {field}" for field in THOUGHT_FIELDS},
    "thought_cut": "the text is a thought that the limit cut off",
    "stream_only": "a request without `stream: true` is refused",
    "stream_always": "every answer is a stream, asked for or not",
    "no_stream": "a request with `stream: true` is refused",
    "no_stream_options": "`stream_options` is refused",
    "strict_context": "input and `max_tokens` together must fit into the context (`--context`), in the words of vLLM",
    "no_system": "a message of the system is refused, in the words of Gemini",
    "prefix_cache": "the usage says how many words of the input earlier requests began with",
    "azure_key": "the key travels in the header `api-key`",
}
"""The observed habits of third-party servers, by the name under which the local server imitates them."""
_IGNORED = {
    "one_choice": "n",
    "no_seed": "seed",
    "ignore_completion_limit": "max_completion_tokens",
    "ignore_limit": "max_tokens",
    "free_json": "response_format",
}
_LOGPROBS: Mapping[str, Mapping[str, object]] = {
    "no_logprobs": {},
    "null_logprobs": {"logprobs": None},
    "wrong_logprobs": {
        "logprobs": {
            "content": [
                {
                    "token": "?",
                    "logprob": 1.5,
                    "top_logprobs": [{"token": "Yes", "logprob": 1.5}, {"token": "No", "logprob": 0.5}],
                }
            ]
        }
    },
}


@named_fields
@dataclass(frozen=True)
class ServerBehaviour:
    """The behaviour of the local server beside its faults."""

    latency: float = 0.0
    """Seconds before each answer."""
    retry_after: float = 0.1
    """Seconds that a 429 asks for."""
    most_in_flight: int = 0
    """With more requests in flight, a request gets a 429; 0: no bound."""
    api_key: str = ""
    """The key that a request must carry; a wrong one is echoed in the 401."""
    reject: tuple[str, ...] = ()
    """Features (response_format, seed, n, ...) that are refused with a 400 that names them."""
    seed: int = 0
    context: int = 0
    """Words that a request may hold; with more, it gets a 400. 0: no bound."""
    most_output: int = 0
    """The largest `max_tokens`; a larger one gets a 400 in the words of OpenAI. 0: no bound."""
    habits: tuple[str, ...] = ()
    """Names from `HABITS`."""

    def __post_init__(self) -> None:
        for habit in self.habits:
            if habit not in HABITS:
                raise UsageError(f'There is no habit "{habit}".{did_you_mean(habit, HABITS)}')


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived: path with its query, headers with lower-case names, and body. It stands in no file, for it may
    hold a key."""

    path: str
    headers: Mapping[str, str]
    body: object


@dataclass
class RequestLedger:
    """Append-only list of requests, in memory and, given a path, one JSON line each in a file."""

    path: Path | None = None

    def __post_init__(self) -> None:
        self.entries: list[dict[str, object]] = []
        self._file = self.path.open("a", encoding="utf-8") if self.path is not None else None

    def add(self, entry: dict[str, object]) -> None:
        """Append one request and flush it to the operating system."""
        self.entries.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        if self._file is not None:
            self._file.close()


def apply_habits(body: Mapping[str, object], habits: Collection[str]) -> dict[str, object]:
    """The handling of a request's body by a server with these habits."""
    ignored = {_IGNORED[habit] for habit in habits if habit in _IGNORED}
    return {key: value for key, value in body.items() if key not in ignored}


def thoughtful(answer: str, habits: Collection[str]) -> dict[str, object]:
    """The message in which a server with these habits sends an answer after a thought; nothing without such a habit."""
    fields: dict[str, object] = {field: _THOUGHT for field in THOUGHT_FIELDS if field in habits}
    for name, form in THOUGHTS.items():
        if f"thought_{name}" in habits:
            fields["content"] = form.replace("[ANSWER]", answer)
    for name, part in THOUGHT_PARTS.items():
        if f"part_{name}" in habits:
            fields["content"] = [dict(part), {"type": "text", "text": answer}]
    if "thought_cut" in habits:
        fields["content"] = f"<think>\n{_THOUGHT}"
    return fields


def habitual(answer: Mapping[str, Any], stops: Collection[str], habits: Collection[str]) -> dict[str, object]:
    """The body of an answer as a server with these habits gives it; `stops` are the request's stop sequences."""
    logprobs = [_LOGPROBS[habit] for habit in habits if habit in _LOGPROBS]
    choices = []
    for choice in answer["choices"]:
        message = choice["message"]
        if "keep_stop" in habits and message["content"]:
            message = {**message, "content": _cut_behind(message["content"], stops)}
        if message["content"] and (thinking := thoughtful(message["content"], habits)):
            message = {**message, **thinking}
        choice = {**choice, "message": message}
        if "thought_cut" in habits:
            choice["finish_reason"] = "length"
        if logprobs:
            del choice["logprobs"]
        choices.append({**choice, **(logprobs[0] if logprobs else {})})
    kept = {key: value for key, value in answer.items() if key != "usage" or "no_usage" not in habits}
    return {**kept, "choices": choices}


def _cut_behind(text: str, stops: Collection[str]) -> str:
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
