"""Reward models from preferences: hand-worked fits, calibration, and the brake against exploits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from whet.errors import UsageError
from whet.rewards import Weighted, build_reward
from whet.rewards.preference import (
    Preference,
    PreferenceModel,
    PreferencePair,
    fit_preferences,
    with_embeddings,
)
from whet.rewards.preference.features import surface, words
from whet.rewards.preference.fit import (
    calibration,
    conservative_mean,
    ensemble,
    hedged_probability,
    temperature,
)
from whet.rewards.preference.model import at_temperature
from whet.run import MemoryRun
from whet.stats.logistic import logistic
from whet.types import Completion, Example


def test_one_weight_by_hand() -> None:
    """7 of 10 wins with feature 1: the log odds, ln(7 / 3)."""
    found = logistic(np.ones((10, 1)), [1] * 7 + [0] * 3, ridge=1e-9)
    assert found[0] == pytest.approx(np.log(7 / 3), abs=1e-6)


def test_weights_count_rows_and_outcomes_may_be_shares() -> None:
    rows = logistic(np.ones((10, 1)), [1] * 7 + [0] * 3, ridge=0.5)
    weighted = logistic(np.ones((2, 1)), [1, 0], weights=[7, 3], ridge=0.5)
    share = logistic(np.ones((1, 1)), [0.7], weights=[10], ridge=0.5)
    assert rows == pytest.approx(weighted)
    assert rows == pytest.approx(share)


@pytest.mark.parametrize("seed", range(4))
def test_fits_equal_those_of_a_general_minimiser(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, anchor = rng.normal(size=(60, 5)) * 3, rng.normal(size=5)
    y = rng.random(60) < 1 / (1 + np.exp(-x @ [2.0, -1.0, 0.0, 0.5, 0.0]))

    def objective(v: Any) -> float:
        z = x @ v
        return float((np.logaddexp(0, z) - y * z).sum() + 0.35 * ((v - anchor) ** 2).sum())

    wanted = optimize.minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).x
    assert logistic(x, y, ridge=0.7, anchor=anchor) == pytest.approx(wanted, abs=1e-4)


def test_a_fit_far_from_its_anchor_still_arrives() -> None:
    x, y = np.array([[8.0], [-8.0]] * 30), [1, 0] * 30
    found = logistic(x, y, ridge=1e-3, anchor=[-30.0])
    plain = optimize.minimize_scalar(
        lambda v: 60 * np.logaddexp(0, -8 * v) + 5e-4 * (v + 30) ** 2, bounds=(-40, 40), method="bounded"
    )
    assert found[0] == pytest.approx(plain.x, abs=1e-3)


@pytest.mark.parametrize(
    ("features", "outcomes", "more", "says"),
    [
        ([[np.nan]], [1], {}, "finite"),
        ([[1.0]], [1], {"weights": [-1]}, "0 or more"),
    ],
)
def test_unusable_rows_are_refused(features: Any, outcomes: Any, more: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        logistic(features, outcomes, **more)


def test_a_preference_is_drawn_to_one_half_by_doubt() -> None:
    even, two = np.array([0.0]), np.array([2.0])
    assert hedged_probability(two, np.array([0.0]))[0] == pytest.approx(1 / (1 + np.exp(-2)))
    assert 0.5 < hedged_probability(two, np.array([10.0]))[0] < 0.7
    assert hedged_probability(even, np.array([3.0]))[0] == 0.5


def test_linear_preferences_find_the_direction() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([2.0, -1.0, 0.0])
    a, b = rng.normal(size=(2, 600, 3))
    wins = rng.random(600) < 1 / (1 + np.exp(-(a - b) @ truth))
    better, worse = np.where(wins[:, None], a, b), np.where(wins[:, None], b, a)
    members = ensemble(better, worse, members=16, ridge=0.1, seed=0)
    assert members.mean(axis=0) == pytest.approx(truth, abs=0.5)
    assert np.abs(members.mean(axis=0) - truth).max() < 4 * members.std(axis=0).max()


def test_calibration_by_hand() -> None:
    found = calibration([0.9, 0.9, 0.1, 0.6], [1, 0, 0, 1])
    # bins .9: mean .9, observed 1/2, 2 of them; .1: observed 0; .6: observed 1
    assert found.error == pytest.approx((2 * (0.9 - 0.5) + 0.1 + 0.4) / 4)
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.16) / 4)
    assert found.accuracy == 0.75
    assert calibration([0.5, 0.5], [1, 0]).accuracy == 0.5


def test_temperature_mends_overconfidence() -> None:
    """Differences that are three times too large get the temperature three."""
    rng = np.random.default_rng(1)
    real = rng.normal(size=4000) * 2
    outcomes = rng.random(4000) < 1 / (1 + np.exp(-real))
    assert temperature(3 * real, outcomes) == pytest.approx(3.0, rel=0.15)
    assert temperature(-real, outcomes) == 1e6, "the opposite of the truth says nothing"


def test_the_brake_by_hand() -> None:
    scores = [[1.0, 4.0], [1.0, 0.0]]
    assert conservative_mean(scores, 0.0).tolist() == [1.0, 2.0]
    assert conservative_mean(scores, 1.0).tolist() == [1.0, 0.0]


def exploit_world(seed: int) -> tuple[Any, Any, Any]:
    """Preferences over (quality, brevity, flattery); nobody flattered in the data, and nobody wants it."""
    rng = np.random.default_rng(seed)

    def worth(x: Any) -> Any:
        return 3 * x[:, 0] + x[:, 1] - x[:, 2] ** 2

    a, b = rng.random((2, 150, 3)) * [1, 1, 0]
    wins = rng.random(150) < 1 / (1 + np.exp(worth(b) - worth(a)))
    better, worse = np.where(wins[:, None], a, b), np.where(wins[:, None], b, a)
    return better, worse, worth


@pytest.mark.parametrize("seed", range(5))
def test_the_brake_wins_on_an_exploit_outside_of_the_data(seed: int) -> None:
    """The best of many candidates by the mean flatters without measure and is bad; with the brake it does not."""
    better, worse, worth = exploit_world(seed)
    members = ensemble(better, worse, members=16, ridge=0.5, seed=seed)
    rng = np.random.default_rng(100 + seed)
    usual = rng.random((200, 3)) * [1, 1, 0]
    exploits = rng.random((200, 3)) * [1, 1, 0] + [0, 0, 1] * rng.uniform(-30, 30, size=(200, 1))
    candidates = np.concatenate([usual, exploits])
    scores = members @ candidates.T
    naive, careful = (
        candidates[conservative_mean(scores, 0.0).argmax()],
        candidates[conservative_mean(scores, 1.5).argmax()],
    )
    assert abs(naive[2]) > 10, "without the brake the exploit is chosen"
    assert abs(careful[2]) < 0.5
    real = worth(np.array([naive, careful]))
    assert real[1] > 2.5 > 0 > real[0]
    doubt = scores.std(axis=0)
    assert doubt[200:].mean() > 3 * doubt[:200].mean(), "members disagree where they saw nothing"


def test_beyond_what_was_seen_nothing_is_gained() -> None:
    model, _ = fit_preferences(polite_pairs(), "surface")
    far = model.center + np.array([[20.0], [1e6]]) * model.scale
    assert np.array_equal(*model.strengths(far).T)


def test_an_ensemble_is_decided_by_its_seed_and_has_members() -> None:
    better, worse, _ = exploit_world(0)
    first, same = (ensemble(better, worse, members=3, ridge=1.0, seed=4) for _ in range(2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, ensemble(better, worse, members=3, ridge=1.0, seed=5))
    with pytest.raises(UsageError, match="2 or more members"):
        ensemble(better, worse, members=1, ridge=1.0, seed=0)


def polite_pairs(n: int = 120) -> list[PreferencePair]:
    """Answers that say please and stay short are preferred, nine times in ten."""
    rng = np.random.default_rng(2)
    found = []
    for i in range(n):
        good = f"please look at row {i}" + " and so on" * int(rng.integers(0, 2))
        bad = f"look at row {i}" + " and so on" * int(rng.integers(2, 6))
        pair = (bad, good) if i % 10 == 0 else (good, bad)
        found.append(PreferencePair(f"what about row {i}?", *pair))
    return found


def test_features_of_texts_by_hand() -> None:
    (row,) = surface(["Tell me two"], ["Two, 3 words.\nOK?"])
    assert row.tolist() == pytest.approx(
        [np.log1p(4), np.log1p(2), np.log1p(1), np.log1p(1), np.log1p(1), np.log1p(1), 3 / 10, 1 / 4]
    )
    hashed = words(["", ""], ["a b", "b a"])
    assert hashed.shape == (2, 136)
    assert np.linalg.norm(hashed[0, 8:]) == pytest.approx(1.0)
    assert not np.array_equal(hashed[0], hashed[1]), "pairs of words say in which order"
    assert surface([], []).shape == (0, 8)


@pytest.mark.parametrize("features", ["words", "surface"])
def test_a_model_learns_from_pairs_and_says_how_far_to_trust_it(features: str) -> None:
    model, trust = fit_preferences(polite_pairs(), features)
    assert trust.accuracy >= 0.75
    assert trust.error < 0.3
    again, _ = fit_preferences(polite_pairs(), features)
    assert np.array_equal(again.members, model.members)


def test_no_pair_is_judged_at_a_temperature_that_was_fitted_to_it() -> None:
    """Of ten pairs two are held out: the calibration of each is that at the temperature of the other."""
    held = np.random.default_rng(0).permutation(10)[::5]
    pairs = polite_pairs(60)[:10]
    for turned in held:  # one of the two is a surprise, which asks for a high temperature
        odd = [replace(p, better=p.worse, worse=p.better) if i == turned else p for i, p in enumerate(pairs)]
        model, trust = fit_preferences(odd, "surface")
        seen = [surface([p.query] * 2, [p.better, p.worse]) for p in odd]
        expected = []
        for mine, other in (tuple(held), tuple(held[::-1])):
            cooled = at_temperature(model, seen[other][:1], seen[other][1:])
            expected.append(float(cooled.probability(seen[mine][:1], seen[mine][1:])[0]))
        brier = np.mean([(1 - p) ** 2 for p in expected])
        assert trust.brier == pytest.approx(brier)
        at_once = model.probability(
            np.concatenate([seen[i][:1] for i in held]), np.concatenate([seen[i][1:] for i in held])
        )
        assert abs(trust.brier - float(((1 - at_once) ** 2).mean())) > 1e-3, "as when it is fitted to both"


def test_a_model_comes_back_from_its_file_and_nothing_else_does(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model, _ = fit_preferences(polite_pairs())
    back = PreferenceModel.load(model.save(), "here")
    x = words(["", ""], ["please do", "no"])
    assert np.array_equal(back.strengths(x), model.strengths(x))
    for blob in (
        b"",
        b"\x00" * 80,
        model.save()[:60],
        model.save().replace(b"whet-preference/1", b"whet-preference/9"),
    ):
        with pytest.raises(UsageError, match=r"here: this is not a preference model"):
            PreferenceModel.load(blob, "here")


async def test_a_model_is_the_reward_of_a_task(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model, _ = fit_preferences(polite_pairs())
    (tmp_path / "taste.safetensors").write_bytes(model.save())
    built = build_reward({"preference": {"model": "taste.safetensors", "brake": 1}}, tmp_path, "task.yaml:4")
    assert isinstance(built, Preference) and built.files == (tmp_path / "taste.safetensors",)
    row = Example("e", {"input": "what about row 3?"}, text="what about row 3?")
    good, bad = [
        await built.grade(MemoryRun(), row, Completion(text))
        for text in ("please look at row 3", "look at row 3" + " and so on" * 5)
    ]
    assert 0 <= bad.value < 0.5 < good.value <= 1
    assert good.parts["doubt"] > 0
    free = Preference(model, brake=0.0)
    assert (await free.grade(MemoryRun(), row, Completion("please look at row 3"))).value > good.value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "the option `model` is missing"),
        ({"model": "none.safetensors"}, "cannot be read"),
        ({"model": "bad.safetensors"}, "not a preference model"),
        ({"model": "bad.safetensors", "brake": "much"}, "from 0 to 100; this is 'much'"),
        ({"model": "bad.safetensors", "breke": 1}, 'no option "breke". Did you mean "brake"'),
    ],
)
def test_a_reward_that_cannot_be_built_says_where(options: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(json.dumps({}).encode())
    with pytest.raises(UsageError, match=says) as caught:
        build_reward({"preference": options}, tmp_path, "task.yaml:4")
    assert "task.yaml:4" in str(caught.value)


async def test_features_of_an_embedding_need_one() -> None:
    def embed(texts: Any) -> Any:
        return np.array([[float("please" in text), len(text) / 50, 1.0] for text in texts])

    model, _ = fit_preferences(polite_pairs(), "embedded/encoder", embed=embed, ridge=0.1)
    reward = Preference(model)
    assert reward.needs == {"embeddings"} and not Preference(fit_preferences(polite_pairs())[0]).needs
    row = Example("e", {"input": "x"}, text="x")
    with pytest.raises(UsageError, match=r"pip install 'whet\[embedded\]'"):
        await reward.grade(MemoryRun(), row, Completion("please"))
    given = with_embeddings(Weighted([(0.5, reward)]), embed)
    assert isinstance(given, Weighted)
    assert (await given.grade(MemoryRun(), row, Completion("please look"))).value > 0.25
    with pytest.raises(UsageError, match='no features "colour"'):
        fit_preferences(polite_pairs(), "colour")
    with pytest.raises(UsageError, match="3 pairs are too few"):
        fit_preferences(polite_pairs(3))
