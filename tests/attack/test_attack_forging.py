"""Forged ratings: how far hostile users bend what people do into a reward, with controls. The traffic is SIMULATED.

A cheap version of the table of `benchmarks/attack/__main__.py`.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
from benchmarks.attack.fake_feedback import FORGERIES, Bent, bend, forge_answers, honest, truth, worst

from whet_live.traffic.behaviour import MOST, RatedAnswer

people = cache(honest)


def raters(rows: list[RatedAnswer]) -> int:
    """How many users rate at all."""
    return len({row.user for row in rows if row.rating is not None})


@cache
def bent(accounts: int, ratings: int, most: float = MOST) -> Bent:
    """The worst that hostile accounts can do."""
    return worst(people(0), accounts, ratings, most)[1]


@pytest.mark.parametrize("seed", range(3))
def test_negative_control_honest_people_are_understood_and_nobody_is_suspected(seed: int) -> None:
    found = bend(people(seed), None, 0, 0)
    assert abs(found.contrast - truth()) < 0.12
    assert found.noticed == ()


def test_positive_control_without_a_bound_a_few_who_rate_much_turn_the_reward_round() -> None:
    few = 7
    assert few < 0.011 * (raters(people(0)) + few), "one in a hundred of those who rate"
    assert bent(few, 100, math.inf).contrast < -0.3
    assert bent(few, 100).contrast > 0.3


def test_a_hundred_ratings_do_no_more_than_ten() -> None:
    assert bent(13, 100).contrast > bent(13, 10).contrast - 0.1 > 0.2
    assert any("users rate so much" in one for one in bent(13, 100).noticed)


def test_what_is_turned_round_beyond_chance_is_told() -> None:
    """Accounts enough win, whatever one of them counts; the page says what looks odd then."""
    lost = bent(163, 10)
    assert lost.contrast < 0
    assert any("the wrong way round" in one for one in lost.noticed)


def test_a_forgery_is_what_it_says() -> None:
    for forgery in FORGERIES:
        rows = list(forge_answers(forgery, 2, 4))
        assert len(rows) == 8 * (1 + forgery.silent)
        assert [row.rating for row in rows if row.rating is not None] == [1.0, 0.0] * 2 + [0.0, 1.0] * 2
        assert {row.user for row in rows} == {"mallory-0", "mallory-1"}
