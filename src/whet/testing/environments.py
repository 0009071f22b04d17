"""Conformance suite for environments: subclass it, make the world, run it with pytest.

    class TestMine(EnvironmentConformance):
        def world(self) -> World:
            return Mine(turns=4)

        def examples(self) -> list[Example]:
            return [Example("one", {"input": "1"}, target="1")]

Every test is an ordinary function; no plugin is needed. Override `environment` for one that is more than a world.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from whet.environments import Return, RewardingWorld, World
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.errors import BudgetExceeded, UsageError
from whet.models.language_model import BatchModel, LanguageModel
from whet.prompt import Prompt
from whet.rewards import TARGET_SCORE, RewardFunction
from whet.rewards.text import ExactMatch
from whet.testing.runs import MeteredRun, RecordedRun, ShuffledRun
from whet.testing.simulated_task import Answers
from whet.testing.texts import ODD_TEXTS
from whet.types import Completion, Example, Request, Rollout, Scores


class EnvironmentConformance:
    """Conformance tests for every environment."""

    answers: ClassVar[tuple[str, ...]] = ("1", "2", "3", "yes", "no")
    """The model's texts in its turns, drawn at random: texts of the kind that the environment expects."""

    def world(self) -> World | None:
        """The world under test; None for questions with one answer."""
        return None

    def examples(self) -> Sequence[Example]:
        """Three rows or more that the environment can begin with."""
        raise NotImplementedError("Override `examples` with three rows or more.")

    def bad_example(self) -> Example | None:
        """A row that the world cannot begin with; None if it accepts every row."""
        return None

    def reward(self) -> RewardFunction:
        """The reward that grades answers: exact match, or the rewards of the episodes."""
        world = self.world()
        return (
            Return(*world.range) if isinstance(world, RewardingWorld) and not world.graded else ExactMatch()
        )

    def model(self) -> LanguageModel:
        """The task model: the same conversation has the same answer."""

        def answer(question: str, sample: int) -> str:
            return self.answers[sum(question.encode("utf-8", "replace")) % len(self.answers)]

        return Answers(answer)

    def start(self) -> Prompt:
        """The prompt that is tried."""
        return Prompt.parse("Answer.\n{{input}}")

    def environment(self) -> Environment:
        """The environment under test, with its examples for training and validation."""
        rows = tuple(self.examples())
        env = Environment(self.model(), self.reward(), rows, rows)
        return env if self.world() is None else multiturn(env, self.world())

    def run(self, env: Environment, seed: int = 0, **options: Any) -> RecordedRun:
        """A run with the environment's model."""
        return RecordedRun({"task": env.model}, seed, **options)

    def play(self, run: MeteredRun, env: Environment, sample: int = 0) -> list[Rollout]:
        """The rollouts of all examples."""
        return asyncio.run(env.evaluate(run, self.start(), env.train, sample))

    def test_has_one_rollout_for_each_example_in_order(self) -> None:
        env = self.environment()
        assert len(env.train) >= 3, "the suite needs three examples or more"
        rollouts = self.play(self.run(env), env)
        assert [r.example_id for r in rollouts] == [e.id for e in env.train]
        assert {r.prompt_id for r in rollouts} == {self.start().id}
        assert any(r.error is None for r in rollouts), f"every rollout failed: {rollouts[0].error}"

    def test_rewards_keep_their_range(self) -> None:
        env = self.environment()
        for rollout in self.play(self.run(env), env):
            assert env.reward.low <= rollout.reward <= env.reward.high, f"{rollout.reward} is out of range"
            assert all(math.isfinite(part) for part in rollout.parts.values()), rollout.parts
            assert rollout.critique is None or rollout.critique.strip()

    def test_the_score_is_the_mean_of_the_rollouts(self) -> None:
        env = self.environment()
        rollouts = self.play(self.run(env), env)
        (score,) = asyncio.run(env.score(self.run(env), [self.start()], env.train))
        mean = sum(r.reward for r in rollouts) / len(rollouts)
        assert score.n == len(rollouts) and math.isclose(score.mean, mean, abs_tol=1e-5), (
            f"{score.mean}, not {mean}"
        )

    def test_a_failed_call_is_a_rollout_with_an_error(self) -> None:
        env = self.environment()
        if env.scores:
            return
        fails = Answers(lambda question, sample: Completion("", "error", error="provider: out of order"))
        env = dataclasses.replace(env, model=fails)
        rollouts = self.play(self.run(env), env)
        assert len(rollouts) == len(env.train), "failed rollouts are missing"
        for rollout in rollouts:
            assert rollout.error is not None and ":" in rollout.error, f"error={rollout.error!r}"
            assert rollout.reward == env.reward.low, "a failed rollout is at the low end of the reward"

    def test_survives_whatever_the_model_writes(self) -> None:
        env = self.environment()
        if env.scores:
            return
        for text in ODD_TEXTS:
            odd = dataclasses.replace(env, model=_Saying(env.model, text))
            for rollout in self.play(self.run(odd), odd):
                assert env.reward.low <= rollout.reward <= env.reward.high

    def test_a_replay_is_the_same_and_asks_nobody(self) -> None:
        """Chance, clocks and everything paid go through the run: a resumed run finds its episodes as they were."""
        env = self.environment()
        model = _counting(env.model)
        env = dataclasses.replace(env, model=model)
        first = self.run(env)
        rollouts, calls = self.play(first, env), model.calls
        assert self.play(first.replay(), env) == rollouts
        assert model.calls == calls, "a replay asked the model"

    def test_the_same_example_begins_the_same_episode(self) -> None:
        runs = []
        for env in (self.environment(), self.environment()):
            runs.append(self.run(env))
            self.play(runs[-1], env)
        first, second = (_beginnings(run) for run in runs)
        assert first == second, "the same example begins in another way the second time"

    def test_the_order_of_branches_does_not_matter(self) -> None:
        env = self.environment()
        expected = self._in_order(env, None)
        for order in (1, 2):
            assert self._in_order(env, order) == expected, "rollouts depend on which episode ends first"

    def test_samples_are_numbered(self) -> None:
        env = self.environment()
        if not env.scores:
            model = _counting(env.model)
            env = dataclasses.replace(env, model=model)
            assert {r.sample for r in self.play(self.run(env), env, sample=3)} == {3}
            assert {request.sample for request in model.requests} == {3}, (
                "the number does not reach the model"
            )

    def test_asks_no_more_than_it_says(self) -> None:
        env = self.environment()
        run = self.run(env)
        self.play(run, env)
        most = self._calls(env) * len(env.train)
        assert run.spent["task"] <= most, f"{run.spent['task']} calls of the task model, {most} foreseen"
        assert set(run.spent) <= {"task", "judge"}, (
            f"an environment asks the task model; this one {sorted(run.spent)}"
        )

    def test_does_not_catch_the_end_of_the_budget(self) -> None:
        env = self.environment()
        plain = self.run(env)
        self.play(plain, env)
        cap = plain.spent["task"] - 1
        run = self.run(env, caps={"task": cap})
        try:
            self.play(run, env)
        except BudgetExceeded:
            assert run.refused["task"] == 1, "the environment went on after the budget had ended"
        else:
            raise AssertionError(f"the environment swallowed BudgetExceeded at {cap} calls")

    def test_leaves_the_examples_as_they_are(self) -> None:
        env = self.environment()
        before = copy.deepcopy(env.train)
        self.play(self.run(env), env)
        assert env.train == before, "playing changed an example"

    def test_checks_rows_before_anything_is_paid(self) -> None:
        world, bad = self.world(), self.bad_example()
        if world is None:
            return
        for example in self.environment().train:
            world.check(example)
        if bad is not None:
            try:
                world.check(bad)
            except UsageError as error:
                assert bad.id in str(error), "the message names the row"
            else:
                raise AssertionError("a row that no episode can begin with is not refused")

    def _in_order(self, env: Environment, order: int | None) -> tuple[list[Rollout], list[str]]:
        """Rollouts, and the requests behind them, when branches run in another order than that of the examples."""
        model = _counting(env.model)
        run: MeteredRun = MeteredRun({"task": model}) if order is None else ShuffledRun({"task": model})
        if isinstance(run, ShuffledRun):
            run.order = order or 0
        rollouts = self.play(run, dataclasses.replace(env, model=model))
        return rollouts, sorted(map(repr, model.requests))

    def _calls(self, env: Environment) -> int:
        return int(getattr(env, "calls", 1)) + (TARGET_SCORE in env.reward.needs)


