"""Losses of policies with weights, per token or per pair, each named after its paper.

Shapes: B samples of at most T response tokens, padded behind; `mask` (B, T) is 1 on the writer's own tokens.
Log-probabilities are natural and taken at the temperature that the samples were drawn at. `old` are those of the
behaviour policy, `ref` those of the frozen reference; neither carries gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

KL_CAP = 10.0
"""Largest k3 of one token: exp of a large difference would otherwise swamp the batch."""


def ppo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float = 0.2, high: float = 0.2) -> Tensor:
    """The clipped surrogate of PPO as a loss per token (B, T); Schulman et al. 2017, arXiv:1707.06347, eq. 7.

        -min(rho A, clip(rho, 1 - low, 1 + high) A),   rho = exp(logprobs - old)

    `high` above `low` is the clip-higher of DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 10).
    """
    ratio = (logprobs - old).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Whether `ppo` gives a token no gradient because of its clip: bool (B, T)."""
    ratio = (logprobs - old).exp()
    return ((ratio < 1 - low) & (advantages < 0)) | ((ratio > 1 + high) & (advantages > 0))


def importance(logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """Importance-weighted policy gradient without a clip, -rho A per token (B, T): the loss of E-SPL."""
    return -(logprobs - old).exp() * advantages


def cispo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """CISPO (MiniMax 2025, arXiv:2506.13585, eq. 4): the ratio is clipped and is a weight without gradient.

    -clip(rho, 1 - low, 1 + high) A logprobs per token (B, T): every token keeps its gradient.
    """
    ratio = (logprobs - old).exp().clamp(1 - low, 1 + high).detach()
    return -ratio * advantages * logprobs


def reinforce(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A logprobs per token (B, T); Williams 1992. For samples of the present weights only."""
    return -advantages * logprobs


def kl(kind: str, logprobs: Tensor, ref: Tensor) -> Tensor:
    """Estimate of KL(policy || reference) per sampled token (B, T); Schulman 2020, "Approximating KL divergence".

        k1 = -q        k2 = q^2 / 2        k3 = exp(q) - q - 1,  at most 10        q = ref - logprobs

    k1 and k3 have the right mean over samples of the policy, k2 a small bias; k2 and k3 are never negative. As a
    loss, the gradient of k1 has mean zero: use it in the reward.
    """
    q = ref - logprobs
    if kind == "k1":
        return -q
    if kind == "k2":
        return q.square() / 2
    if kind == "k3":
        q = q.clamp_max(KL_CAP)  # where the cap holds anyway; an infinite exp has no gradient
        return (q.exp() - q - 1).clamp_max(KL_CAP)
    raise ValueError(f"no estimator of the KL divergence is called {kind}")


def token_weights(mask: Tensor, aggregation: str, length: int = 1) -> Tensor:
    """Weight of each token (B, T) with which the sum of the losses per token is the loss of the batch.

    token: mean over all own tokens of the batch (DAPO). sequence: mean over samples of their mean over tokens
    (GRPO as published). constant: sum / (B x `length`), with `length` the bound on tokens (Dr. GRPO, Liu et al.
    2025, arXiv:2503.20783): a long response then counts as much per token as a short one. A sample
    without own tokens weighs nothing.
    """
    if aggregation == "token":
        return mask / mask.sum().clamp_min(1)
    if aggregation == "sequence":
        return mask / mask.sum(1, keepdim=True).clamp_min(1) / len(mask)
    if aggregation == "constant":
        return mask / (len(mask) * length)
    raise ValueError(f"no aggregation is called {aggregation}")


def dpo(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float = 0.1
) -> Tensor:
    """Direct Preference Optimization per pair (B,); Rafailov et al. 2023, arXiv:2305.18290, eq. 7.

        -log sigmoid(beta ((chosen - ref_chosen) - (rejected - ref_rejected)))

    All four are log-probabilities of whole responses, (B,).
    """
    return -F.logsigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))


def dro(logprobs: Tensor, ref: Tensor, advantages: Tensor, tau: float) -> Tensor:
    """Direct Reward Optimisation per sample (B,); Richemond et al. 2024, arXiv:2405.19107, eq. 5.

        (r - V - tau (logprobs - ref))^2 / 2

    `logprobs` and `ref` are those of whole responses, `advantages` is r - V(x), all (B,). Needs neither pairs nor
    groups. At its minimum the policy is the reference tilted by exp(r / tau).
    """
    return (advantages - tau * (logprobs - ref)).square() / 2


@dataclass(frozen=True, slots=True)
class TextPair:
    """Positions of a better and a worse text of one group."""

    chosen: int
    rejected: int


def filtered_pairs(
    rewards: Sequence[float],
    lengths: Sequence[int],
    *,
    threshold: float = -math.inf,
    margin: float = 0.0,
    longest: int | None = None,
    top: int = 2,
) -> list[TextPair]:
    """Pairs of one group that are worth a preference update, by the rules of Prompt-A-Video (arXiv:2412.15156).

    One of the `top` best texts may be chosen, if its reward is at least `threshold` and its length at most
    `longest`; it is paired with every text whose reward is more than `margin` lower. `rewards` and `lengths`: one for
    each text. Equal rewards make no pair.
    """
    ranked = sorted(range(len(rewards)), key=lambda i: -rewards[i])
    return [
        TextPair(better, worse)
        for better in ranked[:top]
        if rewards[better] >= threshold and (longest is None or lengths[better] <= longest)
        for worse in ranked
        if rewards[better] - rewards[worse] > margin
    ]
