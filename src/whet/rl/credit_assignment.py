"""From the rewards of groups to the advantage of every token, by the estimator that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from whet.environments.episodes import Trajectory
from whet.rl import advantages as estimators
from whet.rl.advantages import Rows
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.training import Training

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
