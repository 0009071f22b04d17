"""Reward models from preferences: known strengths, hand-worked fits, calibration, and the brake against exploits."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from whet.errors import UsageError
from whet.rewards import Weighted, build_reward
from whet.rewards.preference import (
    Duel,
    Log,
    Preference,
    PreferenceModel,
    PreferencePair,
    braked,
    calibration,
    ensemble,
    fit_log,
    fit_preferences,
    hedged,
    logistic,
    preference,
    strengths,
    temperature,
    with_embeddings,
)
from whet.rewards.preference.model import heated
from whet.rewards.preference.text import surface, words
from whet.run import MemoryRun
from whet.types import Completion, Example

ROOT = Path(__file__).resolve().parents[2]
OIRL = Path(os.environ.get("WHET_SHARED_DATA", ROOT.parent / "shared" / "data")) / "prompt_oirl_gsm8k"


def test_one_weight_by_hand() -> None:
    """7 of 10 wins with feature 1: the log odds, ln(7 / 3)."""
    found = logistic(np.ones((10, 1)), [1] * 7 + [0] * 3, ridge=1e-9)
    assert found.weights[0] == pytest.approx(np.log(7 / 3), abs=1e-6)
    # the Hessian is n p (1 - p) = 2.1
    assert found.covariance[0, 0] == pytest.approx(1 / 2.1, rel=1e-5)
    assert found.loss == pytest.approx(-(0.7 * np.log(0.7) + 0.3 * np.log(0.3)), abs=1e-6)


def test_weights_count_rows_and_outcomes_may_be_shares() -> None:
    rows = logistic(np.ones((10, 1)), [1] * 7 + [0] * 3, ridge=0.5)
    weighted = logistic(np.ones((2, 1)), [1, 0], weights=[7, 3], ridge=0.5)
    share = logistic(np.ones((1, 1)), [0.7], weights=[10], ridge=0.5)
    assert rows.weights == pytest.approx(weighted.weights)
    assert rows.weights == pytest.approx(share.weights)


@pytest.mark.parametrize("seed", range(4))
def test_fits_equal_those_of_a_general_minimiser(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, anchor = rng.normal(size=(60, 5)) * 3, rng.normal(size=5)
    y = rng.random(60) < 1 / (1 + np.exp(-x @ [2.0, -1.0, 0.0, 0.5, 0.0]))

    def objective(v: Any) -> float:
        z = x @ v
        return float((np.logaddexp(0, z) - y * z).sum() + 0.35 * ((v - anchor) ** 2).sum())

    wanted = optimize.minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).x
    assert logistic(x, y, ridge=0.7, anchor=anchor).weights == pytest.approx(wanted, abs=1e-4)


def test_a_fit_far_from_its_anchor_still_arrives() -> None:
    x, y = np.array([[8.0], [-8.0]] * 30), [1, 0] * 30
    found = logistic(x, y, ridge=1e-3, anchor=[-30.0])
    plain = optimize.minimize_scalar(
        lambda v: 60 * np.logaddexp(0, -8 * v) + 5e-4 * (v + 30) ** 2, bounds=(-40, 40), method="bounded"
    )
    assert found.weights[0] == pytest.approx(plain.x, abs=1e-3)


@pytest.mark.parametrize(
    ("features", "outcomes", "more", "says"),
    [
        (np.zeros((0, 2)), [], {}, "do not fit together"),
        ([[1.0]], [1, 0], {}, "do not fit together"),
        ([[np.nan]], [1], {}, "finite"),
        ([[1.0]], [1], {"weights": [-1]}, "0 or more"),
        ([[1.0]], [1], {"ridge": 0.0}, "above 0"),
        ([[1.0]], [2], {}, "between 0 and 1"),
    ],
)
def test_unusable_rows_are_refused(features: Any, outcomes: Any, more: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        logistic(features, outcomes, **more)


def test_two_items_by_hand() -> None:
    found = strengths(2, [Duel(0, 1)] * 7 + [Duel(1, 0)] * 3, ridge=1e-6)
    assert found.mean[0] - found.mean[1] == pytest.approx(np.log(7 / 3), abs=1e-3)
    assert found.mean.sum() == pytest.approx(0.0, abs=1e-9)
    assert found.deviation(0, 1) == pytest.approx((1 / 2.1) ** 0.5, rel=1e-3)
    assert 0.5 < found.probability(0, 1) < 0.7, "drawn to one half by what ten duels leave open"
    weighted = strengths(2, [Duel(0, 1, 7.0), Duel(1, 0, 3.0)], ridge=1e-6)
    assert weighted.mean == pytest.approx(found.mean)


def test_known_strengths_are_recovered() -> None:
    """Eight items, 2,000 duels that follow the law; each strength within three of its own standard deviations."""
    rng = np.random.default_rng(3)
    real = np.linspace(-2, 2, 8)
    duels = []
    for _ in range(2000):
        a, b = rng.choice(8, 2, replace=False)
        wins = rng.random() < 1 / (1 + np.exp(real[b] - real[a]))
        duels.append(Duel(int(a if wins else b), int(b if wins else a)))
    found = strengths(8, duels)
    assert np.abs(found.mean - real).max() < 0.3
    errors = [
        abs(found.mean[a] - found.mean[b] - real[a] + real[b]) / found.deviation(a, b)
        for a in range(8)
        for b in range(a)
    ]
    assert max(errors) < 3.5
    assert np.mean([e < 1.96 for e in errors]) > 0.8


def test_an_item_that_always_wins_stays_finite_and_unsure() -> None:
    found = strengths(3, [Duel(0, 1)] * 3)
    assert np.isfinite(found.mean).all()
    assert found.deviation(0, 2) > found.deviation(0, 1) > 1
    with pytest.raises(UsageError, match="does not name two of 3 items"):
        strengths(3, [Duel(0, 3)])
    with pytest.raises(UsageError, match="at least one duel"):
        strengths(3, [])


def test_a_preference_is_drawn_to_one_half_by_doubt() -> None:
    assert hedged([2.0], [0.0])[0] == pytest.approx(1 / (1 + np.exp(-2)))
    assert 0.5 < hedged([2.0], [10.0])[0] < 0.7
    assert hedged([0.0], [3.0])[0] == 0.5


def test_linear_preferences_find_the_direction() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([2.0, -1.0, 0.0])
    a, b = rng.normal(size=(2, 600, 3))
    wins = rng.random(600) < 1 / (1 + np.exp(-(a - b) @ truth))
    better, worse = np.where(wins[:, None], a, b), np.where(wins[:, None], b, a)
    found = preference(better, worse, ridge=0.1)
    assert np.abs(found.weights - truth).max() < 4 * np.sqrt(np.diag(found.covariance)).max()
    assert found.weights == pytest.approx(truth, abs=0.5)


def test_calibration_by_hand() -> None:
    found = calibration([0.9, 0.9, 0.1, 0.6], [1, 0, 0, 1], bins=2)
    # upper bin: mean .8, observed 2/3, 3 of them; lower: .1, observed 0
    assert [(b.predicted, b.observed, b.count) for b in found.bins] == [
        (0.1, 0.0, 1),
        (pytest.approx(0.8), pytest.approx(2 / 3), 3),
    ]
    assert found.error == pytest.approx((0.1 + 3 * (0.8 - 2 / 3)) / 4)
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.16) / 4)
    assert found.accuracy == 0.75
    assert calibration([0.5, 0.5], [1, 0]).accuracy == 0.5
    with pytest.raises(UsageError, match="between 0 and 1"):
        calibration([1.2], [1])


def test_temperature_mends_overconfidence() -> None:
    """Differences that are three times too large get the temperature three."""
    rng = np.random.default_rng(1)
    real = rng.normal(size=4000) * 2
    outcomes = rng.random(4000) < 1 / (1 + np.exp(-real))
    assert temperature(3 * real, outcomes) == pytest.approx(3.0, rel=0.15)
    assert temperature(-real, outcomes) == 1e6, "the opposite of the truth says nothing"


def test_the_brake_by_hand() -> None:
    scores = [[1.0, 4.0], [1.0, 0.0]]
    assert braked(scores, 0.0).tolist() == [1.0, 2.0]
    assert braked(scores, 1.0).tolist() == [1.0, 0.0]


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
    naive, careful = candidates[braked(scores, 0.0).argmax()], candidates[braked(scores, 1.5).argmax()]
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
    first, same = (ensemble(better, worse, members=3, seed=4) for _ in range(2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, ensemble(better, worse, members=3, seed=5))
    with pytest.raises(UsageError, match="2 or more members"):
        ensemble(better, worse, members=1)


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
    assert sum(b.count for b in trust.bins) == 2 * 24, "held-out pairs, both ways round"
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
            cooled = heated(model, seen[other][:1], seen[other][1:])
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


def query_log(n: int = 300, prompts: int = 3) -> tuple[Any, Log]:
    """Queries of two kinds: prompt 1 is good for the first kind, prompt 2 for the second, prompt 0 fair for all."""
    rng = np.random.default_rng(7)
    kinds = rng.integers(2, size=n)
    features = np.column_stack([np.where(kinds == 1, 1.0, -1.0), rng.normal(size=(n, 3))])
    chance = np.array([[0.5, 0.8, 0.15], [0.5, 0.15, 0.8]])
    rows = [(q, p, float(rng.random() < chance[kinds[q], p])) for q in range(n) for p in range(prompts)]
    q, p, s = (np.array(column) for column in zip(*rows, strict=True))
    return features, Log(q, p, s)


def test_a_prompt_for_each_query_beats_the_best_single_one() -> None:
    features, log = query_log()
    train = log.queries < 200
    chooser = fit_log(features, np.eye(3), Log(log.queries[train], log.prompts[train], log.success[train]))
    assert chooser.gain.low > 0
    chosen = chooser.choose(features[200:], np.eye(3))
    success = log.success.reshape(-1, 3)[200:]
    assert success[np.arange(100), chosen].mean() > success.mean(axis=0).max() + 0.15
    kinds = features[200:, 0] > 0
    assert (chosen[kinds] == 2).mean() > 0.9 and (chosen[~kinds] == 1).mean() > 0.9


def test_where_queries_do_not_differ_the_best_single_prompt_is_chosen() -> None:
    features, log = query_log()
    rng = np.random.default_rng(0)
    flat = Log(
        log.queries, log.prompts, (rng.random(len(log.success)) < 0.3 + 0.2 * log.prompts).astype(float)
    )
    chooser = fit_log(features, np.eye(3), flat)
    assert chooser.gain.low <= 0
    assert set(chooser.choose(features, np.eye(3)).tolist()) == {2} == {chooser.best}


def test_prompts_that_were_never_logged_are_judged_by_their_features() -> None:
    """Prompts lie on a line; what suits a query is where it lies. The held-back prompt is between two known ones."""
    rng = np.random.default_rng(5)
    queries = rng.uniform(-1, 1, size=(400, 1))
    prompts = np.array([[-1.0], [1.0], [0.9]])
    success = (rng.random((400, 2)) < 1 / (1 + np.exp(-4 * queries * prompts[:2].T))).astype(float)
    q, p = np.repeat(np.arange(400), 2), np.tile([0, 1], 400)
    chooser = fit_log(queries, prompts, Log(q, p, success.ravel()))
    found = chooser.probabilities([[0.9], [-0.9]], prompts)
    assert found[0, 2] > 0.85 and found[1, 2] < 0.15


def test_a_log_that_names_what_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="a log of 3 queries"):
        fit_log(np.ones((3, 1)), np.eye(2), Log(np.arange(3), np.zeros(3, dtype=int), np.ones(3)))
    with pytest.raises(UsageError, match="features for each query and prompt"):
        fit_log(np.ones((9, 1)), np.eye(2), Log(np.arange(9), np.full(9, 2), np.ones(9)))


@pytest.mark.skipif(not OIRL.is_dir(), reason="no logs of Llama-2 on GSM8K; set WHET_SHARED_DATA")
def test_on_real_logs_success_is_foretold_and_choosing_never_costs() -> None:
    """1,500 questions under six prompts; on 379 others the probabilities say more than each prompt's mean does."""

    def read(name: str) -> list[Any]:
        return [json.loads(line) for line in (OIRL / name).read_text("utf-8").splitlines()]

    train, test = read("train.jsonl"), read("test.jsonl")
    prompts = list(train[0]["correct"])
    texts = [row["input"] for row in train + test]
    x = surface([""] * len(texts), texts)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    rows = [
        (q, p, float(row["correct"][name])) for q, row in enumerate(train) for p, name in enumerate(prompts)
    ]
    q, p, s = (np.array(column) for column in zip(*rows, strict=True))
    chooser = fit_log(x, np.eye(len(prompts)), Log(q.astype(int), p.astype(int), s))
    truth = np.array([[row["correct"][name] for name in prompts] for row in test], dtype=float)
    found = chooser.probabilities(x[len(train) :], np.eye(len(prompts)))

    def deviance(predicted: Any) -> float:
        return float(-(truth * np.log(predicted) + (1 - truth) * np.log(1 - predicted)).mean())

    means = np.array([s[p == k].mean() for k in range(len(prompts))])
    assert deviance(found) < deviance(np.broadcast_to(means, truth.shape)) - 0.01
    assert calibration(found.ravel(), truth.ravel()).error < 0.05
    chosen = chooser.choose(x[len(train) :], np.eye(len(prompts)))
    assert truth[np.arange(len(truth)), chosen].mean() >= truth[:, chooser.best].mean()
