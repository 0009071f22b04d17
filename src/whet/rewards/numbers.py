"""Numbers as people and models write them, and the reward that compares them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction

import regex

from whet._util.words import fold, sentence_ends, strip_wrapping
from whet.errors import UsageError
from whet.replies.alternatives import is_between, marks_nothing, names_several
from whet.replies.marked import marked_results
from whet.rewards.multiples import check_multiples, multiply_han, multiply_signs
from whet.rewards.reward import TARGET
from whet.rewards.targets import accepted_answers, quote_target, show_target
from whet.run import Run
from whet.types import Completion, Example, Reward

_LONGEST, _LARGEST_EXPONENT, _PRECISION = 400, 400, 1000
_ROUNDING, _FLOAT_ROUNDING = Fraction(1, 10**9), Fraction(1, 10**15)
_DIGITS = r"(?:[0-9]+(?:[.,'\u2019][0-9]+)*|[.][0-9]+(?![.,]?[0-9]))(?:e[-+\u2212]?[0-9]{1,4}(?![0-9]))?"
_SIGN = r"[-+\u2212\u2013]"
_POWER = r"\^[-+]?[0-9]{1,3}(?![0-9])"
_TEN_TO = rf"[ ]?[\u00d7\u22c5\u00b7x*][ ]?10{_POWER}"
_FRACTION = r"(?<![0-9][ ]?/[ ]?)[0-9]+(?:[.,][0-9]+)*[ ]?/[ ]?[0-9]+(?![0-9]|[ ]?/[ ]?[0-9]|[.,][0-9])"
_LIST_MARK = re.compile(r"(?m)^([ \t]*)[-\u2013](?=[ \t])")
_NUMBER = regex.compile(
    rf"(?:(?<![\w.)]){_SIGN}[ ]?\p{{Sc}}?)?(?<![0-9.,])(?<![0-9]['\u2019])(?:{_FRACTION}|{_DIGITS}(?:{_TEN_TO}|{_POWER})?)"
)
_WHOLE = regex.compile(
    rf"(?P<sign>{_SIGN})?\s*\p{{Sc}}?\s*(?P<inner>{_SIGN})?(?P<digits>[0-9.,'\u2019\s]+(?:e[-+\u2212]?[0-9]{{1,4}})?)"
    rf"(?:/\s?(?P<under>[0-9]+)|[\u00d7\u22c5\u00b7x*]\s?10\^(?P<ten>[-+]?[0-9]+)|\^(?P<power>[-+]?[0-9]+))?\s*\p{{Sc}}?\s*(?P<percent>[%\u066a])?"
)
_BEFORE_WORD = regex.compile(rf"(?<![\w.,])({_DIGITS})\s{{0,2}}(\p{{L}}[\p{{L}}\p{{M}}]*)")
_LONGEST_TEXT, _MOST_ZEROS = 20_000, 15
MULTIPLIED = "multiplied_by_a_word"
"""The part of a rollout that is 1 where a number of the answer is the target but for a power of ten, and a word follows it."""
HUNDREDTH = "hundredth"
"""The part of a rollout that is 1 where the answer is the target but for a factor of 100, and one of both has a percent sign."""
BESIDE = "beside_another_number"
"""The part of a rollout that is 1 where a right number is one of two in the last sentence, with a single word between them."""
_BLANKS = re.compile(r"[\s'\u2019]")
_NARROW = re.compile(r"(?<=[0-9])[\u00a0\u202f\u2009](?=[0-9]{3})")
_WHOLE_PART = re.compile(r"(?<![0-9.,/^])([0-9]{1,9})[ ]\Z")
_LATEX = regex.compile(
    r"\\[dt]?frac\s*(?:\{\s*([-+]?[0-9.,]+)\s*\}|([0-9]))\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))"
    r"|(?<=[0-9])(?:\{,\}|\\[,;:! ])(?=[0-9]{3})|\\(?:times|cdot)(?![a-z])\s*|\\(?=[%$])|\^\{\s*([-+]?[0-9]+)\s*\}"
)
_RAISED = regex.compile(r"(?<=[0-9])[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_VULGAR = regex.compile(r"(?<=([0-9])?)[ ]?([\p{DT=Fraction}])")
_NEAR = 60
_BOUND = regex.compile(
    r"(?:[<>\u2264\u2265\u2a7d\u2a7e]=?|\\[lg](?:eqslant|eq?|t)|[\u00b1\u2213]|\\(?:pm|mp)|\+/[-\u2212]?)[ ]?\p{Sc}?[ ]?\Z"
)
"""The text before a bound, or before a tolerance: ±2 is no value."""
_NO_BOUND = regex.compile(r"(?m)(?:<[^<>\n]+>|[-=~<>]>|^[ \t]*>)[ ]?\p{Sc}?[ ]?\Z")
_EQUALS = re.compile(r"\A\s*=\s*")
_NO_CENTS = regex.compile(r"(?<=[0-9])[.,]\s?[-\u2013\u2014]+(?=\s?\p{Sc}?\s*\Z)")
"""The dash in the place of the cents, as in 42,- €."""
_RAISED_OR_LOWERED = regex.compile(r"[\p{L}\p{M})\]}][\^_]\{?[ ]?[-+]?\Z")
"""The text before a number that is an exponent or index of a letter, as in 12 m^2 and CO_2, and so no value."""
_IN_WORD = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}]\Z")
"""The text before a digit that may be part of a unit or formula, as in 12 m2 and 12 t CO2."""
_AMOUNT = regex.compile(
    rf"\p{{Sc}}?[ ]?\([ ]?(?P<inner>\p{{Sc}}?[ ]?{_DIGITS}[ ]?(?:\p{{Sc}}|%)?)[ ]?\)[ ]?(?:\p{{Sc}}|%)?"
)
"""A number in round brackets, as accountants write a negative one."""
_SURE_AMOUNT = regex.compile(r"[.,%\p{Sc}]")
"""The signs of such an amount, which are rare in a number that only has brackets around it, such as (3)."""
_REFERENCES = r"(?:[ ]?\[[0-9]{1,3}(?:[ ]?[,;\u2013-][ ]?[0-9]{1,3})*\])++"
"""Whole numbers in square brackets, such as [3], [3][4] and [3, 4]."""
_SEPARATORS = str.maketrans({"\u066b": ".", "\u066c": ",", "\u2044": "/", "\u2215": "/"})
_BLANK_GROUPS = re.compile(r"(?<![0-9.,] )(?<![0-9.,'])[0-9]{1,3}(?: [0-9]{3})+(?:[.,][0-9]+)?\Z")


def _without_references(folded: str, unit: str) -> str:
    """A folded text without the whole numbers in square brackets that stand directly behind a number or its unit, as those of
    sources do (12 [3]). Behind anything else, such as the mark of a list's item (1. [3]), such a number may be the answer."""
    beside = rf"[ ]?(?:[%\p{{Sc}}]|{regex.escape(fold(unit).strip())})?[*_.,;]{{0,4}}"
    pattern = rf"(?m)(?<=[0-9]{beside})(?<!^[ \t]{{0,9}}[0-9]{{1,9}}\.){_REFERENCES}"
    return regex.sub(pattern, "", folded) if "[" in folded else folded


