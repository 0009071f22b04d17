"""The form of a simulated optimizer's answer: whatever the request asks for.

A schema is obeyed whatever its shape: a list becomes one entry per point, a single string becomes the prompt
or a list of instructions; `forms` answers those of instruction management. Without a schema, tags that the
request shows are used (`<prompt>...</prompt>`, `<START>` and `<END>`), and without tags a bullet list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from whet.types import Request

_MOST = 20

_COUNT = re.compile(
    r"\b(\d+|two|three|four|five|six|eight|ten)\s+(?:[\w-]+\s+){0,3}"
    r"(?:prompts|reasons|variations|variants|versions|instructions|"
    r"rewrites|candidates|proposals|paraphrases)\b",
    re.IGNORECASE,
)
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10}
_ASKS_WHOLE = re.compile(
    r"\b(?:rewrite|rewritten|revise|revised|improve|improved|update|updated|"
    r"edit|edited|new|better|full|complete|whole|"
    r"entire|final)\b[^.\n]{0,60}\bprompts?\b",
    re.IGNORECASE,
)
_ASKS_INSTRUCTION = re.compile(
    r"\b(?:new|better|improved?|whole|entire)\b[^.\n]{0,60}\binstruction\b", re.IGNORECASE
)
_TAG = re.compile(r"<([A-Za-z][\w-]*)>\s*+(?:\.\.\.|…|[^<>\n]{0,60}?)\s*</\1>")
_TAG_PAIR = re.compile(r"<([A-Za-z][\w-]*)>[`'\"]?\s*(?:and|to|\.\.\.|…)\s*[`'\"]?<(/?[A-Za-z][\w-]*)>")
_TAG_NAMED = re.compile(
    r"\b(?:in|inside|within|between|with|by)\s+(?:the\s+)?[`'\"]?<([A-Za-z][\w-]*)>[`'\"]?\s*(?:tags?|$)"
)

_IS_PROMPT = re.compile(r"prompt|candidate|variant|proposal|paraphrase|rewrit", re.IGNORECASE)
_IS_TEXT = re.compile(
    r"text|instruction|content|rule|body|statement|sentence|guideline|wording|value|line|new|answer|improved",
    re.IGNORECASE,
)
_IS_WHY = re.compile(
    r"reason|why|rationale|explan|analysis|critique|because|note|comment|diagnos|thought", re.IGNORECASE
)
Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplyItem:
    """One point of an answer: an instruction, and the complaint behind it."""

    text: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ScriptedProposal:
    """The proposals of the simulated optimizer: single points, and the whole prompt if that is requested."""

    items: Sequence[ReplyItem]
    whole: str

    @property
    def bullets(self) -> str:
        """The points as a list."""
        return "\n".join(f"- {item.text}" for item in self.items)


Propose: TypeAlias = Callable[[int], ScriptedProposal]


def request_text(request: Request) -> str:
    """All messages as one text."""
    return "\n\n".join(m.content for m in request.messages)


def asks_whole(text: str) -> bool:
    """Whether a request wants a whole prompt back, not single points."""
    return bool(_ASKS_WHOLE.search(text))


def asked_count(text: str) -> int:
    """Read the number of proposals that a request asks for (1 when it names no number)."""
    match = _COUNT.search(text)
    if not match:
        return 1
    word = match.group(1).lower()
    return max(1, min(_MOST, _NUMBERS[word] if word in _NUMBERS else int(word)))


def asked_tags(text: str) -> tuple[str, str, str] | None:
    """Opening tag, closing tag and name of the tags that the answer should stand in, if any."""
    tags: list[tuple[int, str, str]] = []
    tags += [(m.start(), m.group(1), f"</{m.group(1)}>") for m in _TAG.finditer(text)]
    tags += [(m.start(), m.group(1), f"<{m.group(2)}>") for m in _TAG_PAIR.finditer(text)]
    tags += [(m.start(), m.group(1), f"</{m.group(1)}>") for m in _TAG_NAMED.finditer(text)]
    if not tags:
        return None
    _, name, closing = max(tags)
    return f"<{name}>", closing, name


def write(request: Request, propose: Propose) -> str:
    """The answer in the form that the request asks for; `propose(k)` is the k-th proposal."""
    text = request_text(request)
    if request.schema is not None:
        return json.dumps(
            _Walk(request.schema, text, propose).value(request.schema, "", None), ensure_ascii=False
        )
    whole = asks_whole(text) or _ASKS_INSTRUCTION.search(text) is not None
    tags = asked_tags(text)
    if tags is None:
        proposal = propose(0)
        return proposal.whole if whole else proposal.bullets
    opening, closing, name = tags
    proposals = [propose(k) for k in range(asked_count(text))]
    bodies = [p.whole if whole or _IS_PROMPT.search(name) else p.bullets for p in proposals]
    return "\n".join(f"{opening}{body}{closing}" for body in bodies)


class _Walk:
    """One pass over a schema, filling every place with what its name and type ask for."""

    def __init__(self, root: Schema, text: str, propose: Propose) -> None:
        self.root, self.propose = root, propose
        self.whole, self.count = asks_whole(text), asked_count(text)
        self.first = propose(0)

    def value(self, schema: Schema, name: str, item: ReplyItem | None) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, item)
        if kind == "array":
            return self._array(schema, name, item)
        if kind == "string":
            return self._string(name, item)[: schema.get("maxLength")]
        return _plain(kind, schema)

    def _resolve(self, schema: Schema) -> Schema:
        for _ in range(8):
            if "$ref" in schema:
                node: Any = self.root
                for part in str(schema["$ref"]).lstrip("#/").split("/"):
                    node = node.get(part, {}) if part else node
                schema = node
            for union in ("anyOf", "oneOf", "allOf"):
                if schema.get(union):
                    schema = next((s for s in schema[union] if s.get("type") != "null"), schema[union][0])
        return schema

    def _object(self, schema: Schema, item: ReplyItem | None) -> dict[str, object]:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        return {name: self.value(sub, name, item) for name, sub in properties.items()}

    def _array(self, schema: Schema, name: str, item: ReplyItem | None) -> list[object]:
        if item is not None:
            return []
        inner: Schema = self._resolve(schema.get("items", {}))
        if _IS_PROMPT.search(name):
            wholes = [
                ReplyItem(self.propose(k).whole) for k in range(max(self.count, schema.get("minItems", 1)))
            ]
            values = [self.value(inner, "text", whole) for whole in wholes]
        else:
            values = [
                self.value(inner, "text" if _kind(inner) == "string" else name, i) for i in self.first.items
            ]
        return values[: schema.get("maxItems")]

    def _string(self, name: str, item: ReplyItem | None) -> str:
        if _IS_WHY.search(name):
            return item.why if item is not None else "These points came up in the complaints."
        if item is not None:
            return item.text if _IS_TEXT.search(name) or _IS_PROMPT.search(name) else ""
        if _IS_PROMPT.search(name) or self.whole:
            return self.first.whole
        return self.first.bullets if _IS_TEXT.search(name) else ""


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _plain(kind: str, schema: Schema) -> object:
    if kind == "boolean":
        return True
    return schema.get("minimum", 1) if kind in ("integer", "number") else None
