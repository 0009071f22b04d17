"""The reward of a task made of several: each row is graded by the reward of its case, on one scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from whet.rewards.reward import RewardFunction, judge_calls_of
from whet.run import Run
from whet.types import Completion, Example, Reward


@dataclass(frozen=True)
class CaseRewards:
    """The rewards of the cases by name; a reward counts as its place in its own range, so that all lie in [0, 1].

    `worst`: the worst case is what a prompt is worth, not the mean over cases. `weakest`: the case on which the start prompt was
    worst on validation rows, once that is known; the gate needs it for the worst case.
    """

    rewards: Mapping[str, RewardFunction] = field(default_factory=dict)
    worst: bool = False
    weakest: str = ""
    name: str = "cases"
    low: float = 0.0
    high: float = 1.0

    @property
    def needs(self) -> frozenset[str]:
        """The requirements of all of them together."""
        return frozenset[str]().union(*(reward.needs for reward in self.rewards.values()))

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout at most."""
        return max(map(judge_calls_of, self.rewards.values()), default=0)

    @property
    def judge_calls_without_target(self) -> int:
        """The judge calls for a row without a target."""
        return max((judge_calls_of(one, targets=False) for one in self.rewards.values()), default=0)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """The reward of the row's case, as its place in that reward's range."""
        reward = self.rewards[example.case]
        graded = await reward.grade(run, example, completion)
        return replace(graded, value=place_in_range(graded.value, reward))


def place_in_range(value: float, reward: RewardFunction) -> float:
    """The position of a value between the bounds of a reward, in [0, 1]; 0 where the reward has one value only."""
    return min(1.0, max(0.0, (value - reward.low) / ((reward.high - reward.low) or 1.0)))
