"""JSON values of a model's reply: as they stand, from fenced blocks and from prose; what is broken is repaired by json-repair.

What is cut off loses its unfinished part. The time is close to linear in the length of a reply, whatever it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex

import json_repair

from whet.replies.blocks import parts_of

_LONGEST = 1_000_000
_DEEPEST = 60
_LONGEST_BROKEN = 100_000
_READS = 5

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>[ \t]*(?:\n|\Z)", re.IGNORECASE)

_BRACKET = re.compile(r"[\[{]")
_BRACKETS = re.compile(r"[\[\]{}]")
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+("?)|[\[\]{}]', re.DOTALL)
_TOKEN = re.compile(r'\s*+(?:([\[\]{}:,])|("(?:[^"\\]|\\.)*+")|([-+.\w]++))', re.DOTALL)
_UNFINISHED_STRING = re.compile(r'\s*+"(?:[^"\\]|\\.)*+\\?\Z', re.DOTALL)
_STRICT = re.compile(r'\{\s*+["}]|\[\s*+["\[{\]\d\-tfnNI]')
_LIKE_JSON = re.compile(r"""\{\s*+(?:["'“}/#]|[^\W\d]\w{0,80}+\s*+:)|\[\s*+["'“\[{\]/#]""")
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(strict=False)

WHOLE, FENCED, PROSE = range(3)


def without_thought(text: str) -> str:
    """A reply without the thinking that some models put before it. Thinking that never ends is all of the reply.

    >>> without_thought("<think>Is 3 right? Yes.</think> 3")
    '3'
    """
    text = text.strip()
    while opening := _THOUGHT.match(text):
        closing = re.compile(rf"</{opening.group(1)}>", re.IGNORECASE).search(text, opening.end())
        text = text[closing.end() :].strip() if closing else ""
    if not text.startswith(("{", "[", "<", "`", "~")):  # some models leave out the opening tag
        end = _THOUGHT_END.search(text)
        if end and not _THOUGHT.search(text, 0, end.start()):
            text = text[end.end() :].strip()
    return text


def json_values(text: str, *, whole: bool = True) -> list[Any]:
    """The JSON objects and lists of a reply, the most trustworthy first.

    That is the whole reply, then fenced blocks, then what stands in prose: objects and lists that hold an object, then
    other lists. Of several in fences or in prose the last one is first: what is quoted comes before what is concluded.
    Thinking before the reply is left out.

    Broken JSON is repaired: single quotes, trailing commas, comments, line ends in strings, missing brackets. Of JSON
    that is cut off, complete values stay and the unfinished one goes; an unfinished item of a list goes with all that
    it holds. `whole=False` says that the reply was cut off, so that a number at its end may be half of one.

    >>> json_values("I take: {'a': [1, 2,],}")
    [{'a': [1, 2]}]
    >>> json_values('{"found": [{"id": 1}, {"id": 2}, {"id": 3, "te', whole=False)
    [{'found': [{'id': 1}, {'id': 2}]}]
    """
    return [one.value for one in sorted(values_of(without_thought(text[:_LONGEST]), whole), key=_rank)]


@dataclass(frozen=True, slots=True)
class Value:
    """An object or a list, where it starts, where it stands, and whether its end was cut off."""

    value: Any
    start: int
    place: int
    cut: bool = False


def _rank(one: Value) -> tuple[int, bool, int]:
    holds_object = isinstance(one.value, dict) or any(isinstance(v, dict) for v in one.value)
    return one.place, one.place == PROSE and not holds_object, -one.start


def values_of(reply: str, whole: bool) -> list[Value]:
    """The objects and lists of a reply, in the order in which they stand there."""
    try:
        value = json.loads(reply, strict=False)
    except (ValueError, RecursionError):
        return list(_scanned(reply, whole))
    return [Value(value, 0, WHOLE)] if isinstance(value, dict | list) and not _is_deep(value) else []


@dataclass
class _Allowance:
    """How much of a reply may still be read again after a bracket that led nowhere: in characters, and in single reads
    of a character by json-repair.
    """

    fast: int
    slow: int
    reads: int


def _scanned(reply: str, whole: bool) -> Iterator[Value]:
    """Objects and lists from left to right. What starts inside another one is part of it."""
    allowance = _Allowance(40 * len(reply) + 100_000, 4 * len(reply) + 10_000, _READS * len(reply) + 1000)
    begin, stop = len(reply) - len(reply.lstrip()), len(reply.rstrip())
    parts = parts_of(reply)
    part, at = next(parts), 0
    while (bracket := _BRACKET.search(reply, at)) and allowance.fast > 0:
        start = bracket.start()
        while start >= part.end:
            part = next(parts)
        value, end, cut = _decoded(reply, start, allowance)
        if value is None and allowance.slow > 0:
            value, end, cut = _mended(reply, start, part.stop, whole or part.stop < len(reply), allowance)
        if value is None:
            at = start + 1
            continue
        if start == begin and end >= stop:
            place = WHOLE
        elif part.fenced and part.begin == start and end >= len(reply[: part.stop].rstrip()):
            place = FENCED
        else:
            place = PROSE
        if value or not cut:
            yield Value(value, start, place, cut)
        at = end


def _decoded(reply: str, start: int, allowance: _Allowance) -> tuple[Any, int, bool]:
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


def _mended(reply: str, start: int, stop: int, whole: bool, allowance: _Allowance) -> tuple[Any, int, bool]:
    """The value that starts at a bracket when it is cut off at `stop` or broken; None when it is neither."""
    if _STRICT.match(reply, start):
        depth, value, end = _prefix(reply, start, stop, whole)
        allowance.slow -= end - start + 100
        if value is not None:
            return _without_cut(value, depth, root=True), stop, True
    if not _LIKE_JSON.match(reply, start):
        return None, start, False
    closed, deepest, end = _matched(reply, start, stop)
    allowance.slow -= end - start + 100
    if deepest > _DEEPEST or allowance.slow < 0 or end - start > _LONGEST_BROKEN:
        return None, start, False
    span = reply[start:end]
    value = _repaired(span, allowance)
    if not isinstance(value, dict if reply[start] == "{" else list) or _is_deep(value):
        return None, start, False
    span = span.rstrip()
    cut = not (closed or (whole and span.endswith(('"', "'", "}", "]"))))
    if cut:
        unfinished, leaf = _open(value, len(span) - len(span.rstrip("}]")))
        value = _without_cut(value, unfinished, leaf, root=True)
    return value, end, cut


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


def _repaired(span: str, allowance: _Allowance) -> Any:
    try:
        value = json_repair.loads(_Metered.of(span, allowance), skip_json_loads=True)
        return json.loads(json.dumps(value))  # plain texts
    except (ValueError, RecursionError):
        return None


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


def _prefix(reply: str, start: int, stop: int, whole: bool) -> tuple[int, Any, int]:
    """A value that is right as far as it goes and that is cut off at `stop`: how many containers are open, the value,
    where reading ended. The value is None when something else than `stop` ended it.
    """
    stack: list[tuple[Any, str | None]] = []  # open containers, and the key under which the next value goes
    at, before, key = start, "", None
    root: Any = None
    while match := _TOKEN.match(reply, at, stop):
        mark, string, bare = match.groups()
        top = stack[-1][0] if stack else None
        wants_value = before in ("", "[", ":") or (before == "," and isinstance(top, list))
        wants_key = isinstance(top, dict) and before in ("{", ",")
        if bare and match.end() == stop and not (whole and _is_literal(bare)):
            break
        if mark in ("[", "{") and wants_value:
            value: Any = [] if mark == "[" else {}
            _put(top, key, value)
            root = value if root is None else root
            stack.append((value, key))
            key, before = None, mark
        elif mark in ("]", "}") and stack and mark == ("]" if isinstance(top, list) else "}"):
            if before not in ("value", "[", "{"):
                return 0, None, at
            _, key = stack.pop()
            before = "value"
        elif mark == "," and before == "value":
            before = ","
        elif mark == ":" and before == "key":
            before = ":"
        elif (string or bare) and wants_value:
            try:
                _put(top, key, json.loads(string or bare, strict=False))
            except ValueError:
                return 0, None, at
            before = "value"
        elif string and wants_key:
            try:
                key = json.loads(string, strict=False)
            except ValueError:
                return 0, None, at
            before = "key"
        else:
            return 0, None, at
        at = match.end()
        if not stack or len(stack) > _DEEPEST:
            return 0, None, at
    rest = reply[at:stop].strip()
    if rest and not (_TOKEN.match(reply, at, stop) or _UNFINISHED_STRING.match(reply, at, stop)):
        return 0, None, at
    return (0 if whole and before == "value" and not rest else len(stack)), root, stop


def _is_literal(token: str) -> bool:
    try:
        json.loads(token)
    except ValueError:
        return False
    return True


def _put(container: Any, key: str | None, value: Any) -> None:
    if isinstance(container, list):
        container.append(value)
    elif container is not None:
        container.pop(key, None)  # the last member is the last one read, also when a key comes twice
        container[key] = value


def _without_cut(value: Any, unfinished: int, leaf: bool = False, *, root: bool = False) -> Any:
    """A value without what was cut off. Along the last members, `unfinished` containers are open; `leaf` says that the
    last scalar in the deepest of them is cut as well.

    An unfinished item of a list goes, with one exception: a list around the one object that holds the items.
    """
    if not value or unfinished < 1 or (unfinished == 1 and not leaf):
        return value
    last = next(reversed(value)) if isinstance(value, dict) else len(value) - 1
    if unfinished == 1:
        del value[last]
        return value
    child = _without_cut(value[last], unfinished - 1, leaf)
    if isinstance(value, list) and not (root and len(value) == 1 and _holds_items(child)):
        del value[last]
    else:
        value[last] = child
    return value


def _holds_items(value: Any) -> bool:
    members = value.values() if isinstance(value, dict) else ()
    return any(isinstance(m, list) and any(isinstance(item, dict) for item in m) for m in members)


def _open(value: Any, closed: int) -> tuple[int, bool]:
    """How many containers are open along the last members of a repaired value when `closed` brackets stand at its end,
    and whether the last scalar is cut.
    """
    depth = 0
    while isinstance(value, dict | list):
        depth += 1
        if not value:
            break
        value = value[next(reversed(value))] if isinstance(value, dict) else value[-1]
    return max(depth - closed, 1), closed == 0 and not isinstance(value, dict | list)


def _matched(reply: str, start: int, stop: int) -> tuple[bool, int, int]:
    """Whether the bracket at `start` is closed before `stop`, how deep brackets are nested, and where it ends.

    A closing bracket that does not fit the innermost open one closes the next one that it fits.
    """
    stack: list[str] = []
    marks, at, deepest = _STRUCTURE, start, 0
    while match := marks.search(reply, at, stop):
        mark, at = match.group(), match.end()
        if mark.startswith('"'):
            if not match.group(1):  # it has no second one: from here on quotation marks say nothing
                marks, at = _BRACKETS, match.start() + 1
        elif mark in _CLOSING:
            stack.append(_CLOSING[mark])
            deepest = max(deepest, len(stack))
            if deepest > _DEEPEST:
                return False, deepest, at
        elif mark in stack:
            while stack.pop() != mark:
                pass
            if not stack:
                return True, deepest, at
    return False, deepest, stop
