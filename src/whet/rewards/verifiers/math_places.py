"""The place of the formula in an answer, and the reading of the formula with the target's unit."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise

from whet.replies import without_thought
from whet.replies.marked import last_boxes, marked_results
from whet.rewards.verifiers.math_money import is_currency, read_money
from whet.rewards.verifiers.math_reading import (
    LONGEST_FORMULA,
    Formula,
    MathNode,
    Unread,
    are_words,
    number,
    read_formula,
    words_of,
)

_MARKS = (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$", "$"))
_CURRENCY = "\ue000"
_EMPHASIS = re.compile(r"`|(?<![A-Za-z0-9)}\]])\*\*(?=\S)|(?<=\S)\*\*(?![^\s.,:;!?\u3002])")
_ENDS = " \t.\u3002"
_BEHIND_WORDS = re.compile(r"[)\]\"']{0,3}\s{0,9}[:\uff1a]\s*|\s+")
_NAME = re.compile(
    r"(?:[^\W\d_]|[\s{}'|]|_\{?+\d*|\\(?:text|mathrm|mathbf|operatorname|angle|triangle|overline|vec)(?![A-Za-z]))++(?:\([^()]*+\)\s*)?"
)
_EQUATION, _OPERATOR = re.compile(r"\s+[A-Za-z]\s*="), re.compile(r"[-+]\s")


def formula_in(answer: str) -> str:
    """The formula of an answer: the last `\\boxed{}`, else the content of its only pair of tags, else the last text between
    dollar signs or LaTeX's brackets, else all of it.

    >>> formula_in("So it is $x = 2$, and then $\\\\frac{1}{2}$."), formula_in("\\\\boxed{7}"), formula_in("1/2.")
    ('\\\\frac{1}{2}', '7', '1/2')
    """
    return _formula_and_whole(answer)[0]


def is_formula(target: str) -> bool:
    """Whether a target is read as a formula; one that is a word, whose letters would be multiplied, is none."""
    try:
        read_formula(formula_in(target))
    except Unread:
        return False
    return is_marked(target) or not are_words(target)


def shows_formula(target: str) -> bool:
    """Whether a target cannot be taken for a code, a score or a name: it is written in LaTeX or between its marks, or has a sum,
    a power, a function, a relation, a tuple, an interval, a set in braces or a matrix.

    >>> [shows_formula(text) for text in ("x^2+1", "(0, 1]", "2\\\\pi", "A-1", "N/A", "3-1", "a, b")]
    [True, True, True, False, False, False, False]
    """
    if "\\" in target or is_marked(target):
        return True
    try:
        node = read_formula(formula_in(target)).node
    except Unread:
        return False
    return "+" in target or _has_notation(node, target.lstrip()[:1] in tuple("([{"))


def _has_notation(node: MathNode, bracketed: bool) -> bool:
    if node.kind in ("call", "relation", "union", "matrix"):
        return True
    if node.kind == "power" and node.parts[1] != number(-1):  # that is the fraction of N/A
        return True
    if node.kind in ("sequence", "set"):
        return bracketed
    return any(_has_notation(part, False) for part in node.parts)


def is_marked(answer: str) -> bool:
    """Whether an answer marks its formula by a box, tags, dollar signs or LaTeX's brackets."""
    formula, whole = _formula_and_whole(answer)
    return formula != whole


def _formula_and_whole(answer: str) -> tuple[str, str | None]:
    """The formula, and the whole text, whose end may say it too; None where a box or tags mark the formula."""
    text = without_thought(answer)
    boxes = last_boxes(text)
    marked = [", ".join(boxes)] if boxes else marked_results(text)
    if len(marked) == 1:
        return _without_stop(_last_formula(marked[0])), None
    return _without_stop(_last_formula(text)), _without_stop(text)


def without_emphasis(text: str) -> str:
    """A text without `**` and backticks around its parts, and without a full stop at its end."""
    return _without_stop(_EMPHASIS.sub("", text))


def _without_stop(text: str) -> str:
    return text.strip().rstrip(".").strip()


def _last_formula(text: str) -> str:
    """The last text between marks of formulas, else the whole text. `\\$` is a currency sign and no mark."""
    plain, last = text.replace("\\$", _CURRENCY), (0, text)
    for opening, closing in _MARKS:
        end = plain.rfind(closing)
        start = plain.rfind(opening, 0, max(end, 0))
        inner = plain[start + len(opening) : end]
        if start >= 0 and inner.strip() and end > last[0]:
            last = (end, inner.replace(_CURRENCY, "\\$"))
    return last[1]


