"""The settings of training: which mechanics a method with trained weights uses, as flat options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whet.policies.writer import LoraSettings, Update
from whet.policies.writer.settings import Aggregation, KlKind

Advantage = Literal[
    "grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++-baseline", "remax", "gae", "rl_zvp"
]
Loss = Literal["ppo", "importance", "cispo", "reinforce", "dro", "dpo"]


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
    """How rewards become advantages."""
    zvp: float = 0.1
    """Weight of the entropy in groups of equal rewards (rl_zvp)."""
    right: float = 0.5
    """From which reward on an answer counts as right (rl_zvp, erpo, guide)."""
    gamma: float = 1.0
    """Discount from token to token (reinforce++, remax, gae)."""
    lam: float = 0.95
    """Trace of gae."""
    loss: Loss = "ppo"
    """Loss of a token; dro is a loss of a sample, dpo one of a pair."""
    margin: float = 0.0
    """By how much the better text of a pair must be rewarded more (dpo)."""
    clip_low: float = 0.2
    """The ratio is clipped below 1 minus this."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 plus this."""
    aggregation: Aggregation = "token"
    """How the losses of tokens become one."""
    epochs: int = 1
    """Passes over the samples of a step."""
    minibatch: int = 0
    """Samples of one gradient step; 0 means all."""
    kl: float = 0.0
    """Weight of the divergence from the frozen reference; tau of dro, beta of dpo."""
    kl_kind: KlKind = "k3"
    """Its estimator."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where it is taken off."""
    entropy: float = 0.0
    """Weight of a bonus for entropy."""
    max_norm: float = 1.0
    """Bound on the gradient's norm."""
    curriculum: Literal["uniform", "mopps", "pcl"] = "uniform"
    """How training examples are chosen."""
    decay: float = 1.0
    """What mopps keeps of earlier counts."""
    residual: Literal["none", "erpo"] = "none"
    """What becomes of groups that are all right."""
    hottest: float = 1.5
    """Highest temperature of erpo."""
    hints: Literal["none", "guide"] = "none"
    """Whether questions that always fail are asked again with a hint."""

    @property
    def lora(self) -> LoraSettings:
        """Which weights learn."""
        return LoraSettings(self.rank, self.alpha)

    @property
    def passes(self) -> int:
        """How often a step asks about the same question at most: hopeless ones again, with a hint (guide)."""
        return 2 if self.hints == "guide" else 1

    @property
    def greedy(self) -> int:
        """Greedy texts that a step asks for beside each group: the baseline of remax."""
        return int(self.advantage == "remax")

    def update(self) -> Update:
        """The settings of one update."""
        return Update(
            lr=self.lr,
            max_norm=self.max_norm,
            epochs=self.epochs,
            minibatch=self.minibatch,
            loss="ppo" if self.loss == "dpo" else self.loss,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            kl=self.kl if self.kl_in == "loss" else 0.0,
            kl_kind=self.kl_kind,
            entropy=self.entropy,
            aggregation=self.aggregation,
            length=self.max_tokens,
        )
