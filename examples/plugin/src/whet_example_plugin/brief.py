"""brief: the last word of the answer is right, and few words stand before it."""

from __future__ import annotations

from dataclasses import dataclass

from whet import Completion, Example, Reward, Run
from whet.rewards import TARGET


@dataclass(frozen=True)
class Brief:
    """1 for the right last word within `words` words, less the longer the answer is, 0 for a wrong one."""

    words: int = 6
    name: str = "brief"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """The reward of one answer, with a critique where it is not full."""
        spoken = completion.text.split()
        right = bool(spoken) and spoken[-1] == str(example.target)
        if not right:
            return Reward(0.0, critique=f"The last word should be {str(example.target)!r}.")
        value = min(1.0, self.words / len(spoken))
        critique = f"Right, but after {len(spoken)} words; {self.words} are enough." if value < 1 else None
        return Reward(value, {"words": float(len(spoken))}, critique)
