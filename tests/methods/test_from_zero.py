"""Searches from a start prompt that earns nothing: what they come to where the optimizer model writes nothing of use."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.simulated import question_types

from whet.methods import configure, get_method
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.from_zero import DEMONSTRATED, JOINED, LISTED
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers

SETTINGS: dict[str, dict[str, Any]] = {
    "abo": {"rounds": 1, "examples": 12},
    "ace": {"steps": 3, "batch": 12},
    "capo": {"steps": 1, "population": 3},
    "mo_capo": {"steps": 1, "population": 3},
    "evoprompt": {"steps": 1, "population": 3},
    "gepa": {},
    "grips": {},
    "mars": {"rounds": 1, "steps": 2, "examples": 12},
    "meta_prompt": {"loops": 3, "rollouts": 12},
    "minstrel": {"rounds": 1, "examples": 12},
    "mipro": {"choice": "random"},
    "opro": {"steps": 3, "samples": 2},
    "plum": {"iterations": 2, "candidates": 3},
    "prompt_learning": {},
    "promptwizard": {"iterations": 1, "styles": 2, "examples": 12},
    "protegi": {"rounds": 2},
    "random_search": {"n": 20, "space": "phrases"},
    "pdo": {"duels": 4, "pool": 3},
    "simba": {"steps": 2, "minibatch": 8},
    "sprig": {"rounds": 2, "beam": 2, "candidates": 4},
    "skillopt": {"steps": 3, "batch": 12},
    "tips": {"rounds": 2, "batch": 12},
    "training_free_grpo": {"steps": 1, "queries": 8, "group": 2},
    "vista": {"rounds": 2},
}


def search(name: str, **limits: int) -> tuple[Candidate, float, MeteredRun]:
    """A search on six question types that the start prompt does not name, with an optimizer that copies the form it is shown."""
    world = question_types.world(3)
    method = get_method(name)
    copying = Answers(lambda question, sample: "<INSTRUCTION>...</INSTRUCTION>")
    run = MeteredRun({"task": world.env.model, "optimizer": copying}, 3, limits=Budget(**limits))
    config = configure(method, SETTINGS[name])
    best = asyncio.run(method.coroutine(run, world.env, LanguagePolicy(), world.start, config))
    return best, world.worth(best.prompt), run


def test_prompt_learning_gives_each_right_answer_a_line_and_a_new_wording_of_the_list_stands_alone() -> None:
    """A task model that reads only lists with a right answer a line, and a reader that rewords the list and drops the start."""
    world, asked = question_types.world(3), list[str]()
    lines = "\n".join(question_types.TYPES)
    wording = f"Name what is asked for.\n{lines}"

    def answer(text: str, sample: int) -> str:
        number = re.findall(r"Question (\d+):", text)[-1]
        row = (
            world.env.train[0]
            if "Examples:" in text
            else next(r for r in rows if f"Question {number}:" in r.text)
        )
        heard = sorted(re.findall(r"(?m)^\w+$", text)) == sorted(question_types.TYPES)
        if not heard or "Examples:" in text or (int(number) % 2 and "what is asked for" not in text):
            return "I do not know."
        return str(row.target)

    def reader(text: str, sample: int) -> str:
        asked.append(text)
        numbers = [int(number) for number in re.findall(r"(?m)^(\d+)\. Input", text)]
        entry = {"critiques": numbers, "existing": "i1", "instruction": wording, "contradicts": None}
        lists = {"no_demand": [], "vague": [], "to_the_reader": [], "superfluous": ["t1"]}
        return json.dumps({"requirements": [entry], **lists})

    rows = [*world.env.train, *world.env.validation]
    method, env = get_method("prompt_learning"), replace(world.env, model=Answers(answer))
    run = MeteredRun({"task": env.model, "optimizer": Answers(reader)}, 3, limits=Budget(task_calls=200))
    config = configure(method, {})
    best = asyncio.run(method.coroutine(run, env, LanguagePolicy(), world.start, config))
    head = "Answer with exactly one of these and with nothing else:"
    listed = re.search(r"\[t1\] Answer\.\n\[i1\] (.*\n(?:   \w+\n)+)", asked[0])
    assert listed and sorted(listed[1].split("\n   ")) == sorted(
        [head, *question_types.TYPES[:-1], question_types.TYPES[-1] + "\n"]
    )
    assert best.prompt.region_text() == wording


@pytest.mark.parametrize("limits", [{}, {"task_calls": 300, "optimizer_calls": 20}], ids=["free", "limited"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_start_that_earns_nothing_is_left_without_the_optimizer(name: str, limits: dict[str, int]) -> None:
    best, worth, run = search(name, **limits)
    (tried,) = [value for key, value in run.logged if key == "from_zero"]
    together = {JOINED} if name in ("gepa", "prompt_learning") else set()
    assert {operator for operator, _ in tried["tried"]} == {DEMONSTRATED, LISTED} | together
    assert worth > 0.44 and best.parents
    assert all(run.spent[role.removesuffix("_calls")] <= limit for role, limit in limits.items())
