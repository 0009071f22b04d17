"""Evidence about a difference: unbiased scores, a test martingale, and intervals that hold at every look."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from benchmarks.simulated_experiments import SimulatedExperiment, draw, first_look, simulate, winners
from hypothesis import given
from hypothesis import strategies as st

from whet_live.experiments.confidence_sequences import Capital
from whet_live.experiments.definition import AllocationPolicy
from whet_live.experiments.effects import (
    LOG_SHARES,
    SIZES,
    ArmScores,
    Array,
    MetricSample,
    build_arm_scores,
    log_capital,
    log_imbalance,
    means,
)

HALF = (0.5, 0.5)


def sample_of(arms: list[int], values: list[float], chances: tuple[float, ...] = HALF) -> MetricSample:
    return MetricSample(np.array(arms), np.array(values), np.tile(np.array(chances), (len(arms), 1)))


def interval(found: ArmScores, alpha: float, floor: float = -1.0, top: float = 1.0) -> tuple[float, float]:
    """The confidence sequence after all units."""
    seen = Capital().plus(found.only(found.used)).interval(2 / alpha, (floor, top))
    return seen.low, seen.high


def evidence(found: ArmScores, null: float = 0.0) -> float:
    """The largest capital that was reached."""
    return math.exp(max(0.0, float(log_capital(found, null).max(initial=0.0))))


def estimate(found: ArmScores) -> float:
    return Capital().plus(found.only(found.used)).mean


histories = st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), max_size=12)
probabilities = st.floats(0.05, 0.95)


@given(histories, probabilities, st.floats(0, 1), st.floats(0, 1))
def test_a_score_is_an_unbiased_estimate_of_the_effect_and_bounded(
    history: list[tuple[int, float]], p: float, treated: float, untreated: float
) -> None:
    """Over the randomisation of the next unit, whatever came before and whatever its two outcomes are."""
    arms, values = [arm for arm, _ in history], [value for _, value in history]
    outcomes = ((1, treated, p), (0, untreated, 1 - p))
    expected = 0.0
    for arm, value, chance in outcomes:
        found = build_arm_scores(sample_of([*arms, arm], [*values, value], (1 - p, p)), 1, 0)
        expected += chance * found.phi[-1]
        assert found.low[-1] - 1e-9 <= found.phi[-1] <= found.high[-1] + 1e-9
    assert expected == pytest.approx(treated - untreated, abs=1e-9)


@given(histories, probabilities, st.floats(-0.99, 0.99), st.data())
def test_the_capital_is_fair_when_the_effect_is_the_null(
    history: list[tuple[int, float]], p: float, null: float, data: st.DataObject
) -> None:
    """The next factor has the expectation 1 if the unit's true effect is the null, and is never negative."""
    treated = data.draw(st.floats(max(0.0, null), min(1.0, 1.0 + null)))
    arms, values = [arm for arm, _ in history], [value for _, value in history]
    start = log_capital(build_arm_scores(sample_of(arms, values, (1 - p, p)), 1, 0), null)
    before = math.exp(start[-1]) if len(start) else 1.0
    expected = 0.0
    for arm, value, chance in ((1, treated, p), (0, treated - null, 1 - p)):
        found = build_arm_scores(sample_of([*arms, arm], [*values, value], (1 - p, p)), 1, 0)
        expected += chance * math.exp(log_capital(found, null)[-1])
    assert expected == pytest.approx(before, rel=1e-6)


def test_scores_and_capital_are_those_of_the_formulas() -> None:
    """A plain loop over the units, in the words of the module's docstring."""
    rng = np.random.default_rng(3)
    arms, values, p = rng.integers(0, 2, 40).tolist(), rng.random(40).tolist(), 0.3
    sums, counts, squares, capital = [0.0, 0.0], [0, 0], [], np.exp(LOG_SHARES)
    for arm, y in zip(arms, values, strict=True):
        pool = (sum(sums) + 0.5) / (sum(counts) + 1)
        m0, m1 = ((sums[k] + pool) / (counts[k] + 1) for k in (0, 1))
        phi = m1 - m0 + ((y - m1) / p if arm else -(y - m0) / (1 - p))
        low = m1 - m0 - max(m1 / p, (1 - m0) / (1 - p))
        spread = math.sqrt((sum(squares) + 1) / (len(squares) + 1))
        capital *= 1 + np.minimum(SIZES / spread, 0.95 / (0.1 - low)) * (phi - 0.1)
        sums[arm] += y
        counts[arm] += 1
        squares.append(phi**2)
    found = build_arm_scores(sample_of(arms, values, (1 - p, p)), 1, 0)
    assert log_capital(found, 0.1)[-1] == pytest.approx(math.log(capital.sum()))
    assert evidence(found, 0.1) == pytest.approx(max(1.0, math.exp(log_capital(found, 0.1).max())))


