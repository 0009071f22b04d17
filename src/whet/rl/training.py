"""The settings of training that the methods with a language model as policy share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whet.fields import check_bounds
from whet.rl.policy_model import LoraSettings, Update

Advantage = Literal["grpo", "dr_grpo", "rloo", "gae"]


@dataclass(frozen=True)
class Training:
    """Settings that every method with trained weights shares; a method's config adds its own and other defaults."""

    steps: int = 60
    """Updates of the policy."""
    group: int = 8
    """Texts sampled for one question (G)."""
    lr: float = 3e-4
    """Adam's rate."""
    temperature: float = 1.0
    """Of sampling."""
    top_p: float = 1.0
    """Sampling is among the likeliest tokens that make up this share."""
    max_tokens: int = 64
    """Bound on a sampled text."""
    rank: int = 8
    """Of the adapters (LoRA); 0 trains all weights of a small model."""
    alpha: float = 16.0
    """The adapters' output is scaled by alpha / rank."""
    advantage: Advantage = "grpo"
    """How rewards become advantages: by comparison in the group, or by a learned critic (gae)."""
    loss: Literal["ppo", "importance"] = "ppo"
    """Loss of a token."""
    clip_low: float = 0.2
    """The importance ratio is clipped below 1 minus this (ppo)."""
    clip_high: float = 0.2
    """The importance ratio is clipped above 1 plus this (ppo)."""
    epochs: int = 1
    """Passes over the samples of a step."""
    minibatch: int = 0
    """Samples of one gradient step; 0 means all."""
    kl: float = 0.0
    """Weight of the divergence from the reference policy: a term of the loss, with advantage=gae of the reward."""

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds by a UsageError."""
        check_bounds(self)

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return False

    @property
    def smallest_group(self) -> int:
        """Texts of a group without which nothing can be learned from it: one alone is compared with nothing."""
        return 1 if self.advantage == "gae" else min(self.group, 2)

    @property
    def lora(self) -> LoraSettings:
        """Which weights learn."""
        return LoraSettings(self.rank, self.alpha)

    def update(self) -> Update:
        """The settings of one update."""
        kl = 0.0 if self.advantage == "gae" else self.kl
        return Update(self.lr, self.epochs, self.minibatch, self.loss, self.clip_low, self.clip_high, kl)


@dataclass(frozen=True)
class MultiTurnTraining(Training):
    """Settings of methods whose policy takes several turns in an episode."""

    credit: Literal["episode", "turn"] = "episode"
    """What an advantage belongs to: the whole conversation, or each turn with what followed it."""

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return self.credit == "turn"
