"""Optimizers that copy what they are shown: no request goes out twice in the same way, and the run says what came back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.simulated import question_types
from tests.api.world import PROMPT, Counted, right, rows

import whet
from whet.methods import configure, get_method
from whet.rl import LanguagePolicy
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers

SETTINGS: dict[str, dict[str, Any]] = {
    "gepa": {"rounds": 4},
    "meta_prompt": {"loops": 4, "rollouts": 12},
    "opro": {"steps": 4, "samples": 2},
    "protegi": {"rounds": 3, "beam": 1, "gradients": 2, "paraphrases": 1},
    "simba": {"steps": 4, "minibatch": 8},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_form_is_not_shown_again_in_later_rounds_to_a_model_that_copied_it(name: str) -> None:
    """The model copies the form of a reply, and writes nothing where it sees none."""
    world, method = question_types.world(3), get_method(name)
    model = Answers(
        lambda question, sample: question.rpartition("like this: ")[2] if "..." in question else ""
    )
    run = MeteredRun({"task": world.env.model, "optimizer": model}, 3)
    config = configure(method, SETTINGS[name])
    asyncio.run(method.coroutine(run, world.env, LanguagePolicy(), world.start, config))
    asked = [question.rpartition("\n")[2] for question in model.questions]
    assert "like this: " in asked[0]
    assert not [line for line in asked[len(asked) // 2 :] if "like this: " in line]
    assert max(Counter((request.sample, request.messages) for request in model.requests).values()) == 1


def test_the_result_says_that_the_optimizer_model_did_not_understand(tmp_path: Path) -> None:
    copies = ("<INSTRUCTION>...</INSTRUCTION>", "<INSTRUCTION>Sort the review.</INSTRUCTION>")
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "progress": False}
    words |= {"method": whet.methods.opro.Config(steps=2, samples=2, examples=10)}
    for copy in copies:
        done = whet.optimize(PROMPT, root=tmp_path, optimizer_lm=lambda messages, c=copy: c, **words)
        (line,) = [text for text in done.warnings if "did not understand" in text]
        assert "copies of the request" in line and "optimizer_lm" in line
    good = "<INSTRUCTION>Sort the review carefully.</INSTRUCTION>"
    done = whet.optimize(PROMPT, root=tmp_path, optimizer_lm=lambda messages: good, **words)
    assert not [text for text in done.warnings if "did not understand" in text]


CHAT, REQUEST = "Certainly! Please provide the input.", "{request}"


@pytest.mark.parametrize(
    ("method", "reply"), [("prompt_learning", CHAT), ("prompt_learning", REQUEST), ("gepa", REQUEST)]
)
def test_it_says_so_of_replies_of_any_other_kind_where_none_was_of_use(
    method: str, reply: str, tmp_path: Path
) -> None:
    """Of a model that answers in the role of the assistant, or with what it was asked."""

    def answer(messages: Any) -> str:
        return reply.replace("{request}", messages[-1]["content"])

    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "progress": False}
    budget = whet.Budget(task_calls=150, optimizer_calls=8)
    done = whet.optimize(PROMPT, root=tmp_path, method=method, optimizer_lm=answer, budget=budget, **words)
    (line,) = [text for text in done.warnings if "did not understand" in text]
    assert "optimizer_lm" in line
