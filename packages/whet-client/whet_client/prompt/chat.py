"""Prompts of several messages, in the forms in which people have them: one reader for files, Python values and the server.

It reads whet's own list of `role` and `content` (and a text with a line `[system]`, `[user]` or `[assistant]` above each
message), requests of OpenAI and Anthropic (`messages`, contents in parts), prompts of Langfuse, pairs and templates of LangChain.
What looks like one of these and cannot be read is refused; any other text is a prompt of one text.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NoReturn

from whet_client import media
from whet_client.errors import UsageError, did_you_mean
from whet_client.prompt.headed import (
    AUTO as AUTO,
)
from whet_client.prompt.headed import (
    CHAT_ROLES,
    CODED,
    ROLES,
    note_media_slot,
    parse_below_front_matter,
    parse_headed_messages,
)
from whet_client.prompt.slots import SLOT, is_slot_name, slot_names
from whet_client.storable import show_value
from whet_client.types import Message

EXAMPLE = '[{"role": "system", "content": "..."}, {"role": "user", "content": "{{input}}"}]'
_CONTENTS = ("url", "image_url", "data", "base64", "file_data", "image", "audio", "file")
"""Keys of a part, or of its inner object, that hold its content."""
_OF_CONTENT = frozenset(("type", "source_type", "mime_type", "media_type", "format", "cache_control"))
"""Keys of a part that a slot makes needless: the row states its content."""
_MEANT_AS_JSON = re.compile(
    r"""\s*(?:\[\s*)?\{\s*["'](?:role|content|messages|lc|_type)["']\s*:|\s*\[\s*[\[(]\s*["'](?:system|human|user|ai|assistant)["']\s*,"""
)
_MEANT_AS_YAML = re.compile(r"\s*(?:messages:\s*)?-[ \t]+role:")
_TEXT_PARTS = ("text", "input_text", "output_text")
_SENT = ("image_url", "input_image", "input_audio", "file", "image", "document", "audio")
"""Parts of the forms of OpenAI, Anthropic and LangChain that are images, sounds and files."""
_BESIDE = frozenset(
    ("type", "name", "id", "cache_control", "additional_kwargs", "response_metadata", "example")
)
"""Keys of a message that change nothing of what the model reads."""
_LOST = ("tools", "functions", "schema_")
"""Keys beside the messages without which the same messages ask for something else: a request with them is refused."""
_HELD = ("messages", "system")
"""Keys of a request that a prompt holds."""
_OPTION_NAMES = {"model": "address", "max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}
_OPTIONS = ("temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort", "stream", "timeout")
"""Options of a request that a role in task.yaml has too: by another name, and by the same."""
_KEPT: ContextVar[dict[str, object] | None] = ContextVar("kept", default=None)
_log = logging.getLogger("whet.prompt")
_TRIPLE = re.compile(r"(?<!\{)\{{3}\{*+[^{}]*+\}{3}\}*+")
"""A name in three or more braces: a slot between single braces of text."""
_BLOCK = re.compile(r"\{%|\{#|\{\{[ \t]*[#^/>!&=]|\{\{[^{}]*[|(\[][^{}]*\}\}")

Place = Callable[[tuple[str | int, ...]], str]
"""From the way to a value inside a prompt (keys, and numbers from 0) to how messages call it, such as file:line."""


class _Unreadable(Exception):
    """A value that cannot be read, and the way to it."""

    def __init__(self, way: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.way = way


def parse_messages(text: str, where: str = "prompt", *, json_only: bool = False) -> tuple[Message, ...]:
    """The messages of a prompt's text: those that it lists, else one message of the role `auto`.

    With `json_only` (a file that ends in .json) any other text than JSON of messages is refused. Raises UsageError for a text
    that looks like a list of messages and cannot be read as such. What a prompt cannot hold is logged as a warning.
    """
    messages, value = _read_text(text, where, json_only)
    _say_what_is_lost(value, where)
    return messages


def _read_text(text: str, where: str, json_only: bool) -> tuple[tuple[Message, ...], object]:
    """The messages of a text, and the value of JSON that they were read from."""
    text = text.removeprefix("\ufeff")
    if (headed := parse_headed_messages(text)) is not None:
        return headed, None
    if (below := parse_below_front_matter(text, where)) is not None:
        return below, None
    if text.lstrip()[:1] in ("[", "{") or json_only:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            if json_only or _MEANT_AS_JSON.match(text):
                raise UsageError(
                    f"{where}: this looks like a list of messages and is no valid JSON: {error}. Correct it; keys and "
                    "texts stand in double quotes."
                ) from None
            return (Message(AUTO, text),), None
        if json_only or looks_like_chat(value):
            return _read_messages(value, where), value
    if _MEANT_AS_YAML.match(text):
        raise UsageError(
            f"{where}: these are messages in YAML, and not one text. Put them into a file that ends in .yaml, or write JSON: "
            f"{EXAMPLE}."
        )
    return (Message(AUTO, text),), None


def reads_as_chat(text: str) -> bool:
    """Whether `read_text` would make of this text anything else than one message of the role `auto` with this text."""
    try:
        return _read_text(text, "prompt", False)[0] != (Message(AUTO, text),)
    except UsageError:
        return True


def join_messages(messages: Sequence[Message]) -> str:
    """Messages with roles as one text that `read_text` reads as the same: headed by their roles, or as JSON where a text has such
    headings itself."""
    text = "\n\n".join(f"[{m.role}]\n{m.content}" for m in messages)
    if parse_headed_messages(text) == tuple(messages):
        return text
    return _as_json([m.as_object() for m in messages])


def write_messages(messages: Sequence[Message]) -> str:
    """Messages as JSON, a list of `role` and `content`; a content with images, sounds or files is a list of parts."""
    return _as_json([m.as_object(media.content_of(m.content)) for m in messages])


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def looks_like_chat(value: Any) -> bool:
    """Whether a value (of JSON, YAML or Python) is meant as messages or as a template of another tool, readable or not."""
    if _is_langchain(value):
        return True
    if isinstance(value, Mapping):
        return (
            isinstance(value.get("messages"), list | tuple)
            or {"role", "content"} <= value.keys()
            or (value.get("type") in ("chat", "text") and "prompt" in value)
            or "lc" in value
            or "_type" in value
        )
    if not isinstance(value, list | tuple) or not value:
        return False
    return any(
        isinstance(item, Message)
        or _is_langchain(item)
        or _is_pair(item)
        or (isinstance(item, Mapping) and bool({"role", "content", "lc"} & item.keys()))
        for item in value
    )


@contextmanager
def options_kept() -> Iterator[dict[str, object]]:
    """The options beside the messages of a prompt (the `config` of Langfuse, the options of a request) that the reader
    keeps; no warning says that they are left out."""
    kept = dict[str, object]()
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def read_messages(value: Any, where: str | Place = "prompt", *, logged: bool = True) -> tuple[Message, ...]:
    """The messages of a value of JSON, YAML or Python. Raises UsageError that names the place and what cannot be read.

    What a prompt cannot hold is logged as a warning, where it is to be `logged`.
    """
    messages = _read_messages(value, where)
    if logged:
        _say_what_is_lost(value, where if isinstance(where, str) else where(()))
    return messages


def _read_messages(value: Any, where: str | Place) -> tuple[Message, ...]:
    try:
        messages = _messages(value, ())
        if not messages:
            raise _Unreadable((), f"there is no message. Write {EXAMPLE}.")
    except _Unreadable as error:
        place = where(error.way) if callable(where) else where + _way_in_words(error.way)
        raise UsageError(f"{place}: {error}") from None
    return tuple(messages)


def _say_what_is_lost(value: object, where: str) -> None:
    """Log the options of a request that a prompt does not hold, where they belong, and a role that is read as another."""
    beside: Mapping[Any, object] = {}
    if not isinstance(value, Mapping):
        messages = value
    elif "messages" in value:
        beside = {key: held for key, held in value.items() if key not in _HELD and held is not None}
        messages = value["messages"]
    else:
        config = value.get("config")
        beside = config if isinstance(config, Mapping) else {}
        messages = value.get("prompt")
    options, kept = list(map(str, beside)), _KEPT.get()
    if options and not {"lc", "_type"} & set(options) and kept is not None:
        kept.update(zip(options, beside.values(), strict=True))
    elif options and not {"lc", "_type"} & set(options):
        places = ", ".join(f"{key} -> {_option_of_role(key)}" for key in options)
        _log.warning(
            "%s: a prompt holds messages only; these keys beside them are left out: %s. The options of the role in task.yaml "
            "(models: task: ...) hold them: %s.",
            where,
            ", ".join(options),
            places,
        )
    if isinstance(messages, list | tuple) and any(
        isinstance(message, Mapping) and message.get("role") == "developer" for message in messages
    ):
        _log.warning(
            "%s: the role developer is read as system; a model that knows no system role gets its text all the same.",
            where,
        )


def _option_of_role(key: str) -> str:
    """The option of a role in task.yaml that holds a key of a request."""
    return _OPTION_NAMES.get(key, key if key in _OPTIONS else "extra_body")


def _way_in_words(way: tuple[str | int, ...]) -> str:
    number = next((step for step in way if isinstance(step, int)), None)
    return "" if number is None else f", message {number + 1}"


def _messages(value: Any, way: tuple[str | int, ...]) -> list[Message]:
    if _is_langchain(value):
        return _messages(importlib.import_module("langchain_core.load").dumpd(value), way)
    if isinstance(value, Mapping):
        return _of_mapping(value, way)
    if not isinstance(value, list | tuple):
        raise _Unreadable(
            way, f"a prompt of several messages is a list; this is {show_value(value)}. Write {EXAMPLE}."
        )
    return [_message(item, (*way, number)) for number, item in enumerate(value)]


def _of_mapping(value: Mapping[str, Any], way: tuple[str | int, ...]) -> list[Message]:
    if "lc" in value or "_type" in value:
        return _langchain_template(value, way)
    if value.get("type") == "text" and isinstance(value.get("prompt"), str):
        return [Message(AUTO, value["prompt"])]
    if value.get("type") == "chat" and "prompt" in value:
        return _messages(value["prompt"], (*way, "prompt"))
    if "messages" in value:
        for key in _LOST:
            if value.get(key):
                raise _Unreadable(
                    (*way, key), f"`{key}` stand beside the messages, and a prompt holds none. Remove them."
                )
        system = value.get("system")
        first = [] if system is None else [Message("system", _content(system, (*way, "system")))]
        return [*first, *_messages(value["messages"], (*way, "messages"))]
    if {"role", "content"} & value.keys():
        return [_message(value, way)]
    keys = ", ".join(map(str, value)) or "none"
    raise _Unreadable(way, f"this is no prompt of several messages; its keys: {keys}. Write {EXAMPLE}.")


def _message(item: Any, way: tuple[str | int, ...]) -> Message:
    if isinstance(item, Message):
        return replace(item, role=_role(item.role, way))
    if _is_langchain(item):
        item = importlib.import_module("langchain_core.load").dumpd(item)
    if _is_pair(item):
        if item[0] == "placeholder":
            _refuse_placeholder(str(item[1]), way)
        listed = item[1] if isinstance(item[1], list | tuple) and item[1] else [_content(item[1], way)]
        return Message(_role(item[0], way), "\n".join(_of_pair_part(part, way) for part in listed))
    if not isinstance(item, Mapping):
        raise _Unreadable(
            way,
            f"a message must be an object with `role` and `content`; this is {show_value(item)}. Write {EXAMPLE}.",
        )
    if "lc" in item:
        return _langchain_message(item, way)
    if item.get("type") == "placeholder":
        _refuse_placeholder(str(item.get("name", "")), way)
    for name in ("role", "content"):
        if name not in item:
            others = [str(key) for key in item if key not in ("role", "content", *_BESIDE)]
            meant = f' Did you mean "{name}" instead of "{others[0]}"?' if others else ""
            raise _Unreadable(
                way, f"this message has no `{name}`.{meant} Write a list of messages such as {EXAMPLE}."
            )
    for key in item:
        if key not in ("role", "content", *_BESIDE) and item[key] not in (None, [], {}):
            raise _Unreadable(
                (*way, str(key)),
                f'a message has no key "{key}".{did_you_mean(str(key), ("role", "content"))}',
            )
    return _with_name(
        Message(_role(item["role"], (*way, "role")), _content(item["content"], (*way, "content"))), item
    )


def _with_name(message: Message, item: Mapping[str, Any]) -> Message:
    """The message with the name of its speaker, where the object that it was read from has one."""
    name = item.get("name")
    return replace(message, name=name) if isinstance(name, str) and name else message


def _role(role: Any, way: tuple[str | int, ...]) -> str:
    known = ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise _Unreadable(way, f'there is no role "{role}".{did_you_mean(str(role), CHAT_ROLES)}')
    return known


def _content(content: object, way: tuple[str | int, ...]) -> str:
    """The text of a message; several parts stand on lines of their own, with a mark for each image, sound or file."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple) or not content:
        raise _Unreadable(
            way,
            f"`content` must be text; this is {'nothing' if content is None else show_value(content)}. Put it in quotes.",
        )
    return "\n".join(_text_of(part, way) for part in content)


def _text_of(part: object, way: tuple[str | int, ...]) -> str:
    """A part of a message as text: its own, or the mark of what is kept of it."""
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else "text"
    if isinstance(part, Mapping) and kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    if isinstance(part, Mapping) and (
        kind in _SENT or ("type" not in part and media.KINDS_OF_FILES & part.keys())
    ):
        if (slot := _slot_of(part, way)) is not None:
            return slot
        try:
            return media.keep_prompt_part(part, "part")
        except UsageError as error:
            raise _Unreadable(way, f"this message has a {error}") from None
    raise _Unreadable(
        way,
        f"this message has a part of the type {show_value(kind)}, and no prompt holds such a part. Remove it.",
    )


def _slot_of(part: Mapping[str, Any], way: tuple[str | int, ...]) -> str | None:
    """The slot that is the content of a part, which every row fills with an image, a sound or a file; None where the part holds
    its content itself. Raises _Unreadable for a part that is filled in another way."""
    texts = dict(_texts_in(part))
    filled = [key for key, text in texts.items() if SLOT.search(text) and key not in _OF_CONTENT]
    if not filled:
        return None
    alone = CODED.sub("", texts[filled[0]].strip())
    if len(filled) > 1 or filled[0] not in _CONTENTS or not SLOT.fullmatch(alone):
        raise _Unreadable(
            way,
            f"this message has a part that slots fill in a part ({show_value(texts[filled[0]])}). Rows hold whole images, sounds "
            f"and files: write one slot in the place of its address or content.",
        )
    others = [key for key, text in texts.items() if key not in (*_OF_CONTENT, filled[0]) and text != "auto"]
    if others:
        raise _Unreadable(
            way,
            f"this message has a part with the slot {alone} and `{others[0]}`, which stands with the image in each row. "
            "Remove it here.",
        )
    return note_media_slot(alone)


def _texts_in(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a part and of its inner objects, by their keys."""
    for key, value in part.items():
        if isinstance(value, Mapping):
            yield from _texts_in(value)
        elif isinstance(value, str) and value:
            yield str(key), value


def _refuse_placeholder(name: str, way: tuple[str | int, ...]) -> NoReturn:
    raise _Unreadable(
        way,
        f"a placeholder for messages ({name.strip('{}')}) is filled when the prompt is used, and a prompt of whet has its "
        f"messages itself. Remove it, or write a message with a slot: {{{{{name.strip('{}') or 'history'}}}}}.",
    )


def _is_pair(item: object) -> bool:
    """A role and a text, as LangChain takes them."""
    return (
        isinstance(item, list | tuple)
        and len(item) == 2
        and isinstance(item[0], str)
        and (item[0] in ROLES or item[0] == "placeholder")
    )


def _of_pair(text: str, way: tuple[str | int, ...]) -> str:
    """A text of a pair: braces as in LangChain, or slots of whet where no single brace names anything."""
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError:
        fields = []
    if any(is_slot_name(name) for name in fields):
        if slot_names(_TRIPLE.sub("", text)):
            raise _Unreadable(
                way,
                "this text has names in single and in double braces. Write each slot in double braces, and the messages as "
                f"{EXAMPLE}.",
            )
        return _from_format(text, way)
    return text if slot_names(text) else _from_format(text, way)


def _of_pair_part(part: Any, way: tuple[str | int, ...]) -> str:
    """A part of a pair: a text, or an image, a sound or a file whose texts may have fields."""
    if isinstance(part, str):
        return _of_pair(part, way)
    if isinstance(part, Mapping) and part.get("type", "text") in _TEXT_PARTS:
        return _of_pair(_text_of(part, way), way)
    return _text_of(_fill_part(part, lambda text: _of_pair(text, way)), way)


def _fill_part(part: Any, fill: Callable[[str], str]) -> Any:
    """A part, in whose texts slots stand in the place of fields."""
    if isinstance(part, Mapping):
        return {key: _fill_part(value, fill) for key, value in part.items()}
    return fill(part) if isinstance(part, str) else part


def _from_format(text: str, way: tuple[str | int, ...]) -> str:
    """A format string with its fields as slots, and its doubled braces as single ones."""
    pieces, names = [], list[str]()
    try:
        for literal, name, spec, conversion in string.Formatter().parse(text):
            pieces.append(literal)
            if name is None:
                continue
            if not is_slot_name(name) or "." in name or spec or conversion:
                raise _Unreadable(way, f"{{{name}}} is more than a name. Write a slot for the result.")
            names.append(name)
            pieces.append(f"{{{{{name}}}}}")
    except ValueError as error:
        raise _Unreadable(
            way, f"the braces of this text cannot be read: {error}. Double a brace that is text."
        ) from None
    made = "".join(pieces)
    if Counter(slot_names(made)) != Counter(names):
        raise _Unreadable(
            way, "a name in double braces is text here, and would be a slot. Write it in another way."
        )
    return made


def _template(text: Any, kind: object, way: tuple[str | int, ...]) -> str:
    """A template of LangChain as a text with slots."""
    if not isinstance(text, str):
        raise _Unreadable(way, f"a template must be text; this is {show_value(text)}.")
    if kind in (None, "f-string"):
        return _from_format(text, way)
    if kind == "mustache":
        text = re.sub(r"\{\{\{([^{}]++)\}\}\}", lambda name: f"{{{{{name[1].strip()}}}}}", text)
    if kind not in ("mustache", "jinja2") or _BLOCK.search(text):
        raise _Unreadable(
            way, f"this template ({kind}) computes something; a prompt has slots only. Write the result."
        )
    return str(text)


def _is_langchain(value: Any) -> bool:
    """Whether a value is an object of LangChain that can be serialised."""
    return type(value).__module__.partition(".")[0] == "langchain_core" and hasattr(value, "to_json")


def _langchain_kind(value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The class of a serialised object of LangChain, and its content."""
    if "lc" not in value:
        return {"prompt": "PromptTemplate", "chat": "ChatPromptTemplate"}.get(
            value["_type"], str(value["_type"])
        ), value
    names, kwargs = value.get("id"), value.get("kwargs")
    known = isinstance(names, list) and names and isinstance(kwargs, Mapping)
    return (str(names[-1]), kwargs) if known and names and isinstance(kwargs, Mapping) else ("", {})


def _langchain_template(value: Mapping[str, Any], way: tuple[str | int, ...]) -> list[Message]:
    name, held = _langchain_kind(value)
    if held.get("partial_variables"):
        raise _Unreadable(way, "the template has partial variables. Write their values into its text.")
    if name == "PromptTemplate":
        return [Message(AUTO, _template(held.get("template"), held.get("template_format"), way))]
    if name == "ChatPromptTemplate" and isinstance(held.get("messages"), list):
        return [_message(one, (*way, "messages", n)) for n, one in enumerate(held["messages"])]
    if name.endswith(("Message", "MessagePromptTemplate")):
        return [_langchain_message(value, way)]
    raise _Unreadable(
        way,
        f"this object of LangChain ({name or 'unknown'}) is no prompt of plain messages. Write {EXAMPLE}.",
    )


def _langchain_message(value: Mapping[str, Any], way: tuple[str | int, ...]) -> Message:
    name, held = _langchain_kind(value)
    if name == "MessagesPlaceholder":
        _refuse_placeholder(str(held.get("variable_name", "")), way)
    word = name.removesuffix("PromptTemplate").removesuffix("Message").casefold()
    role = _role(held.get("role") if word == "chat" else word, way)
    if "prompt" not in held:
        return _with_name(Message(role, _content(held.get("content"), way)), held)
    parts = held["prompt"] if isinstance(held["prompt"], list) else [held["prompt"]]
    texts = []
    for part in parts:
        kind, inner = (
            _langchain_kind(part) if isinstance(part, Mapping) and {"lc", "_type"} & part.keys() else ("", {})
        )
        if kind not in _TEMPLATES or inner.get("partial_variables"):
            raise _Unreadable(
                way, "this message holds more than plain templates of texts and images. Write its text."
            )
        texts.append(_langchain_part(kind, inner, way))
    return Message(role, "\n".join(texts))


_TEMPLATES = ("PromptTemplate", "ImagePromptTemplate", "DictPromptTemplate")


def _langchain_part(kind: str, held: Mapping[str, Any], way: tuple[str | int, ...]) -> str:
    """A template of a text, an image or another part as a text with slots."""
    template, form = held.get("template"), held.get("template_format")
    if kind == "PromptTemplate":
        return _template(template, form, way)
    part = _fill_part(template, lambda text: _template(text, form, way))
    return _text_of({"type": "image_url", "image_url": part} if kind == "ImagePromptTemplate" else part, way)
