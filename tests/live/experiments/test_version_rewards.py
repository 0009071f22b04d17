"""What versions are worth, on SIMULATED traffic whose truth is known, and on rows of the store."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.stats import interval
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.experiments import Experiments, version_rewards_of
from whet_live.experiments.assigned_answers import assigned_answers
from whet_live.experiments.version_rewards import (
    LOGGED,
    AssignedAnswer,
    VersionRewards,
    estimate_over_time,
    estimate_versions,
)
from whet_live.registry import Registry
from whet_live.traffic import Traffic
from whet_live.traffic.behaviour import RatedAnswer
from whet_live.traffic.dataset import behaviour_of
from whet_live.traffic.derived_signals import SignalDeriver, changed_share


def expit(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def simulated(
    seed: int, answers: int = 2400, positions: bool = False
) -> tuple[list[AssignedAnswer], dict[int, float]]:
    """A SIMULATED stream, and the true share of pleased people under each version.

    Quality falls over time for both versions, while version 2 gets more and more of the traffic; displeased people act and rate
    more. With `positions`, version 2 stands at the lower one, where fewer people copy and fewer are pleased, more often.
    """
    rng = random.Random(seed)
    rows, truth = [], {1: 0.0, 2: 0.0}
    for number in range(answers):
        late = number / answers
        share = 0.1 if late < 0.5 else 0.8
        version = 2 if rng.random() < share else 1
        place = (2 if rng.random() < (0.8 if version == 2 else 0.3) else 1) if positions else 0
        lower = (0.8 * 0.3 + 0.2 * 0.7) if positions else 0.0
        for one in (1, 2):
            truth[one] += expit(1.2 + 0.5 * (one == 2) - 2.4 * late - 1.0 * lower) / answers
        pleased = rng.random() < expit(1.2 + 0.5 * (version == 2) - 2.4 * late - 1.0 * (place == 2))
        signals = {"copy": float(rng.random() < (0.7 if pleased else 0.2))}
        if rng.random() < (0.1 if pleased else 0.5):
            signals["regenerate"] = 1.0
        rates = rng.random() < expit(-2.0 + 1.6 * ("regenerate" in signals) - 0.8 * signals["copy"])
        answer = RatedAnswer(
            f"i{number}", signals, float(pleased) if rates else None, f"u{rng.randrange(answers)}"
        )
        rows.append(
            AssignedAnswer(answer, version, number, "e", {1: 1 - share, 2: share}, "ab"[number % 2], place)
        )
    return rows, truth


def whole(rewards: VersionRewards, version: int) -> tuple[float, float, float]:
    """The joined estimate of a version over all segments, and its ends."""
    (one,) = [one for one in rewards.rewards if one.version == version and not one.segment]
    assert one.value is not None
    return one.value.value, one.value.low, one.value.high


def test_the_joined_estimate_covers_the_truth_and_the_mean_of_the_ratings_does_not() -> None:
    covered = naive = total = 0
    for seed in range(20):
        rows, truth = simulated(seed)
        found = estimate_versions("p", rows)
        for one in found.rewards:
            if one.segment:
                continue
            assert one.state == "calibrated" and one.drawn and one.population == len(rows)
            assert one.value is not None and one.naive is not None
            covered += one.value.low <= truth[one.version] <= one.value.high
            naive += one.naive.low <= truth[one.version] <= one.naive.high
            total += 1
    assert total == 40
    # 95% of 40 are 38; of 100 runs of an exact interval, fewer than one has less than 34
    assert covered >= 34, covered
    assert naive <= 8, naive


def test_each_step_of_time_has_an_estimate_of_its_own() -> None:
    begins, covered, total = (0, 1200), 0, 0
    for seed in range(12):
        rows, _ = simulated(seed, positions=False)
        over_time = estimate_over_time("p", rows, begins)
        assert over_time.answers == len(rows) and not over_time.reason
        all_of_it = estimate_versions("p", rows)
        for reward, points in over_time.versions:
            assert reward.value is not None and reward.value.value == whole(all_of_it, reward.version)[0]
            values = {begins.index(at): one.value for at, one in points if one.value is not None}
            assert len(values) == len(points) and 1 in values, "version 2 is rare in the first step"
            assert reward.version == 2 or values[0].value > values[1].value
            for number, one in values.items():
                parts = [
                    expit(1.2 + 0.5 * (reward.version == 2) - 2.4 * (n + 0.5) / 1200 / 2 - 1.2 * number)
                    for n in range(1200)
                ]
                covered += one.low <= sum(parts) / 1200 <= one.high
                total += 1
    assert covered / total > 0.85, (covered, total)


def test_a_step_with_few_ratings_has_no_point() -> None:
    rows, _ = simulated(3)
    few = [AssignedAnswer(r.answer, r.version, 9_000, r.draw, r.chances) for r in rows[:10]]
    for _, points in estimate_over_time("p", [*rows, *few], (0, 9_000)).versions:
        assert [at for at, _ in points] == [0]
    assert (
        estimate_over_time("p", rows[:9], (0,)).reason
        and not estimate_over_time("p", rows[:9], (0,)).versions
    )


def test_versions_are_in_their_true_order_where_the_ratings_turn_it_round() -> None:
    rows, truth = simulated(3)
    found = estimate_versions("p", rows)
    assert truth[2] > truth[1] and whole(found, 2)[0] > whole(found, 1)[0]
    first, second = (one.naive for one in found.rewards if not one.segment)
    assert first is not None and second is not None and second.value < first.value


def test_segments_are_estimated_by_themselves() -> None:
    rows, _ = simulated(9)
    shifted = [
        replace(
            row,
            answer=replace(
                row.answer, rating=None if row.answer.rating is None else float(row.segment == "a")
            ),
        )
        for row in rows
    ]
    found = {(one.version, one.segment): one for one in estimate_versions("p", shifted).rewards}
    assert set(found) == {(version, segment) for version in (1, 2) for segment in ("", "a", "b")}
    for version in (1, 2):
        good, bad, both = (found[version, segment].value for segment in ("a", "b", ""))
        assert good is not None and bad is not None and both is not None
        assert good.low > both.value > bad.high
        assert found[version, "a"].population == 1200


def test_signals_narrow_the_interval_of_the_ratings() -> None:
    found = estimate_versions("p", simulated(1)[0])
    for one in found.rewards:
        if not one.segment:
            assert one.value is not None and one.weighted is not None
            assert one.value.high - one.value.low < one.weighted.high - one.weighted.low


def test_each_version_is_taken_over_the_positions_of_all() -> None:
    rows, _ = simulated(5, 6000, positions=True)
    without = [AssignedAnswer(r.answer, r.version, r.time, r.draw, r.chances, r.segment) for r in rows]
    corrected, uncorrected = estimate_versions("p", rows), estimate_versions("p", without)
    gap = whole(corrected, 2)[0] - whole(corrected, 1)[0]
    assert gap > whole(uncorrected, 2)[0] - whole(uncorrected, 1)[0] + 0.03


def test_a_position_that_a_version_never_had_is_said() -> None:
    rows, _ = simulated(2)
    placed = [AssignedAnswer(r.answer, r.version, r.time, r.draw, r.chances, "", r.version) for r in rows]
    notes = [one.notes for one in estimate_versions("p", placed).rewards]
    assert "never shown at position 2" in notes[0][0] and "never shown at position 1" in notes[1][0]


def test_what_nobody_drew_is_estimated_for_its_own_answers_only() -> None:
    rows = [AssignedAnswer(r.answer, r.version, r.time) for r in simulated(4)[0]]
    for one in estimate_versions("p", rows).rewards:
        assert one.state == "calibrated" and not one.drawn and one.population == one.answers
        assert "compare it with no other" in one.notes[0]


def test_a_chance_that_an_app_logged_counts_like_that_of_an_experiment() -> None:
    rows, _ = simulated(6)
    own = [
        AssignedAnswer(r.answer, r.version, r.time, LOGGED, {r.version: r.chances[r.version]}, r.segment)
        for r in rows
    ]
    assert whole(estimate_versions("p", own), 2) == whole(estimate_versions("p", rows), 2)


def test_too_few_ratings_are_not_calibrated_and_say_so() -> None:
    rows = [
        AssignedAnswer(RatedAnswer(str(n), {"copy": n % 2}, 1.0 if n < 9 else None), 1, n) for n in range(300)
    ]
    found = estimate_versions("p", rows)
    (one,) = found.rewards
    assert found.model is None and "9 of 300 answers are rated" in found.reason
    assert (
        one.state == "not calibrated"
        and one.value is None
        and one.naive is not None
        and one.naive.value == 1.0
    )


def test_a_version_with_few_ratings_borrows_none() -> None:
    rows, _ = simulated(7)
    few = [
        AssignedAnswer(RatedAnswer(f"x{n}", {"copy": 1.0}, 1.0 if n < 4 else None), 3, n, "e", {3: 0.5})
        for n in range(200)
    ]
    (one,) = [
        one for one in estimate_versions("p", [*rows, *few]).rewards if one.version == 3 and not one.segment
    ]
    assert (one.state, one.value, one.rated) == ("not calibrated", None, 4)
    assert one.notes == ("4 rated answers by 4 users; it takes 20 by 10",)


def test_large_weights_are_clipped_and_counted() -> None:
    rows, _ = simulated(8)
    rare = [AssignedAnswer(r.answer, r.version, r.time, "e", {1: 0.01, 2: 0.99}) for r in rows]
    one = next(one for one in estimate_versions("p", rare).rewards if one.version == 1)
    assert one.clipped == one.answers and "clipped" in one.notes[-1]


# Derived signals


def test_another_try_and_a_further_question_are_derived_and_what_was_sent_rules() -> None:
    derive = SignalDeriver()
    minute = 60_000_000

    def answer(at: int, question: str, session: str = "s") -> Inference:
        return Inference("p", 1, {"q": question}, "yes", session=session, time=at * minute)

    assert derive.derive(answer(90, "c"), (), {}) == {}
    assert derive.derive(answer(20, "b"), (), {}) == {}  # more than half an hour before the next one
    assert derive.derive(answer(11, "a"), (), {}) == {"follow_up": 1.0}
    assert derive.derive(answer(10, "a"), (), {"copy": 1.0}) == {"regenerate": 1.0, "copy": 1.0}
    assert derive.derive(answer(9, "a"), (), {"regenerate": 3.0}) == {"regenerate": 3.0}
    assert derive.derive(answer(9, "a", "other"), ("no",), {}) == {"edit_distance": 1.0}


def test_nothing_is_derived_of_a_request_that_is_unknown_or_answered_twice_at_once() -> None:
    derive, twice = SignalDeriver(), SignalDeriver()
    for at in (12, 11, 10):
        assert derive.derive(Inference("p", 1, {}, "yes", session="s", time=at), (), {}) == {}
        assert twice.derive(Inference("p", 1, {"q": "a"}, "yes", session="s", time=10), (), {}) == {}


@pytest.mark.parametrize("ratings", [[1.0] * 3, [0.5] * 5, [0.25, 0.75]])
def test_a_few_equal_ratings_have_an_interval_of_some_width(ratings: list[float]) -> None:
    rows = [
        AssignedAnswer(RatedAnswer(f"a{n}", {}, rating, f"u{n}"), 1, n) for n, rating in enumerate(ratings)
    ]
    naive = estimate_versions("p", rows).rewards[0].naive
    assert naive is not None
    known = interval(ratings, 0.0, 1.0)
    assert (naive.low, naive.high) == (known.low, known.high) and naive.high - naive.low > 0.2


def test_what_was_changed_is_a_share() -> None:
    assert changed_share("Send 12 euros.", "Send 12 euros.") == 0.0
    assert changed_share("abcd", "abxd") == pytest.approx(0.25)
    assert changed_share("", "x") == 1.0


# The store

NOON = 1_790_000_000_000_000


def test_rows_of_an_experiment_have_its_chances(database: Database) -> None:
    registry, traffic = Registry(database), Traffic(database)
    prompt = Prompt.parse("Answer {{q}}.")
    registry.create("p", prompt, author="ann", label="production")
    registry.create("p", Prompt.parse("Answer {{q}} now."), author="ann")
    experiments = Experiments(database, registry)
    goal = {"name": "thumb"}
    arms = [{"version": 1, "weight": 3}, {"version": 2, "weight": 1}]
    asked = {"prompt": "p", "label": "production", "arms": arms, "goal": goal}
    started = experiments.create(asked, author="ann")
    shared: dict[str, Any] = {"experiment": started.id, "variant": "1"}
    traffic.add(
        [
            Inference(
                "p",
                1,
                {"q": "a"},
                "x",
                "one",
                user="u",
                time=NOON + 10,
                metadata={"plan": "pro", "position": 2},
                **shared,
            ),
            Inference("p", 2, {"q": "b"}, "y", "two", user="u", time=NOON + 20, **shared),
            Inference(
                "p", 2, {"q": "c"}, "z", "three", user="v", time=NOON + 30, metadata={"propensity": 0.5}
            ),
            Inference("p", 2, {"q": "c"}, "", "failed", user="v", time=NOON + 40, error="timeout"),
        ],
        [Feedback("thumb", "one", 1.0, user="u"), Feedback("correction", "two", text="yy", user="u")],
    )
    three, two, one = assigned_answers(database, "p", "plan")
    assert (three.draw, dict(three.chances)) == (LOGGED, {2: 0.5})
    assert (two.draw, dict(two.chances)) == (started.id, {1: 0.75, 2: 0.25})
    assert dict(two.answer.signals) == {"edit_distance": pytest.approx(1 / 3)}
    assert (one.segment, one.position, one.answer.rating, one.answer.signals) == (
        "pro",
        2,
        1.0,
        {"follow_up": 1.0},
    )
    assert version_rewards_of(database, "p", by="metadata.plan").reason.startswith("1 of 3 answers are rated")
    with pytest.raises(UsageError, match="makes no segments"):
        version_rewards_of(database, "p", by="plan")
    with pytest.raises(UsageError, match="No answers"):
        version_rewards_of(database, "q")


def test_older_answers_that_are_left_out_are_told(database: Database) -> None:
    traffic = Traffic(database)
    traffic.add([Inference("p", 1, id=f"a{n}", user=f"u{n}", time=NOON + n) for n in range(60)])
    traffic.add((), [Feedback("thumb", f"a{n}", float(n % 3 > 0), user=f"u{n}") for n in range(60)])
    traffic.add((), [Feedback("dwell", f"a{n}", float(n % 7), user=f"u{n}") for n in range(60)])
    for most, left_out in ((59, True), (60, False)):
        rewards = version_rewards_of(database, "p", most=most)
        assert (rewards.answers, rewards.newest, rewards.as_json()["newest"]) == (most, left_out, left_out)
        weights = behaviour_of(database, "p", most=most)
        assert weights.answers == most
        told = "only the newest 59 answers are counted"
        assert any(told in warning for warning in weights.warnings) == left_out


@pytest.mark.parametrize("chance", [0, 1.5, -1, "0.5", [1], True])
def test_a_logged_chance_that_is_none_is_told(database: Database, chance: object) -> None:
    traffic = Traffic(database)
    traffic.add([Inference("p", 1, id="a", metadata={"propensity": chance}), Inference("p", 1, id="b")])
    (one,) = version_rewards_of(database, "p").rewards
    assert "the metadata.propensity of 1 answer is no number above 0 and up to 1" in one.notes[0]
