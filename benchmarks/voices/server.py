"""The simulated models behind an OpenAI-compatible address: `guest-task-N` and `guest-optimizer-N`, N rules each.

    python benchmarks/voices/server.py --port 8410 [--rules-seed 3] [--latency-ms 50] [--numbers off] [--gullible]
    GET /stats?key=API_KEY      calls and tokens of one API key, as the server counted them

With `--relay FOLDER` nobody simulates the optimizer: each of its requests is laid down as `0001.request.md`, and the reply
is what somebody writes to `0001.reply.txt` (write beside it and rename). The task model then understands free wordings.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

from benchmarks.voices.optimizer import NUMBERS, Habits, Optimizer  # noqa: E402
from benchmarks.voices.world import Book, Setting, World, read_book  # noqa: E402

MODEL = re.compile(r"guest-(task|optimizer)-(\d{1,3})")


def load() -> Book:
    """The texts of this world."""
    return read_book((HERE / "texts.txt").read_text(encoding="utf-8"))


class Endpoint:
    """Both models of every size, and the ledger of who called them."""

    def __init__(
        self,
        seed: int = 0,
        habits: Habits | None = None,
        latency: float = 0.0,
        schema: str = "accept",
        relay: Path | None = None,
    ) -> None:
        self.seed, self.habits, self.latency, self.schema, self.relay = seed, habits, latency, schema, relay
        self.ledger: dict[str, Counter[str]] = {}
        self._book = load()
        self._models: dict[int, tuple[World, Optimizer]] = {}
        self._repeats: Counter[tuple[str, str]] = Counter()
        self._relayed = 0

    def models(self, rules: int) -> tuple[World, Optimizer]:
        """The simulated task model and optimizer for a number of rules."""
        if rules not in self._models:
            world = World(self._book, Setting(rules=rules, seed=self.seed), free=self.relay is not None)
            self._models[rules] = (world, Optimizer(world, self.habits))
        return self._models[rules]

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/stats", self._stats)
        return app

    async def _stats(self, request: web.Request) -> web.Response:
        return web.json_response(self.ledger.get(request.query.get("key", ""), {}))

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        named = MODEL.fullmatch(str(body.get("model")))
        if not named or not 1 <= int(named[2]) <= len(self._book.rules):
            return failure(404, f"There is no model {body.get('model')!r}.")
        if body.get("response_format") and self.schema.isdigit():
            return failure(int(self.schema), "response_format is not supported by this server.")
        key = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        role, messages = named[1], [str(message["content"]) for message in body["messages"]]
        await asyncio.sleep(self.latency)
        text, ended = await self._reply(role, int(named[2]), messages, body.get("response_format"), key)
        usage = {"prompt_tokens": sum(map(len, messages)) // 4, "completion_tokens": len(text) // 4}
        counts = self.ledger.setdefault(key, Counter())
        counts.update({role: 1, **{f"{role}_{name}": value for name, value in usage.items()}})
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": ended}
        usage["total_tokens"] = sum(usage.values())
        answer = {"id": f"sim-{counts[role]}", "object": "chat.completion", "model": named[0], "usage": usage}
        return web.json_response({**answer, "choices": [choice]})

    async def _reply(
        self, role: str, rules: int, messages: list[str], schema: Any, key: str
    ) -> tuple[str, str]:
        world, optimizer = self.models(rules)
        if role == "task":
            return world.answer("\n".join(messages[:-1]) or messages[-1], messages[-1]), "stop"
        request = "\n\n".join(messages)
        if self.relay:
            return await self._relay(self.relay, request), "stop"
        self._repeats[key, request] += 1
        return optimizer(request, str(schema).replace("'", '"'), self._repeats[key, request])

    async def _relay(self, folder: Path, request: str) -> str:
        self._relayed += 1
        name = f"{self._relayed:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.request.md").write_text(request, encoding="utf-8")
        while not (reply := folder / f"{name}.reply.txt").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return reply.read_text(encoding="utf-8")


def failure(status: int, message: str) -> web.Response:
    """An error in the shape of OpenAI's."""
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


@contextlib.contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    """Serve in a thread of this process; the value is the base URL."""
    ready: queue.SimpleQueue[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = queue.SimpleQueue()

    async def live() -> None:
        runner, stop = web.AppRunner(endpoint.app()), asyncio.Event()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.put((runner.addresses[0][1], asyncio.get_running_loop(), stop))
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    port, loop, stop = ready.get(timeout=10)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def add_habits(parser: argparse.ArgumentParser) -> None:
    """One option for each habit, and those of the endpoint."""
    for field in dataclasses.fields(Habits):
        if isinstance(field.default, bool):
            parser.add_argument(f"--{field.name}", action="store_true")
        else:
            choices = NUMBERS if field.name == "numbers" else None
            parser.add_argument(
                f"--{field.name}", type=type(field.default), default=field.default, choices=choices
            )
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument(
        "--schema", default="accept", help="accept, or the status with which a JSON schema is refused"
    )


def habits_of(options: argparse.Namespace) -> Habits:
    """The habits that the options name."""
    return Habits(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Habits)})


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve the simulated models.")
    parser.add_argument("--port", type=int, default=8410)
    parser.add_argument("--rules-seed", type=int, default=0)
    parser.add_argument(
        "--relay", type=Path, default=None, help="folder where a person answers for the optimizer"
    )
    add_habits(parser)
    options = parser.parse_args()
    endpoint = Endpoint(
        options.rules_seed, habits_of(options), options.latency_ms / 1000, options.schema, options.relay
    )
    web.run_app(endpoint.app(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
