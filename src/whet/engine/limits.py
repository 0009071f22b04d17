"""Adaptive concurrency: additive increase, multiplicative decrease on the number of calls in flight."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

_GROWTH = 0.05


class AdaptiveLimiter:
    """At most `max_in_flight` calls at once, fewer while the server says that it is too many.

    `async with limiter:` starts a call, in order of arrival. `throttled` halves the allowance, at most once
    per round trip: answers to calls that were in flight at the last cut do not cut again. It holds new starts
    until the server's wish has passed. `succeeded` grows the allowance by 5 % of the maximum (at least one
    call) per round trip. Belongs to one event loop; needs no lock.
    """

    def __init__(
        self,
        max_in_flight: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`max_in_flight`: 1 or more. `clock` and `sleep` count seconds. Raises ValueError."""
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be 1 or more, found {max_in_flight}")
        self.max_in_flight = max_in_flight
        self._clock = clock
        self._sleep = sleep
        self._allowance = float(max_in_flight)
        self._step = max(1.0, _GROWTH * max_in_flight)
        self._in_flight = 0
        self._before_cut = 0
        self._held_until = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def allowance(self) -> int:
        """Calls that may be in flight now, 1 to `max_in_flight`."""
        return int(self._allowance)

    @property
    def in_flight(self) -> int:
        """Calls that hold a place, those that wait for the server's wish included."""
        return self._in_flight

    async def __aenter__(self) -> None:
        if self._waiting or self._in_flight >= self.allowance:
            await self._queue()
        else:
            self._in_flight += 1
        try:
            while (wait := self._held_until - self._clock()) > 0:
                await self._sleep(wait)
        except BaseException:
            self._release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    async def _queue(self) -> None:
        """Wait for a place; whoever frees it hands it over, counted already."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiting = deque(other for other in self._waiting if other is not place)
            else:
                self._release()
            raise

    def _release(self) -> None:
        self._in_flight -= 1
        self._before_cut = max(0, self._before_cut - 1)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and self._in_flight < self.allowance:
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                place.set_result(None)

    def throttled(self, retry_after: float | None = None) -> None:
        """A call was told to slow down; `retry_after` is the server's wish in seconds, if it had one."""
        if retry_after is not None:
            self._held_until = max(self._held_until, self._clock() + retry_after)
        if self._before_cut == 0:
            self._allowance = max(1.0, self._allowance / 2)
            self._before_cut = self._in_flight

    def succeeded(self) -> None:
        """A call was answered. Answers to calls that were in flight at the last cut prove nothing yet."""
        if self._before_cut == 0:
            self._allowance = min(float(self.max_in_flight), self._allowance + self._step / self._allowance)
            self._hand_over()
