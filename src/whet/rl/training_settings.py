"""The settings of training: which mechanics a method with trained weights uses, as flat options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from whet.errors import UsageError
from whet.rl.policy_model import LoraSettings, Update
from whet.rl.policy_model.settings import Aggregation, KlKind

Advantage = Literal[
    "grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++-baseline", "remax", "gae", "rl_zvp"
]
Loss = Literal["ppo", "importance", "cispo", "reinforce", "dro", "dpo"]
WHOLE: frozenset[Advantage] = frozenset({"grpo", "dr_grpo", "rloo"})
"""Advantages that are a function of the rewards of a group alone."""
COMPARING: frozenset[Advantage] = frozenset({"grpo", "dr_grpo", "rloo", "reinforce++-baseline", "rl_zvp"})
"""Advantages that compare the texts of a group: one text alone has nothing to be compared with."""

_MOST = math.inf
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("group", "max_tokens", "epochs"), (1, _MOST)),
    **dict.fromkeys(
        ("steps", "lr", "temperature", "rank", "alpha", "zvp", "margin", "minibatch"), (0, _MOST)
    ),
    **dict.fromkeys(("kl", "max_norm", "hottest", "clip_high"), (0, _MOST)),
    **dict.fromkeys(("top_p", "gamma", "lam", "clip_low", "decay", "crossover"), (0, 1)),
    **dict.fromkeys(("examples", "questions", "problems", "tasks", "prompts", "rewrites"), (1, _MOST)),
    **dict.fromkeys(
        ("programs", "recent", "pool", "principles", "turns", "retries", "finalists"), (1, _MOST)
    ),
    **dict.fromkeys(("checks", "warmup", "keyword", "format", "target_kl"), (0, _MOST)),
}
"""Lowest and highest value of a setting by its name, those of single methods included."""
ABOVE = frozenset({"alpha", "top_p", "max_norm", "hottest", "target_kl"})
"""Settings that the lowest value itself is refused for."""


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
    """How rewards become advantages; has no say with loss=dro and dpo."""
    zvp: float = 0.1
    """Weight of the entropy in groups of equal rewards (rl_zvp)."""
    right: float = 0.5
    """From which share of the range of rewards on an answer counts as right (rl_zvp, erpo, guide)."""
    gamma: float = 1.0
    """Discount from token to token (reinforce++, remax, gae); with credit=turn from turn to turn (the others)."""
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

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds by a UsageError."""
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name, None)
            if value is None:
                continue
            inside = math.isfinite(value) and low <= value <= high
            if inside and not (value == low and name in ABOVE):
                continue
            least = f"above {low:g}" if name in ABOVE else f"{low:g} or more"
            most = f" and at most {high:g}" if high < _MOST else ""
            finite = "" if math.isfinite(value) else "finite and "
            raise UsageError(f"{name} must be {finite}{least}{most}; this is {value}.")

    def check(self) -> None:
        """Raise UsageError for settings that contradict each other."""
        if self.loss in ("dro", "dpo") and self.kl <= 0:
            raise UsageError(
                f"loss={self.loss} needs kl above 0: it is {'tau' if self.loss == 'dro' else 'beta'}, the weight of the "
                "reference."
            )
        if self.loss == "dro" and self.kl_in == "reward":
            raise UsageError(
                "loss=dro takes the divergence in the loss; leave kl_in=loss, or take another loss."
            )
        if self.hints == "guide" and (self.loss == "dro" or (self.kl_in == "reward" and self.kl > 0)):
            raise UsageError(
                "hints=guide learns from texts whose log-probabilities are those under the hint, which a divergence "
                "measured from them would confuse: leave kl_in=loss, and take another loss than dro."
            )
        compares = self.loss not in ("dro", "dpo")
        if not compares and self.advantage != type(self).advantage:
            raise UsageError(
                f"loss={self.loss} learns from rewards without advantages: leave advantage={type(self).advantage}, or take "
                "another loss."
            )
        if self.residual == "erpo" and not (compares and self.advantage in WHOLE):
            raise UsageError(
                "residual=erpo gives a group that is all right an imagined lower reward, which only "
                f"advantage={', '.join(sorted(WHOLE))} learn from, and neither loss=dro nor loss=dpo."
            )

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return False

    @property
    def least(self) -> int:
        """Texts of a group without which nothing can be learned from it, the greedy one included."""
        compares = self.loss == "dpo" or (self.loss != "dro" and self.advantage in COMPARING)
        return min(self.group, 2 if compares else 1) + self.greedy

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


@dataclass(frozen=True)
class Talking(Training):
    """Settings of methods whose writer takes several turns in an episode."""

    credit: Literal["episode", "turn"] = "episode"
    """What an advantage belongs to: the whole conversation, or each turn with what followed it."""

    def check(self) -> None:
        """Raise UsageError for settings that contradict each other."""
        super().check()
        if not self.by_turn:
            return
        if self.loss in ("dro", "dpo") or self.advantage == "rl_zvp" or self.residual == "erpo":
            raise UsageError(
                "credit=turn compares turns by what followed them, and loss=dro, loss=dpo, advantage=rl_zvp and "
                "residual=erpo know whole conversations only: leave credit=episode, or take others of these."
            )

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return self.credit == "turn"
