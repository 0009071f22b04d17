"""Messages, texts and numbers in the attributes of a span, in every convention that is in use.

OpenTelemetry GenAI (present and earlier forms), OpenInference, Traceloop's flattened keys, Vercel's `ai.*`, Langfuse's
`langfuse.*`, and whet's own `whet.*`, which go first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import orjson

from whet.errors import UsageError
from whet_live.traffic.adapters import as_number
from whet_live.traffic.long_numbers import has_long_number, read_json
from whet_live.traffic.otlp.decode import OtelEvent

_INDEXED = re.compile(r"(\d{1,4})\.(.+)")
_ROLES = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}  # fmt: skip
_STRUCTURED = {
    "input": ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages", "ai.prompt", "llm.prompts"),
    "output": ("gen_ai.output.messages", "gen_ai.completion"),
}
_FLAT = {
    "input": ("gen_ai.prompt.", "llm.input_messages.", "llm.prompts."),
    "output": ("gen_ai.completion.", "llm.output_messages."),
}
_TEXTS = {
    "input": ("input.value", "langfuse.observation.input", "traceloop.entity.input"),
    "output": (
        "ai.response.text", "ai.response.object", "ai.response.toolCalls", "ai.result.text", "ai.result.object",
        "ai.result.toolCalls", "output.value", "langfuse.observation.output", "traceloop.entity.output",
    ),
}  # fmt: skip
_TEXT_PARTS = frozenset(("text", "output_text", "input_text"))
_THOUGHTS = frozenset(("reasoning", "thinking", "redacted_thinking"))
_OTHER_PARTS = frozenset((
    "image", "image_url", "input_image", "audio", "input_audio", "video", "file", "input_file", "document", "blob", "uri",
    "tool_call", "tool_use", "tool-call", "function_call", "tool_call_response", "tool_result", "tool-result", "refusal",
))  # fmt: skip
"""The types of message parts, by the conventions of OpenTelemetry, OpenAI, Anthropic and Vercel."""
_BESIDE = ("tool_calls.", "function_call.", "function_call_")
"""The fields beside its text of a message in flat keys."""
DETAILS = "gen_ai.client.inference.operation.details"
_INPUT_EVENT, _OUTPUT_EVENT = "gen_ai.content.prompt", "gen_ai.content.completion"
_CHOICE = "gen_ai.choice"
CONTENT_EVENTS = frozenset({*_ROLES, DETAILS, _INPUT_EVENT, _OUTPUT_EVENT, _CHOICE})
"""The events that hold messages."""


def first_attribute(attributes: Mapping[str, object], *names: str) -> object:
    """The value of the first name that is there."""
    for name in names:
        value = attributes.get(name)
        if value is not None and value != "":
            return value
    return None


def text_of(attributes: Mapping[str, object], *names: str) -> str | None:
    """The first of these attributes as a text."""
    value = first_attribute(attributes, *names)
    return None if value is None else str(value) if isinstance(value, str | int | float) else as_text(value)


def number_attribute(attributes: Mapping[str, object], *names: str) -> float | None:
    """The first of these attributes as a number; None when it is none."""
    return as_number(first_attribute(attributes, *names))


def as_text(value: object) -> str:
    """A value as text, as JSON unless it is a text. Raises UsageError for a value without a form in JSON."""
    if isinstance(value, str):
        return value
    try:
        if has_long_number(value):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return orjson.dumps(value, default=str).decode("utf-8")
    except orjson.JSONEncodeError as error:
        raise UsageError(f"An attribute cannot be written as JSON: {error}.") from None


def parse_json_text(value: object) -> object:
    """A text that is a JSON array or object as such; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return read_json(value)
        except orjson.JSONDecodeError:
            return value
    return value


def is_message(value: object) -> bool:
    """Whether a value of JSON has the form of a message: it has a role, holds a `message`, or says why it ended."""
    if not isinstance(value, Mapping):
        return False
    return (
        isinstance(value.get("role"), str)
        or isinstance(value.get("message"), Mapping)
        or "finish_reason" in value
    )


_FINISH = (
    "gen_ai.response.finish_reasons", "gen_ai.completion.0.finish_reason", "ai.response.finishReason",
    "llm.finish_reason", "finish_reason",
)  # fmt: skip
"""The attributes in which conventions say why an answer ended; the last one stands in events."""


