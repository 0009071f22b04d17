"""The reward protocol: an example and a completion in, a number in a declared range out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from whet.run import Run
from whet.types import Completion, Example, Reward

LABELS = "labels"
TARGET = "target"
TARGET_SCORE = "target_score"
JUDGE = "judge"


class RewardFunction(Protocol):
    """A reward with range [low, high]. `needs` names what it cannot do without: labels, target,
    target_score (log-probability of the target under the task model), judge (a judge model). A reward that reads
    `completion.steps` has `reads_steps = True`: its answers are not graded a second time without them. A reward that knows all
    names of its grades' parts beforehand has them as `part_names`, a frozenset; then a wrong name is refused before any call."""

    @property
    def name(self) -> str: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def needs(self) -> frozenset[str]: ...

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """Reward of one completion. Paid parts go through `run`."""
        ...


def judge_calls_of(reward: RewardFunction, *, targets: bool = True) -> int:
    """Calls of a judge for one rollout at most; of a row without a target where there are no `targets`."""
    calls = getattr(reward, "judge_calls", 0)
    return int(calls if targets else getattr(reward, "judge_calls_without_target", calls))


def part_names_of(reward: RewardFunction) -> frozenset[str] | None:
    """The names of all parts that its grades may have; None where only the grades tell."""
    names: frozenset[str] | None = getattr(reward, "part_names", None)
    return names


@runtime_checkable
class AlarmedReward(Protocol):
    """A reward that knows where it cannot be trusted: a search stops there and keeps its best prompt from before."""

    def alarm(self, parts: Mapping[str, float], start: Mapping[str, float]) -> str:
        """Why the reward does not hold for a prompt with these mean parts on validation rows; empty where it does.

        `start`: those of the start prompt, beyond which alone it may ring; {} for the start prompt itself.
        """
        ...


class LabelReward(Protocol):
    """A reward that can be computed for all prompts and examples at once from label probabilities."""

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """`probs` (P, E, L) and target indices (E,) to rewards (P, E)."""
        ...
