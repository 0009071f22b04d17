"""Ids and times that the app makes itself, so that feedback may be sent before the inference has arrived."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta

from whet_client.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_lock = threading.Lock()
_last = [0]


def now() -> int:
    """The time in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def new_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7) as 36 characters; the ids of one process sort in the order in which they were made.

    The millisecond is followed by 12 bits of its fraction (method 3 of section 6.2) and 62 random bits; a fraction
    that does not grow is counted up.
    """
    moment = time.time_ns()
    with _lock:
        stamp = max((moment // 1_000_000) << 12 | (moment % 1_000_000) * 4096 // 1_000_000, _last[0] + 1)
        _last[0] = stamp
    high = (stamp >> 12) << 16 | 0x7000 | (stamp & 0xFFF)
    low = 0b10 << 62 | int.from_bytes(os.urandom(8)) >> 2
    digits = f"{high << 64 | low:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def iso(moment: int) -> str:
    """Microseconds since 1970-01-01 UTC as text.

    >>> iso(0)
    '1970-01-01T00:00:00.000000Z'
    """
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def microseconds(text: str, where: str = "time") -> int:
    """Microseconds since 1970-01-01 UTC of a date in ISO 8601; without a zone it is UTC. Raises UsageError.

    >>> microseconds("1970-01-01T01:00:00.5+01:00")
    500000
    """
    try:
        if len(text[:9]) == 9 and text[:9].isdigit():
            raise ValueError("a number of seconds, which `fromisoformat` takes for a year")
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise UsageError(
            f"{where}: {str(text)[:60]!r} is no date. Write it like 2026-01-31T12:00:00Z."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
