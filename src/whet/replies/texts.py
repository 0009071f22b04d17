"""Texts of a model's reply under a tag: from tags, JSON, fenced blocks, lists, or the reply itself."""

from __future__ import annotations

import re
from typing import Any

from whet.replies.blocks import blocks_in, stretches_of
from whet.replies.thoughts import without_thought
from whet.replies.values import FENCED, PROSE, WHOLE, values_of
from whet.types import Completion

_LONGEST_BARE = 1000
_TEXT_KEYS = (
    *("text", "prompt", "instruction", "instructions", "rewrite"),
    *("content", "value", "answer", "output", "result"),
)
_INSTRUCTION_TAGS = ("instruction", "prompt", "text")
_BULLET = re.compile(r"[ \t]{0,8}(?:[-*•–]|\(?\d{1,3}[.):])[ \t]+(.*)")


def texts_in(completion: Completion, tag: str, *, many: bool = False, bare: bool = False) -> list[str]:
    """Texts that a reply gives under `tag`: all of them with `many`, else at most one. Never an empty text.

    Read in this order, the first kind that is there wins: tags in any case, where an instruction, a prompt or a text is wanted
    also those of the other two; JSON (the whole reply, a fenced block, or an object with the key `tag`); fenced blocks; with
    `many`, list items; with `bare`, the reply itself when it is one short line that ends neither in ":" nor in "?", or one
    paragraph after a line that ends in ":". Nothing here knows a refusal from a text: a bare refusal is a text like any other,
    and the search that uses it measures what it is worth. When one text is wanted and several stand in tags, the last one
    counts: drafts come before it.
    """
    reply = without_thought(completion.text)
    whole = completion.error is None and completion.finish != "length"
    texts = _tagged(reply, tag, whole)
    if not texts and tag.lower() in _INSTRUCTION_TAGS:
        texts = next(filter(None, (_tagged(reply, other, whole) for other in _INSTRUCTION_TAGS)), [])
    texts = texts or _texts_in_json(reply, tag, whole)
    if not texts:
        texts = _clean(blocks_in(reply))
    if not texts and many:
        texts = _clean(list_items(reply))
    if not texts and bare and whole:
        texts = _clean(_bare(reply, tag))
    return texts if many else texts[-1:]


def between(text: str, opening: str, closing: str) -> list[str]:
    """What stands between each opening mark and the next closing one, without outer space.

    >>> between("<b> one </b> <b>two", "<b>", "</b>")
    ['one']
    """
    pieces: list[str] = []
    start = text.find(opening)
    while start >= 0 and (stop := text.find(closing, start + len(opening))) >= 0:
        pieces.append(text[start + len(opening) : stop].strip())
        start = text.find(opening, stop + len(closing))
    return pieces


def list_items(text: str) -> list[str]:
    """Items of a list, one per bullet or number; indented lines continue an item, any other line ends it.

    >>> list_items("Two:\\n- a\\n  b\\n2. c\\nDone.")
    ['a\\nb', 'c']
    """
    items: list[str] = []
    inside = False
    for line in text.splitlines():
        bullet = _BULLET.fullmatch(line)
        if bullet:
            items.append(bullet.group(1).strip())
            inside = True
        elif inside and line[:1] in (" ", "\t") and line.strip():
            items[-1] += "\n" + line.strip()
        else:
            inside = False
    return items


def _clean(texts: list[str]) -> list[str]:
    """Texts without outer space, wrapping quotes and code fences; those that say nothing are left out."""
    cleaned = []
    for text in texts:
        text = text.strip()
        blocks = [s for s in stretches_of(text) if s.fenced] if text.startswith(("```", "~~~")) else []
        if len(blocks) == 1 and blocks[0].closed and blocks[0].end == len(text):
            text = text[blocks[0].begin : blocks[0].stop].strip()
        for opening, closing in ('""', "''", "“”", "``"):
            inner = text[1:-1]
            if (
                len(text) > 2
                and (text[0], text[-1]) == (opening, closing)
                and not {opening, closing} & set(inner)
            ):
                text = inner.strip()
        if any(c.isalnum() for c in text):
            cleaned.append(text)
    return cleaned


def _tagged(reply: str, tag: str, whole: bool) -> list[str]:
    name = re.escape(tag)
    opening = rf"<\s*{name}(?:\s[^<>]*)?>"
    pattern = rf"{opening}((?:(?!{opening}).)*?)<\s*/\s*{name}\s*>"
    texts = _clean(re.findall(pattern, reply, re.DOTALL | re.IGNORECASE))
    if texts or not whole:
        return texts
    unclosed = re.split(opening, reply, flags=re.IGNORECASE)
    closed = re.search(rf"<\s*/\s*{name}\s*>", reply, re.IGNORECASE)
    return _clean(unclosed[-1:]) if len(unclosed) > 1 and not closed else []


def _texts_in_json(reply: str, tag: str, whole: bool) -> list[str]:
    """Texts of JSON values: the whole reply, else fenced blocks, else objects with the key `tag` in prose."""
    values = values_of(reply, whole)
    for place in (WHOLE, FENCED, PROSE):
        texts: list[str] = []
        for one in values:
            if one.place == place and (_names_tag(one.value, tag) or not (one.cut or place == PROSE)):
                texts += _strings(one.value, tag)
        if texts := _clean(texts):
            return texts
    return []


def _names_tag(value: Any, tag: str) -> bool:
    return isinstance(value, dict) and not {tag.lower(), f"{tag.lower()}s"}.isdisjoint(map(str.lower, value))


def _strings(value: Any, tag: str) -> list[str]:
    """The string field named like the tag, else like a text, else the only one; of a list, all of them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value if isinstance(item, str | dict) for text in _strings(item, tag)]
    fields = {key.lower(): field for key, field in value.items() if isinstance(field, str | list)}
    for key in (tag.lower(), f"{tag.lower()}s", *_TEXT_KEYS):
        if key in fields:
            return _strings(fields[key], tag)
    return _strings(next(iter(fields.values())), tag) if len(fields) == 1 else []


def _bare(reply: str, tag: str) -> list[str]:
    """The reply itself as a text, without a first line that ends in ":"; nothing when it does not look like one."""
    first, _, rest = reply.partition("\n")
    if first.rstrip().endswith(":") and rest.strip():
        text = rest.strip()
        one = not re.search(r"\n[ \t]*\n", text)
    else:
        text = reply
        one = "\n" not in text
    looks_broken = text.startswith(("{", "[", "<", "`")) and "{{" not in text[:80]
    mentions_tag = re.search(rf"<\s*/?\s*{re.escape(tag)}\b", reply, re.IGNORECASE)
    short = 0 < len(text) <= _LONGEST_BARE
    usable = one and short and not (looks_broken or mentions_tag or text.endswith((":", "?")))
    return [text] if usable else []
