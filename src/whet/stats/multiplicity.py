"""Several tests on the same rows: the alpha of each look at them, and p-values that are corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST_SHARE = 0.8


def opening_alpha(alpha: float, opening: int) -> float:
    """The part of `alpha` that the opening number `opening` (from 1) of a set of rows may spend.

        alpha_1 = 0.8 alpha,   alpha_k = 0.2 alpha (6 / pi^2) / (k - 1)^2   for k >= 2

    The squares' reciprocals 1/1 + 1/4 + 1/9 + ... sum to pi^2 / 6, so that all openings together spend at most
    0.8 alpha + 0.2 alpha = alpha, however many there are; by the union bound the chance that any of them errs is at most
    that, whatever the tests have to do with each other. Most people look once, so the first look gets most of it.

    An opening is number 1 + n after n earlier ones that share a row with it. Of all openings that hold one row, the j-th
    has at least the number j, and the levels fall with the number: so the sum over those that hold any one row is at
    most alpha too, also where rows were added or taken away between them.
    """
    if opening == 1:
        return FIRST_SHARE * alpha
    return (1 - FIRST_SHARE) * alpha * 6 / math.pi**2 / (opening - 1) ** 2


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm (1979): rejecting those at most alpha errs anywhere with at most alpha."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted
