"""The passages that a text copies from other texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cached_property

from whet.types import Example

SHARED = 32
"""Characters in a row that are no coincidence: an instruction may not have them in common with anybody's data."""
_STEP = 8
_MANY = 2000
_MOST_MARKS = 30


def compatible(text: str) -> str:
    """A text in Unicode's form NFKC, of each letter's marks the first 30: putting marks in order takes time that is
    quadratic in their number. (Unicode Standard Annex 15 has this limit in its stream-safe format.)"""
    if text.isascii():
        return text
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return unicodedata.normalize("NFKC", "".join(kept))


def normalize_wording(text: str) -> str:
    """A text for comparison: compatible characters, lower case, single blanks, nothing invisible."""
    shown = (
        text if text.isascii() else "".join(c for c in compatible(text) if unicodedata.category(c) != "Cf")
    )
    return " ".join(shown.casefold().split())


def longest_copy(text: str, private: Iterable[str], known: str) -> str:
    """The longest piece of 32 characters or more that a text has in common with somebody's data (inputs, answers,
    examples), but not with the prompt itself (`known`); empty when there is none."""
    return Copies(private, known).piece(text)


def copied_input(text: str, examples: Sequence[Example], known: str) -> str:
    """The longest piece that a text copies from the inputs of examples, where it stands in one input alone: what several
    have in common belongs to the kind of input. Empty when there is none; `known`: the prompt before."""
    piece = longest_copy(text, [example.user_text for example in examples], known)
    if not piece:
        return ""
    return piece if sum(piece in normalize_wording(e.user_text) for e in examples) == 1 else ""


def objectionable(
    objections: Callable[[str], Sequence[str]], examples: Sequence[Example], known: str, text: str
) -> bool:
    """Whether a text must not stand in a prompt: it copies a single input, or there are `objections`, as of `guard.secrets`."""
    return bool(objections(text) or copied_input(text, examples, known))


class Copies:
    """Somebody's data, prepared once to hold many texts against it."""

    def __init__(self, private: Iterable[str], known: str) -> None:
        self._private = private
        self._known = known

    @cached_property
    def _texts(self) -> tuple[str, str]:
        return "\x00".join({normalize_wording(one) for one in self._private}), normalize_wording(self._known)

    def piece(self, text: str) -> str:
        """The longest piece that a text copies; see `longest_copy`."""
        plain = normalize_wording(text)
        return _longest(plain, *self._texts) if len(plain) >= SHARED else ""


def _longest(text: str, other: str, background: str) -> str:
    """The longest piece of at least 32 characters that stands in both and not in the background, or nothing.

    Any such piece holds a window of 25 characters that begins at a multiple of 8.
    """
    best, size, last = "", SHARED - _STEP + 1, 0
    places = range(0, len(text) - size + 1, _STEP)
    shared: Container[str] = other
    if len(places) > _MANY:  # one pass over the data, where a search for each window would take one each
        windows = {text[at : at + size] for at in places}
        shared = windows.intersection(other[i : i + size] for i in range(len(other) - size + 1))
    for at in places:
        # what holds this window and is longer than the last piece also holds a window nearer to its end
        if at + size + _STEP <= last or text[at : at + size] not in shared:
            continue
        first, last = _whole(text, at, at + size, other)
        piece = text[first:last]
        if len(piece) >= SHARED and len(piece) > len(best) and piece not in background:
            best = piece
    return best


def _whole(text: str, start: int, stop: int, other: str) -> tuple[int, int]:
    """The ends of the piece around text[start:stop] that stands in `other`, grown to the left first."""
    first = start - _most(lambda n: text[start - n : stop] in other, start)
    return first, stop + _most(lambda n: text[first : stop + n] in other, len(text) - stop)


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which it holds, where it holds for all smaller ones."""
    step = 1
    while step <= limit and holds(step):
        step *= 2
    low, high = step // 2, min(step - 1, limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
