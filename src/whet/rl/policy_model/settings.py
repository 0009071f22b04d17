"""What a policy model is made of and how it is updated: plain values, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """One update of the weights: Adam at rate `lr`, `epochs` passes over the samples in minibatches of `minibatch` samples
    (0: all at once).

    `loss`: see `whet.rl.losses`; `clip_low`, `clip_high` bound the importance ratio to [1 - low, 1 + high]. `kl` weighs the
    divergence from the reference policy in the loss.
    """

    lr: float = 1e-4
    epochs: int = 1
    minibatch: int = 0
    loss: Literal["ppo", "importance", "reinforce"] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
