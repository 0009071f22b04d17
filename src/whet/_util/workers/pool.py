"""Worker processes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet._util.user_code import ENDED_AFTER, working_folder
from whet._util.workers import Work
from whet._util.workers.elsewhere import Elsewhere, Talk, WorkerDied


def make_pool(count: int, memory: int = 0) -> Elsewhere:
    """An executor with up to `count` worker processes of at most so many MiB of data each; 0: no limit."""
    return Elsewhere(Processes(count, memory))


async def send_frame(process: asyncio.subprocess.Process, body: bytes) -> None:
    """Write a frame to the input of a process. One that is dead is noticed when its answer is read."""
    assert process.stdin is not None
    if process.stdin.is_closing():  # uvloop raises where asyncio loses what is written
        return
    with contextlib.suppress(ConnectionError):
        process.stdin.write(struct.pack(">I", len(body)) + body)
        await process.stdin.drain()


@dataclass(eq=False)
class _Worker:
    """One process. It does one job at a time."""

    process: asyncio.subprocess.Process
    place: Mapping[str, str] | None = None

    @classmethod
    async def start(
        cls, memory: int, path: list[str], folder: str, place: Mapping[str, str] | None
    ) -> _Worker:
        """A process with that import path, in a working directory, with at most so many MiB of data (0: no limit), and with the
        environment variables of a place beside those of this process."""
        file = Path(__file__).with_name("process.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(file),
            str(memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=None if place is None else {**os.environ, **place},
        )
        worker = cls(process, place)
        await send_frame(process, json.dumps([path, folder]).encode())
        return worker

    async def read(self) -> bytes:
        """The next frame. Raises WorkerDied, saying how."""
        assert self.process.stdout is not None
        try:
            (length,) = struct.unpack(">I", await self.process.stdout.readexactly(4))
            return await self.process.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise WorkerDied(describe_end(await self.process.wait())) from None

    async def do(self, work: bytes, seconds: float) -> bytes:
        """The outcome of a job. Raises TimeoutError and WorkerDied."""
        await send_frame(self.process, work)
        first = await asyncio.wait_for(self.read(), ENDED_AFTER)
        return first or await asyncio.wait_for(self.read(), seconds)

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@dataclass(eq=False)
class _Host:
    """One process in which conversations are held, beside each other. `alone`: one after the other."""

    worker: _Worker
    alone: bool
    talks: dict[int, asyncio.Queue[dict[str, Any] | WorkerDied]] = field(default_factory=dict)
    died: WorkerDied | None = None
    reading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Hand messages to whom they are for from now on."""
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            while True:
                message = json.loads(await self.worker.read())
                queue = self.talks.get(message.pop("talk"))
                if queue is not None:
                    queue.put_nowait(message)
        except WorkerDied as error:
            self.died = error
            for queue in self.talks.values():
                queue.put_nowait(error)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message, if anybody is there."""
        await send_frame(self.worker.process, json.dumps(message).encode())

    async def end(self) -> None:
        """Kill the process; whoever waits for it hears that it died."""
        await self.worker.end()
        if self.reading is not None:
            await self.reading


@dataclass(eq=False)
class _HostTalk:
    """See `Talk`."""

    processes: Processes
    host: _Host
    number: int
    _done: bool = False

    async def next(self) -> dict[str, Any]:
        message = await self.host.talks[self.number].get()
        if isinstance(message, WorkerDied):
            raise message
        self._done = "value" in message or "refused" in message
        return message

    async def send(self, number: int, key: str, value: Any) -> None:
        await self.host.send({"talk": self.number, "to": number, key: value})

    async def end(self, late: bool) -> None:
        self.host.talks.pop(self.number, None)
        given_up = self.host.alone and not self._done
        if late or given_up or self.host.died is not None:
            await self.processes.end_host(self.host)
        elif not self._done:
            await self.host.send({"talk": self.number, "over": True})
        if self.host.alone:
            self.processes.free_alone.release()


class Processes:
    """See `Workers`: up to `count` processes for work that asks nothing, one job each at a time, and as many that share the work
    that asks. They are started when they are first needed. `memory`: MiB of data that each may have; 0: no limit.

    `path`, `folder`: their import path and working directory; by default those of this process. `places`: environment variables
    of each, for work that asks nothing: a process that takes over from another has those of that.
    """

    def __init__(
        self,
        count: int,
        memory: int = 0,
        path: Sequence[str] | None = None,
        folder: str | None = None,
        places: Sequence[Mapping[str, str]] = (),
    ) -> None:
        if count < 1:
            raise ValueError(f"count must be 1 or more, found {count}")
        self.count, self.memory, self._path = count, memory, path
        self._folder = working_folder() if folder is None else folder
        self._free, self.free_alone = asyncio.Semaphore(count), asyncio.Semaphore(count)
        self._places = list(places)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._hosts: list[_Host] = []
        self._starting = asyncio.Lock()
        self._numbers = itertools.count()

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """Nothing: they see the files of this process, and import what it imports."""

    async def do(self, work: bytes, seconds: float) -> bytes:
        """See `Workers`."""
        async with self._free:
            worker = (
                self._idle.pop()
                if self._idle
                else await self._start(self._places.pop(0) if self._places else None)
            )
            try:
                outcome = await worker.do(work, seconds)
            except BaseException:
                self._all.discard(worker)
                if worker.place is not None:
                    self._places.append(worker.place)
                await worker.end()
                raise
            self._idle.append(worker)
            return outcome

    async def open(self, work: bytes, alone: bool) -> Talk:
        """See `Workers`."""
        number = next(self._numbers)
        if alone:
            await self.free_alone.acquire()
        try:
            host = await self._choose_host(alone, number)
        except BaseException:
            if alone:
                self.free_alone.release()
            raise
        if host.died is not None:
            host.talks[number].put_nowait(host.died)
        await host.send({"talk": number, "work": json.loads(work)})
        return _HostTalk(self, host, number)

    async def _choose_host(self, alone: bool, number: int) -> _Host:
        """The host of a conversation: one with no other, or the one with the fewest."""
        async with self._starting:
            there = [host for host in self._hosts if host.alone == alone and host.died is None]
            least = min(there, key=lambda host: len(host.talks), default=None)
            host = least
            if host is None or (host.talks and (alone or len(there) < self.count)):
                host = _Host(await self._start(), alone)
                host.begin()
                self._hosts.append(host)
            host.talks[number] = asyncio.Queue()
            return host

    async def end_host(self, host: _Host) -> None:
        """End a host and all that goes on in it."""
        if host in self._hosts:
            self._hosts.remove(host)
            self._all.discard(host.worker)
            await host.end()

    async def _start(self, place: Mapping[str, str] | None = None) -> _Worker:
        path = sys.path if self._path is None else list(self._path)
        worker = await _Worker.start(self.memory, path, self._folder, place)
        self._all.add(worker)
        return worker

    async def close(self) -> None:
        """See `Executor`."""
        while self._hosts:
            await self.end_host(self._hosts[-1])
        while self._all:
            await self._all.pop().end()
        self._idle.clear()


def count_processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_threads(processors: int, workers: int) -> dict[str, str]:
    """The environment variable with which so many workers compute with as many threads as there are processors, unless the user
    has set it."""
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, processors // workers)))
    return {"OMP_NUM_THREADS": threads}


def describe_end(code: int) -> str:
    """Describe the end of a process; the text ends a sentence whose subject is the process."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
