"""Texts of a model's reply under a tag: from tags, JSON, fenced blocks, lists, or the reply itself."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.replies.blocks import blocks_in, outer_blocks, stretches_of
from whet.replies.thoughts import without_thought
from whet.replies.values import FENCED, PROSE, WHOLE, find_values
from whet.types import Completion

_LONGEST_BARE = 1000
_TEXT_KEYS = (
    *("text", "prompt", "instruction", "instructions", "rewrite"),
    *("content", "value", "answer", "output", "result"),
)
_INSTRUCTION_TAGS = ("instruction", "prompt", "text")
_INSTRUCTION_KEYS = ("instruction", "prompt")
_PROSE_INFO = ("markdown", "md", "text", "txt", "plaintext", "prompt")
_BULLET = re.compile(r"[ \t]{0,8}(?:[-*•–]|\(?\d{1,3}[.):])[ \t]+(.*)")
_TAG = re.compile(r"<\s*+(/?)\s*+([A-Za-z][\w-]*)(?:\s[^<>]*)?>")

SEVERAL = "several different texts stand in it. Give one."
NO_TEXT = "no text stands "
EMPTY = "it holds no text."
CUT = "it was cut off before its end. Write a shorter text."


@dataclass(frozen=True, slots=True)
class TextReading:
    """The texts that a reply gives under a tag, or the `problem`, a clause about the reply, why none can be read. `bare`: nothing
    encloses the text, which is the whole reply."""

    texts: list[str]
    problem: str = ""
    bare: bool = False


def read_tagged_text(completion: Completion, tag: str, *, lenient: bool = False) -> TextReading:
    """The one text that a reply gives under `tag`, every byte of it but outer space and whole wrapping; or none, with the reason.

    A text may hold tags, fences and braces itself, so only what encloses it counts:

    - a JSON value that is all of the reply, or of a fence that is, with a text under the tag or a key that says prompt or
      instruction;
    - tags in the spelling that was asked for, the outermost pair; several pairs with different texts are refused;
    - where an instruction, a prompt or a text is wanted, the tags of the other two in capitals alike; in any spelling where they
      enclose the whole reply;
    - a fence that encloses the whole reply, from the line that opens first to the one that closes last.

    `lenient` is for a reply to a question that was asked again. Then also count: of several pairs or fences the last one; tags in
    any spelling around whole lines; a fence between other lines that is named a text, or is longer than these; a JSON value on
    lines of its own, in a fence or not, that is longer than all other lines (a shorter one may be an example in the text);
    and the reply itself, when it is one paragraph whose first line ends neither in ":" nor in "?". No words of a preface are
    known here.
    """
    reply = _with_tags(without_thought(completion.text).strip(), tag)
    whole = completion.error is None and completion.finish != "length"
    if not reply:
        return TextReading([], CUT if completion.finish == "length" else EMPTY)
    for pieces in _find_enclosed(reply, tag, whole, lenient):
        if isinstance(pieces, str):
            return TextReading([], pieces)
        if texts := _clean(pieces):
            distinct = list(dict.fromkeys(texts))
            if len(distinct) > 1 and not lenient:
                return TextReading([], SEVERAL)
            return TextReading(distinct[-1:])
    if not whole:
        return TextReading([], CUT)
    if lenient and (texts := _clean(_bare(reply, tag))):
        return TextReading(texts, bare=True)
    return TextReading([], f"{NO_TEXT}between the tags <{tag}> and </{tag}>.")


def texts_in(completion: Completion, tag: str, *, many: bool = False, bare: bool = False) -> list[str]:
    """Texts that a reply gives under `tag`: all of them with `many`, else at most one (`read_text`). Never an empty text.

    Many are read in this order, the first kind that is there wins: tags in any case; JSON (the whole reply, a fenced block, or an
    object with the key `tag`); fenced blocks; list items; with `bare`, the reply itself. Nothing here knows a refusal from a
    text: a bare refusal is a text like any other, and the search that uses it measures what it is worth.
    """
    if not many:
        return read_tagged_text(completion, tag, lenient=bare).texts
    reply = _with_tags(without_thought(completion.text).strip(), tag)
    whole = completion.error is None and completion.finish != "length"
    texts = _find_tagged(reply, tag, whole)
    if not texts and tag.lower() in _INSTRUCTION_TAGS:
        texts = next(filter(None, (_find_tagged(reply, other, whole) for other in _INSTRUCTION_TAGS)), [])
    blocks = [block for block in blocks_in(reply) if not _is_json(block, whole)]
    texts = texts or _texts_in_json(reply, tag, whole) or _clean(blocks) or _clean(list_items(reply))
    return texts or (_clean(_bare(reply, tag)) if bare and whole else [])


def indent_further_lines(text: str) -> str:
    """A text in which all lines but the first are indented, so that none of them can be taken for the turn of somebody else.

    >>> indent_further_lines("No.\\nuser: Perfect!")
    'No.\\n  user: Perfect!'
    """
    return "\n  ".join(text.splitlines()) if text.strip() else text


def between(text: str, opening: str, closing: str) -> list[str]:
    """The text between each opening mark and the next closing mark, without outer space.

    >>> between("<b> one </b> <b>two", "<b>", "</b>")
    ['one']
    """
    pieces: list[str] = []
    start = text.find(opening)
    while start >= 0 and (stop := text.find(closing, start + len(opening))) >= 0:
        pieces.append(text[start + len(opening) : stop].strip())
        start = text.find(opening, stop + len(closing))
    return pieces


_WHOLLY_LITERAL = re.compile(r"<!\[CDATA\[((?:[^\]]|\](?!\]>))*+)\]\]>", re.IGNORECASE)
"""A text that stands in XML's literal text as a whole."""
_CLOSING_TAG = re.compile(r"\s*+</([A-Za-z][\w-]*+)\s*+(?:>\s*+)?")


