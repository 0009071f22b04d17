"""Warnings of judges that are asked several times and can only say the same each time."""

from __future__ import annotations

from typing import Any

from whet.engine.options import Options
from whet.rewards import Objectives, RewardFunction, Weighted
from whet.rewards.listwise import Listwise
from whet.task import Task
from whet.task.roles import changed_spec
from whet.task.spec import ModelSpec


def sampling_warnings(task: Task, options: Options) -> list[str]:
    """The warning where `samples` asks a judge for several answers, and its model has the temperature 0."""
    rewards = [("judge", changed_spec(task.models["judge"], options.judge_lm, "judge"), task.reward)]
    if task.second_opinion is not None and "second" in task.models:
        rewards.append(("second", task.models["second"], task.second_opinion))
    return [
        f"The reward {part.name} asks for {part.samples} samples, and the model of the role {role} has the temperature 0: the "
        "samples of one answer are equal, or nearly so, and each is paid. Leave the temperature out (samples are drawn at "
        "temperature 1), or set samples: 1."
        for role, spec, reward in rewards
        if _is_fixed(spec)
        for part in _list_sampled(reward)
    ]


def _is_fixed(spec: ModelSpec) -> bool:
    return 0 in (spec.temperature, spec.extra_body.get("temperature"))


def _list_sampled(reward: RewardFunction) -> list[Any]:
    """The rewards that ask a judge the same question several times, also inside a weighted list; `listwise` shows each of
    its lists in another order."""
    if isinstance(reward, Weighted | Objectives):
        return [one for _, part in reward.parts for one in _list_sampled(part)]
    return [reward] if getattr(reward, "samples", 1) > 1 and not isinstance(reward, Listwise) else []
