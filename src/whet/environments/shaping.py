"""Shaping: bonuses for the turns of an episode, which a search sees on training rows and which no test sees.

A bonus says early what the reward says only at the end. The danger is an agent that collects bonuses instead of the reward. With
`repay`, all bonuses of an episode come back in its last turn. That is shaping by a potential over histories (Ng, Harada, Russell:
Policy Invariance Under Reward Transformations, ICML 1999; returns in whet are not discounted):

    Phi(h) = sum of the bonuses of the history h;  Phi = 0 at the start and at the end;  shaped reward = reward + Phi(h') - Phi(h)

The sum of an episode's shaped rewards is then its return, whatever the bonuses are; and from any history h on, what an agent can
still earn is what it could before, less Phi(h), which no later action changes. So every best agent stays one. A bonus then
matters only to learners that give credit turn by turn. Without `repay` it counts in the return: the best agent may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from whet._util.storable import describe_exception
from whet.environments.environment import Environment
from whet.environments.episodes import Conversation, Episode, Return, RewardingWorld, World, WorldStep
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError
from whet.run import Run, convert_record
from whet.types import JSON, Example, content_hash

GRAIN = 2**20
"""Bonuses are multiples of 1 / 2^20, so that adding them and taking them off again leaves a return as it was."""


@dataclass(frozen=True)
class TurnTaken:
    """A turn: its number from 1, what was seen before it, what the actor wrote, and what is seen after it."""

    number: int
    before: str
    text: str
    after: str


class EpisodeBonus(Protocol):
    """The bonuses of one episode."""

    async def of(self, run: Run, turn: TurnTaken) -> float:
        """The bonus of the turn that follows those before; recorded by the run."""
        ...


@runtime_checkable
class TurnBonus(Protocol):
    """A source of bonuses. `most`: the largest sum, up or down, of those of an episode with so many turns; `calls`: calls of the
    judge's model that these take at most."""

    @property
    def name(self) -> str: ...

    def check(self, example: Example) -> None:
        """Raise UsageError for a row that lacks what the bonuses need."""
        ...

    def begin(self, example: Example) -> EpisodeBonus:
        """The bonuses of an episode."""
        ...

    def most(self, turns: int) -> float: ...

    def calls(self, turns: int) -> int: ...


@dataclass(frozen=True)
class Shaping:
    """Bonuses with their weight. `repay`: all of them come back at the end of the episode, so that the optimum stays."""

    bonus: TurnBonus
    weight: float = 1.0
    repay: bool = True
    path: Path | None = None
    """The file that the bonuses come from."""

    @property
    def keeps_optimum(self) -> bool:
        """Whether every agent's return stays what it was."""
        return self.repay


@dataclass(frozen=True)
class ShapedWorld:
    """A world whose episodes of certain `rows` (ids) pay bonuses too."""

    world: World
    shaping: Shaping
    rows: frozenset[str]

    @property
    def name(self) -> str:
        """The version of the world, and of the bonuses."""
        return f"{self.world.name}, shaped by {self.shaping.bonus.name}"

    @property
    def turns(self) -> int:
        """The number of turns of the world."""
        return self.world.turns

    @property
    def graded(self) -> bool:
        """Whether the reward of the task grades the final answer, as in the world."""
        return self.world.graded

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of the world."""
        return tuple(getattr(self.world, "actions", ()))

    @property
    def range(self) -> tuple[float, float]:
        """The range of the world's reward, extended by the bonuses that are not repaid."""
        low, high = self.world.range if isinstance(self.world, RewardingWorld) else (0.0, 1.0)
        more = 0.0 if self.shaping.repay else self.shaping.weight * self.shaping.bonus.most(self.turns)
        return low - more, high + more

    @property
    def judge_calls(self) -> int:
        """Those of the world and of the bonuses."""
        return int(getattr(self.world, "judge_calls", 0)) + self.shaping.bonus.calls(self.turns)

    def check(self, example: Example) -> None:
        """Raise UsageError for a row that the world or the bonuses cannot use."""
        self.world.check(example)
        self.shaping.bonus.check(example)

    def observe(self, example: Example) -> Example:
        """Return the observation of the world."""
        return self.world.observe(example)

    def reset(self, example: Example, opening: Conversation) -> Episode:
        """The episode of the world; with bonuses on the rows that have some."""
        episode = self.world.reset(example, opening)
        if example.id not in self.rows:
            return episode
        first = self.world.observe(example).user_text
        return ShapedEpisode(episode, self.shaping, self.shaping.bonus.begin(example), first)


