"""Two-level designs: sizes, resolutions and generators of the textbook, effects that are told apart, contrasts with intervals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from whet.errors import UsageError
from whet.stats import evaluate_contrasts, fractional_design, full_design, letters
from whet.stats.paired import paired_test


@pytest.mark.parametrize(
    ("factors", "wanted", "runs", "resolution", "generators"),
    [
        (3, 3, 4, 3, ("C = AB",)),
        (4, 4, 8, 4, ("D = ABC",)),
        (5, 5, 16, 5, ("E = ABCD",)),
        (6, 5, 32, 6, ("F = ABCDE",)),
        (7, 4, 16, 4, ("E = ABC", "F = ABD", "G = ACD")),
        (8, 4, 16, 4, ("E = ABC", "F = ABD", "G = ACD", "H = BCD")),
        (8, 5, 64, 5, ("G = ABCD", "H = ABEF")),
        (11, 5, 128, 5, None),
        (15, 3, 16, 3, None),
    ],
)
def test_designs_have_the_sizes_and_resolutions_of_the_tables(
    factors: int, wanted: int, runs: int, resolution: int, generators: tuple[str, ...] | None
) -> None:
    design = fractional_design(factors, wanted)
    assert (design.runs, design.resolution) == (runs, resolution)
    if generators is not None:
        assert design.generators == generators
    assert len({tuple(row) for row in design.levels.tolist()}) == runs
    assert not design.levels.sum(axis=0).any(), "each factor is on in half of the runs"
    assert not np.triu(design.levels.T.astype(int) @ design.levels, 1).any(), "no two factors go together"


@pytest.mark.parametrize(("factors", "resolution"), [(9, 3), (12, 4), (10, 5), (5, 5), (24, 4)])
def test_no_word_of_the_defining_relation_is_shorter_than_the_resolution(
    factors: int, resolution: int
) -> None:
    design = fractional_design(factors, resolution)
    levels = design.levels.astype(int)
    for length in range(1, resolution):
        for word in combinations(range(factors), length):
            assert abs(int(np.prod(levels[:, list(word)], axis=1).sum())) < design.runs
    assert design.resolution is not None and design.resolution >= resolution


def test_a_full_design_has_every_combination_and_tells_everything_apart() -> None:
    design = full_design(3)
    assert (design.runs, design.resolution, design.name) == (8, None, "2^3, full")
    mains, pairs = design.estimates()
    assert [letters(group[0]) for group in mains] == ["A", "B", "C"]
    assert [letters(group[0]) for group in pairs] == ["AB", "AC", "BC"] and all(len(g) == 1 for g in pairs)


def test_aliases_are_those_whose_products_agree_in_every_run() -> None:
    design = fractional_design(7, 3)
    mains, pairs = design.estimates()
    assert not pairs and {letters(group[0]) for group in mains} == set("ABCDEFG")
    for group in mains:
        assert len({design.contrast(word).tobytes() for word in group}) == 1 and len(group) == 4
    clear, together = fractional_design(8, 4).estimates()
    assert all(len(group) == 1 for group in clear) and all(len(group) == 4 for group in together)


@pytest.mark.parametrize("factors", [0, 25])
def test_a_number_of_factors_that_no_design_has_is_refused(factors: int) -> None:
    with pytest.raises(UsageError, match="1 to 24 factors"):
        full_design(factors)
    with pytest.raises(UsageError, match="resolution is 3, 4 or 5"):
        fractional_design(3, 6)


def test_contrasts_recover_the_effects_that_rewards_are_made_of() -> None:
    design = fractional_design(5, 5)
    rng = np.random.default_rng(3)
    x = design.levels.astype(float)
    truth = 0.5 + 0.1 * x[:, 0] - 0.05 * x[:, 2] + 0.04 * x[:, 1] * x[:, 3]
    rewards = truth + rng.normal(0, 0.02, (60, 1)) + rng.normal(0, 0.01, (60, design.runs))
    mains, pairs = design.estimates()
    words = [group[0] for group in (*mains, *pairs)]
    weights = [design.contrast(word) * (2 / design.runs) for word in words]
    found = dict(zip(map(letters, words), evaluate_contrasts(rewards, weights, 0.0, 1.0), strict=True))
    assert found["A"].difference == pytest.approx(0.2, abs=0.005)
    assert found["C"].difference == pytest.approx(-0.1, abs=0.005)
    assert found["BD"].difference == pytest.approx(0.08, abs=0.005)
    shown = {name for name, one in found.items() if one.low > 0 or one.high < 0}
    assert {"A", "C", "BD"} <= shown and len(shown) <= 4
    assert all(one.p <= one.p_adjusted for one in found.values())


def test_a_family_is_wider_than_one_contrast_and_a_missing_reward_counts_at_its_worst() -> None:
    rng = np.random.default_rng(5)
    rewards = (rng.random((40, 3)) < [0.4, 0.6, 0.5]).astype(float)
    one = evaluate_contrasts(rewards, [[-1, 1, 0]], 0.0, 1.0)[0]
    alone = paired_test(rewards[:, 1] - rewards[:, 0])
    assert (one.low, one.high) == (alone.low, alone.high)
    both = evaluate_contrasts(rewards, [[-1, 1, 0], [-1, 0, 1]], 0.0, 1.0)[0]
    assert both.low < one.low and both.high > one.high and both.p_adjusted >= one.p
    gaps = rewards.copy()
    gaps[:5, 1] = np.nan
    known = evaluate_contrasts(gaps, [[-1, 1, 0]], 0.0, 1.0)[0]
    worst = evaluate_contrasts(np.where(np.isnan(gaps), 0.0, gaps), [[-1, 1, 0]], 0.0, 1.0)[0]
    assert known.n == 35 and known.low == worst.low and known.high > worst.high
    nothing = evaluate_contrasts(np.full((4, 2), np.nan), [[-1, 1]], 0.0, 1.0)[0]
    assert nothing.difference is None and (nothing.low, nothing.high) == (-1.0, 1.0)


def test_weights_that_are_no_contrast_are_refused() -> None:
    for weights in ([[1, 1]], [[2, -2]]):
        with pytest.raises(UsageError, match="sum to 0"):
            evaluate_contrasts(np.ones((4, 2)), weights, 0.0, 1.0)
