"""The fold: who was assigned, what counts, and when; nothing depends on when somebody looked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet_client.assignment import assign
from whet_live.experiments.definition import read_definition
from whet_live.experiments.reducer import (
    MICROSECONDS,
    Event,
    ExperimentReducer,
    Exposure,
    MetricOutcome,
    Revision,
)

SALT = "salt"
S = MICROSECONDS
FIRST = Revision(1, 0, (0.5, 0.5))


def fold_of(events: Iterable[Event] = (), *revisions: Revision, **settings: Any) -> ExperimentReducer:
    asked = {"prompt": "p", "label": "production", "arms": [{"version": 1}, {"version": 2}],
             "goal": {"name": "thumb", "window": 60}} | settings  # fmt: skip
    found = ExperimentReducer(read_definition(asked), SALT, revisions or (FIRST,))
    for event in events:
        found.apply(event)
    return found


def seen(at: int, unit: str, inference: str | None = None, revision: int | None = 1, **more: Any) -> Exposure:
    """An exposure of a unit as the first revision assigns it."""
    version = more.pop("version", assign(SALT, unit, [(1, 0.5), (2, 0.5)]))
    return Exposure(at * S, inference or f"{unit}-{at}", unit, version, revision, **more)


def said(at: int, inference: str, value: float, metric: str = "thumb") -> MetricOutcome:
    return MetricOutcome(at * S, inference, metric, value)


def vote(at: int, inference: str, value: float, rater: str) -> MetricOutcome:
    return MetricOutcome(at * S, inference, "thumb", value, rater=rater)


def values(fold: ExperimentReducer, now: int, metric: str = "thumb") -> list[float]:
    return [round(value, 6) for value in fold.sample(metric, now * S).values.tolist()]


def test_an_outcome_counts_when_the_window_of_its_unit_has_closed() -> None:
    fold = fold_of([seen(0, "a"), said(5, "a-0", 1), seen(10, "b"), said(11, "b-10", 0)])
    assert values(fold, 59) == []
    assert values(fold, 60) == [1]
    assert values(fold, 70) == [1, 0]


def test_fast_and_slow_answers_settle_in_the_order_of_assignment() -> None:
    fold = fold_of([seen(0, "slow"), seen(1, "fast"), said(2, "fast-1", 0), said(50, "slow-0", 1)])
    assert values(fold, 60) == [1]
    assert values(fold, 61) == [1, 0]


def test_what_comes_too_late_is_counted_and_left_out() -> None:
    fold = fold_of([seen(0, "a"), said(60, "a-0", 1), said(61, "a-0", 0)])
    assert values(fold, 100) == [1]
    assert fold.counts.late == 1


def test_a_vote_that_its_person_changes_counts_once_as_the_last() -> None:
    """Also after the unit was settled; others about the same answer are counted too."""
    fold = fold_of([seen(0, "a"), seen(0, "b"), vote(1, "a-0", 0, "eva"), vote(2, "a-0", 1, "eva"), vote(3, "b-0", 1, "eva"),
                    vote(4, "b-0", 0, "max")])  # fmt: skip
    assert values(fold, 60) == [1, 0.5]
    fold.apply(vote(60, "b-0", 1, "max"))
    assert values(fold, 60) == [1, 1]


def test_a_unit_without_an_outcome_is_missing_or_the_value_that_was_declared() -> None:
    events = [seen(0, "a"), seen(0, "b"), said(1, "b-0", 1)]
    found = fold_of(events).sample("thumb", 100 * S)
    assert math.isnan(found.values[0])
    assert fold_of(events).at(100 * S).known["thumb"].tolist() == [0, 1]
    declared = fold_of(events, goal={"name": "thumb", "window": 60, "missing": 0.25})
    assert values(declared, 100) == [0.25, 1]
    assert declared.at(100 * S).known["thumb"].tolist() == [0, 1]


@pytest.mark.parametrize(("aggregate", "expected"), [("mean", 0.5), ("first", 0.75), ("max", 1.0)])
def test_several_values_of_a_unit_become_one(aggregate: str, expected: float) -> None:
    goal = {"name": "rating", "low": 1, "high": 5, "window": 60, "aggregate": aggregate}
    events = [seen(0, "a"), seen(5, "a"), said(6, "a-5", 4, "rating"), said(7, "a-0", 5, "rating"),
              said(8, "a-0", 0, "rating")]  # fmt: skip
    assert values(fold_of(events, goal=goal), 60, "rating") == [
        pytest.approx(expected if aggregate != "mean" else (0.75 + (1 + 0) / 2) / 2)
    ]


def test_a_unit_has_one_vote_and_its_identical_requests_count_once() -> None:
    """Ten copies of one request are one request, in the unit's mean as well; where inputs are unknown each is its own."""
    events = [seen(0, "u", f"copy {n}", request="same") for n in range(10)]
    events += [seen(0, "u", "other", request="other"), seen(0, "v", "x"), seen(0, "v", "y")]
    events += [said(1, f"copy {n}", 0.0) for n in range(10)]
    events += [said(1, "other", 1.0), said(1, "x", 1.0), said(1, "y", 1.0)]
    assert values(fold_of(events), 60) == [0.5, 1.0]


def test_the_largest_of_a_metric_that_should_be_small_is_the_worst() -> None:
    goal = {"name": "error", "direction": "min", "window": 60, "aggregate": "max"}
    events = [seen(0, "a"), said(1, "a-0", 0, "error"), said(2, "a-0", 1, "error")]
    assert values(fold_of(events, goal=goal), 60, "error") == [0]


