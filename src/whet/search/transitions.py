"""A task model that predicts what its actions would bring, from recorded transitions in its context, and acts by that.

Brooks, Walls, Lewis, Singh: Large Language Models can Implement Policy Iteration. NeurIPS 2023. arXiv:2210.03821.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest

from whet._util.fields import PositiveInt, PositiveProbability
from whet.environments import ActorAction, ActorObservation, Episode, SingleTurn
from whet.environments.environment import Environment, as_environment_type
from whet.environments.games import find_action
from whet.environments.multiturn import MultiTurn
from whet.errors import UsageError, named_fields
from whet.prompt import Prompt
from whet.replies import json_values
from whet.run import Run
from whet.types import Example, Message, Request, Usage


@named_fields
@dataclass(frozen=True)
class Planning:
    """The settings by which returns are predicted."""

    horizon: PositiveInt = 6
    """Steps of a predicted rollout at most."""
    gamma: PositiveProbability = 0.8
    """Discount of a reward that is one step later."""
    shown: PositiveInt = 8
    """Transitions that a question shows at most."""
    successes: PositiveInt = 8
    """Last successful episodes that are imitated in rollouts."""
    argmax: bool = True
    """Whether the action with the largest predicted return is taken; else the one of the successes."""
    balanced: bool = True
    """Whether each outcome is shown as often as the others."""


@dataclass(frozen=True)
class Transition:
    """A state, what was done in it, the reward, whether that ended the episode, and the state after it."""

    seen: str
    action: str
    reward: float
    done: bool
    after: str


@dataclass
class TransitionMemory:
    """The state that is kept: actions, all transitions, and those of each success, the oldest first."""

    actions: list[str]
    transitions: list[Transition] = field(default_factory=list)
    successes: list[list[Transition]] = field(default_factory=list)

    def store(self, episode: Sequence[Transition], success: bool) -> None:
        """Take in an episode."""
        self.transitions += episode
        self.successes += [list(episode)] if success else []

    def save(self) -> bytes:
        """All of it as JSON."""
        return json.dumps(asdict(self)).encode()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        facts = next(iter(json_values(blob.decode(errors="replace"))), None)
        if not isinstance(facts, dict) or facts.keys() != {"actions", "transitions", "successes"}:
            raise UsageError(
                "this is not a memory of transitions: it holds no actions, transitions and successes."
            )
        self.actions = facts["actions"]
        self.transitions = [Transition(**fact) for fact in facts["transitions"]]
        self.successes = [[Transition(**one) for one in episode] for episode in facts["successes"]]

    def recall(self, run: Run, action: str, outcome: str, how: Planning) -> list[Transition]:
        """Transitions of an action in random order, each value of the `outcome` (reward, done) as often as the others."""
        same = [transition for transition in self.transitions if transition.action == action]
        drawn = run.rng.sample(same, len(same))
        if not how.balanced:
            return drawn[: how.shown]
        groups: dict[object, list[Transition]] = {}
        for one in drawn:
            groups.setdefault(getattr(one, outcome), []).append(one)
        dealt = [one for turn in zip_longest(*groups.values()) for one in turn if one is not None]
        return run.rng.sample(dealt[: how.shown], min(how.shown, len(dealt)))

    def imitate(self, run: Run, how: Planning) -> list[Transition]:
        """Transitions of the last successes, in random order."""
        steps = [one for episode in self.successes[-how.successes :] for one in episode]
        return run.rng.sample(steps, min(how.shown, len(steps)))


@dataclass(frozen=True)
class Planner:
    """The task model as an actor that predicts the return of each action first. `explore`: at random while it has seen little."""

    memory: TransitionMemory
    how: Planning
    horizon: int
    explore: bool = False

    @property
    def calls(self) -> int:
        """Calls of the task model for one action at most."""
        return len(self.memory.actions) * (4 * self.horizon - 3) if self.how.argmax else 1

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """One action in each conversation: its first message describes the task, and its last message the state."""

        async def one(branch: Run, seen: ActorObservation) -> ActorAction:
            task, state, actions = seen.messages[0].content, seen.messages[-1].content, self.memory.actions
            few = math.exp(min(100.0, 2.0 * (3 - len(self.memory.successes))))
            if self.explore and branch.rng.random() >= 1 / (1 + few):
                return ActorAction(branch.rng.choice(actions))
            if not self.how.argmax:
                text, usage = await self.ask(
                    branch, task, ACTION, self.memory.imitate(branch, self.how), state
                )
                return ActorAction(find_action(text, actions) or branch.rng.choice(actions), usage)
            values = await branch.map(lambda b, action: self.imagine(b, task, state, action), actions)
            best = max(value for value, _ in values)
            chosen = branch.rng.choice(
                [a for a, (value, _) in zip(actions, values, strict=True) if value >= best]
            )
            return ActorAction(chosen, sum((usage for _, usage in values), Usage()))

        return await run.map(one, observations)

    async def imagine(self, run: Run, task: str, state: str, action: str) -> tuple[float, Usage]:
        """The discounted return of an action as the model predicts it, and the tokens of that."""
        memory, how, total, spent = self.memory, self.how, 0.0, Usage()
        for step in range(self.horizon):
            if not (known := memory.recall(run, action, "reward", how)):
                break
            text, usage = await self.ask(run, task, REWARD, known, state, action)
            spent, number = spent + usage, NUMBER.search(text)
            if number is None:
                break
            rewards = [transition.reward for transition in memory.transitions]
            total += how.gamma**step * min(max(rewards), max(min(rewards), float(number[0])))
            if step + 1 == self.horizon:
                break
            text, usage = await self.ask(
                run, task, DONE, memory.recall(run, action, "done", how), state, action
            )
            spent += usage
            going = [one for one in memory.recall(run, action, "done", how) if not one.done]
            if text.strip().casefold().startswith(YES) or not going:
                break
            state, usage = await self.ask(run, task, AFTER, going, state, action)
            spent += usage
            text, usage = await self.ask(run, task, ACTION, memory.imitate(run, how), state)
            spent, named = spent + usage, find_action(text, memory.actions)
            if not state or named is None:
                break
            action = named
        return total, spent

    async def ask(
        self, run: Run, task: str, kind: str, shown: Sequence[Transition], state: str, action: str = ""
    ) -> tuple[str, Usage]:
        """The model's continuation after `kind`, given transitions in the same form; '' if the call failed."""
        pairs = [*((one.seen, one.action, answer(kind, one)) for one in shown), (state, action, "")]
        items = [
            f"{STATE} {seen}\n" + (f"{ACTION} {did}\n" if kind != ACTION else "") + f"{kind} {known}".strip()
            for seen, did, known in pairs
        ]
        text = "\n\n".join([f"{task.strip()}\n\n{CONTINUE}".strip(), *items])
        heat = 0.0 if kind == ACTION else WARM
        reply = (await run.generate("task", Request((Message("user", text),), heat)))[0]
        written = reply.text.strip().removeprefix(kind).strip()
        return ("" if reply.error else written.partition("\n\n")[0]), reply.usage