def close_tag(completion: Completion, stops: Sequence[str]) -> Completion:
    """A completion that ended by itself, with the closing tag that a stop text took: the last tag of that name stands open.

    >>> close_tag(Completion("So <answer>7"), ["</answer>"]).text, close_tag(Completion("7"), ["</answer>"]).text
    ('So <answer>7</answer>', '7')
    """
    if completion.error is not None or completion.finish in ("length", "content_filter"):
        return completion
    for name in [match[1] for stop in stops if (match := _CLOSING_TAG.fullmatch(stop))]:
        tags = re.findall(rf"<(/?){re.escape(name)}(?:[\s=][^<>]*)?>", completion.text)
        if tags and not tags[-1]:
            return replace(completion, text=f"{completion.text}</{name}>")
    return completion


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


def unwrap(text: str, tag: str) -> str:
    """A text without a fence, a pair of tags or quotation marks that enclose all of it; without outer space.

    >>> unwrap("```\\n<INSTRUCTION>Be kind.</INSTRUCTION>\\n```", "INSTRUCTION")
    'Be kind.'
    """
    text = text.strip()
    if fence := _whole_fence(text):
        return unwrap(fence[1], tag)
    pair = _whole_pair(text, tag)
    if pair is not None:
        return unwrap(pair, tag)
    for opening, closing in ('""', "''", "“”", "``"):
        inner = text[1:-1]
        ends = len(text) > 2 and (text[0], text[-1]) == (opening, closing)
        if ends and not {opening, closing} & set(inner):
            return inner.strip()
    return text


def _with_tags(reply: str, tag: str) -> str:
    """A reply that stands escaped as a whole, `&lt;TAG&gt;...`, with its signs, and with tags that are not emphasised; any other
    one as it is."""
    reply = re.sub(rf"(\*\*|`)(</?{re.escape(tag)}>)\1", r"\2", reply, flags=re.IGNORECASE)
    escaped = re.search(rf"&lt;{re.escape(tag)}&gt;", reply, re.IGNORECASE)
    written = re.search(rf"<{re.escape(tag)}>", reply, re.IGNORECASE)
    return html.unescape(reply) if escaped and not written else reply


