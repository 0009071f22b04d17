"""With how many calls a search makes its first round, asked of the method before anything is paid."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from whet.engine.budget import BudgetPlan, answer_calls, held_from_search, plan_budget, row_calls
from whet.engine.model_client import ModelClient
from whet.engine.run_folder import RunPlan
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import OPTIMIZER
from whet.rl.language import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.types import JSON, Completion, Request

MOST = 1_000_000
"""Calls up to which a first round is looked for."""


class _Began(Exception):
    """The method begins to work."""


class _PlanningRun(MemoryRun):
    """A run that ends where its method would do the first thing that takes a call; `rounds` is what it said it plans."""

    def __init__(self, limits: Budget, seed: int) -> None:
        super().__init__({}, seed)
        self.limits = limits
        self.rounds: tuple[int, int] | None = None

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        raise _Began

    async def generate(self, role: str, request: Request) -> list[Completion]:
        raise _Began

    def note_rounds(self, paid: int, wanted: int) -> None:
        self.rounds = paid, wanted


async def least_calls(
    plan: RunPlan,
    env: Environment,
    clients: Mapping[str, ModelClient],
    sizes: BudgetPlan,
    other: ModelClient | None = None,
) -> int | None:
    """The smallest limit on calls with which the method makes one round, where that of the plan is smaller. None where it is
    not, for a method that says nothing of rounds or needs no optimizer model, and for prompts of several regions.
    """
    limit, several = plan.limits.calls, len(plan.task.prompt.regions) > 1
    if limit is None or OPTIMIZER not in plan.method.entry.needs or sizes.runs > 1 or several:
        return None
    if await _rounds(plan, env, sizes, limit) != 0:
        return None

    async def begins(calls: int) -> bool:
        try:
            limits = replace(plan.limits, calls=calls)
            made = plan_budget(plan.task, limits, env, plan.config, clients, other)
        except UsageError:
            return False
        return bool(await _rounds(plan, env, made, calls))

    few, enough = limit, 2 * limit
    while not await begins(enough):
        few, enough = enough, 2 * enough
        if enough > MOST:
            return None
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if await begins(middle) else (middle, enough)
    return enough


async def _rounds(plan: RunPlan, env: Environment, sizes: BudgetPlan, calls: int) -> int | None:
    """The rounds that the method plans under a limit of so many calls; None where it says nothing of them or wants none."""
    limits, each = replace(plan.limits, calls=calls), row_calls(env, answer_calls(env, plan.config))
    left: dict[str, Any] = {}
    kept = held_from_search(sizes.held, sizes, env, plan.config, plan.method.deploys(plan.config))
    for name, of_row in each.items():
        limit, held = getattr(limits, name), getattr(kept, name) or 0
        left[name] = None if limit is None else max(0, limit - held - of_row * len(sizes.validation))
    run = _PlanningRun(replace(limits, **left), plan.seed)
    known = len(sizes.validation) if env.recorded_by_content else 0
    used = replace(env, validation=sizes.validation, start_answers=known)
    with contextlib.suppress(Exception):  # what is wrong with the method, its run says
        await plan.method.coroutine(run, used, LanguagePolicy(), plan.task.prompt, plan.config)
    return None if run.rounds is None or not run.rounds[1] else run.rounds[0]
