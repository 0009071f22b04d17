"""Bootstrap: demonstrations of good answers, chosen on rows that none of them shows."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.methods.codes import START, codes_world, shown_rows

from whet.methods.bootstrap import Config, bootstrap
from whet.prompt import Prompt
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import T_95, advantage, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Example

CONFORMANCE = {"sets": 5, "examples": 12, "finalists": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"sets": 2, "k": 1, "examples": 1, "threshold": 0.0, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

LIMITS = Budget(task_calls=500)


async def search(
    env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or codes_world(0).env
    run = MeteredRun({"task": env.model}, limits=limits)
    return await bootstrap(run, env, None, START, Config(**settings)), run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_sets_differ_in_size_and_order_and_show_right_answers_only() -> None:
    env = codes_world(0).env
    _, run = await search(env, sets=12, k=3)
    rows = {e.user_text: str(e.target) for e in env.train}
    sets = [shown_rows(c["messages"][0][1]) for c in logged(run, "candidate")[1:]]
    assert {len(s) for s in sets} == {1, 2, 3}
    assert all(rows[question] == answer for s in sets for question, answer in s)
    assert len(logged(run, "candidate")) == 1 + 12


async def test_no_set_is_scored_on_a_row_that_it_shows() -> None:
    """DSPy's random search shows rows and scores on them where train and validation are the same."""
    env = codes_world(0).env
    model = Answers(lambda q, s: "1")
    _, run = await search(replace(env, model=model), threshold=0.0, sets=8)
    for question in model.questions:
        asked_row = question.rpartition("Question: ")[2]
        assert asked_row not in {row for row, _ in shown_rows(question.rpartition("Question: ")[0])}
    assert len(logged(run, "candidate")) > 4


async def test_with_no_demonstrations_wanted_none_are_shown() -> None:
    """DSPy issue 8508: demonstrations although 0 were asked for."""
    best, run = await search(k=0)
    assert best.prompt == START
    assert len(logged(run, "candidate")) == 0


async def test_without_a_single_good_answer_the_start_stays() -> None:
    env = replace(codes_world(0).env, model=Answers(lambda q, s: "no idea"))
    rows = tuple(replace(e, target=["x", "y"]) for e in env.train)
    best, _ = await search(replace(env, train=rows))
    assert best.prompt == START


@pytest.mark.parametrize("most", [60, 150, 500])
async def test_a_limit_is_kept_and_used(most: int) -> None:
    env = review_world(train=60, validation=20)
    run = MeteredRun({"task": env.model}, limits=Budget(task_calls=most))
    await bootstrap(run, env, None, Prompt.parse(SOURCE), Config())
    assert 0.4 * most <= run.spent["task"] <= most
    assert len(logged(run, "validated")) >= 2


def test_rows_of_the_simulated_task_are_what_they_seem() -> None:
    world = codes_world(0)
    row: Example = world.env.train[0]
    assert world.worth(START) < 0.5
    assert str(row.target) in "0123456789"


def test_with_demonstrations_of_any_answer_it_loses() -> None:
    pairs = [
        play_world("bootstrap", codes_world(seed, False), seed, LIMITS)
        - play_world("bootstrap", codes_world(seed, False), seed, LIMITS, {"threshold": 0.0})
        for seed in range(10)
    ]
    assert fmean(pairs) - T_95[10] * stdev(pairs) / 10**0.5 > 0.03, pairs


@pytest.mark.long
def test_beats_random_search_at_equal_budget() -> None:
    assert advantage("bootstrap", "random_search", codes_world, LIMITS, range(10)).low > 0.2
