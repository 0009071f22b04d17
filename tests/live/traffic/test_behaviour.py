"""The reward from behaviour, on SIMULATED traffic whose truth is known, and on rows of the store."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from whet.errors import UsageError
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.traffic import Traffic
from whet_live.traffic.behaviour import BehaviourModel, RatedAnswer, fit_behaviour
from whet_live.traffic.dataset import observations


def expit(odds: float) -> float:
    """The probability of log-odds."""
    return 1 / (1 + math.exp(-odds))


def simulated(
    seed: int, answers: int = 3000, shy: float = 0.0, level: float = -2.2
) -> tuple[list[RatedAnswer], float]:
    """SIMULATED traffic and its true mean: people are pleased or not, behave accordingly, and rate when annoyed.

    `shy` adds to the log-odds of rating of those who are displeased, beyond what the signals show.
    """
    rng = random.Random(seed)
    rows, truth = [], []
    for number in range(answers):
        copied, again = rng.random() < 0.4, rng.random() < 0.3
        left = rng.random() < (0.5 if again else 0.1)
        seconds = rng.lognormvariate(3, 1)
        odds = 0.3 + 1.6 * copied - 1.4 * again - 1.2 * left + 0.3 * (math.log1p(seconds) - 3)
        truth.append(expit(odds))
        pleased = rng.random() < truth[-1]
        speaks = expit(level + 1.5 * again + 1.5 * left - 0.8 * copied + shy * (not pleased))
        signals = {"copy": float(copied), "abandon": float(left), **({"regenerate": 1.0} if again else {})}
        if rng.random() < 0.7:
            signals["dwell"] = seconds
        rating = float(pleased) if rng.random() < speaks else None
        rows.append(RatedAnswer(f"i{number}", signals, rating, f"u{rng.randrange(answers)}"))
    return rows, sum(truth) / len(truth)


@pytest.mark.parametrize("seed", range(8))
def test_the_corrected_mean_is_nearer_to_the_truth_than_the_naive_one(seed: int) -> None:
    rows, truth = simulated(seed)
    found = fit_behaviour(rows)
    assert abs(found.corrected.value - truth) < abs(found.naive.value - truth) / 2
    assert found.naive.high < truth
    assert found.hidden[0] < found.corrected.value < found.hidden[1]


def test_the_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(100, 140):
        rows, truth = simulated(seed, 1500)
        found = fit_behaviour(rows)
        held += found.corrected.low <= truth <= found.corrected.high
    assert held >= 34


def test_the_weights_are_those_of_the_simulation() -> None:
    rows, _ = simulated(3, 12_000, level=-0.5)
    found = {one.feature: one for one in fit_behaviour(rows).weights}
    for name, true in (("copy", 1.6), ("abandon", -1.2), ("regenerate", -1.4 / math.log(2)), ("dwell", 0.3)):
        one = found[name]
        assert one.weight.low <= true * one.scale <= one.weight.high
        assert one.weight.low < one.weight.value < one.weight.high
    assert found["abandon"].rates > 0.1 and found["copy"].rates < -0.1
    assert abs(found["dwell sent"].weight.value) < 0.2


def test_what_the_signals_do_not_show_is_told_as_a_range() -> None:
    rows, truth = simulated(5, 8000, shy=0.6)
    found = fit_behaviour(rows)
    assert found.corrected.high < truth
    assert found.hidden[0] < truth < found.hidden[1]


def test_the_reward_orders_answers_by_what_was_done_with_them() -> None:
    rows, _ = simulated(1, 4000)
    model = fit_behaviour(rows)
    good = model.reward({"copy": 1.0, "abandon": 0.0, "dwell": 60.0})
    bad = model.reward({"copy": 0.0, "abandon": 1.0, "regenerate": 2.0})
    assert 0 < bad < 0.3 < model.reward({}) < good < 1
    assert model.explained > 0.1 and model.warnings == ()
    again = BehaviourModel.from_json(json.loads(json.dumps(model.as_json())))
    assert again == model and again.reward({"copy": 0.5}) == model.reward({"copy": 0.5})


def test_the_numbers_are_those_of_an_independent_fit() -> None:
    """With everybody rated and almost no penalty the fit is plain logistic regression, solved here by scipy."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(4)
    x = rng.random(400) < 0.5
    y = (rng.random(400) < np.where(x, 0.8, 0.4)).astype(float)
    rows = [
        RatedAnswer(f"i{n}", {"copy": float(c)}, float(r)) for n, (c, r) in enumerate(zip(x, y, strict=True))
    ]
    found = fit_behaviour(rows, ridge=1e-9)
    z = (x - x.mean()) / x.std()

    def loss(b: np.ndarray) -> float:
        odds = b[0] + b[1] * z
        return float((np.logaddexp(0, odds) - y * odds).sum())

    best = optimize.minimize(loss, np.zeros(2), method="BFGS").x
    assert found.intercept == pytest.approx(best[0], abs=1e-4)
    assert found.weights[0].weight.value == pytest.approx(best[1], abs=1e-4)
    assert found.weights[0].naive == found.weights[0].weight and found.weights[0].rates == 0
    assert found.naive.value == pytest.approx(y.mean()) and found.corrected.value == pytest.approx(
        y.mean(), abs=1e-6
    )
    assert found.naive.high - found.naive.low == pytest.approx(2 * 1.96 * y.std(ddof=1) / 20, rel=1e-3)


