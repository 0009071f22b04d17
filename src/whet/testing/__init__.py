"""Public helpers for tests: conformance suites, runs that count, small tasks with a known optimum, a local server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.testing.environments import EnvironmentConformance
    from whet.testing.methods import MethodConformance
    from whet.testing.models import ModelConformance
    from whet.testing.rewards import RewardConformance
    from whet.testing.runs import MeteredRun, RecordedRun, ShuffledRun
    from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, garbage, review_world, reviews
    from whet.testing.storages import CacheConformance, StorageConformance
    from whet_live.testing import DatabaseConformance

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
    "whet.testing.environments": "EnvironmentConformance",
    "whet.testing.methods": "MethodConformance",
    "whet.testing.models": "ModelConformance",
    "whet.testing.rewards": "RewardConformance",
    "whet.testing.runs": "MeteredRun RecordedRun ShuffledRun",
    "whet.testing.storages": "CacheConformance StorageConformance",
    "whet.testing.simulated_task": "SOURCE Answers ConstantReward garbage review_world reviews",
    "whet_live.testing": "DatabaseConformance",
}

__getattr__ = lazy(__name__, _HOMES)
