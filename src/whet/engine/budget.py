"""Limits kept by reservation: the worst case is set aside before a call is sent and settled afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from whet.errors import BudgetExceeded
from whet.run import Budget
from whet.types import ROLES, Usage


@dataclass
class Spent:
    """What a run has used. `calls` counts every attempt and every answer from the cache, by role; `cached` the latter."""

    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    cached: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def total_calls(self) -> int:
        """Calls of all roles that count against the limits."""
        return sum(self.calls.values())


@dataclass(frozen=True)
class Reservation:
    """Worst case of one attempt."""

    role: str
    calls: int = 1
    tokens: int = 0
    cost: float = 0.0


class BudgetAccount:
    """Never lets spent plus reserved exceed a limit.

    `held` is what the sealed final evaluation needs; it is out of reach until `release`. `kept` is for what follows
    the run and stays out of its reach. Tokens and cost
    are reserved at their worst case, so a call that does not fit now may fit when calls in flight settle:
    then it waits. Only when nothing is in flight and it still does not fit is the budget exhausted.
    """

    def __init__(
        self, limits: Budget, spent: Spent, held: Budget, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.spent, self.held, self.kept = limits, spent, held, Budget()
        self._clock, self._started = clock, clock()
        self._before = spent.seconds
        self._open: dict[str, int] = {"tokens": 0}
        self._open_cost = 0.0
        self._in_flight = 0
        self._changed = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Wall time of the run over all its sessions."""
        return self._before + self._clock() - self._started

    def release(self) -> None:
        """Make what was held for the final evaluation available; time is no longer checked."""
        self.held = self.kept
        self.limits = Budget(**{**_as_dict(self.limits), "seconds": None})

    def searchable(self) -> Budget:
        """What the search may spend in all: the limits less what is held and what is already spent."""
        left: dict[str, Any] = {}
        for name, limit in _as_dict(self.limits).items():
            held = getattr(self.held, name) or 0
            left[name] = None if limit is None else max(0, limit - held - self._used(name))
        return Budget(**left)

    def _used(self, name: str) -> float:
        s = self.spent
        used = {
            "calls": s.total_calls,
            "task_calls": s.calls["task"],
            "optimizer_calls": s.calls["optimizer"],
            "judge_calls": s.calls["judge"],
            "tokens": s.input_tokens + s.output_tokens + self._open["tokens"],
            "cost_usd": s.cost + self._open_cost,
            "seconds": self.seconds,
        }
        return used[name]

    async def reserve(self, reservation: Reservation) -> None:
        """Set the worst case aside; counts the calls at once. Raises BudgetExceeded naming the limit."""
        while (limit := self._broken(reservation)) is not None:
            if limit not in ("tokens", "cost_usd") or self._in_flight == 0:
                name = limit.removesuffix("_usd")
                words = f"The limit of {getattr(self.limits, limit)} {name.replace('_', ' ')} is reached."
                raise BudgetExceeded(name, words)
            self._changed.clear()
            await self._changed.wait()
        self.spent.calls[reservation.role] += reservation.calls
        self._open["tokens"] += reservation.tokens
        self._open_cost += reservation.cost
        self._in_flight += 1

    def refuse_cost(self, cost: float) -> None:
        """Raise BudgetExceeded when so many dollars more, spent by other means than a call, would pass the limit."""
        limit = self.limits.cost_usd
        if limit is not None and self._used("cost_usd") + cost > limit - (self.held.cost_usd or 0):
            raise BudgetExceeded("cost", f"The limit of {limit} cost is reached.")

    def _broken(self, r: Reservation) -> str | None:
        needed = {
            "calls": r.calls,
            f"{r.role}_calls": r.calls,
            "tokens": r.tokens,
            "cost_usd": r.cost,
            "seconds": 0,
        }
        for name, amount in needed.items():
            limit = getattr(self.limits, name)
            if limit is None or (name in ("tokens", "cost_usd") and not amount):
                continue
            held = getattr(self.held, name) or 0
            if self._used(name) + amount > limit - held + 1e-12:
                return name
        return None

    def settle(self, reservation: Reservation, usage: Usage, cost: float) -> None:
        """Replace the worst case by what was billed."""
        self._open["tokens"] -= reservation.tokens
        self._open_cost -= reservation.cost
        self._in_flight -= 1
        self.spent.input_tokens += usage.input_tokens
        self.spent.output_tokens += usage.output_tokens
        self.spent.cost += cost
        self._changed.set()


def _as_dict(limits: Budget) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in Budget.__dataclass_fields__}
