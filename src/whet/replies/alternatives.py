"""Answers that name several results and mark none of them as the final one: `4 or 5`, `\\boxed{4} or \\boxed{5}`; and those whose
mark is empty (`<answer></answer>`).

Places decide, no words of a language: two values are alternatives where a text is nothing else than these, with a single word
or a sign of a list between them. `21 doubled is 42` has more between its numbers, and `3 plus 2 is 5` different words.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import regex

from whet._util.words import count_words, fold, strip_wrapping, writes_without_blanks
from whet.replies.marked import last_marks
from whet.replies.thoughts import split_thought

_LONGEST, _MOST_VALUES = 200, 10
_WORD = r"\p{L}[\p{L}\p{M}]{0,19}"
_WORD_BETWEEN = regex.compile(rf"[\s,;/|&*_()\"'`$]*+(?P<word>{_WORD})[\s,;/|&*_()\"'`$\\]*+")
_EDGE = r"[\s*_\"'`$()\\]*+"
_SIGN_BETWEEN = regex.compile(
    rf"\s++[-\u2013\u2014]\s++|(?<=\S)[-\u2013\u2014](?=\S)|{_EDGE}[,;/|&~\u3001\uff0c]{_EDGE}"
)
_DIGITS = regex.compile(r"\p{Nd}++")
_LINE_MARK = regex.compile(r"\A[\s#>]*+(?:[*+-]\s++)?")
_LABEL = regex.compile(r"[:\uff1a=]|#{2,}")
_NAME = regex.compile(r"(?<![\w.])(\p{L}\w{0,9})\s{0,2}=\s{0,2}")
_PAIR = ("(", "[", "{")
"""The brackets that open a pair of coordinates, an interval or a set, which a list separator divides."""
_UNIT = regex.compile(rf"(?<=\p{{Nd}}\s?)({_WORD})\Z")

Value = TypeVar("Value", bound=Hashable)


def marks_nothing(text: str) -> bool:
    """Whether the last box of an answer is empty or, where it has none, the last of its tags.

    >>> marks_nothing("<answer></answer> It is 5."), marks_nothing("\\\\boxed{ }"), marks_nothing("<a>5</a>"), marks_nothing("5")
    (True, True, False, False)
    """
    marks = last_marks(split_thought(text).answer)
    return bool(marks) and not marks[-1].content


def names_several(text: str, read: Callable[[str], Value | None]) -> bool:
    """Whether an answer names several different values and none as its result: in its last mark, in marks beside each other, on
    its last line, or behind the label of this line. `read` gives the value that a text is as a whole, or None.

    >>> number = lambda text: int(text) if text.strip().isdecimal() else None
    >>> [names_several(text, number) for text in ("4 or 5", "3 plus 2 is 5", "Answer: 4, 5", "\\\\boxed{4} or \\\\boxed{5}", "5")]
    [True, False, True, True, False]
    """
    text = split_thought(text).answer
    marks = last_marks(text)
    if marks:
        values = [value for mark in marks if (value := read(mark.content)) is not None]
        return len({*values}) > 1 or _is_alternatives(marks[-1].content, read)
    lines = text.strip().splitlines()
    if not lines or len(lines[-1]) > _LONGEST:
        return False
    return any(_is_alternatives(piece, read) for piece in (lines[-1], _LABEL.split(lines[-1])[-1]))


def is_between(text: str) -> bool:
    """Whether a text may stand between two alternatives: a single word or a sign of a list.

    >>> [is_between(text) for text in (" or ", "\u6216", " / ", " out of ", ". ", " = ")]
    [True, True, True, False, False, False]
    """
    word = _WORD_BETWEEN.fullmatch(text)
    return _SIGN_BETWEEN.fullmatch(text) is not None or (word is not None and _is_single_word(word))


def _is_single_word(between: regex.Match[str]) -> bool:
    """Whether what stands between two values is one word, and not the begin of the second value (Q3) or the unit of the first."""
    text, word = between.group(), between["word"]
    if writes_without_blanks(word):
        return count_words(word) <= 1
    return not text[0].isalpha() and not text[-1].isalpha()


def _is_alternatives(piece: str, read: Callable[[str], Value | None]) -> bool:
    bare = _LINE_MARK.sub("", fold(piece)).strip()
    plain = strip_wrapping(bare)
    if len(plain) > _LONGEST or len(_DIGITS.findall(plain)) > _MOST_VALUES or read(plain) is not None:
        return False
    names = _NAME.findall(plain)
    if len(names) > 1 and len({*names}) == 1:
        plain = _NAME.sub("", plain)
    unit = _UNIT.search(plain)
    if unit is not None:
        plain = str(regex.sub(rf"(?<=\p{{Nd}}\s?){regex.escape(unit[1])}(?!\w)", "", plain)).strip()
    forms = [_WORD_BETWEEN] if bare.startswith(_PAIR) else [_SIGN_BETWEEN, _WORD_BETWEEN]
    return len(_values(plain, read, forms, "")) > 1


def _values(
    plain: str, read: Callable[[str], Value | None], forms: Sequence[regex.Pattern[str]], word: str
) -> set[Value]:
    """The different values that a text is made of, each pair with a sign of a list or the same `word` between; none where it is
    anything else. A text in square brackets is a reference or a remark."""
    value = None if plain.lstrip().startswith("[") else read(strip_wrapping(plain))
    if value is not None:
        return {value}
    for form in forms:
        for between in form.finditer(plain):
            one = between["word"] if form is _WORD_BETWEEN else ""
            if one and (one != (word or one) or not _is_single_word(between)):
                continue
            value = read(strip_wrapping(plain[: between.start()]))
            rest = plain[between.end() :]
            others: set[Value] = set() if value is None else _values(rest, read, forms, one or word)
            if value is not None and others:
                return {value, *others}
    return set()
