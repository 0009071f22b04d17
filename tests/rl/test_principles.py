"""Programs of E-SPL: ratings by hand and by sampling, who is chosen, who is evicted, operations out of any reply."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.rl.principles import (
    BETA,
    TAU,
    PrincipleList,
    apply_operations,
    crossed_rating,
    evict,
    mutated_rating,
    operations_in,
    ranks,
    select_programs,
    update_ratings,
)

pytest.importorskip("trueskill", reason="ratings need trueskill: pip install 'whet[train]'")


def programs(*ratings: tuple[float, float]) -> list[PrincipleList]:
    return [PrincipleList((f"p{i}",), mu, sigma, key=i) for i, (mu, sigma) in enumerate(ratings)]


FRESH = (25.0, 25.0 / 3)


# ratings


def test_a_win_between_two_new_programs_by_hand() -> None:
    """The published example of TrueSkill: 29.396 and 20.604, both +- 7.171."""
    winner, loser = update_ratings(programs(FRESH, FRESH), [0.9, 0.1])
    assert (winner.mu, winner.sigma) == pytest.approx((29.396, 7.171), abs=1e-3)
    assert (loser.mu, loser.sigma) == pytest.approx((20.604, 7.171), abs=1e-3)


def test_a_draw_between_two_new_programs_by_hand() -> None:
    for one in update_ratings(programs(FRESH, FRESH), [0.500, 0.505]):
        assert (one.mu, one.sigma) == pytest.approx((25.0, 6.458), abs=1e-3)


def test_a_win_between_unequal_programs_by_the_formulas() -> None:
    """mu + s^2 / c v(t), s^2 (1 - s^2 / c^2 w(t)) with v, w of the truncated normal (Herbrich 2006, section 4)."""

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def below(x: float) -> float:
        return (1 + math.erf(x / math.sqrt(2))) / 2

    first, second = (30.0, 4.0), (22.0, 6.0)
    margin = 0.12566134685507402 * math.sqrt(2) * BETA  # the quantile of (0.10 + 1) / 2
    variance = [s**2 + TAU**2 for _, s in (first, second)]
    c = math.sqrt(sum(variance) + 2 * BETA**2)
    t = (second[0] - first[0] - margin) / c  # the second wins
    v = density(t) / below(t)
    w = v * (v + t)
    loser, winner = update_ratings(programs(first, second), [0.2, 0.8])
    assert winner.mu == pytest.approx(second[0] + variance[1] / c * v, abs=1e-6)
    assert winner.sigma == pytest.approx(math.sqrt(variance[1] * (1 - variance[1] / c**2 * w)), abs=1e-6)
    assert loser.mu == pytest.approx(first[0] - variance[0] / c * v, abs=1e-6)


def test_three_with_a_tie_agree_with_sampling() -> None:
    """The winner and two that tie: the moments of the skills given that outcome, from a million draws."""
    rng = np.random.default_rng(0)
    sigma = math.sqrt(FRESH[1] ** 2 + TAU**2)
    skill = rng.normal(25.0, sigma, (1_000_000, 3))
    form = skill + rng.normal(0.0, BETA, skill.shape)
    margin = 0.12566134685507402 * math.sqrt(2) * BETA
    happened = (form[:, 0] - form[:, 1] > margin) & (np.abs(form[:, 1] - form[:, 2]) <= margin)
    seen = skill[happened]
    found = update_ratings(programs(FRESH, FRESH, FRESH), [0.9, 0.400, 0.405])
    assert [p.mu for p in found] == pytest.approx(seen.mean(0), abs=0.15)
    assert [p.sigma for p in found] == pytest.approx(seen.std(0), abs=0.15)
    assert abs(found[1].mu - found[2].mu) < 0.02 and sum(p.mu for p in found) == pytest.approx(75.0, abs=0.02)


def test_ratings_keep_their_programs_and_one_alone_stays() -> None:
    members = programs((20.0, 3.0), (25.0, 2.0), (30.0, 5.0))
    after = update_ratings(members, [0.1, 0.3, 0.2])
    assert [replace(a, mu=p.mu, sigma=p.sigma) for a, p in zip(after, members, strict=True)] == members
    assert update_ratings(members[:1], [0.4]) == members[:1] and update_ratings([], []) == []


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5, 0.9, 0.895], [1, 0, 0]),
        ([0.1, 0.1, 0.1], [0, 0, 0]),
        ([0.30, 0.20, 0.10], [0, 1, 2]),
        ([0.300, 0.292, 0.284], [0, 0, 0]),  # neighbours tie, so the chain does
        ([0.7], [0]),
        ([], []),
    ],
)
def test_ranks(scores: list[float], expected: list[int]) -> None:
    assert ranks(scores) == expected


def test_ratings_of_children_by_hand() -> None:
    a, b = PrincipleList(mu=20.0, sigma=2.0), PrincipleList(mu=30.0, sigma=1.0)
    assert mutated_rating(a) == pytest.approx((20.0, math.sqrt(5)))
    # precisions 1/4 and 1: (20/4 + 30) / 1.25 = 28; sqrt(1/1.25 + 1)
    assert crossed_rating([a, b]) == pytest.approx((28.0, math.sqrt(1.8)))


# selection

POOL = programs((25, 1), (30, 2), (28, 4), (20, 7), (24, 2))  # low 23 26 20 6 20; high 27 34 36 34 28


@pytest.mark.parametrize(
    ("k", "keys"),
    [
        (3, [1, 2, 4]),  # the champion by low, the first challenger by high, the newest
        (4, [1, 2, 3, 4]),
        (9, [1, 2, 3, 4, 0]),
    ],
)
def test_who_is_chosen(k: int, keys: list[int]) -> None:
    assert [p.key for p in select_programs(POOL, k, recent=5)] == keys


def test_the_newest_is_always_in_and_the_old_never() -> None:
    for k in (1, 2, 3):
        keys = [p.key for p in select_programs(POOL, k, recent=3)]
        assert 4 in keys and len(keys) == len(set(keys)) == k and min(keys) >= 2


def test_eviction_takes_the_oldest_but_never_the_best_nor_the_newest() -> None:
    pool = programs((30, 1), (25, 1), (26, 1), (20, 1))
    assert [p.key for p in evict(pool, 3)] == [0, 2, 3]
    assert [p.key for p in evict(pool, 2)] == [0, 3]
    assert [p.key for p in evict(pool, 9)] == [0, 1, 2, 3]
    assert [p.key for p in evict(programs((20, 1), (25, 1), (26, 1)), 2)] == [1, 2]


def test_a_program_survives_json() -> None:
    one = PrincipleList(("a", "b"), 21.5, 3.25, 7, (1, 4), 9)
    assert PrincipleList.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.text == "G0: a\nG1: b" and PrincipleList().text == ""


# operations


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('[{"op": "add", "text": "x"}]', [{"op": "add", "text": "x"}]),
        ('so:\n```json\n[{"op": "remove", "id": "G0"}]\n```\ndone', [{"op": "remove", "id": "G0"}]),
        ('```\n[]\n```\nthen\n```json\n[{"op": "add", "text": "y"}]\n```', [{"op": "add", "text": "y"}]),
        ('[{"op": "merge", "ids": ["G0", "G1"], "text": "z"}]', [{"op": "merge", "ids": ["G0", "G1"], "text": "z"}]),
        ('[{"op": "add", "text": "see [1]"}]', [{"op": "add", "text": "see [1]"}]),
        ('as in [1]: [{"op": "add", "text": "x"}]', [{"op": "add", "text": "x"}]),
        ('[{"op": "add", "text": "x"}] as [above]', [{"op": "add", "text": "x"}]),
        ('[{"op": "add", "text": "x"', [{"op": "add", "text": "x"}]),
        ('[{"op": "add", "text": "x"}, {"op": "add", "text": "y', [{"op": "add", "text": "x"}]),
        ("[{'op': 'add', 'text': 'x',},]", [{"op": "add", "text": "x"}]),
        ('{"operations": [{"op": "add", "text": "x"}]}', [{"op": "add", "text": "x"}]),
        ("[1, 2]", []),
        ('{"op": "add"}', []),
        ("", []),
    ],
)  # fmt: skip
def test_operations_are_read_from_a_reply(reply: str, found: list[Any]) -> None:
    assert operations_in(reply) == found


@given(st.text(alphabet='[]{}"`: ,opadtexgG01\n\\', max_size=80))
def test_any_reply_gives_a_list_of_objects(reply: str) -> None:
    assert all(isinstance(one, dict) for one in operations_in(reply))


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["G0", "G1", "add", "merge"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OPERATION = st.fixed_dictionaries(
    {}, optional={"op": st.sampled_from(["add", "modify", "merge", "remove", "x"]) | JSONISH, "id": JSONISH,
                  "ids": JSONISH, "text": JSONISH},
)  # fmt: skip


@given(st.lists(OPERATION, max_size=4), st.integers(1, 4))
def test_any_operations_leave_short_distinct_single_lines(
    operations: list[dict[str, Any]], most: int
) -> None:
    found = apply_operations(("a", "b"), operations, most)
    assert len(set(found)) == len(found) <= max(2, most)
    assert all(0 < len(p.split()) <= 32 and "\n" not in p for p in found)


@pytest.mark.parametrize(
    ("operations", "found"),
    [
        ([{"op": "add", "text": "d\n e"}], ("a", "b", "c", "d e")),
        ([{"op": "add", "text": "d"}, {"op": "add", "text": "e"}], ("a", "b", "c", "d")),
        ([{"op": "modify", "id": "G1", "text": "x"}], ("a", "x", "c")),
        ([{"op": "modify", "id": "G7", "text": "x"}], ("a", "b", "c")),
        ([{"op": "remove", "id": "G0"}, {"op": "modify", "id": "G1", "text": "x"}], ("x", "c")),
        ([{"op": "merge", "ids": ["G2", "G0"], "text": "ac"}], ("b", "ac")),
        ([{"op": "merge", "ids": ["G0", "G7"], "text": "x"}], ("a", "b", "c")),
        ([{"op": "merge", "ids": ["G0"], "text": "x"}], ("a", "b", "c")),
        ([{"op": "remove", "id": "G1"}, {"op": "merge", "ids": ["G0", "G1"], "text": "x"}], ("a", "c")),
        ([{"op": "add", "text": "a"}], ("a", "b", "c")),
        ([{"op": "add", "text": " ".join("x" * 33)}], ("a", "b", "c")),
        ([{"op": "add", "text": 3}], ("a", "b", "c")),
    ],
)
def test_operations_by_hand(operations: list[dict[str, Any]], found: tuple[str, ...]) -> None:
    assert apply_operations(("a", "b", "c"), operations, most=4) == found