def read_answer(answer: str, unit: str = "", equation: bool = True) -> tuple[str, Formula]:
    """The formula of an answer as it stands there, and read; `unit` is that of the target, which may stand behind a number
    as plain letters. Where the target is no `equation`, the name that an answer gives its result (`f(3) = 12`) is no part of it.

    A marked part is the formula. Else the formula is the whole answer. Where the whole answer is no formula or its last line is
    a sentence, the formula is the end of that line: the part after its last word (with or without a colon) or after `####`;
    `**` around it and a full stop behind it do not count. Dollar signs mark no formula where what they enclose is none (they
    are a currency then), or where the last line has none and ends behind `####` or a colon. Raises Unread for the whole.

    >>> [read_answer(text)[0] for text in ("So it is **2**.", "Final answer: x = 2", "x + 1")]
    ['2', 'x = 2', 'x + 1']
    """
    text, whole = _formula_and_whole(answer)
    places = [text]
    if whole is not None:
        last = (whole[-LONGEST_FORMULA:].splitlines() or [""])[-1]
        line = _EMPHASIS.sub("", last).rpartition("####")[2].strip(_ENDS)
        bare = _without_unit(line, unit)
        sentence = line if bare is None else bare
        at = _end_of_words(sentence)
        says = "$" not in last and ("####" in last or line[:at].rstrip().endswith((":", "\uff1a")))
        first = _is_sentence(sentence) if text == whole else says
        places = [line[at:], text] if first else [text, line[at:]]
    for place in dict.fromkeys(places):
        for formula in dict.fromkeys((place if equation else without_name(place), place)):
            with suppress(Unread):
                return place, _read_with_unit(formula, unit)
    return text, _read_with_unit(text, unit)


def without_name(formula: str) -> str:
    """The part of a formula after the name of its result: words, a letter, a function of something, a length. Two small letters
    are a product.

    >>> [without_name(text) for text in ("f(3) = 12", "P(X = 2) = 1/4", "|AB| = 5", "2x = 6", "xy = 6", "|x| = 3", "x <= 5")]
    ['12', '1/4', '5', '2x = 6', 'xy = 6', '|x| = 3', 'x <= 5']
    """
    depth = 0
    for at, sign in enumerate(formula):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "=" and not depth:
            name = formula[:at].strip()
            last = name.split()[-1:] or [""]
            product = len(last[0]) == 2 and last[0].isalpha() and last[0].islower()
            is_name = _NAME.fullmatch(name) and not product and sum(map(str.isalpha, name)) > ("|" in name)
            return formula[at + 1 :].strip() if is_name else formula
    return formula


def _is_sentence(line: str) -> bool:
    """Whether words of a line are no products of letters: two follow each other, or one stands before an equation."""
    words = words_of(line)
    follow = any(line[one[1] : next_one[0]].isspace() for one, next_one in pairwise(words))
    return follow or (bool(words) and words[0][0] == 0 and _EQUATION.match(line, words[0][1]) is not None)


def _end_of_words(line: str) -> int:
    """The start of the part after the last word of a line; 0 for none, or where something else follows the word directly."""
    words = words_of(line)
    if not words:
        return 0
    end = words[-1][1]
    between = _BEHIND_WORDS.match(line, end)
    at = between.end() if between is not None else end if not line[end - 1].isascii() else 0
    return 0 if _OPERATOR.match(line, at) else at


def _without_unit(text: str, unit: str) -> str | None:
    """The text without the target's unit, where that stands as plain letters behind a number or a bracket; else None."""
    bare = text.removesuffix(unit).rstrip()
    behind = unit[:1].isalpha() and text.endswith(unit) and bare[-1:] in tuple("0123456789)}]")
    return bare if behind else None


def _read_with_unit(text: str, unit: str) -> Formula:
    if is_currency(unit) and (money := read_money(text, unit)) is not None:
        return Formula(number(money[0]), money[1])
    bare = _without_unit(text, unit)
    formula = read_formula(text if bare is None else bare)
    return formula if bare is None or formula.unit else Formula(formula.node, unit)


def with_plain_unit(text: str, target: Formula, unit: str) -> Formula:
    """A target as it is read beside an answer with a unit: `10 cm`, whose letters are factors by themselves, is ten of the unit
    beside `10\\text{ cm}`."""
    if target.unit or _without_unit(text, unit) is None:
        return target
    try:
        return _read_with_unit(text, unit)
    except Unread:
        return target