def _is_bound(text: str, at: int) -> bool:
    """Whether the number at a place is a bound, such as that of <42 or x \\geq 42, or a tolerance (±2): no value. The sign that
    ends a tag, an arrow and the mark of a quotation bound nothing."""
    before = max(0, at - _NEAR)
    return _BOUND.search(text, before, at) is not None and _NO_BOUND.search(text, before, at) is None


def _fold_number(text: str, unit: str = "") -> str:
    """Folded text with numbers as a keyboard writes them: fractions and powers of LaTeX and of Unicode as 1/2 and 10^2, and the
    separators of Arabic digits as comma and point, 3万 as 30000."""
    plain = with_plain_numbers(fold(text))
    return plain if text.isascii() else multiply_han(plain, unit)


def with_plain_numbers(folded: str) -> str:
    """A folded text with the fractions, powers and separators of its numbers as a keyboard writes them.

    >>> with_plain_numbers("5\u00bd, 12\u00b2, 0\u066b5")
    '5 1/2, 12^2, 0.5'
    """
    plain = _LATEX.sub(_plain_latex, folded) if "\\" in folded or "{" in folded else folded
    if plain.isascii():
        return plain
    plain = _RAISED.sub(
        lambda m: f"^{unicodedata.normalize('NFKC', m.group())}".replace("\u2212", "-"), plain
    )
    return str(_VULGAR.sub(_plain_fraction, plain)).translate(_SEPARATORS)