class _Counting:
    """The model, with the number of its calls and the requests that reach it."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.address, self.simulated, self.local = model.address, model.simulated, model.local
        self.can_generate, self.can_score = model.can_generate, model.can_score
        self.calls = 0
        self.requests: list[Request] = []

    async def generate(self, request: Request) -> list[Completion]:
        """The model's answer."""
        self.calls += 1
        self.requests.append(request)
        return await self._model.generate(request)

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """The model's text."""
        self.calls += 1
        return await self._model.score(prompts, inputs, continuations)

    def count_tokens(self, text: str) -> int:
        """Tokens, as the model counts them."""
        return self._model.count_tokens(text)

    async def close(self) -> None:
        """The model is closed by whoever opened it."""


class _CountingBatch(_Counting):
    """The same for a model that answers batches."""

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The model's answer."""
        self.calls += 1
        self.requests += requests
        assert isinstance(self._model, BatchModel)
        return await self._model.generate_batch(requests)


def _counting(model: LanguageModel) -> _Counting:
    return _CountingBatch(model) if isinstance(model, BatchModel) else _Counting(model)


class _Saying(_Counting):
    """A model that always says one text."""

    def __init__(self, model: LanguageModel, text: str) -> None:
        super().__init__(model)
        self._text = text

    async def generate(self, request: Request) -> list[Completion]:
        """The text."""
        return [Completion(self._text)]


def _beginnings(run: RecordedRun) -> dict[str, object]:
    """The first effect or request of each branch."""
    first: dict[str, tuple[int, object]] = {}
    for key, (what, _) in run.record.items():
        branch, _, position = key.rpartition("/")
        first[branch] = min(
            first.get(branch, (int(position), what)), (int(position), what), key=lambda pair: pair[0]
        )
    return {branch: what for branch, (_, what) in first.items()}