def test_one_loud_user_is_one_source() -> None:
    rows, _ = simulated(2, 2000)
    angry = [RatedAnswer(f"a{n}", {"copy": 0.0, "abandon": float(n % 2)}, 0.0, f"a{n}") for n in range(150)]
    loud = [RatedAnswer(one.id, one.signals, one.rating, "loud") for one in angry]
    many, one = fit_behaviour(rows + angry), fit_behaviour(rows + loud)
    assert one.naive.value == many.naive.value and one.sources == many.sources - 149
    assert one.naive.high - one.naive.low > 2 * (many.naive.high - many.naive.low)


def test_who_rates_much_or_what_nobody_else_rates_counts_as_a_few() -> None:
    rows, _ = simulated(2, 2000)
    angry = [RatedAnswer(f"a{n}", {"copy": 1.0, "abandon": 0.0}, 0.0, "loud") for n in range(900)]
    honest, bound, free = (
        fit_behaviour(rows),
        fit_behaviour(rows + angry),
        fit_behaviour(rows + angry, most=math.inf),
    )
    weights = [{w.feature: w.weight.value for w in one.weights}["copy"] for one in (honest, bound, free)]
    assert weights[2] < weights[0] / 5 and weights[1] > weights[0] / 2
    means = [one.corrected.value for one in (honest, bound, free)]
    assert means[2] < means[0] - 0.2 and abs(means[1] - means[0]) < 0.05
    assert any("2 of 388 users" in one and "as 5 ratings each" in one for one in bound.warnings)
    assert not any("users rate so much" in one for one in (*honest.warnings, *free.warnings))


def test_ratings_the_wrong_way_round_are_told() -> None:
    rows, _ = simulated(4, 1000, level=1.0)
    turned = [replace(one, rating=None if one.rating is None else 1 - one.rating) for one in rows]
    found = " ".join(fit_behaviour(turned).warnings)
    for name, how in (("copy", "worse"), ("abandon", "better"), ("regenerate", "better")):
        assert f"Answers with {name} are rated {how} than others" in found
    assert "dwell" not in found and "wrong way round" not in " ".join(fit_behaviour(rows).warnings)


def test_where_all_rate_alike_nobody_counts_less_than_another() -> None:
    rows, _ = simulated(4, 1000, level=1.0)
    ten = [RatedAnswer(one.id, one.signals, one.rating, f"u{n % 20}") for n, one in enumerate(rows)]
    bound, free = fit_behaviour(ten), fit_behaviour(ten, most=math.inf)
    for one, other in zip(bound.weights, free.weights, strict=True):
        assert one.weight.value == pytest.approx(other.weight.value, abs=0.05)
    assert not any("users rate so much" in one for one in bound.warnings)


def test_too_little_is_refused_with_the_number() -> None:
    rows, _ = simulated(0, 300, level=-4)
    rated = sum(one.rating is not None for one in rows)
    with pytest.raises(UsageError, match=f"{rated} of 300 answers are rated.*at least 50"):
        fit_behaviour(rows)
    same = [RatedAnswer(f"i{n}", {"copy": n % 2}, 1.0) for n in range(60)]
    with pytest.raises(UsageError, match="All 60 ratings are 1"):
        fit_behaviour(same)
    silent = [RatedAnswer(f"i{n}", {}, float(n % 2)) for n in range(60)]
    with pytest.raises(UsageError, match="No implicit signal varies"):
        fit_behaviour(silent)
    with pytest.raises(UsageError, match=r"outside 0\.\.1"):
        fit_behaviour([RatedAnswer(f"i{n}", {"copy": n % 2}, float(n)) for n in range(60)])
    with pytest.raises(UsageError, match="All 60 ratings are by one user"):
        fit_behaviour([RatedAnswer(f"i{n}", {"copy": n % 2}, float(n % 3 > 0), "ann") for n in range(60)])
    with pytest.raises(UsageError, match="A signal is not a finite number"):
        fit_behaviour([RatedAnswer(f"i{n}", {"copy": math.nan}, float(n % 2)) for n in range(60)])


