"""JSON values of a model's reply: as they stand, from fenced blocks and from prose; what is broken is repaired by json-repair.

A reply that was cut off loses its unfinished part. The time is close to linear in the length of a reply, whatever it holds.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import json_repair

from whet.replies.blocks import stretches_of
from whet.replies.marked import without_literal_marks
from whet.replies.thoughts import without_thought

_LONGEST = 1_000_000
_DEEPEST = 60
_LONGEST_BROKEN = 100_000
_READS = 5

_LONGEST_YAML = 30_000
_TYPOGRAPHIC = str.maketrans("“”„", '"""')
_YAML_KEY = re.compile(r"^(?:- )?[^\W\d]\w{0,40}:(?:\s|$)", re.MULTILINE)
_YAML_NAMES = re.compile(r"(?:^|[\s\[,:-])[&*]\w")

_BRACKET = re.compile(r"[\[{]")
_BLANK = re.compile(r"\s*+")
_BRACKETS = re.compile(r"[\[\]{}]")
_MARK = re.compile(
    r"""[\[\]{}:,]|"(?:[^"\\]|\\.)*+("?+)|(?<=[\[{:,\s])'(?:[^'\\\n]|\\.)*+'(?=\s*+[\]}:,])|[-+.\w]++""",
    re.DOTALL,
)
_LITERAL = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")
_STRICT = re.compile(r'\{\s*+["}]|\[\s*+["\[{\]\d\-tfnNI]')
_LIKE_JSON = re.compile(r"""\{\s*+(?:["'“}/#]|[^\W\d]\w{0,80}+\s*+:)|\[\s*+["'“\[{\]/#]""")
_BARE_NUMBER = re.compile(
    r"""("(?:[^"\\]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|[{,]\s*+[^\W\d]\w*+)(\s*+:\s*+)"""
    r"""([-+]?\d(?:[^\s\[\]{},:;"'#/]|/(?![/*])|[ \t]++(?![#}\],\n]|/[/*]))++)(?=\s*+[,}\n])""",
    re.DOTALL,
)
"""A member whose value begins as a number and goes on, without quotation marks: `"score": 8 out of 10`."""
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(strict=False)

WHOLE, FENCED, PROSE = range(3)


def json_values(text: str, *, whole: bool = True) -> list[Any]:
    """The JSON objects and lists of a reply, the most trustworthy first.

    The order is the whole reply, then fenced blocks, then JSON in prose: objects and lists that hold an object, then other
    lists. Of several in fences or in prose the last one comes first, because a model quotes before it concludes. Thinking
    before the reply is left out.

    Broken JSON is repaired: single quotes, trailing commas, comments, line ends in strings, missing brackets. Of JSON
    that is cut off, complete values stay and the unfinished one goes; an unfinished item of a list goes with all that
    it holds. `whole=False` says that the reply was cut off, so that a number at its end may be half of one.

    >>> json_values("I take: {'a': [1, 2,],}")
    [{'a': [1, 2]}]
    >>> json_values('{"found": [{"id": 1}, {"id": 2}, {"id": 3, "te', whole=False)
    [{'found': [{'id': 1}, {'id': 2}]}]
    """
    return [value.value for value in placed_values(text, whole=whole)[1]]


def placed_values(text: str, *, whole: bool = True) -> tuple[str, list[Value]]:
    """The reply that `json_values` reads, without thinking and what quotes all of it, and its values with their places there;
    YAML takes no place."""
    reply = _plain_quotes(without_thought(text[:_LONGEST]))
    reply += " " if text[-1:].isspace() else ""  # it says that a number at the end is not cut
    values = sorted(find_values(reply, whole), key=_rank)
    if any(any(records(value.value)) for value in values):
        return reply, values
    return reply, [Value(value, 0, 0, WHOLE) for value in _yaml(reply)] or values


def _plain_quotes(reply: str) -> str:
    """A reply as it was before something quoted it: JSON in a JSON string, in XML's literal text, escaped for HTML, or with
    typographic quotes."""
    if reply.startswith('"') and reply.endswith('"'):
        try:
            inner = json.loads(reply, strict=False)
        except ValueError:
            inner = None
        if isinstance(inner, str) and inner.strip()[:1] in ("{", "["):
            reply = inner.strip()
    reply = reply if _is_json(reply) else without_literal_marks(reply)
    if '"' not in reply and "&quot;" in reply:
        reply = html.unescape(reply)
    plain = reply.translate(_TYPOGRAPHIC)
    return plain if plain != reply and _is_json(plain) and not _is_json(reply) else reply


