"""The prompt file: one text, or several messages in YAML. Every character stays as it was written."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt
from whet.prompt.fence import regions_of
from whet.prompt.slots import SLOT
from whet.task.files import read_text
from whet.task.tree import Node, parse_yaml
from whet.types import Message

_FOREIGN = re.compile(
    r"\{\{\{[ \t]*\w+[ \t]*\}\}\}|\{%(?:(?!\{%).)*?%\}|\{#(?:(?!\{#).)*?#\}|<%(?:(?!<%).)*?%>"
    r"|\{\{[ \t]*[A-Za-z_]\w*[ \t]*[.|\[][^{}\n]*\}\}|\$?(?<!\{)\{([A-Za-z_]\w*)\}(?!\})"
)
"""Slots and blocks of other template languages; the group is the name in a single brace."""
_NEARLY = re.compile(
    r"\{\{[ \t]*(?:\w[\w \t-]*)?\}\}|\{\{[ \t]*(\w+)\b(?![^{}\n]*\}\})|(?<!\{)\{[ \t]*(\w+)[ \t]*\}\}"
)
"""What looks like a slot and is none: a name that no slot has, no name, or braces that are not closed; the groups are the name
of an unclosed one."""
_MARKER = re.compile(r"whet:(?:begin|end)\b")
CHAT_ROLES = ("system", "user", "assistant")
_EXAMPLE = "a list of messages, each with `role` and `content`"


def load_prompt(path: Path, named_by: str = "") -> Prompt:
    """The prompt in a file: `.yaml` or `.yml` is a list of role/content, anything else is one text.

    One text is kept byte for byte (byte-order mark, CRLF, braces). Raises UsageError with file and line.
    """
    path = Path(path)
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(path, named_by)
    text = read_text(path, named_by)
    if not text.removeprefix("\ufeff").strip():
        raise UsageError(f"{path}:1: the prompt is empty. Write the text that the model should receive.")
    if "\x00" in text:
        raise UsageError(f"{path}:{_line(text, text.index(chr(0)))}: a NUL character. Remove it.")
    return Prompt.parse(text, str(path))


def slot_line(path: Path, name: str) -> int:
    """The line (from 1) on which the slot `{{name}}` stands first in the file."""
    text = read_text(path)
    match = re.search(r"\{\{[ \t]*" + re.escape(name) + r"[ \t]*\}\}", text)
    return _line(text, match.start()) if match else 1


def foreign_slots(
    prompt: Prompt, path: Path, fields: Collection[str], usual: Collection[str] = ()
) -> list[str]:
    """A warning for the first marker that is none, piece of another template language, or slot that is none; in a single
    brace, or in braces that are not closed, only `fields` and `usual` names are meant."""
    names = {*fields, *usual}
    text = read_text(path) if path.is_file() else "\n".join(m.content for m in prompt.messages)
    for match in _MARKER.finditer(text):
        if not text[: match.start()].rstrip().endswith("<!--"):
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no marker of a fence. Write <!-- whet:begin --> and "
                "<!-- whet:end -->."
            ]
    for match in _FOREIGN.finditer(text):
        if match[1] is None or match[1] in names:
            slot = match[1] or next((n for n in names if re.search(rf"\b{re.escape(n)}\b", match[0])), "name")
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no slot of whet. Slots are written {{{{{slot}}}}}; "
                "there are no blocks, filters or comments."
            ]
    for match in _NEARLY.finditer(text):
        if not SLOT.fullmatch(match[0]) and {match[1], match[2]} <= {None, *names}:
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            fields = ", ".join(sorted(fields)) or "none"
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no slot. A slot is a name of letters (a to z), "
                f"digits and _ between {{{{ and }}}}; the inputs of the rows have: {fields}."
            ]
    return []


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _from_yaml(path: Path, named_by: str) -> Prompt:
    root = parse_yaml(path, named_by, f"Write {_EXAMPLE}.")
    items = root.sequence("the prompt", f"{_EXAMPLE} (one text goes into prompt.md)")
    if not items:
        root.refuse(f"the prompt has no message. Write {_EXAMPLE}.")
    messages = tuple(_message(item) for item in items)
    if not any(m.content.strip() for m in messages):
        root.refuse("the prompt is empty. Write the text that the model should receive.")
    return Prompt.from_messages(messages, str(path))


def _message(node: Node) -> Message:
    keys = node.mapping("a message", ("role", "content"))
    for name in ("role", "content"):
        if name not in keys:
            node.refuse(f"this message has no `{name}`. Write {_EXAMPLE}.")
    role = keys["role"].text("`role`", "system, user or assistant")
    if role not in CHAT_ROLES:
        keys["role"].refuse(f'there is no role "{role}".{did_you_mean(role, CHAT_ROLES)}')
    content = keys["content"]
    if isinstance(content.value, list | dict) or content.value is None:
        content.refuse(
            f"`content` must be text; this is {content.kind()}. Put it in quotes, or on the lines after "
            "`content: |`."
        )
    regions_of("\n" * (content.first - 1) + content.raw, str(node.path))
    return Message(role, content.raw)
