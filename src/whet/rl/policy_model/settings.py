"""What a writer is made of and how it is updated: plain values, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LossKind = Literal["ppo", "importance", "cispo", "reinforce", "dro"]
KlKind = Literal["k1", "k2", "k3"]
Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Which weights learn: low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) of a frozen model.

    `rank` r and `alpha` scale an adapter's output by alpha / r; `rank=0` trains all weights of a small model.
    `targets`: names of the adapted linear layers, separated by commas; all-linear means all but the output layer.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: str = "all-linear"


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the weights.

    `lr`, `beta2`: rate and second decay of Adam; the gradient's norm is clipped at `max_norm`. `epochs` passes over
    the samples in minibatches of `minibatch` samples (0: all at once).

    `loss`: see `whet.rl.losses`; `clip_low`, `clip_high` bound the ratio to [1 - low, 1 + high]. `kl` weighs
    the divergence from the reference, estimated by `kl_kind`, in the loss (for `dro` it is tau); `entropy` weighs a
    bonus for it. `aggregation`: mean over all tokens, mean over samples of their mean over tokens, or sum
    divided by the number of samples times `length` tokens. `value`: rate of the critic's regression. `guide`: the
    quantile of the ratios of hinted samples that shapes them (`whet.rl.guided_rollouts`).
    """

    lr: float = 1e-4
    beta2: float = 0.999
    max_norm: float = 1.0
    epochs: int = 1
    minibatch: int = 0
    loss: LossKind = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    kl_kind: KlKind = "k3"
    entropy: float = 0.0
    aggregation: Aggregation = "token"
    length: int = 64
    value: float = 0.01
    guide: float = 0.9
