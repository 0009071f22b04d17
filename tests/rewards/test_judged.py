"""Reward models of pairs and thumbs: what they learn, how they are measured on unseen inputs, and what to ask next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.preferences import ask

from whet.errors import UsageError
from whet.rewards.preference import (
    JudgedAnswers,
    PreferenceLabel,
    PreferenceModel,
    PreferencePair,
    fit_judgements,
    information_gain,
    strengths_of,
)
from whet.rewards.preference.judged import PARTS, _Ordered


def answer(rng: np.random.Generator, words: int = 20) -> str:
    return " ".join(["word"] * int(rng.integers(1, words))) + "!" * int(rng.integers(0, 5))


def marks(text: str) -> float:
    return float(text.count("!"))


def pairs(
    n: int, rng: np.random.Generator, worth: Callable[[str], float] = marks, person: str = ""
) -> list[PreferencePair]:
    """Two answers to one input, twice for each input; who is worth more is preferred with Bradley and Terry's probability."""
    told = []
    for i in range(n):
        one, other = answer(rng), answer(rng)
        first = rng.random() < 1 / (1 + np.exp(worth(other) - worth(one)))
        told.append(PreferencePair(f"q{i // 2}", *((one, other) if first else (other, one)), person))
    return told


def test_pairs_and_thumbs_teach_one_model() -> None:
    rng = np.random.default_rng(0)
    labels = []
    for i in range(150):
        text, person = answer(rng), f"p{i % 3}"
        strict = 2.0 * (i % 3)  # people differ in how many marks please them, and not in that marks do
        labels.append(
            PreferenceLabel(
                f"r{i}", text, bool(rng.random() < 1 / (1 + np.exp(strict - 2 * marks(text)))), person
            )
        )
    for judged in (
        JudgedAnswers(tuple(pairs(150, rng))),
        JudgedAnswers((), tuple(labels)),
        JudgedAnswers(tuple(pairs(60, rng)), tuple(labels[:80])),
    ):
        fitted = fit_judgements(judged, "surface")
        said = fitted.held_out
        assert said.beats_chance and said.low < said.accuracy < said.high
        assert said.brier < said.base_brier
        assert (said.pairs, said.labels, said.inputs) == (
            len(judged.pairs), len(judged.labels), len(judged.inputs),
        )  # fmt: skip
        loud, quiet = (
            strengths_of(fitted.model, ["new"], [f"word word word{end}"]).mean() for end in ("!!!!", "")
        )
        assert loud > quiet + 0.5
        assert {*fitted.held} < {*judged.inputs} and len(fitted.held) == 2 * len(judged.inputs) // PARTS


def test_it_is_the_same_model_in_any_order_and_after_it_was_kept() -> None:
    pytest.importorskip("safetensors")
    told = pairs(60, np.random.default_rng(1))
    one, other = (fit_judgements(JudgedAnswers(tuple(order)), "surface") for order in (told, told[::-1]))
    np.testing.assert_allclose(one.model.members, other.model.members, atol=1e-8)
    assert one.held == other.held
    kept = PreferenceModel.load(one.model.save(), "here")
    np.testing.assert_array_equal(kept.members, one.model.members)


def test_the_area_under_the_curve_is_that_of_all_pairs_of_thumbs_of_a_part() -> None:
    """Against the definition: the share of (up, down) of one part that is ordered right, ties one half."""
    rng = np.random.default_rng(2)
    n = 60
    strength, good = rng.integers(0, 6, n).astype(float), (rng.random(n) < 0.4).astype(float)
    parts = np.arange(n) % PARTS
    told = _Ordered(np.zeros(0), np.zeros(0, int), strength, good, np.arange(n), parts)
    share, known = told.placements()
    for part in range(PARTS):
        ups, downs = (np.flatnonzero((parts == part) & (good == side)) for side in (1.0, 0.0))
        table = np.sign(strength[ups][:, None] - strength[downs]) / 2 + 0.5
        np.testing.assert_allclose(share[ups], table.mean(axis=1))
        np.testing.assert_allclose(share[downs], table.mean(axis=0))
    assert known.all()


@pytest.mark.long
def test_judgements_by_coin_seldom_pass_for_taste() -> None:
    """Null: at most 2.5% would pass at the nominal level; with 200 draws 5.8% is three standard errors above that."""
    passed = {"pairs": 0, "thumbs": 0}
    for seed in range(100):
        rng = np.random.default_rng(1000 + seed)
        judged = JudgedAnswers(tuple(pairs(120, rng, worth=lambda text: 0.0)))
        passed["pairs"] += fit_judgements(judged, "surface").held_out.beats_chance
        labels = tuple(
            PreferenceLabel(f"q{i // 2}", answer(rng), bool(rng.random() < 0.7)) for i in range(120)
        )
        passed["thumbs"] += fit_judgements(JudgedAnswers((), labels), "surface").held_out.beats_chance
    assert sum(passed.values()) <= 11, passed


def test_two_people_who_want_the_opposite_are_reported() -> None:
    rng = np.random.default_rng(3)
    most = pairs(160, rng, person="ann")
    few = [
        PreferencePair(one.query, one.worse, one.better, "bob")
        for one in pairs(50, rng, lambda t: 2 * marks(t))
    ]
    said = fit_judgements(JudgedAnswers((*most, *few)), "surface").held_out
    assert [one.person for one in said.people] == ["ann", "bob"]
    assert [one.person for one in said.opponents] == ["bob"]
    assert said.people[0].low > 0.5


def test_too_little_is_refused() -> None:
    rng = np.random.default_rng(4)
    with pytest.raises(UsageError, match="4 judgements of answers to 2 different inputs are too few"):
        fit_judgements(JudgedAnswers(tuple(pairs(4, rng))))
    labels = tuple(PreferenceLabel(f"q{i}", answer(rng), True) for i in range(30))
    with pytest.raises(UsageError, match="All 30 thumbs are up"):
        fit_judgements(JudgedAnswers((), labels))


def test_information_is_what_members_disagree_about() -> None:
    """Two members that are sure of opposites: one bit. Two that agree, whatever they say: none. By hand for one that says 3/4 and
    one that says 1/4: H(1/2) - H(1/4) = 1 - 0.811278."""
    odds = np.log(3.0)
    first = np.array([[50.0, 2.0, 0.0, odds], [-50.0, 2.0, 0.0, -odds]])
    gain = information_gain(first, np.zeros_like(first))
    np.testing.assert_allclose(gain, [1.0, 0.0, 0.0, 1 - 0.8112781244591328], atol=1e-9)


@pytest.mark.long
def test_informative_questions_need_fewer_answers_than_random_ones() -> None:
    """Simulated, 16 worlds: four of five questions are about nothing."""
    informed, drawn = (
        np.array([ask(by, seed, (40, 60), 10) for seed in range(20)]) for by in ("information", "random")
    )
    gain = (informed - drawn)[:, 0]
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain)) > 0
    assert informed[:, 0].mean() >= drawn[:, 1].mean() - 0.01, (
        "40 chosen questions teach what 60 random ones do"
    )
