"""Every built-in environment passes the public suite, and each test of the suite notices a broken environment."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from whet.environments import Actor, ActorAction, ActorObservation, Conversation, World, WorldStep
from whet.environments.environment import Environment
from whet.environments.games import game_world
from whet.environments.multiturn import MultiTurn, multiturn, task_model
from whet.environments.tools import Tool, ToolWorld
from whet.errors import BudgetExceeded, UsageError
from whet.models.addresses import resolve
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.rewards.scored import Perplexity
from whet.run import Run
from whet.testing.environments import EnvironmentConformance
from whet.testing.simulated_task import SOURCE, review_world, reviews
from whet.types import Example, Message, Request, Rollout, Score


class TestSingleCall(EnvironmentConformance):
    def environment(self) -> Environment:
        return review_world(train=9)

    def start(self) -> Prompt:
        return Prompt.parse(SOURCE)


class TestScoredLabels(TestSingleCall):
    def environment(self) -> Environment:
        return review_world(train=9, scores=True)


class TestBatches(TestSingleCall):
    """A model in this process that is asked for all rows at once."""

    def environment(self) -> Environment:
        pytest.importorskip("torch")
        return replace(review_world(resolve("embedded/tiny"), train=4), labels={})


class TestScoredTargets(TestSingleCall):
    """A reward that needs the log-probability of the target."""

    def environment(self) -> Environment:
        return replace(review_world(train=9), reward=Perplexity(), labels={})


class TestFreeText(EnvironmentConformance):
    def examples(self) -> Sequence[Example]:
        return [Example(f"e{i}", {"input": f"question {i}"}, "1", {"id": f"e{i}"}) for i in range(6)]


@dataclass(frozen=True)
class SecondThought:
    """A system that asks the task model twice and takes the second answer."""

    model: Actor
    calls: int = 2

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        await self.model.act(run, observations, sample)
        return await self.model.act(run, observations, sample)


class TestSystem(TestFreeText):
    """A system answers instead of the bare task model."""

    def environment(self) -> Environment:
        env = super().environment()
        return multiturn(env, actor=SecondThought(task_model(env)))


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class TestTools(EnvironmentConformance):
    answers = ('<tool>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool>', "1", "<tool>broken")

    def world(self) -> World:
        return ToolWorld((Tool.of(add),), turns=4)

    def examples(self) -> Sequence[Example]:
        return [Example(f"e{i}", {"input": f"question {i}"}, "1", {"id": f"e{i}"}) for i in range(6)]


class TestGame(EnvironmentConformance):
    answers = ("left", "down", "right", "up", "Left or right?")

    @pytest.fixture(autouse=True)
    def needs_gymnasium(self) -> None:
        pytest.importorskip("gymnasium")

    def world(self) -> World:
        return game_world("FrozenLake-v1", 6, {"map_name": "random", "is_slippery": True}, penalty=0.1)

    def examples(self) -> Sequence[Example]:
        rows = [{"id": f"e{i}", "input": f"episode {i}", "seed": i} for i in range(4)]
        return [Example(str(row["id"]), {"input": str(row["input"])}, None, row) for row in rows]

    def bad_example(self) -> Example:
        return Example("seedless", {"input": "episode"}, None, {"id": "seedless"})


@dataclass(frozen=True)
class Sound:
    """A small sound world, for its broken relatives below to go wrong: name the row's number, with a few tries."""

    turns: int = 3
    name: str = "sound"
    graded: bool = True

    def check(self, example: Example) -> None:
        if not isinstance(example.target, str):
            raise UsageError(f'the row "{example.id}" has no target.')

    def observe(self, example: Example) -> Example:
        return example

    def reset(self, example: Example, opening: Conversation) -> Tries:
        return Tries(self, example, opening)


class Tries:
    """An episode of the sound world."""

    def __init__(self, world: Sound, example: Example, opening: Conversation) -> None:
        self.world, self.example = world, example
        self.opening, self.turns = opening, world.turns
        self.count = 0

    async def step(self, run: Run, text: str) -> WorldStep:
        self.count += 1
        over = text == self.example.target or self.count == self.turns
        return WorldStep("Again.", done=over, answer=text if over else None)


def broken(step: Any) -> type[Sound]:
    """The sound world with another `step`."""
    episode = type("Broken", (Tries,), {"step": step})

    @dataclass(frozen=True)
    class World(Sound):
        def reset(self, example: Example, opening: Conversation) -> Tries:
            return episode(self, example, opening)

    return World


async def throws_dice(self: Tries, run: Run, text: str) -> WorldStep:
    return WorldStep(f"Again, {random.random()}.", done=False)


async def asks_past_the_run(self: Tries, run: Run, text: str) -> WorldStep:
    model = run.models["task"]  # type: ignore[attr-defined]
    await model.generate(Request((Message("user", text),)))
    return WorldStep("Again.")


async def cannot_read(self: Tries, run: Run, text: str) -> WorldStep:
    text.encode()
    return WorldStep("Again.")


COUNT = itertools.count()