def test_units_of_other_arms_and_without_outcome_change_nothing() -> None:
    few = sample_of([0, 1, 0, 1], [0.2, 0.9, 0.1, 1.0], (0.25, 0.25, 0.5))
    more = sample_of([0, 2, 1, 1, 0, 1], [0.2, 0.4, 0.9, math.nan, 0.1, 1.0], (0.25, 0.25, 0.5))
    assert build_arm_scores(more, 1, 0).phi[[0, 2, 4, 5]].tolist() == build_arm_scores(few, 1, 0).phi.tolist()
    assert (
        log_capital(build_arm_scores(more, 1, 0), 0.0)[-1]
        == log_capital(build_arm_scores(few, 1, 0), 0.0)[-1]
    )
    assert interval(build_arm_scores(more, 1, 0), 0.05) == interval(build_arm_scores(few, 1, 0), 0.05)


@given(histories.filter(lambda h: len(h) > 3), st.floats(0.01, 0.3))
def test_the_interval_is_what_is_not_refuted_and_mirrors(
    history: list[tuple[int, float]], alpha: float
) -> None:
    found = build_arm_scores(sample_of([a for a, _ in history], [v for _, v in history]), 1, 0)
    low, high = interval(found, alpha)
    assert -1.0 <= low < high <= 1.0
    mirrored = interval(found.swap_arms(), alpha)
    assert mirrored == pytest.approx((-high, -low))
    threshold = math.log(2 / alpha)
    if low > -1.0:
        assert log_capital(found, low)[-1] >= threshold > log_capital(found, low + 2e-5)[-1]


def test_nothing_is_known_before_the_first_outcome() -> None:
    found = build_arm_scores(sample_of([], []), 1, 0)
    assert interval(found, 0.05) == (-1.0, 1.0)
    assert evidence(found) == 1.0
    assert math.isnan(estimate(found))


def test_strata_make_the_same_difference_plainer() -> None:
    """Two strata whose levels lie far apart: comparing within them removes most of the variance."""
    rng = np.random.default_rng(4)
    n = 2000
    strata, arms = rng.integers(0, 2, n), rng.integers(0, 2, n)
    values = (rng.random(n) < 0.1 + 0.75 * strata + 0.05 * arms).astype(np.float64)
    chances = np.full((n, 2), 0.5)
    plain, within = (build_arm_scores(MetricSample(arms, values, chances, s), 1, 0) for s in (None, strata))
    wide, narrow = (np.ptp(interval(found, 0.05)) for found in (plain, within))
    assert narrow < 0.8 * wide
    assert estimate(within) == pytest.approx(0.05, abs=0.05)


def any_look(reached: np.ndarray) -> float:
    return float(reached.any(axis=-1).mean())


@pytest.mark.parametrize(
    "kind",
    [
        "rare",
        "falling",
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("even", "common", "graded", "same mean", "uneven chances", "adaptive")
        ),
    ],
)
def test_false_alarms_with_a_look_after_every_unit(kind: str) -> None:
    """1,000 experiments without a difference, 600 units each. Promised is 2.5% a side; the bound of the test is
    4.2%, three and a half standard errors above it."""
    rng = np.random.default_rng(5)
    shape = (1000, 600)
    chances = np.full((*shape, 2), 0.5)
    if kind == "uneven chances":
        chances[...] = (0.9, 0.1)
    if kind == "adaptive":
        sample = draw(
            rng,
            SimulatedExperiment((0.5, 0.5), drift=0.3),
            AllocationPolicy("thompson", units=100),
            1000,
            600,
        )
    else:
        arms = (rng.random(shape) < chances[..., 1]).astype(np.int64)
        sample = MetricSample(arms, null_values(kind, rng, arms), chances)
    found = build_arm_scores(sample, 1, 0)
    up, down = (any_look(log_capital(one, 0.0) >= math.log(40)) for one in (found, found.swap_arms()))
    assert up <= 0.042
    assert down <= 0.042


def null_values(kind: str, rng: np.random.Generator, arms: Array) -> Array:
    """Outcomes whose means are the same in both arms."""
    shape = arms.shape
    if kind == "graded":
        return rng.beta(2, 1, shape)
    if kind == "same mean":
        return np.where(arms == 1, rng.random(shape) < 0.1, 0.1).astype(np.float64)
    level = {"rare": 0.03, "common": 0.95}.get(kind, 0.5)
    drift = np.linspace(0.4, -0.4, shape[1]) if kind == "falling" else 0.0
    return (rng.random(shape) < level + drift).astype(np.float64)


