"""Limits for one caller: token buckets, sizes, times."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A token bucket: `per_second` on average, `burst` at once."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the server. Sizes in bytes, times in seconds, rates per principal, or per address of an unknown caller."""

    ingest: TokenBucket = TokenBucket(10_000, 20_000)
    """Requests that store inferences, feedback or traces."""
    rows: TokenBucket = TokenBucket(10_000, 40_000)
    """Rows that a caller sends."""
    sent_bytes: TokenBucket = TokenBucket(4_194_304, 33_554_432)
    """Bytes that a caller sends, unpacked."""
    kept_bytes: int = 10 * 1024**3
    """Bytes of a caller that may be stored at a time."""
    use: TokenBucket = TokenBucket(50, 300)
    """All other requests of a known caller."""
    anonymous: TokenBucket = TokenBucket(20, 100)
    """Requests of an unknown caller."""
    failures: TokenBucket = TokenBucket(0.5, 20)
    """Wrong tokens."""
    headers_bytes: int = 32_768
    headers: int = 100
    form_bytes: int = 1_048_576
    form_fields: int = 200
    json_bytes: int = 1_048_576
    ingest_bytes: int = 8_388_608
    page_bytes: int = 65_536
    """Size of a request with a public key: as much as a browser still sends when its page is left."""
    receive: float = 15.0
    """Time in which a request must be complete."""
    send: float = 30.0
    """Time in which a client must take the next piece of its answer."""
    connections: int = 1_000
    """Open connections."""
    address_connections: int = 64
    """Open connections of one address; behind a trusted proxy, its requests under way."""
    streams: int = 8
    all_streams: int = 200


def quotas(rows: int | None, sent_bytes: int | None, kept_bytes: int | None) -> ServerLimits:
    """The usual limits with other quotas: rows and bytes that one caller may send a second, bytes of it that are stored. A
    burst of ten seconds is allowed."""
    limits = ServerLimits()
    return replace(
        limits,
        rows=limits.rows if rows is None else TokenBucket(rows, rows * 10),
        sent_bytes=limits.sent_bytes if sent_bytes is None else TokenBucket(sent_bytes, sent_bytes * 10),
        kept_bytes=limits.kept_bytes if kept_bytes is None else kept_bytes,
    )


class Buckets:
    """Token buckets by key. Of more than `MOST_KEYS` the one used longest ago is forgotten, which refills it."""

    def __init__(self, rate: TokenBucket, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, amount: float = 1.0) -> float:
        """Take tokens, from a full bucket also more than it holds. Returns 0.0, or the seconds until there are enough."""
        moment, needed = self._clock(), min(amount, self.rate.burst)
        level, at = self._levels.get(key, (self.rate.burst, 0.0))
        level = min(self.rate.burst, level + (moment - at) * self.rate.per_second)
        if level < needed:
            return (needed - level) / self.rate.per_second
        self._levels[key] = (level - amount, moment)
        self._levels.move_to_end(key)
        if len(self._levels) > MOST_KEYS:
            self._levels.popitem(last=False)
        return 0.0
