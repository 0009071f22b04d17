"""Instructions that say the same, and instructions that cannot both be followed, found by their words alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.search.critiques import split
from whet.search.lexicon import NAME, NUMBER, QUOTED, concepts, content, tokens

_SIDES = frozenset({"@most", "@least", "@exact"})
_CLOSE = 0.6
_FORBIDS = re.compile(
    r"\b(?:never|avoid|forbid\w*|bann?ed|prohibited|without|free of|leave out|omit|remove|(?:must|should|may|shall|can|do) ?not"
    r"|not (?:be )?(?:allowed|permitted|used?)|don't|mustn't|no \w+ (?:may|must|should))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Clash:
    """Two texts that contradict each other, and why."""

    first: str
    second: str
    why: str


def same(a: str, b: str) -> bool:
    """Whether two instructions say the same: one speaks of nothing that the other leaves out, with equal values and sense.

    >>> same("Keep the title within 60 characters.", "The title: at most 60 characters.")
    True
    >>> same("Add `ref` to the agenda.", "Add `ref` to the headline.")
    False
    """
    mine, theirs = content(a), content(b)
    if not mine or not theirs or not (mine <= theirs or theirs <= mine):
        return False
    if min(len(mine), len(theirs)) < _CLOSE * max(len(mine), len(theirs)):
        return False
    return _numbers(a) == _numbers(b) and _negative(a) == _negative(b) and _side(a) == _side(b)


def clash(a: str, b: str) -> Clash | None:
    """Whether two instructions about the same thing want different values, or one forbids what the other demands."""
    mine, theirs = content(a) - _verbs(a), content(b) - _verbs(b)
    if _SETS.search(a) and _SETS.search(b) and mine != theirs and _named(a) and _named(b):
        left_a, left_b = mine - _named(a), theirs - _named(b)
        if left_a and left_a == left_b and not _named(a) & _named(b):
            return Clash(a, b, "two values for the same thing")
    if len(mine) < 2 or len(theirs) < 2 or not (mine <= theirs or theirs <= mine):
        return None
    if min(len(mine), len(theirs)) < _CLOSE * max(len(mine), len(theirs)):
        return None
    numbers_a, numbers_b = _numbers(a), _numbers(b)
    if numbers_a and numbers_b and not numbers_a & numbers_b and _side(a) == _side(b):
        return Clash(a, b, f"{', '.join(sorted(numbers_a))} against {', '.join(sorted(numbers_b))}")
    if numbers_a == numbers_b and _negative(a) != _negative(b) and not (_side(a) | _side(b)):
        return Clash(a, b, "one forbids what the other demands")
    return None


def clashes(new: str, texts: Sequence[str]) -> list[Clash]:
    """The contradictions of one instruction with others."""
    return [found for text in texts if (found := clash(new, text)) is not None]


def statements(text: str) -> list[str]:
    """Single statements of a prompt's own text, for comparison with instructions."""
    return [piece for piece in split(text) if len(content(piece)) > 1]


def _named(text: str) -> frozenset[str]:
    """Stems inside the last quoted value or name: the value that a thing is set to."""
    values = [t.value for t in tokens(text) if t.kind in (QUOTED, NAME)]
    return content(f'"{values[-1]}"') if values else frozenset()


def _verbs(text: str) -> frozenset[str]:
    named = frozenset().union(*(content(f'"{t.value}"') for t in tokens(text) if t.kind in (QUOTED, NAME)))
    return frozenset(w for w in content(text) if w in _PHRASING and w not in named)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(t.value for t in tokens(text) if t.kind == NUMBER)


def _negative(text: str) -> bool:
    return bool(_FORBIDS.search(text))


def _side(text: str) -> frozenset[str]:
    return concepts(text) & _SIDES


_SETS = re.compile(
    r"\b(?:set|change)\b.*\bto\b|\b(?:must|should|has to) (?:always )?(?:be|equal|read)\b(?! (?:in|on|at|of|one)\b)",
    re.I,
)
_PHRASING = frozenset(
    [
        "add",
        "contain",
        "includ",
        "keep",
        "limit",
        "mention",
        "mak",
        "provid",
        "put",
        "set",
        "us",
        "writ",
        "giv",
        "hav",
        "exceed",
        "within",
        "allow",
        "forbid",
        "avoid",
    ]
)
