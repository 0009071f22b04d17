"""The time that a provider asks to wait before the next call: in headers, in the body of its refusal, or in its words."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(
    r"((?<!\d)\d{1,30}(?:\.\d{1,30})?)\s{0,9}(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
)
_SPAN = rf"(?: in| after| for)?(?: about| at least)? ((?:{_PART.pattern}[ ,]*(?:and )?)+)"
_WORDS = re.compile(
    rf"(?:try(?:ing)?(?: again)?|retry|wait|available again)(?: your request)?{_SPAN}", re.IGNORECASE
)
"""The English texts of providers: "Please try again in 6m0s", "Please retry in 41.2s", "Please retry after 33 seconds"."""
_RESET_WORDS = re.compile(rf"resets?{_SPAN}", re.IGNORECASE)
"""Where a text names no such time: "Your quota will reset after 27h41m36s", "The limit resets in 3 hours"."""
_WAIT_FIELDS = ("retrydelay", "retryafter", "retryafterseconds", "quotaresetdelay", "resetsinseconds")
"""Fields of a body with a span, without dashes, underscores and case: Google's two, a gateway's three, OpenAI's of a plan."""
_POLICY_FIELD = re.compile(r"(?:^|[;,\s])(r|remaining|t|reset)\s{0,9}=\s{0,9}(\d{1,12})(?!\d)")
"""In the header that the IETF proposes: `"api";r=0;t=55`, and `limit=10, remaining=0, reset=55` in earlier drafts."""
_EPOCH, _EPOCH_MS = 1e9, 1e12
"""From these numbers on, a number is no span of seconds but a time: in seconds, in milliseconds."""
_DEEPEST = 8


def find_wait(headers: Mapping[str, str], data: object, words: str) -> float | None:
    """Seconds (0 or more) that a refusal asks to wait; None where it names no time.

    `headers` have lower-case names; `data` is the decoded body; `words` is its message. The first of these that names a time
    counts: `retry-after-ms`, `Retry-After`, a field of the body, the message, headers that say when a limit is reset.

    >>> find_wait({"retry-after": "1.5"}, None, ""), find_wait({"retry-after-ms": "250"}, None, "")
    (1.5, 0.25)
    >>> find_wait({"retry-after": "2, 2"}, None, "")
    2.0
    >>> find_wait({"x-ratelimit-reset-requests": "1m2.5s"}, None, "")
    62.5
    >>> find_wait({"ratelimit": '"minute";r=0;t=55, "day";r=900;t=4000'}, None, "")
    55.0
    >>> find_wait({}, {"error": {"details": [{"retryDelay": "41s"}]}}, "")
    41.0
    >>> find_wait({}, None, "Rate limit reached. Please try again in 6m0s.")
    360.0
    >>> find_wait({}, None, "Your quota will reset after 27h41m36s.")
    99696.0
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    waits = (
        _span_of_header(headers.get("retry-after")),
        *_waits_in(data),
        _wait_in_words(words),
        _wait_for_reset(headers),
    )
    return next((wait for wait in waits if wait is not None), None)


def _waits_in(data: object, depth: int = 0) -> Iterator[float | None]:
    """The waits that fields of a body name: Google's RetryInfo, headers that a gateway quotes."""
    if depth > _DEEPEST:
        return
    if isinstance(data, list):
        for item in data:
            yield from _waits_in(item, depth + 1)
    elif isinstance(data, dict):
        fields = {str(key).lower().replace("_", "-"): value for key, value in data.items()}
        plain = {key.replace("-", ""): value for key, value in fields.items()}
        if (millis := _number(plain.get("retryafterms"))) is not None:
            yield millis / 1000
        for name in _WAIT_FIELDS:
            if name in plain:
                yield _span(plain[name])
        yield _wait_for_reset(fields)
        for value in data.values():
            yield from _waits_in(value, depth + 1)


def _wait_for_reset(headers: Mapping[str, object]) -> float | None:
    """Seconds until the limit that is used up is reset; where none is said to be, until the first one is."""
    waits: dict[bool, list[float]] = {True: [], False: []}
    for name, value in headers.items():
        if name == "ratelimit":
            for used, seconds in _waits_of_policies(str(value)):
                waits[used].append(seconds)
        if "ratelimit" in name.replace("rate-limit", "ratelimit") and "reset" in name:
            wait = _span(value)
            if wait is not None:
                used_up = _number(headers.get(name.replace("reset", "remaining"))) == 0
                waits[used_up].append(wait)
    if waits[True]:
        return max(waits[True])
    return min((wait for wait in waits[False] if wait > 0), default=None)


def _waits_of_policies(value: str) -> Iterator[tuple[bool, float]]:
    """Of each policy in a RateLimit header, whether it is used up, and the seconds until it is reset."""
    remaining = ""
    for name, digits in _POLICY_FIELD.findall(value):
        if name in ("r", "remaining"):
            remaining = digits
        else:
            yield remaining.strip("0") == "" and remaining != "", float(digits)
            remaining = ""


def _wait_in_words(words: str) -> float | None:
    match = _WORDS.search(words) or _RESET_WORDS.search(words)
    return None if match is None else _sum_of_parts(match[1])


def _sum_of_parts(text: str) -> float | None:
    parts = _PART.findall(text.lower())
    if not parts:
        return None
    return sum(
        float(number) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]] for number, unit in parts
    )


def _span_of_header(value: str | None) -> float | None:
    """The span of a header, which a gateway may have joined of several ones (`2, 2`): then the longest."""
    span = _span(value)
    if span is not None or value is None:
        return span
    parts = [_number(part.strip()) for part in value.split(",")]
    return max((part for part in parts if part is not None), default=None) if None not in parts else None


def _span(value: object) -> float | None:
    """Seconds from now: a number, a Go duration such as `1m2.5s`, a time as a number since 1970 or as a date."""
    if isinstance(value, dict):  # a protobuf duration
        return _number(value.get("seconds"))
    number = _number(value)
    if number is not None:
        if number < _EPOCH:
            return number
        return max(0.0, number / (1000 if number >= _EPOCH_MS else 1) - time.time())
    text = value.strip() if isinstance(value, str) else ""
    if text and _PART.sub("", text.lower()).strip() == "":
        return _sum_of_parts(text)
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return max(0.0, read(text).timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _number(value: Any) -> float | None:
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (ValueError, TypeError):
        return None
    return max(0.0, number) if math.isfinite(number) else None
