"""Signs and words behind a number that multiply it: $1.5M, 3万, and what the options of a task name ("2 million").

Which words of a language are numerals, whet does not know: a task says so. The characters are those that Unicode's property
Numeric_Value gives a value.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from decimal import Decimal

import regex

from whet._util.words import fold
from whet.errors import UsageError
from whet_client.storable import show_value

SIGNS: Mapping[str, float] = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}
"""The signs that multiply a number directly before them, as in $1.5M, unless the task says otherwise."""
_HAN = "十百千万萬億亿兆"
_MYRIAD = 10**4
_REACHES = regex.compile("[万萬億亿兆]")
_HAN_NUMBER = regex.compile(
    rf"(?<![0-9.,])(?:[0-9]++(?:,[0-9]{{3}}+)*+(?:\.[0-9]++)?+[{_HAN}]++)++(?:[0-9]++(?![.,]?[0-9]))?+"
)
_HAN_PART = regex.compile(rf"([0-9][0-9,]*+(?:\.[0-9]++)?+)([{_HAN}]*+)")


def multiply_han(text: str, unit: str = "") -> str:
    """A text with numbers such as 3万 and 2億3000万 in digits. Only what reaches a myriad (万, 億, 兆) multiplies: 5千米 are 5
    kilometres. Nothing does where one of these signs is the `unit`.

    >>> multiply_han("3万円, 1.5億, 2億3000万, 5千米")
    '30000円, 150000000, 230000000, 5千米'
    """
    return (
        str(_HAN_NUMBER.sub(_in_digits, text))
        if _REACHES.search(text) and not _REACHES.search(unit)
        else text
    )


def _in_digits(match: regex.Match[str]) -> str:
    """The sum of the parts of a number, which must become smaller from one to the next; else the text as it is."""
    total, last = Decimal(0), math.inf
    for digits, signs in _HAN_PART.findall(match.group()):
        factor = math.prod(int(unicodedata.numeric(sign)) for sign in signs)
        if factor >= last or (factor < _MYRIAD and last is math.inf):
            return str(match.group())
        total, last = total + Decimal(digits.replace(",", "")) * factor, factor
    return f"{total.normalize():f}"


def check_multiples(multiples: Mapping[str, float]) -> None:
    """Raise UsageError for a word that is none, and for a factor that is no power of ten."""
    for word, factor in multiples.items():
        if not isinstance(word, str) or not word.strip() or any(c.isdigit() for c in word):
            raise UsageError(
                f"multiples of number: {show_value(word)} is no word that may stand behind a number."
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or _exponent(factor) is None:
            raise UsageError(
                f"multiples of number: {word} is {show_value(factor)}; write a power of ten, such as 1000000."
            )


def _exponent(factor: float) -> int | None:
    """The n of 10^n; None for another number."""
    if not (math.isfinite(factor) and factor > 0):
        return None
    exponent = round(math.log10(factor))
    return exponent if Decimal(str(factor)) == Decimal(10) ** exponent else None


def multiply_signs(text: str, multiples: Mapping[str, float] | None, unit: str) -> str:
    """A text with powers of ten in the place of what multiplies the number before it: SIGNS directly behind it, or the words of
    `multiples`, in any case and also behind a blank or a hyphen. The `unit` itself multiplies nothing.

    >>> multiply_signs("$1.5M", None, ""), multiply_signs("2 Millionen", {"millionen": 1e6}, "")
    ('$1.5×10^6', '2×10^6')
    """
    words = SIGNS if multiples is None else multiples
    factors = {
        (word if len(word) == 1 else word.casefold()): factor
        for word, factor in words.items()
        if fold(word) != fold(unit)
    }
    if not factors:
        return text
    names = "|".join(regex.escape(word) for word in sorted(factors, key=len, reverse=True))
    blank = "" if multiples is None else r"[\s\u2010-\u2015-]?"
    pattern = regex.compile(rf"(?<!\p{{L}}[0-9.,]*)(?<=[0-9]){blank}((?i:{names}))(?![\w^])")

    def power(match: regex.Match[str]) -> str:
        word = match[1] if len(match[1]) == 1 else match[1].casefold()
        return match.group() if word not in factors else f"\u00d710^{_exponent(factors[word])}"

    return str(pattern.sub(power, text))
