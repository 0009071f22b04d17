"""Rewards that other packages bring: a frozen dataclass each, like the built-in ones."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

from whet.fields import options_of
from whet.plugins import Plugin
from whet.rewards.reward import JUDGE, LABELS, TARGET, TARGET_SCORE, RewardFunction

FIXED = ("name", "low", "high", "needs")
"""Fields of a reward that a task file does not set."""
_NEEDS = frozenset({JUDGE, LABELS, TARGET, TARGET_SCORE})


def load_reward(plugin: Plugin, construct: Callable[[type[Any]], RewardFunction]) -> RewardFunction:
    """The reward of a plugin, made by `construct` from its class. Raises UsageError naming the package."""
    reward: RewardFunction = plugin.call(construct, plugin.load(_wrong_class))
    wrong: str | None = plugin.call(_wrong_reward, reward)
    if wrong is not None:
        plugin.refuse(wrong)
    return reward


def _wrong_class(cls: Any) -> str | None:
    if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)):
        return "is no dataclass"
    options_of(cls, FIXED)
    return None if inspect.iscoroutinefunction(getattr(cls, "grade", None)) else "has no `async def grade`"


def _wrong_reward(reward: RewardFunction) -> str | None:
    if not (math.isfinite(reward.low) and math.isfinite(reward.high) and reward.low < reward.high):
        return f"its range is [{reward.low!r}, {reward.high!r}], not two finite numbers low < high"
    unknown = set(reward.needs) - _NEEDS
    if unknown:
        return f"it needs {', '.join(sorted(unknown))}, and a reward needs {', '.join(sorted(_NEEDS))} or nothing"
    return None if isinstance(reward.name, str) and reward.name else "it has no name"
