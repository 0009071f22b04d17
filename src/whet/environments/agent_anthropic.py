"""Anthropic's Messages for a command that is a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whet.environments.agent_forms import (
    MODEL,
    AgentAnswer,
    AgentRequest,
    check_body,
    make_id,
    read_limit,
    read_parts,
    read_schema,
    read_stop,
)
from whet.environments.function_calls import OfferedTools
from whet.errors import UsageError
from whet.types import Message
from whet_client.prompt.length import estimated_tokens
from whet_client.storable import show_value

_KNOWN = frozenset(
    (
        *("messages", "model", "system", "stream", "max_tokens", "stop_sequences", "tools", "tool_choice"),
        *("output_config", "output_format", "context_management", "thread"),
        *(
            "billing_policy",
            "cache_control",
            "diagnostics",
            "inference_geo",
            "metadata",
            "service_tier",
            "speed",
        ),
        *("user_profile_id", "workspace_id"),
    )
)
"""Fields that are read, and in the last two lines those that change no answer."""
_SAMPLING = ("temperature", "top_p", "top_k", "thinking")
_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
_REASONS = {"length": "max_tokens"}
_BEGIN = "Begin your message with exactly the following text, and go on from it."


class MessagesForm:
    """Requests to `/v1/messages` of one rollout, which may go on from each other as a thread."""

    def __init__(self) -> None:
        self._threads: dict[str, tuple[Any, ...]] = {}

    def read(self, body: Any) -> AgentRequest:
        """See `AgentForm`."""
        sampling = check_body(body, _KNOWN, _SAMPLING)
        _check_context(body.get("context_management"))
        config = body.get("output_config") or {}
        if not isinstance(config, dict) or config.keys() - {"effort", "format"}:
            raise UsageError(f"`output_config` is {show_value(config)}, and may hold effort and format.")
        if config.get("effort") is not None:
            sampling = (*sampling, "output_config.effort")
        form = config.get("format") or body.get("output_format")
        listed = body.get("messages")
        if not isinstance(listed, list) or not listed:
            raise UsageError("`messages` must be a list with at least one message.")
        listed = [*self._find_earlier(body.get("thread")), *listed]
        parts = read_parts(body, _read_messages(body.get("system"), listed), _read_tools(body))
        messages, begun = _take_begun(_join_neighbours(parts["messages"]))
        kept = _drop_begun(listed) if begun else listed
        stop, limit = read_stop(body.get("stop_sequences"), "stop_sequences"), read_limit(body, "max_tokens")
        return AgentRequest(
            **{**parts, "messages": messages}, begun=begun,
            schema=read_schema(form, "output_config.format", lambda own: own.get("schema")),
            stop=tuple(text for text in stop if text not in begun), ends=tuple(text for text in stop if text in begun),
            limit=limit and limit + estimated_tokens(begun), sampling=sampling, thoughts=any(map(_has_thoughts, listed)),
            history=tuple(kept),
        )  # fmt: skip

    def _find_earlier(self, thread: Any) -> tuple[Any, ...]:
        """The messages that a thread holds before those of a request. Raises UsageError for a thread that is not kept."""
        kind = thread.get("type") if isinstance(thread, Mapping) else None
        if thread is None or kind == "create":
            return ()
        if kind != "continue" or thread.get("previous_message_id") not in self._threads:
            raise UsageError(
                f"`thread` is {show_value(thread)}, which goes on from no message that a thread of this rollout holds. Send the "
                "whole conversation as `messages`."
            )
        return self._threads[str(thread["previous_message_id"])]

    def write(self, call: AgentRequest, answer: AgentAnswer) -> dict[str, Any]:
        """See `AgentForm`."""
        written, end = _go_on(call, answer.text)
        text, calls = call.tools.read(written)
        uses = [
            {"type": "tool_use", "id": make_id("toolu"), "name": one["name"], "input": one["arguments"]}
            for one in calls
        ]
        blocks = [*_write_text(text), *uses]
        name = make_id("msg")
        if call.body.get("thread"):
            whole = {"role": "assistant", "content": [*_write_text(call.begun + text), *uses]}
            self._threads[name] = (*call.history, whole)
        return {
            "id": name, "type": "message", "role": "assistant", "model": MODEL, "content": blocks,
            "stop_reason": "tool_use" if calls else "stop_sequence" if end else _REASONS.get(answer.finish, "end_turn"),
            "stop_sequence": end if not calls else None,
            "usage": _write_usage(answer),
        }  # fmt: skip

    def stream(self, written: dict[str, Any]) -> Iterator[tuple[str, object]]:
        """See `AgentForm`."""
        usage = {**written["usage"], "output_tokens": 0}
        begun = {**written, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(written["content"]):
            if block["type"] == "text":
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                pieces = json.dumps(block["input"], ensure_ascii=False)
                empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": pieces}
            events += [
                {"type": "content_block_start", "index": index, "content_block": empty},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        end = {key: written[key] for key in ("stop_reason", "stop_sequence")}
        events += [
            {"type": "message_delta", "delta": end, "usage": written["usage"]},
            {"type": "message_stop"},
        ]
        for event in events:
            yield str(event["type"]), event

    def fail(self, status: int, message: str) -> dict[str, Any]:
        """See `AgentForm`."""
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}

    def count(self, body: Any) -> dict[str, int]:
        """The tokens of a request, estimated by the length of its texts. Raises UsageError as `read` does."""
        return {
            "input_tokens": sum(estimated_tokens(message.content) for message in self.read(body).messages)
        }


def _check_context(management: object) -> None:
    """Raise UsageError for edits of the conversation that would remove more than thoughts, of which whet gives none."""
    edits = management.get("edits") if isinstance(management, Mapping) else None
    for edit in edits if isinstance(edits, list) else ():
        kind = str(edit.get("type")) if isinstance(edit, Mapping) else show_value(edit)
        if not kind.startswith("clear_thinking"):
            raise UsageError(
                f"`context_management` asks for {kind}, and whet edits no conversation. Leave it out."
            )


def _read_tools(body: Mapping[str, Any]) -> OfferedTools:
    """The tools of a request."""
    listed, choice = body.get("tools") or [], body.get("tool_choice") or {"type": "auto"}
    if not isinstance(listed, list) or not isinstance(choice, Mapping):
        raise UsageError("`tools` must be a list, and `tool_choice` an object with a type.")
    kind = choice.get("type")
    named = choice.get("name") if kind == "tool" else _CHOICES.get(str(kind))
    if not isinstance(named, str):
        raise UsageError(
            f"`tool_choice` is {show_value(choice)}, and must have the type auto, any, tool or none."
        )
    several = choice.get("disable_parallel_tool_use") is not True
    own = {"tools": list(map(_as_function, listed)), "tool_choice": named, "parallel_tool_calls": several}
    return OfferedTools.of(own)


def _as_function(tool: Any) -> object:
    """A tool in OpenAI's form; one that is no tool of the command itself is refused by whoever reads that."""
    if not isinstance(tool, Mapping) or tool.get("type") not in (None, "custom"):
        return tool
    about, examples = str(tool.get("description") or ""), tool.get("input_examples") or ()
    lines = [about, *(f"Example: {json.dumps(one, ensure_ascii=False)}" for one in examples)]
    function = {
        "name": tool.get("name"),
        "parameters": tool.get("input_schema"),
        "description": "\n".join(lines),
    }
    return {"type": "function", "function": function}


