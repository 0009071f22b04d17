"""Several tests on the same rows: the alpha of each look at them, and p-values that are corrected for their number.

Two policies share out the alpha of rows that are opened more than once. `strict` bounds the chance of any false promotion,
`fdr` the share of false ones among the promotions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST_SHARE = 0.8
STRICT, FDR = "strict", "fdr"
POLICIES = (STRICT, FDR)
"""The rules that share out the alpha of rows over their openings; the first is the default."""
_DECAY = 1.6
_SUM = 2.2857656656801293
"""Riemann's zeta function at 1.6: what the reciprocals 1/1 + 1/2^1.6 + 1/3^1.6 + ... sum to."""
_START = 0.5


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


def discovery_alpha(alpha: float, promoted: Sequence[bool]) -> float:
    """The level of the opening of a set of rows after earlier ones, of which those marked in `promoted` promoted a prompt, by
    LORD++ (Ramdas, Yang, Wainwright and Jordan, NeurIPS 2017, arXiv 1710.00499, section 3.1).

        alpha_t = gamma_t w_0 + (alpha - w_0) gamma_(t - tau_1) + alpha sum over j >= 2 of gamma_(t - tau_j)

    t = 1 + the number of earlier openings, tau_1 < tau_2 < ... the numbers of those that promoted, w_0 = alpha / 2, and
    gamma_j = j^-1.6 / zeta(1.6), the sequence of SAFFRON (Ramdas, Zrnic, Wainwright and Jordan, ICML 2018, arXiv 1802.09098).
    LORD++ allows any w_0 of at most alpha and any sequence that does not increase and sums to 1.

    Guarantee. For whatever outcomes, sum of alpha_1 ... alpha_t <= alpha max(1, promotions so far): the wealth is never
    negative. So the expected number of false promotions is at most alpha times the expected number of promotions (or 1 where
    there is none), if the p-value of each opening whose prompt is no better is valid given the earlier outcomes; and the false
    discovery rate is at most alpha (Theorem 1), if these p-values are independent of each other and of all others. Tests on
    the same rows are not independent: for them docs/openings.md has simulations, no proof. An outcome that is not known yet
    counts as none; that only lowers the level.
    """
    level, number = _gamma(len(promoted) + 1) * _START * alpha, len(promoted) + 1
    reward = (1 - _START) * alpha
    for earlier in (at for at, good in enumerate(promoted, 1) if good):
        level += reward * _gamma(number - earlier)
        reward = alpha
    return level


def _gamma(number: int) -> float:
    return 1.0 / (_SUM * math.pow(number, _DECAY))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm (1979): rejecting those at most alpha errs anywhere with at most alpha."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted
