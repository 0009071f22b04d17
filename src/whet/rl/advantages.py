"""Advantages: from rewards to how much each sample or token is to be encouraged. Pure functions, named by paper.

A group is the n samples drawn for one question; `rewards` of a group is (n,). Results have the same shape, or that of the
turns of a group's episodes, or of the steps of one episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

Rows = list[list[float]]
ROUNDING = 1e-12
"""The tolerance within which values count as equal, as a share of the larger one."""


def grpo(rewards: Sequence[float], eps: float = 1e-6) -> list[float]:
    """Group-relative advantages of GRPO; Shao et al. 2024, arXiv:2402.03300, section 4.1.2.

        A_i = (r_i - mean) / (std + eps),   std with n - 1

    Equal rewards give 0. A group of one has mean 0 and std 1.
    """
    if len(rewards) == 1:
        return [rewards[0] / (1 + eps)]
    if equal(rewards):
        return [0.0] * len(rewards)
    r = np.asarray(rewards, dtype=np.float64)
    return _floats((r - r.mean()) / (r.std(ddof=1) + eps))


def dr_grpo(rewards: Sequence[float]) -> list[float]:
    """r_i - mean, without the standard deviation; Dr. GRPO, Liu et al. 2025, arXiv:2503.20783, section 3.2.

    A group of one gets 0.
    """
    if equal(rewards):
        return [0.0] * len(rewards)
    r = np.asarray(rewards, dtype=np.float64)
    return _floats(r - r.mean())


def rloo(rewards: Sequence[float]) -> list[float]:
    """r_i minus the mean of the others, (n r_i - n mean) / (n - 1); RLOO, Ahmadian et al. 2024, arXiv:2402.14740.

    Without others the baseline is 0: a group of one keeps its reward.
    """
    n = len(rewards)
    if n == 1:
        return [float(rewards[0])]
    return [n / (n - 1) * a for a in dr_grpo(rewards)]


def remax(rewards: Sequence[float], greedy: float) -> list[float]:
    """Returns to go of one sample minus the reward of the greedy one of its question; ReMax, Li et al. 2023, arXiv:2310.10505.

        A_t = G_t - r(greedy)

    `rewards` per token (T,). The baseline costs one more sample and its reward, and no group: one sample a question is
    enough. When the greedy text is as good as all others, everything gets 0.
    """
    return [back - greedy for back in returns_to_go(rewards)]


def reinforce_pp(rewards: Sequence[Sequence[float]]) -> Rows:
    """Returns to go, whitened over all tokens of the batch; REINFORCE++, Hu et al. 2025, arXiv:2501.03262.

        A_{i,t} = (G_{i,t} - mean G) / std G,   over all own tokens of all samples

    `rewards`: per token of each sample, in the paper with the divergence taken off already. It needs no groups. Whitening
    divides the divergence by the spread of the returns as well: with a small spread, its weight grows.
    """
    return whiten([returns_to_go(row) for row in rewards])


def reinforce_pp_baseline(groups: Sequence[Sequence[float]], lengths: Sequence[Sequence[int]]) -> Rows:
    """REINFORCE++-baseline: r_i minus the mean of its group at each token, whitened over the batch; arXiv:2501.03262.

    `groups` of rewards, `lengths` of the same shape: own tokens of each sample. Results in the order of the groups. All
    groups share one standard deviation, so that a group of nearly equal rewards is not blown up as by `grpo`.
    """
    return whiten(
        [
            [advantage] * length
            for rewards, counts in zip(groups, lengths, strict=True)
            for advantage, length in zip(dr_grpo(rewards), counts, strict=True)
        ]
    )


def dro(rewards: Sequence[float], log_ratios: Sequence[float], tau: float) -> list[float]:
    """r_i - V(x) of `losses.dro`, with the V that minimises the loss over the group; Richemond et al. 2024, arXiv:2405.19107.

        V(x) = mean_i (r_i - tau (log policy - log reference)_i)

    `log_ratios` (n,) of whole responses. A group of one has no error left to learn from: its V must come from elsewhere.
    """
    value = float(np.mean([r - tau * ratio for r, ratio in zip(rewards, log_ratios, strict=True)]))
    return [reward - value for reward in rewards]


def token_rewards_rto(
    log_ratios: Sequence[float], reward: float, weight: float = 0.05, rest: float = 1.0
) -> list[float]:
    """Rewards per token (T,) of Reinforced Token Optimization; Zhong et al. 2024, arXiv:2404.18922, algorithm 2.

        r_t = weight log_ratio_t + [t = T] rest reward        log_ratio: log pi_dpo - log reference of token t

    pi_dpo: a model that DPO trained on pairs of texts: the log-ratio is the reward that it implies, token by token. The
    paper's divergence from the reference is taken off elsewhere. `weight` is in rewards per nat; its default is ours.
    """
    rows = [weight * ratio for ratio in log_ratios]
    if rows:
        rows[-1] += rest * reward
    return rows


def redistribute(values: Sequence[float], reward: float) -> list[float]:
    """A reward spread over the tokens (T,) by what each adds to its forecast; RED, Li et al. 2024, arXiv:2411.08302.

        r_t = V_{t+1} - V_t  for t < T,   r_T = reward - V_T + V_1,   so that the sum is the reward

    `values` (T,): V_t forecasts the whole reward from what stands before token t. The value that was known before the first
    token is subtracted at the last token. Shaping by a potential: it changes no policy's return (Ng, Harada, Russell 1999).
    """
    if not values:
        return []
    ahead = [*values[1:], reward + values[0]]
    return [after - before for before, after in zip(values, ahead, strict=True)]


def returns_to_go(rewards: Sequence[float]) -> list[float]:
    """G_t = r_t + G_{t+1} over the turns of one episode. Sutton, Barto: Reinforcement Learning, 2nd edition, equation 3.9.

    >>> returns_to_go([0.0, 0.0, 1.0])
    [1.0, 1.0, 1.0]
    """
    return list(itertools.accumulate(reversed(rewards)))[::-1]


def turn_advantages(
    group: Sequence[Sequence[float]], estimate: Callable[[Sequence[float]], list[float]]
) -> Rows:
    """Advantages of the turns of a group of episodes of the same question, in the shape of `group`.

        G_{i,t} = r_{i,t} + G_{i,t+1},   A_{.,t} = estimate(G_{.,t} of the episodes that reached turn t)

    `group` holds the rewards of each episode by turn, `estimate` is an estimator of a group: grpo, dr_grpo, rloo. The reward of
    an earlier turn is no credit of a later turn, as with the returns to go of REINFORCE (Sutton, Barto, section 13.3). A later
    turn that only one episode reached is compared with nothing: it keeps that episode's advantage of the turn before. With one
    turn, or with rewards at the end of episodes of equal length, this is `estimate` of the whole rewards.

    >>> turn_advantages([[0.0, 1.0], [1.0, 0.0]], dr_grpo)
    [[0.0, 0.5], [0.0, -0.5]]
    """
    to_go = [returns_to_go(rewards) for rewards in group]
    rows: Rows = [[] for _ in group]
    for turn in range(max((len(row) for row in to_go), default=0)):
        reached = [i for i, row in enumerate(to_go) if len(row) > turn]
        advantages = estimate([to_go[i][turn] for i in reached])
        for i, advantage in zip(reached, advantages, strict=True):
            rows[i].append(advantage if len(reached) > 1 or not turn else rows[i][-1])
    return rows


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float = 1.0, lam: float = 0.95
) -> tuple[list[float], list[float]]:
    """Generalised advantage estimation over the steps of one episode; Schulman et al. 2016, arXiv:1506.02438, eq. 16.

        delta_t = r_t + gamma V_{t+1} - V_t,   A_t = delta_t + gamma lam A_{t+1},   returns = A + V

    `values`: V of the state before each token; the state after the last one is worth 0. Returns advantages and the
    returns that a critic is trained on. `lam=0` is the temporal difference, `lam=1` returns to go minus V.
    """
    advantages: list[float] = []
    ahead = next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        ahead = reward + gamma * next_value - value + gamma * lam * ahead
        next_value = value
        advantages.append(ahead)
    advantages.reverse()
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def whiten(rows: Sequence[Sequence[float]]) -> Rows:
    """All numbers of a batch moved to mean 0 and scaled to variance 1 (n - 1) together.

    Numbers that are all the same, or a single one, become 0.
    """
    flat = [value for row in rows for value in row]
    if equal(flat):
        return [[0.0] * len(row) for row in rows]
    mean, std = float(np.mean(flat)), float(np.std(flat, ddof=1))
    return [[(value - mean) / std for value in row] for row in rows]


def equal(values: Sequence[float]) -> bool:
    """Whether all values are the same but for rounding; true for one or none.

    Means of graded rewards that are equal on paper may differ in the last digit, and `whiten` would make them -1 and 1.

    >>> equal([0.1 + 0.2, 0.3]), equal([0.3, 0.300001])
    (True, False)
    """
    if not len(values):
        return True
    low, high = min(values), max(values)
    return bool(high - low <= ROUNDING * max(abs(low), abs(high)))


def _floats(values: np.typing.NDArray[np.float64]) -> list[float]:
    return [float(value) for value in values]
