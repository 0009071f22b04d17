"""From the rewards of groups to the advantage of every token, by whichever estimator the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from whet.environments.episodes import Trajectory
from whet.errors import UsageError
from whet.rl import advantages as estimators
from whet.rl import erpo
from whet.rl.advantages import Rows
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.training_settings import Training

GROUP: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    "grpo": estimators.grpo,
    "dr_grpo": estimators.dr_grpo,
    "rloo": estimators.rloo,
}
"""Estimators that are a function of the rewards of a group alone."""
Reward = float | Sequence[float]
Groups = Sequence[Sequence[Sample]]
T = TypeVar("T")


def token_advantages(
    config: Training,
    writer: PolicyModel,
    groups: Groups,
    rewards: Sequence[Sequence[Reward]],
    greedy: Sequence[float] = (),
    gaps: Rows | None = None,
) -> tuple[Rows, Rows | None]:
    """Advantages per token of all samples in the order of the groups, and the critic's returns (gae, dro).

    Tokens of others get 0. `gaps` are the `divergences` of the samples, where they were measured before.
    """
    flat = [sample for group in groups for sample in group]
    gaps = divergences(config, writer, flat) if gaps is None else gaps
    per_token = _token_rewards(config, flat, [reward for group in rewards for reward in group], gaps)
    sizes = [len(group) for group in groups]
    kind = config.advantage
    returns: Rows | None = None
    if config.loss == "dro":
        advantages, returns = _dro(config, writer, flat, per_token, sizes)
    elif kind == "reinforce++":
        advantages = estimators.reinforce_pp(per_token, config.gamma)
    elif kind == "gae":
        values = [_own(s, v) for s, v in zip(flat, writer.values(flat), strict=True)]
        pairs = [
            estimators.gae(r, v, config.gamma, config.lam) for r, v in zip(per_token, values, strict=True)
        ]
        advantages, returns = estimators.whiten([a for a, _ in pairs]), [back for _, back in pairs]
    elif kind == "remax":
        if len(greedy) != len(sizes):
            raise UsageError("advantage=remax needs the reward of a greedy text for each question.")
        baselines = [one for one, size in zip(greedy, sizes, strict=True) for _ in range(size)]
        advantages = [
            estimators.remax(r, base, config.gamma) for r, base in zip(per_token, baselines, strict=True)
        ]
    else:
        advantages = _by_group(config, writer, flat, per_token, sizes)
    rows = [_spread(sample, row) for sample, row in zip(flat, advantages, strict=True)]
    if returns is None:
        return rows, None
    return rows, [_spread(sample, row) for sample, row in zip(flat, returns, strict=True)]


def _dro(
    config: Training, writer: PolicyModel, flat: Sequence[Sample], per_token: Rows, sizes: Sequence[int]
) -> tuple[Rows, Rows | None]:
    """r - V(x) for each token: V from the group; of single samples from the critic, which learns r - tau log-ratio."""
    reference = writer.measured(flat, reference=True)[0]
    ratios = [sum(_own(s, s.logprobs)) - sum(_own(s, ref)) for s, ref in zip(flat, reference, strict=True)]
    rewards = [sum(row) for row in per_token]
    if max(sizes, default=0) > 1:
        groups = zip(_cut(rewards, sizes), _cut(ratios, sizes), strict=True)
        advantages = [a for r, q in groups for a in estimators.dro_advantages(r, q, config.kl)]
        return [[a] * len(row) for a, row in zip(advantages, per_token, strict=True)], None
    values = [_own(s, v)[0] for s, v in zip(flat, writer.values(flat), strict=True)]
    wanted = [r - config.kl * q for r, q in zip(rewards, ratios, strict=True)]
    lengths = [len(row) for row in per_token]
    gaps = [[r - v] * n for r, v, n in zip(rewards, values, lengths, strict=True)]
    return gaps, [[one] * n for one, n in zip(wanted, lengths, strict=True)]


def _by_group(
    config: Training, writer: PolicyModel, flat: Sequence[Sample], per_token: Rows, sizes: Sequence[int]
) -> Rows:
    """The estimators that compare the samples of a group: by their whole rewards, or turn by turn."""
    if config.by_turn:
        return _by_turn(config, flat, per_token, sizes)
    totals = _cut([sum(row) for row in per_token], sizes)
    lengths = _cut([len(row) for row in per_token], sizes)
    if config.advantage == "reinforce++-baseline":
        return estimators.reinforce_pp_baseline(totals, lengths)
    if config.advantage == "rl_zvp":
        entropies = writer.measured(flat)[1]
        own = _cut([_own(s, row) for s, row in zip(flat, entropies, strict=True)], sizes)
        pairs = zip(totals, own, strict=True)
        return [row for r, h in pairs for row in estimators.rl_zvp(r, h, config.zvp, config.right)]
    estimate = GROUP[config.advantage]
    advantages: Rows = []
    for rewards, counts in zip(totals, lengths, strict=True):
        if config.residual == "erpo":
            rewards = erpo.erpo_reactivated(rewards, right=config.right)
        advantages += [[a] * count for a, count in zip(estimate(rewards), counts, strict=False)]
    return advantages


def _by_turn(config: Training, flat: Sequence[Sample], per_token: Rows, sizes: Sequence[int]) -> Rows:
    """What follows a turn, compared with what follows the same turn of the others, at each of the turn's tokens."""
    lengths = [turns_of(sample) for sample in flat]
    rewards = [[sum(part) for part in _cut(row, n)] for row, n in zip(per_token, lengths, strict=True)]
    estimate = GROUP.get(config.advantage, estimators.dr_grpo)
    advantages = [
        row
        for group in _cut(rewards, sizes)
        for row in estimators.turn_advantages(group, estimate, config.gamma)
    ]
    spread = [
        [a for a, n in zip(row, counts, strict=True) for _ in range(n)]
        for row, counts in zip(advantages, lengths, strict=True)
    ]
    return estimators.whiten(spread) if config.advantage == "reinforce++-baseline" else spread