class ShapedEpisode:
    """An episode that pays bonuses; their sum is the note `shaped`."""

    def __init__(self, episode: Episode, shaping: Shaping, bonus: EpisodeBonus, first: str) -> None:
        self.opening, self.turns = episode.opening, episode.turns
        self._episode, self._shaping, self._bonus = episode, shaping, bonus
        self._seen, self._taken, self._paid = first, 0, 0.0

    async def step(self, run: Run, text: str) -> WorldStep:
        """The world's reply, with the bonus in the reward. Where bonuses are repaid, the last turn subtracts all that were
        paid."""
        step = await self._episode.step(run, text)
        self._taken += 1
        if self._shaping.repay and (step.done or step.error is not None or self._taken == self.turns):
            value = -self._paid
        else:
            bonus = await self._bonus.of(run, TurnTaken(self._taken, self._seen, text, step.observation))
            value = round(self._shaping.weight * bonus * GRAIN) / GRAIN
        self._seen, self._paid = step.observation, self._paid + value
        return replace(step, reward=step.reward + value, notes={**step.notes, "shaped": value})


def shaped_for_search(env: Environment, shaping: Shaping | None) -> Environment:
    """The environment as a search sees it: with bonuses on training rows. Validation rows, and the environment in which start and
    result are compared, have none."""
    if shaping is None or not isinstance(env, MultiTurn) or env.world is None:
        return env
    world = ShapedWorld(env.world, shaping, frozenset(row.id for row in env.train))
    if not isinstance(env.reward, Return):
        return multiturn(env, world)
    more = 0.0 if shaping.repay else shaping.weight * shaping.bonus.most(world.turns)
    wider = Return(env.reward.low - more, env.reward.high + more)
    return replace(multiturn(env, world), reward=wider)


def check_shaping(shaping: Shaping, world: World, rows: Collection[Example]) -> None:
    """Raise UsageError for bonuses that this world cannot pay, and for rows that lack what they need."""
    if world.graded and not shaping.repay:
        raise UsageError(
            "`repay: false` adds bonuses to the return, and the reward of this task grades the final answer, not the return. "
            "Remove it: with `repay`, bonuses reach the learners that give credit turn by turn."
        )
    for row in rows:
        shaping.bonus.check(row)


@dataclass(frozen=True)
class Potential:
    """The difference of a potential of what is seen, from 0 (far from the goal) to 1: the bonus of a turn is what it gained.

    `function(seen, row)` gets the observation as text and the whole row.
    """

    function: Callable[..., object]
    name: str = "a potential"

    def check(self, example: Example) -> None:
        """Every row will do."""

    def most(self, turns: int) -> float:
        """The whole way."""
        return 1.0

    def calls(self, turns: int) -> int:
        """None."""
        return 0

    def begin(self, example: Example) -> EpisodeBonus:
        """The differences in an episode."""
        return _Climb(self, {**example.row})

    def value(self, seen: str, row: Mapping[str, Any]) -> float:
        """The potential. Raises UsageError where the function fails, or returns no number from 0 to 1."""
        try:
            value: Any = self.function(seen, dict(row))
        except Exception as error:
            raise UsageError(f"potential() failed: {describe_exception(error)}. Correct it.") from error
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"potential() returned {value!r}. It returns a number from 0 to 1.")
        return float(value)


@dataclass
class _Climb:
    potential: Potential
    row: Mapping[str, Any]

    async def of(self, run: Run, turn: TurnTaken) -> float:
        async def compute() -> object:
            return self.potential.value(turn.after, self.row) - self.potential.value(turn.before, self.row)

        args: JSON = [turn.number, content_hash([turn.before, turn.after])]
        return convert_record(await run.effect("potential", compute, args), float)