def answer(kind: str, one: Transition) -> str:
    """The part of a transition after `kind`."""
    return {REWARD: f"{one.reward:g}", DONE: YES if one.done else NO, AFTER: one.after, ACTION: one.action}[
        kind
    ]


@dataclass(frozen=True)
class Planned(MultiTurn):
    """Episodes whose first message is the instruction, and whose last one is the observation alone."""

    def episode(self, prompt: Prompt, example: Example) -> Episode:
        """The example under the prompt, ready to be played."""
        seen = example if self.world is None else self.world.observe(example)
        opening = Message("system", prompt.region_text()), Message("user", seen.user_text)
        return SingleTurn(opening) if self.world is None else self.world.reset(example, opening)


def planner(env: Environment, memory: TransitionMemory, how: Planning, *, explore: bool = False) -> Planner:
    """The actor of a task with this memory; no rollout is longer than an episode."""
    turns = int(getattr(getattr(env, "world", None), "turns", 1))
    return Planner(memory, how, min(how.horizon, turns), explore)


def planning_environment(
    env: Environment, memory: TransitionMemory, how: Planning, *, explore: bool = False
) -> Planned:
    """The task in which a planner with this memory acts."""
    actor = planner(env, memory, how, explore=explore)
    return as_environment_type(env, Planned, scores=False, actor=actor)


WARM = 0.1
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
STATE, ACTION, REWARD, DONE, AFTER = "Seen:", "Action:", "Reward:", "Over:", "Seen next:"
YES, NO = "yes", "no"
CONTINUE = "Continue in the same form. Write only what belongs behind the last colon."
