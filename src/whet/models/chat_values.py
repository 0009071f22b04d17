"""The input and output of a function that stands for a model: messages that are mappings, and answers in any usual form.

A message of a function that calls tools of its own becomes a text with each call as `<tool>{"name", "arguments"}</tool>`, as
whet writes calls and the reward `tool_calls` reads them.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.models.openai_answers import completions, finish_of, reported_usage
from whet.models.openai_wire import Failure, http_error
from whet.replies.thoughts import CUT, EMPTY
from whet.replies.tool_calls import show_tool_call
from whet.types import Completion, Message, Request, Usage
from whet_client.media import content_of

FORMS = (
    'Return a text, {"content": ...} or {"text": ...}, a response of OpenAI\'s chat API as an object or a dict, or a '
    "whet.Completion"
)
_ENDS = ("finish_reason", "stop_reason")
_ARGUMENTS = ("arguments", "args", "input")
_USAGES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))


class ChatMessage(dict[str, Any]):
    """A message as a mapping, which `json.dumps` takes, and whose fields are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.get(name) if name == "name" else self[name]
        except KeyError:
            raise AttributeError(f"A message has no {name}; it has {', '.join(self)}.") from None


def as_mappings(messages: Sequence[Message]) -> list[ChatMessage]:
    """The messages for a function; the content of one with an image, a sound or a file is a list of parts."""
    return [ChatMessage(message.as_object(content_of(message.content))) for message in messages]


def as_completion(answer: object, request: Request, who: str) -> Completion | None:
    """The function's return value as a completion; None for a value that is no answer. A completion without a text is a bad
    answer.

    Where the response has no token counts, a quarter of the characters is counted. Raises ProviderError for a response that
    reports an error, or whose choices cannot be read.
    """
    made = _read(answer, request, who)
    if made is None or made.error is not None or not isinstance(made.text, str) or made.text.strip():
        return made
    return replace(made, error=CUT if made.finish == "length" else EMPTY)


def _read(answer: object, request: Request, who: str) -> Completion | None:
    if isinstance(answer, Completion):
        silent = answer.usage == Usage() and isinstance(answer.text, str)
        return replace(answer, usage=_estimate_usage(answer.text, request)) if silent else answer
    if isinstance(answer, str):
        return Completion(answer, usage=_estimate_usage(answer, request))
    values = _as_dict(answer)
    if values is None:
        return None
    data = _with_calls_as_text(values)
    if "choices" in data or data.get("error"):
        made = completions(data, request, _estimate, reported_usage(data))
        if isinstance(made, Failure):
            raise http_error(made, who, lambda text: text)
        return made[0]
    text = _text_of(data)
    if text is None:
        return None
    usage = _usage_of(data)
    reason = next((reason for name in _ENDS if (reason := data.get(name)) is not None), None)
    return Completion(text, finish_of(reason), _estimate_usage(text, request) if usage is None else usage)


def _as_dict(answer: object) -> Mapping[str, object] | None:
    """A mapping, or an object with the fields of a response, as plain values."""
    if isinstance(answer, Mapping):
        return {str(key): _plain(value) for key, value in answer.items()}
    names = (
        "choices",
        "error",
        "content",
        "text",
        "message",
        "tool_calls",
        "function_call",
        "usage",
        "usage_metadata",
        *_ENDS,
    )
    if isinstance(answer, bytes | bytearray | int | float | list | tuple | set) or answer is None:
        return None
    values = {name: _plain(getattr(answer, name, None)) for name in names}
    return {name: value for name, value in values.items() if value is not None} or None


def _plain(value: Any) -> object:
    """An object of a client library (pydantic, a dataclass, a namespace) as dicts, lists and scalars."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump()
    return {key: _plain(item) for key, item in vars(value).items()} if hasattr(value, "__dict__") else None


def _with_calls_as_text(data: Mapping[str, object]) -> Mapping[str, object]:
    """An answer whose messages hold their tool calls in their contents, behind what else they say."""
    choices = data.get("choices")
    if isinstance(choices, list):
        answers = [
            _with_calls_as_text(choice) if isinstance(choice, Mapping) else choice for choice in choices
        ]
        return {**data, "choices": answers}
    message = data.get("message")
    if isinstance(message, Mapping):
        return {**data, "message": _with_calls_as_text(message)}
    calls, single = data.get("tool_calls"), data.get("function_call")
    every = [*(calls if isinstance(calls, list) else []), *([single] if single else [])]
    written = [text for call in every if (text := _show_call(call))]
    if not written:
        return data
    content = data.get("text") if data.get("content") is None else data["content"]
    parts = (
        content
        if isinstance(content, list)
        else [content]
        if isinstance(content, str) and content.strip()
        else []
    )
    lines = [
        {"type": "text", "text": text if n + len(parts) == 0 else f"\n{text}"}
        for n, text in enumerate(written)
    ]
    texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {**data, "content": [*texts, *lines]}


def _show_call(call: object) -> str:
    """A tool call as whet writes it, from one of OpenAI's form or of `{"name", "args"}`; '' for what has no name."""
    inner = call.get("function") if isinstance(call, Mapping) else None
    known = inner if isinstance(inner, Mapping) else call
    if not isinstance(known, Mapping) or not isinstance(known.get("name"), str):
        return ""
    arguments: Any = next((known[key] for key in _ARGUMENTS if known.get(key) is not None), {})
    if isinstance(arguments, str):
        # of a text that is no JSON, whoever reads the call says so
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments) if arguments.strip() else {}
    return show_tool_call(known["name"], arguments)


def _text_of(data: Mapping[str, object]) -> str | None:
    """The text of an answer without choices: a message, its content as a text or in parts."""
    message = data.get("message")
    inner = message if isinstance(message, Mapping) else data
    for name in ("content", "text"):
        value = inner.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            texts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
            if any(isinstance(text, str) for text in texts):
                return "".join(text for text in texts if isinstance(text, str))
    return None


def _usage_of(data: Mapping[str, object]) -> Usage | None:
    reported = data.get("usage") or data.get("usage_metadata")
    if not isinstance(reported, Mapping):
        return None
    if (usage := reported_usage({"usage": dict(reported)})) is not None:
        return usage
    for names in _USAGES:
        tokens = [
            n for n in map(reported.get, names) if isinstance(n, int) and not isinstance(n, bool) and n >= 0
        ]
        if len(tokens) == len(names):
            return Usage(tokens[0], tokens[1])
    return None


def _estimate_usage(text: str, request: Request) -> Usage:
    return Usage(sum(_estimate(str(m.content)) for m in request.messages), _estimate(text), estimated=True)


def _estimate(text: str) -> int:
    return math.ceil(len(text) / 4)
