"""Searches from a start prompt that earns nothing: what they come to where the optimizer model writes nothing of use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from benchmarks.simulated import question_types

from whet.methods import configure, get_method
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.from_zero import DEMONSTRATED, LISTED
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


@pytest.mark.parametrize("limits", [{}, {"task_calls": 300, "optimizer_calls": 20}], ids=["free", "limited"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_start_that_earns_nothing_is_left_without_the_optimizer(name: str, limits: dict[str, int]) -> None:
    best, worth, run = search(name, **limits)
    (tried,) = [value for key, value in run.logged if key == "from_zero"]
    assert {operator for operator, _ in tried["tried"]} == {DEMONSTRATED, LISTED}
    assert worth > 0.44 and best.parents
    assert all(run.spent[role.removesuffix("_calls")] <= limit for role, limit in limits.items())
