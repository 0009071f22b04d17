"""How long a refusal asks to wait: every place in which a provider is known to say it."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest

from whet.models.openai_wire import Failure, http_error
from whet.models.waits import find_wait

IN_41_SECONDS = {
    "error": {"code": 429, "details": [{"@type": "google.rpc.Help"}, {"@type": "x", "retryDelay": "41s"}]}
}


@pytest.mark.parametrize(
    ("headers", "data", "words", "seconds"),
    [
        ({"retry-after": "7"}, None, "", 7.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, None, "", 0.25),
        ({"retry-after": "2m"}, None, "", 120.0),
        ({}, [IN_41_SECONDS], "", 41.0),
        ({}, {"error": {"details": [{"retryDelay": {"seconds": 3}}]}}, "", 3.0),
        ({}, {"retry_after": 1.25}, "", 1.25),
        ({}, None, "Limit 3, Used 3, Requested 1. Please try again in 55.8s. Visit", 55.8),
        ({}, None, "Please try again in 6m0s.", 360.0),
        ({}, None, "try again in 20ms", 0.02),
        ({}, None, "Please retry in 41.208s.", 41.208),
        ({}, None, "Please retry after 33 seconds.", 33.0),
        ({}, None, "Try again in 1 minute and 5 seconds", 65.0),
        ({}, None, "Wait 2 minutes", 120.0),
        ({}, None, "Capacity is exhausted. Your quota will reset after 27h41m36s.", 99696.0),
        ({}, None, "The daily limit resets in 3 hours. Please try again in 20s.", 20.0),
        ({}, {"error": {"details": [{"metadata": {"quotaResetDelay": "1h30m"}}]}}, "", 5400.0),
        ({}, {"error": {"type": "usage_limit_reached", "resets_in_seconds": 7200}}, "", 7200.0),
        ({}, {"error": {"retryAfter": 12}}, "", 12.0),
        ({}, {"retryAfterMs": 500}, "", 0.5),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, None, "", 62.5),
        (
            {"ratelimit": '"api";r=0;t=55', "ratelimit-policy": '"fixed window";"api";q=500;w=300'},
            None,
            "",
            55.0,
        ),
        ({"ratelimit": "limit=100, remaining=0, reset=50"}, None, "", 50.0),
        ({"ratelimit": '"burst";r=3;t=2, "day";r=0;t=4000'}, None, "", 4000.0),
        ({"ratelimit": '"api";r=12;t=55'}, None, "", 55.0),
        ({"ratelimit": "unlimited"}, None, "", None),
        ({"retry-after": "7", "ratelimit": '"api";r=0;t=55'}, None, "", 7.0),
        ({"x-ratelimit-reset-requests": "8.64s", "x-ratelimit-reset-tokens": "0s"}, None, "", 8.64),
        (
            {
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-tokens": "30s",
                "x-ratelimit-remaining-tokens": "0",
            },
            None,
            "",
            30.0,
        ),
        ({"ratelimit-reset": "12"}, None, "", 12.0),
        ({}, None, "Rate limit exceeded", None),
        ({"retry-after": "soon"}, {"wait": 5}, "", None),
        ({"x-ratelimit-limit-requests": "60"}, [], "", None),
    ],
)
def test_a_wait_is_found_wherever_it_stands(
    headers: dict[str, str], data: Any, words: str, seconds: float | None
) -> None:
    found = find_wait(headers, data, words)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_time_is_the_span_until_then(unit: int) -> None:
    reset = {"error": {"metadata": {"headers": {"X-RateLimit-Reset": str(int((time.time() + 600) * unit))}}}}
    assert find_wait({}, reset, "") == pytest.approx(600, abs=30)
    past = {"error": {"metadata": {"headers": {"X-RateLimit-Reset": str(int((time.time() - 600) * unit))}}}}
    assert find_wait({}, past, "") in (None, 0.0)


def test_dates_are_read_in_both_spellings() -> None:
    assert find_wait({"retry-after": formatdate(time.time() + 600, usegmt=True)}, None, "") == pytest.approx(
        600, abs=30
    )
    later = {"anthropic-ratelimit-requests-reset": "2999-01-01T00:00:00Z"}
    assert (find_wait(later, None, "") or 0) > 1e9


def test_the_wait_of_a_refusal_stands_in_its_error() -> None:
    body = b'[{"error": {"code": 429, "message": "You exceeded your quota.", "details": [{"retryDelay": "15.002s"}]}}]'
    error = http_error(Failure(429, body, {}), "gemini/x", lambda text: text)
    assert (error.retry_after, error.refused, error.billed) == (15.002, True, False)
    assert str(error) == "gemini/x: HTTP 429: You exceeded your quota."
