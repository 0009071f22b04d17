"""Training of a policy: the settings that the methods share, from the rewards of groups to the advantage of every token, and
sampling and updates by these settings. See docs/training.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

from whet.environments.episodes import Trajectory
from whet.fields import check_bounds
from whet.rl import advantages as estimators
from whet.rl.advantages import Rows
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update
from whet.rl.policy_model.model import Conversation
from whet.run import Run
from whet.types import JSON

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


GROUP: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    "grpo": estimators.grpo,
    "dr_grpo": estimators.dr_grpo,
    "rloo": estimators.rloo,
}
"""Estimators that are a function of the rewards of a group alone."""
Reward = float | Sequence[float]
Groups = Sequence[Sequence[Sample]]
T = TypeVar("T")


def group_advantages(config: Training, groups: Groups, rewards: Sequence[Sequence[Reward]]) -> Rows:
    """Advantages per token of all samples in the order of the groups: each sample compared with its group.

    With `credit=turn` what follows a turn is compared with what follows the same turn of the others. Tokens of
    others get 0.
    """
    estimate = GROUP[config.advantage]
    rows: Rows = []
    for group, earned in zip(groups, rewards, strict=True):
        lengths = [turn_lengths(s) if config.by_turn else [sum(s.own)] for s in group]
        by_part = [
            [sum(part) for part in _cut(_token_rewards(sample, reward), n)]
            for sample, reward, n in zip(group, earned, lengths, strict=True)
        ]
        for sample, row, n in zip(group, estimators.turn_advantages(by_part, estimate), lengths, strict=True):
            rows.append(_spread(sample, [a for a, count in zip(row, n, strict=True) for _ in range(count)]))
    return rows


def token_advantages(
    config: Training, policy: PolicyModel, samples: Sequence[Sample], rewards: Sequence[Reward]
) -> tuple[Rows, Rows, float]:
    """Advantages per token by GAE, whitened over the batch; the returns for the critic; and the mean divergence.

    As in PPO for language models, log pi_old - log reference, weighed by `kl`, is taken off the reward of each token.
    """
    by_token = [_token_rewards(sample, reward) for sample, reward in zip(samples, rewards, strict=True)]
    gaps: Rows = []
    if config.kl:
        pairs = zip(samples, policy.reference_logprobs(samples), strict=True)
        gaps = [
            [old - ref for old, ref in zip(_own(s, s.logprobs), _own(s, row), strict=True)]
            for s, row in pairs
        ]
        by_token = [
            [r - config.kl * gap for r, gap in zip(row, off, strict=True)]
            for row, off in zip(by_token, gaps, strict=True)
        ]
    values = [_own(s, v) for s, v in zip(samples, policy.values(samples), strict=True)]
    estimates = [estimators.gae(row, value) for row, value in zip(by_token, values, strict=True)]
    advantages = estimators.whiten([a for a, _ in estimates])
    return (
        [_spread(sample, row) for sample, row in zip(samples, advantages, strict=True)],
        [_spread(sample, row) for sample, (_, row) in zip(samples, estimates, strict=True)],
        sum(map(sum, gaps)) / max(1, sum(map(len, gaps))),
    )


def turn_lengths(sample: Sample) -> list[int]:
    """Own tokens of each turn of a conversation; tokens of others stand between two turns."""
    return [sum(1 for _ in run) for own, run in groupby(sample.own) if own]


def at_turns(sample: Sample, rewards: Sequence[float]) -> list[float]:
    """A reward for each token of a conversation from one for each turn, which stands at the turn's last own token.

    Rewards of turns beyond those of the sample (a turn that could not be written) count for its last one.
    """
    *early, last = [i for i, own in enumerate(sample.own) if own and not any(sample.own[i + 1 : i + 2])]
    by_token = [0.0] * len(sample.own)
    for place, reward in zip(early, rewards, strict=False):
        by_token[place] = float(reward)
    by_token[last] = float(sum(rewards[len(early) :]))
    return by_token


def rewards_by_turn(trajectory: Trajectory, whole: float) -> list[float]:
    """The reward of each turn of an episode whose reward is `whole`: what the world paid for it, the rest at the end.

    The rest is the grade of the final answer, or what a bound on the return took off.
    """
    return [*trajectory.rewards[:-1], whole - sum(trajectory.rewards[:-1])]


def total(reward: Reward) -> float:
    """A sample's whole reward."""
    return float(reward) if isinstance(reward, int | float) else float(sum(reward))


def _token_rewards(sample: Sample, reward: Reward) -> list[float]:
    """Rewards of the own tokens of a sample; a single reward stands at the last one."""
    if isinstance(reward, int | float):
        return [*[0.0] * (sum(sample.own) - 1), float(reward)]
    return _own(sample, reward)


def _own(sample: Sample, row: Sequence[float]) -> list[float]:
    """The entries of a row that stand at the policy's own tokens."""
    return [float(value) for value, own in zip(row, sample.own, strict=True) if own]


def _spread(sample: Sample, row: Sequence[float]) -> list[float]:
    """Numbers of the own tokens at their places among all tokens, 0 elsewhere."""
    values = iter(row)
    return [next(values) if own else 0.0 for own in sample.own]


def _cut(items: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Items in groups of the given sizes."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [list(items[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


class Trainer:
    """A policy with the settings of its training."""

    def __init__(self, policy: PolicyModel, config: Training) -> None:
        self.policy, self.config = policy, config

    async def sample(
        self, run: Run, conversations: Sequence[Conversation], *, n: int | None = None, greedy: bool = False
    ) -> list[list[Sample]]:
        """A group of texts for each conversation, as a recorded effect: (conversations, n or `group`).

        The seed is the run's.
        """
        config = self.config
        seed = run.rng.getrandbits(63)

        async def draw() -> JSON:
            groups = self.policy.sample(
                conversations,
                config.group if n is None else n,
                temperature=0.0 if greedy else config.temperature,
                max_tokens=config.max_tokens,
                seed=seed,
                top_p=config.top_p,
            )
            return [[sample.to_json() for sample in group] for group in groups]

        drawn: Any = await run.effect("sample", draw)
        return [[Sample.from_json(value) for value in group] for group in drawn]

    def credited(
        self,
        samples: Sequence[Sample],
        rewards: Sequence[float],
        turns: Sequence[Sequence[float]],
    ) -> list[Reward]:
        """Rewards for `learn`: those of whole conversations, with `credit=turn` those of their `turns` in their places."""
        if not self.config.by_turn:
            return list(rewards)
        return [at_turns(sample, row) for sample, row in zip(samples, turns, strict=True)]

    def learn(self, groups: Groups, rewards: Sequence[Sequence[Reward]]) -> dict[str, float]:
        """One update from groups of samples and their rewards, one number for a text or one for each of its tokens;
        figures of `PolicyModel.update` and of the rewards, none without groups."""
        if not groups:
            return {}
        totals = [[total(reward) for reward in group] for group in rewards]
        samples = [sample for group in groups for sample in group]
        summary = {
            "reward": sum(map(sum, totals)) / max(1, len(samples)),
            "equal_groups": sum(estimators.equal(group) for group in totals) / len(totals),
        }
        update = self.config.update()
        if self.config.advantage != "gae":
            advantages = group_advantages(self.config, groups, rewards)
            return {**self.policy.update(samples, advantages, update), **summary}
        flat = [reward for group in rewards for reward in group]
        advantages, returns, divergence = token_advantages(self.config, self.policy, samples, flat)
        summary |= {"kl": divergence} if self.config.kl else {}
        return {**self.policy.update(samples, advantages, update, returns=returns), **summary}