def _read_messages(system: object, listed: Sequence[Any]) -> list[Any]:
    """The messages of a request in OpenAI's form."""
    read: list[Any] = [{"role": "system", "content": system}] if system else []
    for message in listed:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list):
            read += _split(message, content)
        else:
            read.append(message)
    return read


def _split(message: Mapping[str, Any], blocks: Sequence[Any]) -> list[dict[str, Any]]:
    """A message with blocks as messages in OpenAI's form: what tools returned, then its texts and images, with its calls."""
    results, calls, rest = list[dict[str, Any]](), list[dict[str, Any]](), list[Any]()
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_result":
            content = block.get("content")
            parts = list(map(_as_part, content)) if isinstance(content, list) else content
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": parts}
            results.append({**result, "failed": bool(block.get("is_error"))})
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif not _is_thought(message, block):
            rest.append(_as_part(block))
    if not rest and not calls:
        return results
    own = {**message, "content": rest or None}
    return [*results, {**own, "tool_calls": calls} if calls else own]


def _is_thought(message: Mapping[str, Any], block: Any) -> bool:
    """Whether a block is what a model thought before it answered: of another model, or of one that whet did not ask."""
    kind = block.get("type") if isinstance(block, Mapping) else None
    return message.get("role") == "assistant" and kind in ("thinking", "redacted_thinking")


