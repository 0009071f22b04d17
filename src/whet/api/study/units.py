"""The sentences or words of a prompt, prompts without some of them, and the same prompt in harmless other forms."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import regex

from whet._util.words import sentence_ends, word_ends
from whet.errors import EditRejected
from whet.prompt import Prompt
from whet.types import Message
from whet_client.prompt.slots import SLOT

UnitKind: TypeAlias = Literal["sentence", "word"]
_LETTER = regex.compile(r"\p{L}")
_WORD = regex.compile(r"[\p{L}\p{N}]")
_MARKDOWN, _COLONS = "#", (":", "：")


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of the editable text, from `start` to `stop`; the units of a text follow one another without gaps. A `fixed` one
    holds a slot or nothing to read, and is never left out."""

    text: str
    start: int
    stop: int
    fixed: bool


def split_units(text: str, kind: UnitKind) -> list[Unit]:
    """The sentences or words of a text by the default boundaries of Unicode, with the blanks and signs that follow them.

    A piece without a letter (without a letter or digit, for words), such as the number of a list, belongs to the next one; at
    the end, to the one before. The content of a slot is not divided.
    """
    ends, readable = (sentence_ends(text), _LETTER) if kind == "sentence" else (word_ends(text), _WORD)
    slots = [match.span() for match in SLOT.finditer(text)]
    ends = [end for end in ends if not any(start < end < stop for start, stop in slots)]
    cuts = [0, *ends]
    pieces = [(a, b) for a, b in pairwise(cuts)]
    merged = _after_words(text, pieces) if kind == "word" else _before_sentences(text, pieces)
    held = [any(a < stop and start < b for start, stop in slots) for a, b in merged]
    return [
        Unit(text[a:b], a, b, slot or readable.search(text[a:b]) is None)
        for (a, b), slot in zip(merged, held, strict=True)
    ]


def _before_sentences(text: str, pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Empty lines belong to the sentence before, numbers and bullets to the next one."""
    merged: list[tuple[int, int]] = []
    waiting: int | None = None
    for a, b in pieces:
        if not text[a:b].strip() and merged and waiting is None:
            merged[-1] = (merged[-1][0], b)
        elif _LETTER.search(text[a:b]) is None:
            waiting = a if waiting is None else waiting
        else:
            merged.append((a if waiting is None else waiting, b))
            waiting = None
    if waiting is not None and pieces:
        last = pieces[-1][1]
        merged = [*merged[:-1], (merged[-1][0], last)] if merged else [(waiting, last)]
    return merged


def _after_words(text: str, pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Blanks and signs belong to the word before; at the beginning of a line, to the one behind them."""
    merged: list[tuple[int, int]] = []
    waiting: int | None = None
    for a, b in pieces:
        if _WORD.search(text[a:b]) is not None:
            merged.append((a if waiting is None else waiting, b))
            waiting = None
        elif merged and waiting is None and (text[a - 1] != "\n" or not text[a:b].strip()):
            merged[-1] = (merged[-1][0], b)
        else:
            waiting = a if waiting is None else waiting
    if waiting is not None:
        merged = [*merged[:-1], (merged[-1][0] if merged else waiting, pieces[-1][1])]
    return merged


def keep_units(
    prompt: Prompt, units: Sequence[Unit], kept: Collection[int], region: str | None
) -> Prompt | None:
    """The prompt with those units of its region alone, by number, and with the fixed ones; None where it refuses that."""
    text = "".join(unit.text for i, unit in enumerate(units) if unit.fixed or i in kept)
    return with_text(prompt, text, region)


def with_text(prompt: Prompt, text: str, region: str | None) -> Prompt | None:
    """The prompt with another text in its region, an empty one too; None where it refuses the text, or where nothing is left of a
    message."""
    try:
        return prompt.edit(text, region)
    except EditRejected:
        if text.strip() or prompt.parts:
            return None
    place = prompt.region(region)
    messages = list(prompt.messages)
    old = messages[place.message]
    messages[place.message] = Message(old.role, old.content[: place.start] + text + old.content[place.stop :])
    made = Prompt(tuple(messages), prompt.focus, prompt.limit)
    return made if made.clean[place.message].content.strip() else None


def other_forms(text: str, units: Sequence[Unit], seed: int) -> Iterator[tuple[str, str]]:
    """Texts that say the same in another form, with their names: other separators, headings in other letters, another order.

    The forms follow Sclar et al. (2024, arXiv:2310.11324), who vary separators, casing and spacing. A form that changes nothing
    is left out.
    """
    forms: Mapping[str, Callable[[], str]] = {
        "on one line": lambda: _join_units(units, " "),
        "a line each": lambda: _join_units(units, "\n"),
        "a paragraph each": lambda: _join_units(units, "\n\n"),
        "bullets": lambda: _join_units(units, "\n", "- "),
        "headings in capitals": lambda: _headings(text, str.upper),
        "headings in small letters": lambda: _headings(text, str.lower),
        "order reversed": lambda: _reorder(units, lambda free: free[::-1]),
        "order shuffled": lambda: _reorder(units, lambda free: random.Random(seed).sample(free, len(free))),
    }
    known = {text.strip()}
    for name, make in forms.items():
        made = make()
        if made.strip() not in known:
            known.add(made.strip())
            yield name, made


def _is_heading(line: str) -> bool:
    """Whether a line begins with # or ends with a colon."""
    return line.strip().startswith(_MARKDOWN) or line.strip().endswith(_COLONS)


def _join_units(units: Sequence[Unit], separator: str, mark: str = "") -> str:
    """The units with a separator between them, after a heading a line break; `mark` leads those that begin with a letter."""
    parts: list[str] = []
    for text in (unit.text.strip() for unit in units if unit.text.strip()):
        before = (
            "\n"
            if separator == " " and (_is_heading(text) or (parts and _is_heading(parts[-1])))
            else separator
        )
        marked = mark + text if text[0].isalpha() and not _is_heading(text) else text
        parts += [before, marked] if parts else [marked]
    return "".join(parts)


def _headings(text: str, change: Callable[[str], str]) -> str:
    """The text with other letters in its headings: lines that begin with # or end with a colon. Slots stay as they are."""

    def change_case(line: str) -> str:
        if not _is_heading(line):
            return line
        kept = [match.group() for match in SLOT.finditer(line)]
        words = [change(part) for part in SLOT.split(line)[:: SLOT.groups + 1]]
        return "".join(a + b for a, b in zip(words, [*kept, ""], strict=True))

    return "\n".join(change_case(line) for line in text.split("\n"))


def _reorder(units: Sequence[Unit], order: Callable[[list[str]], list[str]]) -> str:
    """The text with its free units in another order; fixed ones, headings and blanks stay where they were."""
    stay = [unit.fixed or _is_heading(unit.text) for unit in units]
    left = iter(order([unit.text.strip() for unit, stays in zip(units, stay, strict=True) if not stays]))
    parts = []
    for unit, stays in zip(units, stay, strict=True):
        parts.append(unit.text if stays else unit.text.replace(unit.text.strip(), next(left), 1))
    return "".join(parts)