def test_a_version_that_the_definition_does_not_assign_is_left_out() -> None:
    right = assign(SALT, "a", [(1, 0.5), (2, 0.5)])
    fold = fold_of([seen(0, "a", version=3 - right), seen(1, "a", version=9), Exposure(2 * S, "x", "", 1, 1),
                    seen(3, "a", revision=7)])  # fmt: skip
    assert fold.units == []
    assert fold.counts.mismatched == 4


def test_a_unit_stays_with_its_first_arm() -> None:
    """After a change of shares the same user may see another version; what is said about that is not counted."""
    moved = next(
        u
        for u in map(str, range(99))
        if {assign(SALT, u, [(1, w), (2, 1 - w)]) for w in (0.5, 0.1)} == {1, 2}
    )
    later = Exposure(10 * S, "later", moved, assign(SALT, moved, [(1, 0.1), (2, 0.9)]), 2)
    fold = fold_of([seen(0, moved, "first"), said(1, "first", 1), later, said(11, "later", 0)],
                   FIRST, Revision(2, 5 * S, (0.1, 0.9)))  # fmt: skip
    assert values(fold, 100) == [1]
    assert fold.counts.moved == 1
    assert fold.at(0).count_units()[fold.units[0].arm] == len(fold.units) == 1


def test_the_chances_are_those_of_the_revision_that_the_app_used() -> None:
    shares = Revision(2, 5 * S, (0.9, 0.1))
    stale = seen(10, "a", revision=1)
    fresh = Exposure(11 * S, "b", "b", assign(SALT, "b", [(1, 0.9), (2, 0.1)]), 2)
    unsaid = Exposure(12 * S, "c", "c", assign(SALT, "c", [(1, 0.9), (2, 0.1)]))
    early = seen(1, "d", revision=None)
    fold = fold_of([early, stale, fresh, unsaid], FIRST, shares)
    assert fold.sample("thumb", 1000 * S).chances.tolist() == [[0.5, 0.5], [0.5, 0.5], [0.9, 0.1], [0.9, 0.1]]


def test_strata_are_told_apart() -> None:
    events = [seen(0, "a", stratum="de"), seen(1, "b", stratum="en"), seen(2, "c", stratum="de")]
    fold = fold_of(events, stratum="language")
    strata = fold.sample("thumb", 100 * S).strata
    assert strata is not None
    assert strata.tolist() == [0, 1, 0]
    assert fold_of([seen(0, "a")]).sample("thumb", 100 * S).strata is None


def test_each_metric_has_its_own_window() -> None:
    fold = fold_of(
        [seen(0, "a"), said(0, "a-0", 3.0, "latency"), said(30, "a-0", 1)],
        guards=[{"metric": "latency", "direction": "min", "high": 10, "window": 0, "limit": 1}],
    )
    assert values(fold, 0, "latency") == [0.7]
    assert values(fold, 0) == []


def test_an_outcome_in_time_counts_also_when_somebody_looked_before_it_was_heard_of() -> None:
    """It was received within the window; the fold hears of it after the unit was settled without it."""
    events = [seen(0, "a"), seen(1, "b")]
    quiet, watched = fold_of(events), fold_of(events)
    assert np.isnan(watched.sample("thumb", 100 * S).values).all()
    for fold in (quiet, watched):
        fold.apply(said(50, "a-0", 1))
        fold.apply(said(62, "b-1", 1))
    for fold in (quiet, watched):
        found = fold.at(100 * S)
        assert found.samples["thumb"].values[0] == 1
        assert np.isnan(found.samples["thumb"].values[1])
        assert found.known["thumb"].tolist() == [1, 0]
        assert fold.counts.late == 1
    assert (quiet.amended, watched.amended) == (0, 1)


def test_values_outside_the_range_are_counted() -> None:
    events = [seen(0, "a"), said(1, "a-0", 7), said(2, "a-0", 1), said(3, "a-0", -2), said(99, "a-0", 9)]
    found = fold_of(events).at(100 * S)
    assert (found.values, found.clipped) == ({"thumb": 3}, {"thumb": 2})


def test_a_snapshot_stays_what_it_was() -> None:
    fold = fold_of([seen(0, "a"), said(1, "a-0", 1)])
    before = fold.at(100 * S)
    for event in (seen(10, "b"), seen(11, "a", version=9), said(12, "b-10", 0)):
        fold.apply(event)
    fold.at(100 * S)
    assert (before.settled, len(before.units.arms), before.counts.mismatched) == (1, 1, 0)
    assert before.values == {"thumb": 1}


happenings = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(0, 200), st.sampled_from([0.0, 1.0])),
    max_size=30,
)


@given(happenings, st.lists(st.integers(0, 400), max_size=5))
def test_when_somebody_looks_changes_nothing(
    happened: list[tuple[int, int, int, float]], looks: list[int]
) -> None:
    """Looking between the events, at their time, gives the same figures in the end as never looking."""
    events: list[tuple[int, Event]] = []
    for number, (unit, at, delay, value) in enumerate(happened):
        name = f"i{number}"
        events.append((at, seen(at, f"u{unit}", name)))
        events.append((at + delay, said(at + delay, name, value)))
    events.sort(key=lambda pair: pair[0])
    quiet, watched = fold_of(event for _, event in events), fold_of()
    for at, event in events:
        for look in sorted(looks):
            if look < at:
                watched.sample("thumb", look * S)
        watched.apply(event)
    end = 1000 * S
    assert np.array_equal(
        quiet.sample("thumb", end).values, watched.sample("thumb", end).values, equal_nan=True
    )
    assert quiet.counts == watched.counts
    assert quiet.at(end).count_units() == watched.at(end).count_units()
