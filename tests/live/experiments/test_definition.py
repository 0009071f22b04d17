"""Definitions: what may be asked, and what is refused with a reason."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from whet.errors import UsageError
from whet_client.assignment import UNITS
from whet_live.experiments.definition import Definition, read_definition, refuse_tiny
from whet_live.experiments.definition_json import Unit

PLAIN: dict[str, Any] = {
    "prompt": "support/reply",
    "label": "production",
    "arms": [{"version": 3}, {"version": 4}],
    "goal": "thumb",
}


def test_a_short_definition_has_sensible_defaults() -> None:
    found = read_definition(PLAIN)
    assert found.control == 3
    assert found.starting_weights == (0.5, 0.5)
    assert (found.goal.name, found.goal.direction, found.goal.window) == ("thumb", "max", 3600)
    assert (found.unit, found.alpha, found.approval, found.policy.kind) == ("session", 0.05, True, "fixed")


def test_guard_rails_take_the_words_of_objectives() -> None:
    one = {"metric": "latency", "high": 20}
    bound, margin = read_definition(
        PLAIN | {"guards": [{**one, "goal": "min", "at_most": 3.0}, {"metric": "thumb", "margin": 0.1}]}
    ).guards
    assert (bound.against, bound.limit, bound.metric.direction) == ("value", 3.0, "min")
    assert (margin.against, margin.limit, margin.metric.direction) == ("control", 0.1, "max")
    for guard, message in (
        ({**one, "at_most": "1.1x"}, "on live traffic it is a number"),
        ({**one, "at_most": 3.0, "margin": 1.0}, "at_most and margin stand together"),
        ({**one, "goal": "min", "at_least": 3.0}, "Write the other bound"),
        ({"metric": {"name": "thumb"}, "at_most": 0.5}, "Write the other bound"),
        ({"metric": "cost_usd", "at_most": 0.01}, '"cost", in dollars'),
        ({"metric": "latency_ms", "at_most": 0.5}, '"latency", in seconds'),
    ):
        with pytest.raises(UsageError, match=message):
            read_definition(PLAIN | {"guards": [guard]})


def test_the_control_of_a_ramp_needs_no_weight() -> None:
    arms = [{"version": 3}, {"version": 4, "weight": 3}, {"version": 7, "weight": 1}]
    found = read_definition(PLAIN | {"arms": arms, "policy": {"kind": "ramp", "shares": [0.2]}})
    assert found.starting_weights == pytest.approx((0.8, 0.15, 0.05))


def test_a_full_definition_survives_json() -> None:
    asked = PLAIN | {
        "arms": [{"version": 3, "weight": 3}, {"version": 4, "weight": 1}, {"version": 7, "weight": 1}],
        "control": 3,
        "unit": "user",
        "goal": {"name": "rating", "low": 1, "high": 5, "window": 600, "missing": 3},
        "guards": [
            {"metric": "latency", "direction": "min", "high": 20, "window": 0, "limit": 0.5, "alpha": 0.01},
            {"metric": "error", "direction": "min", "window": 0, "limit": 0.02, "against": "value"},
        ],
        "margin": 0.2,
        "policy": {"kind": "ramp", "shares": [0.05, 0.5], "units": 200},
        "approval": False,
        "stratum": "language",
    }
    found = read_definition(asked)
    assert isinstance(found, Definition)
    assert read_definition(json.loads(json.dumps(found.to_json()))) == found
    assert list(found.metrics) == ["rating", "latency", "error"]
    assert found.starting_weights == pytest.approx((0.95, 0.025, 0.025))
    latency = found.metrics["latency"]
    assert [latency.unit(v) for v in (0, 5, 20, 99)] == [1.0, 0.75, 0.0, 0.0]
    assert latency.value(latency.unit(7.0)) == 7.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arms": []}, "0 arms; 2 to 10 are possible"),
        ({"arms": [{"version": 3}]}, "1 arm"),
        ({"arms": [{"version": 3}, {"version": 3}]}, "twice"),
        ({"arms": [{"version": 3}, {"version": 4, "weight": 0}]}, "weight must be a number above 0"),
        ({"arms": [{"version": 3}, {"version": 4, "weight": 50}]}, "without one: version 3"),
        (
            {
                "arms": [{"version": 3}, {"version": 4, "weight": 2}, {"version": 7}],
                "policy": {"kind": "ramp"},
            },
            "without one: version 7",
        ),
        ({"arms": [{"version": 3}, {"version": "four"}]}, "whole number"),
        ({"most_units": 2**70}, "at most 999,999,999,999,999"),
        ({"most_units": float("inf")}, "whole number.*at most 999"),
        ({"most_units": float("nan")}, "most_units must be a whole number"),
        ({"arms": "3, 4"}, "must be a list"),
        ({"arms": [3, 4]}, "must be a mapping.*keys: version, weight"),
        ({"control": 9}, "control is version 9"),
        ({"unit": "sesion"}, 'Did you mean "session"'),
        ({"goals": "x"}, 'no key "goals".*Did you mean "goal"'),
        ({"goal": None}, "goal"),
        ({"goal": {"low": 0}}, "goal has no `name`"),
        ({"goal": {"name": "x", "low": 1, "high": 1}}, "low must be below high"),
        ({"goal": {"name": "x", "direction": "up"}}, "max, min"),
        ({"goal": {"name": "x", "aggregate": "sum"}}, "first, max, mean"),
        ({"goal": {"name": "x", "window": -1}}, "window"),
        ({"goal": {"name": "x", "missing": 2}}, "outside its range"),
        ({"goal": {"name": "x", "low": float("nan")}}, "must be a number"),
        ({"guards": [{"metric": "cost", "high": 1, "limit": -0.1}]}, "limit"),
        (
            {"guards": [{"metric": "cost", "high": 1, "limit": 0.1, "against": "value", "alpha": 0.9}]},
            "alpha",
        ),
        ({"guards": [{"metric": "cost", "high": 1, "limit": 1.0, "against": "value"}]}, "inside"),
        ({"guards": [{"metric": "cost", "high": 1, "limit": 0.1, "against": "me"}]}, "control, value"),
        ({"guards": [{"metric": "thumb", "limit": 0.1, "high": 5}]}, "two ways"),
        (
            {"guards": [{"metric": {"name": "thumb"}, "low": 0}]},
            "low stands beside a metric that is an object",
        ),
        ({"goal": {"name": "x", "metric": "y"}}, "mean the same"),
        ({"goal": {"name": "x", "windw": 3}}, 'no key "windw".*Did you mean "window"'),
        ({"watch": {"holdout": 0.6}}, "holdout must be at least 0 and at most 0.5"),
        ({"guards": [{"limit": 0.1}]}, "guards has no `metric`"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": True}, "must be a number"),
        ({"approval": "no"}, "true or false"),
        ({"prompt": ""}, "prompt is empty"),
        ({"margin": 1.0}, "margin"),
        ({"most_units": 0}, "most_units"),
        ({"policy": {"kind": "tomson"}}, 'Did you mean "thompson"'),
        ({"policy": {"floor": 0.6}}, "floor"),
        ({"policy": {"units": 0}}, "units"),
        ({"policy": {"shares": []}}, "shares"),
        ({"policy": {"shares": [0.5, 1.5]}}, "shares"),
        ({"policy": "thompson"}, "policy must be a mapping.*keys: kind, floor"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_definition(PLAIN | change)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rating", ("max", 1, 5, 3600, None)),
        ("thumb", ("max", 0, 1, 3600, None)),
        ("external_check", ("max", 0, 1, 3600, None)),
        ("solved", ("max", 0, 1, 3600, None)),
        ("edit_distance", ("min", 0, 1, 3600, None)),
        ("copy", ("max", 0, 1, 3600, 0)),
        ("share", ("max", 0, 10, 3600, 0)),
        ("regenerate", ("min", 0, 10, 3600, 0)),
        ("abandon", ("min", 0, 1, 3600, 0)),
        ("error", ("min", 0, 1, 0, None)),
    ],
)
def test_a_name_alone_means_what_the_metric_is(name: str, expected: tuple[Any, ...]) -> None:
    found = read_definition(PLAIN | {"goal": name}).goal
    assert (found.direction, found.low, found.high, found.window, found.missing) == expected


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("cost", {"high": 0.05}, ("min", 0, 0.05, 0, None)),
        ("latency", {"high": 20}, ("min", 0, 20, 0, None)),
        ("follow_up", {"direction": "min"}, ("min", 0, 10, 3600, 0)),
        ("dwell", {"direction": "max", "high": 300}, ("max", 0, 300, 3600, None)),
        ("copy", {"missing": None}, ("max", 0, 1, 3600, None)),
        ("error", {"direction": "max", "window": 60}, ("max", 0, 1, 60, None)),
        ("rating", {"low": 0, "high": 1}, ("max", 0, 1, 3600, None)),
    ],
)
def test_what_is_said_goes_before_what_a_name_means(
    name: str, given: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    for asked in ({"goal": {"name": name, **given}}, {"guards": [{"metric": name, "limit": 0.01, **given}]}):
        found = read_definition(PLAIN | asked).metrics[name]
        assert (found.direction, found.low, found.high, found.window, found.missing) == expected
        assert read_definition(read_definition(PLAIN | asked).to_json()).metrics[name] == found


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("cost", 'needs high: .* for instance "high": 0.05'),
        ("latency", 'needs high: .* for instance "high": 20'),
        ("follow_up", 'needs direction: "direction": "max"'),
        ({"name": "dwell", "direction": "max"}, 'needs high: .* "high": 300'),
        ("comment", "is no number.*Numbers are rating, thumb, choice"),
    ],
)
def test_what_only_the_asker_can_know_is_asked_for(goal: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_definition(PLAIN | {"goal": goal})


def test_an_arm_with_hardly_any_units_is_refused_at_the_start_only() -> None:
    tiny = read_definition(PLAIN | {"arms": [{"version": 3, "weight": 1e-9}, {"version": 4, "weight": 1}]})
    with pytest.raises(
        UsageError, match=r"Version 3 would start with 1e-09 of the units; the least is 0.001"
    ):
        refuse_tiny(tiny)
    refuse_tiny(
        read_definition(PLAIN | {"arms": [{"version": 3, "weight": 99}, {"version": 4, "weight": 1}]})
    )


def test_the_units_are_those_of_the_client() -> None:
    assert get_args(Unit) == UNITS


@pytest.mark.parametrize("key", ["prompt", "label", "arms", "goal"])
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        read_definition({name: value for name, value in PLAIN.items() if name != key})