def _plain_latex(match: regex.Match[str]) -> str:
    over, under, power = match[1] or match[2], match[3] or match[4], match[5]
    if over is not None:
        before = match.string[: match.start()].rstrip()[-1:]
        return f"{' ' if before.isdigit() else ''}{over}/{under}"
    if power is not None:
        return f"^{power}"
    if match.group().startswith(("\\times", "\\cdot")):
        return "\u00d7"
    return "" if match.group() == "\\" else ","


def _plain_fraction(match: regex.Match[str]) -> str:
    blank = " " if match[1] or match.group().startswith(" ") else ""
    return f"{blank}{unicodedata.normalize('NFKC', match[2])}"


def parse_number(text: str, decimal: str = "", unit: str = "") -> Decimal | None:
    """The number that a text is as a whole; None for a text that is anything else, or more.

    A currency sign, a percent sign (left aside), the `unit`, signs for thousands and an exponent belong to a number. Where
    both a comma and a point stand in it, the last one is the decimal sign. `decimal`, `.` or `,`, decides where only one of
    them stands before exactly three digits, such as 1,234; without it a comma there divides thousands and a point is the
    decimal sign. Fractions (3/4, 1 1/2, ½), powers (10^6) and numbers times a power of ten are numbers too, also in LaTeX.

    >>> [str(parse_number(text)) for text in ("18.00", "$1,234.00", "1.234,00", "1,5", "-3 %", "18 apples")]
    ['18.00', '1234.00', '1234.00', '1.5', '-3', 'None']
    >>> parse_number("2½"), parse_number("\\\\frac{3}{4}") == parse_number("75 × 10^-2")
    (Decimal('2.5'), True)
    """
    folded = _fold_number(text, unit).strip()
    if unit:
        name = fold(unit).strip()
        folded = (
            folded.removesuffix(name).strip() if folded.endswith(name) else folded.removeprefix(name).strip()
        )
    if len(folded) > _LONGEST or not any(character.isdigit() for character in folded):
        return None
    match = _WHOLE.fullmatch(folded.rstrip("."))
    if match is None:
        return None
    sign = match["sign"] or match["inner"] or ""
    if match["sign"] and match["inner"]:
        return None
    value = _combine(match, decimal)
    return value if value is None or sign in ("", "+") else -value


def _combine(match: regex.Match[str], decimal: str) -> Decimal | None:
    """The value of a number with what stands behind it: a denominator, a power, a power of ten."""
    digits, under, ten, power = match["digits"].strip(), match["under"], match["ten"], match["power"]
    value, whole = _value(digits, decimal), Decimal(0)
    if value is None and under is not None:
        head, _, tail = digits.rpartition(" ")
        value, part = _value(tail, decimal), _value(head, decimal) if head else None
        if value is None or part is None or value >= int(under):
            return None
        whole = part
    exponent = int(ten or power or 0)
    if value is None or abs(exponent) > _LARGEST_EXPONENT or (under is not None and not int(under)):
        return None
    with localcontext(prec=_PRECISION):
        if under is not None:
            return whole + value / int(under)
        if ten is not None:
            return value.scaleb(exponent)
        return value if power is None else _raise_to_power(value, exponent)


def _raise_to_power(value: Decimal, exponent: int) -> Decimal | None:
    if (not value and exponent < 0) or len(value.as_tuple().digits) * abs(exponent) > _PRECISION:
        return None
    return value**exponent if value or exponent else Decimal(1)


def _value(digits: str, decimal: str) -> Decimal | None:
    mantissa, _, exponent = digits.partition("e")
    plain = _plain(mantissa.strip(), decimal)
    if plain is None or (exponent and abs(int(exponent.replace("\u2212", "-"))) > _LARGEST_EXPONENT):
        return None
    return Decimal(plain + (f"e{exponent}" if exponent else "").replace("\u2212", "-"))


