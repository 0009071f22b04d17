"""The promise of the anytime-valid gate, by simulation: no more false promotions than alpha/2, whenever one looks.

10,000 experiments per null hypothesis. The promised rate is 2.5%; the bound of the tests is 3.2%, four
standard errors above it, so that a rate of twice the promise would fail.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from whet.stats import decide_anytime
from whet.stats.betting import BETS, LOG_WEIGHTS

EXPERIMENTS = 10_000
EXAMPLES = 250
BOUND = 0.032
Array = NDArray[np.float64]


def null_differences(kind: str) -> Array:
    """(experiments, examples) differences whose mean is 0."""
    rng = np.random.default_rng(20)
    shape = (EXPERIMENTS, EXAMPLES)
    u = rng.random(shape)
    if kind == "rare damage":
        return np.where(u < 0.95, 0.05, -0.95)
    if kind == "rare repair":
        return np.where(u < 0.95, -0.05, 0.95)
    if kind == "graded":
        return rng.beta(2, 1, shape) - rng.beta(2, 1, shape)
    half = {"few differ": 0.05, "many differ": 0.25, "all differ": 0.5}[kind]
    return (u < half).astype(np.float64) - (u >= 1 - half)


def e_values(differences: Array) -> Array:
    """The e-value after every example: the definition, without logarithms."""
    capital, found = np.ones((len(differences), len(BETS))), np.empty_like(differences)
    weights = np.exp(LOG_WEIGHTS)
    for step in range(differences.shape[1]):
        capital *= 1.0 + differences[:, step, None] * BETS
        found[:, step] = capital @ weights
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "few differ",
        "graded",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("many differ", "all differ", "rare damage", "rare repair")
        ),
    ],
)
def test_false_promotions_with_a_look_after_every_example(kind: str) -> None:
    differences = null_differences(kind)
    better, worse = e_values(differences), e_values(-differences)
    promoted = better.max(axis=1) >= 40
    missed = promoted | (worse.max(axis=1) >= 40)
    assert promoted.mean() <= BOUND
    assert missed.mean() <= 2 * BOUND, "the interval misses the true difference at some look"
    for row in np.flatnonzero(promoted)[:5]:
        stop = int(np.argmax(better[row] >= 40)) + 1
        baseline = np.maximum(0, -differences[row]).tolist()
        candidate = np.maximum(0, differences[row]).tolist()
        found = decide_anytime(baseline[:stop], candidate[:stop], 0, 1)
        assert found.promoted, "the simulation and the gate disagree"
        assert found.e_value == pytest.approx(better[row, stop - 1])
        assert not decide_anytime(baseline[: stop - 1], candidate[: stop - 1], 0, 1).promoted


def test_the_simulation_notices_a_test_that_does_not_survive_repeated_looks() -> None:
    differences = null_differences("all differ")[:2000]
    wins, losses = (differences > 0).cumsum(1), (differences < 0).cumsum(1)
    p_values = stats.binom.sf(wins - 1, wins + losses, 0.5)
    assert (p_values[:, -1] <= 0.025).mean() <= BOUND
    assert (p_values <= 0.025).any(1).mean() > 3 * BOUND


def test_there_is_power() -> None:
    """20% repaired, 5% broken, 200 examples, one look: the exact power is 93%."""
    rng = np.random.default_rng(21)
    promoted = 0
    for _ in range(300):
        u = rng.random(200)
        promoted += decide_anytime((u < 0.05).tolist(), (u > 0.8).tolist(), 0, 1).promoted
    assert promoted > 260