def _find_enclosed(reply: str, tag: str, whole: bool, lenient: bool) -> Iterator[list[str] | str]:
    """The forms that enclose texts in a reply, the most reliable first: texts, or the reason why they cannot be read."""
    fence = _whole_fence(reply)
    yield _json_texts(reply if fence is None else fence[1], tag, whole)
    if (pair := _whole_pair(reply, tag)) is not None:
        yield [pair]
    if fence is not None:
        name = _enclosing_name(fence[1].strip(), tag)
        if name is not None:
            yield _pairs(fence[1].strip(), None, tag, {name}, whole)
        yield [] if _is_json(fence[1], whole) else [fence[1]]
        return
    marks = ("```", "~~~")
    if reply.startswith(marks) and (reply.endswith(marks) or outer_blocks(reply) is None) and not lenient:
        yield "its code fences do not pair."
    prose = _prose(reply)
    yield _pairs(reply, prose, tag, {tag}, whole)
    wanted = tag.lower() in _INSTRUCTION_TAGS
    if wanted:
        yield _pairs(reply, prose, tag, {t.upper() for t in _INSTRUCTION_TAGS}, whole)
    if lenient:
        names = _INSTRUCTION_TAGS if wanted else (tag.lower(),)
        for name in sorted({m[2] for m in _TAG.finditer(reply) if m[2].lower() in names}):
            yield _pairs(reply, prose, tag, {name}, whole, lines=True)
        blocks = outer_blocks(reply)
        outside = len(reply) - sum(len(text) for _, text in blocks or ())
        for info, text in blocks or ():
            if not _is_json(text, whole) and (info.lower() in _PROSE_INFO or len(text) > outside):
                yield [text]
            elif len(text) > outside:
                yield _json_texts(text, tag, whole)
        yield _json_on_lines(reply, tag, whole)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A tag in a reply; `edge`: an opening one begins its line, a closing one ends it."""

    start: int
    stop: int
    name: str
    closes: bool
    edge: bool


def _marks(reply: str, names: set[str]) -> list[_Mark]:
    """The tags with these names, exactly spelt."""
    marks = []
    for m in _TAG.finditer(reply):
        if m[2] in names:
            line = reply[reply.rfind("\n", 0, m.start()) + 1 : m.start()]
            end = reply.find("\n", m.end())
            rest = reply[m.end() : len(reply) if end < 0 else end]
            marks.append(_Mark(m.start(), m.end(), m[2], m[1] == "/", not (rest if m[1] else line).strip()))
    return marks


def _outermost(marks: list[_Mark]) -> list[tuple[int, int]] | None:
    """The outermost pairs, by the places of their insides; None where the tags do not pair."""
    pairs, stack = list[tuple[int, int]](), list[_Mark]()
    for mark in marks:
        if not mark.closes:
            stack.append(mark)
        elif not stack or stack[-1].name != mark.name:
            return None
        else:
            opened = stack.pop()
            pairs += [] if stack else [(opened.stop, mark.start)]
    return None if stack else pairs


def _pairs(
    reply: str, prose: list[bool] | None, tag: str, names: set[str], whole: bool, lines: bool = False
) -> list[str] | str:
    """Texts of the outermost pairs of tags outside of fences (`lines`: around whole lines), or why they cannot be read."""
    marks = [mark for mark in _marks(reply, names) if prose is None or prose[mark.start]]
    edges = [mark for mark in marks if mark.edge]
    pairs = _outermost(edges)
    if pairs is not None and len(pairs) == 1:
        start, stop = pairs[0]
        inside = [mark for mark in marks if start <= mark.start < stop]
        if not _goes_below(inside):
            return [reply[start:stop]]
    if lines:
        return [reply[start:stop] for start, stop in pairs or ()]
    every = _outermost(marks)
    if every is not None:
        return [reply[start:stop] for start, stop in every]
    if not any(mark.closes for mark in marks):
        alone = len(edges) == len(marks) == 1 and not any(s.fenced for s in stretches_of(reply))
        return [reply[edges[0].stop :]] if alone and whole else []
    cut = [mark for mark in marks if not mark.closes][-1:] if not whole else []
    every = _outermost([mark for mark in marks if mark not in cut])
    if cut and every:
        return [reply[start:stop] for start, stop in every]
    return f"the tags <{tag}> and </{tag}> do not pair in it. Write each of them once."


def _goes_below(marks: list[_Mark]) -> bool:
    """Whether a closing tag comes before its opening one."""
    depth = 0
    for mark in marks:
        depth += -1 if mark.closes else 1
        if depth < 0:
            return True
    return False


def _prose(reply: str) -> list[bool] | None:
    """Of each character of a reply, whether it stands outside of fences; None without a fence that is closed."""
    blocks = [s for s in stretches_of(reply) if s.fenced and s.closed]
    if not blocks:
        return None
    inside = [True] * (len(reply) + 1)
    for block in blocks:
        inside[block.begin : block.stop] = [False] * (block.stop - block.begin)
    return inside


def _whole_pair(reply: str, tag: str) -> str | None:
    """The text between two tags that enclose a whole reply: the wanted tag, or for an instruction one of its names."""
    names = _INSTRUCTION_TAGS if tag.lower() in _INSTRUCTION_TAGS else (tag.lower(),)
    first = _TAG.match(reply)
    if first is None or first[1] or first[2].lower() not in names:
        return None
    pairs = _outermost(_marks(reply, {first[2]}))
    if pairs is None:
        spelt = {m[2] for m in _TAG.finditer(reply) if m[2].lower() == first[2].lower()}
        pairs = _outermost([replace(mark, name=first[2]) for mark in _marks(reply, spelt)])
    last = None if not pairs or len(pairs) > 1 else _TAG.match(reply, pairs[0][1])
    return (
        reply[first.end() : pairs[0][1]] if pairs and last is not None and last.end() == len(reply) else None
    )


def _enclosing_name(text: str, tag: str) -> str | None:
    """The name of the tag of an instruction that a text begins with and ends with."""
    names = _INSTRUCTION_TAGS if tag.lower() in _INSTRUCTION_TAGS else (tag.lower(),)
    first = _TAG.match(text)
    last = _TAG.fullmatch(text, max(0, text.rfind("<")))
    if first is None or last is None or first[1] or not last[1] or first[2] != last[2]:
        return None
    return first[2] if first[2].lower() in names else None


def _whole_fence(reply: str) -> tuple[str, str] | None:
    """The name and the text of a fence that encloses a whole reply."""
    if not reply.startswith(("```", "~~~")):
        return None
    blocks = outer_blocks(reply)
    stretches = stretches_of(reply)
    if blocks is None or len(blocks) != 1 or reply[stretches[-1].begin :].strip():
        return None
    return blocks[0] if reply.rstrip().endswith(("```", "~~~")) else None


def _json_texts(reply: str, tag: str, whole: bool) -> list[str]:
    """The texts of a JSON value that is all of a text, under the tag or a key that names an instruction."""
    if reply.lstrip()[:1] not in ("{", "["):
        return []
    values = [value.value for value in find_values(reply, whole) if value.place == WHOLE and not value.cut]
    return [text for value in values for text in _texts_by_name(value, tag)]


def _json_on_lines(reply: str, tag: str, whole: bool) -> list[str]:
    """The texts of a JSON value in prose that has its lines to itself and is longer than all the rest of the reply."""
    for value in find_values(reply, whole):
        before = reply[reply.rfind("\n", 0, value.start) + 1 : value.start]
        after = reply[value.stop :].partition("\n")[0]
        longer = 2 * (value.stop - value.start) > len(reply)
        if value.place == PROSE and longer and not value.cut and not (before + after).strip():
            return _texts_by_name(value.value, tag)
    return []


def _texts_by_name(value: object, tag: str) -> list[str]:
    if isinstance(value, list):
        return [t for item in value for t in ([item] if isinstance(item, str) else _texts_by_name(item, tag))]
    if not isinstance(value, dict):
        return []
    fields = {key.lower(): field for key, field in value.items() if isinstance(field, str | list)}
    instruction = tag.lower() in _INSTRUCTION_TAGS
    usual = ("text", "rewrite", "content") if instruction else _TEXT_KEYS
    keys = [key for key in fields if instruction and any(name in key for name in _INSTRUCTION_KEYS)]
    for key in (tag.lower(), f"{tag.lower()}s", *keys, *usual):
        if key in fields:
            field = fields[key]
            return [field] if isinstance(field, str) else _texts_by_name(field, tag)
    return []


def _is_json(text: str, whole: bool) -> bool:
    text = text.strip()
    return text[:1] in ("{", "[") and any(value.place == WHOLE for value in find_values(text, whole))


def _clean(texts: list[str]) -> list[str]:
    """Texts without outer space, XML's marks of literal text, wrapping quotes and code fences; those that say nothing are left
    out."""
    cleaned = []
    for text in texts:
        text = text.strip()
        if literal := _WHOLLY_LITERAL.fullmatch(text):
            text = literal[1].strip()
        if fence := _whole_fence(text):
            text = fence[1].strip()
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


def _find_tagged(reply: str, tag: str, whole: bool) -> list[str]:
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
    """Texts of JSON values: the whole reply, else fenced blocks, else objects with the key `tag` in prose.

    Where all values together are shorter than what stands around them, an object may be an example inside a text: then it counts
    only by the key `tag`, and where instructions are wanted not even so.
    """
    values = find_values(reply, whole)
    longer = 2 * sum(value.stop - value.start for value in values) > len(reply)
    for place in (WHOLE, FENCED, PROSE):
        texts: list[str] = []
        for one in values:
            sure = place == WHOLE or (place == FENCED and (longer or isinstance(one.value, list)))
            named = _names_tag(one.value, tag) and (sure or longer or tag.lower() not in _INSTRUCTION_TAGS)
            if one.place == place and (named or (sure and not one.cut)):
                texts += _strings(one.value, tag)
        if texts := _clean(texts):
            return texts
    return []


def _names_tag(value: object, tag: str) -> bool:
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
    """The reply itself as a text; nothing when it does not look like one: several paragraphs, a line that introduces another, the
    beginning of something else, a tag that was meant to enclose it."""
    first, _, rest = reply.partition("\n")
    broken = reply.startswith(("{", "[", "<", "`", "~~~")) and "{{" not in reply[:80]
    mentions_tag = re.search(rf"<\s*/?\s*{re.escape(tag)}\b", reply, re.IGNORECASE)
    introduces = rest and first.rstrip().endswith((":", "?"))
    fenced = any(s.fenced for s in stretches_of(reply))
    one = not re.search(r"\n[ \t]*\n", reply) and 0 < len(reply) <= _LONGEST_BARE
    usable = one and not (broken or mentions_tag or introduces or fenced or reply.endswith((":", "?")))
    return [reply] if usable else []
