"""A reward that also pays for short answers, once they are right.

Song and Zheng 2025, "Walk Before You Run!" (ConciseR, arXiv:2505.21178): length counts only where the answers are right, in a
second phase of training after one that was about being right. Fatemi et al. 2025, "Concise Reasoning via Reinforcement Learning"
(arXiv:2504.05185): such a second phase needs only a few rows that can be solved. Difference: ConciseR looks at all answers of a
group, and this reward at one answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.errors import UsageError
from whet.rewards.composite import Weighted
from whet.run import Run
from whet.types import Completion, Example, Reward


@dataclass(frozen=True)
class Concise(Weighted):
    """(1 - share) r + share [r is full] (1 - min(1, length / characters)), with r of the wrapped reward in its range.

    The length is that of answer and thought, in characters. Any right answer earns at least what the best answer that is not
    right does, and of two right ones the shorter more. Part: `length`, in characters.
    """

    share: float = 0.2
    characters: int = 2000
    name: str = "concise"
    batched = False

    def __post_init__(self) -> None:
        """Refuse a share that is none, and no characters."""
        if not 0 < self.share < 1:
            raise UsageError(f"the option share of concise must be between 0 and 1; this is {self.share!r}.")
        if self.characters < 1:
            raise UsageError(
                f"the option characters of concise must be 1 or more; this is {self.characters!r}."
            )

    @property
    def low(self) -> float:
        return self.parts[0][1].low

    @property
    def high(self) -> float:
        return self.parts[0][1].high

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        inner = self.parts[0][1]
        graded = await inner.grade(run, example, completion)
        length = len(completion.text) + len(completion.thought)
        parts = {**graded.parts, inner.name: graded.value, "length": float(length)}
        width, share = inner.high - inner.low, (graded.value - inner.low) / (inner.high - inner.low)
        right = graded.value >= inner.high
        spared = max(0.0, 1 - length / self.characters) if right else 0.0
        value = inner.low + width * ((1 - self.share) * share + self.share * spared)
        critique = graded.critique
        if right and not critique:
            critique = f"The answer is right, and {length:,} characters long; shorter is better."
        return Reward(value, parts, critique, graded.addressed)
