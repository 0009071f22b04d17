"""eva: rows are chosen by the gap of their answers, new ones are written near them; and that both matter."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.figures import won_over
from tests.methods.ladder_world import START, ladder

import whet
from whet.errors import UsageError
from whet.methods.eva import Config, draw, eva, informativeness
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.written_rows import refusal_of_written_rows, show_row, without_duplicates, written_row
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import review_world
from whet.types import Example, Rollout

CONFORMANCE = {"rounds": 2, "rows": 6, "answers": 2}
"""Settings of a run in the conformance suite."""
ALWAYS = {"evolve": 0}
"""Its task compares with targets, so that no row can be written."""
SWEEP = {"rounds": 2, "rows": 2, "answers": 2, "evolve": 0, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(**settings: Any) -> MeteredRun:
    known = ladder(0)
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1)
    await eva(run, known.env, LanguagePolicy(), START, Config(**settings))
    return run


def rollouts(*rewards: float) -> list[Rollout]:
    return [Rollout("p", "row", "", reward) for reward in rewards]


@given(st.integers(0, 6), st.integers(1, 6))
def test_the_expected_gap_of_rewards_of_0_and_1_is_the_chance_that_answers_differ(k: int, n: int) -> None:
    p = k / 6
    expected = sum(
        informativeness([float(r) for r in rewards], "gap")
        * p ** sum(rewards)
        * (1 - p) ** (n - sum(rewards))
        for rewards in itertools.product((0, 1), repeat=n)
    )
    assert expected == pytest.approx(1 - p**n - (1 - p) ** n)


@given(st.lists(st.floats(-5, 5), max_size=6))
def test_informativeness_is_no_less_than_0(rewards: list[float]) -> None:
    gap, advantage = (informativeness(rewards, how) for how in ("gap", "advantage"))
    assert gap >= advantage - 1e-9 and advantage >= -1e-9


def test_rows_whose_answers_are_equal_are_not_drawn() -> None:
    answers = [rollouts(0, 0, 0), rollouts(1, 1, 1), rollouts(0, 1, 0), rollouts(0, 0.1, 0), []]
    assert all(set(draw(MemoryRun(seed=n), answers, 5, "gap")) == {2, 3} for n in range(20))
    first = [draw(MemoryRun(seed=n), answers, 1, "gap")[0] for n in range(200)]
    assert first.count(2) > 150, "in proportion to the gap"
    assert draw(MemoryRun(), answers, 2, "lowest") == [0, 3]


async def test_a_row_that_nobody_solves_begets_no_row() -> None:
    run = await search(rounds=1, rows=30)
    model: Any = run.models["optimizer"]
    shown = [question for question in model.questions if "<ROW>" in question]
    assert shown and not any("level 10" in question for question in shown)


async def test_written_rows_are_answered_in_the_next_round() -> None:
    run = await search(rounds=3)
    events: list[Any] = [value for name, value in run.logged if name == "round"]
    model: Any = run.models["task"]
    assert events[0]["written"]
    assert any(events[0]["written"][0] in question for question in model.questions)


async def test_a_rewrite_is_compared_on_as_many_answers_to_the_same_rows() -> None:
    """The trap of two prompts that were measured on different rows."""
    run = await search(rounds=1, rows=5, answers=3, evolve=0, finalists=1)
    model: Any = run.models["task"]
    asked = [question.rpartition("\n")[2] for question in model.questions]
    first, second = asked[40 : 40 + 15], asked[40 + 15 : 40 + 30]
    assert sorted(first) == sorted(second)


def test_a_written_row_has_the_form_of_the_rows_that_are_there() -> None:
    env = ladder(0).env
    one, two = env.train[0], Example("r", {"a": "1", "b": "2"})
    row = written_row(" Something new ", one, env, "")
    assert row is not None and row.values == {"input": "Something new"} and row.target is None
    pair = written_row('Here: {"a": "x", "b": 7}', two, env, "")
    assert pair is not None and pair.values == {"a": "x", "b": "7"}
    assert show_row(two) == '{"a": "1", "b": "2"}' and show_row(one) == one.user_text
    assert written_row("x", two, env, "") is None
    assert written_row(" ", one, env, "") is None
    assert without_duplicates([row, row], [one]) == [row] and without_duplicates([one], [one]) == []


def test_no_written_row_copies_a_validation_row() -> None:
    env = ladder(0).env
    long = "The validation row that nobody may see before its time has come, at all"
    env = replace(env, validation=(Example("v", {"input": long}, text=long),))
    assert written_row(f"{long}!", env.train[0], env, "") is None
    assert written_row(
        "Another row, of another text, of about the same length as this", env.train[0], env, ""
    )


def test_a_task_with_targets_is_refused_unless_no_row_is_written() -> None:
    assert "targets" in refusal_of_written_rows(review_world())
    assert refusal_of_written_rows(ladder(0).env) == ""
    rows = [{"input": f"row {n}", "target": f"answer {n}"} for n in range(30)]
    task = whet.Task.of("Say it.", data=rows, reward="exact_match")
    with pytest.raises(UsageError, match="evolve"):
        whet.optimize(
            task, lm=lambda messages: "x", optimizer_lm=lambda messages: "x", method="eva", progress=False
        )


# The contests: the gap against other choices, and rows that are written against none.

SEEDS, LIMITS = range(100, 110), Budget(task_calls=2500, optimizer_calls=160)


@cache
def reached(method: str = "eva", whole: bool = False, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, ladder(s, whole), s, LIMITS, settings) for s in SEEDS]


@pytest.mark.long
def test_the_gap_is_what_it_wins_by() -> None:
    assert won_over("uniform rows", reached(), reached(select="uniform")).low > 0
    assert won_over("the lowest rows", reached(), reached(select="lowest")).low > 0


@pytest.mark.long
def test_written_rows_are_what_it_wins_by() -> None:
    assert won_over("no written rows", reached(), reached(evolve=0)).low > 0
    whole = reached(whole=True), reached(whole=True, evolve=0)
    assert won_over("no written rows, rows of all levels", *whole).low > 0


@pytest.mark.long
def test_nobody_learns_from_rows_that_are_never_solved() -> None:
    """The trap of the hardest rows: they look as if they had the most to teach."""
    start = [0.1] * len(SEEDS)
    assert won_over("the start", reached(select="lowest"), start).mean < 0.1


@pytest.mark.long
def test_it_beats_random_search() -> None:
    assert won_over("random search", reached(), reached("random_search")).low > 0
