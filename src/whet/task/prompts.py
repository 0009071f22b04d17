"""The prompt file: one text, or several messages in YAML. Every character stays as it was written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from whet.errors import UsageError, quantity
from whet.prompt import Prompt
from whet.task.files import read_text
from whet.task.spec import ROUND_ROBIN
from whet.task.tree import Node, parse_yaml, write_yaml
from whet_client.prompt import chat
from whet_client.prompt.document import MASK
from whet_client.prompt.fence import front_matter_of, regions_of
from whet_client.prompt.headings import fence_section, fence_sections, has_heading, headings_of
from whet_client.prompt.slots import SLOT, canonical_name, name_slot

YAML = (".yaml", ".yml")

_FOREIGN = re.compile(
    r"\{\{\{[ \t]*\w+[ \t]*\}\}\}|\{%(?:(?!\{%).)*?%\}|\{#(?:(?!\{#).)*?#\}|<%(?:(?!<%).)*?%>"
    r"|\{\{[ \t]*[$#^/>&@!.]?-?[ \t]*[^\W\d][\w.]*[ \t]*(?:[.|\[(-][^{}\n]*)?\}\}"
)
"""Slots and blocks of other template languages."""
_WORD = r"([^\W\d]\w*)"
_NAMED = re.compile(
    rf"[$#]?(?<!\{{)\{{[ \t]*{_WORD}[ \t]*(?:[:!][^{{}}\s]{{0,20}})?\}}(?!\}})|%\(([^()\n]{{1,80}})\)[srdif]|\${_WORD}"
    rf"|\[\[[ \t]*{_WORD}[ \t]*\]\]|%{_WORD}%|<<?{_WORD}>>?"
)
"""The pattern of another tool's slot, where its name is that of an input. One of the groups is the name."""
_NEARLY = re.compile(
    r"\{\{[ \t]*(?:\w[\w \t-]*)?\}\}|\{\{[ \t]*(\w+)\b(?![^{}\n]*\}\})|(?<!\{)\{[ \t]*(\w+)[ \t]*\}\}"
)
"""The pattern of text that looks like a slot and is none: a name that no slot has, no name, or unclosed braces. The groups are
the name of an unclosed slot."""
_BRACED = re.compile(r"\{\{([^{}\n]{1,200})\}\}")
_MARKER = re.compile(r"whet:(?:begin|end)\b")
_EXAMPLE = "a list of messages, each with `role` and `content`"


def load_prompt(path: Path, named_by: str = "", folder: Path | None = None) -> Prompt:
    """The prompt in a file, in any of the forms of `whet_client.prompt.chat`: `.yaml`, `.yml` and `.json` list messages or hold a
    template of another tool, anything else is one text, or lists messages.

    One text is kept byte for byte (CRLF, braces) but for its byte-order mark, and for a mark in the place of each part that it
    names. Files of parts lie in `folder`, or beside the file. Raises UsageError with file and line.
    """
    path = Path(path)
    folder = path.parent if folder is None else folder
    if path.suffix.lower() in YAML:
        return _from_yaml(path, named_by, folder)
    text = read_text(path, named_by).removeprefix("\ufeff")
    if not text.strip():
        raise UsageError(f"{path}:1: the prompt is empty. Write the text that the model should receive.")
    if "\x00" in text:
        raise UsageError(f"{path}:{_line(text, text.index(chr(0)))}: a NUL character. Remove it.")
    messages = chat.parse_messages(text, str(path), json_only=path.suffix.lower() == ".json")
    return Prompt.from_messages(messages, str(path), folder)


def prompt_file(prompt: Prompt, name: str = "prompt") -> tuple[str, bytes]:
    """The name and the content of the file that `load_prompt` reads as this prompt; its parts stand in it as data URLs."""
    prompt = prompt.portable
    if [m.role for m in prompt.messages] == [chat.AUTO]:
        return f"{name}.md", prompt.messages[0].content.encode()
    messages = [m.as_object() for m in prompt.messages]
    return f"{name}.yaml", write_yaml(messages, blocks=True).encode()


def slot_line(path: Path, name: str) -> int:
    """The line (from 1) on which the slot `{{name}}` stands first in the file."""
    text = read_text(path)
    first = (m for m in SLOT.finditer(text) if canonical_name(m[1]) == name)
    return next((_line(text, match.start()) for match in first), 1)


