"""What is counted: rows weigh the same in both tests whatever their clusters, a second opinion may be asked at every look, and
ids of clusters are names."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from whet.engine.pairs import decide_pairs_anytime
from whet.rewards.text import ExactMatch
from whet.stats import decide, decide_anytime
from whet.types import Rollout

Array = NDArray[np.float64]
SIZE, LARGE, MEAN = 20, 0.2, -0.02
BATCH, LOOKS = 30, 8


def unequal_groups(rng: np.random.Generator, groups: int) -> tuple[Array, NDArray[np.int64]]:
    """Groups of one row gain 0.3, and one of five has 20 rows and loses what makes the mean over rows -0.02: that over groups is
    above 0.2."""
    large = rng.random(groups) < LARGE
    sizes = np.where(large, SIZE, 1)
    rows = (1 - LARGE) + LARGE * SIZE
    loss = (MEAN * rows - (1 - LARGE) * 0.3) / (LARGE * SIZE)
    index = np.repeat(np.arange(groups), sizes)
    usual = np.where(large, loss, 0.3)[index]
    return np.clip(usual + rng.normal(0, 0.1, len(index)), -1, 1), index


def sides(d: Array) -> tuple[list[float], list[float]]:
    """Rewards of baseline and candidate in [0, 1] with these differences."""
    return np.maximum(0, -d).tolist(), np.maximum(0, d).tolist()


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.long)])
def test_a_prompt_that_is_worse_over_rows_is_not_promoted_because_small_groups_gain(runs: int) -> None:
    rng = np.random.default_rng(11)
    sealed = more = by_means = 0
    for _ in range(runs):
        d, index = unequal_groups(rng, 60)
        sealed += decide(*sides(d), 0, 1, clusters=index.tolist()).promoted
        d, index = unequal_groups(rng, BATCH * LOOKS)
        ends = [int(np.searchsorted(index, BATCH * look)) for look in range(1, LOOKS + 1)]
        more += any(
            decide_anytime(*sides(d[:end]), 0, 1, clusters=index[:end].tolist(), largest=SIZE).promoted
            for end in ends
        )
        means = np.bincount(index, d) / np.bincount(index)
        by_means += decide_anytime(*sides(means), 0, 1).promoted
    most = stats.binom.ppf(0.999, runs, 0.025)
    assert sealed <= most and more <= most
    assert by_means == runs, "the simulation notices a test of the mean over groups"


def rollouts(rewards: list[float]) -> list[Rollout]:
    return [Rollout("p", str(i), "", reward) for i, reward in enumerate(rewards)]


@pytest.mark.parametrize("runs", [4, pytest.param(200, marks=pytest.mark.long)])
def test_a_second_opinion_that_is_asked_at_sixty_looks_confirms_chance_as_rarely_as_it_should(
    runs: int,
) -> None:
    """Equal prompts by the second reward, ten more rows a look, at 2%; a test that looks once is passed at some look far more
    often."""
    rng, alpha = np.random.default_rng(12), 0.04
    anytime = once = 0
    for _ in range(runs):
        before, after = sides(rng.choice([1.0, -1.0, 0.0], 600, p=[0.2, 0.2, 0.6]))
        looks = range(10, 601, 10)
        answers = [(rollouts(before[:n]), rollouts(after[:n])) for n in looks]
        anytime += any(
            decide_pairs_anytime(pair, ExactMatch(), list(range(len(pair[0]))), alpha).promoted
            for pair in answers
        )
        once += any(decide(before[:n], after[:n], 0, 1, alpha).promoted for n in looks)
    assert anytime <= stats.binom.ppf(0.999, runs, alpha / 2)
    assert once > stats.binom.ppf(0.999, runs, alpha / 2) or runs < 100


@pytest.mark.parametrize("test", [decide, decide_anytime])
def test_ids_of_clusters_are_names_and_may_have_gaps(test: object) -> None:
    rng = np.random.default_rng(13)
    before, after = sides(rng.choice([0.4, -0.2, 0.0], 40))
    plain = [i // 2 for i in range(40)]
    found = test(before, after, 0, 1, clusters=plain)  # type: ignore[operator]
    for other in ([7 * c + 3 for c in plain], [10**9 - c for c in plain], [c * c for c in plain]):
        same = test(before, after, 0, 1, clusters=other)  # type: ignore[operator]
        assert same.clusters == found.clusters == 20
        assert (same.p_value, same.low, same.high) == pytest.approx(
            (found.p_value, found.low, found.high), abs=1e-6
        )
    assert test(before, after, 0, 1).clusters == 40  # type: ignore[operator]
