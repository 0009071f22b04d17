"""Training of a policy: the settings that the methods share, from the rewards of groups to the advantage of every token, and
sampling and updates by these settings. See docs/training.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import ClassVar, Literal

import numpy as np

from whet._util.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveProbability,
    Probability,
    RewardValue,
    check_bounds,
)
from whet.environments.episodes import Trajectory
from whet.errors import UsageError, parameter
from whet.prompt import Prompt
from whet.rl import advantages as estimators
from whet.rl import credit
from whet.rl.advantages import Rows
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update
from whet.rl.policy_model.critic import own_states
from whet.rl.policy_model.model import Conversation
from whet.rl.policy_model.optimizer import WHOLE, Aggregation
from whet.rl.policy_model.optimizer import Loss as Loss
from whet.rl.policy_model.token_reward import pairs_of
from whet.rl.row_selection import RowChoice, RowSource, make_selector
from whet.rl.zero_variance import ZeroVariance, with_pseudo_negative, zvp
from whet.run import Run, convert_record
from whet.types import JSON, Example

Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++-baseline", "remax", "gae"]
IN_REWARD = ("gae", "reinforce++")
"""Advantages whose papers take the divergence off the reward."""
BY_TOKEN = ("gae", "reinforce++", "remax")
"""Advantages that see the rewards of single tokens."""


@dataclass(frozen=True)
class Training:
    """Settings that every method with trained weights shares; a method's config adds its own and other defaults."""

    DRAWS_GREEDY: ClassVar[bool] = True
    """Whether the method draws what it learns from by `Trainer.draw_groups`, which brings the greedy texts of remax."""
    steps: NonNegativeInt = 60
    """Updates of the policy."""
    group: PositiveInt = 8
    """Texts sampled for one question (G)."""
    lr: NonNegativeFloat = 3e-4
    """Adam's rate."""
    temperature: NonNegativeFloat = 1.0
    """Of sampling."""
    top_p: PositiveProbability = 1.0
    """Sampling is among the likeliest tokens that make up this share."""
    max_tokens: PositiveInt = 64
    """Bound on a sampled text."""
    rank: NonNegativeInt = 8
    """Of the adapters (LoRA); 0 trains all weights of a small model."""
    alpha: PositiveFloat = 16.0
    """The adapters' output is scaled by alpha / rank."""
    advantage: Advantage = "grpo"
    """The estimator of the advantages: comparison within the group or batch, with the greedy text (remax), or by a critic
    (gae)."""
    trace: Probability = 0.95
    """The reach of a reward with advantage=gae (lambda): 0 reaches the token before, 1 all of them."""
    critic_lr: NonNegativeFloat = 0.01
    """Adam's rate of the critic (advantage=gae)."""
    loss: Loss = "ppo"
    """Loss of a token, or of a whole text compared with its group (dro, rebel)."""
    clip_low: Probability = 0.2
    """The importance ratio is clipped below 1 minus this (ppo, gspo, cispo); 1 is no bound."""
    clip_high: NonNegativeFloat = 0.2
    """The importance ratio is clipped above 1 plus this (ppo, gspo, cispo)."""
    aggregation: Aggregation = "token"
    """Mean over all tokens of a minibatch, over texts of their means (sequence), or sum over texts x max_tokens (constant)."""
    eta: PositiveFloat = 1.0
    """The value of a unit of reward in nats of a text's log-ratio (rebel)."""
    rto: NonNegativeFloat = 0.0
    """Weight of rewards of single tokens, from a model that DPO trains on each step's best and worst texts (RTO); 0: none."""
    truncated: Literal["learn", "mask"] = "learn"
    """The treatment of texts that max_tokens cut: the policy learns from their low reward (learn), or they are left out of
    group and update (mask)."""
    nlpo: Probability = 0.0
    """The share of the probability of a masking policy (NLPO), an older copy of the policy, among whose likeliest tokens the
    policy chooses; 0: no mask."""
    mask_steps: PositiveInt = 20
    """Steps after which the masking policy becomes a copy of the policy (nlpo)."""
    epochs: PositiveInt = 1
    """Passes over the samples of a step."""
    minibatch: NonNegativeInt = 0
    """Samples of one gradient step; 0 means all."""
    kl: NonNegativeFloat = 0.0
    """Weight of the divergence from the reference policy; tau of dro."""
    kl_in: Literal["auto", "loss", "reward"] = "auto"
    """The place of the divergence: the loss or the reward. auto: the reward with gae and reinforce++, else the loss."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """Estimate of the divergence in the loss; in the reward it is k1."""
    kl_power: NonNegativeFloat = 0.0
    """The power by which the divergence counts less at tokens where the reference policy is uncertain (critical tokens); 0: all
    tokens count alike."""
    kl_tag: str = ""
    """The part of a text whose divergence counts, between <TAG> and </TAG> (partial KL); empty: all of it."""
    kl_limit: NonNegativeFloat = 0.0
    """Divergence from the reference policy, in nats a text, beyond which the training ends by an alarm; 0: none."""
    alarm: Literal["warn", "stop"] = "warn"
    """The reaction if the training reward rises while the validation reward falls, both by more than chance: a warning at the
    end, or also the end of the training."""
    rows: RowChoice = "uniform"
    """The choice of the training rows of a step."""
    resamples: NonNegativeInt = 2
    """The largest number of times that a step replaces rows with equal rewards by other rows (rows=dynamic)."""
    zero_variance: ZeroVariance = "skip"
    """The advantage in a group of equal rewards: 0 (skip), by the entropy (zvp), or for groups that are right (erpo)."""
    zvp: NonNegativeFloat = 0.1
    """Weight of the entropy (zero_variance=zvp; alpha)."""
    penalty: PositiveFloat = 0.1
    """The distance of the imagined text's reward below the equal, right rewards of a group (zero_variance=erpo)."""
    right: RewardValue = 0.5
    """From which reward a group of equal rewards counts as right (zero_variance)."""

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds, and settings that exclude each other, by a UsageError."""
        check_bounds(self)
        if self.zero_variance != "skip" and self.advantage not in GROUP:
            raise UsageError(
                f"zero_variance={self.zero_variance} is for advantages by comparison in the group ({', '.join(GROUP)}), "
                f"not for advantage={self.advantage}."
            )
        if self.zero_variance != "skip" and (self.loss in WHOLE or self.kl_in_reward):
            raise UsageError(
                f"zero_variance={self.zero_variance} is for losses of tokens with the divergence in the loss, not for "
                f"loss={self.loss} with kl_in={self.kl_in}."
            )
        if self.loss in WHOLE:
            _check_whole(self)
        if self.advantage == "remax" and not self.DRAWS_GREEDY:
            raise UsageError(
                "advantage=remax needs a greedy text beside each group, and this method draws none. Take rloo."
            )
        if self.nlpo and (not self.DRAWS_GREEDY or self.loss in WHOLE):
            raise UsageError(
                f"nlpo={self.nlpo:g} masks tokens where a method draws single texts and the loss is one of tokens; "
                f"this one cannot, or loss={self.loss} is one of whole texts."
            )
        if self.rto and self.advantage not in BY_TOKEN:
            raise UsageError(
                f"rto={self.rto:g} rewards single tokens: advantage must be one of {', '.join(BY_TOKEN)}; "
                f"this is {self.advantage}."
            )

    @property
    def kl_in_reward(self) -> bool:
        """Whether the divergence is taken off the reward."""
        return self.kl_in == "reward" or (self.kl_in == "auto" and self.advantage in IN_REWARD)

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return False

    @property
    def smallest_group(self) -> int:
        """Texts of a group without which nothing can be learned from it: one alone is compared with nothing."""
        if self.advantage == "remax":
            return 2
        return 1 if self.advantage == "gae" else min(self.group, 2)

    @property
    def lora(self) -> LoraSettings:
        """The settings of the weights that learn."""
        return LoraSettings(self.rank, self.alpha)

    def update(self) -> Update:
        """The settings of one update."""
        return Update(
            self.lr,
            self.epochs,
            self.minibatch,
            self.loss,
            self.clip_low,
            self.clip_high,
            0.0 if self.kl_in_reward else self.kl,
            self.kl_estimator,
            self.kl_power,
            self.kl_tag,
            self.eta,
            self.aggregation,
            self.max_tokens,
            self.nlpo,
        )


def _check_whole(config: Training) -> None:
    """Raise UsageError where the settings contradict a loss of whole texts."""
    loss = parameter("config.loss", config.loss)
    if config.advantage not in GROUP:
        raise UsageError(
            f"{loss} compares the rewards of a group itself: advantage must be {', '.join(GROUP)}; this is {config.advantage}."
        )
    if config.minibatch:
        raise UsageError(
            f"{loss} compares the texts of a group: minibatch must be 0; this is {config.minibatch}."
        )
    if config.by_turn or config.kl_in == "reward":
        raise UsageError(f"{loss} is a loss of whole texts: credit must be episode and kl_in auto or loss.")
    if config.loss == "dro" and not config.kl:
        raise UsageError(f"{loss} divides by kl, its tau: kl must be above 0.")


@dataclass(frozen=True)
class MultiTurnTraining(Training):
    """Settings of methods whose policy takes several turns in an episode."""

    DRAWS_GREEDY: ClassVar[bool] = False
    credit: Literal["episode", "turn"] = "episode"
    """The unit of an advantage: the whole conversation, or each turn with what followed it."""

    @property
    def by_turn(self) -> bool:
        """Whether every turn of a conversation has an advantage of its own."""
        return self.credit == "turn"


GROUP: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    "grpo": estimators.grpo,
    "dr_grpo": estimators.dr_grpo,
    "rloo": estimators.rloo,
}
"""Estimators by name that are functions of the rewards of a group."""
CENTRED = {"rloo": estimators.rloo}
"""Estimators that compare the divergences of a group as they compare its rewards; the others take the mean off."""
Reward = float | Sequence[float]
"""The reward of a sample: as a whole, or in each of its turns. The reward of turns that could not be written counts for the
last one."""
Groups = Sequence[Sequence[Sample]]


def group_advantages(config: Training, groups: Groups, rewards: Sequence[Sequence[Reward]]) -> Rows:
    """Advantages per token of all samples in the order of the groups: each sample compared with its group.

    With `credit=turn` what follows a turn is compared with what follows the same turn of the others. Tokens of
    others get 0.
    """
    rows: Rows = []
    for group, earned in zip(groups, rewards, strict=True):
        lengths = [turn_lengths(s) if config.by_turn else [sum(s.own)] for s in group]
        by_part = [_by_part(reward, len(n)) for reward, n in zip(earned, lengths, strict=True)]
        estimated = estimators.turn_advantages(by_part, GROUP[config.advantage])
        for sample, row, n in zip(group, estimated, lengths, strict=True):
            values = iter([a for a, count in zip(row, n, strict=True) for _ in range(count)])
            rows.append([next(values) if own else 0.0 for own in sample.own])
    return rows


def token_advantages(
    config: Training, policy: PolicyModel, samples: Sequence[Sample], rewards: Sequence[Reward]
) -> tuple[Rows, dict[str, float]]:
    """Advantages per token by GAE on the policy's critic, whitened over the batch; then the critic is fitted to the returns.

    As in PPO for language models (Ziegler et al. 2019, arXiv:1909.08593, eq. 2) `kl` x (log pi_old - log reference) is taken off
    the reward of each token. Figures: `critic_loss`, `explained` (share of the returns' variance), `kl` where it has a weight.
    """
    by_token = own_rewards(config, policy, samples, rewards)
    figures: dict[str, float] = {}
    if config.kl and config.kl_in_reward:
        gaps = credit.divergences(policy, samples, config.kl_power, config.kl_tag)
        by_token = take_off(by_token, gaps, config.kl)
        figures["kl"] = sum(map(sum, gaps)) / max(1, sum(map(len, gaps)))
    critic, states = policy.with_critic(), own_states(samples, policy.states(samples))
    values = critic.values(states)
    pairs = zip(by_token, values, strict=True)
    estimates = [estimators.gae(row, value, lam=config.trace) for row, value in pairs]
    returns = [row for _, row in estimates]
    advantages = estimators.whiten([row for row, _ in estimates])
    figures["explained"] = explained_variance(values, by_token)
    figures["critic_loss"] = critic.fit(states, returns, config.critic_lr)
    return spread(samples, advantages), figures


def batch_token_advantages(
    config: Training,
    policy: PolicyModel,
    groups: Groups,
    rewards: Sequence[Sequence[Reward]],
    greedy: Sequence[float] = (),
) -> tuple[Rows, dict[str, float]]:
    """Advantages per token by an estimator without a critic, the divergence in the reward where the settings want it there.

    `greedy` (remax): the reward of the greedy text of each group. Figures: `kl`, a token, where it was measured.
    """
    samples, sizes = [s for group in groups for s in group], [len(group) for group in groups]
    figures: dict[str, float] = {}
    gaps: Rows = []
    if config.kl and config.kl_in_reward:
        gaps = credit.divergences(policy, samples, config.kl_power, config.kl_tag)
        figures["kl"] = sum(map(sum, gaps)) / max(1, sum(map(len, gaps)))
    kind = config.advantage
    if kind in GROUP:
        rows = _own(samples, group_advantages(config, groups, rewards))
    elif kind == "reinforce++-baseline":
        centred = replace(config, advantage="dr_grpo")
        rows = estimators.whiten(_own(samples, group_advantages(centred, groups, rewards)))
    else:
        by_token = own_rewards(config, policy, samples, [reward for group in rewards for reward in group])
        if gaps:
            by_token, gaps = take_off(by_token, gaps, config.kl), []
        if kind == "remax":
            baselines = [base for base, size in zip(greedy, sizes, strict=True) for _ in range(size)]
            rows = [estimators.remax(row, base) for row, base in zip(by_token, baselines, strict=True)]
        else:
            rows = estimators.reinforce_pp(by_token)
    if gaps:
        rows = credit.take_off_divergences(
            rows, gaps, sizes, config.kl, CENTRED.get(kind, estimators.dr_grpo)
        )
    return spread(samples, rows), figures


def own_rewards(
    config: Training, policy: PolicyModel, samples: Sequence[Sample], rewards: Sequence[Reward]
) -> Rows:
    """Rewards of the own tokens of samples, those of RTO among them where `rto` has a weight."""
    rows = [token_rewards(config, sample, reward) for sample, reward in zip(samples, rewards, strict=True)]
    if not config.rto:
        return rows
    ratios = _own(samples, policy.token_log_ratios(samples))
    return [
        [
            r + dense
            for r, dense in zip(row, estimators.token_rewards_rto(ratio, 0.0, config.rto), strict=True)
        ]
        for row, ratio in zip(rows, ratios, strict=True)
    ]


def take_off(by_token: Rows, gaps: Rows, kl: float) -> Rows:
    """Rewards of tokens less `kl` times their divergences."""
    pairs = zip(by_token, gaps, strict=True)
    return [[r - kl * gap for r, gap in zip(row, off, strict=True)] for row, off in pairs]


def spread(samples: Sequence[Sample], rows: Rows) -> Rows:
    """Numbers of the own tokens of samples at their places among all tokens; 0 elsewhere."""
    values = [iter(row) for row in rows]
    return [[next(row) if own else 0.0 for own in s.own] for row, s in zip(values, samples, strict=True)]


def _own(samples: Sequence[Sample], rows: Rows) -> Rows:
    pairs = zip(rows, samples, strict=True)
    return [[value for value, own in zip(row, s.own, strict=True) if own] for row, s in pairs]


def explained_variance(values: Rows, rewards: Rows) -> float:
    """1 - var(G - V) / var(G), G the rewards from a token on: what share of their variance values foretell; 0 without any."""
    returns = np.array([g for row in rewards for g in estimators.returns_to_go(row)])
    off = returns - np.array([value for row in values for value in row])
    return float(1 - off.var() / returns.var()) if returns.size and returns.var() > 0 else 0.0


def token_rewards(config: Training, sample: Sample, reward: Reward) -> list[float]:
    """Rewards of a sample's own tokens: that of a turn, or of the whole, stands at its last one."""
    lengths = turn_lengths(sample) if config.by_turn else [sum(sample.own)]
    parts = zip(lengths, _by_part(reward, len(lengths)), strict=True)
    return [value for n, earned in parts if n for value in (*[0.0] * (n - 1), earned)]


def _by_part(reward: Reward, parts: int) -> list[float]:
    """A reward divided among the turns of a sample; a reward of the whole belongs to the last one."""
    if isinstance(reward, int | float):
        return [*[0.0] * (parts - 1), float(reward)]
    return [*map(float, reward[: parts - 1]), float(sum(reward[parts - 1 :]))]


def turn_lengths(sample: Sample) -> list[int]:
    """Own tokens of each turn of a conversation; tokens of others stand between two turns."""
    return [sum(1 for _ in run) for own, run in groupby(sample.own) if own]


def rewards_by_turn(trajectory: Trajectory, whole: float) -> list[float]:
    """The reward of each turn of an episode whose reward is `whole`: what the world paid for it, the rest at the end.

    The rest is the grade of the final answer, or what a bound on the return took off.
    """
    return [*trajectory.rewards[:-1], whole - sum(trajectory.rewards[:-1])]


def total_reward(reward: Reward) -> float:
    """A sample's whole reward."""
    return float(reward) if isinstance(reward, int | float) else float(sum(reward))


class Trainer:
    """A policy with the settings of its training."""

    def __init__(self, policy: PolicyModel, config: Training) -> None:
        self.policy, self.config = policy, config
        if config.advantage == "gae":
            policy.with_critic()  # before a resume loads it
        if config.rto:
            policy.with_token_reward()
        if config.nlpo:
            policy.renew_mask()

    async def draw_groups(
        self,
        run: Run,
        conversations: Sequence[Conversation],
        *,
        n: int | None = None,
        temperature: float | None = None,
    ) -> list[list[Sample]]:
        """A group of texts to `learn` from for each conversation: (conversations, n or `group`).

        With `advantage=remax` the last text of each group is the greedy one, which is the baseline of the others.
        """
        if self.config.advantage != "remax":
            return await self.sample(run, conversations, n=n, temperature=temperature)
        total = max(2, self.config.group if n is None else n)
        groups = await self.sample(run, conversations, n=total - 1, temperature=temperature)
        greedy = await self.sample(run, conversations, n=1, greedy=True)
        return [[*group, *last] for group, last in zip(groups, greedy, strict=True)]

    async def sample(
        self,
        run: Run,
        conversations: Sequence[Conversation],
        *,
        n: int | None = None,
        greedy: bool = False,
        temperature: float | None = None,
    ) -> list[list[Sample]]:
        """A group of texts for each conversation, as a recorded effect: (conversations, n or `group`).

        `temperature` None is that of the settings. The seed is the run's.
        """
        config = self.config
        heat = config.temperature if temperature is None else temperature
        seed = run.rng.getrandbits(63)

        async def draw() -> JSON:
            groups = self.policy.sample(
                conversations,
                config.group if n is None else n,
                temperature=0.0 if greedy else heat,
                max_tokens=config.max_tokens,
                seed=seed,
                top_p=config.top_p,
                mask=0.0 if greedy else config.nlpo,
            )
            return [[sample.to_json() for sample in group] for group in groups]

        drawn = convert_record(await run.effect("sample", draw), list[list[dict[str, object]]])
        return [[Sample.from_json(value) for value in group] for group in drawn]

    def assign_credit(self, whole: Sequence[float], turns: Sequence[Sequence[float]]) -> list[Reward]:
        """Rewards for `learn`: those of whole conversations, or with `credit=turn` those of their turns."""
        return list(turns if self.config.by_turn else whole)

    def learn(
        self, groups: Groups, rewards: Sequence[Sequence[Reward]], weights: Rows | None = None
    ) -> dict[str, float]:
        """One update from groups of samples and their rewards; figures of `PolicyModel.update` and of the rewards, none
        without groups. The greedy texts of remax are in none of them. `truncated`: share of texts that the bound on tokens cut.
        `weights`: what the advantage of each token of each sample is multiplied by."""
        if not groups:
            return {}
        config, totals = self.config, [[total_reward(reward) for reward in group] for group in rewards]
        equal_groups = sum(estimators.equal(group) for group in totals) / len(totals)
        greedy: list[float] = []
        if config.advantage == "remax":
            greedy = [group[-1] for group in totals]
            groups, totals = [group[:-1] for group in groups], [group[:-1] for group in totals]
            rewards = [group[:-1] for group in rewards]
        every = [sample for group in groups for sample in group]
        figures = {
            "reward": sum(map(sum, totals)) / max(1, len(every)),
            "equal_groups": equal_groups,
            "truncated": sum(not sample.ended for sample in every) / max(1, len(every)),
            "length": sum(sum(sample.own) for sample in every) / max(1, len(every)),
        }
        figures |= self.watch_divergence(every)
        least = 1 if config.advantage in (*IN_REWARD, "remax") else config.smallest_group
        kept = credit.learnable(groups, least, cut_too=config.truncated == "learn")
        samples = [groups[i][j] for i, places in kept for j in places]
        if not samples:
            return figures
        learned = [[groups[i][j] for j in places] for i, places in kept]
        paid = [[rewards[i][j] for j in places] for i, places in kept]
        if config.advantage == "gae":
            flat = [reward for group in paid for reward in group]
            advantages, more = token_advantages(config, self.policy, samples, flat)
        else:
            shown = config if config.loss not in WHOLE else replace(config, advantage="dr_grpo")
            baselines = [greedy[i] for i, _ in kept] if greedy else []
            advantages, more = batch_token_advantages(shown, self.policy, learned, paid, baselines)
            kept_totals = [[totals[i][j] for j in places] for i, places in kept]
            advantages = self._fill_equal_groups(learned, kept_totals, advantages)
        if weights is not None:
            starts = list(accumulate(map(len, groups), initial=0))
            chosen = [weights[starts[i] + j] for i, places in kept for j in places]
            pairs = zip(advantages, chosen, strict=True)
            advantages = [[a * w for a, w in zip(row, by, strict=True)] for row, by in pairs]
        if config.rto:
            earned = [[total_reward(reward) for reward in group] for group in paid]
            loss = self.policy.fit_token_reward(pairs_of(learned, earned), config.lr)
            more |= {} if loss is None else {"dpo_loss": loss}
        learned_figures = self.policy.update(samples, advantages, config.update())
        self._age_mask()
        return {**learned_figures, **more, **figures}

    def _age_mask(self) -> None:
        """With `nlpo`, renew the masking policy when it is `mask_steps` steps old."""
        if not self.config.nlpo:
            return
        age = self.policy.notes.get("mask_age", 0) + 1
        if age >= self.config.mask_steps:
            self.policy.renew_mask()
            age = 0
        self.policy.notes["mask_age"] = age

    def watch_divergence(self, samples: Sequence[Sample]) -> dict[str, float]:
        """With `kl_limit` the figure `divergence` of samples of the present policy, in nats a text; raises SearchStopped for one
        beyond the limit."""
        limit = self.config.kl_limit
        if not limit:
            return {}
        divergence = credit.text_divergence(self.policy, samples)
        credit.check_divergence(divergence, limit)
        return {"divergence": divergence}

    def _fill_equal_groups(self, groups: Groups, totals: Sequence[Sequence[float]], advantages: Rows) -> Rows:
        """The advantages with those of the groups of equal rewards as `zero_variance` has them, unless their turns differ."""
        config, rows = self.config, iter(advantages)
        filled: Rows = []
        for group, rewards in zip(groups, totals, strict=True):
            own = [next(rows) for _ in group]
            if len(group) > 1 and estimators.equal(rewards) and not any(map(any, own)):
                if config.zero_variance == "zvp":
                    measured = zip(group, self.policy.entropies(group), strict=True)
                    entropies = [
                        [h for h, mine in zip(row, s.own, strict=True) if mine] for s, row in measured
                    ]
                    own = spread(group, zvp(rewards[0], entropies, config.zvp, config.right))
                elif config.zero_variance == "erpo":
                    imagined = with_pseudo_negative(rewards, config.penalty, config.right)
                    values = GROUP[config.advantage](imagined)[: len(group)]
                    own = spread(group, [[a] * sum(s.own) for a, s in zip(values, group, strict=True)])
            filled += own
        return filled


def rows_of_training(
    config: Training,
    policy: PolicyModel,
    start: Prompt,
    rows: Sequence[Example],
    steps: int,
    k: int,
    most: int | None,
) -> RowSource:
    """The training rows for `steps` steps of `k` rows, as the settings choose them. `most`: rows that the limits pay for."""

    def read(examples: Sequence[Example]) -> list[list[float]]:
        return policy.read_states([start.render(example) for example in examples])

    selector = make_selector(config.rows, policy, rows, horizon=max(1, steps * k // 2), features=read)
    return RowSource(selector, config.resamples if config.rows == "dynamic" else 0, most)