def is_part(value: object) -> bool:
    """Whether a value of JSON has the form of a part of a message."""
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type", value.get("block_type"))
    if kind in _TEXT_PARTS:
        return value.keys() & {"text", "content"} != set()
    return kind in _THOUGHTS or kind in _OTHER_PARTS


def find_messages(value: object, role: str) -> list[dict[str, str]]:
    """The messages that a value holds: a message, a list of them, an object with such a list, or the parts of one message; also
    as a text of JSON. None where it is anything else, such as an answer that is itself JSON."""
    content = parse_json_text(value)
    if isinstance(content, Mapping) and isinstance(content.get("messages"), list):
        content = content["messages"]
    several = content if isinstance(content, list) else [content]
    if several and all(map(is_message, several)):
        return [_message(one, role) for one in several]
    if isinstance(content, list) and content and all(map(is_part, content)):
        return [{"role": role, "content": _content(content)}]
    return []


def messages(
    side: str, attributes: Mapping[str, object], events: Iterable[OtelEvent]
) -> list[dict[str, str]]:
    """The messages of one side, `input` or `output`, as role and content; empty when there are none."""
    events, role = list(events), "user" if side == "input" else "assistant"
    details = [event.attributes for event in events if event.name == DETAILS]
    for source in (attributes, *details):
        for name in _STRUCTURED[side]:
            if source.get(name):
                listed = name.endswith(".messages")  # such an attribute holds messages by its definition
                value = parse_json_text(source[name]) if listed else source[name]
                conversation = _read_message_list(value, role)
                return _with_system(source, conversation) if side == "input" else conversation
    for prefix in _FLAT[side]:
        conversation = _read_flat_messages(attributes, prefix, role)
        if conversation:
            return _with_system(attributes, conversation) if side == "input" else conversation
    return _from_events(side, events) or find_messages(first_attribute(attributes, *_TEXTS[side]), role)


def are_choices(
    conversation: Iterable[Mapping[str, str]], attributes: Mapping[str, object], events: Iterable[OtelEvent]
) -> bool:
    """Whether each message of an output is an answer of its own: by the convention in `gen_ai.output.messages`, and in events
    `gen_ai.choice` where each has an index of its own. Messages of several roles are one answer."""
    events = list(events)
    if len({message["role"] for message in conversation}) > 1:
        return False
    for source in (attributes, *(event.attributes for event in events if event.name == DETAILS)):
        name = next((name for name in _STRUCTURED["output"] if source.get(name)), None)
        if name is not None:
            return name == "gen_ai.output.messages"
    if any(key.startswith(_FLAT["output"]) for key in attributes):
        return False
    indices = [str(event.attributes.get("index")) for event in events if event.name == _CHOICE]
    return len(indices) > 1 and len(set(indices)) == len(indices)


def find_finish_reason(attributes: Mapping[str, object], events: Iterable[OtelEvent]) -> str | None:
    """Why the answer ended (the first of several), by whichever convention the span says it; words joined by underscores."""
    sources = [attributes, *(event.attributes for event in events if event.name in (DETAILS, _CHOICE))]
    for source in sources:
        reasons = parse_json_text(first_attribute(source, *_FINISH))
        value = parse_json_text(source.get("gen_ai.output.messages"))
        listed = value if isinstance(value, list) else [value]
        stated = (reasons[0] if reasons else None) if isinstance(reasons, list) else reasons
        if not stated and listed and isinstance(listed[0], Mapping):
            stated = listed[0].get("finish_reason")
        if isinstance(stated, str) and stated:
            return stated.replace("-", "_")
    return None


def plain_text(side: str, attributes: Mapping[str, object]) -> str | None:
    """The text of one side where it stands as one attribute."""
    return text_of(attributes, *_TEXTS[side])


def _with_system(
    attributes: Mapping[str, object], conversation: list[dict[str, str]]
) -> list[dict[str, str]]:
    """A conversation behind its system instructions, which stand apart, and may stand in it too."""
    instructions = parse_json_text(attributes.get("gen_ai.system_instructions"))
    if not instructions:
        return conversation
    system = {"role": "system", "content": _content(instructions)}
    return conversation if conversation[:1] == [system] else [system, *conversation]