async def remembers_others(self: Tries, run: Run, text: str) -> WorldStep:
    return WorldStep(f"Again, {next(COUNT)}.", done=False)


async def asks_a_friend(self: Tries, run: Run, text: str) -> WorldStep:
    await run.generate("task", Request((Message("user", text),)))
    return WorldStep("Again.")


async def swallows_the_end(self: Tries, run: Run, text: str) -> WorldStep:
    try:
        await run.generate("task", Request((Message("user", text),)))
    except BudgetExceeded:
        return WorldStep(done=True, answer=text)
    return WorldStep("Again.")


async def infinite_notes(self: Tries, run: Run, text: str) -> WorldStep:
    return WorldStep("Again.", notes={"odds": float("inf")})


async def marks_the_row(self: Tries, run: Run, text: str) -> WorldStep:
    self.example.row["tries"] = text  # type: ignore[index]
    return WorldStep("Again.")


@dataclass(frozen=True)
class TakesAll(Sound):
    def check(self, example: Example) -> None:
        return None


@dataclass(frozen=True)
class BeginsAnyhow(Sound):
    def observe(self, example: Example) -> Example:
        text = f"Room {random.random()}"
        return replace(example, values={"input": text}, text=text)


class Env(MultiTurn):
    """An environment of its own kind."""


class Backwards(Env):
    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        return (await super().evaluate(run, prompt, examples, sample))[::-1]


class DropsFailures(Env):
    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        rollouts = await super().evaluate(run, prompt, examples, sample)
        return [r for r in rollouts if not (r.error or "").startswith("provider")]


class Optimist(Env):
    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        return [replace(s, mean=1.0) for s in await super().score(run, prompts, examples)]


class OneSample(Env):
    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        return replace(await super().rollout(run, prompt, example, 0), sample=sample)


def suite(world: type[Sound] = Sound, kind: type[MultiTurn] = MultiTurn) -> EnvironmentConformance:
    """The suite for one of these."""

    class Suite(EnvironmentConformance):
        answers = ("1", "2", "7")

        def world(self) -> World:
            return world()

        def examples(self) -> Sequence[Example]:
            return [
                Example(f"e{i}", {"input": f"question {i}"}, str(i % 2), {"id": f"e{i}"}) for i in range(6)
            ]

        def bad_example(self) -> Example:
            return Example("bad", {"input": "question"}, None, {"id": "bad"})

        def environment(self) -> Environment:
            env: Any = super().environment()
            return kind(**{name: getattr(env, name) for name in env.__dataclass_fields__})

    return Suite()


BROKEN: list[tuple[type[Sound], type[MultiTurn], str]] = [
    (Sound, Backwards, "test_has_one_rollout_for_each_example_in_order"),
    (broken(infinite_notes), MultiTurn, "test_rewards_keep_their_range"),
    (Sound, Optimist, "test_the_score_is_the_mean_of_the_rollouts"),
    (Sound, DropsFailures, "test_a_failed_call_is_a_rollout_with_an_error"),
    (broken(cannot_read), MultiTurn, "test_survives_whatever_the_model_writes"),
    (broken(throws_dice), MultiTurn, "test_a_replay_is_the_same_and_asks_nobody"),
    (broken(asks_past_the_run), MultiTurn, "test_a_replay_is_the_same_and_asks_nobody"),
    (BeginsAnyhow, MultiTurn, "test_the_same_example_begins_the_same_episode"),
    (broken(remembers_others), MultiTurn, "test_the_order_of_branches_does_not_matter"),
    (Sound, OneSample, "test_samples_are_numbered"),
    (broken(asks_a_friend), MultiTurn, "test_asks_no_more_than_it_says"),
    (broken(swallows_the_end), MultiTurn, "test_does_not_catch_the_end_of_the_budget"),
    (broken(marks_the_row), MultiTurn, "test_leaves_the_examples_as_they_are"),
    (TakesAll, MultiTurn, "test_checks_rows_before_anything_is_paid"),
]
TESTS = [name for name in vars(EnvironmentConformance) if name.startswith("test_")]


@pytest.mark.parametrize(("world", "kind", "test"), BROKEN)
def test_the_suite_notices_a_broken_environment(world: type[Sound], kind: type[MultiTurn], test: str) -> None:
    with pytest.raises((AssertionError, UnicodeError, UsageError)):
        getattr(suite(world, kind), test)()


def test_each_test_of_the_suite_has_a_broken_environment() -> None:
    assert {test for _, _, test in BROKEN} == set(TESTS)


@pytest.mark.parametrize("test", TESTS)
def test_the_suite_passes_a_sound_environment(test: str) -> None:
    getattr(suite(), test)()


def test_an_environment_without_rows_is_not_judged() -> None:
    class Suite(EnvironmentConformance):
        def model(self) -> LanguageModel:
            raise AssertionError("not reached")

    with pytest.raises(NotImplementedError, match="three rows"):
        Suite().test_rewards_keep_their_range()
    assert len(reviews(3)) == 3
