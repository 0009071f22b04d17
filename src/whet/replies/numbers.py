"""Numbers of JSON that a double cannot hold."""

from __future__ import annotations

import math
from decimal import Decimal

_EXACT = 2**53
"""From here on, doubles skip whole numbers."""
_LARGEST_EXPONENT = 400


def read_json_float(text: str) -> int | float:
    """A number of JSON with a point or an exponent, for `parse_float`: a float, or the whole number that no double is.

    Raises ValueError for a number that neither holds.

    >>> read_json_float("0.10"), read_json_float("9007199254740993.0"), read_json_float("1e400") == 10**400
    (0.1, 9007199254740993, True)
    """
    number = float(text)
    if abs(number) < _EXACT:
        return number
    exact = Decimal(text)
    if math.isfinite(number) and exact == Decimal(repr(number)):
        return number
    if exact.adjusted() <= _LARGEST_EXPONENT and exact == exact.to_integral_value():
        return int(exact)
    if math.isinf(number):
        raise ValueError(f"the number {text} is too large")
    return number