def test_the_check_notices_a_rule_that_does_not_survive_peeking() -> None:
    """The same experiments, judged by a z-test after every unit."""
    sample = draw(np.random.default_rng(6), SimulatedExperiment((0.5, 0.5)), AllocationPolicy(), 1000, 600)
    one = sample.arms == 1
    n1, n0 = np.cumsum(one, 1), np.cumsum(~one, 1)
    s1, s0 = np.cumsum(one * sample.values, 1), np.cumsum(~one * sample.values, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = (s1 + s0) / (n1 + n0)
        z = (s1 / n1 - s0 / n0) / np.sqrt(p * (1 - p) * (1 / n1 + 1 / n0))
    assert any_look((z > 1.96) & (np.minimum(n1, n0) >= 10)) > 0.1


def test_a_drift_of_all_arms_fools_a_comparison_of_means_but_not_the_scores() -> None:
    """Shares change while quality falls for everybody: the arm that got the early units looks better."""
    rng = np.random.default_rng(7)
    chances = np.zeros((300, 1000, 2))
    chances[:, :500], chances[:, 500:] = (0.2, 0.8), (0.8, 0.2)
    arms = (rng.random((300, 1000)) < chances[..., 1]).astype(np.int64)
    level = np.where(np.arange(1000) < 500, 0.8, 0.3)
    sample = MetricSample(arms, (rng.random(arms.shape) < level).astype(np.float64), chances)
    assert any_look(log_capital(build_arm_scores(sample, 1, 0), 0.0) >= math.log(40)) <= 0.06
    naive = [
        row[0][row[1] == 1].mean() - row[0][row[1] == 0].mean()
        for row in zip(sample.values, arms, strict=True)
    ]
    assert np.mean(naive) > 0.2


def test_power_and_wrong_winners() -> None:
    """0.60 against 0.50: nine in ten are decided within 2,000 units, and hardly any wrongly."""
    world = SimulatedExperiment((0.5, 0.6))
    found = simulate(world, AllocationPolicy(), 200, 2000, seed=8)
    assert found.decided >= 180
    assert found.wrong(world) <= 2
    assert 550 < np.median(found.units) < 900


@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=pytest.mark.long)])
def test_more_arms_do_not_make_more_false_winners(runs: int) -> None:
    found = simulate(SimulatedExperiment((0.5,) * 5), AllocationPolicy(), runs, 1000, seed=9)
    assert found.decided <= 0.05 * runs + 3.5 * math.sqrt(runs * 0.05 * 0.95)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["thompson", "top_two", "track_and_stop"])
def test_bandits_find_the_best_arm_and_spend_fewer_units_elsewhere(kind: str) -> None:
    world = SimulatedExperiment((0.3, 0.3, 0.6))
    found = simulate(world, AllocationPolicy(kind, units=50), 60, 3000, seed=10)  # type: ignore[arg-type]
    fixed = simulate(world, AllocationPolicy(), 60, 3000, seed=10)
    assert found.wrong(world) == 0
    assert found.decided >= 57
    assert found.best_share.mean() > fixed.best_share.mean() + 0.05


def test_looks() -> None:
    reached = np.array([[False, True, False, True], [False] * 4])
    assert first_look(reached).tolist() == [2, 2**62]
    assert first_look(reached, 4).tolist() == [4, 2**62]
    assert first_look(reached, 3).tolist() == [2**62, 2**62]


def test_winners_agree_with_the_evidence_of_single_experiments() -> None:
    sample = draw(np.random.default_rng(11), SimulatedExperiment((0.2, 0.5, 0.8)), AllocationPolicy(), 5, 400)
    found = winners(sample)
    for row, (winner, units) in enumerate(zip(found.winner, found.units, strict=True)):
        short = MetricSample(
            sample.arms[row, :units], sample.values[row, :units], sample.chances[row, :units]
        )
        others = [arm for arm in range(3) if arm != winner]
        assert all(evidence(build_arm_scores(short, int(winner), other)) >= 60 for other in others)


def test_means_are_tested_against_a_value() -> None:
    rng = np.random.default_rng(12)
    arms = rng.integers(0, 2, 800)
    sample = MetricSample(arms, (rng.random(800) < 0.8).astype(np.float64), np.full((800, 2), 0.5))
    found = means(sample, 1)
    low, high = interval(found, 0.05, 0.0, 1.0)
    assert low < 0.8 < high
    assert evidence(found, 0.6) > 1000 > 40 > evidence(found, 0.8)
    assert evidence(found.swap_arms(), -0.95) > 1000


def test_shares_that_do_not_fit_are_noticed() -> None:
    rng = np.random.default_rng(13)
    chances = np.full((4000, 2), 0.5)
    right = rng.integers(0, 2, (100, 4000))
    alarms = [float(log_imbalance(row, chances).max()) >= math.log(100) for row in right]
    assert sum(alarms) <= 5
    wrong = (rng.random(4000) < 0.56).astype(np.int64)
    assert float(log_imbalance(wrong, chances).max()) > math.log(100)


def test_the_order_of_arms_is_only_a_name() -> None:
    sample = draw(np.random.default_rng(14), SimulatedExperiment((0.4, 0.5)), AllocationPolicy(), 1, 300)
    one = MetricSample(sample.arms[0], sample.values[0], sample.chances[0])
    swapped = MetricSample(1 - one.arms, one.values, one.chances[:, ::-1])
    for (a, b), found in itertools.product(((1, 0), (0, 1)), (one,)):
        assert evidence(build_arm_scores(found, a, b)) == pytest.approx(
            evidence(build_arm_scores(swapped, b, a))
        )
