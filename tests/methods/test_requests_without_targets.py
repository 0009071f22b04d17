"""Requests to the optimizer model where no row has a target, as with tests that run: they speak of no answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.methods import configure, get_method
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Completion, Example, Reward

SETTINGS: dict[str, dict[str, Any]] = {
    "abo": {"rounds": 1, "examples": 6},
    "capo": {"steps": 1, "population": 3},
    "evoprompt": {"steps": 1, "population": 4},
    "mars": {"rounds": 1, "steps": 1, "examples": 6},
    "minstrel": {"rounds": 1, "examples": 6},
    "mo_capo": {"steps": 1, "population": 3},
    "mipro": {"choice": "random"},
    "opro": {"steps": 1, "samples": 1},
}
SAID = ("answers that are wanted", "with what is wanted", "these answers", "such answers", "answers above")


class OfNoTarget(ExactMatch):
    """A reward that needs no target."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(0.0)


@pytest.mark.parametrize("name", SETTINGS)
async def test_no_request_speaks_of_answers_that_are_not_shown(name: str) -> None:
    questions: dict[bool, str] = {}
    for targets in (True, False):
        env: Any = replace(review_world(Answers(lambda q, s: "nothing")), labels={})
        if not targets:
            train, validation = (
                [replace(e, target=None) for e in part] for part in (env.train, env.validation)
            )
            env = replace(env, train=tuple(train), validation=tuple(validation), reward=OfNoTarget())
        model = Answers(lambda question, sample: f"<PROMPT>Text {sample}.</PROMPT>")
        method = get_method(name)
        run = MeteredRun({"task": env.model, "optimizer": model}, 3)
        config = configure(method, SETTINGS[name])
        await method.coroutine(run, env, LanguagePolicy(), Prompt.parse(SOURCE), config)
        questions[targets] = "\n".join(model.questions)
    assert "Input: " in questions[False] and "Wanted: " not in questions[False]
    assert any(words in questions[True] for words in SAID)
    assert not [words for words in SAID if words in questions[False]]
