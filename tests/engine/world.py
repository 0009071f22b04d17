"""A small world for engine tests: a model that counts its calls, and a core over a journal file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil

from whet._util import descendants, watchdog
from whet.engine.blobs import Blobs
from whet.engine.budget import BudgetAccount, Spent
from whet.engine.cache import Cache
from whet.engine.calls import CallExecutor
from whet.engine.durable import DurableRun, Recorded, RunState
from whet.engine.journal import Connect, Journal, connect
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.models.prices import Price
from whet.run import Budget
from whet.types import Completion, Message, Request, Usage

UNLIMITED = Budget()


class Model:
    """Answers `echo: TEXT`; `behave` may raise or return something else, given the number of the attempt."""

    address, simulated, local, can_generate, can_score = "test/model", True, False, True, False
    base_url = ""

    def __init__(self, behave: Callable[[int, Request], str] | None = None) -> None:
        self.calls = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self._behave = behave

    async def generate(self, request: Request) -> list[Completion]:
        self.calls += 1
        number = self.calls
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(number % 3):
                await asyncio.sleep(0)
            text = f"echo: {request.messages[-1].content}"
            if self._behave is not None:
                text = self._behave(number, request)
            return [Completion(text, usage=Usage(7, 5))]
        finally:
            self.in_flight -= 1

    def count_tokens(self, text: str) -> int:
        return len(text.encode())

    async def close(self) -> None:
        return None


def ask(text: str, **settings: object) -> Request:
    return Request((Message("user", text),), max_tokens=10, **settings)  # type: ignore[arg-type]


def open_core(
    folder: Path,
    model: Model,
    limits: Budget = UNLIMITED,
    *,
    held: Budget = UNLIMITED,
    concurrency: int = 8,
    cache: Path | None = None,
    price: Price | None = None,
    open_db: Connect = connect,
) -> RunState:
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.sqlite", open_db)
    effects = {
        k: Recorded(n, d, v) for k, n, d, v in journal.rows("SELECT key, name, digest, value FROM effects")
    }
    results = {d: bytes(v) for d, v in journal.rows("SELECT digest, value FROM results")}
    spent = Spent()
    for calls, tokens_in, tokens_out, cost in journal.rows(
        "SELECT COUNT(*), COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0), COALESCE(SUM(cost), 0) FROM calls"
    ):
        spent.calls["task"] += calls
        spent.input_tokens, spent.output_tokens, spent.cost = tokens_in, tokens_out, cost
    budget = BudgetAccount(limits, spent, held)
    number = int(journal.rows("SELECT COALESCE(MAX(id), 0) + 1 FROM calls")[0][0])
    clients = {"task": ModelClient(model, AdaptiveLimiter(concurrency), price)}
    caller = CallExecutor(journal, Cache(cache), budget, clients, 0, results, number)
    known = {k for (k,) in journal.rows("SELECT key FROM events")}
    return RunState(journal, caller, budget, Blobs(folder / "blobs"), 0, effects, known_events=known)


def run_of(core: RunState) -> DurableRun:
    return DurableRun(core, "", core.budget.limits)


async def close(core: RunState) -> None:
    await core.caller.drain()
    core.caller.cache.close()
    core.journal.close()


def child_processes() -> list[psutil.Process]:
    """The children of this process without those that watch code of a user and the ends of commands, which live as long as it."""
    return [child for child in psutil.Process().children() if not _watches(child)]


def _watches(process: psutil.Process) -> bool:
    try:
        watching = str(Path(watchdog.__file__).with_name("process.py")), descendants.__file__
        return any(file in process.cmdline() for file in watching)
    except psutil.Error:  # it has just ended
        return False
