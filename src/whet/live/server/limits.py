"""Limits for one caller: token buckets, sizes, times."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A token bucket: `per_second` on average, `burst` at once."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the server. Sizes in bytes, times in seconds, rates per principal, or per address where nobody is known.

    `ingest` counts requests that store inferences, feedback or traces; `use` all others of a known caller; `anonymous`
    those of an unknown one; `failures` tokens that are wrong. `receive` bounds the time in which a request must
    be complete, `send` the time in which a client must take the next piece of its answer.
    """

    ingest: TokenBucket = TokenBucket(10_000, 20_000)
    use: TokenBucket = TokenBucket(50, 300)
    anonymous: TokenBucket = TokenBucket(20, 100)
    failures: TokenBucket = TokenBucket(0.5, 20)
    headers_bytes: int = 32_768
    headers: int = 100
    form_bytes: int = 1_048_576
    form_fields: int = 200
    json_bytes: int = 1_048_576
    ingest_bytes: int = 8_388_608
    receive: float = 15.0
    send: float = 30.0
    connections: int = 1_000
    streams: int = 8
    all_streams: int = 200


class Buckets:
    """Token buckets by key. Of more than `MOST_KEYS` the one used longest ago is forgotten, which refills it."""

    def __init__(self, rate: TokenBucket, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one token. Returns 0.0, or the seconds until there is one."""
        level = self._level(key)
        if level < 1.0:
            return (1.0 - level) / self.rate.per_second
        self._set(key, level - 1.0)
        return 0.0

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self.rate.burst, 0.0))
        return min(self.rate.burst, level + (self._clock() - at) * self.rate.per_second)

    def _set(self, key: str, level: float) -> None:
        self._levels[key] = (level, self._clock())
        self._levels.move_to_end(key)
        if len(self._levels) > MOST_KEYS:
            self._levels.popitem(last=False)
