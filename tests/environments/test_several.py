"""A task made of several as one environment: who is asked what, and what a prompt is worth."""

from __future__ import annotations

import random
from typing import Any

import pytest

from whet.environments.environment import Environment
from whet.environments.several import EnvironmentCase, SeveralEnvironment, below
from whet.models.callable import as_model
from whet.prompt import Prompt
from whet.rewards import F1, ExactMatch
from whet.run import MemoryRun
from whet.search.minibatch import minibatch
from whet.types import Example, Message, mean_score

SHARED = Prompt.parse("<!-- whet:begin -->\nBe brief.\n<!-- whet:end -->")


def messages(prompt: Prompt) -> list[tuple[str, str]]:
    example = Example("1", {"input": "X"}, text="X")
    return [(m.role, m.content.strip()) for m in prompt.render(example)]


def test_a_prompt_of_a_task_stands_below_the_shared_one() -> None:
    question = below(SHARED, Prompt.parse("Question: {{input}}"))
    assert messages(question) == [("system", "Be brief."), ("user", "Question: X")]
    plain = below(SHARED, Prompt.parse("You sort tickets."))
    assert messages(plain) == [("system", "Be brief.\n\nYou sort tickets."), ("user", "X")]
    own = Prompt((Message("system", "You sort."), Message("user", "{{input}}!")))
    assert messages(below(SHARED, own)) == [("system", "Be brief.\n\nYou sort."), ("user", "X!")]


def several(worst: bool = False) -> tuple[SeveralEnvironment, MemoryRun, list[Any]]:
    """Case a is always right and has three rows; case b, asked of another model, is always wrong and has one."""
    rows = [Example(f"a/{i}", {"input": f"a{i}"}, "yes", case="a") for i in range(3)]
    rows += [Example("b/0", {"input": "b0"}, "no", case="b")]
    asked: list[Any] = []

    def answer(messages: Any) -> str:
        asked.append(messages)
        return "yes"

    first, second = as_model(answer), as_model(lambda messages: "yes")
    make = {"train": tuple(rows), "validation": tuple(rows)}
    cases = {
        "a": EnvironmentCase(Environment(first, ExactMatch(), **make), "task", Prompt.parse("A: {{input}}")),
        "b": EnvironmentCase(Environment(second, F1(), **make), "task2"),
    }
    env = SeveralEnvironment(first, ExactMatch(), **make, cases=cases, worst=worst)
    return env, MemoryRun({"task": first, "task2": second}), asked


@pytest.mark.parametrize(("worst", "worth"), [(False, 0.5), (True, 0.0)])
async def test_each_case_counts_alike_and_is_asked_of_its_own_model(worst: bool, worth: float) -> None:
    env, run, asked = several(worst)
    rollouts = await env.evaluate(run, SHARED, [env.train[3], *env.train[:3]])
    assert [r.example_id for r in rollouts] == ["b/0", "a/0", "a/1", "a/2"]
    assert [r.case for r in rollouts] == ["b", "a", "a", "a"] and {r.prompt_id for r in rollouts} == {
        SHARED.id
    }
    score = mean_score(rollouts)
    assert score.mean == worth and (score.parts["case a"], score.parts["case b"]) == (1.0, 0.0)
    assert (await env.score(run, [SHARED], env.train))[0].mean == worth
    assert len(asked) == 6, "the three rows of a, twice; b is asked of the other model"
    assert asked[0][-1]["content"] == "A: a0"
    assert (await env.rollouts(run, [(SHARED, env.train[3])]))[0].reward == 0.0


async def test_another_frame_changes_what_a_case_is_asked() -> None:
    env, run, asked = several()
    await env.with_frames({"a": Prompt.parse("B: {{input}}")}).evaluate(run, SHARED, env.train[:1])
    assert asked[-1][-1]["content"] == "B: a0"
    assert env.messages(SHARED, env.train[3])[-1].content == "b0"


def test_minibatches_take_the_cases_in_turn() -> None:
    rows = [Example(f"{c}{i}", {}, case=c) for c, n in (("a", 50), ("b", 5)) for i in range(n)]
    drawn = minibatch(random.Random(0), rows, 8)
    assert sorted(row.case for row in drawn) == ["a"] * 4 + ["b"] * 4
    assert len({row.id for row in minibatch(random.Random(0), rows, 55, balanced=True)}) == 55
