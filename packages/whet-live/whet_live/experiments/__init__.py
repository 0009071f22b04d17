"""Experiments on live traffic: several versions of a prompt, one question, an answer that survives peeking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.experiments.assigned_answers import rewards_over_time, version_rewards_of
    from whet_live.experiments.definition import Definition, Guard, read_definition, refuse_tiny
    from whet_live.experiments.definition_json import ExperimentEntry
    from whet_live.experiments.experiment_store import WAITING, Experiment
    from whet_live.experiments.forecast import DAYS, MetricTraffic, TrafficForecast
    from whet_live.experiments.manager import Experiments
    from whet_live.experiments.metrics import BEHAVIOUR, read_reward, with_reward
    from whet_live.experiments.rollout_monitor import until
    from whet_live.experiments.version_rewards import RewardsOverTime, VersionReward, VersionRewards

__all__ = [
    "BEHAVIOUR",
    "DAYS",
    "WAITING",
    "Definition",
    "Experiment",
    "ExperimentEntry",
    "Experiments",
    "Guard",
    "MetricTraffic",
    "RewardsOverTime",
    "TrafficForecast",
    "VersionReward",
    "VersionRewards",
    "read_definition",
    "read_reward",
    "refuse_tiny",
    "rewards_over_time",
    "until",
    "version_rewards_of",
    "with_reward",
]

__getattr__ = lazy(
    __name__,
    {
        "whet_live.experiments.assigned_answers": "rewards_over_time version_rewards_of",
        "whet_live.experiments.version_rewards": "RewardsOverTime VersionReward VersionRewards",
        "whet_live.experiments.metrics": "BEHAVIOUR read_reward with_reward",
        "whet_live.experiments.definition": "Definition Guard read_definition refuse_tiny",
        "whet_live.experiments.definition_json": "ExperimentEntry",
        "whet_live.experiments.experiment_store": "WAITING Experiment",
        "whet_live.experiments.forecast": "DAYS MetricTraffic TrafficForecast",
        "whet_live.experiments.manager": "Experiments",
        "whet_live.experiments.rollout_monitor": "until",
    },
)
