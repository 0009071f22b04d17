"""Rewards computed from a model's own log-probabilities: gap, log-likelihood of the label, confidence, perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.rewards.reward import LABELS, TARGET, TARGET_SCORE
from whet.run import Run
from whet.types import Completion, Example, Reward


def target_gap(probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """p[y] - max over other labels of p, shape (P, E).

    The target is masked by index, so that an exact tie gives 0. Masking every entry that *equals* p[y],
    as some published code does, turns a uniform distribution into a large false reward.
    """
    index = np.broadcast_to(targets[None, :, None], (*probs.shape[:2], 1))
    own = np.take_along_axis(probs, index, axis=-1)[..., 0]
    others = probs.copy()
    np.put_along_axis(others, index, -np.inf, axis=-1)
    gap: NDArray[np.float64] = own - others.max(axis=-1)
    return gap


@dataclass(frozen=True)
class Gap:
    """Piecewise gap reward (RLPrompt, Deng et al. 2022, section 3.2): gap * (right if gap > 0 else wrong).

    `gap = p[y] - max over other labels`. Range [-wrong, right]; the paper's weights are 180 and 200.
    """

    wrong: float = 180.0
    right: float = 200.0
    name: str = "gap"
    needs: frozenset[str] = frozenset({LABELS, TARGET})

    def __post_init__(self) -> None:
        if not (self.wrong > 0 and self.right > 0):
            raise UsageError(
                f"the weights of gap must be above 0; these are wrong={self.wrong}, right={self.right}."
            )

    @property
    def low(self) -> float:
        return -self.wrong

    @property
    def high(self) -> float:
        return self.right

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if completion.label_probs is None:
            raise UsageError("The gap reward needs a model that can score labels (embedded/..., hf/...).")
        names = list(completion.label_probs)
        probs = np.array([[[completion.label_probs[n] for n in names]]])
        value = float(self.from_labels(probs, np.array([names.index(str(example.target))]))[0, 0])
        return Reward(value)

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        gap = target_gap(probs, targets)
        return np.where(gap > 0, self.right * gap, self.wrong * gap)


@dataclass(frozen=True)
class Likelihood:
    """Natural log-probability of the right label, floored at `floor` nats. Range [floor, 0]."""

    floor: float = -10.0
    name: str = "likelihood"
    high: float = 0.0
    needs: frozenset[str] = frozenset({LABELS, TARGET})

    def __post_init__(self) -> None:
        if not self.floor < 0:
            raise UsageError(f"the floor of likelihood must be below 0 nats; this is {self.floor}.")

    @property
    def low(self) -> float:
        return self.floor

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if completion.label_probs is None:
            raise UsageError(
                "The likelihood reward needs a model that can score labels (embedded/..., hf/...)."
            )
        return Reward(max(self.floor, math.log(max(completion.label_probs[str(example.target)], 1e-300))))

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        index = np.broadcast_to(targets[None, :, None], (*probs.shape[:2], 1))
        own = np.take_along_axis(probs, index, axis=-1)[..., 0]
        return np.maximum(self.floor, np.log(np.maximum(own, 1e-300)))


@dataclass(frozen=True)
class Confidence:
    """0 where another label is more probable; else from `least` to 1 as the right label's probability p rises to `sure`:
    least + (1 - least) * min(1, p / sure).

    The linear blend of the ConfidenceAdapter of gepa (0.1.4), with its figures. There p is the probability of the answer as it
    was written; here it is the share among the labels of the task. Range [0, 1].
    """

    least: float = 0.3
    sure: float = 0.5
    name: str = "confidence"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({LABELS, TARGET})

    def __post_init__(self) -> None:
        if not (0 <= self.least <= 1 and 0 < self.sure <= 1):
            raise UsageError(
                "confidence: least is from 0 to 1, and sure is above 0 and at most 1; "
                f"these are least={self.least}, sure={self.sure}."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if completion.label_probs is None:
            raise UsageError(
                "The confidence reward needs a model that can score labels (embedded/..., hf/...)."
            )
        names = list(completion.label_probs)
        probs = np.array([[[completion.label_probs[n] for n in names]]])
        return Reward(float(self.from_labels(probs, np.array([names.index(str(example.target))]))[0, 0]))

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        index = np.broadcast_to(targets[None, :, None], (*probs.shape[:2], 1))
        own = np.take_along_axis(probs, index, axis=-1)[..., 0]
        blended = self.least + (1.0 - self.least) * np.minimum(1.0, own / self.sure)
        rewards: NDArray[np.float64] = np.where(probs.argmax(-1) == targets, blended, 0.0)
        return rewards


@dataclass(frozen=True)
class Perplexity:
    """Inverse perplexity of the target under the task model: exp(mean token log-probability), in (0, 1].

    1 means that the prompt makes the target certain. The part `perplexity` is the usual figure. Inverting
    keeps the reward bounded, so that it can be mixed with F1 (PRewrite, Kong et al. 2024, section 3) and
    tested.
    """

    name: str = "perplexity"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET, TARGET_SCORE})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if completion.target_score is None:
            raise UsageError(
                "The perplexity reward needs a task model that can score text (hf/..., embedded/...)."
            )
        logprob, tokens = completion.target_score
        mean = logprob / max(1, tokens)
        return Reward(math.exp(min(0.0, mean)), {"perplexity": math.exp(min(700.0, -mean))})
