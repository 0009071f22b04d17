"""OpenAI's Chat Completions for a command that is a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from whet.environments.agent_forms import (
    MODEL,
    AgentAnswer,
    AgentRequest,
    check_body,
    read_limit,
    read_parts,
    read_schema,
    read_schema_options,
    read_stop,
)
from whet.environments.function_calls import OfferedTools, message_of
from whet.errors import UsageError

_LENGTH = ("max_completion_tokens", "max_tokens")
_KNOWN = frozenset(
    (
        *(
            "messages",
            "model",
            "n",
            "stream",
            "stop",
            "response_format",
            "tools",
            "tool_choice",
            "modalities",
        ),
        *("functions", "function_call", "parallel_tool_calls", *_LENGTH),
        *("metadata", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "stream_options", "user"),
    )
)
"""Fields that are read, and in the last two lines those that change no answer."""
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_LEFT_OUT = (*_THOUGHTS, "refusal", "annotations")
"""Keys of an earlier answer that the model is not shown: its thoughts, and what stands in its text too."""
_SAMPLING = (
    *("frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort", "seed", "temperature"),
    *("top_p", "top_k", "min_p", "verbosity"),
)


class ChatForm:
    """Requests to `/v1/chat/completions`."""

    def read(self, body: Any) -> AgentRequest:
        """See `AgentForm`."""
        sampling = check_body(body, _KNOWN, _SAMPLING)
        if body.get("n", 1) not in (1, None):
            raise UsageError("`n` must be 1. Ask once for each answer.")
        if body.get("modalities") not in (None, ["text"]):
            raise UsageError('`modalities` must be ["text"]: whet records texts.')
        form = body.get("response_format")
        schema = read_schema(form, "response_format", _find_schema)
        listed = body.get("messages")
        each = listed if isinstance(listed, list) else []
        messages = list(map(_read_message, each)) if each else listed
        return AgentRequest(
            **read_parts(body, messages, OfferedTools.of(body)), thoughts=any(map(_has_thoughts, each)),
            schema=schema, schema_options=read_schema_options(_find_described(form)),
            stop=read_stop(body.get("stop"), "stop"), limit=read_limit(body, *_LENGTH), sampling=sampling,
        )  # fmt: skip

    def write(self, call: AgentRequest, answer: AgentAnswer) -> dict[str, Any]:
        """See `AgentForm`."""
        message, finish = message_of(answer.text, call.tools, bool(call.body.get("functions")))
        if finish == "stop" and answer.finish == "length":
            finish = "length"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**_BASE, "object": "chat.completion", "choices": [choice], "usage": _write_usage(answer)}

    def stream(self, written: dict[str, Any]) -> Iterator[tuple[str, object]]:
        """See `AgentForm`."""
        (choice,) = written["choices"]
        message = dict(choice["message"])
        if "tool_calls" in message:
            message["tool_calls"] = [{"index": n, **one} for n, one in enumerate(message["tool_calls"])]
        for delta, end in ((message, None), ({}, choice["finish_reason"])):
            piece = {"index": 0, "delta": delta, "finish_reason": end}
            usage = written["usage"] if end else None
            yield "", {**_BASE, "object": "chat.completion.chunk", "choices": [piece], "usage": usage}
        yield "", "[DONE]"

    def fail(self, status: int, message: str) -> dict[str, Any]:
        """See `AgentForm`."""
        return {"error": {"message": message, "type": "whet", "code": None, "param": None}}


_BASE = {"id": "whet", "created": 0, "model": MODEL}


def _has_thoughts(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return False
    return any(message.get(key) for key in _THOUGHTS)


def _read_message(message: Any) -> Any:
    """A message as every reader of messages knows it: without what a model thought, and with what it refused as its text."""
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return message
    own = {key: value for key, value in message.items() if key not in _LEFT_OUT}
    if isinstance(content := own.get("content"), list):
        own["content"] = [_read_part(part) for part in content]
    elif content is None and message.get("refusal"):
        own["content"] = message["refusal"]
    return own


def _read_part(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return part


def _find_described(form: Any) -> object:
    return form.get("json_schema") if isinstance(form, dict) and form.get("type") == "json_schema" else None


def _find_schema(form: Any) -> object:
    inner = _find_described(form)
    return inner.get("schema") if isinstance(inner, dict) else None


def _write_usage(answer: AgentAnswer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
