"""LORD++ over the openings of a set of rows: first steps by hand, the wealth, and what a promotion earns."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import zeta

from whet.stats import discovery_alpha, opening_alpha
from whet.stats.multiplicity import _SUM

ALPHA = 0.05
GAMMA = [0.437490166, 0.144317934, 0.0754352419, 0.0476071638]
"""1, 2^-1.6, 3^-1.6 and 4^-1.6, divided by zeta(1.6)."""


def test_the_sequence_sums_to_one() -> None:
    assert pytest.approx(zeta(1.6), rel=1e-12) == _SUM


@pytest.mark.parametrize(
    ("promoted", "level"),
    [
        ([], 0.025 * GAMMA[0]),
        ([False], 0.025 * GAMMA[1]),
        ([True], 0.025 * GAMMA[1] + 0.025 * GAMMA[0]),
        ([False, True], 0.025 * GAMMA[2] + 0.025 * GAMMA[0]),
        ([True, False], 0.025 * GAMMA[2] + 0.025 * GAMMA[1]),
        ([True, True], 0.025 * GAMMA[2] + 0.025 * GAMMA[1] + 0.05 * GAMMA[0]),
        ([True, False, True], 0.025 * GAMMA[3] + 0.025 * GAMMA[2] + 0.05 * GAMMA[0]),
    ],
)
def test_the_first_steps_by_hand(promoted: list[bool], level: float) -> None:
    assert discovery_alpha(ALPHA, promoted) == pytest.approx(level, rel=1e-6)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60), st.floats(0.001, 0.49))
def test_the_wealth_is_never_negative(openings: list[tuple[bool, int]], alpha: float) -> None:
    """Also where a verdict is known only after later openings: of each the number of openings that it takes is drawn."""
    spent, outcomes = Fraction(0), [good for good, _ in openings]
    for at in range(len(openings)):
        known = [good and number + late < at for number, (good, late) in enumerate(openings[:at])]
        level = discovery_alpha(alpha, known)
        assert 0 < level <= discovery_alpha(alpha, outcomes[:at]) * (1 + 1e-12), (
            "what is not known earns nothing"
        )
        spent += Fraction(level)
        assert spent <= Fraction(alpha) * max(1, sum(outcomes[:at])) * Fraction(1 + 1e-9)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 39))
def test_one_more_promotion_never_lowers_a_level(promoted: list[bool], at: int) -> None:
    more = [*promoted[:at], True, *promoted[at + 1 :]][: len(promoted)]
    assert discovery_alpha(ALPHA, more) >= discovery_alpha(ALPHA, promoted) * (1 - 1e-12)


def test_beside_the_strict_schedule() -> None:
    """It gives less to the first opening and more to all others, also where nothing is ever promoted."""
    assert discovery_alpha(ALPHA, []) < opening_alpha(ALPHA, 1)
    for number in range(4, 200):
        assert discovery_alpha(ALPHA, [False] * (number - 1)) > opening_alpha(ALPHA, number)
