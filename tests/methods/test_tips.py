"""Introspective Tips: read from failures, kept where the reward does not fall, dropped by measured effects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TOPICS, with_other_inputs
from tests.methods.rule_worlds import LAST_WORD, optimized, poisoned, tips_of

from whet.methods.tips import Config, tips, useless
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.lessons import HEAD, LessonList
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world

CONFORMANCE = {"rounds": 4, "batch": 10}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 3, "batch": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"rounds": 4, "batch": 20, **settings})
    return await tips(run, env, LanguagePolicy(), START, config), model, run


async def test_tips_stand_behind_the_text_and_no_more_than_asked_for_are_taken() -> None:
    many = "".join(f"<TIP>Weigh the evidence {i}.</TIP>" for i in range(5))
    best, _, _ = await search(lambda q, s: many, rounds=1, new=2)
    text = START.region_text().strip()
    assert (
        best.prompt.region_text().strip()
        == f"{text}\n\n{HEAD}\n- Weigh the evidence 0.\n- Weigh the evidence 1."
    )


async def test_tips_with_which_the_reward_falls_are_not_kept() -> None:
    best, model, _ = await search(
        lambda q, s: "<TIP>Guess, guess quickly.</TIP><TIP>Be quick to guess.</TIP>"
    )
    worse = "Answer at random."
    assert best.prompt == START or worse not in best.prompt.text
    assert model.questions


async def test_the_expert_is_shown_unless_it_is_switched_off() -> None:
    _, model, _ = await search(lambda q, s: "<TIP>Weigh it.</TIP>", rounds=1)
    assert "Wanted: " in model.questions[0]
    _, model, _ = await search(lambda q, s: "<TIP>Weigh it.</TIP>", rounds=1, expert=False)
    assert "Wanted: " not in model.questions[0] and "Answered: " in model.questions[0]


async def test_each_tip_is_left_out_in_its_turn() -> None:
    _, _, run = await search(
        lambda q, s: f"<TIP>Weigh the evidence {s}.</TIP>", rounds=5, new=1, batch=12, finalists=1
    )
    validated = sum(name == "validated" for name, _ in run.logged)
    left_out = [kept for kept in range(1, 5)]
    assert run.spent["task"] == 20 * validated + 12 * (5 + 5 + len(left_out))


def listed(number: int, most: int = 9) -> LessonList:
    result = LessonList(START, "Answer.", most)
    for i in range(number):
        result = result.add(f"Tip number {i}.")
    return result


@pytest.mark.parametrize(
    ("effects", "most", "curation", "gone"),
    [
        ({}, 9, "effect", []),
        ({"L1": [0.1], "L2": [0.0]}, 9, "effect", []),
        ({"L1": [0.1, -0.3], "L2": [0.2]}, 9, "effect", ["L1"]),
        ({"L1": [0.1], "L2": [0.0]}, 3, "effect", ["L2"]),
        ({"L1": [-0.1], "L9": [-0.1]}, 9, "effect", ["L1"]),
        ({"L1": [-0.1]}, 9, "none", []),
    ],
)
def test_what_goes_are_tips_with_a_negative_effect_and_of_a_full_list_the_least(
    effects: dict[str, list[float]], most: int, curation: str, gone: list[str]
) -> None:
    assert useless(MeteredRun(), listed(3, most), effects, curation) == gone


def test_by_chance_as_many_go_as_by_effect() -> None:
    assert len(useless(MeteredRun(), listed(5), {"L1": [-0.1], "L2": [-1.0]}, "random")) == 2
    assert len(useless(MeteredRun(), listed(3, 3), {}, "random")) == 1


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_rounds(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=12)
    _, model, run = await search(
        lambda q, s: f"<TIP>Weigh the evidence {s}.</TIP>", env, limits, **vars(Config())
    )
    assert len(model.questions) >= 2
    assert 0.5 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 12


def test_through_the_public_face(tmp_path: Path) -> None:
    assert f"- {LAST_WORD}" in optimized(tmp_path, "tips", lambda question: f"<TIP>{LAST_WORD}</TIP>")


# The contest: a writer that reads which inputs failed; some of its tips do harm.

OF_ANY_ROW = with_other_inputs(lambda line: int(chance(line, "other") * TOPICS))


@cache
def reached(method: str = "tips", change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed within 1,000 task calls."""
    limits = Budget(task_calls=1000)
    return [
        play_world(method, poisoned(seed, tips_of, change, right="0.6"), seed, limits, settings)
        for seed in range(12)
    ]


def test_what_it_reads_of_failures_is_what_it_wins_by() -> None:
    assert won_over("with failures of other inputs", reached(), reached(change=OF_ANY_ROW)).low > 0.02
    assert won_over("random_search", reached(), reached("random_search", edits=16)).low > 0.03


@pytest.mark.long
@pytest.mark.parametrize("curation", ["none", "random"])
def test_with_measured_effects_it_beats_itself_without_them(curation: str) -> None:
    def long(curation: str) -> list[float]:
        worlds = [poisoned(seed, tips_of, right="0.5", harm="0.04") for seed in range(15)]
        limits, settings = Budget(task_calls=2000), {"curation": curation}
        return [play_world("tips", world, seed, limits, settings) for seed, world in enumerate(worlds)]

    assert won_over(f"with curation={curation}", long("effect"), long(curation)).low > 0
