"""Guide: learning from texts that were written with a hint, as if the policy had written them without it.

Guide-GRPO (Nath et al. 2025, arXiv:2506.13923). A question that the policy always fails is asked again with a hint;
what succeeds is trained on the question alone. The old log-probabilities are those under the hint, so the ratio
rho = policy(o | q) / behaviour(o | q, hint) is far from 1; it is shaped instead of clipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whet.rewards.text import targets_of
from whet.types import Example, Message

LEAST_GAMMA = 1e-4
SOLVED, UNSOLVED = 0.999, 0.001


def shaped(ratio: Tensor, gamma: float) -> Tensor:
    """rho / (rho + gamma), of any shape: 0 for tokens that the policy would never write, at most 1."""
    return ratio / (ratio + gamma)


def gamma_of(ratios: Tensor, quantile: float = 0.9) -> float:
    """The `quantile` of the ratios of all hinted tokens of a batch (N,), at least 1e-4."""
    if not len(ratios):
        return LEAST_GAMMA
    return max(LEAST_GAMMA, float(torch.quantile(ratios.float(), quantile)))


def with_hint(conversation: Sequence[Message], hint: str) -> tuple[Message, ...]:
    """The conversation with a hint at the end of its last message."""
    *before, last = conversation
    return (*before, Message(last.role, f"{last.content}\n\nHint: {hint}"))


def of_examples(examples: Sequence[Example], most: int = 3) -> str:
    """The hint for a policy that writes prompts: answers that are wanted, of the first `most` examples with a target."""
    lines = [f"{e.user_text.strip()} -> {targets_of(e)[0]}" for e in examples if e.target is not None]
    return "; ".join(lines[:most])


def needs_hint(accuracies: Sequence[float]) -> list[int]:
    """Positions of the groups whose accuracy is below 0.001: everything failed."""
    return [i for i, accuracy in enumerate(accuracies) if accuracy < UNSOLVED]


def worth_training(accuracies: Sequence[float]) -> list[int]:
    """Positions of the groups with an accuracy within (0.001, 0.999): not everything failed, nor succeeded."""
    return [i for i, accuracy in enumerate(accuracies) if UNSOLVED < accuracy < SOLVED]
