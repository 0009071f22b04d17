"""PDO: who duels, on which rows, who leaves; and that verdicts and their use matter."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over
from tests.methods.judged import START, coin, verdict, world

from whet.methods.pdo import Config, DuelPool, pdo, within
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.plan import SearchPlan
from whet.stats.duels import copeland
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun

CONFORMANCE = {"duels": 6, "pool": 3, "every": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"duels": 3, "pool": 2, "every": 2, "questions": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


@pytest.mark.parametrize(
    ("wins", "order"),
    [
        ([[0, 1, 3], [2, 0, 1], [0, 2, 0]], [0, 1, 2]),  # 1 beats 0, 0 beats 2, 2 beats 1: by shares
        ([[0, 0, 0], [5, 0, 0], [5, 5, 0]], [2, 1, 0]),
        ([[0, 0], [0, 0]], [0, 1]),
    ],
)
def test_copeland_then_borda_then_the_order(wins: list[list[int]], order: list[int]) -> None:
    assert copeland(np.array(wins, dtype=float)) == order


def logged(run: MemoryRun, event: str) -> list[Any]:
    return [value for name, value in run.logged if name == event]


async def search(known: KnownWorld, **settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1)
    best = await pdo(run, known.env, LanguagePolicy(), START, Config(**settings))
    model: Any = known.optimizer
    return best, model.questions, run


async def test_a_duel_is_between_two_prompts_that_answer_the_same_rows() -> None:
    _, questions, run = await search(world(0, changes=4), duels=20, pool=5)
    duels = logged(run, "duel")
    assert len(duels) == 20
    assert all(one["first"] != one["second"] for one in duels)
    for question in (q for q in questions if "<BETTER>" in q):
        texts = re.findall(r"quality [\d.-]+ on (.*)", question)
        assert texts[::2] == texts[1::2] and len(set(texts)) == 3


async def test_no_prompt_answers_a_row_twice() -> None:
    known = world(0, changes=4)
    _, _, run = await search(known, duels=60, pool=4, every=99)
    validated = len(logged(run, "validated"))
    assert run.spent["task"] <= 4 * len(known.env.train) + validated * len(known.env.validation)


async def test_the_worst_leaves_and_a_mutation_of_the_best_comes_but_the_start_stays() -> None:
    known = world(0, changes=4)
    _, _, run = await search(known, duels=40, pool=4, every=10)
    mutations = logged(run, "candidate")
    assert len(mutations) > 3
    assert any(value["parents"] != [START.id] for value in mutations)
    pool = DuelPool(known.env, LanguagePolicy(), START, Config(every=1), [Candidate(START)])
    late = [duel for duel in logged(run, "duel")[-10:]]
    assert len({one[side] for one in late for side in ("first", "second")}) <= 4
    assert pool.places == [0]


async def test_a_judge_who_likes_a_place_leaves_the_choice_to_validation() -> None:
    known = world(0, lambda question, sample: verdict(question, 0, sample, 10.0, 0.0), changes=4)
    _, _, run = await search(known, duels=8, pool=3)
    assert {value["won"] for value in logged(run, "duel")} == {0.5}


async def test_nothing_new_written_means_no_duel() -> None:
    best, _, run = await search(world(0, changes=0), duels=8, pool=3)
    assert best.prompt == START
    assert not logged(run, "duel")


@pytest.mark.parametrize(
    ("rollouts", "asks", "sizes"),
    [
        (None, None, (100, 10, 10)),
        (None, 15, (5, 4, 3)),
        (60, None, (10, 10, 10)),
        (None, 1, (0, 1, 3)),
        (None, 0, (0, 1, 3)),
    ],
)
def test_sizes_within_limits(rollouts: int | None, asks: int | None, sizes: tuple[int, int, int]) -> None:
    cut = within(Config(), SearchPlan(None, rollouts, asks, 3, 1))  # type: ignore[arg-type]
    assert (cut.duels, cut.pool, cut.every) == sizes
    assert asks is None or cut.pool - 1 + 2 * cut.duels + cut.duels // cut.every <= asks


# The contest: with a coin as the judge it loses what it won.

SEEDS, LIMITS = range(15), Budget(task_calls=400, optimizer_calls=80)


@cache
def reached(method: str, tossed: bool = False, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [
        play_world(method, world(s, coin(s) if tossed else None, changes=4), s, LIMITS, settings)
        for s in SEEDS
    ]


def test_with_a_coin_as_the_judge_it_loses_what_it_won() -> None:
    lost = won_over(
        "with a coin as the judge",
        reached("pdo", finalists=1),
        reached("pdo", tossed=True, finalists=1),
    )
    assert lost.low > 0, lost


@pytest.mark.long
def test_over_pairs_drawn_at_random_no_benefit_is_shown() -> None:
    uniform = reached("pdo", pairs="uniform", finalists=1)
    assert won_over("pairs drawn at random", reached("pdo", finalists=1), uniform).low < 0
