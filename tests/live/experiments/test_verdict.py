"""Verdicts on experiments whose truth is known, judged through the fold as live ones are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from whet_client.assignment import assign
from whet_live.experiments.definition import read_definition
from whet_live.experiments.effects import MetricSample
from whet_live.experiments.reducer import (
    MICROSECONDS,
    ExperimentReducer,
    Exposure,
    MetricOutcome,
    Omissions,
    Revision,
    Snapshot,
)
from whet_live.experiments.verdict import ExperimentVerdict, judge

END = 10**9 * MICROSECONDS
LATENCY = {"metric": "latency", "direction": "min", "high": 10, "window": 0, "limit": 0.5}


def lived(
    units: int, truth: dict[int, dict[str, float]], seed: int = 0, **settings: Any
) -> tuple[ExperimentReducer, list[int]]:
    """A fold after some units, a second apart. `truth`: per version the chance of a thumb up, the chance of any thumb
    (`answers`), the mean latency."""
    versions = list(truth)
    definition = read_definition({"prompt": "p", "label": "production", "arms": [{"version": v} for v in versions],
                       "goal": {"name": "thumb", "window": 60}} | settings)  # fmt: skip
    weights = tuple(1 / len(versions) for _ in versions)
    fold, rng = ExperimentReducer(definition, "salt", [Revision(1, 0, weights)]), np.random.default_rng(seed)
    for number in range(units):
        at, name = number * MICROSECONDS, f"{seed}-{number}"
        version = assign("salt", name, list(zip(versions, weights, strict=True)))
        known = truth[version]
        fold.apply(Exposure(at, name, name, version, 1))
        if "latency" in known:
            fold.apply(MetricOutcome(at, name, "latency", float(rng.gamma(4, known["latency"] / 4))))
        if rng.random() < known.get("answers", 1.0):
            fold.apply(MetricOutcome(at, name, "thumb", float(rng.random() < known["up"])))
    return fold, list(range(len(versions)))


def verdict(
    units: int, truth: dict[int, dict[str, float]], seed: int = 0, **settings: Any
) -> ExperimentVerdict:
    fold, live = lived(units, truth, seed, **settings)
    return judge(fold.at(END), live)


def test_a_better_version_wins_and_the_sentence_says_by_how_much() -> None:
    found = verdict(3000, {3: {"up": 0.5}, 4: {"up": 0.65}})
    assert (found.state, found.winner, found.held) == ("winner", 4, False)
    effect = next(e for e in found.effects if e.version == 4)
    assert effect.low < 0.15 < effect.high
    assert 0 < effect.low <= effect.estimate <= effect.high
    assert effect.evidence >= effect.needed == 40
    assert "Version 4 is better on thumb than version 3 by 0.1" in found.reason


def test_a_lead_that_was_lost_before_anybody_looked_makes_no_winner() -> None:
    """The better version turns worse after a thousand units: the evidence was reached, and the lead is gone."""
    fold, live = lived(1000, {3: {"up": 0.4}, 4: {"up": 0.6}})
    assert judge(fold.at(END), live).winner == 4
    for number in range(1000, 3000):
        name = f"later-{number}"
        version = assign("salt", name, [(3, 0.5), (4, 0.5)])
        fold.apply(Exposure(number * MICROSECONDS, name, name, version, 1))
        fold.apply(
            MetricOutcome(
                number * MICROSECONDS, name, "thumb", float(number % 10 < (5 if version == 3 else 4))
            )
        )
    late = judge(fold.at(END), live)
    assert (late.state, late.winner) == ("running", None)
    effect = next(e for e in late.effects if e.version == 4)
    assert effect.evidence >= effect.needed and effect.reached is not None and not effect.proven
    assert effect.low < 0 < effect.reached.low < 0.2 < effect.reached.high
    assert late.reason.endswith("It was reached, but all units so far do not show the lead.")


def drifting(rng: np.random.Generator, phases: list[tuple[int, float, float]]) -> Snapshot:
    """Settled units of two equal shares, whose chances of an outcome change from phase to phase."""
    chances = np.concatenate([np.tile((one, two), (units, 1)) for units, one, two in phases])
    arms = rng.integers(0, 2, len(chances))
    values = (rng.random(len(arms)) < chances[np.arange(len(arms)), arms]).astype(float)
    sample = MetricSample(arms, values, np.full((len(arms), 2), 0.5))
    definition = read_definition({"prompt": "p", "label": "production", "goal": {"name": "thumb", "window": 60},
                       "arms": [{"version": 1}, {"version": 2}]})  # fmt: skip
    ones = {"thumb": np.ones(len(arms))}
    return Snapshot(
        definition, {"thumb": sample}, ones, sample, Omissions(), {"thumb": len(arms)}, {"thumb": 0}
    )


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param([(4000, 0.01, 0.11), (4000, 0.55, 0.45)], marks=pytest.mark.long),
        [(5000, 0.005, 0.02), (5000, 0.5, 0.485)],
        pytest.param([(4000, 0.55, 0.45), (4000, 0.01, 0.11)], marks=pytest.mark.long),
        pytest.param([(1000, 0.02, 0.06), (1000, 0.5, 0.46)] * 4, marks=pytest.mark.long),
    ],
)
def test_an_effect_that_drifts_with_its_spread_and_is_none_in_the_mean_makes_no_winner(phases: Any) -> None:
    """Bets are larger where outcomes spread less, so that the evidence alone is reached in nearly all of some of these."""
    rng, wins, reached = np.random.default_rng(5), 0, 0
    for _ in range(40):
        verdict_ = judge(drifting(rng, phases), [0, 1])
        wins += verdict_.state == "winner"
        reached += any(effect.evidence >= effect.needed for effect in verdict_.effects)
    assert wins <= 2, (wins, reached)
    if phases[0][1] < 0.01:
        assert reached > 20, "the construction is one where the evidence alone would name a winner"


def test_the_interval_that_decides_lies_beyond_what_was_refuted() -> None:
    """Also for a guard-rail of two arms, whose level is one-sided, and for one against a value."""
    truth = {3: {"up": 0.5, "latency": 2.0}, 4: {"up": 0.8, "latency": 3.5}}
    for against, limit in (("control", 0.5), ("value", 2.5)):
        for units in range(40, 400, 20):
            found = verdict(units, truth, guards=[LATENCY | {"against": against, "limit": limit}])
            for check in found.checks:
                assert check.broken == (check.reached is not None)
                if check.reached is not None:
                    assert check.reached.low >= limit - 1e-9
            for effect in found.effects:
                assert (effect.evidence >= effect.needed) == (effect.reached is not None)
                assert effect.reached is not None or not effect.proven
                if effect.reached is not None:
                    assert effect.reached.low >= 0
        assert found.broken


def test_a_worse_version_makes_the_control_the_winner() -> None:
    assert verdict(3000, {3: {"up": 0.65}, 4: {"up": 0.5}}).winner == 3


def test_two_equal_versions_stay_undecided() -> None:
    found = verdict(2000, {3: {"up": 0.6}, 4: {"up": 0.6}})
    assert (found.state, found.winner) == ("running", None)
    assert "leads version" in found.reason


def test_nothing_is_said_before_an_outcome() -> None:
    assert "no settled outcome" in verdict(0, {3: {"up": 0.6}, 4: {"up": 0.6}}).reason


def test_a_margin_lets_equal_versions_be_called_equal() -> None:
    found = verdict(3000, {3: {"up": 0.95}, 4: {"up": 0.95}}, margin=0.08)
    assert found.state == "no_difference"
    assert "within 0.08" in found.reason
    assert verdict(3000, {3: {"up": 0.5}, 4: {"up": 0.65}}, margin=0.08).state == "winner"


def test_an_experiment_ends_when_its_units_are_used_up() -> None:
    truth = {3: {"up": 0.6}, 4: {"up": 0.6}}
    assert verdict(999, truth, most_units=1000).state == "running"
    assert verdict(1000, truth, most_units=1000).state == "futile"


def test_the_winner_of_several_beats_each_of_the_others() -> None:
    found = verdict(5000, {1: {"up": 0.4}, 2: {"up": 0.6}, 3: {"up": 0.4}})
    assert found.winner == 2
    assert len(found.effects) == 6
    assert {e.needed for e in found.effects} == {60}


def test_metrics_in_their_own_units_and_direction() -> None:
    """Less latency is better: the faster version wins, and the effect is in seconds."""
    goal = {"name": "latency", "direction": "min", "high": 10, "window": 0}
    found = verdict(1500, {3: {"up": 0.5, "latency": 3.0}, 4: {"up": 0.5, "latency": 2.0}}, goal=goal)
    assert found.winner == 4
    effect = next(e for e in found.effects if e.version == 4)
    assert effect.estimate == pytest.approx(1.0, abs=0.2)


def test_a_guard_rail_breaks_before_a_winner_is_named() -> None:
    found = verdict(3000, {3: {"up": 0.5, "latency": 2.0}, 4: {"up": 0.7, "latency": 4.0}}, guards=[LATENCY])
    (check,) = found.broken
    assert (check.metric, check.version) == ("latency", 4)
    assert check.low <= 2.0 <= check.high
    assert check.low > check.limit
    assert found.winner is None
    assert "Version 4 breaks the guard-rail on latency: it is worse than the control by" in found.reason


def test_a_harm_within_the_limit_breaks_nothing() -> None:
    found = verdict(3000, {3: {"up": 0.5, "latency": 2.0}, 4: {"up": 0.5, "latency": 2.4}}, guards=[LATENCY])
    assert not found.broken
    assert len(found.checks) == 1


def test_a_guard_rail_against_a_value() -> None:
    guard = LATENCY | {"against": "value", "limit": 3.0}
    truth = {3: {"up": 0.5, "latency": 3.5}, 4: {"up": 0.5, "latency": 3.5}}
    found = verdict(3000, truth, guards=[guard])
    assert [check.version for check in found.broken] == [4], "the control is not judged"
    assert found.broken[0].harm == pytest.approx(3.5, abs=0.15)
    assert found.broken[0].low > 3.0
    assert not verdict(3000, {v: {"up": 0.5, "latency": 2.9} for v in (3, 4)}, guards=[guard]).broken


def test_guard_rails_break_rarely_when_the_harm_is_just_the_limit() -> None:
    """60 experiments, 400 units, alpha 5%: eight or more false alarms would happen once in a hundred."""
    guard = {"metric": "thumb", "window": 60, "limit": 0.1}
    goal = {"name": "latency", "direction": "min", "high": 10, "window": 0}
    truth = {3: {"up": 0.6, "latency": 1.0}, 4: {"up": 0.5, "latency": 1.0}}
    broken = sum(bool(verdict(400, truth, seed, goal=goal, guards=[guard]).broken) for seed in range(60))
    assert broken < 8


def test_only_live_arms_are_compared() -> None:
    fold, _ = lived(2000, {1: {"up": 0.3}, 2: {"up": 0.6}, 3: {"up": 0.9}})
    assert judge(fold.at(END), [0, 1]).winner == 2
    assert judge(fold.at(END), [0, 1, 2]).winner == 3


def test_different_rates_of_answers_are_told_and_hold_the_winner() -> None:
    truth = {3: {"up": 0.5, "answers": 0.3}, 4: {"up": 0.8, "answers": 0.5}}
    found = verdict(4000, truth)
    assert (found.state, found.winner, found.held) == ("running", None, True)
    assert "No winner is named" in found.reason and "version 3 have an outcome of thumb" in found.reason
    assert "more often than those of version 3" in found.warnings[0]
    counted = verdict(4000, truth, goal={"name": "thumb", "window": 60, "missing": 0})
    assert counted.winner == 4
    assert not counted.held, "the outcome of everybody is known once a missing one has a value"
    same = {3: {"up": 0.5, "answers": 0.4}, 4: {"up": 0.8, "answers": 0.4}}
    assert verdict(4000, same).warnings == ()


def test_units_that_are_not_logged_are_noticed() -> None:
    fold, live = lived(0, {3: {"up": 0.5}, 4: {"up": 0.5}})
    for number in range(3000):
        version = assign("salt", str(number), [(3, 0.5), (4, 0.5)])
        if version == 3 or number % 5:
            fold.apply(Exposure(number, str(number), str(number), version, 1))
    found = judge(fold.at(END), live)
    assert found.held
    assert "shares do not explain" in found.warnings[0]


def test_a_winner_is_held_where_the_counts_at_the_decision_are_odd() -> None:
    """Nothing differs, but half of what the small arm answers is never logged."""
    held = list[bool]()
    for seed in range(25):
        settings = {"prompt": "p", "label": "production", "goal": {"name": "thumb", "window": 0}, "cycles": 0}
        arms = [{"version": 3, "weight": 95}, {"version": 4, "weight": 5}]
        fold = ExperimentReducer(
            read_definition(settings | {"arms": arms}), "salt", [Revision(1, 0, (0.95, 0.05))]
        )
        rng = np.random.default_rng(seed)
        for number in range(1600):
            name = f"{seed}-{number}"
            version = assign("salt", name, [(3, 0.95), (4, 0.05)])
            if version == 3 or rng.random() < 0.5:
                fold.apply(Exposure(number, name, name, version, 1))
                fold.apply(MetricOutcome(number, name, "thumb", float(rng.random() < 0.6)))
            if number % 200 == 199 and (found := judge(fold.at(END), [0, 1])).state == "winner":
                held.append(found.held)
                break
    assert len(held) >= 2 and sum(held) >= 0.8 * len(held)


def test_no_winner_is_named_while_an_arm_has_few_units() -> None:
    fold, live = lived(0, {3: {"up": 0.0}, 4: {"up": 1.0}}, cycles=0)
    for number in range(400):
        version = assign("salt", str(number), [(3, 0.5), (4, 0.5)])
        if version == 3 or number < 10:
            fold.apply(Exposure(number, str(number), str(number), version, 1))
            fold.apply(MetricOutcome(number, str(number), "thumb", float(version == 4)))
    found = judge(fold.at(END), live)
    assert found.winner is None and "with an outcome, and the least is 10" in found.reason


def test_values_outside_their_range_are_told_and_hold_the_winner() -> None:
    """Latencies around 3 seconds with a range up to 1: every value counts as 1."""
    truth = {3: {"up": 0.5, "latency": 3.0}, 4: {"up": 0.65, "latency": 3.0}}
    narrow = {"name": "latency", "direction": "min", "high": 1, "window": 0}
    found = verdict(3000, truth)
    assert (found.winner, found.held, found.warnings) == (4, False, ())
    guarded = verdict(3000, truth, guards=[{"metric": narrow, "limit": 0.1}])
    assert "values of latency lie outside the range [0, 1]" in guarded.warnings[0]
    assert (guarded.winner, guarded.held) == (4, False)
    asked = verdict(300, truth, goal=narrow)
    assert "lie outside the range" in asked.warnings[0] and asked.held


def test_inferences_with_a_version_that_was_not_assigned_are_told() -> None:
    fold, live = lived(10, {3: {"up": 0.5}, 4: {"up": 0.5}})
    fold.apply(Exposure(0, "odd", "odd", 7 - assign("salt", "odd", [(3, 0.5), (4, 0.5)]), 1))
    assert "does not assign" in judge(fold.at(END), live).warnings[0]


def test_the_same_events_give_the_same_verdict() -> None:
    truth = {3: {"up": 0.5, "answers": 0.6}, 4: {"up": 0.6, "answers": 0.6}}
    first, second = (verdict(1500, truth) for _ in range(2))
    assert first == second
    assert json.dumps([e.evidence for e in first.effects]) == json.dumps([e.evidence for e in second.effects])


WEEK = 604_800


def _weekly(seed: int, weeks: int = 4, **settings: Any) -> bool:
    """Whether a winner is named at any of the daily looks at two arms that are equal over a week: one is better in its first
    half, the other in its second half."""
    units, versions = 400 * weeks, [3, 4]
    definition = read_definition({"prompt": "p", "label": "production", "arms": [{"version": v} for v in versions],
                       "goal": {"name": "thumb", "window": 60}} | settings)  # fmt: skip
    fold, rng = (
        ExperimentReducer(definition, "salt", [Revision(1, 0, (0.5, 0.5))]),
        np.random.default_rng(seed),
    )
    step, looked = WEEK * weeks / units, 0
    for number in range(units):
        at, name = number * step, f"{seed}-{number}"
        version = assign("salt", name, [(3, 0.5), (4, 0.5)])
        sign = (1 if at % WEEK < WEEK / 2 else -1) * (1 if version == 4 else -1)
        fold.apply(Exposure(int(at * MICROSECONDS), name, name, version, 1))
        fold.apply(
            MetricOutcome(int(at * MICROSECONDS), name, "thumb", float(rng.random() < 0.5 + 0.2 * sign))
        )
        if at // 86_400 > looked:
            looked = at // 86_400
            if judge(fold.at(int(at * MICROSECONDS)), [0, 1]).state == "winner":
                return True
    return False


def test_what_averages_out_within_a_week_names_no_winner() -> None:
    assert sum(_weekly(seed, 2) for seed in range(20)) <= 1
    assert sum(_weekly(seed, 2, cycles=0) for seed in range(8)) >= 4, "without whole cycles it does"


def test_a_winner_waits_for_a_whole_cycle_and_the_reason_says_so() -> None:
    fold, live = lived(3000, {3: {"up": 0.5}, 4: {"up": 0.65}})
    early = judge(fold.at(3000 * MICROSECONDS), live)
    assert early.state == "running" and early.winner is None
    assert "after 1 whole cycle(s) of 7 days; 0 are over" in early.reason
    assert judge(fold.at((WEEK + 60) * MICROSECONDS), live).winner == 4
    fold, live = lived(3000, {3: {"up": 0.5}, 4: {"up": 0.65}}, cycle=1200)
    assert judge(fold.at(3000 * MICROSECONDS), live).winner == 4, "by the units of two cycles"
    fold, live = lived(3000, {3: {"up": 0.5}, 4: {"up": 0.65}}, cycles=0)
    assert judge(fold.at(3000 * MICROSECONDS), live).winner == 4


def _silent(seed: int, units: int = 3000, **goal: Any) -> ExperimentVerdict:
    """Two arms that please alike; of the second, most people who are not pleased say nothing."""
    definition = read_definition({"prompt": "p", "label": "production", "arms": [{"version": 3}, {"version": 4}],
                       "goal": {"name": "thumb", "window": 60} | goal})  # fmt: skip
    fold, rng = (
        ExperimentReducer(definition, "salt", [Revision(1, 0, (0.5, 0.5))]),
        np.random.default_rng(seed),
    )
    for number in range(units):
        name = f"{seed}-{number}"
        version = assign("salt", name, [(3, 0.5), (4, 0.5)])
        fold.apply(Exposure(number, name, name, version, 1))
        up = rng.random() < 0.5
        if up or rng.random() < (1.0 if version == 3 else 0.6):
            fold.apply(MetricOutcome(number, name, "thumb", float(up)))
    return judge(fold.at(END), [0, 1])


def test_equal_arms_of_which_one_silences_the_displeased_name_no_winner() -> None:
    found = [_silent(seed) for seed in range(15)]
    assert not any(one.state == "winner" for one in found)
    assert sum("have an outcome of thumb" in one.reason for one in found) >= 10, (
        "the ratings alone would name one"
    )
