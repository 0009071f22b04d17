"""Numbers as people read them."""

from __future__ import annotations

import math

from whet.errors import quantity, show_reward
from whet.reporting.record import finite_number

MINUS = "\u2212"


def reward_text(value: object, digits: int) -> str:
    """A reward as `show_reward` writes it, with a true minus sign; a dash when there is none.

    >>> reward_text(-0.5, 3), reward_text(None, 3), reward_text(-0.0001, 3), reward_text(-1e-12, 3)
    ('−0.500', '–', '−0.0001', '0.000')
    """
    amount = finite_number(value)
    if amount is None:
        return "–"
    return show_reward(amount, digits).replace("-", MINUS)


def difference(value: object, digits: int) -> str:
    """A difference with its sign.

    >>> difference(0.125, 2), difference(-1, 2), difference(0, 2)
    ('+0.12', '−1.00', '±0.00')
    """
    text = reward_text(value, digits)
    if text == "–" or text.startswith(MINUS):
        return text
    return f"+{text}" if text.strip("0.,") else f"±{text}"


def places(value: object) -> int:
    """Decimals that show a value of any size: three, and more where they would show nothing but zeros.

    >>> places(0.25), places(0.0002134), reward_text(0.0002134, places(0.0002134))
    (3, 6, '0.000213')
    """
    size = abs(finite_number(value) or 0.0)
    return 2 - math.floor(math.log10(size)) if 1e-9 < size < 0.01 else 3


def count(value: object) -> str:
    """A whole number with separators; a dash when there is none."""
    amount = finite_number(value)
    return "–" if amount is None else f"{round(amount):,}"


def plural(n: int, word: str) -> str:
    """A number with its noun.

    >>> plural(1, "call"), plural(1200, "call")
    ('1 call', '1,200 calls')
    """
    return quantity(n, word)


def dollars(value: object) -> str:
    """An amount in USD with four decimals below ten dollars."""
    amount = finite_number(value)
    if amount is None:
        return "–"
    return f"${amount:,.4f}" if 0 < amount < 10 else f"${amount:,.2f}"


NOT_PRICED = "not priced"
"""The text for the dollars of models without a price: they run in this process, or are scripted."""


def price(value: object, unknown: bool, free: bool = False) -> str:
    """An amount in USD; where prices are unknown, that, and what is known beside it; where nothing was spent and the models are
    `free`, because they have no price, that.

    >>> price(0.0, False), price(0.0, True), price(0.25, True), price(0.0, False, True)
    ('$0.00', 'price unknown', '$0.2500 and more: price unknown', 'not priced')
    """
    if free and not unknown and not finite_number(value):
        return NOT_PRICED
    if not unknown:
        return dollars(value)
    return f"{dollars(value)} and more: price unknown" if finite_number(value) else "price unknown"


def duration(value: object) -> str:
    """Seconds as the two largest units.

    >>> duration(3.21), duration(83), duration(7260), duration(None)
    ('3.2 s', '1 min 23 s', '2 h 1 min', '–')
    """
    seconds = finite_number(value)
    if seconds is None:
        return "–"
    if seconds < 59.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


def axis(value: float, step: float) -> str:
    """A tick label: as many decimals as the step needs, k and M where the steps are thousands and millions.

    >>> axis(0.30000000000000004, 0.1), axis(1500, 500), axis(25_000, 5_000), axis(1_500_000, 500_000)
    ('0.3', '1,500', '25k', '1.5M')
    """
    for unit, name, least in ((1e6, "M", 1e5), (1e3, "k", 1e3)):
        if abs(value) >= unit and step >= least:
            return axis(value / unit, step / unit) + name
    digits = 0
    while digits < 8 and abs(round(step, digits) - step) > step * 1e-6:
        digits += 1
    return reward_text(value, digits)
