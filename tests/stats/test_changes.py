"""The watch for changes: what it finds, how soon, how seldom it is wrong, and that its state survives being stored."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.stats.changes import FALL, RISE, ChangeAlarm, ChangeWatch

YEARS = 365.25 * 24


def follow(
    rates: list[float], seed: int, users: int = 30, threshold: float = YEARS
) -> tuple[int, ChangeAlarm] | None:
    """The day of the first alarm over days with these rates, and the alarm."""
    rng, watch = np.random.default_rng(seed), ChangeWatch()
    for day, rate in enumerate(rates):
        watch.add(day, (rng.random(users) < rate).astype(float))
        if (alarm := watch.alarm(threshold)) is not None:
            return day, alarm
    return None


@pytest.mark.parametrize(("after", "direction"), [(0.5, FALL), (0.97, RISE)])
def test_a_change_is_found_with_its_day_and_its_direction(after: float, direction: str) -> None:
    found = follow([0.8] * 40 + [after] * 40, seed=3)
    assert found is not None
    day, alarm = found
    assert 40 <= day < 60 and alarm.direction == direction
    assert abs(alarm.began - 40) <= 3
    assert alarm.before == pytest.approx(0.8, abs=0.05) and alarm.after == pytest.approx(after, abs=0.1)
    assert alarm.evidence >= YEARS


def test_false_alarms_are_rarer_than_is_stated() -> None:
    """Six streams of a year without a change, with a mean time to a false alarm of 20 days or more each way: simulated."""
    rng, alarms = np.random.default_rng(11), 0
    for _ in range(6):
        watch = ChangeWatch()
        for day in range(365):
            watch.add(day, (rng.random(10) < 0.8).astype(float))
            if watch.alarm(20.0) is not None:
                alarms += 1
                watch = ChangeWatch()
    assert 0 < alarms <= 6 * 365 / 20 * 2


def test_the_reference_does_not_follow_what_got_worse() -> None:
    watch, rng = ChangeWatch(), np.random.default_rng(5)
    for day in range(30):
        watch.add(day, (rng.random(30) < 0.9).astype(float))
    before = watch.bounds[0]
    for day in range(30, 60):
        watch.add(day, (rng.random(30) < 0.3).astype(float))
    assert watch.bounds[0] >= before > 0.75


@given(st.lists(st.lists(st.floats(0, 1), max_size=5), min_size=1, max_size=8), st.integers(0, 7))
def test_a_stored_watch_goes_on_as_if_it_had_not_been_stored(days: list[list[float]], cut: int) -> None:
    whole, stored = ChangeWatch(), ChangeWatch()
    for day, values in enumerate(days):
        whole.add(day, values)
        if day == cut:
            stored = ChangeWatch.from_json(json.loads(json.dumps(stored.as_json())))
        stored.add(day, values)
    assert whole.as_json() == stored.as_json()


def test_parts_of_a_day_are_worth_what_the_day_is() -> None:
    values = [0.0, 1.0, 0.5, 1.0]
    together, apart = ChangeWatch(), ChangeWatch()
    for day in range(3):
        together.add(day, values)
        for value in values:
            apart.add(day, [value])
    assert np.allclose(together.capital, apart.capital) and together.bounds == apart.bounds


def test_old_days_are_kept_in_the_reference_only() -> None:
    watch = ChangeWatch()
    for day in range(150):
        watch.add(day, [1.0, 0.0])
    assert len(watch.days) == 120
    assert sum(sum(counts.values()) for counts in watch.days.values()) == 300


def test_a_capital_that_no_float_holds_is_still_an_alarm() -> None:
    watch = ChangeWatch()
    for day in range(20):
        watch.add(day, [1.0] * 200)
    watch.add(20, [0.0] * 400)
    alarm = watch.alarm(YEARS)
    assert alarm is not None and math.isfinite(alarm.evidence) and alarm.began == 20


def test_what_cannot_be_is_refused() -> None:
    watch = ChangeWatch()
    watch.add(3, [0.5])
    with pytest.raises(UsageError, match="Day 2 comes after day 3"):
        watch.add(2, [0.5])
    with pytest.raises(UsageError, match="outside"):
        watch.add(3, [1.5])
    assert ChangeWatch().alarm(1.0) is None