def check_braced_names(prompt: Prompt, fields: Collection[str], where: str) -> None:
    """Raise UsageError for an input's name in double braces that no slot can have."""
    for message in prompt.messages:
        for match in _BRACED.finditer(message.content):
            name = canonical_name(match[1])
            if name in fields and not SLOT.fullmatch(match[0]):
                raise UsageError(
                    f"{where}: {match[0]} would go to the model as it stands: no slot has such a name. Call the input "
                    f'"{name_slot(name, fields)}", in the rows and in the prompt.'
                )


def front_matter_note(prompt: Prompt, place: str) -> list[str]:
    """A warning about front matter above the prompt, which no model gets; `place` names the prompt."""
    front = front_matter_of(prompt.messages[0].content).rstrip()
    if not front:
        return []
    lines = quantity(front.count("\n") + 1, "line")
    return [f"{place}: {lines} of front matter above the prompt stay in the file; no model gets them."]


def foreign_slots(
    prompt: Prompt, path: Path, fields: Collection[str], usual: Collection[str] = ()
) -> list[str]:
    """A warning for the first marker that is none, piece of another template language, or slot that is none; in a single
    brace, or in braces that are not closed, only `fields` and `usual` names are meant."""
    names = {name.casefold(): name for name in (*usual, *fields)}
    text = read_text(path) if path.is_file() else "\n".join(m.content for m in prompt.messages)
    front = front_matter_of(text.removeprefix("\ufeff"))
    text = "\n" * front.count("\n") + text.removeprefix("\ufeff").removeprefix(front)
    for match in _MARKER.finditer(text):
        if not text[: match.start()].rstrip().endswith("<!--"):
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no marker of a fence. Write <!-- whet:begin --> and "
                "<!-- whet:end -->."
            ]
    for match in sorted((*_FOREIGN.finditer(text), *_find_names(text, names)), key=lambda one: one.start()):
        if not SLOT.fullmatch(match[0]):
            slot = next(filter(None, match.groups()), None) or next(
                (n for n in names.values() if re.search(rf"\b{re.escape(n)}\b", match[0])), "name"
            )
            slot = names.get(slot.casefold(), slot)
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            if inner := SLOT.search(match[0]):
                return [
                    f"{where}: of {match[0]}, the slot {inner[0]} is filled, and the rest goes to the model as it stands. "
                    f"Write {inner[0]} alone, unless the model shall see the rest."
                ]
            slot = next(iter(fields)) if slot not in fields and len(fields) == 1 else slot
            meant = f"Did you mean {{{{{slot}}}}}?" if slot in fields else "Slots are written {{name}}."
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no slot of whet. {meant} There are no blocks, "
                "filters or comments."
            ]
    for match in _NEARLY.finditer(text):
        if not SLOT.fullmatch(match[0]) and {match[1], match[2]} <= {None, *names.values()}:
            where = f"{path}:{_line(text, match.start())}" if path.is_file() else "prompt"
            fields = ", ".join(sorted(fields)) or "none"
            return [
                f"{where}: {match[0]} goes to the model as it stands: it is no slot. A slot is a name between {{{{ and }}}}: "
                f"letters, digits and _, with blanks, dots and dashes inside; the inputs of the rows have: {fields}."
            ]
    return []


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _find_names(text: str, names: Collection[str]) -> Iterator[re.Match[str]]:
    """Names of inputs, whatever their case, in the marks of other tools; in angle brackets where no closing tag makes elements of
    them."""
    for match in _NAMED.finditer(text):
        name = next(filter(None, match.groups()))
        tag = match[6] is not None and (f"</{name}>" in text or SLOT.search(text) is not None)
        if name.casefold() in names and not tag:
            yield match


def _from_yaml(path: Path, named_by: str, folder: Path) -> Prompt:
    root = parse_yaml(path, named_by, f"Write {_EXAMPLE}.")
    if not isinstance(root.value, list | dict):
        root.refuse(f"the prompt must be {_EXAMPLE} (one text goes into prompt.md); this is {root.kind()}.")
    if isinstance(root.value, list) and not root.value:
        root.refuse(f"the prompt has no message. Write {_EXAMPLE}.")
    messages = chat.read_messages(_raw(root), lambda way: _node_at(root, way).where)
    if not any(m.content.strip() for m in messages):
        root.refuse("the prompt is empty. Write the text that the model should receive.")
    for number, message in enumerate(messages):
        content = _node_at(root, (number, "content"))
        first = content.first if content is not root and content.raw == message.content else 1
        regions_of("\n" * (first - 1) + message.content, str(path))
    return Prompt.from_messages(messages, str(path), folder)


