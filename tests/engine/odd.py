"""A real server that answers however a test says, and a small task whose models it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

import whet
from tests.api.world import PROMPT, right

Handler = Callable[[dict[str, Any], int], Any]
"""From a body and the number of calls of its model until now, this one included, to a body, or a whole response."""

ROWS = [
    {"input": f"Dish {i} was {word}.", "target": target}
    for i in range(8)
    for word, target in (("bad", "negative"), ("good", "positive"))
]


def said(text: Any, **more: Any) -> dict[str, Any]:
    """An answer with a text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def sorter(body: dict[str, Any], number: int) -> Any:
    """The task model: right on every row where the prompt asks for care, and on half of them else."""
    text = " ".join(str(m["content"]) for m in body["messages"])
    right_word = "negative" if "bad" in text else "positive"
    return said(right_word if "careful" in text or "Dish 1" in text else "unclear")


def careful(body: dict[str, Any], number: int) -> Any:
    """An optimizer model that helps."""
    return said("<PROMPT>Be careful and sort the review.</PROMPT>")


def failing(status: int, after: int = 0, otherwise: Handler = careful) -> Handler:
    """Fails with a status from some call on."""

    def handle(body: dict[str, Any], number: int) -> Any:
        if number <= after:
            return otherwise(body, number)
        return web.json_response({"error": {"message": "the model is gone"}}, status=status)

    return handle


@asynccontextmanager
async def odd_server(**models: Handler) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """The base URL of a server with these models, and the calls that each of them got."""
    calls = dict.fromkeys(models, 0)

    async def handle(http: web.Request) -> web.StreamResponse:
        body = await http.json()
        name = body["model"]
        calls[name] += 1
        answer = models[name](body, calls[name])
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", calls
    finally:
        await runner.cleanup()


async def optimize(base_url: str, folder: Path, **more: Any) -> whet.RunResult:
    """A short run of OPRO with the models `task` and `optimizer` of an odd server."""
    words: dict[str, Any] = {
        "data": ROWS,
        "reward": right,
        "lm": "openai/task",
        "optimizer_lm": "openai/optimizer",
        "base_url": base_url,
        "method": whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1),
        "budget": whet.Budget(calls=60),
        "root": folder / "runs",
        **more,
    }
    return await whet.aoptimize(PROMPT, **words)
