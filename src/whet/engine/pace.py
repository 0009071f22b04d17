"""The rate at which an endpoint lets calls begin: the user's limit, and the rate that the endpoint's refusals teach.

Calls in flight are bounded elsewhere; an endpoint that allows one call in eight seconds needs fewer than one of them. An endpoint
that turns calls away is asked more slowly until it takes them, and faster again while it does, fast up to the rate at which it
turned calls away last, and slowly beyond.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import takewhile

SLOWEST = 1 / 30
"""Calls a second that are made in any case, to see whether the endpoint takes calls again."""
SLOWEST_OVERLOADED = 0.5
"""Calls a second that are made to see whether an endpoint that was overloaded takes calls again."""
FREE = 1000.0
"""Calls a second from which on no pace is kept."""
_CUT, _DEEP_CUT = 0.7, 0.5
_RECOVERY, _PROBE = 1.25, 1.03
_NEAR = 0.9
_FIRST = 10
_IN_A_ROW = 3
_OFTEN, _LEARNS = 1 / 3, 0.1
_MOST_STARTS = 4096


class Pace:
    """The clock of the next call: the time at which it may begin. Belongs to one event loop.

    `rate`: calls a second that may begin; None while nothing slows them down.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`requests_per_minute` is the rate that the user sets (above 0). `clock` and `sleep` count seconds."""
        self._clock, self._sleep = clock, sleep
        self._set = None if requests_per_minute is None else requests_per_minute / 60
        self.rate: float | None = None
        self._ceiling = math.inf
        self._next = -math.inf
        self._cut_at = -math.inf
        self._in_a_row = 0
        self._answered_since_cut = True
        self._starts: deque[float] = deque(maxlen=_MOST_STARTS)
        self._share = 0.0  # of the last calls, that were turned away
        self._turn = asyncio.Lock()

    @property
    def interval(self) -> float:
        """Seconds between the beginnings of two calls."""
        rates = [rate for rate in (self._set, self.rate) if rate is not None]
        return 1 / min(rates) if rates else 0.0

    async def begin(self) -> float:
        """Wait for the turn of a call; when it begins, in seconds of the clock."""
        if self._set is not None or self.rate is not None or self._turn.locked():
            async with self._turn:
                while (wait := self._next - self._clock()) > 0:
                    await self._sleep(min(wait, self.interval))
        now = self._clock()
        self._next = max(self._next, now) + self.interval if self.interval else now
        self._starts.append(now)
        return now

    def note_refusal(self, began: float, overloaded: bool = False) -> None:
        """A call that began at `began` was turned away. `overloaded`: the endpoint has no room for anything now, at whatever pace
        (503, 529), so that it may be asked at the pace of before once it answers again."""
        self._in_a_row += 1
        self._share += _LEARNS * (1 - self._share)
        if began <= self._cut_at:  # the pace is slower already than when it began
            return
        if self.rate is not None and self._share > _OFTEN and self._in_a_row < _IN_A_ROW:
            return  # where calls are turned away at any pace, a slower one only loses time
        now = self._clock()
        second = sum(1 for _ in takewhile(lambda start: start > now - 1.0, reversed(self._starts)))
        rate = float(max(_FIRST, second)) if self.rate is None else min(self.rate, float(max(1, second)))
        if math.isinf(self._ceiling):
            self._ceiling = rate
        elif self._answered_since_cut or not overloaded:
            self._ceiling = max(rate, _NEAR * self._ceiling)
        self._answered_since_cut = False
        slowest = SLOWEST_OVERLOADED if overloaded else SLOWEST
        self.rate = max(slowest, rate * (_CUT if self._in_a_row < 2 * _IN_A_ROW else _DEEP_CUT))
        self._cut_at, self._next = now, max(self._next, now + 1 / self.rate)

    def note_answer(self, began: float) -> None:
        """A call that began at `began` was answered."""
        self._in_a_row = 0
        self._share -= _LEARNS * self._share
        if self.rate is not None and began > self._cut_at:
            self._answered_since_cut = True
            if self.rate < self._ceiling / 2:  # slow start
                self.rate *= 2
            else:
                self.rate *= _RECOVERY if self.rate < _NEAR * self._ceiling else _PROBE
            if self.rate > FREE:
                self.rate, self._ceiling = None, math.inf
