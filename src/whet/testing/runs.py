"""Runs for tests: calls are counted, limits can be enforced, branches can finish in any order."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

from whet.errors import BudgetExceeded, ReplayDiverged
from whet.run import Budget, MemoryRun, Run, convert_record, less_calls
from whet.types import JSON, Completion, Request, content_hash

T = TypeVar("T")
R = TypeVar("R")


class MeteredRun(MemoryRun):
    """A MemoryRun that counts the calls of each role in `spent`.

    `limits` are the limits that the method sees, and `caps` the limits that are enforced: a call that would exceed the cap of
    its role raises BudgetExceeded, and `refused` counts such calls. The two are separate, so that a test can see whether a
    method exceeds its limits, or can end a method without limits.
    """

    def __init__(
        self,
        models: Mapping[str, object] | None = None,
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
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        """Charge the calls, then run `fn`."""
        if role is not None:
            self._charge(role, calls)
        return await super().effect(name, fn, args, role=role, calls=calls)

    async def read_remaining(self) -> Budget:
        """The part of `limits` that remains after the counted calls."""

        async def compute() -> object:
            return less_calls(self.limits, self.spent).as_json()

        return Budget.from_json(
            convert_record(await self.effect("remaining", compute), dict[str, int | float | None])
        )

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """Charge one call, then ask the model."""
        self._charge(role, 1)
        return await super().generate(role, request)


class ShuffledRun(MeteredRun):
    """A MeteredRun whose branches of `map` run in an order of their own; `order` chooses which."""

    order = 0

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Map as `Run.map` does; results have the order of the items, also if they end in another order."""
        position = self._next()
        order = list(range(len(items)))
        random.Random(f"{self.order}|{self.path}|{position}").shuffle(order)
        results = {i: await fn(self._branch(position, i), items[i]) for i in order}
        return [results[i] for i in range(len(items))]


class RecordedRun(MeteredRun):
    """A MeteredRun that records every effect and every answer; `replay` returns them.

    A replay calls no model and computes no effect. It raises ReplayDiverged if the program makes another effect or another
    request at a position than the first time.
    """

    replaying = False

    @cached_property
    def record(self) -> dict[str, tuple[object, Any]]:
        """The action at each position, and its outcome."""
        return {}

    def replay(self) -> RecordedRun:
        """The same run from its beginning, with everything that was recorded."""
        again = type(self)(self.models, self.seed, self.path, limits=self.limits, caps=self.caps)
        again.record, again.replaying = self.record, True
        return again

    def branch(self, name: str) -> Self:
        """Branch as `Run.branch` does, with the same record."""
        _ = self.record  # made before it is shared
        return super().branch(name)

    async def _once(self, what: object, compute: Callable[[], Awaitable[R]]) -> R:
        key = f"{self.path}/{self._position + 1}"
        if self.replaying:
            known, value = self.record.get(key, (None, None))
            if known != what:
                raise ReplayDiverged(f"At {key} the program does {what!r}; recorded is {known!r}.")
            self._next()
            kept: R = value
            return kept
        value = await compute()
        self.record[key] = (what, value)
        return value

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        """The recorded value, or that of `fn` as JSON would give it back."""

        async def compute() -> JSON:
            value: JSON = json.loads(
                json.dumps(await super(RecordedRun, self).effect(name, fn, args, role=role, calls=calls))
            )
            return value

        return await self._once((name, content_hash(args)), compute)

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """The recorded answer, or the model's."""

        async def compute() -> list[Completion]:
            return await super(RecordedRun, self).generate(role, request)

        return await self._once((role, request), compute)
