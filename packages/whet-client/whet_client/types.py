"""Frozen values that a prompt is made of and filled with. `whet.types` has those of runs besides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet_client.errors import named_fields

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(value: object) -> str:
    """SHA-256 (64 hex digits) of a JSON value in canonical form (sorted keys, no spaces)."""
    text = _CANONICAL.encode(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@named_fields
@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is system, user or assistant; `name` says who speaks, where several do. It can be read like a
    mapping, as `message["content"]`, too."""

    role: str
    content: str
    name: str | None = None

    def keys(self) -> tuple[str, ...]:
        """The names of the fields, so that `dict(message)` and `**message` work."""
        return ("role", "content") if self.name is None else ("role", "content", "name")

    def as_list(self) -> list[Any]:
        """Role and content, and the name where there is one: `Message(*values)` is the message again."""
        return [self.role, self.content] if self.name is None else [self.role, self.content, self.name]

    def as_object(self, content: object = None) -> dict[str, Any]:
        """The message as APIs take it; with another `content` in the place of its own."""
        shown = {"role": self.role, "content": self.content if content is None else content}
        return shown if self.name is None else {**shown, "name": self.name}

    def __getitem__(self, name: str) -> str:
        if name not in self.keys():
            raise KeyError(name)
        value: str = getattr(self, name)
        return value


@named_fields
@dataclass(frozen=True, slots=True)
class Example:
    """One row of a task: an input, an optional target, and the whole row as it was read."""

    id: str
    values: Mapping[str, str]
    target: Any = None
    row: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    group: str | None = None
    """A value that it shares with the rows that are not independent of it, such as a conversation; None: it is independent."""
    where: str = field(default="", compare=False)
    """file:line from which it was read."""
    case: str = ""
    """The case that the row belongs to, in a task made of several."""
    messages: tuple[Message, ...] = ()
    """The conversation that is the input and that a model answers; `text` then shows it as one text."""
    shown: Sequence[str] | None = None
    """The names of the values that the slots of the prompt show; None: the model may see all values."""

    @property
    def place(self) -> str:
        """The name of the row in messages: its id, and its place in the file."""
        return f"row {self.id} at {self.where}" if self.where else f"row {self.id}"

    @property
    def user_text(self) -> str:
        """The input as one text: itself, or `key: value` lines for an object with several keys."""
        if self.text is not None:
            return self.text
        if len(self.values) == 1:
            return next(iter(self.values.values()))
        return "\n".join(f"{key}: {value}" for key, value in self.values.items())
