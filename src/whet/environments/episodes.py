"""The interface of a world: episodes of several turns between an actor and an environment that answers it.

A single question with a single answer is the special case of one turn (`SingleTurn`). Whatever a world does that
costs money, time or chance goes through `run`, so that a resumed run finds its episodes as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from whet.replies import indent_further_lines
from whet.rewards import RewardFailed
from whet.run import Run
from whet.types import JSON, Completion, Example, Message, Reward, Usage

Conversation: TypeAlias = tuple[Message, ...]
FREE = Usage()
"""The usage of what costs no tokens."""


@dataclass(frozen=True, slots=True)
class ActorAction:
    """The actor's text of one turn.

    `error` is None or `boundary: what happened`; the episode then ends. `record` is what has to be remembered of
    the turn to learn from it, such as the tokens that a network chose; plain JSON. `cut`: the text ended at the token limit.
    """

    text: str
    usage: Usage = FREE
    error: str | None = None
    record: JSON = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ActorObservation:
    """The actor's view at the start of its turn.

    `messages`: the whole conversation. `news`: those of them that came after its last turn (all, before its first),
    and `record`: what it recorded in that turn.
    """

    messages: Conversation
    news: Conversation = ()
    record: JSON = None

    @classmethod
    def first(cls, messages: Conversation) -> ActorObservation:
        """A conversation in which the actor has not spoken yet."""
        return cls(messages, messages)


class Actor(Protocol):
    """The speaker in an episode: the task model, a network, or a system of both."""

    @property
    def calls(self) -> int:
        """Calls of the task model for one answer at most."""
        ...

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """One answer to each conversation, in order. `sample` numbers independent attempts."""
        ...


@dataclass(frozen=True, slots=True)
class WorldStep:
    """The world's reply to an action: a new observation and a reward, or the end."""

    observation: str = ""
    reward: float = 0.0
    done: bool = False
    answer: str | None = None
    """The final answer of the episode, if the actor gave one."""
    usage: Usage = FREE
    """Of a model that the world had to ask."""
    error: str | None = None
    """Of a model that the world had to ask."""
    notes: Mapping[str, float] = field(default_factory=dict)
    """Figures of this turn (0 or 1 for something that happened), summed over the episode and reported by name."""
    call: Mapping[str, JSON] | None = None
    """The tool that was called: its name, arguments and error, for a reward that reads the steps of an episode."""


class Episode(Protocol):
    """One example being played. It keeps its own state and counts its own turns."""

    @property
    def opening(self) -> Conversation:
        """The messages that the actor reads before its first turn, one or more."""
        ...

    @property
    def turns(self) -> int:
        """The largest number of turns of the actor, 1 or more."""
        ...

    async def step(self, run: Run, text: str) -> WorldStep:
        """The world's reply to the actor's text."""
        ...


@runtime_checkable
class World(Protocol):
    """A maker of episodes: the same example always begins the same episode.

    `graded` says where the reward of a rollout comes from: True when the task's reward grades the final answer,
    False when the episode itself gives rewards (`Return`). `turns` bounds every episode.
    """

    @property
    def name(self) -> str: ...
    @property
    def turns(self) -> int: ...
    @property
    def graded(self) -> bool: ...

    def check(self, example: Example) -> None:
        """Raise UsageError for a row that no episode can begin with; it is called before anything is paid."""
        ...

    def observe(self, example: Example) -> Example:
        """The example as the prompt shows it: its text is the first observation."""
        ...

    def reset(self, example: Example, opening: Conversation) -> Episode:
        """A new episode, after the prompt has been rendered into its `opening`."""
        ...


@runtime_checkable
class RewardingWorld(World, Protocol):
    """A world whose episodes give their own rewards (`graded` is False)."""

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest return that is possible."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the actor read last, what it wrote, and what the world gave for that."""

    observation: str
    action: ActorAction
    reward: float = 0.0
    call: Mapping[str, JSON] | None = None

    @property
    def text(self) -> str:
        """The actor's text."""
        return self.action.text


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode from its opening to its end."""

    opening: Conversation
    turns: tuple[Turn, ...]
    end: Literal["done", "turns", "error"]
    """`done`: the world ended it. `turns`: the turns ran out. `error`: a model failed."""
    answer: str | None = None
    last: str = ""
    """The last observation."""
    usage: Usage = FREE
    error: str | None = None
    """The error of the model that failed."""
    notes: Mapping[str, float] = field(default_factory=dict)
    """Sums of the figures of all steps."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each turn."""
        return tuple(turn.reward for turn in self.turns)

    @property
    def cut(self) -> bool:
        """Whether a text of the actor ended at the token limit."""
        return any(turn.action.cut for turn in self.turns)

    @property
    def value(self) -> float:
        """The return: the sum of all rewards."""
        return sum(self.rewards)

    def steps(self) -> tuple[dict[str, JSON], ...]:
        """The course of the episode, for a reward that reads it: each text of the model (role `task`), followed by the result
        of a tool (role `tool`) or another observation (role `environment`)."""
        steps: list[dict[str, JSON]] = []
        nexts = [turn.observation for turn in self.turns[1:]]
        for number, turn in enumerate(self.turns):
            steps.append({"role": "task", "name": "", "arguments": {}, "output": turn.text})
            observation = nexts[number] if number < len(nexts) else self.last
            if turn.call is not None:
                steps.append({"role": "tool", **turn.call, "output": observation})
            elif observation:
                steps.append({"role": "environment", "name": "", "arguments": {}, "output": observation})
        return tuple(steps)

    def transcript(self) -> str:
        """The episode as text: observations, actions (after `> `, further lines indented), rewards that are not 0."""
        parts = []
        for turn in self.turns:
            reward = f"\n(reward {turn.reward:g})" if turn.reward else ""
            parts.append(f"{turn.observation}\n> {indent_further_lines(turn.text)}{reward}")
        return "\n".join([*parts, self.last] if self.last else parts)


@dataclass(frozen=True)
class SingleTurn:
    """The single turn: the actor reads a conversation, and what it writes is the answer."""

    opening: Conversation
    turns: int = 1

    async def step(self, run: Run, text: str) -> WorldStep:
        """The end, with the text as the answer."""
        return WorldStep(done=True, answer=text)


@dataclass(frozen=True)
class Return:
    """The sum of an episode's rewards, held within [low, high]."""

    low: float
    high: float
    name: str = "return"
    needs: frozenset[str] = frozenset()

    def of(self, trajectory: Trajectory) -> Reward:
        """The return of a played episode."""
        return Reward(min(self.high, max(self.low, trajectory.value)))

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """Always RewardFailed: a single text has no return."""
        raise RewardFailed("the reward `return` belongs to an episode, and this is a single answer")
