"""A pool of worker processes for the functions of a user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from whet._util.user_code import ENDED_AFTER, working_folder
from whet._util.workers import Job
from whet.errors import UsageError, WhetError, parameter

DEATHS = 3
"""How often a worker may die over the same job before the job is given up."""


class WorkerDied(WhetError):
    """A worker process ended in the middle of a job."""


@dataclass(eq=False)
class _Worker:
    """One process. It does one job at a time."""

    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, memory: int, folder: str) -> _Worker:
        """A process with this one's import path, in a working directory, with at most so many MiB of data; 0: no limit."""
        file = Path(__file__).with_name("process.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(file),
            str(memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        worker = cls(process)
        await worker.send(json.dumps([sys.path, folder]).encode())
        return worker

    async def send(self, body: bytes) -> None:
        """Write a frame. A process that is dead is noticed when its answer is read."""
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack(">I", len(body)) + body)
        with contextlib.suppress(ConnectionError):
            await self.process.stdin.drain()

    async def read(self) -> bytes:
        """The next frame. Raises WorkerDied, saying how."""
        assert self.process.stdout is not None
        try:
            (length,) = struct.unpack(">I", await self.process.stdout.readexactly(4))
            return await self.process.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise WorkerDied(_describe_end(await self.process.wait())) from None

    async def do(self, work: bytes, seconds: float) -> bytes:
        """The outcome of a job. Raises TimeoutError and WorkerDied."""
        await self.send(work)
        first = await asyncio.wait_for(self.read(), ENDED_AFTER)
        return first or await asyncio.wait_for(self.read(), seconds)

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class ProcessPool:
    """Up to `count` worker processes, started when they are first needed.

    A job whose worker dies (the system was out of memory, somebody killed it, a library crashed) is done again by a new one, at
    most `DEATHS` times. A job that is late or cancelled takes its worker with it. `memory`: MiB of data that a worker may have;
    0: no limit.
    """

    def __init__(self, count: int, memory: int = 0) -> None:
        if count < 1:
            raise ValueError(f"count must be 1 or more, found {count}")
        self.count, self.memory, self._folder = count, memory, working_folder()
        self._places = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    async def run(self, job: Job) -> Any:
        """See `Executor`."""
        work = _write_work(job)
        async with self._places:
            for death in range(1, DEATHS + 1):
                try:
                    return _read_outcome(await self._do(work, job), job)
                except WorkerDied as error:
                    if death == DEATHS:
                        raise UsageError(
                            f"{job.name}: the worker process that ran it {error}, {DEATHS} times. Look for a call that ends "
                            "the process, or for its use of memory. What was recorded is kept; mend it and run the same command "
                            "again."
                        ) from None

    async def _do(self, work: bytes, job: Job) -> bytes:
        worker = self._idle.pop() if self._idle else await self._start()
        try:
            outcome = await worker.do(work, job.seconds)
        except BaseException as error:
            self._all.discard(worker)
            await worker.end()
            if isinstance(error, TimeoutError):
                raise job.late() from None
            raise
        self._idle.append(worker)
        return outcome

    async def _start(self) -> _Worker:
        worker = await _Worker.start(self.memory, self._folder)
        self._all.add(worker)
        return worker

    async def close(self) -> None:
        """See `Executor`."""
        while self._all:
            await self._all.pop().end()
        self._idle.clear()


def _write_work(job: Job) -> bytes:
    """The work of a job as JSON. Raises UsageError for values that JSON does not keep as they are."""
    work = asdict(job.make_work())
    try:
        text = json.dumps(work)
        kept = json.loads(text) == work
    except (TypeError, ValueError, RecursionError):
        kept = False
    if not kept:
        raise UsageError(
            f"{job.name}: its values cannot be sent to a worker process, which gets them as JSON. Use texts, numbers, lists and "
            f"mappings in the rows, or leave out {parameter('workers')}."
        )
    return text.encode()


def _read_outcome(frame: bytes, job: Job) -> Any:
    outcome = orjson.loads(frame)
    if "refused" in outcome:
        known = outcome["kind"] == UsageError.__name__
        what = outcome["refused"] if known else f"{outcome['kind']}: {outcome['refused']}"
        raise UsageError(f"{job.name}: a worker process cannot run it: {what}")
    return outcome["value"]


def _describe_end(code: int) -> str:
    """How a process ended, as the end of a sentence about it."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