def _has_thoughts(message: Any) -> bool:
    blocks = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(blocks, list) and any(_is_thought(message, block) for block in blocks)


def _as_part(block: Any) -> Any:
    """A block as a part that every reader of messages knows: a document of text is text."""
    if not isinstance(block, Mapping) or block.get("type") != "document":
        return block
    if isinstance(citations := block.get("citations"), Mapping) and citations.get("enabled"):
        raise UsageError("a document asks for `citations`, which whet does not pass on. Leave them out.")
    source = block.get("source")
    heads = [str(block[key]) for key in ("title", "context") if block.get(key)]
    if isinstance(source, Mapping) and source.get("type") == "text":
        return {"type": "text", "text": "\n".join([*heads, str(source.get("data") or "")])}
    if heads:
        raise UsageError(
            "a document that is no text has a title or context, which whet does not pass on. Write it as a text."
        )
    return block


def _join_neighbours(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages of which no two of one role follow each other, as Anthropic joins them."""
    joined = list[Message]()
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined)


def _take_begun(messages: Sequence[Message]) -> tuple[tuple[Message, ...], str]:
    """The messages without an answer that was begun, and that beginning, which a message of the user then asks for: so any model
    goes on from it. Raises UsageError for one without text."""
    if messages[-1].role != "assistant":
        return tuple(messages), ""
    begun = messages[-1].content
    if not begun.strip():
        raise UsageError("The last message is one of the assistant without text. Leave it out.")
    return _join_neighbours([*messages[:-1], Message("user", f"{_BEGIN}\n{begun}")]), begun


def _drop_begun(listed: Sequence[Any]) -> list[Any]:
    """The messages of a request before the answer that was begun. Raises UsageError if that calls a tool without a result."""
    kept = list(listed)
    while kept and kept[-1]["role"] == "assistant":
        blocks = kept.pop()["content"]
        if isinstance(blocks, list) and any(isinstance(one, Mapping) and "input" in one for one in blocks):
            raise UsageError(
                "The last message calls a tool, and no `tool_result` follows. End with a message of the user that holds it."
            )
    return kept


def _write_text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _go_on(call: AgentRequest, text: str) -> tuple[str, str | None]:
    """The text after the beginning of an answer, and the text that ended it, if whet itself looks for it."""
    if call.begun and text.lstrip().startswith(call.begun.strip()):
        text = text.lstrip()[len(call.begun.strip()) :]
    places = [(text.index(end), end) for end in call.ends if end in text]
    if not places:
        return text, None
    place, end = min(places)
    return text[:place], end


def _write_usage(answer: AgentAnswer) -> dict[str, int]:
    usage = answer.usage
    cached = usage.cached_input_tokens + usage.cache_write_tokens
    return {
        "input_tokens": max(0, usage.input_tokens - cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }
