"""The gate over cases: values by hand, harm, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from whet.stats import decide
from whet.stats.cases import TOLERANCE, CasesVerdict, decide_cases
from whet.stats.paired import FLIPS, GUARDED

N = 40


def judged(
    before: dict[str, list[float]], after: dict[str, list[float]], weakest: str | None = None
) -> CasesVerdict:
    names = [name for name, rewards in before.items() for _ in rewards]
    flat = [[reward for rewards in side.values() for reward in rewards] for side in (before, after)]
    return decide_cases(names, *flat, range(len(names)), weakest=weakest)


def right(k: int, n: int = N) -> list[float]:
    """`k` right answers of `n`, the first ones."""
    return [1.0] * k + [0.0] * (n - k)


def test_equal_cases_are_tested_as_rows_are() -> None:
    before, after = {"a": right(10), "b": right(20)}, {"a": right(20), "b": right(24)}
    plain = decide([*before["a"], *before["b"]], [*after["a"], *after["b"]], 0, 1)
    whole = judged(before, after).improvement
    assert (whole.difference, whole.p_value, whole.promoted) == (
        pytest.approx(plain.difference),
        plain.p_value,
        plain.promoted,
    )


def test_a_case_counts_alike_however_many_rows_it_has() -> None:
    before = {"large": right(100, 200), "small": right(20, 40)}
    gains_large = judged(before, {"large": right(140, 200), "small": right(16, 40)})
    # rows: (40 - 4) / 240 = .15; cases: (.2 - .1) / 2 = .05
    assert gains_large.improvement.difference == pytest.approx(0.05)
    assert gains_large.cases["large"].difference == pytest.approx(0.2)
    assert gains_large.cases["small"].baseline == pytest.approx(0.5)


def test_with_unequal_rows_gaffkes_bound_must_agree() -> None:
    """A case with few rows that all win weighs much; that the others lose in rare rows is not seen in so few."""
    before = {"large": right(100, 200), "a": right(9, 12), "b": right(9, 12)}
    after = {"large": right(140, 200), "a": right(9, 12), "b": right(9, 12)}
    verdict = judged(before, after).improvement
    assert verdict.method == GUARDED and verdict.p_value > 0.025 and not verdict.promoted
    shuffled = {"large": right(140, 200), "a": right(12, 12), "b": right(12, 12)}
    assert judged(before, shuffled).improvement.promoted


def test_graded_rewards_of_unequal_cases_are_tested_by_flips_where_no_case_is_skewed() -> None:
    rng = np.random.default_rng(3)
    names = ["large"] * 120 + ["small"] * 30
    old = rng.uniform(0.3, 0.5, 150)
    gains = rng.normal(0.1, 0.1, 150)
    verdict = decide_cases(names, old.tolist(), np.clip(old + gains, 0, 1).tolist(), range(150))
    assert verdict.improvement.method == FLIPS and verdict.improvement.promoted
    gains[120] = -0.3
    skewed = decide_cases(names, old.tolist(), np.clip(old + gains, 0, 1).tolist(), range(150))
    assert skewed.improvement.method == GUARDED


def test_a_shown_harm_forbids_what_the_mean_would_promote() -> None:
    before = {"a": right(8), "b": right(8), "c": right(36)}
    verdict = judged(before, {"a": right(32), "b": right(32), "c": right(20)})
    assert verdict.improvement.difference > 0.2 and verdict.improvement.low > 0
    assert verdict.cases["c"].harmed and not verdict.improvement.promoted
    assert "shown to harm c (0.9 to 0.5, shown)" in verdict.improvement.reason


def test_a_small_loss_is_promoted_and_said() -> None:
    before = {"a": right(8), "b": right(8), "c": right(36)}
    verdict = judged(before, {"a": right(32), "b": right(32), "c": right(33)})
    assert verdict.improvement.promoted and verdict.cases["c"].difference < -TOLERANCE
    assert verdict.improvement.reason.endswith("Cases that lost: c (0.9 to 0.825, which may be chance).")


def test_the_worst_case_must_rise_and_no_other_fall_to_where_it_was() -> None:
    before = {"weak": right(10), "strong": right(36)}
    rises = judged(before, {"weak": right(32), "strong": right(36)}, "weak").improvement
    assert rises.promoted and rises.difference == pytest.approx(0.8 - 0.25) and rises.low > 0
    only_strong = judged(before, {"weak": right(10), "strong": right(40)}, "weak").improvement
    assert not only_strong.promoted and only_strong.difference == 0
    falls = judged(before, {"weak": right(32), "strong": right(12)}, "weak").improvement
    assert not falls.promoted and falls.difference == pytest.approx(0.05)


def test_where_all_are_equally_bad_all_must_rise() -> None:
    before = {"a": right(40, 200), "b": right(40, 200)}
    one = judged(before, {"a": right(160, 200), "b": right(42, 200)}, "a").improvement
    both = judged(before, {"a": right(160, 200), "b": right(150, 200)}, "a").improvement
    assert not one.promoted and both.promoted


def test_too_few_rows_of_one_case_are_named() -> None:
    before = {"a": right(10), "b": right(1, 3)}
    verdict = judged(before, {"a": right(40), "b": right(3, 3)}, "a").improvement
    assert not verdict.promoted and "b has 3" in verdict.reason


@pytest.mark.parametrize("worst", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_gains_nothing_is_seldom_promoted(worst: bool) -> None:
    rng, promoted = np.random.default_rng(3), 0
    for _ in range(30):
        names = ["a"] * 30 + ["b"] * 60
        level = np.repeat([0.4, 0.5], [30, 60])
        before, after = ((rng.random(90) < level).astype(float).tolist() for _ in range(2))
        verdict = decide_cases(names, before, after, range(90), weakest="a" if worst else None)
        promoted += verdict.improvement.promoted
    assert promoted <= 4, "2.5% of 30 are 0.75; more than 4 have a probability of 0.1%"
