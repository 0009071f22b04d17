"""Messages, texts and numbers in the attributes of a span, in every convention that is in use.

OpenTelemetry GenAI (present and earlier forms), OpenInference, Traceloop's flattened keys, Vercel's `ai.*`, Langfuse's
`langfuse.*`, and whet's own `whet.*`, which go first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import orjson

from whet.errors import UsageError
from whet_live.traffic.adapters import as_number
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
    "output": ("ai.response.text", "output.value", "langfuse.observation.output", "traceloop.entity.output"),
}
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
    """JSON for what is no text. Raises UsageError for what cannot be written as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=str).decode("utf-8")
    except orjson.JSONEncodeError as error:
        raise UsageError(f"An attribute cannot be written as JSON: {error}.") from None


def parse_json_text(value: object) -> object:
    """A text that is a JSON array or object as such; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def messages(
    side: str, attributes: Mapping[str, object], events: Iterable[OtelEvent]
) -> list[dict[str, str]]:
    """The messages of one side, `input` or `output`, as role and content; empty when there are none."""
    events = list(events)
    details = [event.attributes for event in events if event.name == DETAILS]
    for source in (attributes, *details):
        for name in _STRUCTURED[side]:
            if source.get(name):
                conversation = _read_message_list(
                    parse_json_text(source[name]), "user" if side == "input" else "assistant"
                )
                return _system(source) + conversation if side == "input" else conversation
    for prefix in _FLAT[side]:
        conversation = _read_flat_messages(attributes, prefix, "user" if side == "input" else "assistant")
        if conversation:
            return _system(attributes) + conversation if side == "input" else conversation
    return _from_events(side, events)


def plain_text(side: str, attributes: Mapping[str, object]) -> str | None:
    """The text of one side where it stands as one attribute."""
    return text_of(attributes, *_TEXTS[side])


def _system(attributes: Mapping[str, object]) -> list[dict[str, str]]:
    instructions = parse_json_text(attributes.get("gen_ai.system_instructions"))
    if not instructions:
        return []
    return [{"role": "system", "content": _content(instructions)}]


def _read_message_list(value: object, role: str) -> list[dict[str, str]]:
    """Messages from a list of them, from an object that holds one, or from one text."""
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        return [{"role": role, "content": as_text(value)}]
    return [_message(one, role) for one in value]


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
        content = {name: value for name, value in one.items() if name not in ("role", "finish_reason")}
    own_role = one.get("role")
    return {
        "role": own_role if isinstance(own_role, str) and own_role else role,
        "content": _content(content),
    }


def _content(value: object) -> str:
    """The text of message parts; parts that are no text (tool calls, images) as JSON."""
    if not isinstance(value, list):
        return as_text(value)
    parts = []
    for part in value:
        if isinstance(part, Mapping) and part.get("type", part.get("block_type", "text")) in (
            "text",
            "reasoning",
            "output_text",
            "input_text",
        ):
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
    parts = sorted(
        (int(match[1]), value)
        for key, value in row.items()
        if (match := re.fullmatch(r"contents\.(\d{1,4})\.message_content\.text", key))
    )
    content = row.get("content", row.get("prompt.text"))
    if content is None:
        fields = {key: value for key, value in row.items() if key not in ("role", "finish_reason")}
        content = (
            "\n".join(as_text(value) for _, value in parts) if parts else as_text(fields) if fields else ""
        )
    listed = parse_json_text(
        content
    )  # a text that holds a JSON list of parts is that list, any other text stays one
    if isinstance(listed, list) and all(isinstance(part, Mapping) for part in listed):
        content = listed
    return {"role": as_text(row.get("role") or role), "content": _content(content)}


def _from_events(side: str, events: Iterable[OtelEvent]) -> list[dict[str, str]]:
    conversation: list[dict[str, str]] = []
    for event in events:
        values = event.attributes
        if side == "input" and event.name in _ROLES:
            content = first_attribute(values, "content", "gen_ai.event.content", "gen_ai.prompt")
            if content is None and values.get("tool_calls"):
                content = {"tool_calls": values["tool_calls"]}
            conversation += _read_message_list(
                parse_json_text("" if content is None else content), _ROLES[event.name]
            )
        elif side == "input" and event.name == _INPUT_EVENT:
            conversation += _read_message_list(
                parse_json_text(first_attribute(values, "gen_ai.prompt") or ""), "user"
            )
        elif side == "output" and event.name in (_CHOICE, _OUTPUT_EVENT):
            content = first_attribute(
                values, "gen_ai.completion", "message", "content", "gen_ai.event.content"
            )
            conversation += _read_message_list(
                parse_json_text("" if content is None else content), "assistant"
            )
    return conversation
