"""An amount of money as people write it: 18.90 with a currency sign on either side, and with the separators of any country."""

from __future__ import annotations

import unicodedata
from fractions import Fraction

import regex

from whet.rewards.numbers import parse_number

_BLANKS = regex.compile(r"\\[,;:! ]|[~\s]")
_MONEY = regex.compile(
    r"(?P<sign>[-+\u2212])?(?:[A-Z]{1,3})?\\?(?P<before>\p{Sc})(?P<inner>[-+\u2212])?(?P<one>[0-9][0-9.,'\u2019]*)"
    r"|(?P<minus>[-+\u2212])?(?P<other>[0-9][0-9.,'\u2019]*)\\?(?P<after>\p{Sc})"
)
_LONGEST = 60


def is_currency(unit: str) -> bool:
    """Whether a unit is the sign of a currency."""
    return len(unit) == 1 and unicodedata.category(unit) == "Sc"


def read_money(text: str, unit: str = "") -> tuple[Fraction, str] | None:
    """The amount and the sign of its currency; None for what is anything else. `unit`: a currency that need not stand there.

    >>> read_money("\u20ac 18,90"), read_money("1.234,50 \u20ac"), read_money("18,90")
    ((Fraction(189, 10), '\u20ac'), (Fraction(2469, 2), '\u20ac'), None)
    """
    plain = _BLANKS.sub("", text) if len(text) <= _LONGEST else ""
    match = _MONEY.fullmatch(plain)
    if match is None:
        if not is_currency(unit) or any(unicodedata.category(character) == "Sc" for character in plain):
            return None
        match = _MONEY.fullmatch(plain + unit)
    if match is None or (match["sign"] and match["inner"]):
        return None
    amount = parse_number((match["one"] or match["other"]).rstrip(".,"))
    sign = match["sign"] or match["inner"] or match["minus"] or ""
    if amount is None:
        return None
    return Fraction(amount) * (1 if sign in ("", "+") else -1), match["before"] or match["after"]
