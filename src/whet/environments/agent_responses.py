"""OpenAI's Responses for a command that is a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
    read_schema_options,
)
from whet.environments.function_calls import OfferedTools, call_text
from whet.errors import UsageError
from whet_client.storable import show_value

_KNOWN = frozenset(
    (
        *("input", "instructions", "model", "stream", "text", "tools", "tool_choice", "parallel_tool_calls"),
        *("max_output_tokens", "previous_response_id", "store", "include"),
        *("max_tool_calls", "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "stream_options", "truncation", "user", "client_metadata"),
    )
)
"""Fields that are read, and in the last two lines those that change no answer of whet."""
_SAMPLING = ("reasoning", "temperature", "top_p")
_INPUT = 'Write a text, or a list of items such as {"role": "user", "content": "..."}.'


class ResponsesForm:
    """Requests to `/v1/responses` of one rollout, which may go on from each other."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[Mapping[str, Any], ...]] = {}
        self._items: dict[str, Mapping[str, Any]] = {}

    def read(self, body: Any) -> AgentRequest:
        """See `AgentForm`."""
        sampling = check_body(body, _KNOWN, _SAMPLING)
        if "message.output_text.logprobs" in (body.get("include") or ()):
            raise UsageError("`include` asks for logprobs, and whet records texts. Leave it out.")
        text = body.get("text") or {}
        if not isinstance(text, dict) or text.keys() - {"format", "verbosity"}:
            raise UsageError(f"`text` is {show_value(text)}, and may hold format and verbosity.")
        if text.get("verbosity") is not None:
            sampling = (*sampling, "text.verbosity")
        form, items = text.get("format"), body.get("input")
        history = [*self._find_earlier(body.get("previous_response_id")), *self._read_input(items)]
        instructions = body.get("instructions")
        if instructions is not None and not isinstance(instructions, str):
            raise UsageError(f"`instructions` is {show_value(instructions)}, and must be a text.")
        first = [{"role": "system", "content": instructions}] if instructions else []
        return AgentRequest(
            **read_parts(body, [*first, *history], _read_tools(body)), history=tuple(history), sampling=sampling,
            thoughts=isinstance(items, list) and any(map(_is_thought, items)),
            schema=read_schema(form, "text.format", lambda own: own.get("schema")),
            schema_options=read_schema_options(form),
            limit=read_limit(body, "max_output_tokens"),
        )  # fmt: skip

    def _find_earlier(self, name: object) -> tuple[Mapping[str, Any], ...]:
        """The messages of an earlier answer and of what led to it. Raises UsageError for one that is not kept."""
        if name is None:
            return ()
        if name not in self._histories:
            raise UsageError(
                f"`previous_response_id` is {show_value(name)}, which is no answer of this rollout that whet keeps: it keeps "
                "those without `store: false`. Send the earlier items as `input`."
            )
        return self._histories[str(name)]

    def _read_input(self, items: object) -> list[Mapping[str, Any]]:
        """Items as messages in OpenAI's older form. Raises UsageError for an item that whet does not pass on."""
        if isinstance(items, str):
            return [{"role": "user", "content": items}]
        if not isinstance(items, list):
            raise UsageError(f"`input` is {show_value(items)}. {_INPUT}")
        messages = list[dict[str, Any]]()
        for item in items:
            if _is_thought(item):
                continue
            message = self._read_item(item)
            last = messages[-1] if messages else {}
            if "tool_calls" in message and last.get("role") == "assistant":
                last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
            else:
                messages.append(message)
        return list(messages)

    def _read_item(self, item: Any) -> dict[str, Any]:
        if not isinstance(item, Mapping):
            raise UsageError(f"an item of `input` is {show_value(item)}. {_INPUT}")
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        if kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            return {"role": role, "content": _read_content(item.get("content"))}
        if kind in ("function_call", "custom_tool_call"):
            arguments = item.get("arguments") if kind == "function_call" else {"input": item.get("input")}
            function = {"name": item.get("name"), "arguments": arguments}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        if kind in ("function_call_output", "custom_tool_call_output"):
            content = _read_content(item.get("output"))
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        if kind == "item_reference" and item.get("id") in self._items:
            return self._read_item(self._items[str(item["id"])])
        raise UsageError(
            f"an item of `input` has the type {show_value(kind)}, and whet does not pass on such an item here. Known: message, "
            "function_call, function_call_output, custom_tool_call, custom_tool_call_output, and item_reference to an item that "
            "whet has given in this rollout."
        )

    def write(self, call: AgentRequest, answer: AgentAnswer) -> dict[str, Any]:
        """See `AgentForm`."""
        text, calls = call.tools.read(answer.text)
        cut = answer.finish == "length" and not calls
        status = "incomplete" if cut else "completed"
        items = [_write_message(text, status)] if text or not calls else []
        items += [_write_call(one, call.tools) for one in calls]
        name, body = make_id("resp"), call.body
        if body.get("store") is not False:
            self._histories[name] = (*call.history, *self._read_input(items))
            self._items.update({item["id"]: item for item in items})
        return {
            "id": name, "object": "response", "created_at": 0, "status": status, "model": MODEL, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "output": items,
            "instructions": body.get("instructions"), "metadata": body.get("metadata") or {},
            "previous_response_id": body.get("previous_response_id"), "store": body.get("store") is not False,
            "parallel_tool_calls": call.tools.several, "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [], "text": body.get("text") or {"format": {"type": "text"}},
            "max_output_tokens": body.get("max_output_tokens"), "temperature": None, "top_p": None,
            "truncation": "disabled", "usage": _write_usage(answer),
        }  # fmt: skip

    def stream(self, written: dict[str, Any]) -> Iterator[tuple[str, object]]:
        """See `AgentForm`."""
        begun = {**written, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events: list[dict[str, Any]] = [
            {"type": f"response.{word}", "response": begun} for word in ("created", "in_progress")
        ]
        for index, item in enumerate(written["output"]):
            events += _make_events_of(item, index)
        events.append({"type": f"response.{written['status']}", "response": written})
        for number, event in enumerate(events):
            yield event["type"], {**event, "sequence_number": number}

    def fail(self, status: int, message: str) -> dict[str, Any]:
        """See `AgentForm`."""
        return {"error": {"message": message, "type": "whet", "code": None, "param": None}}


def _read_tools(body: Mapping[str, Any]) -> OfferedTools:
    """The tools of a request, whose functions stand in the tools themselves."""
    listed = body.get("tools") or []
    if not isinstance(listed, list):
        raise UsageError("`tools` must be a list.")
    tools = [
        {"type": tool["type"], tool["type"]: {key: value for key, value in tool.items() if key != "type"}}
        if isinstance(tool, Mapping) and tool.get("type") in ("function", "custom")
        else tool
        for tool in listed
    ]
    return OfferedTools.of({**body, "tools": tools})


def _is_thought(item: Any) -> bool:
    """Whether an item is what a model thought before it answered: of another model, or of one that whet did not ask."""
    return isinstance(item, Mapping) and item.get("type") == "reasoning"


def _read_content(content: Any) -> Any:
    """The content of a message or of what a tool returned, as parts that every reader of messages knows."""
    if not isinstance(content, list):
        return content
    return [_read_part(part) for part in content]


def _read_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if kind == "input_image" and part.get("detail") == "auto":
        return {key: value for key, value in part.items() if key != "detail"}
    if kind == "input_file":
        if not part.get("file_data"):
            raise UsageError(
                "an `input_file` has no `file_data`, and whet has no other files. Send its content."
            )
        return {
            "type": "file",
            "file": {"filename": part.get("filename") or "file", "file_data": part["file_data"]},
        }
    return part


def _write_message(text: str, status: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": make_id("msg"), "type": "message", "role": "assistant", "status": status, "content": [part]}


def _write_call(call: Mapping[str, Any], tools: OfferedTools) -> dict[str, Any]:
    own = {"call_id": make_id("call"), "name": call["name"]}
    if tools.takes_text(call["name"]):
        return {"id": make_id("ctc"), "type": "custom_tool_call", **own, "input": call_text(call)}
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return {
        "id": make_id("fc"),
        "type": "function_call",
        **own,
        "arguments": arguments,
        "status": "completed",
    }


def _make_events_of(item: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
    """The events in which an item of the output comes."""
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "message":
        (part,) = item["content"]
        inner, empty = {**place, "content_index": 0}, {**item, "content": [], "status": "in_progress"}
        own: list[dict[str, Any]] = [
            {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **inner, "delta": part["text"], "logprobs": []},
            {"type": "response.output_text.done", **inner, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **inner, "part": part},
        ]
    else:
        key, word = (
            ("arguments", "function_call_arguments")
            if "arguments" in item
            else ("input", "custom_tool_call_input")
        )
        empty = {**item, key: "", "status": "in_progress"}
        own = [
            {"type": f"response.{word}.delta", **place, "delta": item[key]},
            {"type": f"response.{word}.done", **place, key: item[key], "name": item["name"]},
        ]
    added = {"type": "response.output_item.added", "output_index": index, "item": empty}
    return [added, *own, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _write_usage(answer: AgentAnswer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
