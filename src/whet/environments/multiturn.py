"""Environment whose rollouts are episodes: of a world (`environment:` in task.yaml), of a system, or of both.

A system is a network together with the task model: whoever answers instead of the bare task model. Everything else
(baseline, search, gate, sealed test) asks an environment for rollouts and notices nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet.environments import (
    Actor,
    ActorAction,
    Episode,
    Return,
    SingleTurn,
    TaskModel,
    Trajectory,
    Turn,
    World,
    play,
)
from whet.environments.environment import Environment, as_environment_type, tell_watcher
from whet.errors import quantity
from whet.prompt import Prompt
from whet.run import Run
from whet.types import Completion, Example, Rollout, Score, mean_score


@dataclass(frozen=True)
class MultiTurn(Environment):
    """An environment with a `world` (None: one question, one answer) and an `actor` (None: the task model).

    Labels are read from the answer, never scored: `scores` is False.
    """

    world: World | None = None
    actor: Actor | None = None

    @property
    def calls(self) -> int:
        """Calls of the task model that one rollout makes at most."""
        turns = 1 if self.world is None else self.world.turns
        return turns * (1 if self.actor is None else max(1, self.actor.calls))

    @property
    def judge_calls(self) -> int:
        """Calls of the judge's model that one rollout makes at most: the reward's, and those of a simulated user."""
        return super().judge_calls + int(getattr(self.world, "judge_calls", 0))

    @property
    def supports_batching(self) -> bool:
        """Whether all episodes advance in one batch: a system does, where the model it asks is in this process."""
        return self.actor is not None and self.model.local

    def episode(self, prompt: Prompt, example: Example) -> Episode:
        """The example under the prompt, ready to be played."""
        if self.world is None:
            return SingleTurn(prompt.render(example))
        return self.world.reset(example, prompt.render(self.world.observe(example)))

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order. A system answers all of them together, turn by turn."""
        if self.actor is None:
            return await run.map(lambda branch, e: self.rollout(branch, prompt, e, sample), examples)
        episodes = [self.episode(prompt, example) for example in examples]
        trajectories = await play(run, self.actor, episodes, sample)
        return await self.judge(run, prompt, examples, trajectories, sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt over the examples."""

        async def one(branch: Run, prompt: Prompt) -> Score:
            return mean_score(await self.evaluate(branch, prompt, examples))

        return await run.map(one, prompts)

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of prompt and example."""
        return await run.map(lambda branch, pair: self.rollout(branch, *pair, sample), pairs)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Play one example and grade it."""
        played = await self.play(run, prompt, example, sample)
        return (await self.judge(run, prompt, [example], [played], sample))[0]

    async def play(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Trajectory:
        """Play one example, ungraded."""
        actor = self.actor or task_model(self)
        return (await play(run, actor, [self.episode(prompt, example)], sample))[0]

    async def judge(
        self,
        run: Run,
        prompt: Prompt,
        examples: Sequence[Example],
        trajectories: Sequence[Trajectory],
        sample: int = 0,
    ) -> list[Rollout]:
        """Rollouts from what was played: the task's reward grades the answer, or the episode brought its own.

        The output is the final answer where the world asks for one, else the transcript. Figures of the episode
        (turns, and what the world counted) are parts of the reward.
        """

        async def one(branch: Run, pair: tuple[Example, Trajectory]) -> Rollout:
            example, played = pair
            completion = self.completion(played)
            if completion.error is None and self.labels:
                completion = self._parse_label(completion)
            if isinstance(self.reward, Return) and completion.error is None:
                reward = self.reward.of(played)
                rollout = tell_watcher(
                    prompt,
                    Rollout(
                        prompt.id,
                        example.id,
                        completion.text,
                        reward.value,
                        usage=played.usage,
                        sample=sample,
                        cut=played.cut,
                    ),
                )
            else:
                rollout = await self._grade(branch, prompt, example, completion, sample)
            if self.world is None:
                return rollout
            return replace(
                rollout, parts={**rollout.parts, "turns": float(len(played.turns)), **played.notes}
            )

        return await run.map(one, list(zip(examples, trajectories, strict=True)))

    def completion(self, played: Trajectory) -> Completion:
        """The part of an episode that a reward may grade. An episode without the answer that it owes is an error."""
        error, finish = played.error, "length" if played.cut else "stop"
        if self.world is not None and not self.world.graded:
            return Completion(played.transcript(), finish, played.usage, error)
        if error is None and played.answer is None:
            error = f"parse: no answer within {quantity(len(played.turns), 'turn')}"
        return Completion(played.answer or "", finish, played.usage, error, steps=played.steps())


def task_model(env: Environment) -> TaskModel:
    """The task model as an actor, asked as the task says."""
    g = env.generation
    return TaskModel(g.temperature, g.max_tokens, g.stop, g.schema)


def multiturn(env: Environment, world: World | None = None, actor: Actor | None = None) -> MultiTurn:
    """The same task as episodes: in a world, answered by a system, or both. Arguments that are not given stay as they were."""
    changes = {name: one for name, one in (("world", world), ("actor", actor)) if one is not None}
    return as_environment_type(env, MultiTurn, scores=False, **changes)


async def attempts(
    run: Run, env: Environment, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
) -> list[tuple[str, Rollout]]:
    """One rollout for each pair with what can be read of it: the transcript of an episode, or the answer."""
    plain = not isinstance(env, MultiTurn) or env.world is None
    played = await trajectories(run, env, pairs, sample)
    return [(rollout.output if plain else steps.transcript(), rollout) for steps, rollout in played]


async def trajectories(
    run: Run, env: Environment, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
) -> list[tuple[Trajectory, Rollout]]:
    """One rollout for each pair with its steps: the turns of an episode, the steps of a program, or a question and its answer."""
    if not isinstance(env, MultiTurn) or env.world is None:
        rollouts = await env.rollouts(run, pairs, sample)
        return [(_steps_of(pair[1], rollout), rollout) for pair, rollout in zip(pairs, rollouts, strict=True)]

    async def one(branch: Run, pair: tuple[Prompt, Example]) -> tuple[Trajectory, Rollout]:
        played = await env.play(branch, *pair, sample)
        return played, (await env.judge(branch, pair[0], [pair[1]], [played], sample))[0]

    return await run.map(one, pairs)


def _steps_of(example: Example, rollout: Rollout) -> Trajectory:
    """The trace of a rollout that is no episode."""
    inner = [(str(dict(step.inputs)), step.output) for step in rollout.steps]
    steps = inner or [(example.user_text, rollout.output)]
    turns = tuple(Turn(seen, ActorAction(text)) for seen, text in steps)
    end: Literal["done", "error"] = "done" if rollout.error is None else "error"
    return Trajectory((), turns, end, rollout.output, usage=rollout.usage, error=rollout.error)
