"""A part of a run: another method searches in it as if it were a run of its own, within limits of its own."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from whet._util.workers import Executor
from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Budget, Run, Trainable, less_calls
from whet.search.archive import INCUMBENTS
from whet.search.plan import affordable_rows, cut_validation, payable_rollouts
from whet.types import JSON, Completion, Request

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Stage:
    """A run that is told other limits, counts the calls of each role, and names no incumbent unless it `leads`: what a stage
    finds is the result of the whole run only where it began from the best so far."""

    run: Run
    limits: Budget
    leads: bool
    spent: Counter[str] = field(default_factory=Counter)
    before: Mapping[str, int] | None = None
    """The calls that were spent before the stage began."""

    def __post_init__(self) -> None:
        if self.before is None:
            self.before = dict(self.spent)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.seed

    @property
    def rng(self) -> random.Random:
        """The generator of the branch."""
        return self.run.rng

    @property
    def executor(self) -> Executor:
        """The executor of the run."""
        return self.run.executor

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        """`effect` of the run, counted."""
        if role is not None:
            self.spent[role] += calls
        return await self.run.effect(name, fn, args, role=role, calls=calls)

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """`generate` of the run, counted."""
        self.spent[role] += 1
        return await self.run.generate(role, request)

    async def recall_answers(
        self, folder: str, ask: Callable[[Prompt], Sequence[Request]]
    ) -> list[tuple[Prompt, dict[int, Completion]]]:
        """`recall_answers` of the run."""
        return await self.run.recall_answers(folder, ask)

    async def read_remaining(self) -> Budget:
        """The rest of the stage's own limits, and at most the rest of the run's."""
        whole, own = await self.run.read_remaining(), Counter(self.spent)
        own.subtract(self.before or {})
        rest = less_calls(self.limits, own)
        return replace(
            rest,
            **{
                name: min(left, getattr(whole, name))
                for name, left in rest.as_json().items()
                if name.endswith("calls") and left is not None and getattr(whole, name) is not None
            },
        )

    def branch(self, name: str) -> Stage:
        """`branch` of the run; the branch belongs to the stage."""
        return replace(self, run=self.run.branch(name))

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """`map` of the run, in branches that belong to the stage."""
        return await self.run.map(lambda branch, item: fn(replace(self, run=branch), item), items)

    async def first(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> tuple[int, R]:
        """`first` of the run, in branches that belong to the stage."""
        return await self.run.first(lambda branch, item: fn(replace(self, run=branch), item), items)

    async def train(self, steps: int, body: Callable[[Run, int], Awaitable[None]], state: Trainable) -> None:
        """`train` of the run, in branches that belong to the stage."""
        await self.run.train(steps, lambda branch, step: body(replace(self, run=branch), step), state)

    async def keep(self, state: Trainable) -> str:
        """`keep` of the run."""
        return await self.run.keep(state)

    def note_rounds(self, paid: int, wanted: int) -> None:
        """Nothing: the rounds of a stage are not those of the run."""

    def log(self, name: str, value: JSON) -> None:
        """`log` of the run."""
        if name in INCUMBENTS and not self.leads and isinstance(value, dict):
            value = {**value, "incumbent": False}
        self.run.log(name, value)


def common_rows(run: Run, env: Environment, validations: int, *, writes: bool = False) -> Environment:
    """The environment with validation rows for all stages, of which so many validations take two fifths of the budget at most.
    Stages that write leave a fifth of all calls to the optimizer model."""
    payable = payable_rollouts(run, env, writes=writes)
    if payable is None:
        return env
    most = min(affordable_rows(env, payable), payable * 2 // 5 // validations)
    return cut_validation(run, env, max(1, most))


async def record_stage(run: Run, name: str, version: int | None) -> None:
    """Record that a stage runs a method in this version, so that a resume under another one is refused."""

    async def nothing() -> JSON:
        return None

    await run.effect("stage", nothing, [name, version])


def stage_limits(limits: Budget, spent: Mapping[str, int], kept: int, stages: int) -> Budget:
    """The limits on calls of the next of so many stages: an equal share of the remaining calls, without `kept` task calls.

    Limits on tokens, cost and seconds hold for the whole run.
    """
    used = {f"{role}_calls": calls for role, calls in spent.items()} | {"calls": sum(spent.values())}
    used["task_calls"] = used.get("task_calls", 0) + kept
    used["calls"] += kept

    def share(name: str) -> int | None:
        limit = getattr(limits, name)
        return None if limit is None else max(0, limit - used.get(name, 0)) // stages

    calls = {one.name: share(one.name) for one in fields(Budget) if one.name.endswith("calls")}
    return replace(limits, **calls)


def most_stages(limits: Budget, task: int, optimizer: int) -> float:
    """The number of stages, of so many calls of the task and of the optimizer model each, that the limits pay for."""
    pairs = (limits.task_calls, task), (limits.optimizer_calls, optimizer), (limits.calls, task + optimizer)
    return min((limit // each for limit, each in pairs if limit is not None), default=math.inf)
