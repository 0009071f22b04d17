"""How long to wait before the next attempt. Pure: chance comes in as an argument."""

from __future__ import annotations

from typing import Protocol

MAX_ATTEMPTS = 6
BASE_SECONDS = 0.5
CAP_SECONDS = 30.0


class Chance(Protocol):
    """A source of uniform numbers, such as `random.Random`."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


def delay(attempt: int, retry_after: float | None, rng: Chance) -> float:
    """Seconds to wait after failed attempt number `attempt` (1 is the first).

    The server's own wish is honoured exactly. Without one: exponential back-off with full jitter, uniform
    between 0 and 0.5 s, 1 s, 2 s, ... up to 30 s. Raises ValueError for an attempt below 1.
    """
    if attempt < 1:
        raise ValueError(f"attempt counts from 1, found {attempt}")
    if retry_after is not None:
        return max(0.0, retry_after)
    return rng.random() * min(CAP_SECONDS, BASE_SECONDS * 2.0 ** min(attempt - 1, 16))