def _raw(node: Node) -> object:
    """The value with its scalars as they were written; nothing as None."""
    if isinstance(node.value, list):
        return [_raw(item) for item in node.value]
    if isinstance(node.value, dict):
        return {key: _raw(item) for key, item in node.value.items()}
    return None if node.value is None else node.raw


def _node_at(node: Node, way: Sequence[str | int]) -> Node:
    """The node at the end of a way, or the last one on it."""
    for step in way:
        inner = node.value
        if isinstance(inner, dict) and step in inner:
            node = inner[str(step)]
        elif isinstance(inner, list) and isinstance(step, int) and step < len(inner):
            node = inner[step]
        else:
            break
    return node


def fence_headings(prompt: Prompt, heading: str | None) -> tuple[Prompt, str]:
    """The prompt with a fence around the text below a heading (`## Title`), or around every section (None), and the region that
    is edited then. A prompt that has these fences already, such as one that a search wrote, stays as it is. Raises UsageError."""
    if prompt.parts:
        return _fence_parts(prompt, heading)
    texts = [message.content for message in prompt.messages]
    if prompt.fenced:
        wanted = [] if heading is None else [h.name for h in headings_of(heading)]
        if heading is None or (wanted and wanted[0] in [region.name for region in prompt.regions]):
            return prompt, wanted[0] if wanted else ROUND_ROBIN
        raise UsageError(
            "the prompt has fences, so headings name no regions. Write the name of a fence, or remove the fences."
        )
    with_headings = [number for number, text in enumerate(texts) if headings_of(text)]
    if heading is None:
        for number in with_headings:
            texts[number] = fence_sections(texts[number])
        if not with_headings:
            fence_sections(texts[0])
        region = ROUND_ROBIN
    else:
        number = next((n for n in with_headings if has_heading(texts[n], heading)), 0)
        texts[number], region = fence_section(texts[number], heading)
    messages = (replace(m, content=text) for m, text in zip(prompt.messages, texts, strict=True))
    return Prompt.from_messages(tuple(messages)), region


def _fence_parts(prompt: Prompt, heading: str | None) -> tuple[Prompt, str]:
    """`fence_headings` for the prompts of a program: in the one prompt that has the heading, or in all that have headings."""
    named = {
        name: part
        for name, part in prompt.parts.items()
        if any(
            headings_of(m.content) if heading is None else has_heading(m.content, heading)
            for m in part.messages
        )
    }
    if not named or (heading is not None and len(named) > 1):
        where = f"in several prompts ({', '.join(named)})" if named else "in no prompt of the program"
        raise UsageError(
            f"{'headings are' if heading is None else f'the heading {heading!r} is'} {where}. Draw fences."
        )
    fenced = {name: fence_headings(part, heading)[0] for name, part in named.items()}
    whole = Prompt.of_parts({**prompt.parts, **fenced})
    if heading is None:
        return whole, ROUND_ROBIN
    [(name, part)] = fenced.items()
    region = fence_headings(part, heading)[1]
    return whole, name if len(part.regions) == 1 else f"{name}.{region}"


def _has_lines(value: object, name: str) -> bool:
    text = value.get(name) if isinstance(value, Mapping) else value
    return isinstance(text, str) and "\n" in text.strip()


def first_prompt(value: object, labels: Sequence[str], *, scored: bool = False) -> str:
    """A prompt to begin with: an instruction, or for a model that scores labels a text in which a label takes the place of the
    mask."""
    names = list(value) if isinstance(value, Mapping) else ["input"]
    lines = [f"{name}:" + ("\n" if _has_lines(value, name) else " ") + f"{{{{{name}}}}}" for name in names]
    filled = "{{" + names[0] + "}}" if len(names) == 1 else "\n".join(lines)
    if scored:
        return f"{filled}\n<!-- whet:begin -->It is about<!-- whet:end --> {{{{{MASK}}}}}\n"
    end = f"\n\nAnswer with one of: {', '.join(labels)}." if labels else ""
    return f"<!-- whet:begin -->\nGive the right answer.\n<!-- whet:end -->\n\n{filled}{end}\n"
