"""Does a method beat another one on a task whose optimum is known? Paired over seeds, with an interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from whet.environments.environment import Environment
from whet.methods import OPTIMIZER, configure, get_method
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.testing.runs import MeteredRun

T_95 = {
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
    8: 2.365,
    10: 2.262,
    12: 2.201,
    15: 2.145,
    20: 2.086,
    30: 2.045,
}
"""Number of pairs: 97.5% quantile of Student's t with one degree of freedom less."""


@dataclass(frozen=True)
class KnownWorld:
    """A task with a known law: `worth` is what a prompt is really worth. `optimizer` writes where needed."""

    env: Environment
    start: Prompt
    worth: Callable[[Prompt], float]
    optimizer: LanguageModel | None = None


def play_world(
    method: str, world: KnownWorld, seed: int, limits: Budget, settings: Mapping[str, object] | None = None
) -> float:
    """The real worth of what a method finds in a world within limits."""
    loaded = get_method(method)
    run = MeteredRun({"task": world.env.model, "optimizer": world.optimizer}, seed, limits=limits)
    policy = LanguagePolicy() if OPTIMIZER in loaded.entry.needs else None
    config = configure(loaded, settings or {})

    async def search() -> Any:
        return await loaded.coroutine(run, world.env, policy, world.start, config)

    best = asyncio.run(search())
    if limits.task_calls is not None and run.spent["task"] > limits.task_calls:
        raise AssertionError(f"{method} used {run.spent['task']} task calls of {limits.task_calls}")
    return world.worth(best.prompt)


@dataclass(frozen=True)
class Advantage:
    """Mean difference in worth with its 95% interval (Student's t over pairs of runs with the same seed)."""

    mean: float
    low: float
    high: float


def advantage(
    method: str,
    control: str,
    world: Callable[[int], KnownWorld],
    limits: Budget,
    seeds: Sequence[int],
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> Advantage:
    """Measure the advantage of `method` over `control` at an equal budget of task calls, over worlds drawn by seed.

    The number of seeds is one of those in T_95. `settings` belong to the methods by name.
    """
    by_method = settings or {}
    return paired_difference(
        [play_world(method, world(seed), seed, limits, by_method.get(method)) for seed in seeds],
        [play_world(control, world(seed), seed, limits, by_method.get(control)) for seed in seeds],
    )


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Advantage:
    """Compare the `first` figures with the `second`, in pairs; their number must be one of those in T_95."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    half = T_95[len(differences)] * stdev(differences) / len(differences) ** 0.5
    return Advantage(fmean(differences), fmean(differences) - half, fmean(differences) + half)
