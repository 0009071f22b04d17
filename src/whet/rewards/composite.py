"""A weighted sum of rewards, for example perplexity + F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.rewards.reward import LabelReward, RewardFunction, judge_calls_of, part_names_of
from whet.run import Run
from whet.types import Completion, Example, Reward


@dataclass(frozen=True)
class Weighted:
    """Sum of weight * reward over the parts; every part is also reported by its name."""

    parts: Sequence[tuple[float, RewardFunction]]
    name: str = "weighted"
    batched = True

    @property
    def low(self) -> float:
        return sum(min(w * r.low, w * r.high) for w, r in self.parts)

    @property
    def high(self) -> float:
        return sum(max(w * r.low, w * r.high) for w, r in self.parts)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(r.needs for _, r in self.parts))

    @property
    def part_names(self) -> frozenset[str] | None:
        """The names of its rewards and of their parts; None where one of them does not know its own."""
        known = frozenset(reward.name for _, reward in self.parts)
        for _, reward in self.parts:
            names = part_names_of(reward)
            if names is None:
                return None
            known |= names
        return known

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout."""
        return sum(judge_calls_of(reward) for _, reward in self.parts)

    @property
    def judge_calls_without_target(self) -> int:
        """The judge calls for a row without a target."""
        return sum(judge_calls_of(reward, targets=False) for _, reward in self.parts)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        total = 0.0
        named: dict[str, float] = {}
        critiques: list[str] = []
        addressed: dict[str, str] = {}
        names = {reward.name for _, reward in self.parts}
        for weight, reward in self.parts:
            result = await reward.grade(run, example, completion)
            total += weight * result.value
            for part, value in result.parts.items():
                taken = part in named or part in names - {reward.name}
                named[f"{reward.name}: {part}" if taken else part] = value
            named[reward.name] = result.value
            if result.critique:
                critiques.append(result.critique)
                for name, text in (result.addressed or {"": result.critique}).items():
                    addressed[name] = f"{addressed[name]}\n{text}" if name in addressed else text
        critique = "\n".join(dict.fromkeys(critiques)) or None
        return Reward(total, named, critique, addressed if any(addressed) else {})

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        total = np.zeros(probs.shape[:2])
        for weight, reward in self.parts:
            if not isinstance_label_reward(reward):
                raise TypeError(f"{reward.name} cannot be computed from label probabilities alone")
            total += weight * reward.from_labels(probs, targets)  # type: ignore[attr-defined]
        return total


def isinstance_label_reward(reward: RewardFunction | LabelReward) -> bool:
    """Whether the whole reward can be computed from label probabilities for many prompts at once."""
    if isinstance(reward, Weighted):
        return reward.batched and all(isinstance_label_reward(r) for _, r in reward.parts)
    return hasattr(reward, "from_labels")