def _plain(digits: str, decimal: str) -> str | None:
    """Digits with a decimal point and nothing that divides thousands; None where the groups are those of no number."""
    if (parts := _BLANKS.split(digits)) and len(parts) > 1:
        head, last = parts[:-1], re.split(r"[.,]", parts[-1], maxsplit=1)
        if not _are_groups([*head, last[0]]):
            return None
        digits = "".join(parts)
        return _plain(digits, decimal) if len(last) == 1 else f"{digits[: -len(last[1]) - 1]}.{last[1]}"
    commas, points = digits.count(","), digits.count(".")
    if not commas and not points:
        return digits
    if commas and points:
        mark = "," if digits.rfind(",") > digits.rfind(".") else "."
        other = "." if mark == "," else ","
        whole, _, rest = digits.rpartition(mark)
        return (
            f"{whole.replace(other, '')}.{rest}"
            if mark not in whole and _are_groups(whole.split(other))
            else None
        )
    mark = "," if commas else "."
    groups = digits.split(mark)
    grouped = _are_groups(groups)
    if len(groups) > 2:
        return "".join(groups) if grouped else None
    thousands = grouped and (mark != decimal if decimal else mark == ",")
    return "".join(groups) if thousands else f"{groups[0] or 0}.{groups[1] or 0}"


def _are_groups(groups: list[str]) -> bool:
    """Whether digits are grouped as thousands are: by three, or in the Indian way by two and the last by three."""
    head, *rest = groups
    if not rest or not head or head.startswith("0") or len(head) > 3 or len(rest[-1]) != 3:
        return False
    return all(len(g) == 3 for g in rest) or (len(head) <= 2 and all(len(g) == 2 for g in rest[:-1]))


def without_list_marks(text: str) -> str:
    """A text without the dashes that mark an item of a list: those that begin a line and stand before a blank. A true minus
    sign marks nothing.

    >>> without_list_marks("- 42"), without_list_marks("-42"), without_list_marks("3 - 42")
    ('  42', '-42', '3 - 42')
    """
    return _LIST_MARK.sub(r"\1 ", text)


def numbers_in(text: str, decimal: str = "") -> Iterator[Decimal]:
    """The numbers in a text, in order. A hyphen between two of them is no sign, nor is the dash of a list.

    >>> [str(n) for n in numbers_in("From 3-5 boxes, $1,234.50 in all.")], [str(n) for n in numbers_in("- 7\\n- -8")]
    (['3', '5', '1234.50'], ['7', '-8'])
    """
    folded = _fold_number(_NARROW.sub("'", without_list_marks(text)))
    for match in _values_first(folded, list(_NUMBER.finditer(folded)), only=True):
        number = parse_number(match.group(), decimal)
        if number is not None:
            yield number


def _values_first(folded: str, matches: list[regex.Match[str]], only: bool = False) -> list[regex.Match[str]]:
    """The numbers of a text in their order, those that are an exponent or an index last; with `only`, without them where there
    are others."""
    scripts = {
        match.start()
        for match in matches
        if _RAISED_OR_LOWERED.search(folded, max(0, match.start() - _NEAR), match.start())
    }
    if only and len(scripts) < len(matches):
        return [match for match in matches if match.start() not in scripts]
    return sorted(matches, key=lambda match: match.start() in scripts)


def _standing_before(folded: str, match: regex.Match[str]) -> list[str]:
    """If a number is one digit directly behind a letter, which may be part of a unit or formula (12 m2, 12 t CO2), the last
    number before it on its line; else nothing."""
    start = match.start()
    if len(match.group()) > 1 or not _IN_WORD.search(folded, max(0, start - 1), start):
        return []
    line = max(folded.rfind("\n", 0, start) + 1, start - _LONGEST)
    others = [
        one
        for one in _NUMBER.finditer(folded, line, start)
        if not _IN_WORD.search(folded, max(0, one.start() - 1), one.start())
    ]
    return [others[-1].group()] if others else []