def turns_of(sample: Sample) -> list[int]:
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


def earned(played: Trajectory, whole: float) -> list[float]:
    """The reward of each turn of an episode whose reward is `whole`: what the world paid for it, the rest at the end.

    The rest is the grade of the final answer, or what a bound on the return took off.
    """
    return [*played.rewards[:-1], whole - sum(played.rewards[:-1])]


def divergences(config: Training, writer: PolicyModel, samples: Sequence[Sample]) -> Rows:
    """log pi_old - log ref of the own tokens of each sample, what `kl_in=reward` takes off; nothing without it."""
    if config.kl_in != "reward" or not config.kl:
        return []
    reference = writer.measured(samples, reference=True)[0]
    return [
        [old - ref for old, ref in zip(_own(sample, sample.logprobs), _own(sample, row), strict=True)]
        for sample, row in zip(samples, reference, strict=True)
    ]


def _token_rewards(
    config: Training, samples: Sequence[Sample], rewards: Sequence[Reward], gaps: Rows
) -> Rows:
    """Rewards of the own tokens of each sample, less the weighted divergences; a single reward stands at the last one."""
    by_token = []
    for sample, reward in zip(samples, rewards, strict=True):
        if isinstance(reward, int | float):
            own = sum(sample.own)
            by_token.append([0.0] * (own - 1) + [float(reward)])
        else:
            by_token.append(_own(sample, reward))
    if not gaps:
        return by_token
    pairs = zip(by_token, gaps, strict=True)
    return [[r - config.kl * gap for r, gap in zip(row, of, strict=True)] for row, of in pairs]


def total(reward: Reward) -> float:
    """A sample's whole reward."""
    return float(reward) if isinstance(reward, int | float) else float(sum(reward))


def _own(sample: Sample, row: Sequence[float]) -> list[float]:
    """The entries of a row that stand at the writer's own tokens."""
    return [float(value) for value, own in zip(row, sample.own, strict=True) if own]


def _spread(sample: Sample, row: Sequence[float]) -> list[float]:
    """Numbers of the own tokens at their places among all tokens, 0 elsewhere."""
    values = iter(row)
    return [next(values) if own else 0.0 for own in sample.own]


def _cut(items: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Items in groups of the given sizes."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [list(items[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
