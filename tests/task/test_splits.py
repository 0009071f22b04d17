"""The split: a partition that depends on seed and inputs only."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import whet
from whet.errors import UsageError
from whet.task import Task
from whet.task.dataset import partition, rank_groups
from whet.task.examples import input_hash
from whet.task.spec import SPLITS
from whet.types import Example

SHARES = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3)
INPUTS = st.lists(st.text(max_size=4), min_size=1, max_size=60)


def rows(inputs: list[str]) -> list[Example]:
    return [Example(f"r{i}", {"input": text}, "t", {}, text) for i, text in enumerate(inputs)]


@given(INPUTS, SHARES, st.integers(0, 5))
def test_every_row_lands_in_one_part_and_equal_inputs_together(
    inputs: list[str], shares: list[float], seed: int
) -> None:
    examples = rows(inputs)
    parts = partition(examples, shares, seed)
    assert sorted(e.id for part in parts for e in part) == sorted(e.id for e in examples)
    homes = [{e.text for e in part} for part in parts]
    assert sum(map(len, homes)) == len(set(inputs))


@given(INPUTS, SHARES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(
    inputs: list[str], shares: list[float], seed: int, rng: random.Random
) -> None:
    examples = rows(inputs)
    shuffled = rng.sample(examples, len(examples))
    assert partition(shuffled, shares, seed) == partition(examples, shares, seed)


@given(st.sets(st.text(max_size=6), min_size=10, max_size=80), SHARES, st.integers(0, 5))
def test_shares_are_exact_without_repetition_when_none_is_below_one_row(
    inputs: set[str], shares: list[float], seed: int
) -> None:
    assume(len(inputs) * min(shares) >= sum(shares))
    parts = partition(rows(sorted(inputs)), shares, seed)
    for part, share in zip(parts, shares, strict=True):
        assert abs(len(part) - len(inputs) * share / sum(shares)) <= 1 + 1e-9


@given(INPUTS, INPUTS, st.integers(0, 5))
def test_added_rows_move_none_past_another(old: list[str], new: list[str], seed: int) -> None:
    before = [e.id for group in rank_groups(rows(old), seed) for e in group]
    after = [e.id for group in rank_groups(rows(old + new), seed) for e in group]
    assert [name for name in after if name in set(before)] == before


@given(st.sets(st.text(max_size=6), min_size=30, max_size=60), st.text(min_size=7), st.integers(0, 5))
def test_one_more_row_moves_at_most_one_row_over_each_boundary(
    inputs: set[str], extra: str, seed: int
) -> None:
    old = [f"{t}" for t in sorted(inputs)]
    shares = [0.4, 0.3, 0.3]
    before, after = partition(rows(old), shares, seed), partition(rows([*old, extra]), shares, seed)
    home = {e.text: i for i, part in enumerate(before) for e in part}
    moved = [e for i, part in enumerate(after) for e in part if e.text != extra and home[e.text] != i]
    assert len(moved) <= 2


def test_the_seed_changes_the_split() -> None:
    examples = rows([f"q{i}" for i in range(40)])
    trains = {tuple(e.id for e in partition(examples, [0.4, 0.3, 0.3], seed)[0]) for seed in range(5)}
    assert len(trains) == 5


def test_the_rank_is_the_hash_of_seed_and_input() -> None:
    """Computed here from its description: SHA-256 of the JSON [seed, SHA-256 of the JSON text]."""

    def rank(text: str) -> str:
        inner = hashlib.sha256(f'"{text}"'.encode()).hexdigest()
        return hashlib.sha256(f'[3,"{inner}"]'.encode()).hexdigest()

    inputs = [f"q{i}" for i in range(10)]
    ordered = sorted(inputs, key=rank)
    parts = partition(rows(inputs), [0.4, 0.3, 0.3], 3)
    assert [[e.text for e in part] for part in parts] == [ordered[:4], ordered[4:7], ordered[7:]]


def test_an_object_and_a_text_are_different_inputs() -> None:
    text = Example("a", {"input": "x"}, None, {}, "x")
    value = Example("b", {"input": "x"}, None, {}, None)
    assert input_hash(text) != input_hash(value)


@given(INPUTS, SHARES, st.integers(0, 5))
def test_no_part_is_empty_when_there_are_as_many_inputs_as_parts(
    inputs: list[str], shares: list[float], seed: int
) -> None:
    parts = partition(rows(inputs), shares, seed)
    assert sum(map(bool, parts)) == min(len(set(inputs)), len(shares))


ASKED_TWICE = [
    {"question": f"What is {n} plus {n}?", "time": f"2024-0{month}-01", "target": 2 * n}
    for n in range(30)
    for month in (1, 2)
]


def questions(task: Task, split: str) -> set[str]:
    return {row.values["question"] for row in getattr(task, split)}


@pytest.mark.parametrize(
    ("prompt", "together"), [("Q: {{question}}", True), ("{{time}} {{question}}", False)]
)
def test_rows_that_the_prompt_shows_alike_share_a_split_and_count_once(
    prompt: str, together: bool, tmp_path: Path
) -> None:
    task = Task.of(prompt, data=ASKED_TWICE, reward="exact_match")
    asked = [questions(task, split) for split in SPLITS]
    apart = not (asked[0] & asked[1] or asked[0] & asked[2] or asked[1] & asked[2])
    assert apart == together
    models = {"lm": "scripted/echo", "optimizer_lm": "scripted/phrases"}
    planned = whet.optimize(task, method="opro", dry_run=True, root=tmp_path, **models)
    assert planned.plan["promotion"]["rows"] == (len(asked[2]) if together else len(task.test))


def test_a_row_that_the_prompt_shows_alike_in_two_given_splits_is_refused() -> None:
    split = {"train": ASKED_TWICE[0::2], "validation": ASKED_TWICE[40:42], "test": ASKED_TWICE[50:]}
    with pytest.raises(UsageError, match="stands also in"):
        Task.of("Q: {{question}}", data=split, reward="exact_match")
