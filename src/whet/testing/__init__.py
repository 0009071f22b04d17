"""Public helpers for tests: conformance suites, runs that count, small tasks with a known optimum, a local server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.testing.environments import EnvironmentConformance
    from whet.testing.methods import MethodConformance
    from whet.testing.models import ModelConformance
    from whet.testing.rewards import RewardConformance
    from whet.testing.runs import MeteredRun, RecordedRun, ShuffledRun
    from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, garbage, review_world, reviews
    from whet.testing.storages import CacheConformance, DatabaseConformance, StorageConformance

__all__ = [
    "SOURCE",
    "Answers",
    "CacheConformance",
    "ConstantReward",
    "DatabaseConformance",
    "EnvironmentConformance",
    "MeteredRun",
    "MethodConformance",
    "ModelConformance",
    "RecordedRun",
    "RewardConformance",
    "ShuffledRun",
    "StorageConformance",
    "garbage",
    "review_world",
    "reviews",
]

_HOMES = {
    "whet.testing.environments": ("EnvironmentConformance",),
    "whet.testing.methods": ("MethodConformance",),
    "whet.testing.models": ("ModelConformance",),
    "whet.testing.rewards": ("RewardConformance",),
    "whet.testing.runs": ("MeteredRun", "RecordedRun", "ShuffledRun"),
    "whet.testing.storages": ("CacheConformance", "DatabaseConformance", "StorageConformance"),
    "whet.testing.simulated_task": (
        "SOURCE",
        "Answers",
        "ConstantReward",
        "garbage",
        "review_world",
        "reviews",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: a suite loads what it needs and no more."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'whet.testing' has no attribute {name!r}")
