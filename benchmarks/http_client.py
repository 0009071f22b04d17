"""How close is whet's HTTP client to a bare one? Calls per second and CPU per call against a local endpoint.

    python benchmarks/http_client.py

A process of its own answers each request after a fixed latency with a canned completion; it parses no JSON,
so that it is not what is measured. The clients take turns, round by round, and the medians are compared:

    bare     aiohttp, orjson.dumps out, orjson.loads in, nothing else
    library  whet's HTTP client with the same bodies
    whet     OpenAIModel.generate
    limited  OpenAIModel.generate inside AdaptiveLimiter
    engine   a run that evaluates: budget, durable intent, client, journal and cache

`ideal` is concurrency / latency. CPU is the time of the client's process, user and system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
from yarl import URL

from whet.cli.interrupt import tune
from whet.engine.blobs import Blobs
from whet.engine.budget import BudgetAccount, Spent
from whet.engine.cache import Cache
from whet.engine.calls import CallExecutor
from whet.engine.durable import DurableRun, RunState
from whet.engine.journal import Journal
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.models.http import Answer, HttpClient
from whet.models.openai import OpenAIModel
from whet.run import Budget, Run
from whet.types import Message, Request

Call = Callable[[int], Awaitable[object]]

SETTINGS = ((64, 0.05), (256, 0.05), (512, 0.05))
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer none"}
QUESTION = "Which of the labels fits this text best: network, files, math, text, testing, processes or time? "
BODY = orjson.dumps(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "model": "canned",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "network", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 1, "total_tokens": 121},
    }
)


class Responder(asyncio.Protocol):
    """Answers every complete request on a connection after `latency` seconds."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.buffer = b""
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            len(BODY),
            BODY,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self.buffer = body[length:]
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, self.answer)


async def respond(latency: float) -> None:
    """Serve for good; the first line on stdout is the base URL."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Responder(latency), "127.0.0.1", 0, backlog=4096
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@dataclass(frozen=True)
class Figure:
    """Calls per second and CPU milliseconds of one call."""

    rate: float
    cpu_ms: float


async def measure(call: Call, count: int, concurrency: int) -> Figure:
    """Run `call(i)` for i in 0..count-1 with `concurrency` workers, after one warm-up call per worker."""
    await asyncio.gather(*(call(i) for i in range(concurrency)))
    numbers = iter(range(count))

    async def worker() -> None:
        for i in numbers:
            await call(i)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Figure(count / wall, 1000 * cpu / count)


def messages(i: int) -> tuple[Message, ...]:
    """The messages of call `i`, all different."""
    return (
        Message("system", QUESTION * 3),
        Message("user", f"text number {i}: " + "a few words of text " * 20),
    )


def encode_body(i: int) -> bytes:
    """The body of call `i`."""
    body = {
        "model": "canned",
        "messages": [{"role": m.role, "content": m.content} for m in messages(i)],
        "max_tokens": 1024,
        "temperature": 0.0,
    }
    return orjson.dumps(body)


def decode_text(raw: bytes) -> object:
    """The text in the body of an answer."""
    return orjson.loads(raw)["choices"][0]["message"]["content"]


async def measure_bare(base_url: str, count: int, concurrency: int) -> Figure:
    """A client that does as little as an HTTP call needs."""
    url = base_url + "/chat/completions"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS) as session:

        async def call(i: int) -> object:
            async with session.post(url, data=encode_body(i)) as response:
                return decode_text(await response.read())

        return await measure(call, count, concurrency)


async def measure_library(base_url: str, count: int, concurrency: int) -> Figure:
    """The same with the HTTP client that whet's models use."""
    url = base_url + "/chat/completions"
    client = HttpClient(URL(url), HEADERS)

    async def call(i: int) -> object:
        answer = await client.post(url, encode_body(i), 60.0)
        assert isinstance(answer, Answer)
        return decode_text(answer.body)

    try:
        return await measure(call, count, concurrency)
    finally:
        await client.close()