def _is_json(reply: str) -> bool:
    """Whether what lies between the outermost brackets of a reply is JSON."""
    begin = next((n for n, c in enumerate(reply) if c in "{["), 0)
    end = max(map(reply.rfind, "}]"))
    try:
        json.loads(reply[begin : end + 1], strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _yaml(reply: str) -> list[object]:
    """The YAML with entries of a reply without a JSON object: its fenced block, or what follows the first key of a line."""
    fenced = [stretch for stretch in stretches_of(reply) if stretch.fenced]
    text = reply[fenced[-1].begin : fenced[-1].stop] if fenced else reply
    key = _YAML_KEY.search(text)
    text = text[key.start() :] if key else ""
    if not text or len(text) > _LONGEST_YAML or _YAML_NAMES.search(text):
        return []
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if any(isinstance(item, dict | list) for item in inner) else []


def records(value: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """The innermost objects of a JSON value, in order: entries count wherever an answer puts them, whatever the keys around them.

    >>> list(records({"result": {"entries": [{"id": 1}, {"id": 2}]}}))
    [{'id': 1}, {'id': 2}]
    """
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    records_inside = [record for item in inner if depth < _DEEPEST for record in records(item, depth + 1)]
    yield from records_inside or ([value] if isinstance(value, dict) else [])


@dataclass(frozen=True, slots=True)
class Value:
    """An object or a list, where it starts and stops, where it stands, and whether its end was cut off."""

    value: Any
    start: int
    stop: int
    place: int
    cut: bool = False


def _rank(one: Value) -> tuple[int, bool, int]:
    holds_object = isinstance(one.value, dict) or any(isinstance(v, dict) for v in one.value)
    return one.place, one.place == PROSE and not holds_object, -one.start


def find_values(reply: str, whole: bool) -> list[Value]:
    """The objects and lists of a reply, in the order in which they stand there."""
    try:
        value = json.loads(reply, strict=False)
    except (ValueError, RecursionError):
        return list(_scan(reply, whole))
    return (
        [Value(value, 0, len(reply), WHOLE)] if isinstance(value, dict | list) and not _is_deep(value) else []
    )


@dataclass
class _Allowance:
    """The part of a reply that may still be read again after a bracket that led nowhere: in characters, and in single reads of
    a character by json-repair."""

    fast: int
    slow: int
    reads: int


def _scan(reply: str, whole: bool) -> Iterator[Value]:
    """Objects and lists from left to right. One that starts inside another is part of it."""
    allowance = _Allowance(40 * len(reply) + 100_000, 4 * len(reply) + 10_000, _READS * len(reply) + 1000)
    begin, stop = len(reply) - len(reply.lstrip()), len(reply.rstrip())
    stretches = iter(stretches_of(reply))
    here, at = next(stretches), 0
    while (bracket := _BRACKET.search(reply, at)) and allowance.fast > 0:
        start = bracket.start()
        while start >= here.end:
            here = next(stretches)
        value, end, cut = _decode_at(reply, start, allowance)
        if value is None and allowance.slow > 0:
            value, end, cut = _mend(reply, start, here.stop, whole or here.stop < len(reply), allowance)
        if value is None:
            at = start + 1
            continue
        if start == begin and end >= stop:
            place = WHOLE
        elif here.fenced and _first(reply, here.begin) == start and end >= len(reply[: here.stop].rstrip()):
            place = FENCED
        else:
            place = PROSE
        if value or not cut:
            yield Value(value, start, end, place, cut)
        at = end


def _first(reply: str, start: int) -> int:
    """The position of the first character that is not white space."""
    blank = _BLANK.match(reply, start)
    return blank.end() if blank else start


def _decode_at(reply: str, start: int, allowance: _Allowance) -> tuple[object, int, bool]:
    """The value that starts at a bracket when it is JSON as it stands, and where it ends."""
    if not _STRICT.match(reply, start):
        return None, start, False
    try:
        value, end = _DECODER.raw_decode(reply, start)
    except json.JSONDecodeError as error:
        allowance.fast -= error.pos - start + error.pos // 20 + 10  # the error counts the lines before it
        return None, start, False
    except (ValueError, RecursionError):
        allowance.fast -= 20_000
        return None, start, False
    if _is_deep(value):
        allowance.fast -= end - start
        return None, start, False
    return value, end, False


def _mend(reply: str, start: int, stop: int, whole: bool, allowance: _Allowance) -> tuple[object, int, bool]:
    """The value that starts at a bracket when it is cut off at `stop` or broken; None when it is neither."""
    like, strict = _LIKE_JSON.match(reply, start), _STRICT.match(reply, start)
    if not (like or strict):
        return None, start, False
    outline = _outline_value(reply, start, stop)
    allowance.slow -= outline.end - start + 100
    if outline.deep or allowance.slow < 0 or not (like or outline.stack):
        return None, start, False
    if outline.stack:
        value = _complete_value(reply, start, outline, whole, allowance if like else None)
    else:
        value = _repair(reply[start : outline.end], allowance)
    right = isinstance(value, dict if reply[start] == "{" else list) and not _is_deep(value)
    if not right or (outline.broken and not value):
        return None, start, False
    return value, outline.end, bool(outline.stack)


@dataclass
class _Outline:
    """The brackets and members of a value that is not right JSON.

    `stack`: the brackets that are open at its `end`, and where they stand; empty when it is closed. `complete`: behind the
    last member of the innermost of these that is there as a whole. `literal`: behind the last number, true, false or null,
    which is half of one perhaps where the reply was cut off. `broken`: a word or a text stands where none can be.
    """

    end: int
    stack: list[tuple[str, int]]
    complete: int
    literal: int = 0
    deep: bool = False
    broken: bool = False


def _outline_value(reply: str, start: int, stop: int) -> _Outline:
    """The outline of the value at `start`. A closing bracket that does not fit the innermost open one closes the next one
    that it fits. From a quotation mark that has no second one on, only brackets count.
    """
    now, cut, before = _Outline(start, [], start), None, ""
    marks = _MARK
    while match := marks.search(reply, now.end, stop):
        mark, now.end = match.group(), match.end()
        top = now.stack[-1][0] if now.stack else ""
        if mark in _CLOSING:
            now.stack.append((mark, match.start()))
            now.complete, before = now.end, mark
            if len(now.stack) > _DEEPEST:
                now.deep = True
                return now
        elif mark in ("]", "}"):
            if any(_CLOSING[opening] == mark for opening, _ in now.stack):
                while _CLOSING[now.stack.pop()[0]] != mark:
                    pass
                now.complete, before = now.end, ""
                if not now.stack:
                    return now
        elif mark in (",", ":"):
            now.complete, before = match.start() if mark == "," else now.complete, mark
        elif match.group(1) == "":  # a text without an end
            cut = replace(now, stack=[*now.stack], end=stop)
            marks, now.end = _BRACKETS, match.start() + 1
        elif before == ":" or (top == "[" and before in ("[", ",")):
            if mark[0] in "\"'":
                now.complete = now.end
            elif _LITERAL.fullmatch(mark):
                now.literal = now.end
            before = ""
        else:
            now.broken = now.broken or before not in ("{", ",")
            before = "key"
    return cut or replace(now, end=stop)


def _complete_value(
    reply: str, start: int, outline: _Outline, whole: bool, allowance: _Allowance | None
) -> object:
    """The value of an outline that is not closed, without what was cut off.

    An unfinished item of a list goes with all that it holds, with one exception: a list around the one object that holds
    the items. With an `allowance` it is repaired where it is broken as well.
    """
    stack, stop = outline.stack, len(reply[: outline.end].rstrip())
    if outline.literal == stop and (whole or stop < outline.end):
        outline.complete = stop
    first = False
    if not (whole and outline.complete == stop):
        for number, (opening, at) in enumerate(stack[:-1]):
            child = stack[number + 1][1]
            if opening == "[" and (number or reply[at + 1 : child].strip()):
                outline.complete, stack = child, stack[: number + 1]
                break
            first = first or opening == "["
    text = reply[start : outline.complete].rstrip().removesuffix(",")
    text += "".join(_CLOSING[opening] for opening, _ in reversed(stack))
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        value = None if allowance is None else _repair(text, allowance)
    return [] if first and isinstance(value, list) and not any(map(_holds_items, value)) else value


class _Metered(str):
    """A text that may be read a limited number of times, and so may what is made of its parts. On some broken strings
    json-repair reads ahead without end.
    """

    allowance: _Allowance

    @classmethod
    def of(cls, text: str, allowance: _Allowance) -> _Metered:
        metered = cls(text)
        metered.allowance = allowance
        return metered

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        self.allowance.reads -= 1
        if self.allowance.reads < 0:
            raise ValueError("read too often")
        part = super().__getitem__(at)
        return _Metered.of(part, self.allowance) if isinstance(at, slice) else part

    def __add__(self, other: str) -> str:
        return _Metered.of(super().__add__(other), self.allowance)


def _repair(span: str, allowance: _Allowance) -> object:
    if len(span) > _LONGEST_BROKEN:
        return None
    span = _BARE_NUMBER.sub(_quote_bare_number, span)
    try:
        value = json_repair.loads(_Metered.of(span, allowance), skip_json_loads=True)
        return json.loads(json.dumps(value))  # plain texts
    except (ValueError, RecursionError):
        return None


def _quote_bare_number(match: re.Match[str]) -> str:
    """A member with its value as a text where that is more than a number: json-repair takes the number and drops the rest."""
    name, colon, value = match.groups()
    return match.group() if _LITERAL.fullmatch(value) else f'{name}{colon}"{value}"'


def _is_deep(value: Any) -> bool:
    """Whether containers are nested more than 60 deep."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _holds_items(value: object) -> bool:
    members = value.values() if isinstance(value, dict) else ()
    return any(isinstance(m, list) and any(isinstance(item, dict) for item in m) for m in members)
