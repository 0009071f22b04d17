"""A reward mixed with parts of itself on some rows: what a search is led by, beside what counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.errors import UsageError, did_you_mean
from whet.rewards.reward import RewardFunction, judge_calls_of
from whet.run import Run
from whet.types import Completion, Example, Reward

SHORT, LONGEST = "short", 2000
"""The part that every answer has: the share of 2,000 characters that it does not use."""


@dataclass(frozen=True)
class MixedReward:
    """(1 - sum of w_i) r + sum of w_i a_i on certain `rows` (ids), and r on all others, with r the wrapped reward.

    The a_i are named parts of the same grade, held within the range of r, or `short`. `weights` are 0 or more; their sum is 1 at
    most. Part `plain`: r. Raises UsageError for a part that an answer lacks.
    """

    reward: RewardFunction
    weights: Sequence[tuple[str, float]]
    rows: frozenset[str]
    name: str = "mixed"

    @property
    def low(self) -> float:
        return self.reward.low

    @property
    def high(self) -> float:
        return self.reward.high

    @property
    def needs(self) -> frozenset[str]:
        return self.reward.needs

    @property
    def judge_calls(self) -> int:
        """Those of the wrapped reward."""
        return judge_calls_of(self.reward)

    @property
    def judge_calls_without_target(self) -> int:
        """Those of the wrapped reward."""
        return judge_calls_of(self.reward, targets=False)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        graded = await self.reward.grade(run, example, completion)
        if example.id not in self.rows:
            return graded
        used = min(LONGEST, len(completion.text))
        width = self.high - self.low
        known = {SHORT: self.low + width * (1 - used / LONGEST), **graded.parts}
        value = (1 - sum(weight for _, weight in self.weights)) * graded.value
        for part, weight in self.weights:
            if part not in known:
                raise UsageError(f'the reward has no part "{part}".{did_you_mean(part, known)}')
            value += weight * min(self.high, max(self.low, known[part]))
        return replace(graded, value=value, parts={**graded.parts, "plain": graded.value})