def words_behind(text: str, decimal: str = "") -> Iterator[tuple[Decimal, str]]:
    """The numbers in a text that a word follows, each with its word.

    >>> [(str(number), word) for number, word in words_behind("1.5 Millionen, 3 of 7.")]
    [('1.5', 'millionen'), ('3', 'of')]
    """
    for match in _BEFORE_WORD.finditer(_fold_number(text[-_LONGEST_TEXT:])):
        number = parse_number(match[1], decimal)
        if number is not None:
            yield number, match[2]


def number_of(target: object) -> Decimal | None:
    """The number that a target is by its type; None for a text, a truth value and a number that is not finite.

    >>> number_of(18.0), number_of("18"), number_of(True)
    (Decimal('18.0'), None, None)
    """
    if isinstance(target, bool) or not isinstance(target, int | float):
        return None
    return Decimal(repr(target)) if not isinstance(target, float) or math.isfinite(target) else None


def parse_answer(text: str, decimal: str = "", unit: str = "") -> Decimal | None:
    """The number that an answer is as a whole, as `parse_number` reads it, also where Markdown's marks, quotes, brackets or
    LaTeX's signs of a formula stand around it, an equals sign before it, or a stop of any script behind it.

    >>> [str(parse_answer(text)) for text in ("**42**。", "= (42)", "\\\\(42\\\\)", "42,- €", "-(42)", "42!")]
    ['42', '42', '42', '42', 'None', '42']
    """
    number = parse_number(text, decimal, unit)
    if number is not None or len(text) > _LONGEST:
        return number
    return parse_number(
        strip_wrapping(_NO_CENTS.sub("", _EQUALS.sub("", strip_wrapping(text)))), decimal, unit
    )


def is_amount(text: str, sure: bool = False) -> bool:
    """Whether a text is a number in round brackets, which may be a negative one; with `sure`, one that a table of accounts wrote:
    with a separator, a currency sign or a percent sign.

    >>> is_amount("(1,200)", sure=True), is_amount("$(5)", sure=True), is_amount("(3)"), is_amount("(3)", sure=True)
    (True, True, True, False)
    """
    folded = fold(text).strip()
    return _AMOUNT.fullmatch(folded) is not None and (not sure or _SURE_AMOUNT.search(folded) is not None)


def is_same_number(answer: str, target: object) -> bool | None:
    """Whether an answer is the number that the target is by its type; None where the target is no number, or the answer not
    wholly one.

    >>> is_same_number("$18.00", 18.0), is_same_number("19", 18), is_same_number("007", "7"), is_same_number("(1,200)", -1200)
    (True, False, None, True)
    """
    wanted = number_of(target)
    number = None if wanted is None else parse_answer(without_list_marks(answer))
    if wanted is None or number is None:
        return None
    return are_close(number, wanted) or (is_amount(answer, sure=True) and are_close(-number, wanted))


def are_close(one: Decimal, other: Decimal, absolute: float = 0.0, relative: float | None = None) -> bool:
    """Whether two numbers differ by at most `absolute`, or by at most the share `relative` of the second.

    Without `relative`, a second number that is whole allows no difference, and any other one that of its rounding: the share
    1e-9, but no more than 1e-9 (or than a float rounds off).

    >>> are_close(Decimal("1000000000"), Decimal("1000000001")), are_close(Decimal("0.3"), Decimal("0.30000000000000004"))
    (False, True)
    """
    gap, size = abs(Fraction(one) - Fraction(other)), abs(Fraction(other))
    if relative is not None:
        share = Fraction(str(relative)) * size
    elif size.denominator == 1:
        share = Fraction(0)
    else:
        share = max(_ROUNDING * min(size, Fraction(1)), _FLOAT_ROUNDING * size)
    return gap <= max(Fraction(str(absolute)), share)


