"""Choices between versions: pairs that teach most, strengths with intervals, and who counts."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from benchmarks.duels import pool, regrets, simulate_choices

from whet.errors import UsageError
from whet.stats.duels import double_thompson, wins_of
from whet_client.records import Feedback, Inference
from whet_live.choices import (
    bradley_terry_strengths,
    disconnected_groups,
    load_pairwise_votes,
    next_pair,
)
from whet_live.database import Database
from whet_live.traffic.traffic_store import Traffic


def test_double_thompson_sampling_finds_the_best_of_a_pool_sooner_than_uniform_pairs() -> None:
    """Simulated: 40 pools of 10 prompts, 80 choices each."""
    regret = {}
    for name in ("uniform", "double Thompson"):
        one = [regrets(name, pool(10, np.random.default_rng(k)), (80,), 100 + k) for k in range(40)]
        regret[name] = np.mean(one)
    assert regret["double Thompson"] < 0.7 * regret["uniform"]


def test_versions_that_lose_are_hardly_asked_about() -> None:
    choices = simulate_choices("double Thompson", np.array([3.0, 2.5, -3.0, -3.0, -3.0]), 120, seed=3)
    wins = wins_of(range(5), choices)
    counts = (wins + wins.T).sum(axis=1)
    assert counts[:2].min() > 2 * counts[2:].max()


def test_strengths_are_those_of_bradley_and_terry() -> None:
    """Two versions, 30 of 40: the difference is the log-odds, drawn to zero by the prior."""
    ranking = bradley_terry_strengths([(1, 2, 1.0)] * 3000 + [(1, 2, 0.0)] * 1000)
    assert list(ranking) == [1, 2]
    assert ranking[1].strength - ranking[2].strength == pytest.approx(math.log(3), abs=1e-2)
    error = math.sqrt(1 / (4000 * 0.75 * 0.25)) / 2
    assert ranking[1].high - ranking[1].strength == pytest.approx(1.96 * error, rel=1e-2)
    assert (ranking[1].n, ranking[2].n) == (4000, 4000)
    assert 0.5 < ranking[1].against_average < 0.75
    assert bradley_terry_strengths([(1, 2, 0.5)] * 9)[1].strength == pytest.approx(0)


def test_a_version_that_always_won_has_a_finite_strength_and_one_seldom_compared_a_wide_interval() -> None:
    ranking = bradley_terry_strengths([*[(1, 2, 1.0)] * 20, (1, 3, 0.5)])
    assert math.isfinite(ranking[1].strength)
    assert ranking[1].strength > 1 > -1 > ranking[2].strength
    assert ranking[3].high - ranking[3].low > 3
    assert ranking[3].n == 1


def test_intervals_of_strengths_cover_the_truth() -> None:
    """300 simulated pools of 4, 120 choices each: 95% promised, four standard errors are 2.6 points of 1,200."""
    covered = 0
    for k in range(300):
        truths = pool(4, np.random.default_rng(k)) / 2
        ranking = bradley_terry_strengths(simulate_choices("uniform", truths, 120, k))
        covered += sum(ranking[v].low <= truth <= ranking[v].high for v, truth in enumerate(truths))
    assert covered / 1200 > 0.924


def test_choices_come_from_traffic_and_lead_to_the_next_pair(database: Database) -> None:
    traffic = Traffic(database)
    answers = [
        Inference("p", version, inputs={"q": str(k)}, id=f"{k}-{version}")
        for k in range(9)
        for version in (1, 2, 3)
    ]
    elsewhere = Inference("other", 1, id="x")
    said = [Feedback("choice", f"{k}-1", 1.0, label=f"{k}-2") for k in range(9)]
    said += [Feedback("choice", "0-3", 0.5, label="0-2"), Feedback("choice", "1-2", 0.0, label="1-3")]
    said += [Feedback("choice", "0-1", 1.0, label="1-1"), Feedback("choice", "0-1", 1.0, label="x")]
    said += [Feedback("choice", "0-1", 1.0, label="unknown"), Feedback("thumb", "0-1", 1.0)]
    traffic.add([*answers, elsewhere], said)
    found = load_pairwise_votes(database, "p")
    assert found == [(1, 2, 1.0)] * 9 + [(3, 2, 0.5), (2, 3, 0.0)]
    assert wins_of((1, 2), found).tolist() == [[0, 9], [0, 0]]
    judged = Feedback("choice", "2-1", 0.0, label="2-3", source="model")
    traffic.add([], [judged])
    assert load_pairwise_votes(database, "p", sources=("user", "annotator")) == found
    assert load_pairwise_votes(database, "p", sources=("model",)) == [(1, 3, 0.0)]
    wins = wins_of((1, 2, 3), found)
    pairs = [double_thompson(wins, np.random.default_rng(k)) for k in range(30)]
    assert sum(set(pair) == {0, 2} for pair in pairs) > 15, "1 and 3 have not met"
    assert next_pair(load_pairwise_votes(database, "p"), [(1, 3)]) == (1, 3)


def test_all_versions_come_to_be_compared(database: Database) -> None:
    versions = range(1, 10)
    traffic, pairs = Traffic(database), list(combinations(versions, 2))
    asked: set[int] = set()
    for k in range(60):
        first, second = next_pair(load_pairwise_votes(database, "p"), pairs)
        asked |= {first, second}
        answers = [Inference("p", version, id=f"{k}-{version}") for version in (first, second)]
        traffic.add(answers, [Feedback("choice", f"{k}-{first}", 0.5, label=f"{k}-{second}")])
    assert asked == set(versions)


def test_a_pair_that_cannot_be_shown_is_not_asked_for() -> None:
    choices = [(1, version, 1.0) for version in range(2, 8)]
    shown = [(a, b) for a, b in combinations(range(1, 10), 2) if 8 in (a, b) or 9 in (a, b)]
    assert next_pair(choices, shown) in shown
    with pytest.raises(UsageError, match="no pair"):
        next_pair(choices, [])


def test_one_person_counts_for_a_few_choices_only(database: Database) -> None:
    traffic = Traffic(database)
    traffic.add([Inference("p", version, id=f"{k}-{version}") for k in range(9) for version in (1, 2, 3)])

    def say(user: str | None, k: int, value: float, versions: str = "12", source: str = "user") -> None:
        first, second = versions
        said = Feedback("choice", f"{k}-{first}", value, label=f"{k}-{second}", user=user, source=source)
        traffic.add((), [said])

    for k in range(9):
        say("eve", k, 0.0)
    say("ann", 0, 0.0)
    say("ann", 0, 1.0)  # she changed her mind about these two
    say("eve", 0, 1.0, "13")
    say(None, 3, 0.5)
    say(None, 4, 0.5)
    say("judge", 5, 1.0, source="model")
    assert load_pairwise_votes(database, "p", most=1) == [
        (1, 2, 0.0), (1, 2, 1.0), (1, 3, 1.0), (1, 2, 0.5), (1, 2, 1.0),
    ]  # fmt: skip
    assert len(load_pairwise_votes(database, "p", most=3)) == 3 + 1 + 1 + 2 + 1
    assert len(load_pairwise_votes(database, "p")) == 9 + 1 + 1 + 2 + 1


def test_versions_that_nobody_compared_stand_apart() -> None:
    assert disconnected_groups([]) == []
    assert disconnected_groups([(3, 1, 1.0), (4, 2, 0.0), (1, 3, 0.5)]) == [[1, 3], [2, 4]]
    assert disconnected_groups([(3, 1, 1.0), (4, 2, 0.0), (5, 4, 0.0), (2, 3, 1.0)]) == [[1, 2, 3, 4, 5]]
