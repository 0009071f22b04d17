"""The reward of an episode that gives its own rewards: their sum."""

from __future__ import annotations

from dataclasses import dataclass

from whet.environments.episodes import Trajectory
from whet.rewards import RewardFailed
from whet.run import Run
from whet.types import Completion, Example, Reward


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