async def measure_whet(base_url: str, count: int, concurrency: int, limited: bool = False) -> Figure:
    """The client of this package, alone or behind the adaptive limiter."""
    model = OpenAIModel("canned", base_url=base_url, api_key="none")
    limiter = AdaptiveLimiter(concurrency)

    async def call(i: int) -> object:
        return await model.generate(Request(messages(i)))

    async def limited_call(i: int) -> object:
        async with limiter:
            answers = await model.generate(Request(messages(i)))
            limiter.note_success()
            return answers

    try:
        return await measure(limited_call if limited else call, count, concurrency)
    finally:
        await model.close()


async def measure_engine(base_url: str, count: int, concurrency: int) -> Figure:
    """The whole road of a paid call: limiter, budget, durable intent, client, journal and shared cache.

    All calls are there from the beginning, as in an evaluation; the limiter lets `concurrency` of them through.
    """
    model = OpenAIModel("canned", base_url=base_url, api_key="none")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = Journal(folder / "journal.sqlite")
        budget = BudgetAccount(Budget(calls=count + concurrency), Spent(), Budget())
        client = ModelClient(model, AdaptiveLimiter(concurrency))
        caller = CallExecutor(journal, Cache(folder / "cache.sqlite"), budget, {"task": client}, seed=0)
        run = DurableRun(RunState(journal, caller, budget, Blobs(folder), 0, {}), "", budget.limits)

        async def ask(branch: Run, number: int) -> None:
            await branch.generate("task", Request(messages(number)))

        try:
            await run.map(ask, range(count, count + concurrency))
            wall, cpu = time.perf_counter(), time.process_time()
            await run.map(ask, range(count))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            return Figure(count / wall, 1000 * cpu / count)
        finally:
            await caller.drain()
            caller.cache.close()
            journal.close()
            await model.close()


CLIENTS: dict[str, Callable[[str, int, int], Awaitable[Figure]]] = {
    "bare": measure_bare,
    "library": measure_library,
    "whet": measure_whet,
    "limited": lambda base_url, count, concurrency: measure_whet(base_url, count, concurrency, limited=True),
    "engine": measure_engine,
}


def compare(concurrency: int, latency: float, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of each client over interleaved rounds of about `seconds` at the ideal rate."""
    command = [sys.executable, __file__, "--respond", str(latency)]
    figures: dict[str, list[Figure]] = {name: [] for name in CLIENTS}
    count = int(seconds * concurrency / latency)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base_url = process.stdout.readline().strip()
            for turn in range(rounds):
                names = list(CLIENTS)
                for name in names if turn % 2 == 0 else reversed(names):
                    figures[name].append(asyncio.run(_figure(name, base_url, count, concurrency)))
        finally:
            process.kill()
    ideal = concurrency / latency
    bare = statistics.median(f.rate for f in figures["bare"])
    medians = {}
    for name, measured in figures.items():
        rate = statistics.median(f.rate for f in measured)
        cpu = statistics.median(f.cpu_ms for f in measured)
        medians[name] = {"calls_per_s": rate, "of_bare": rate / bare, "of_ideal": rate / ideal, "cpu_ms": cpu}
    return medians


async def _figure(name: str, base_url: str, count: int, concurrency: int) -> Figure:
    return await CLIENTS[name](base_url, count, concurrency)


def main() -> None:
    """Measure and print one table per setting, or JSON."""
    parser = argparse.ArgumentParser(description="whet's HTTP client against a bare one")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round at the ideal rate")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--respond", type=float, metavar="LATENCY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.respond is not None:
        asyncio.run(respond(arguments.respond))
        return
    tune()  # as the command does; for all clients
    results = {}
    for concurrency, latency in SETTINGS:
        name = f"{concurrency} in flight x {1000 * latency:g} ms"
        results[name] = compare(concurrency, latency, arguments.seconds, arguments.rounds)
        if not arguments.json:
            print(f"\n{name}, median of {arguments.rounds} interleaved rounds")
            print(f"{'client':<10}{'calls/s':>9}{'of bare':>9}{'of ideal':>10}{'CPU ms/call':>13}")
            for client, row in results[name].items():
                columns = f"{row['calls_per_s']:>9.0f}{row['of_bare']:>9.0%}{row['of_ideal']:>10.0%}"
                print(f"{client:<10}{columns}{row['cpu_ms']:>13.3f}")
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
