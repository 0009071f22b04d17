"""The quotations in a reply: fenced blocks, inline code, lines of a block quotation, and text between quotation marks.

Only marks and their places decide, not words. A quotation ends in the paragraph in which it begins; a mark without a partner
there quotes nothing. Where a paragraph has an odd number of marks that open and close alike, the text from the first to the
last counts as quoted. One of them is no quotation mark, and it cannot be told which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import regex

from whet.replies.blocks import stretches_of

Span = tuple[int, int]

_FIRST_SIGN, _SIGNS = 0xF0000, 60_000
"""Signs for private use: each stands for one hidden piece."""
_PRIVATE = regex.compile(r"[\U000F0000-\U000FFFFF]")
_PARAGRAPH_END = regex.compile(r"\n[ \t]*+\n")
_BLOCK_QUOTATION = regex.compile(r"(?m)^[ \t]{0,3}>[^\n]*+")
_CLOSES = {
    "\u201c": "\u201d",
    "\u201e": "\u201c\u201d",
    "\u00ab": "\u00bb",
    "\u00bb": "\u00ab",
    "\u2039": "\u203a",
    "\u203a": "\u2039",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
    "\u2018": "\u2019",
    "\u201a": "\u2018\u2019",
    '"': '"',
    "'": "'",
}
"""The marks that open a quotation, and those that close it."""
_APOSTROPHES = "'\u2018\u2019"
_MARKS = regex.compile(rf"`++|[{''.join(sorted({*_CLOSES, *''.join(_CLOSES.values())}))}]")
_OPAQUE = "\ufffc"


@dataclass(frozen=True, slots=True)
class HiddenPieces:
    """A text in which one sign stands for each piece that is hidden."""

    text: str
    pieces: tuple[str, ...]

    def restore(self, part: str) -> str:
        """A part of the text with the hidden pieces in their places."""
        return str(_PRIVATE.sub(lambda sign: self.pieces[ord(sign[0]) - _FIRST_SIGN], part))

    def unwrap(self, part: str) -> str:
        """A part of the text that is one hidden piece alone as that piece, any other part as it stands: in `Score: "4"`, the
        marks wrap a value."""
        return self.restore(part) if _PRIVATE.fullmatch(part.strip()) else part


def hide_pieces(text: str, spans: Iterable[Span]) -> HiddenPieces:
    """A text without the pieces at `spans`, which may overlap; a blank stands for each sign for private use that it holds itself.

    >>> hidden = hide_pieces('Score: 4. It says "score: 1".', [(18, 28)])
    >>> len(hidden.text), hidden.restore(hidden.text)
    (20, 'Score: 4. It says "score: 1".')
    """
    text = _PRIVATE.sub(" ", text)
    pieces: list[str] = []
    parts: list[str] = []
    at = 0
    for begin, stop in _join(spans)[:_SIGNS]:
        parts += [text[at:begin], chr(_FIRST_SIGN + len(pieces))]
        pieces.append(text[begin:stop])
        at = stop
    return HiddenPieces("".join([*parts, text[at:]]), tuple(pieces))


def quotations_in(text: str, opaque: Sequence[Span] = ()) -> list[Span]:
    """The positions of quotations in a text. Marks inside its `opaque` pieces open and close nothing. A text that is one
    quotation as a whole has none: its marks only wrap it.

    >>> quotations_in('Score: 4. It says "score: 1".'), quotations_in('"Score: 4"')
    ([(18, 28)], [])
    """
    fences = [
        (before.end, block.end - (text[block.end - 1] == "\n"))
        for before, block in pairwise(stretches_of(text))
        if block.closed
    ]
    plain = _cover(text, [*opaque, *fences])
    quoted = [match.span() for match in _BLOCK_QUOTATION.finditer(plain)]
    spans = _join([*fences, *quoted, *_between_marks(_cover(plain, quoted))])
    return spans if any(map(str.isalnum, _cover(text, spans))) else []


def _between_marks(text: str) -> Iterator[Span]:
    at = 0
    for end in [*(match.end() for match in _PARAGRAPH_END.finditer(text)), len(text)]:
        marks = [*_MARKS.finditer(text, at, end)]
        at = end
        alike = [mark for mark in marks if mark[0] == '"']
        if len(alike) % 2:
            yield alike[0].start(), alike[-1].end()
        last = {mark[0]: mark.start() for mark in marks if _may_close(mark)}
        opening: regex.Match[str] | None = None
        for mark in marks:
            if opening is None:
                closers = _closers(mark)
                if _may_open(mark) and any(last.get(one, -1) > mark.start() for one in closers):
                    opening = mark
            elif mark[0] in _closers(opening) and _may_close(mark):
                yield opening.start(), mark.end()
                opening = None


def _closers(mark: regex.Match[str]) -> Sequence[str]:
    return [mark[0]] if mark[0][0] == "`" else _CLOSES.get(mark[0], "")


def _may_open(mark: regex.Match[str]) -> bool:
    """An apostrophe stands behind a letter; a mark that opens does not, and no blank follows it."""
    before, after = (
        mark.string[max(0, mark.start() - 1) : mark.start()],
        mark.string[mark.end() : mark.end() + 1],
    )
    return mark[0] not in _APOSTROPHES or not (before.isalnum() or after.isspace())


def _may_close(mark: regex.Match[str]) -> bool:
    before, after = (
        mark.string[max(0, mark.start() - 1) : mark.start()],
        mark.string[mark.end() : mark.end() + 1],
    )
    return mark[0] not in _APOSTROPHES or not (before.isspace() or after.isalnum())


def _cover(text: str, spans: Iterable[Span]) -> str:
    """A text of the same length with nothing to read at `spans`."""
    parts: list[str] = []
    at = 0
    for begin, stop in _join(spans):
        parts += [text[at:begin], _OPAQUE * (stop - begin)]
        at = stop
    return "".join([*parts, text[at:]])


def _join(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap as one."""
    joined: list[Span] = []
    for begin, stop in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((begin, stop))
    return joined
