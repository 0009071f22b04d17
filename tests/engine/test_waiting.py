"""What a server lets a run wait for: it is said, and the limit of seconds wins."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import whet
from tests.engine.odd import Handler, careful, odd_server, optimize, sorter
from whet.engine import execute as execute_module
from whet.engine import model_client
from whet.errors import ProviderError


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute_module, "INTERRUPT_SECONDS", 0.05)
    monkeypatch.setattr("whet.engine.durable.INTERRUPT_SECONDS", 0.05)


def busy(seconds: float, after: int = 0, times: int = 10**6) -> Handler:
    """Asks to wait so long from some call on, so many times."""

    def handle(body: dict[str, Any], number: int) -> Any:
        if number <= after or number > after + times:
            return sorter(body, number)
        words = {"error": {"message": "tomorrow"}}
        return web.json_response(words, status=429, headers={"Retry-After": f"{seconds:g}"})

    return handle


@asynccontextmanager
async def hanging(after: int) -> AsyncIterator[str]:
    """A task model that answers so many calls and leaves four without an answer, while the connection stands."""
    number = 0

    async def handle(http: web.Request) -> web.Response:
        nonlocal number
        body = await http.json()
        number += body["model"] == "task"
        if body["model"] == "task" and after < number <= after + 4:
            await asyncio.Event().wait()
        return web.json_response((sorter if body["model"] == "task" else careful)(body, number))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("after", [0, 7])
async def test_a_wait_beyond_the_limit_of_seconds_stops_the_run_at_once(after: int, tmp_path: Path) -> None:
    words = {"budget": whet.Budget(calls=60, seconds=30)}
    async with odd_server(task=busy(3600, after), optimizer=careful) as (url, _calls):
        with pytest.raises(
            ProviderError, match=r"asks to wait 3600 s before the next call, .*30 s in all.*tomorrow"
        ):
            await optimize(url, tmp_path, **words)
    async with odd_server(task=sorter, optimizer=careful) as (url, _calls):
        assert (await optimize(url, tmp_path, **words))["test_openings"] == 1


async def test_a_long_wait_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_client, "LONG_WAIT", 0.1)
    async with odd_server(task=busy(0.11, 0, 2), optimizer=careful) as (url, _calls):
        with caplog.at_level(logging.WARNING):
            await optimize(url, tmp_path)
    waits = [r.getMessage() for r in caplog.records if "the next call is sent" in r.getMessage()]
    assert len(waits) == 1 and "requests_per_minute" in waits[0]
    assert re.match(r"openai/task: HTTP 429: .+; the next call is sent in 0\.1", waits[0]), waits[0]


async def test_a_call_that_hangs_does_not_outlast_the_limit_of_seconds(tmp_path: Path) -> None:
    async with hanging(0) as url:
        result = await optimize(url, tmp_path, budget=whet.Budget(calls=60, seconds=0.3))
    assert (result.status, result["tested"]) == ("budget_exhausted", False)
    assert "The limit of 0.3 seconds is reached" in result["improvement"]["reason"]


async def test_a_search_that_hangs_ends_with_the_limit_of_seconds(tmp_path: Path) -> None:
    async with hanging(5) as url:
        result = await optimize(url, tmp_path, budget=whet.Budget(calls=60, seconds=6))
    assert (result.status, result["ended_by"]) == ("budget_exhausted", "the limit of seconds")
    assert result["test_openings"] == 0
