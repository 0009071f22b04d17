"""Which turn earned what: returns-to-go and advantages per turn. Pure functions of rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence


def returns_to_go(rewards: Sequence[float], discount: float = 1.0) -> list[float]:
    """G_t = r_t + discount * G_{t+1}, one for each turn; `discount` in [0, 1].

    Sutton, Barto: Reinforcement Learning, 2nd edition, equation 3.9.

    >>> returns_to_go([0.0, 0.0, 1.0], 0.5)
    [0.25, 0.5, 1.0]
    """
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + discount * total
        found.append(total)
    return found[::-1]


def turn_advantages(
    group: Sequence[Sequence[float]], discount: float = 1.0, *, scale: bool = False
) -> list[list[float]]:
    """Advantages of all turns of a group of episodes of the same example, in the shape of `group`.

    `group` holds the rewards of each episode by turn. The advantage is the return-to-go less the mean
    return-to-go at the same turn of the episodes that got so far; with `scale` it is divided by their sample
    standard deviation + 1e-6. A turn that only one episode reached is compared with nothing: its advantage is that
    episode's advantage at the turn before (without a turn before, 0). With one turn this is the group advantage of
    Dr. GRPO (Liu et al. 2025, arXiv:2503.20783), with `scale` that of GRPO (Shao et al. 2024, arXiv:2402.03300).

    >>> turn_advantages([[0.0, 1.0], [0.0, 0.0]])
    [[0.5, 0.5], [-0.5, -0.5]]
    """
    to_go = [returns_to_go(rewards, discount) for rewards in group]
    found: list[list[float]] = [[] for _ in group]
    for turn in range(max((len(g) for g in to_go), default=0)):
        reached = [i for i, g in enumerate(to_go) if len(g) > turn]
        values = [to_go[i][turn] for i in reached]
        mean = math.fsum(values) / len(values)
        spread = _deviation(values, mean) + 1e-6 if scale else 1.0
        for i, value in zip(reached, values, strict=True):
            alone = found[i][-1] if found[i] else 0.0
            found[i].append((value - mean) / spread if len(reached) > 1 else alone)
    return found


def _deviation(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(1, len(values) - 1))
