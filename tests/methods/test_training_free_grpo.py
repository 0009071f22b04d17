"""Training-Free GRPO: only groups with different rewards are read, samples differ, operations are counted, the best list wins."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.rule_worlds import (
    LAST_WORD,
    GroupWriter,
    insights,
    many_codes,
    optimized,
    with_rewards_shuffled,
)

from whet.methods.training_free_grpo import Config, differs, show_group, training_free_grpo
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.lessons import HEAD
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world
from whet.types import Example, Rollout

CONFORMANCE = {"steps": 2, "queries": 8, "group": 3, "reads": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 2, "queries": 2, "group": 2, "reads": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
SOFT = "Mind the tone."


def learner(*operations: dict[str, str]) -> Callable[[str, int], str]:
    def write(question: str, sample: int) -> str:
        return (
            f"<OPERATIONS>{json.dumps(operations)}</OPERATIONS>"
            if "<OPERATIONS>" in question
            else f"<INSIGHT>{SOFT}</INSIGHT>"
        )

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"steps": 2, "queries": 20, "group": 4, **settings})
    return await training_free_grpo(run, env, LanguagePolicy(), START, config), model, run


async def test_the_experiences_stand_behind_the_text() -> None:
    best, model, run = await search(learner({"op": "add", "text": SOFT}))
    assert best.prompt.region_text().strip() == f"{START.region_text().strip()}\n\n{HEAD}\n- {SOFT}"
    assert f"[L1] {SOFT}" in model.questions[-1]
    assert [v for name, v in run.logged if name == "operations"] == [
        {"proposed": 1, "dropped": 0, "lessons": 1},
        {"proposed": 1, "dropped": 1, "lessons": 1},
    ]


async def test_operations_without_an_effect_are_counted_and_change_nothing() -> None:
    foreign = {"op": "update", "id": "L9", "text": "Guess."}
    best, _, run = await search(learner(foreign, {"op": "delete", "id": "G7"}))
    assert best.prompt == START
    assert {v["dropped"] for name, v in run.logged if name == "operations"} == {2}  # type: ignore[index, call-overload]


async def test_a_reply_in_plain_lines_is_read_as_additions() -> None:
    def write(question: str, sample: int) -> str:
        lines = f"<OPERATIONS>\n- {SOFT}\n- Weigh the evidence.\n</OPERATIONS>"
        return lines if "<OPERATIONS>" in question else learner()(question, sample)

    best, _, _ = await search(write)
    assert best.prompt.region_text().strip().endswith(f"- {SOFT}\n- Weigh the evidence.")


async def test_a_deletion_needs_no_text() -> None:
    def write(question: str, sample: int) -> str:
        operation = {"op": "delete", "id": "L1"} if "[L1]" in question else {"op": "add", "text": "Guess."}
        return learner(operation)(question, sample)

    _, model, _ = await search(write, steps=3)
    assert ["[L1]" in q for q in model.questions if "<OPERATIONS>" in q] == [False, True, False]


async def test_the_samples_of_a_query_differ() -> None:
    asked: list[Any] = []

    def answer(question: str, sample: int) -> str:
        asked.append((question, sample))
        return "positive"

    await search(learner(), review_world(Answers(answer), train=12), queries=12, group=4, steps=1)
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("value", [0.0, 1.0])
async def test_groups_with_one_reward_teach_nothing(value: float) -> None:
    from dataclasses import replace

    _, model, _ = await search(learner(), replace(review_world(), reward=ConstantReward(value)))
    assert not model.questions


def rollout(output: str, reward: float, error: str | None = None) -> Rollout:
    return Rollout("p", "r", output, reward, error=error)


def test_what_the_provider_failed_on_makes_no_group_differ() -> None:
    assert differs([rollout("a", 1.0), rollout("b", 0.0)])
    assert not differs([rollout("a", 1.0), rollout("", 0.0, "http: 500")])


def test_a_group_is_shown_with_its_best_answer_first_and_equal_ones_once() -> None:
    group = [rollout("b", 0.0), rollout("a", 1.0), rollout("b", 0.0)]
    shown = show_group(Example("r", {"input": "X"}, "a", {}, "X"), group)
    assert shown.splitlines() == [
        "Input: X",
        "Wanted: a",
        "Answered: a",
        "Reward: 1",
        "Answered: b",
        "Reward: 0",
    ]


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_steps(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, model, run = await search(learner({"op": "add", "text": SOFT}), env, limits, **vars(Config()))
    assert sum("<OPERATIONS>" in q for q in model.questions) >= 2
    assert 0.5 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    """The start earns nothing on rows without the instruction, so that what it learns from is a lucky answer."""

    def write(question: str) -> str:
        return learner({"op": "add", "text": LAST_WORD})(question, 0)

    assert f"- {LAST_WORD}" in optimized(tmp_path, "training_free_grpo", write, lucky=True)


# The contest: what a kind of input wants shows only in answers that happened to be right.


@cache
def reached(method: str = "training_free_grpo", shuffled: bool = False, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    change = with_rewards_shuffled if shuffled else str
    worlds = [many_codes(seed, 12, insights, change, GroupWriter) for seed in range(8)]
    return [
        play_world(method, world, seed, Budget(task_calls=600), settings) for seed, world in enumerate(worlds)
    ]


def test_the_rewards_of_a_group_teach_it_what_nothing_else_does() -> None:
    assert won_over("with rewards dealt out anew", reached(), reached(shuffled=True)).low > 0.2
    assert won_over("random_search", reached(), reached("random_search")).low > 0.2


@pytest.mark.long
def test_single_answers_to_five_times_the_queries_teach_it_nothing() -> None:
    assert won_over("with one answer to each query", reached(), reached(group=1, queries=250)).low > 0.2
