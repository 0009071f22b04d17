"""A command's request to a model and the answer, independent of the command's interface.

Each form reads the body of a request as an `AgentRequest`, and writes an `AgentAnswer` at once or as the events of a stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from whet.environments.function_calls import OfferedTools, write_messages_as_text
from whet.errors import UsageError
from whet.types import JSON, Message, Usage
from whet_client.prompt.chat import read_messages
from whet_client.storable import show_value

MODEL = "whet"
"""The name of the model that a command asks, whatever it calls it."""
_NO_USAGE = Usage()
_ABSENT: tuple[object, ...] = (None, False, 0, "", [], {})


@dataclass(frozen=True)
class AgentRequest:
    """A request of a command to its model."""

    messages: tuple[Message, ...]
    stream: bool
    """Whether it wants a stream."""
    tools: OfferedTools
    """The tools that it offers."""
    schema: Mapping[str, JSON] | None = None
    """The schema of the JSON that it wants; None: it wants text."""
    stop: tuple[str, ...] = ()
    limit: int | None = None
    """Tokens of the answer at most; None: as the task says."""
    sampling: tuple[str, ...] = ()
    """Options of the request that the task decides."""
    thoughts: bool = False
    """Whether it held thoughts of earlier answers, which no model is shown."""
    schema_options: Mapping[str, JSON] | None = None
    """The statements about a schema: its name, its description, its strictness."""
    begun: str = ""
    """The beginning of the answer, which the model continues."""
    ends: tuple[str, ...] = ()
    """Texts at which the answer ends."""
    history: tuple[Mapping[str, Any], ...] = ()
    """The messages as a later request may continue them."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The request itself."""


@dataclass(frozen=True)
class AgentAnswer:
    """The answer of the task model, why it ended (`stop`, `length`), and its tokens."""

    text: str
    finish: str = "stop"
    usage: Usage = _NO_USAGE


class AgentForm(Protocol):
    """The requests and answers of one interface."""

    def read(self, body: Any) -> AgentRequest:
        """The request of a body. Raises UsageError for what whet cannot pass on."""

    def write(self, call: AgentRequest, answer: AgentAnswer) -> dict[str, Any]:
        """The body of an answer."""

    def stream(self, written: dict[str, Any]) -> Iterator[tuple[str, object]]:
        """The events of an answer with such a body: the name of each ('' for none), and its data."""

    def fail(self, status: int, message: str) -> dict[str, Any]:
        """The body of a failure."""


def check_body(body: Any, known: Collection[str], sampling: Collection[str]) -> tuple[str, ...]:
    """The options of a body that the task decides. Raises UsageError for a body that is no object, and for a field that says
    something and is none of the `known` ones."""
    if not isinstance(body, dict):
        raise UsageError("The body must be a JSON object.")
    for key, value in body.items():
        if key not in known and key not in sampling and value not in _ABSENT:
            raise UsageError(
                f"`{key}` is {show_value(value)}, which whet does not pass on, and without which the answer may be another one. "
                "Leave it out."
            )
    return tuple(key for key in body if key in sampling and body[key] is not None)


def read_parts(body: Any, messages: object, tools: OfferedTools) -> dict[str, Any]:
    """The parts of a request that all forms share, from its messages in OpenAI's form. Raises UsageError for unreadable ones."""
    return {
        "messages": tuple(read_messages(write_messages_as_text(messages, tools), "messages")),
        "stream": bool(body.get("stream")),
        "tools": tools,
        "body": body,
    }


def read_stop(value: object, name: str) -> tuple[str, ...]:
    """The texts that end an answer. Raises UsageError for anything else."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"`{name}` is {show_value(value)}, and must be texts.")
    return tuple(texts)


def read_limit(body: Mapping[str, Any], *names: str) -> int | None:
    """The tokens of an answer at most, by the first of these fields that says it. Raises UsageError for no positive number."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise UsageError(f"`{name}` is {show_value(value)}, and must be a whole number from 1.")
        return value
    return None


def read_schema_options(described: object) -> dict[str, JSON] | None:
    """The fields beside a schema in OpenAI's forms: name, description, and `strict` (False by default); None if there is no
    schema."""
    if not isinstance(described, dict) or not isinstance(described.get("schema"), dict):
        return None
    texts = {key: described[key] for key in ("name", "description") if isinstance(described.get(key), str)}
    return {**texts, "strict": described.get("strict") is True}


def read_schema(
    form: Any, name: str, find: Callable[[Mapping[str, Any]], object]
) -> Mapping[str, JSON] | None:
    """The schema of the JSON that a request wants, which `find` takes from a form of the type json_schema. Raises UsageError for
    an unknown form."""
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": "object"}
    schema = find(form) if kind == "json_schema" and isinstance(form, dict) else None
    if not isinstance(schema, dict):
        raise UsageError(f"`{name}` must be text, json_object, or json_schema with a schema.")
    return schema


def make_id(kind: str) -> str:
    """A name that no other answer has."""
    return f"{kind}_{secrets.token_hex(12)}"
