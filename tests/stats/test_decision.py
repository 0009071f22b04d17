"""The promotion rule: every verdict with its sentence, and the symmetries of the comparison."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from whet.errors import UsageError
from whet.stats import Improvement, decide, decide_anytime, hold_to_second_judge

PAIRS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)
BINARY_PAIRS = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 2), min_size=1, max_size=60)


def counted(wins: int, losses: int, ties: int, **options: float | bool) -> Improvement:
    """A comparison of right-or-wrong rewards with these counts."""
    baseline = [0.0] * wins + [1.0] * losses + [1.0] * ties
    candidate = [1.0] * wins + [0.0] * losses + [1.0] * ties
    return decide(baseline, candidate, 0.0, 1.0, **options)  # type: ignore[arg-type]


def test_promoted() -> None:
    found = counted(40, 16, 144)
    assert found.promoted
    assert (found.wins, found.losses, found.ties, found.n) == (40, 16, 144, 200)
    assert found.difference == pytest.approx(0.12)
    assert 0 < found.low < 0.12 < found.high
    assert found.e_value > 40
    assert found.p_value == pytest.approx(stats.binomtest(40, 56, alternative="greater").pvalue)
    assert (found.clusters, found.alpha, found.method) == (200, 0.05, "exact McNemar test")
    assert found.reason == (
        "Promoted: better by 0.12 on average over 200 examples (40 better, 16 worse, 144 equal; "
        "95% interval 0.043 to 0.196; p = 0.000921 by the exact McNemar test, and a promotion takes 0.025 or less)."
    )


def test_no_p_value_is_called_0() -> None:
    many = counted(1800, 0, 0)
    assert many.promoted and "; p < 1e-300 by the exact McNemar test" in many.reason
    assert "; p = 2.57e-290 by the exact McNemar test" in counted(962, 0, 0).reason


def test_the_anytime_valid_rule_needs_more() -> None:
    rewards = [0.0] * 40 + [1.0] * 160, [1.0] * 40 + [0.0] * 16 + [1.0] * 144
    anytime = decide_anytime(*rewards, 0.0, 1.0)
    assert anytime.promoted
    assert anytime.reason == (
        "Promoted: better by 0.12 on average over 200 examples (40 better, 16 worse, 144 equal; "
        "95% interval 0.00889 to 0.237; p = 0.012 by the confidence sequence, and a promotion takes 0.025 or less)."
    )
    few = [0.0] * 7, [1.0] * 7
    assert decide(*few, 0, 1).promoted
    assert "at least 8" in decide_anytime(*few, 0, 1).reason


def test_clusters_are_the_units() -> None:
    baseline, candidate = [0.0] * 9 + [1.0] * 3, [1.0] * 9 + [0.0] * 3
    copies = [i for i in range(12) for _ in range(10)]
    alone = decide(baseline, candidate, 0, 1)
    many = decide([baseline[i] for i in copies], [candidate[i] for i in copies], 0, 1, clusters=copies)
    assert not alone.promoted
    assert not many.promoted
    assert many.p_value == pytest.approx(alone.p_value, abs=1e-6)
    assert (many.n, many.clusters) == (120, 12)
    assert "120 examples in 12 clusters" in many.reason


def test_the_same_prompt_is_not_compared() -> None:
    found = decide([0.2, 0.4], [0.9, 0.9], 0, 1, same=True)
    assert (found.difference, found.low, found.high, found.promoted, found.e_value) == (0, 0, 0, False, 1)
    assert found.reason == "Not promoted: the candidate is the same prompt as the baseline."


def test_worse_with_and_without_certainty() -> None:
    assert re.fullmatch(
        r"Not promoted: worse by 0.258 on average over 128 examples \(.*\)\.", counted(7, 40, 81).reason
    )
    assert "95% interval -0.147 to 0.0462;" in counted(7, 12, 81).reason
    assert counted(7, 12, 81).reason.endswith("), which may be chance.")


def test_no_difference() -> None:
    assert counted(0, 0, 20).reason.startswith(
        "Not promoted: no difference on average over 20 examples (0 better"
    )


def test_not_enough_evidence_says_how_much_is_missing_and_that_much_suffices() -> None:
    found = counted(12, 7, 81)
    assert not found.promoted
    matched = re.search(r"but the evidence is not enough; .*, roughly ([\d,]+) more examples", found.reason)
    assert matched
    times = 1 + int(matched[1].replace(",", "")) / 100
    assert counted(round(12 * times), round(7 * times), round(81 * times)).promoted
    assert not counted(round(4 * times), round(2.33 * times), round(27 * times)).promoted


def test_a_vanishing_effect_needs_more_than_a_million_examples() -> None:
    assert "more than a million more examples" in counted(51, 50, 20_000).reason


@pytest.mark.parametrize("n", range(1, 6))
def test_too_few_examples_to_decide_at_all(n: int) -> None:
    found = counted(n, 0, 0)
    assert not found.promoted
    assert found.reason.startswith(f"Not promoted: too few examples ({n}); even the largest gain")
    assert "at least 6" in found.reason


def test_six_wins_out_of_six_are_enough() -> None:
    assert counted(6, 0, 0).promoted


def test_a_minimum_effect_moves_the_line() -> None:
    assert counted(40, 16, 144).promoted
    missing = counted(40, 16, 144, minimum_effect=0.05)
    assert not missing.promoted
    assert 0 < missing.low < 0.05
    assert "evidence is not enough" in missing.reason
    assert counted(40, 16, 144, minimum_effect=0.2).reason.endswith("not more than the required 0.2.")
    assert counted(60, 2, 50, minimum_effect=0.2).reason.endswith("more than the required 0.2.")


@settings(max_examples=20, deadline=None)
@given(PAIRS | BINARY_PAIRS, st.sampled_from([0.0, 0.05, 0.3]))
def test_promotion_interval_and_p_value_agree(pairs: list[tuple[float, float]], minimum: float) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    found = decide(baseline, candidate, 0, 1, minimum_effect=minimum)
    assert found.promoted == (found.p_value <= 0.025)
    assert found.low >= minimum - 1e-9 if found.promoted else found.low <= minimum + 1e-9
    assert -1 <= found.low <= found.difference + 1e-9
    assert found.difference - 1e-9 <= found.high <= 1
    assert found.wins + found.losses + found.ties == found.n == len(pairs)
    assert found.reason.startswith("Promoted: " if found.promoted else "Not promoted: ")
    assert found.reason.endswith(".")


@settings(max_examples=20, deadline=None)
@given(PAIRS | BINARY_PAIRS, st.randoms())
def test_the_order_of_the_pairs_does_not_matter(pairs: list[tuple[float, float]], random: Random) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    random.shuffle(pairs)
    shuffled_baseline, shuffled_candidate = zip(*pairs, strict=True)
    assert decide(shuffled_baseline, shuffled_candidate, 0, 1) == decide(baseline, candidate, 0, 1)


@settings(max_examples=20, deadline=None)
@given(PAIRS | BINARY_PAIRS)
def test_swapped_prompts_mirror_the_result(pairs: list[tuple[float, float]]) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    found, mirrored = decide(baseline, candidate, 0, 1), decide(candidate, baseline, 0, 1)
    assert (mirrored.wins, mirrored.losses, mirrored.ties) == (found.losses, found.wins, found.ties)
    assert mirrored.difference == pytest.approx(-found.difference, abs=1e-12)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-8)
    assert not (found.promoted and mirrored.promoted)


@settings(max_examples=20, deadline=None)
@given(PAIRS, st.sampled_from([0.01, 4.0, 1000.0]), st.sampled_from([-10.0, 0.0, 7.0]))
def test_units_do_not_matter(pairs: list[tuple[float, float]], scale: float, shift: float) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    found = decide(baseline, candidate, 0, 1)
    moved = decide(
        [shift + scale * v for v in baseline], [shift + scale * v for v in candidate], shift, shift + scale
    )
    expected = (found.difference * scale, found.low * scale, found.high * scale)
    assert (moved.difference, moved.low, moved.high) == pytest.approx(expected, abs=1e-7 * scale)
    assert moved.promoted == found.promoted


@settings(max_examples=20, deadline=None)
@given(PAIRS | BINARY_PAIRS)
def test_a_smaller_alpha_promotes_less(pairs: list[tuple[float, float]]) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    loose, strict = (decide(baseline, candidate, 0, 1, alpha=alpha) for alpha in (0.2, 0.01))
    assert strict.low <= loose.low + 1e-9
    assert strict.high >= loose.high - 1e-9
    assert loose.promoted or not strict.promoted


def test_rounding_of_averaged_rollouts_is_a_tie() -> None:
    found = decide([0.3], [(0.1 + 0.2)], 0, 1)
    assert (found.wins, found.ties) == (0, 1)


@pytest.mark.parametrize(
    ("baseline", "candidate", "options", "message"),
    [
        ([1.0], [1.0, 0.0], {}, "baseline has 1 rewards and the candidate 2"),
        ([], [], {}, "at least one example"),
        ([2.0], [1.0], {}, "declared range"),
        ([1.0], [1.0], {"alpha": 0.0}, "alpha is 0.0"),
        ([1.0], [1.0], {"minimum_effect": 1.0}, "minimum_effect is 1.0"),
        ([1.0], [1.0], {"minimum_effect": -0.1}, "minimum_effect is -0.1"),
    ],
)
def test_unusable_input_is_refused(
    baseline: list[float], candidate: list[float], options: dict[str, float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        decide(baseline, candidate, 0, 1, **options)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(PAIRS, PAIRS)
def test_with_a_second_judge_both_must_promote(
    first: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    verdicts = [
        decide([a for a, _ in pairs for _ in range(9)], [b for _, b in pairs for _ in range(9)], 0, 1)
        for pairs in (first, other)
    ]
    found = hold_to_second_judge(verdicts[0], verdicts[1], "facts")
    assert found.promoted == all(verdict.promoted for verdict in verdicts)
    assert (found.difference, found.low, found.high) == tuple(
        getattr(verdicts[0], k) for k in ("difference", "low", "high")
    )
    assert found.reason.startswith("Promoted: " if found.promoted else "Not promoted: ")


def test_the_sentence_of_a_second_judge_says_what_both_found() -> None:
    first, same, worse = counted(40, 16, 144), counted(30, 2, 168), counted(7, 40, 81)
    assert (
        hold_to_second_judge(first, same, "facts").reason
        == f"{first.reason} The second opinion, facts: {same.reason[10:]}"
    )
    assert hold_to_second_judge(first, worse, "judge by b").reason == (
        f"Not promoted: the second opinion, judge by b, does not confirm it: {worse.reason[14:]} The first: {first.reason[10:]}"
    )
    assert hold_to_second_judge(worse, first, "facts") == worse
