"""CuES: exploring with a memory, tasks of what was seen, and only those that can be done again; and that these matter."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.workshop_world import ITEMS, START, workshop

import whet
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.environments.tools import Tool, ToolWorld
from whet.errors import UsageError
from whet.methods.cues import HINT, TRIED, Config, common_words, cues, read_task
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Example

CONFORMANCE = {"explorations": 2, "tasks": 4, "rounds": 2, "rows": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"explorations": 2, "tasks": 2, "rounds": 2, "rows": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


def explore(seed: int, **settings: Any) -> tuple[MeteredRun, list[dict[str, Any]], dict[str, Any]]:
    """A run without rewrites: itself, the tasks that it made, and its counts."""
    known = workshop(seed)
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, seed)
    asyncio.run(cues(run, known.env, LanguagePolicy(), START, Config(**{"rounds": 0, **settings})))
    values: list[Any] = [value for name, value in run.logged if name == "made_task"]
    counts: list[Any] = [value for name, value in run.logged if name == "tasks"]
    return run, values, counts[0]


def possible(tasks: list[dict[str, Any]]) -> int:
    """How many of the tasks can be done."""
    return sum(int(re.findall(r"\d+", task["input"])[0]) < ITEMS for task in tasks)


def test_each_exploration_knows_what_those_before_tried_unless_it_is_switched_off() -> None:
    for memory in (True, False):
        run, _, _ = explore(0, explorations=3, memory=memory)
        model: Any = run.models["task"]
        shown = [question for question in model.questions if "There is no task" in question]
        assert any(TRIED in question for question in shown) is memory


def test_a_task_that_cannot_be_done_again_is_dropped() -> None:
    _, made, counts = explore(0)
    assert made and possible(made) == len(made) < counts["proposed"]
    _, made, counts = explore(0, verify=False)
    assert possible(made) < len(made) == counts["proposed"]


def test_a_task_that_is_proposed_with_little_confidence_is_not_tried() -> None:
    run, _, counts = explore(0, confidence=0.95)
    assert counts["proposed"] == 0
    model: Any = run.models["task"]
    assert not any(HINT in question for question in model.questions)


def test_duplicates_are_found_among_all_tasks_not_in_a_batch_alone() -> None:
    """The trap of the reference code: 12 steps a batch, and the same query in each."""
    _, made, counts = explore(0, explorations=8, memory=False, batch=1)
    texts = [task["input"] for task in made]
    assert counts["steps"] > 24 and len(texts) == len(set(texts))
    assert not {"Make item 0.", "Make item 1."} & {*texts}, "those of the training rows"


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("Make item 1.", "make  ITEM 1.", 1.0), ("a b", "c", 0.0), ("a b c", "a b d", 0.5)],
)
def test_common_words(one: str, other: str, share: float) -> None:
    assert common_words(one, other) == share


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ('{"query": " Do it ", "actions": ["a", "b"], "confidence": 0.8}', ("Do it", "a\nb", 0.8)),
        ('{"query": "Do it", "actions": [], "confidence": 0.8}', ("Do it", "", 0.8)),
        ('{"query": "Do it", "actions": "a", "confidence": true}', ("Do it", "", 0.0)),
        ('{"query": "Do it", "actions": ["a"], "confidence": null}', ("Do it", "a", 0.0)),
        ("Do it.", ("", "", 0.0)),
    ],
)
def test_a_proposal_is_read(text: str, task: tuple[str, str, float]) -> None:
    assert read_task(text) == task


async def test_two_attempts_that_agree_give_the_target() -> None:
    """With tools, and a reward that compares with targets."""

    def price(thing: str) -> str:
        """The price of a thing."""
        return str(len(thing))

    def agent(question: str, sample: int) -> str:
        if "There is no task" in question and "4" not in question.rpartition("}")[2]:
            return '<tool>{"name": "price", "arguments": {"thing": "lamp"}}</tool>'
        return ("4" if "lamp" in question else str(sample)) if HINT in question else "I do not know."

    def writer(question: str, sample: int) -> str:
        tasks = [
            {"query": f"How much is a {thing}?", "actions": [f"price {thing}"], "confidence": 0.9}
            for thing in ("lamp", "bed")
        ]
        return "".join(f"<TASK>{json.dumps(task)}</TASK>" for task in tasks)

    rows = tuple(Example(str(n), {"input": f"row {n}"}, str(n), text=f"row {n}") for n in range(6))
    plain: Any = Environment(Answers(agent), ExactMatch(), rows[:3], rows[3:])
    env = multiturn(plain, ToolWorld((Tool.of(price),), turns=3))
    run = MeteredRun({"task": env.model, "optimizer": Answers(writer)}, 0)
    start = whet.Prompt.parse("Answer.")
    await cues(run, env, LanguagePolicy(), start, Config(explorations=1, rounds=0))
    made = [value for name, value in run.logged if name == "made_task"]
    assert made == [{"input": "How much is a lamp?", "target": "4", "actions": "price lamp"}]


def test_a_game_that_begins_from_a_seed_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "task.yaml").write_text(
        "name: cards\nprompt: prompt.md\nenvironment: {gymnasium: Blackjack-v1, turns: 4, episodes: 30}\n"
    )
    (tmp_path / "prompt.md").write_text("Play.\n")
    with pytest.raises(UsageError, match="begins without one"):
        whet.optimize(
            tmp_path, lm=lambda m: "stick", optimizer_lm=lambda m: "x", method="cues", progress=False
        )


# The contests: tasks against none, a memory against none, and what doing tasks again is worth.

SEEDS, LIMITS = range(100, 110), Budget(task_calls=2400, optimizer_calls=60)


@cache
def reached(method: str = "cues", **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, workshop(s), s, LIMITS, settings) for s in SEEDS]


@pytest.mark.long
def test_tasks_that_were_made_are_what_it_wins_by() -> None:
    assert won_over("no tasks", reached(), reached(tasks=0)).low > 0
    assert won_over("no memory", reached(), reached(memory=False)).low > 0


@pytest.mark.long
def test_the_memory_finds_more_in_as_many_explorations() -> None:
    with_memory, without = (
        [float(possible(explore(s, explorations=5, memory=memory)[1])) for s in SEEDS]
        for memory in (True, False)
    )
    assert won_over("tasks found, without memory", with_memory, without).low > 0


@pytest.mark.long
def test_doing_tasks_again_leaves_out_what_cannot_be_done_and_helps_the_prompt_by_nothing() -> None:
    done, all_of_them = (
        [1 - possible(made) / len(made) for _, made, _ in (explore(s, verify=verify) for s in SEEDS)]
        for verify in (True, False)
    )
    assert won_over("share of impossible tasks, less with verify", all_of_them, done).low > 0
    assert won_over("prompts without verify", reached(), reached(verify=False)).low <= 0


@pytest.mark.long
def test_it_beats_random_search() -> None:
    assert won_over("random search", reached(), reached("random_search")).low > 0