def _read_message_list(value: object, role: str) -> list[dict[str, str]]:
    """Messages from a list of them, from an object that holds one, or from one text: a text of JSON is opened where it holds
    messages."""
    if isinstance(value, str):
        return find_messages(value, role) or [{"role": role, "content": value}]
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        return [{"role": role, "content": as_text(value)}]
    return [_message(item, role) for item in value]


def _message(one: object, role: str) -> dict[str, str]:
    if not isinstance(one, Mapping):
        return {"role": role, "content": as_text(one)}
    inner = one.get("message")
    if isinstance(inner, Mapping):
        return _message(inner, role)
    content = next(
        (one[name] for name in ("parts", "content", "blocks", "text", "body") if one.get(name) is not None),
        None,
    )
    if content is None:
        content = {
            name: value
            for name, value in one.items()
            if name not in ("role", "finish_reason") and value is not None
        } or ""
    own_role = one.get("role")
    return {
        "role": own_role if isinstance(own_role, str) and own_role else role,
        "content": _content(content),
    }


def _content(value: object) -> str:
    """The text of message parts; parts that are no text (tool calls, images) as JSON. Thoughts are no part of a message."""
    if not isinstance(value, list):
        return as_text(value)
    parts = []
    for part in value:
        kind = part.get("type", part.get("block_type", "text")) if isinstance(part, Mapping) else ""
        if kind in _THOUGHTS:
            continue
        if isinstance(part, Mapping) and kind in _TEXT_PARTS:
            text = next((part[name] for name in ("content", "text") if part.get(name) is not None), "")
            parts.append(as_text(text))
        else:
            parts.append(as_text(part))
    return "\n".join(parts)


def _read_flat_messages(attributes: Mapping[str, object], prefix: str, role: str) -> list[dict[str, str]]:
    """Messages from keys such as `gen_ai.prompt.0.content` or `llm.input_messages.0.message.content`."""
    rows: dict[int, dict[str, object]] = {}
    for key, value in attributes.items():
        match = _INDEXED.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if match is not None:
            rows.setdefault(int(match[1]), {})[match[2].removeprefix("message.")] = value
    return [_row(row, role) for _, row in sorted(rows.items())]


def _row(row: Mapping[str, object], role: str) -> dict[str, str]:
    """A message from its flat keys: its text, or its parts, and tool calls beside them."""
    content = row.get("content", row.get("prompt.text"))
    parsed = parse_json_text(content)
    if isinstance(parsed, list) and parsed and all(map(is_part, parsed)):
        content = _content(parsed)
    pieces = [as_text(content)] if content is not None else _flat_parts(row)
    if pieces:
        beside = {key: value for key, value in row.items() if key.startswith(_BESIDE)}
    else:
        beside = {key: value for key, value in row.items() if key not in ("role", "finish_reason")}
    pieces = [piece for piece in [*pieces, as_text(beside) if beside else ""] if piece]
    return {"role": as_text(row.get("role") or role), "content": "\n".join(pieces)}


def _flat_parts(row: Mapping[str, object]) -> list[str]:
    """The parts of a message under `contents.N.message_content.`, in order: texts as they are, others as JSON."""
    parts: dict[int, dict[str, object]] = {}
    for key, value in row.items():
        if match := re.fullmatch(r"contents\.(\d{1,4})\.message_content\.(.+)", key):
            parts.setdefault(int(match[1]), {})[match[2]] = value
    ordered = [part for _, part in sorted(parts.items()) if part.get("type") not in _THOUGHTS]
    return [as_text(part["text"]) if "text" in part else as_text(part) for part in ordered]


def _from_events(side: str, events: Iterable[OtelEvent]) -> list[dict[str, str]]:
    conversation: list[dict[str, str]] = []
    for event in events:
        values = event.attributes
        if side == "input" and event.name in _ROLES:
            content = first_attribute(values, "content", "gen_ai.event.content", "gen_ai.prompt")
            if content is None and values.get("tool_calls"):
                content = {"tool_calls": values["tool_calls"]}
            conversation += _read_message_list("" if content is None else content, _ROLES[event.name])
        elif side == "input" and event.name == _INPUT_EVENT:
            conversation += _read_message_list(first_attribute(values, "gen_ai.prompt") or "", "user")
        elif side == "output" and event.name in (_CHOICE, _OUTPUT_EVENT):
            content = first_attribute(
                values, "gen_ai.completion", "message", "content", "gen_ai.event.content"
            )
            conversation += _read_message_list("" if content is None else content, "assistant")
    return conversation
