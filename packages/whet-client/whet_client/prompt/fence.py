"""The fence: named editable regions of a text, found by a parser and checked after every edit.

A region stands between `<!-- whet:begin -->` (or `<!-- whet:begin NAME -->`) and `<!-- whet:end -->`.
Markers never reach a model. A marker that stands on a line of its own disappears with its line. Front matter, which tools
write above a text for themselves, never reaches a model either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from whet_client.errors import UsageError

MARKER = re.compile(r"<!--[ \t]*whet:(begin|end)(?:[ \t]+([\w.-]+))?[ \t]*-->")
LOOKS_LIKE_MARKER = re.compile(r"<!--\s*whet:", re.IGNORECASE)
DEFAULT_REGION = "instructions"
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\r?\n((?:[^\n]*\n)*?)(?:---|\.\.\.)[ \t]*(?:\r?\n(?:[ \t]*\r?\n)*|\Z)"
)
_ENTRY = re.compile(r"[a-z][\w.-]*[ \t]*:(?:[ \t]|\Z)")
_BELOW = re.compile(r"[ \t]|#|-(?:[ \t]|\Z)|[\]}]")
"""The beginnings of lines of YAML that are not entries: continuations of an entry above, or comments."""


@dataclass(frozen=True, slots=True)
class Region:
    """An editable region: message number, name, and where its text lies in the message."""

    name: str
    message: int
    start: int
    stop: int


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _eats_line(text: str, start: int, stop: int) -> int:
    """Offset after the newline that follows a marker which stands on a line of its own, else `stop`."""
    begins_line = text.rfind("\n", 0, start) + 1
    if text[begins_line:start].strip(" \t"):
        return stop
    rest = re.compile(r"[ \t]*(?:\r\n|\n|\Z)").match(text, stop)
    return rest.end() if rest else stop


def front_matter_of(text: str) -> str:
    """The front matter with which a text begins, lines `---` and blank lines below included; empty where there is none.

    Front matter is YAML with an entry `name: value` at least, all names in lower case. Lines between `---` that hold a slot or
    a marker are a part of the prompt.

    >>> front_matter_of("---\\nmodel: small\\n---\\nAnswer."), front_matter_of("---\\nAnswer briefly.\\n---\\n")
    ('---\\nmodel: small\\n---\\n', '')
    """
    match = _FRONT_MATTER.match(text)
    if match is None or "{{" in match[1] or LOOKS_LIKE_MARKER.search(match[1]):
        return ""
    lines = [line for line in match[1].splitlines() if line.strip()]
    entries = [line for line in lines if _ENTRY.match(line)]
    if not entries or not all(_ENTRY.match(line) or _BELOW.match(line) for line in lines):
        return ""
    return match[0]


def regions_of(text: str, where: str = "prompt", message: int = 0) -> tuple[Region, ...]:
    """Regions of the text of a message in order.

    Raises UsageError with file and line for a fence that is nested, unclosed, unopened, empty of a
    partner, or misspelled.
    """
    regions: list[Region] = []
    opened: tuple[str, re.Match[str]] | None = None
    matched = 0
    for match in MARKER.finditer(text):
        matched += 1
        at = f"{where}:{_line(text, match.start())}"
        if match.group(1) == "begin":
            if opened is not None:
                raise UsageError(
                    f"{at}: a fence begins inside another fence. Close the first one with <!-- whet:end -->."
                )
            opened = (match.group(2) or DEFAULT_REGION, match)
            continue
        if opened is None:
            raise UsageError(f"{at}: <!-- whet:end --> without a <!-- whet:begin --> before it.")
        name, begin = opened
        if match.group(2) not in (None, name):
            raise UsageError(f'{at}: <!-- whet:end {match.group(2)} --> closes a fence named "{name}".')
        start, stop = _inner(text, begin, match)
        regions.append(Region(name, message, start, stop))
        opened = None
    if opened is not None:
        at = f"{where}:{_line(text, opened[1].start())}"
        raise UsageError(f"{at}: the fence is never closed. Add <!-- whet:end --> after the editable text.")
    if len(LOOKS_LIKE_MARKER.findall(text)) > matched:
        bad = next(m for m in LOOKS_LIKE_MARKER.finditer(text) if not MARKER.match(text, m.start()))
        raise UsageError(
            f"{where}:{_line(text, bad.start())}: this looks like a fence but is not one. "
            "Write <!-- whet:begin --> or <!-- whet:begin NAME --> and <!-- whet:end -->."
        )
    return tuple(regions)


def _inner(text: str, begin: re.Match[str], end: re.Match[str]) -> tuple[int, int]:
    """The ends of the editable text between two markers."""
    start, stop = begin.end(), end.start()
    after = _eats_line(text, begin.start(), begin.end())
    if after > start and after <= stop:
        start = after
        if text[start:stop].endswith("\r\n"):
            stop -= 2
        elif text[start:stop].endswith("\n"):
            stop -= 1
    return start, max(start, stop)


def without_markers(text: str) -> str:
    """The text that a model sees: no front matter, no markers, and no empty lines where markers stood alone."""
    pieces: list[str] = []
    at = len(front_matter_of(text))
    for match in MARKER.finditer(text):
        begins_line = text.rfind("\n", 0, match.start()) + 1
        after = _eats_line(text, match.start(), match.end())
        start = begins_line if after > match.end() and begins_line >= at else match.start()
        pieces.append(text[at:start])
        at = after if after > match.end() else match.end()
    pieces.append(text[at:])
    return "".join(pieces)
