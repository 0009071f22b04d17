"""ACE: lessons are added one by one, counted by verdicts, and removed where these speak against them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.rule_worlds import LAST_WORD, many_codes, optimized, playbook, poisoned

from whet.methods.ace import Config, Reflection, ace, shared_out
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.lessons import HEAD
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Rollout

CONFORMANCE = {"steps": 4, "batch": 12, "reflections": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 3, "batch": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def answer(insights: list[str], harmed: tuple[str, ...] = ()) -> Callable[[str, int], str]:
    """A reflector and curator that say the same each time; of the insights the curator adds those that are not there yet."""

    def write(question: str, sample: int) -> str:
        if "<REFLECTION>" in question:
            return f"<REFLECTION>{json.dumps({'insights': insights, 'helped': [], 'harmed': harmed})}</REFLECTION>"
        return "".join(f"<LESSON>{text}</LESSON>\n" for text in insights)

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"steps": 3, "batch": 16, "reflections": 1, **settings})
    return await ace(run, env, LanguagePolicy(), START, config), model, run


async def test_lessons_are_added_and_the_text_before_them_stays() -> None:
    best, _, run = await search(answer(["Weigh the evidence.", "Mind the tone."]))
    text = START.region_text().strip()
    assert best.prompt.region_text().strip() == f"{text}\n\n{HEAD}\n- Weigh the evidence.\n- Mind the tone."
    counts = [value for name, value in run.logged if name == "operations"]
    assert counts[0] == {"proposed": 2, "dropped": 0, "lessons": 2}
    assert counts[1] == {"proposed": 2, "dropped": 2, "lessons": 2}


async def test_the_start_is_kept_where_no_playbook_is_better() -> None:
    best, _, _ = await search(answer(["Guess."]), finalists=5)
    assert best.prompt == START


async def test_a_lesson_goes_when_verdicts_speak_against_it() -> None:
    _, model, _ = await search(answer(["Mind the tone."], ("L1",)), steps=5)
    shown = ["[L1] Mind the tone." in q for q in model.questions if "<REFLECTION>" in q]
    assert shown == [False, True, False, False, False]
    assert "[L2] Mind the tone." in "".join(model.questions)
    _, model, _ = await search(answer(["Mind the tone."], ("L1",)), steps=5, removal=False)
    assert "[L1] Mind the tone. (helped 0, harmed 4)" in model.questions[-1]


async def test_a_lesson_that_copies_an_input_is_dropped() -> None:
    env = review_world()
    rows = tuple(
        replace(r, text=f"{r.text} It was on the {i}th day of that month.") for i, r in enumerate(env.train)
    )
    _, model, run = await search(answer([f"Carefully: {rows[0].text}"]), replace(env, train=rows))
    assert any(name == "operations" and value["dropped"] == 1 for name, value in run.logged)  # type: ignore[index, call-overload]
    assert not any("[L1]" in q for q in model.questions)


async def test_an_answer_is_read_once_and_wrong_ones_first() -> None:
    rollouts = [Rollout("p", f"r{i}", "a", float(i % 2)) for i in range(12)]
    groups = shared_out(rollouts, 1.0, 4, 2)
    names = [r.example_id for group in groups for r in group]
    assert len(set(names)) == len(names) == 8
    assert [sorted(r.reward for r in group) for group in groups] == [[0.0, 0.0, 0.0, 1.0]] * 2
    assert shared_out(rollouts[1::2], 1.0, 4, 2) == []


@pytest.mark.parametrize(
    ("reply", "reflection"),
    [
        ('{"insights": ["A."], "helped": ["L1"], "harmed": []}', Reflection(["A."], ["L1"], [])),
        ('So: {"insights": ["A."]}', Reflection(["A."], [], [])),
        ('{"insights": "A."}', Reflection()),
        ("Read twice.", Reflection(["Read twice."])),
        ("- Read twice.\n- Be brief.", Reflection(["Read twice.", "Be brief."])),
        ("[1, 2]", Reflection()),
    ],
)
def test_reflections_are_read(reply: str, reflection: Reflection) -> None:
    assert Reflection.read(reply) == reflection


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_three_steps(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, _, run = await search(answer(["Mind the tone."]), env, limits, **vars(Config()))
    assert sum(name == "operations" for name, _ in run.logged) >= 3
    assert 0.5 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    assert f"- {LAST_WORD}" in optimized(tmp_path, "ace", lambda question: answer([LAST_WORD])(question, 0))


# The contests: counters that remove lessons against counters that are ignored; additions against lists written anew.


@cache
def poison(method: str = "ace", **settings: Any) -> list[float]:
    """What a method finds in the world of each seed, where three insights of five help and two do harm."""
    limits = Budget(task_calls=600)
    return [
        play_world(method, poisoned(seed, playbook, right="0.6"), seed, limits, settings)
        for seed in range(12)
    ]


@pytest.mark.long
def test_with_counters_that_remove_lessons_it_beats_itself_and_random_search() -> None:
    assert won_over("with counters ignored", poison(), poison(removal=False)).low > 0.02
    assert won_over("random_search", poison(), poison("random_search", edits=16)).low > 0


@cache
def collapse(kinds: int, forgets: str = "0", merge: str = "delta") -> list[float]:
    """What it finds where there are so many facts to know, with a curator that forgets so many when it writes them anew."""
    worlds = [many_codes(seed, kinds, playbook, forgets=forgets) for seed in range(5)]
    limits, settings = Budget(task_calls=25 * kinds), {"removal": False, "merge": merge}
    return [play_world("ace", world, seed, limits, settings) for seed, world in enumerate(worlds)]


def test_additions_win_over_lists_written_anew_where_there_is_much_to_forget() -> None:
    assert won_over("with the list written anew", collapse(60), collapse(60, "0.05", "rewrite")).low > 0.05


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "forgets"), [(10, "0.05"), (60, "0")])
def test_with_little_to_forget_they_win_nothing(kinds: int, forgets: str) -> None:
    anew, control = (
        collapse(kinds, forgets, "rewrite"),
        f"a list of {kinds} written anew, {forgets} forgotten",
    )
    assert won_over(control, collapse(kinds), anew).high < 0.05