@dataclass(frozen=True)
class Number:
    """1 when the answer is the target as a number, else 0.

    The answer is wholly a number, with a currency sign, a percent sign or the `unit` at most, and what `parse_answer` leaves
    aside around it; with `last`, the number in its last
    `\\boxed{}` or its only one in tags counts, else the last number in it that is no bound (<42), no tolerance (±2) and no
    reference in square brackets directly behind a number (12 [3]). An answer that names several numbers and none as its result
    (4 or 5) has none, nor has one with an empty mark (<answer></answer>). A dash before a blank at the
    start of a line marks an item of a list and is no sign, unless a target is written so. Two numbers are equal when they differ
    by at most `absolute`, or by the share `relative` of the target; unless a share is given, a whole target is exact, and another
    one may differ by rounding (1e-9).
    `decimal` (`.` or `,`) says which sign is decimal in a number such as 1,234. With `percent`, 18% is 0.18; without, the
    sign is left aside. A k, K, M or B directly behind a number multiplies it ($1.5M is 1500000) unless it is the `unit`;
    `multiples` names other words that do, such as {million: 1000000}, in the place of these.
    """

    last: bool = False
    absolute: float = 0.0
    relative: float | None = None
    decimal: str = ""
    unit: str = ""
    percent: bool = False
    multiples: dict[str, float] | None = field(default=None, hash=False)
    name: str = "number"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def __post_init__(self) -> None:
        if self.absolute < 0 or (self.relative or 0.0) < 0:
            raise UsageError(
                f"a tolerance of number must be 0 or more; these are absolute={self.absolute:g}, "
                f"relative={self.relative or 0.0:g}."
            )
        if self.decimal not in ("", ".", ","):
            raise UsageError(f'the option decimal of number is "." or ","; this is {self.decimal!r}.')
        check_multiples(self.multiples or {})

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that is no number."""
        for target in accepted_answers(example):
            if isinstance(target, str) and is_amount(target) and not is_amount(target, sure=True):
                inner = target.strip().strip("()").strip()
                raise UsageError(
                    f"the target {target.strip()} of {example.place} may be -{inner}, as accountants write it, or {inner} in "
                    f"brackets. Write -{inner} or {inner}, or compare texts with reward: exact_match."
                )
            if self._wanted_number(target) is None:
                word = next((word for _, word in words_behind(str(target))), "")
                name = f"If {word} multiplies the number, write multiples: {{{word}: 1000000}} (its own power of ten). "
                raise UsageError(
                    f"the target {show_target(target)} of {example.place} is no number. {name if word else ''}Correct the row, "
                    "or compare texts with reward: exact_match."
                )

    def _multiply_signs(self, text: str) -> str:
        """A text with powers of ten in the place of signs and words that multiply the number before them."""
        return multiply_signs(text, self.multiples, self.unit.strip())

    def _read(self, text: str) -> Decimal | None:
        plain = text.replace("(", "").replace(")", "") if is_amount(text, sure=True) else text
        number = parse_answer(self._multiply_signs(plain), self.decimal, self.unit)
        if number is not None and self.percent and "%" in fold(text):
            return number / 100
        return number

    def _wanted_number(self, target: object) -> Decimal | None:
        if not isinstance(target, str):
            return number_of(target)
        number = self._read(target)
        return -number if number is not None and is_amount(target, sure=True) else number

    def _find_numbers(self, text: str) -> list[Decimal]:
        """The number of an answer, as each of the ways to read it."""
        number = self._read(text)
        if number is not None or not self.last:
            return [] if number is None else [number, *([-number] if is_amount(text, sure=True) else [])]
        if names_several(text, self._read):
            return []
        marked = {one for piece in marked_results(text) if (one := self._read(piece)) is not None}
        if len(marked) == 1 or marks_nothing(text):
            return list(marked) if len(marked) == 1 else []
        folded = _fold_number(_NARROW.sub("'", self._multiply_signs(text)), self.unit)
        folded = _without_references(folded, self.unit)
        for match in _values_first(folded, list(_NUMBER.finditer(folded))[::-1]):
            grouped = _BLANK_GROUPS.search(folded, max(0, match.start() - _LONGEST), match.end())
            part = _WHOLE_PART.search(folded, 0, match.start()) if "/" in match.group() else None
            texts = [match.group(), *([grouped.group()] if grouped is not None else [])]
            texts += [f"{part[1]} {match.group()}"] if part is not None else []
            texts += _standing_before(folded, match)
            numbers = [n for one in texts if (n := parse_number(one, self.decimal)) is not None]
            if numbers and not _is_bound(folded, match.start()):
                amounts = [
                    one for one in _AMOUNT.finditer(folded) if one.start() <= match.start() < one.end()
                ]
                if amounts and is_amount(amounts[0].group(), sure=True):
                    numbers += [-n for n in numbers]
                hundredths = self.percent and folded[match.end() :].lstrip(" ").startswith("%")
                return [n / 100 for n in numbers] if hundredths else numbers
        return []

    def _is_beside_another(self, text: str) -> bool:
        """Whether the last sentence of an answer without a mark holds two different numbers with a single word between them,
        which may be alternatives (It is 4 or 5.)."""
        plain = text.strip()
        if marked_results(text) or not plain:
            return False
        ends = sentence_ends(plain)
        sentence = _fold_number(plain[ends[-2] if len(ends) > 1 else 0 :], self.unit)
        places = [*_NUMBER.finditer(sentence)] if len(sentence) <= _LONGEST else []
        values = {self._read(place.group()) for place in places}
        return len(places) == len(values) == 2 and is_between(sentence[places[0].end() : places[1].start()])

    def _explain_reading(self, text: str, numbers: list[Decimal]) -> str:
        """Say the value that was read where a sign behind a number multiplied it; empty where no sign did."""
        plain = replace(self, multiples={})._find_numbers(text)
        return f", read as {numbers[0]:f}," if numbers and plain and numbers[0] != plain[0] else ""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        targets = accepted_answers(example)
        as_written = any(isinstance(t, str) and t != without_list_marks(t) for t in targets)
        numbers = self._find_numbers(completion.text if as_written else without_list_marks(completion.text))
        wanted = [number for target in targets if (number := self._wanted_number(target)) is not None]
        if any(are_close(one, n, self.absolute, self.relative) for one in numbers for n in wanted):
            return Reward(
                1.0, {BESIDE: 1.0} if self.last and self._is_beside_another(completion.text) else {}
            )
        words = [
            word for n, word in words_behind(completion.text, self.decimal) if self._is_multiple(n, wanted)
        ]
        parts = {MULTIPLIED: 1.0} if words else {}
        if not self.percent and any(
            self._is_hundredth(completion.text, numbers, target) for target in targets
        ):
            parts[HUNDREDTH] = 1.0
        shown = f"The answer {quote_target(completion.text)}{self._explain_reading(completion.text, numbers)}"
        if not numbers and self.last and names_several(completion.text, self._read):
            shown += " names several numbers, and none of them as its result"
            return Reward(0.0, parts, f"{shown}; it should be {show_target(targets[0])}.")
        if not numbers:
            shown += " holds no number that is no bound and no tolerance" if self.last else " is no number"
            return Reward(0.0, parts, f"{shown}; it should be {show_target(targets[0])}.")
        return Reward(0.0, parts, f"{shown} should be {show_target(targets[0])}.")

    def words_of_equal_numbers(self, example: Example, answer: str) -> list[str]:
        """The words directly behind those numbers of an answer that equal a target of the row, folded."""
        wanted = [n for target in accepted_answers(example) if (n := self._wanted_number(target)) is not None]
        return [
            word
            for number, word in words_behind(answer, self.decimal)
            if any(are_close(number, n, self.absolute, self.relative) for n in wanted)
        ]

    def _is_multiple(self, number: Decimal, wanted: list[Decimal]) -> bool:
        """Whether a power of ten from a hundred on makes a number the one that is wanted, as a word behind it may."""
        return any(
            are_close(number.scaleb(exponent), n, self.absolute, self.relative)
            for n in wanted
            if n and number and 2 <= (exponent := n.adjusted() - number.adjusted()) <= _MOST_ZEROS
        )

    def _is_hundredth(self, answer: str, numbers: list[Decimal], target: object) -> bool:
        """Whether answer and target are equal if the percent sign of one of them, and of one only, divides by 100."""
        wanted = self._wanted_number(target)
        of_answer, of_target = "%" in fold(answer), isinstance(target, str) and "%" in fold(target)
        if wanted is None or of_answer == of_target:
            return False
        factor = -2 if of_answer else 2
        return any(
            are_close(one.scaleb(factor), wanted, self.absolute, self.relative) for one in numbers if one
        )
