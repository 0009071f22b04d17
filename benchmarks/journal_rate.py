"""Where the single journal of a run saturates: effects a second with 1 to 1,000 simulated workers, and what one takes.

    python benchmarks/journal_rate.py                 # about two minutes; nothing else should run
    python benchmarks/journal_rate.py --seconds 1 --folder /mnt/disk

Real are the journal (SQLite, on the disk of `--folder`) and the driver (`DurableRun`, which records, budgets and resumes).
**Simulated** are the workers: each one waits as long as its work would take, and then asks for the next. Two kinds of work:

- ``job``: a reward or a program on a worker. Its value is recorded after it came, and nobody waits for the disk.
- ``call``: a paid call of a model. Its intent is on the disk before it is sent (group commit: one fsync for all that wait), and
  its answer is in the file before the next intent.

A job of 0 ms shows the most that the driver does. `busy` is the share of the time in which the workers worked; `us` the processor
time of the driver for one effect, which other programs on the machine do not change much; `commits` the transactions a second,
`in one` the effects of one transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.engine.blobs import Blobs
from whet.engine.budget import BudgetAccount, Spent
from whet.engine.cache import Cache
from whet.engine.calls import CallExecutor
from whet.engine.durable import DurableRun, RunState
from whet.engine.journal import Journal, meta_row
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.run import Budget, Run
from whet.types import Completion, Message, Request, Scores, Usage

WORKERS = (1, 100, 1000)
MILLISECONDS = {"job": (0, 50, 1000), "call": (50, 1000)}
COMMITS = 50


class CountingConnection(sqlite3.Connection):
    """Counts the transactions that were committed."""

    commits = 0

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """As SQLite's own."""
        CountingConnection.commits += sql == "COMMIT"
        return super().execute(sql, *parameters)


def connect(path: str) -> sqlite3.Connection:
    """As the journal connects."""
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=10, factory=CountingConnection
    )


class WaitingModel:
    """A model that answers after some seconds, like one behind a network."""

    address, simulated, local, can_generate, can_score = "test/waiting", True, False, True, False
    base_url = ""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def generate(self, request: Request) -> list[Completion]:
        """An answer of 200 characters."""
        await asyncio.sleep(self.seconds)
        return [Completion("x" * 200, usage=Usage(50, 50))]

    async def score(self, *parts: object) -> Scores:
        """It only answers."""
        raise NotImplementedError

    def count_tokens(self, text: str) -> int:
        """One for each character."""
        return len(text)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class RateMeasure:
    """What some workers did: effects a second, the share of their time in which they worked, the driver's processor time in
    microseconds for an effect, and transactions a second."""

    rate: float
    busy: float
    microseconds: float
    commits: float


def open_state(folder: Path, workers: int, seconds: float) -> RunState:
    """A run with a new journal."""
    folder.mkdir(parents=True)
    journal, limits = Journal(folder / "journal.sqlite", connect), Budget()
    budget = BudgetAccount(limits, Spent(), limits)
    clients = {"task": ModelClient(WaitingModel(seconds), AdaptiveLimiter(workers), None)}
    caller = CallExecutor(journal, Cache(None), budget, clients, 0)
    return RunState(journal, caller, budget, Blobs(folder / "blobs"), 0, {})


async def measure(folder: Path, kind: str, workers: int, latency: float, seconds: float) -> RateMeasure:
    """Let workers work for some seconds, and wait until what they did is on the disk."""
    state = open_state(folder, workers, latency)
    run, done = DurableRun(state, "", Budget()), 0
    used, began, commits = time.process_time(), time.perf_counter(), CountingConnection.commits
    end = began + max(seconds, 3 * latency)

    async def grade() -> float:
        await asyncio.sleep(latency)
        return 1.0

    async def work(branch: Run, worker: int) -> None:
        nonlocal done
        number = 0
        while time.perf_counter() < end:
            if kind == "job":
                await branch.effect("grade", grade, [worker, number])
            else:
                question = Message(
                    "user", f"Question {number} of worker {worker}, as long as a short question is."
                )
                await branch.generate("task", Request((question,), max_tokens=50))
            done, number = done + 1, number + 1

    await run.map(work, list(range(workers)))
    await state.journal.commit()
    took = time.perf_counter() - began
    used = time.process_time() - used
    commits = CountingConnection.commits - commits
    await state.caller.drain()
    state.caller.cache.close()
    state.journal.close()
    return RateMeasure(done / took, done * latency / (workers * took), used / done * 1e6, commits / took)


async def time_commit(folder: Path) -> float:
    """Milliseconds until one row alone is on the disk: the median of some."""
    folder.mkdir(parents=True)
    journal, times = Journal(folder / "journal.sqlite", connect), []
    for number in range(COMMITS):
        began = time.perf_counter()
        await journal.commit([meta_row(f"n{number}", "x" * 100)])
        times.append(time.perf_counter() - began)
    journal.close()
    return statistics.median(times) * 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each line is measured, at least")
    parser.add_argument("--folder", type=Path, help="a folder on the disk of the runs (default: this folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="journal-", dir=options.folder or Path.cwd()) as place:
        alone = asyncio.run(time_commit(Path(place) / "alone"))
        print(f"one row alone is on the disk after {alone:.2f} ms (median of {COMMITS})\n")
        heads = ("work", "ms", "workers", "effects/s", "asked for", "busy", "us", "commits/s", "in one")
        print("".join(f"{head:>11}" for head in heads))
        for kind, latencies in MILLISECONDS.items():
            for latency in latencies:
                for workers in WORKERS:
                    folder = Path(place) / f"{kind}-{latency}-{workers}"
                    rates = asyncio.run(measure(folder, kind, workers, latency / 1000, options.seconds))
                    asked = f"{workers / latency * 1000:,.0f}" if latency else "-"
                    busy = f"{rates.busy:.0%}" if latency else "-"
                    in_one = rates.rate / rates.commits
                    numbers = (rates.microseconds, rates.commits, in_one)
                    row = (
                        kind,
                        str(latency),
                        f"{workers:,}",
                        f"{rates.rate:,.0f}",
                        asked,
                        busy,
                        *(f"{one:,.0f}" for one in numbers),
                    )
                    print("".join(f"{cell:>11}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
