"""The actor of a Ray cluster that does jobs: it holds a worker process and talks to the run.

It runs in a process of Ray, the code of users in children of it: they are ended at the time limit, have their limit of memory,
and leave the actor alone where they crash.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from whet._util.workers.elsewhere import Talk, WorkerDied
from whet._util.workers.pool import Processes
from whet._util.workers.sent_files import FILES_AT, Parts, SentFiles

Reply: TypeAlias = tuple[Literal["done", "late", "died"], Any]
"""The result of a call: its value, or how the worker process died. Values only: Ray wraps exceptions."""


class RayActor:
    """A worker of at most so many MiB (0: no limit) with that import path and working directory, where they are there. `place`:
    environment variables of its process beside its own."""

    def __init__(
        self, memory: int, path: Sequence[str], folder: str, place: Mapping[str, str] | None = None
    ) -> None:
        own = [place for place in path if os.path.isdir(place) and place not in sys.path]
        folder = folder if os.path.isdir(folder) else ""
        self._place = dict(place or {})
        self._processes = Processes(1, memory, [*own, *sys.path], folder, [self._place])
        self._talks: dict[int, Talk] = {}
        self._over: set[int] = set()

    async def find_node(self) -> str:
        """The name and the address of its machine."""
        import ray

        return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"

    async def find_files(self, files: SentFiles) -> bool:
        """Whether its machine has the files of the model: the worker process reads those then."""
        found = await asyncio.to_thread(files.find)
        if found is not None:
            self._place[FILES_AT] = found
        return found is not None

    async def keep_files(self, files: SentFiles, parts: Parts) -> str:
        """Copy the files of the model to its machine; the reason where that fails, else nothing."""
        try:
            self._place[FILES_AT] = await files.keep(parts)
        except OSError as error:
            return f"the files of the model cannot be kept there: {error.strerror} ({error.filename})"
        return ""

    async def do(self, work: bytes, seconds: float) -> Reply:
        """See `Workers.do`."""
        try:
            return "done", await self._processes.do(work, seconds)
        except TimeoutError:
            return "late", None
        except WorkerDied as error:
            return "died", str(error)

    async def open(self, number: int, work: bytes, alone: bool) -> Reply:
        """Open the conversation of that number. See `Workers.open`."""
        try:
            talk = await self._processes.open(work, alone)
        except WorkerDied as error:
            return "died", str(error)
        self._talks[number] = talk
        if number in self._over:
            await self.end(number, False)
        return "done", None

    async def next(self, number: int) -> Reply:
        """The next message of a conversation, as JSON. See `Talk.next`."""
        try:
            return "done", json.dumps(await self._talks[number].next())
        except WorkerDied as error:
            return "died", str(error)

    async def send(self, number: int, to: int, key: str, value: str) -> Reply:
        """See `Talk.send`; the value is JSON."""
        try:
            await self._talks[number].send(to, key, json.loads(value))
        except WorkerDied as error:
            return "died", str(error)
        return "done", None

    async def end(self, number: int, late: bool) -> Reply:
        """See `Talk.end`. A conversation that is not open yet ends once it is."""
        talk = self._talks.pop(number, None)
        if talk is None:
            self._over.add(number)
        else:
            self._over.discard(number)
            await talk.end(late)
        return "done", None
