"""Sections below Markdown headings as editable regions: a fence is drawn around the text of a section.

Headings are lines that begin with one to six `#` and a blank, outside of front matter and blocks of code (CommonMark 0.31,
section 4.2). A section's fence leaves its heading and the blank lines at its ends outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count

from whet_client.errors import UsageError, did_you_mean
from whet_client.prompt.fence import front_matter_of

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t\r\n]|\Z)")
_CODE = re.compile(r" {0,3}(`{3,}(?!`)(?!.*`)|~{3,})")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_OUTSIDE_NAMES = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its level (1 to 6), its title, and where its line lies in the text."""

    level: int
    title: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the section's region: the title, with a dash for what a name cannot hold."""
        return _OUTSIDE_NAMES.sub("-", self.title).strip("-") or "section"

    @property
    def line(self) -> str:
        """The heading as people write it."""
        return f"{'#' * self.level} {self.title}"


def headings_of(text: str) -> list[Heading]:
    """The headings of a text in order.

    >>> [(h.level, h.name) for h in headings_of("# Shop\\n\\n## How to answer ##\\n```\\n# no heading\\n```\\n")]
    [(1, 'Shop'), (2, 'How-to-answer')]
    """
    headings, at, code = list[Heading](), len(front_matter_of(text)), ""
    for line in _LINE.findall(text, at):  # lines of Markdown: no other sign of Unicode ends one
        fence = _CODE.match(line)
        if code:
            if fence and fence[1].startswith(code) and not line.strip().strip(code[0]):
                code = ""
        elif fence:
            code = fence[1]
        elif match := _HEADING.match(line):
            headings.append(Heading(len(match[1]), _title(line[match.end() :]), at, at + len(line)))
        at += len(line)
    return headings


def _title(text: str) -> str:
    """The text of a heading, without its signs."""
    title = text.strip(" \t\r\n")
    bare = title.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else title


def has_heading(text: str, heading: str) -> bool:
    """Whether a text has a heading of that level and title."""
    return bool(_find(headings_of(text), heading))


def _find(headings: Iterable[Heading], heading: str) -> list[Heading]:
    wanted = [(h.level, h.title) for h in headings_of(heading)[:1]]
    return [h for h in headings if (h.level, h.title) in wanted]


def fence_section(text: str, heading: str, where: str = "prompt") -> tuple[str, str]:
    """The text with a fence around the section below `heading` (`## Title`), which ends at the next heading of its level or of
    a higher one; and the fence's name.

    Raises UsageError for a heading that is not there, stands there twice, or has no text below it.
    """
    headings = headings_of(text)
    named = _find(headings, heading)
    if not named:
        hint = did_you_mean(heading, [h.line for h in headings]) if headings else " It has no headings."
        raise UsageError(f'{where}: there is no heading "{heading}".{hint}')
    if len(named) > 1:
        raise UsageError(
            f'{where}: the heading "{heading}" stands there {len(named)} times. Draw a fence around the text that is meant.'
        )
    [own] = named
    stop = next((h.start for h in headings if h.start > own.start and h.level <= own.level), len(text))
    if not text[own.stop : stop].strip():
        raise UsageError(f'{where}: there is no text below the heading "{heading}" that could be edited.')
    return _with_fences(text, [(own.name, own.stop, stop)]), own.name


def fence_sections(text: str, where: str = "prompt") -> str:
    """The text with a fence around each section: the text between a heading and the next one, where there is some.

    Raises UsageError for a text without such a section.
    """
    headings = headings_of(text)
    stops = [*(following.start for following in headings[1:]), len(text)]
    taken: set[str] = set()
    sections = []
    for heading, stop in zip(headings, stops, strict=False):
        if text[heading.stop : stop].strip():
            numbered = (f"{heading.name}-{number}" for number in count(2))
            name = next(name for name in chain((heading.name,), numbered) if name not in taken)
            taken.add(name)
            sections.append((name, heading.stop, stop))
    if not sections:
        raise UsageError(
            f"{where}: there is no heading with text below it. Begin a line with #, or draw a fence around what may change."
        )
    return _with_fences(text, sections)


def _with_fences(text: str, sections: Iterable[tuple[str, int, int]]) -> str:
    """The text with a fence of each name around the text between two offsets, blank lines at its ends outside."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for name, start, stop in reversed(list(sections)):
        body = text[start:stop]
        head = len(body) - len(body.lstrip())
        first = start + body.rfind("\n", 0, head) + 1
        last = start + len(body.rstrip())
        fenced = f"<!-- whet:begin {name} -->{newline}{text[first:last]}{newline}<!-- whet:end -->"
        text = f"{text[:first]}{fenced}{text[last:]}"
    return text
