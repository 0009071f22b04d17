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
    """One chat message. `role` is system, user or assistant; `name` names the speaker if several speakers have the
    same role. A message can also be read like a mapping: `message["content"]`."""

    role: str
    content: str
    name: str | None = None

    def keys(self) -> tuple[str, ...]:
        """The names of the fields, so that `dict(message)` and `**message` work."""
        return ("role", "content") if self.name is None else ("role", "content", "name")

    def as_list(self) -> list[Any]:
        """Role, content, and the name if there is one; `Message(*message.as_list())` equals the message."""
        return [self.role, self.content] if self.name is None else [self.role, self.content, self.name]

    def as_object(self, content: object = None) -> dict[str, Any]:
        """The message in the form of chat APIs, with `content` instead of its own content if given."""
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
    """A value that the example shares with all rows that depend on it, such as a conversation; None if it is independent."""
    where: str = field(default="", compare=False)
    """The file and line (file:line) of the example."""
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
