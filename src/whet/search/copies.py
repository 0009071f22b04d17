"""What a text copies from other people's texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cached_property

SHARED = 32
"""Characters in a row that are no coincidence: an instruction may not have them in common with anybody's data."""
_STEP = 8
_MOST_MARKS = 30


def compatible(text: str) -> str:
    """A text in Unicode's form NFKC, of each letter's marks the first 30: putting marks in order takes time that is
    quadratic in their number. (Unicode Standard Annex 15 has this limit in its stream-safe format.)"""
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return unicodedata.normalize("NFKC", "".join(kept))


def comparable(text: str) -> str:
    """A text for comparison: compatible characters, lower case, single blanks, nothing invisible."""
    shown = "".join(c for c in compatible(text) if unicodedata.category(c) != "Cf")
    return " ".join(shown.casefold().split())


def copied(text: str, private: Iterable[str], known: str) -> str:
    """The longest piece of 32 characters or more that a text has in common with somebody's data (inputs, answers,
    examples), but not with the prompt itself (`known`); empty when there is none."""
    return Copies(private, known).piece(text)


class Copies:
    """Somebody's data, prepared once to hold many texts against it."""

    def __init__(self, private: Iterable[str], known: str) -> None:
        self._private = private
        self._known = known

    @cached_property
    def _texts(self) -> tuple[str, str]:
        return "\x00".join({comparable(one) for one in self._private}), comparable(self._known)

    def piece(self, text: str) -> str:
        """The longest piece that a text copies; see `copied`."""
        plain = comparable(text)
        return _longest(plain, *self._texts) if len(plain) >= SHARED else ""


def _longest(text: str, other: str, background: str) -> str:
    """The longest piece of at least 32 characters that stands in both and not in the background, or nothing.

    Any such piece holds a window of 25 characters that begins at a multiple of 8.
    """
    best, size = "", SHARED - _STEP + 1
    for at in range(0, len(text) - size + 1, _STEP):
        if text[at : at + size] not in other:
            continue
        first, last = at, at + size
        while first > 0 and text[first - 1 : last] in other:
            first -= 1
        while last < len(text) and text[first : last + 1] in other:
            last += 1
        piece = text[first:last]
        if len(piece) >= SHARED and len(piece) > len(best) and piece not in background:
            best = piece
    return best
