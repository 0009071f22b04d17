"""From a model's reply to the texts it was asked for. A reply is data: read, never executed or formatted."""

from __future__ import annotations

import json
import re
from typing import Any

from whet.prompt.slots import slots
from whet.types import Completion

_LONGEST_BARE = 1000
_TEXT_KEYS = (
    "text",
    "prompt",
    "instruction",
    "instructions",
    "rewrite",
    "content",
    "value",
    "answer",
    "output",
    "result",
)

_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)\n?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_BULLET = re.compile(r"[ \t]{0,8}(?:[-*•–]|\(?\d{1,3}[.):])[ \t]+(.*)")
_CHATTER = re.compile(
    r"i['’]?m sorry|i am sorry|sorry|i apologi[sz]e|apologies|unfortunately|as an? (?:ai|language|assistant)|"
    r"i (?:can(?:no|['’])?t|could not|couldn['’]t|won['’]t|will not|am (?:unable|not able)|don['’]t|do not|"
    r"would|will|need|have|think)\b|(?:sure|certainly|of course|absolutely|okay|ok|great|let me)\b|thank|"
    r"here(?:['’]s| is| are)\b|below (?:is|are)\b|let['’]s (?:see|look|start)\b|"
    r"the (?:following|new|improved|revised|rewritten)\b",
    re.IGNORECASE,
)


def texts_in(completion: Completion, tag: str, *, many: bool = False, bare: bool = False) -> list[str]:
    """Texts that a reply gives under `tag`: all of them with `many`, else at most one. Never an empty text.

    Read in this order, the first kind that is there wins: tags in any case; JSON (the whole reply, a
    fenced block, or an object with the key `tag`); fenced blocks; with `many`, list items; with `bare`,
    the reply itself when it is short, of one paragraph, and neither a refusal nor a preamble.
    When one text is wanted and several stand in tags, the last one counts: drafts come before it.
    """
    reply = _THOUGHT.sub("", completion.text).strip()
    whole = completion.error is None and completion.finish != "length"
    found = _tagged(reply, tag, whole) or _json(reply, tag, many)
    if not found:
        found = _clean([m.group(2) for m in _FENCED.finditer(reply)])
    if not found and many:
        found = _clean(_items(reply))
    if not found and bare and whole and _is_bare(reply, tag):
        found = _clean([reply])
    return found if many else found[-1:]


def _clean(texts: list[str]) -> list[str]:
    """Texts without outer space, wrapping quotes and code fences; those that say nothing are left out."""
    cleaned = []
    for text in texts:
        text = text.strip()
        fenced = _FENCED.fullmatch(text)
        if fenced:
            text = fenced.group(2).strip()
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
    found = _clean(re.findall(pattern, reply, re.DOTALL | re.IGNORECASE))
    if found or not whole:
        return found
    unclosed = re.split(opening, reply, flags=re.IGNORECASE)
    closed = re.search(rf"<\s*/\s*{name}\s*>", reply, re.IGNORECASE)
    return _clean(unclosed[-1:]) if len(unclosed) > 1 and not closed else []


def _json(reply: str, tag: str, many: bool) -> list[str]:
    """Texts of a JSON value: the whole reply, a fenced block, or an object in prose with the key `tag`."""
    for source in (reply, *(m.group(2) for m in _FENCED.finditer(reply))):
        try:
            value = json.loads(source)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list) and (found := _clean(_strings(value, tag))):
            return found
    decoder, found = json.JSONDecoder(), []
    for match in re.finditer(r"\{", reply):
        try:
            value, _ = decoder.raw_decode(reply, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and tag.lower() in {key.lower() for key in value}:
            found += _strings(value, tag)
    return _clean(found)


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


def _items(reply: str) -> list[str]:
    """Items of a list, one per bullet or number; indented lines continue an item, any other line ends it."""
    items: list[str] = []
    inside = False
    for line in reply.splitlines():
        bullet = _BULLET.fullmatch(line)
        if bullet:
            items.append(bullet.group(1))
            inside = True
        elif inside and line[:1] in (" ", "\t") and line.strip():
            items[-1] += "\n" + line.strip()
        else:
            inside = False
    return items


def _is_bare(reply: str, tag: str) -> bool:
    one_paragraph = not re.search(r"\n\s*\n", reply)
    looks_broken = reply.startswith(("{", "[", "<", "`")) and not slots(reply[:80])
    mentions_tag = re.search(rf"<\s*/?\s*{re.escape(tag)}\b", reply, re.IGNORECASE)
    chatter = _CHATTER.match(reply.lstrip("\"'*_ "))
    return bool(
        0 < len(reply) <= _LONGEST_BARE
        and one_paragraph
        and not (looks_broken or mentions_tag or chatter)
        and not reply.endswith((":", "?"))
    )
