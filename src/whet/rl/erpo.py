"""Residual prompts: groups whose samples all succeed, and what ERPO does so that they teach again.

Explore Residual Prompts (arXiv:2511.04800). The paper's code is not public and its formulas are not available to us:
both functions on rewards and temperature are our reading of its description.
"""

from __future__ import annotations

from collections.abc import Sequence


def erpo_visits(visits: int, rewards: Sequence[float], right: float = 0.5) -> int:
    """How often in a row a question was answered right by its whole group; one wrong answer sets it to 0."""
    return visits + 1 if min(rewards) >= right else 0


def erpo_temperature(base: float, visits: int, step: float = 0.1, hottest: float = 1.5) -> float:
    """min(base + step visits, hottest): what is always right is sampled hotter, so that something else is tried.

    `base` above `hottest` stays. Samples keep the temperature that they were drawn at, and ratios are taken at it.
    """
    return max(base, min(base + step * visits, hottest))


def erpo_reactivated(rewards: Sequence[float], penalty: float = 0.1, right: float = 0.5) -> list[float]:
    """The rewards of a group and, if they are equal and right, that of one imagined sample `penalty` below them.

    The caller drops the imagined sample after advantages are computed: the group's own are then small and
    positive (with GRPO 1 / sqrt(n + 1), with Dr. GRPO penalty / (n + 1)) instead of 0.
    """
    values = [float(reward) for reward in rewards]
    return [*values, values[0] - penalty] if max(values) == min(values) >= right else values
