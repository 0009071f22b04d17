"""How a simulated optimizer reads a request: the prompt that it may change, and what was wrong.

A request is read by its layout, whatever names it uses: a tag or a heading that speaks of a prompt, of rules
or of instructions opens the part that is to be kept; one that speaks of complaints, feedback or results
opens the part with the points to cover; JSON is searched for texts. Inside a tag a label such as `Critique:`
opens its part until the next label. Elsewhere only sentences that complain count as points.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.simulated.language import Stance, sentences, understand
from benchmarks.simulated.rules import read, stances

_KEEP = re.compile(r"prompt|instruction|ledger|rules?\b|current|existing|guideline|system", re.IGNORECASE)
_POINTS = re.compile(
    r"critique|feedback|complain|problem|violation|fail|wrong|comment|"
    r"issue|evaluation|judg|point|explanation|reason|"
    r"mistake|error|demand|review|remark|said|observ|group|cluster|annotation|note|verdict|evidence|gradient",
    re.IGNORECASE,
)
_SKIP = re.compile(
    r"output|completion|answer|response|page|input|request|example|task|schema|format", re.IGNORECASE
)
_TAG_LINE = re.compile(r"^\s*<(/?)([A-Za-z][\w .:#=\"'-]*)>\s*$")
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s*(?P<mark>[^\n]{1,80}?):?|\*{0,2}(?P<plain>[A-Z][^\n.!?]{0,70}):\*{0,2})\s*$"
)
_LABEL = re.compile(
    r"^\s*(?:[-*•]\s+)?(?:\[[\w.:#-]{1,24}\]|\([\w.#-]{1,24}\)|[a-zA-Z]{0,8}[-_#]?\d{1,6})"
    r"(?:[.):]|\s*[-–:]|(?<=[\])]))\s+"
)
_COUNT_NOTE = re.compile(
    r"\s*[(\[](?:x|×|seen|in|count:?)?\s*(\d{1,6})\s*(?:x|×|times|pages?|rollouts?|critiques?|of \d+)?[)\]]",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?<=[.!?])\s+[-*•]\s+")
_INLINE = re.compile(r"^\s*(?:[-*•]\s+)?([A-Za-z][A-Za-z ]{2,24}):\s+(\S.*)$")
_JSON_LINE = re.compile(r'^\s*(?:[\[{}\]]|"[\w ]+"\s*:)')
_OPENS = re.compile(r"^\s*<([A-Za-z][\w-]*)>(.*\w.*)$")
_CLOSES = re.compile(r"</([A-Za-z][\w-]*)>\s*$")

KEEP, POINTS, OPEN, SKIP = "keep", "points", "open", "skip"


@dataclass(frozen=True, slots=True)
class ReadDemand:
    """One demand in a request: the hidden rule if it is recognised, where it stands (0 to 1), how often."""

    text: str
    rule: str | None
    place: float
    count: int

    @property
    def key(self) -> str:
        """What two points with the same demand share."""
        return self.rule or normal(self.text)


@dataclass(frozen=True, slots=True)
class Kept:
    """One line of the prompt that may be changed, and its text without a number or id."""

    line: str
    text: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request holds: the lines of the current prompt, and the points to cover."""

    prompt: tuple[Kept, ...]
    points: tuple[ReadDemand, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    part: str
    text: str
    raw: str
    count: int = 1


def understand_request(text: str) -> Wish:
    """The current prompt and the points of a request."""
    lines = list(_lines(text))
    kept = tuple(Kept(line.raw, line.text) for line in lines if line.part == KEEP)
    return Wish(kept, _points(lines, (KEEP, SKIP)) or _points(lines, (KEEP,)))


def _points(lines: list[_Line], without: tuple[str, ...]) -> tuple[ReadDemand, ...]:
    by_key: dict[str, ReadDemand] = {}
    for number, line in enumerate(lines):
        if line.part in without:
            continue
        for sentence in _demands(line):
            point = ReadDemand(sentence, read(sentence), number / max(1, len(lines) - 1), line.count)
            old = by_key.get(point.key)
            by_key[point.key] = replace(old, count=old.count + line.count) if old else point
    return tuple(by_key.values())


def normal(text: str) -> str:
    """A text in lower case without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def flat_sentences(text: str) -> list[str]:
    """Sentences of a text in which the marks of a list may stand within a line."""
    return [sentence for part in _LISTED.split(text) for sentence in sentences(part)]


def demands(sentence: str) -> bool:
    """Whether a sentence says what to do about something."""
    return bool(stances(sentence)) or (understand(sentence).instructs and len(sentence.split()) > 3)


def _demands(line: _Line) -> Iterator[str]:
    for sentence in flat_sentences(line.text):
        about = [stance for _, stance in stances(sentence)]
        if line.part == POINTS:
            if demands(sentence) or understand(sentence).complains:
                yield sentence
        elif understand(sentence).complains and Stance.HINT in about and Stance.STATED not in about:
            yield sentence


def _lines(text: str) -> Iterator[_Line]:
    """Lines with the part of the request that they stand in; JSON is replaced by the texts in it."""
    parts = [OPEN]
    for raw in _apart(text):
        tag = _TAG_LINE.match(raw)
        heading = _HEADING.match(raw)
        if tag:
            parts = _after_tag(parts, bool(tag.group(1)), tag.group(2))
        elif heading:
            parts = [*parts[:-1], _part(heading.group("mark") or heading.group("plain"), parts[-1])]
        elif parts[-1] != KEEP and _JSON_LINE.match(raw) and not _LABEL.match(raw):
            yield from _json_lines(raw)
        else:
            line = _line(raw, parts[-1])
            if len(parts) > 1 and line.part != parts[-1]:
                parts = [*parts[:-1], line.part]
            yield line


def _apart(text: str) -> Iterator[str]:
    """The lines of a text that are not blank; a tag around the text of a line stands on a line of its own."""
    for line in text.splitlines():
        opens = _OPENS.match(line)
        if opens and f"</{opens.group(1)}>" not in opens.group(2).rstrip()[: -len(opens.group(1)) - 3]:
            yield f"<{opens.group(1)}>"
            line = opens.group(2)
        closes = _CLOSES.search(line)
        before = line[: closes.start()] if closes else ""
        if closes and re.search(r"\w", before) and f"<{closes.group(1)}>" not in line:
            yield before
            line = f"</{closes.group(1)}>"
        if line.strip():
            yield line


def _line(raw: str, part: str) -> _Line:
    inline = _INLINE.match(raw)
    if part != KEEP and inline and _part(inline.group(1), OPEN) in (POINTS, SKIP):
        return _Line(_part(inline.group(1), OPEN), inline.group(2), raw)
    label = _LABEL.match(raw)
    body = raw[label.end() :] if label else raw
    count = _COUNT_NOTE.search(body)
    return _Line(part, _COUNT_NOTE.sub("", body), raw, int(count.group(1)) if count else 1)


def _after_tag(parts: list[str], closes: bool, name: str) -> list[str]:
    if closes:
        return parts[:-1] or [OPEN]
    part = _part(name, parts[-1])
    outer = (
        OPEN if _part(name, OPEN) == KEEP else parts[-1]
    )  # a heading above such a tag speaks of the tag only
    return [*parts[:-1], outer, part]


def _part(name: str, otherwise: str) -> str:
    if _POINTS.search(name):
        return POINTS
    if _KEEP.search(name):
        return KEEP
    return SKIP if _SKIP.search(name) else otherwise


def _json_lines(raw: str) -> Iterator[_Line]:
    """The texts in a line of JSON (or in a piece of it), as lines of the parts that their keys name."""
    try:
        value: Any = json.loads(raw.strip().rstrip(","))
    except ValueError:
        value = dict(re.findall(r'"([\w ]+)"\s*:\s*"((?:[^"\\]|\\.)*)"', raw))
    yield from _walk(value, POINTS if isinstance(value, list) else SKIP)


def _walk(value: Any, part: str) -> Iterator[_Line]:
    if isinstance(value, str):
        yield from (_Line(part, line, line) for line in value.splitlines() if line.strip())
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, part)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, _part(key, part))