def test_few_raters_are_told() -> None:
    rows, _ = simulated(4, 1000, level=1.0)
    few = [RatedAnswer(one.id, one.signals, one.rating, f"u{n % 3}") for n, one in enumerate(rows)]
    assert any("by 3 users only" in warning for warning in fit_behaviour(few).warnings)
    assert not any("users only" in warning for warning in fit_behaviour(rows).warnings)


def test_where_nothing_is_known_of_some_answers_the_correction_is_no_surer_than_the_plain_mean() -> None:
    rated = [RatedAnswer(f"r{n}", {"abandon": float(n % 2)}, float(n % 4 > 0)) for n in range(100)]
    copied = [RatedAnswer(f"c{n}", {"copy": 1.0, "abandon": float(n % 2)}) for n in range(2000)]
    found = fit_behaviour(rated + copied)
    assert any("the correction is bounded" in warning for warning in found.warnings)
    assert found.corrected.high - found.corrected.value >= found.naive.high - found.naive.value - 1e-12
    assert found.corrected.value - found.corrected.low >= found.naive.value - found.naive.low - 1e-12


def test_signals_that_say_nothing_are_told() -> None:
    rng = random.Random(9)
    rows = [
        RatedAnswer(f"i{n}", {"copy": float(rng.random() < 0.5)}, float(rng.random() < 0.5))
        for n in range(400)
    ]
    found = fit_behaviour(rows)
    assert found.explained < 0.02
    assert any("next to nothing" in warning for warning in found.warnings)


def test_perfectly_told_ratings_still_give_finite_weights() -> None:
    rows = [RatedAnswer(f"i{n}", {"copy": float(n % 2)}, float(n % 2)) for n in range(100)]
    found = fit_behaviour(rows)
    assert all(math.isfinite(one.weight.value) for one in found.weights)
    assert found.reward({"copy": 1.0}) > 0.9


def test_answers_are_read_from_the_store(database: Database) -> None:
    traffic = Traffic(database)
    asked = [
        Inference("p", 1 + k % 2, id=f"i{k}", user="u" if k else None, time=1_750_000_000_000_000 + k)
        for k in range(4)
    ]
    asked.append(Inference("q", 1, id="other"))
    said = [
        ("i0", "rating", 5.0, "user"), ("i0", "thumb", 0.0, "annotator"), ("i0", "rating", 1.0, "model"),
        ("i0", "copy", 0.2, "user"), ("i0", "copy", 0.7, "user"), ("i1", "dwell", 3.0, "user"),
        ("i1", "thumb", 0.0, "user"), ("i1", "thumb", 1.0, "user"),
        ("i1", "dwell", 4.0, "user"), ("i1", "edit_distance", 0.9, "user"), ("i1", "edit_distance", 0.1, "user"),
        ("i2", "external_check", 1.0, "code"), ("i2", "external_check", 0.0, "code"), ("other", "abandon", 1.0, "user"),
    ]  # fmt: skip
    traffic.add(asked, [Feedback(kind=k, target=t, value=v, source=s) for t, k, v, s in said])
    found = {one.id: one for one in observations(database, "p")}
    assert list(found) == ["i3", "i2", "i1", "i0"]
    assert found["i0"] == RatedAnswer("i0", {"copy": 0.7}, 0.5, None)
    assert found["i1"] == RatedAnswer("i1", {"dwell": 7.0, "edit_distance": 0.1}, 1.0, "u"), "the last thumb"
    assert found["i2"].signals == {"external_check": 0.5} and found["i3"].signals == {}
    assert [one.id for one in observations(database, "p", version=2)] == ["i3", "i1"]
    assert [one.id for one in observations(database, "p", most=1)] == ["i3"]
    assert [one.id for one in observations(database, "p", since=1_750_000_000_000_003)] == ["i3"]
