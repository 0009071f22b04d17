"""The change from one prompt to another, by line and within lines by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TypeAlias

from whet.reporting.layout import details, region
from whet.reporting.markup import Html, el, join, prompt_text
from whet.reporting.number_format import plural

CONTEXT = 3
MOST_COMPARISONS = 4_000_000
SIMILAR = 0.3
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


Pieces: TypeAlias = tuple[tuple[str, bool], ...]
Pair: TypeAlias = tuple[Pieces, Pieces]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a diff: sign (`+`, `-` or a space) and its pieces, each with whether it changed."""

    sign: str
    pieces: Pieces


def diff_lines(before: str, after: str) -> list[Line]:
    """Lines of both texts in order; a pair of similar lines says which of their words changed."""
    old, new = before.split("\n"), after.split("\n")
    lines: list[Line] = []
    for tag, i, j, k, m in _opcodes(old, new):
        if tag == "equal":
            lines += [Line(" ", ((text, False),)) for text in old[i:j]]
        else:
            lines += _diff_replacement(old[i:j], new[k:m])
    return lines


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Edit operations between two sequences; too long ones are compared at their two ends only."""
    head = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    room = min(len(old), len(new)) - head
    ends = zip(reversed(old), reversed(new), strict=False)
    tail = min(room, next((i for i, (a, b) in enumerate(ends) if a != b), room))
    i, j, k, m = head, len(old) - tail, head, len(new) - tail
    if (j - i) * (m - k) > MOST_COMPARISONS:
        middle = [("replace", i, j, k, m)]
    else:
        matcher = SequenceMatcher(None, old[i:j], new[k:m])
        middle = [(tag, i + a, i + b, k + c, k + d) for tag, a, b, c, d in matcher.get_opcodes()]
    edges = [("equal", 0, head, 0, head), *middle, ("equal", j, len(old), m, len(new))]
    return [code for code in edges if code[1] < code[2] or code[3] < code[4]]


def _diff_replacement(old: Sequence[str], new: Sequence[str]) -> list[Line]:
    removed, added = [], []
    for before, after in zip_longest(old, new):
        pieces: Pair = ((before or "", False),), ((after or "", False),)
        if before is not None and after is not None:
            pieces = _words(before, after)
        if before is not None:
            removed.append(Line("-", pieces[0]))
        if after is not None:
            added.append(Line("+", pieces[1]))
    return removed + added


def _words(before: str, after: str) -> Pair:
    """Both lines in pieces; no piece is marked where the lines have too little in common."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    codes = _opcodes(old, new)
    common = sum(len("".join(old[i:j])) for tag, i, j, _, _ in codes if tag == "equal")
    if common < SIMILAR * max(len(before), len(after), 1):
        return ((before, False),), ((after, False),)
    left = [("".join(old[i:j]), tag != "equal") for tag, i, j, _, _ in codes if i < j]
    right = [("".join(new[k:m]), tag != "equal") for tag, _, _, k, m in codes if k < m]
    return _smooth(left), _smooth(right)


def _smooth(pieces: list[tuple[str, bool]]) -> Pieces:
    """Neighbouring changes, and white space alone between two of them, become one change."""
    merged: list[tuple[str, bool]] = []
    for i, (text, changed) in enumerate(pieces):
        between = 0 < i < len(pieces) - 1 and pieces[i - 1][1] and pieces[i + 1][1]
        marked = changed or (between and text.isspace())
        if merged and merged[-1][1] == marked:
            merged[-1] = (merged[-1][0] + text, marked)
        else:
            merged.append((text, marked))
    return tuple(merged)


def diff_html(before: str, after: str, label: str = "Changes, line by line") -> Html:
    """The diff as markup: signs, colours and underlined words; long unchanged stretches are folded. `label` tells
    several diffs of a page apart."""
    lines = diff_lines(before, after)
    near = set[int]()
    for i, line in enumerate(lines):
        if line.sign != " ":
            near.update(range(i - CONTEXT, i + CONTEXT + 1))
    parts: list[Html] = []
    folded: list[Html] = []
    for i, line in enumerate(lines):
        if i in near:
            parts += _fold(folded)
            folded = []
            parts.append(_row(line))
        else:
            folded.append(_row(line))
    parts += _fold(folded)
    return region("div", parts, label=label, class_="diff")


def _fold(rows: list[Html]) -> list[Html]:
    if len(rows) < 2:
        return rows
    return [details(plural(len(rows), "unchanged line"), rows)]


def _row(line: Line) -> Html:
    kind, tag, sign = {
        "+": ("added", "ins", "+"),
        "-": ("removed", "del", "\u2212"),
        " ": ("same", "span", "\u00a0"),
    }[line.sign]
    inner = join(
        *(el("mark", text) if changed else prompt_text(text, len(text)) for text, changed in line.pieces)
    )
    sign_html = el("span", Html(sign), class_="sign", aria_hidden="true" if line.sign == " " else None)
    return el("div", sign_html, el(tag, inner or Html("&nbsp;")), class_=kind)
