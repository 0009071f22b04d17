"""Runs for tests: calls are counted, limits can be enforced, branches can finish in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from whet.errors import BudgetExceeded
from whet.run import Budget, MemoryRun, Run
from whet.types import JSON, Completion, Request

T = TypeVar("T")
R = TypeVar("R")


class MeteredRun(MemoryRun):
    """A MemoryRun that counts the calls of each role in `spent`.

    `limits` is what the method is told, `caps` what is enforced: the call that would exceed the cap of its
    role raises BudgetExceeded, and `refused` counts how often that happened. The two are apart so that a test
    can see a method exceed what it was told, or end one that was told nothing.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | None = None,
        seed: int = 0,
        path: str = "",
        *,
        limits: Budget | None = None,
        caps: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(models, seed, path)
        self.limits = limits or Budget()
        self.caps = dict(caps or {})
        self.spent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def _branch(self, position: int, index: int) -> MeteredRun:
        branch = type(self)(
            self.models, self.seed, f"{self.path}/{position}:{index}", limits=self.limits, caps=self.caps
        )
        branch.logged, branch.kept = self.logged, self.kept
        branch.spent, branch.refused = self.spent, self.refused
        return branch

    def _charge(self, role: str, calls: int) -> None:
        cap = self.caps.get(role)
        if cap is not None and self.spent[role] + calls > cap:
            self.refused[role] += 1
            raise BudgetExceeded(
                f"{role}_calls", f"{self.spent[role]} of {cap} {role} calls are spent, {calls} more wanted."
            )
        self.spent[role] += calls

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[JSON]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        """Charge the calls, then run `fn`."""
        if role is not None:
            self._charge(role, calls)
        return await super().effect(name, fn, args, role=role, calls=calls)

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """Charge one call, then ask the model."""
        self._charge(role, 1)
        return await super().generate(role, request)


class ShuffledRun(MeteredRun):
    """A MeteredRun whose branches of `map` run in an order of their own; `order` chooses which."""

    order = 0

    def _branch(self, position: int, index: int) -> ShuffledRun:
        branch = super()._branch(position, index)
        assert isinstance(branch, ShuffledRun)
        branch.order = self.order
        return branch

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """As `Run.map`: results in the order of the items, whatever the order in which they come."""
        position = self._next()
        order = list(range(len(items)))
        random.Random(f"{self.order}|{self.path}|{position}").shuffle(order)
        found = {i: await fn(self._branch(position, i), items[i]) for i in order}
        return [found[i] for i in range(len(items))]
