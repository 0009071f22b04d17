"""Rewards from log-probabilities: hand-worked numbers, properties, and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.rewards import Weighted, isinstance_label_reward
from whet.rewards.scored import Confidence, Gap, Likelihood, Perplexity, target_gap
from whet.rewards.text import F1, ExactMatch
from whet.run import MemoryRun
from whet.types import Completion, Example

WEIGHTS = st.lists(st.integers(0, 20), min_size=2, max_size=5).filter(lambda w: sum(w) > 0)


def probs(*rows: list[float]) -> np.ndarray:
    return np.array([list(rows)])


def fractions(weights: list[int]) -> list[Fraction]:
    return [Fraction(w, sum(weights)) for w in weights]


@pytest.mark.parametrize(
    ("row", "target", "gap", "reward"),
    [
        ([0.7, 0.2, 0.1], 0, 0.5, 100.0),
        ([0.7, 0.2, 0.1], 1, -0.5, -90.0),
        ([0.7, 0.2, 0.1], 2, -0.6, -108.0),
        ([0.5, 0.5], 0, 0.0, 0.0),
        ([1.0, 0.0], 0, 1.0, 200.0),
        ([1.0, 0.0], 1, -1.0, -180.0),
        ([0.25, 0.25, 0.25, 0.25], 3, 0.0, 0.0),
        ([0.4, 0.4, 0.2], 0, 0.0, 0.0),
    ],
)
def test_gap_by_hand(row: list[float], target: int, gap: float, reward: float) -> None:
    targets = np.array([target])
    assert target_gap(probs(row), targets)[0, 0] == pytest.approx(gap)
    assert Gap().from_labels(probs(row), targets)[0, 0] == pytest.approx(reward)


@given(WEIGHTS, st.data())
def test_gap_agrees_with_exact_arithmetic_and_stays_in_range(weights: list[int], data: st.DataObject) -> None:
    target = data.draw(st.integers(0, len(weights) - 1))
    exact = fractions(weights)
    gap = exact[target] - max(p for i, p in enumerate(exact) if i != target)
    value = Gap().from_labels(probs([float(p) for p in exact]), np.array([target]))[0, 0]
    assert value == pytest.approx(float(200 * gap if gap > 0 else 180 * gap), abs=1e-9)
    assert Gap().low <= value <= Gap().high
    argmax_is_target = exact[target] == max(exact) and exact.count(exact[target]) == 1
    assert (gap > 0) == argmax_is_target


@given(
    st.lists(WEIGHTS.filter(lambda w: len(w) == 3), min_size=1, max_size=4),
    st.integers(0, 2),
    st.permutations(range(3)),
)
def test_the_order_of_the_labels_does_not_matter(
    rows: list[list[int]], target: int, order: list[int]
) -> None:
    table = np.array([[[float(p) for p in fractions(r)] for r in rows]])
    targets = np.full(len(rows), target)
    moved = np.full(len(rows), order.index(target))
    for reward in (Gap(), Likelihood(), Confidence(), ExactMatch()):
        if isinstance(reward, ExactMatch | Confidence) and any(sorted(r)[-1] == sorted(r)[-2] for r in rows):
            continue
        assert np.allclose(reward.from_labels(table, targets), reward.from_labels(table[:, :, order], moved))


async def test_one_by_one_and_all_at_once_agree() -> None:
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(3), size=(2, 4))
    targets = np.array([0, 1, 2, 1])
    names = ["a", "b", "c"]
    reward = Weighted([(0.01, Gap()), (0.5, Likelihood()), (2.0, ExactMatch())])
    batch = reward.from_labels(table, targets)
    for p in range(2):
        for e in range(4):
            row = dict(zip(names, table[p, e], strict=True))
            completion = Completion(max(row, key=lambda n: row[n]), label_probs=row)
            graded = await reward.grade(MemoryRun(), Example("e", {}, names[targets[e]]), completion)
            assert graded.value == pytest.approx(batch[p, e])
            assert graded.value == pytest.approx(
                0.01 * graded.parts["gap"]
                + 0.5 * graded.parts["likelihood"]
                + 2 * graded.parts["exact_match"]
            )
            assert reward.low <= graded.value <= reward.high


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.9, 0.1, 0.0], 1.0),
        ([0.5, 0.3, 0.2], 1.0),
        ([0.4, 0.3, 0.3], 0.86),
        ([0.4, 0.5, 0.1], 0.0),
        ([0.1, 0.2, 0.7], 0.0),
    ],
)
async def test_confidence_by_hand(row: list[float], expected: float) -> None:
    """The right label must be the most probable; .3 + .7 p / .5 then, and no more than 1."""
    completion = Completion("a", label_probs=dict(zip("abc", row, strict=True)))
    graded = await Confidence().grade(MemoryRun(), Example("e", {}, "a"), completion)
    assert graded.value == pytest.approx(expected)
    assert Confidence().from_labels(probs(row), np.array([0]))[0, 0] == pytest.approx(expected)
    assert Confidence(1.0).from_labels(probs(row), np.array([0]))[0, 0] == float(expected > 0)


@pytest.mark.parametrize(("p", "expected"), [(1.0, 0.0), (0.5, -math.log(2)), (1e-9, -10.0), (0.0, -10.0)])
async def test_likelihood_by_hand(p: float, expected: float) -> None:
    completion = Completion("a", label_probs={"a": p, "b": 1 - p})
    graded = await Likelihood().grade(MemoryRun(), Example("e", {}, "a"), completion)
    assert graded.value == pytest.approx(expected)
    assert Likelihood().from_labels(probs([p, 1 - p]), np.array([0]))[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("logprob", "tokens", "inverse", "perplexity"),
    [
        (0.0, 3, 1.0, 1.0),
        (-math.log(8), 3, 0.5, 2.0),
        (-math.log(16), 2, 0.25, 4.0),
        (-1.0, 0, math.exp(-1), math.e),
    ],
)
async def test_perplexity_by_hand(logprob: float, tokens: int, inverse: float, perplexity: float) -> None:
    graded = await Perplexity().grade(
        MemoryRun(), Example("e", {}, "t"), Completion("t", target_score=(logprob, tokens))
    )
    assert graded.value == pytest.approx(inverse) and graded.parts["perplexity"] == pytest.approx(perplexity)


@given(st.floats(-1e6, 0), st.integers(1, 1000))
async def test_perplexity_stays_in_range(logprob: float, tokens: int) -> None:
    graded = await Perplexity().grade(
        MemoryRun(), Example("e", {}, "t"), Completion("t", target_score=(logprob, tokens))
    )
    assert 0.0 <= graded.value <= 1.0 and 1.0 <= graded.parts["perplexity"] < math.inf


async def test_a_hybrid_of_perplexity_and_f1() -> None:
    reward = Weighted([(0.5, Perplexity()), (0.5, F1())])
    completion = Completion("black cat", target_score=(-math.log(4), 2))
    graded = await reward.grade(MemoryRun(), Example("e", {}, "black dog"), completion)
    assert graded.value == pytest.approx(0.5 * 0.5 + 0.5 * 0.5)
    assert graded.parts == pytest.approx({"perplexity": 0.5, "f1": 0.5})
    assert graded.critique is not None and (reward.low, reward.high) == (0.0, 1.0)


def test_a_negative_weight_turns_the_range_around() -> None:
    reward = Weighted([(-2.0, F1()), (1.0, Gap())])
    assert (reward.low, reward.high) == (-2.0 - 180.0, 200.0)


def test_a_reward_without_labels_is_not_for_batches() -> None:
    inner = Weighted([(1.0, Gap()), (0.5, ExactMatch())])
    assert isinstance_label_reward(Weighted([(1.0, inner)]))
    assert not isinstance_label_reward(Weighted([(1.0, inner), (1.0, F1())]))
    with pytest.raises(TypeError, match="f1 cannot"):
        Weighted([(1.0, F1())]).from_labels(probs([0.5, 0.5]), np.array([0]))


@pytest.mark.parametrize("reward", [Gap(), Likelihood(), Confidence(), Perplexity()])
async def test_a_model_that_cannot_score_is_named(reward: Gap | Likelihood | Confidence | Perplexity) -> None:
    with pytest.raises(UsageError, match=f"The {reward.name} reward needs"):
        await reward.grade(MemoryRun(), Example("e", {}, "a"), Completion("a"))


def test_unusable_options_are_refused() -> None:
    with pytest.raises(UsageError, match="weights of gap must be above 0"):
        Gap(wrong=-1)
    with pytest.raises(UsageError, match="floor of likelihood must be below 0"):
        Likelihood(floor=0.0)
