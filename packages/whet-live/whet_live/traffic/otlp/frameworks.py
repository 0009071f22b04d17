"""Spans in the forms of frameworks, in the words of the conventions: LangSmith's exporter, LlamaIndex's own, people in metadata.

What a span says in those words already stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from whet_live.traffic.otlp.content import as_text, parse_json_text
from whet_live.traffic.otlp.decode import OtlpSpan

LANGSMITH_KIND = "langsmith.span.kind"
_METADATA = ("langsmith.metadata.", "traceloop.association.properties.")
"""The keys of LangChain in the metadata of a run, as LangSmith and OpenLLMetry write it; OpenInference has one JSON object."""
_LIFTED = (
    "whet.prompt.name", "whet.prompt.version", "whet.episode", "whet.experiment", "whet.variant", "whet.user", "whet.session",
)  # fmt: skip
"""Not the id of an answer: all calls of a chain share its metadata."""
_PEOPLE = {
    "user.id": (("user_id",), ("user.id", "enduser.id", "langfuse.user.id")),
    "session.id": (
        ("session_id", "thread_id", "conversation_id"),
        ("session.id", "gen_ai.conversation.id", "langfuse.session.id"),
    ),
}
"""By the name that is read: keys of the metadata, and the attributes that go first."""
_ROLES = {"human": "user", "ai": "assistant"}
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_LLAMA_ENDS = ("LLMChatEndEvent", "LLMCompletionEndEvent", "LLMPredictEndEvent")
_LLAMA_STARTS = ("LLMChatStartEvent", "LLMCompletionStartEvent")


def translate(span: OtlpSpan) -> OtlpSpan:
    """The span with the attributes of the conventions beside its own."""
    attributes = dict(span.attributes)
    metadata = _metadata_of(span.attributes)
    if metadata:
        _add_people(attributes, metadata)
    if LANGSMITH_KIND in attributes:
        _add_langchain(attributes)
    elif any(event.name in _LLAMA_ENDS for event in span.events):
        _add_llama(attributes, span)
    return replace(span, attributes=attributes) if attributes.keys() != span.attributes.keys() else span


def _metadata_of(attributes: Mapping[str, object]) -> dict[str, object]:
    """The metadata of a run by key."""
    whole = parse_json_text(attributes.get("metadata"))
    metadata = {str(key): value for key, value in whole.items()} if isinstance(whole, Mapping) else {}
    for name, value in attributes.items():
        if name.startswith(_METADATA):
            prefix = next(prefix for prefix in _METADATA if name.startswith(prefix))
            metadata[name.removeprefix(prefix)] = value
    return metadata


def _add_people(attributes: dict[str, object], metadata: Mapping[str, object]) -> None:
    for name in _LIFTED:
        if isinstance(metadata.get(name), str | int):
            attributes.setdefault(name, metadata[name])
    for name, (keys, others) in _PEOPLE.items():
        value = next((metadata[key] for key in keys if isinstance(metadata.get(key), str)), None)
        if value and not any(other in attributes for other in others):
            attributes[name] = value


def _add_langchain(attributes: dict[str, object]) -> None:
    """Messages out of what LangChain serialises."""
    for source, name in (("gen_ai.prompt", _INPUT), ("gen_ai.completion", _OUTPUT)):
        messages = list(_langchain_messages(parse_json_text(attributes.get(source))))
        if messages:
            attributes.setdefault(name, messages)


def _langchain_messages(value: object) -> Iterator[dict[str, object]]:
    """Messages of a chat model, prompts of a model of texts, or generations."""
    if not isinstance(value, Mapping):
        return
    for one in _flat(value.get("messages")):
        if isinstance(one, Mapping) and "kwargs" in one:
            yield _message(one)
    for prompt in _flat(value.get("prompts")):
        if isinstance(prompt, str):
            yield {"role": "user", "content": prompt}
    for one in _flat(value.get("generations")):
        if isinstance(one, Mapping):
            inner = one.get("message")
            text: dict[str, object] = {"role": "assistant", "content": as_text(one.get("text", ""))}
            yield _message(inner) if isinstance(inner, Mapping) and "kwargs" in inner else text
    for one in _flat(value.get("choices")):
        if isinstance(one, Mapping) and isinstance(one.get("message"), Mapping):
            yield dict(one["message"])


def _flat(value: object) -> Iterator[object]:
    """The items of a list, and of the lists in it."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, list):
            yield from item
        else:
            yield item


def _message(one: Mapping[str, object]) -> dict[str, object]:
    """A message of LangChain: its role, its content, and its calls of tools."""
    held = one.get("kwargs")
    if not isinstance(held, Mapping):
        return {"content": as_text(one)}
    content, calls = held.get("content"), held.get("tool_calls")
    parts = content if isinstance(content, list) else [] if content in (None, "") else [content]
    if isinstance(calls, list):
        parts = [*parts, *({"type": "tool_call", **call} for call in calls if isinstance(call, Mapping))]
    texts = [{"type": "text", "content": part} if isinstance(part, str) else part for part in parts]
    kind = as_text(held.get("type") or "user")
    return {"role": _ROLES.get(kind, kind), "parts": texts}


def _add_llama(attributes: dict[str, object], span: OtlpSpan) -> None:
    """Messages and model out of the events of LlamaIndex's own exporter."""
    attributes.setdefault("gen_ai.operation.name", "chat")
    for event in span.events:
        values = event.attributes
        if event.name in _LLAMA_STARTS:
            question = parse_json_text(values.get("messages")) or values.get("prompt")
            model = values.get("model_dict.model") or values.get("model_dict.model_name")
            for name, value in ((_INPUT, question), ("gen_ai.request.model", model)):
                if value:
                    attributes.setdefault(name, value)
        elif event.name in _LLAMA_ENDS:
            blocks = parse_json_text(values.get("response.message.blocks"))
            text = values.get("response.text") or values.get("output")
            output = [{"role": "assistant", "blocks": blocks}] if isinstance(blocks, list) else text
            if output:
                attributes[_OUTPUT] = output
