"""The environment asks a local model that answers in batches for all prompts and examples at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from whet.environments.environment import Environment, Generation
from whet.models.language_model import BatchModel
from whet.prompt import Prompt
from whet.rewards import TARGET_SCORE
from whet.rewards.program import RewardFailed
from whet.rewards.reward import RewardFunction
from whet.rewards.text import ExactMatch
from whet.run import MemoryRun, Run
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Request, Reward, Scores, Usage

EXAMPLES = tuple(Example(f"e{i}", {"input": f"in{i}"}, f"IN{i}", text=f"in{i}") for i in range(3))
PROMPTS = [Prompt.parse("upper"), Prompt.parse("lower"), Prompt.parse("fail")]


def say(question: str, sample: int) -> Completion:
    order, text = question.split("\n\n")
    if order == "fail":
        return Completion("", "error", Usage(2, 0), "provider: no")
    return Completion(text.upper() if order == "upper" else "no", usage=Usage(2, 1))


class Batching(Answers):
    """`Answers` that takes many requests at once, and scores targets by their length."""

    can_score = True

    def __init__(self) -> None:
        super().__init__(say)
        self.sizes: list[int] = []

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        self.sizes.append(len(requests))
        return [await self.generate(request) for request in requests]

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Scores:
        shape = (len(prompts), len(inputs), 1)
        lengths = [[float(len(prompts[0].id))] for _ in inputs]
        return Scores(np.array([lengths]).reshape(shape), np.full(shape[1:], 3))


class Counting(MemoryRun):
    """A run that notes its effects."""

    def __init__(self, models: Any) -> None:
        super().__init__(models)
        self.effects: list[tuple[str, str | None, int, Any]] = []

    async def effect(self, name: str, fn: Any, args: Any = None, *, role: Any = None, calls: int = 0) -> Any:
        self.effects.append((name, role, calls, args))
        return await super().effect(name, fn, args, role=role, calls=calls)


def world(model: Any, reward: RewardFunction | None = None) -> Environment:
    return Environment(model, reward or ExactMatch(), EXAMPLES, EXAMPLES, generation=Generation(0.0, 8))


async def test_one_effect_answers_every_prompt_and_example() -> None:
    model = Batching()
    assert isinstance(model, BatchModel)
    run = Counting({"task": model})
    scores = await world(model).score(run, PROMPTS, EXAMPLES)
    assert [s.mean for s in scores] == [1.0, 0.0, 0.0]
    assert [s.n for s in scores] == [3, 3, 3]
    assert model.sizes == [9]
    assert [effect[:3] for effect in run.effects] == [("answers", "task", 9)]


async def test_a_batch_gives_the_same_rollouts_as_one_by_one() -> None:
    model = Batching()
    env = world(model)
    for prompt in PROMPTS:
        together = await env.evaluate(MemoryRun({"task": model}), prompt, EXAMPLES)
        alone = [await env.rollout(MemoryRun({"task": model}), prompt, e) for e in EXAMPLES]
        assert together == alone
    pairs = list(zip(PROMPTS, EXAMPLES, strict=True))
    found = await env.rollouts(MemoryRun({"task": model}), pairs, 2)
    assert [(r.prompt_id, r.example_id, r.sample) for r in found] == [(p.id, e.id, 2) for p, e in pairs]


async def test_the_recorded_question_changes_with_everything_that_is_asked() -> None:
    model = Batching()
    asked = []
    for env, sample, rows in (
        (world(model), 0, EXAMPLES),
        (world(model), 1, EXAMPLES),
        (world(model), 0, EXAMPLES[:2]),
        (replace(world(model), generation=Generation(0.5, 8)), 0, EXAMPLES),
        (replace(world(model), generation=Generation(0.0, 9)), 0, EXAMPLES),
        (replace(world(model), generation=Generation(0.0, 8, ("x",))), 0, EXAMPLES),
    ):
        run = Counting({"task": model})
        await env.evaluate(run, PROMPTS[0], rows, sample)
        asked.append(run.effects[0][3])
    assert len(set(asked)) == 6


async def test_labels_are_read_from_the_answers_of_a_batch() -> None:
    rows = tuple(replace(e, target="in1") for e in EXAMPLES)
    model = Batching()
    env = Environment(model, ExactMatch(), rows, rows, {"in1": "in1", "in2": "in2"})
    found = await env.evaluate(MemoryRun({"task": model}), PROMPTS[0], rows)
    assert [r.error and r.error.split(":")[0] for r in found] == ["parse", None, None]
    assert [r.reward for r in found] == [0.0, 1.0, 0.0]


@dataclass(frozen=True)
class Told:
    """The score of the target; fails on the second example."""

    name: str = "told"
    low: float = -100.0
    high: float = 100.0
    needs: frozenset[str] = frozenset({TARGET_SCORE})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if example.id == "e1":
            raise RewardFailed("no")
        assert completion.target_score is not None
        return Reward(completion.target_score[0], {"tokens": completion.target_score[1]})


async def test_target_scores_come_in_one_effect_and_a_failed_reward_is_data() -> None:
    model = Batching()
    run = Counting({"task": model})
    prompts = PROMPTS[:2]
    pairs = [(p, e) for p in prompts for e in EXAMPLES]
    found = await world(model, Told()).rollouts(run, pairs)
    assert [effect[:3] for effect in run.effects] == [("answers", "task", 6), ("target_scores", "task", 6)]
    assert [r.error for r in found] == [None, "reward: no", None] * 2
    assert [r.reward for r in found] == [-100.0 if e.id == "e1" else len(p.id) for p, e in pairs]


async def test_nothing_is_asked_for_no_pairs() -> None:
    model = Batching()
    run = Counting({"task": model})
    assert await world(model).score(run, PROMPTS[:0], EXAMPLES) == []
    assert await world(model).evaluate(run, PROMPTS[0], EXAMPLES[:0]) == []
    assert (run.effects, model.sizes) == ([], [])


async def test_other_models_and_other_systems_are_asked_one_by_one() -> None:
    class Own(Environment):
        async def ask(self, run: Run, request: Request) -> Completion:
            return Completion("IN0")

    batching = Batching()
    remote = Batching()
    remote.local = False
    for env, means in (
        (world(Answers(say)), [1.0, 0.0]),
        (world(remote), [1.0, 0.0]),
        (Own(batching, ExactMatch(), EXAMPLES, EXAMPLES), [1 / 3, 1 / 3]),
    ):
        run = Counting({"task": env.model})
        scores = await env.score(run, PROMPTS[:2], EXAMPLES)
        assert [s.mean for s in scores] == pytest.approx(means)
        assert run.effects == []
    assert batching.sizes == remote.sizes == []
