"""Losses of policies with weights, per token, each named after its paper.

Shapes: B samples of at most T response tokens, padded behind. Log-probabilities are natural and taken at the temperature
that the samples were drawn at. `old` are those of the behaviour policy, `reference` those of the frozen reference policy;
neither carries gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

KL_CAP = 10.0
"""Largest divergence of one token: exp of a large difference would otherwise swamp the batch."""


def ppo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float = 0.2, high: float = 0.2) -> Tensor:
    """The clipped surrogate of PPO as a loss per token (B, T); Schulman et al. 2017, arXiv:1707.06347, eq. 7.

        -min(rho A, clip(rho, 1 - low, 1 + high) A),   rho = exp(logprobs - old)

    `high` above `low` is the clip-higher of DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 10).
    """
    ratio = (logprobs - old).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def is_clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Whether `ppo` gives a token no gradient because of its clip: bool (B, T)."""
    ratio = (logprobs - old).exp()
    return ((ratio < 1 - low) & (advantages < 0)) | ((ratio > 1 + high) & (advantages > 0))


def importance(logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """Importance-weighted policy gradient without a clip, -rho A per token (B, T): the loss of E-SPL."""
    return -(logprobs - old).exp() * advantages


def reinforce(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A logprobs per token (B, T); Williams 1992. With an advantage of 1 it is the loss of supervised learning."""
    return -advantages * logprobs


def kl(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The estimate k3 of KL(policy || reference) per sampled token (B, T); Schulman 2020, "Approximating KL divergence".

    exp(q) - q - 1,  at most 10        q = reference - logprobs
    """
    q = (reference - logprobs).clamp_max(
        KL_CAP
    )  # where the cap holds anyway; an infinite exp has no gradient
    return (q.exp() - q - 1).clamp_max(KL_CAP)
