"""The runs of a comparison in several processes of one machine, with one display.

This process plans, shows and makes the table; each job is a process that makes one run after the other, as one process would. A
run belongs to its folder: a job that dies costs what it had in flight, and the next process goes on with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import struct
import sys
import threading
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from whet._util.arguments import select_keywords
from whet._util.fields import build_from
from whet._util.sendable import Unsendable, from_sendable, to_sendable
from whet._util.storable import to_json
from whet._util.user_code import working_folder
from whet._util.variables import whole_environment
from whet._util.watchdog import watching
from whet._util.workers.elsewhere import DEATHS, WorkerDied
from whet._util.workers.pool import describe_end, send_frame
from whet._util.workers.process import end_with_parent, read_frame, take_streams, write_frame
from whet.api.comparison import RunMeasurements, own_options
from whet.api.running import run_task
from whet.engine.assemble import Assembly, spread_over_models
from whet.engine.durable import gather_in_order
from whet.engine.openings import Family, run_id
from whet.engine.options import Options, RoleModel
from whet.engine.progress import Progress
from whet.engine.result_json import RunJSON
from whet.engine.run_folder import RunPlan, check_run_folder, read_header
from whet.errors import ProviderError, StorageError, UsageError, WhetError, parameter
from whet.methods import MethodChoice, choose_method
from whet.prompt import Prompt
from whet.reporting import Display
from whet.task import Task, TaskKeywords, task_of

START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from whet.api.jobs import serve_job; serve_job()"
"""The program of a job: it takes over the import path before it imports this tool."""
TOLD_EVERY = 0.25
"""Seconds between two lines about a run."""
STOP_SECONDS, LAST_SECONDS = 1.2, 1.5
"""A job that is asked to stop ends by itself after so many seconds, and is killed after the others."""
_STOP = "stop"
_KINDS = {kind.__name__: kind for kind in (ProviderError, StorageError, UsageError, WhetError)}


@dataclass(frozen=True)
class ComparisonCall:
    """The arguments of `whet.compare` that determine its runs."""

    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[Any]
    methods: Sequence[MethodChoice]
    seeds: int
    transfer: RoleModel
    reader: str
    keywords: Mapping[str, Any]
    jobs: int = 1

    def open(self) -> OpenComparison:
        """The comparison, its task read. Raises UsageError for methods that are none, and for what `whet.optimize` refuses."""
        chosen = [choose_method(method) for method in self.methods]
        names = [method.entry.name for method, _ in chosen]
        configs = {method.entry.name: config for method, config in chosen if config is not None}
        if len(set(names)) < len(names) or not names:
            twice = next((f'"{name}" twice' for name in names if names.count(name) > 1), "none")
            raise UsageError(
                f"{parameter('methods')} must name each method to compare, once; it names {twice}. Give for example "
                "opro and random_search."
            )
        if self.seeds < 1:
            raise UsageError(f"{parameter('seeds')} must be 1 or more; this is {self.seeds}.")
        if self.jobs < 1:
            raise UsageError(f"{parameter('jobs')} must be 1 or more; this is {self.jobs}.")
        loaded = task_of(self.task, select_keywords(TaskKeywords, self.keywords))
        loaded, options = spread_over_models(loaded, build_from(Options, self.keywords))
        jobs = min(self.jobs, self.seeds * len(names))
        if jobs > 1:
            options = replace(options, share=jobs)
        folder = comparison_folder(options, loaded)
        return OpenComparison(loaded, options, names, configs, folder)


@dataclass(frozen=True)
class OpenComparison:
    """A comparison whose task is read: its methods by name, and the settings of those that came with all of them."""

    task: Task
    options: Options
    names: Sequence[str]
    configs: Mapping[str, object]
    folder: Path


def comparison_folder(options: Options, task: Task) -> Path:
    """The folder that a comparison writes into. Raises UsageError for the folder of a run."""
    folder = Path(options.run) if options.run is not None else Path(options.root) / f"{task.name}-compare"
    check_run_folder(folder)
    if read_header(folder) is not None:
        raise UsageError(
            f"{folder} is the folder of a run, but a comparison needs its own folder for its runs. "
            f"Choose another folder with {parameter('run', 'DIR')}."
        )
    return folder


def _write_call(call: ComparisonCall) -> bytes:
    """The call as JSON for a job. Raises UsageError for what no other process can load."""
    try:
        return json.dumps(to_sendable(call)).encode()
    except (Unsendable, RecursionError) as error:
        what = error if isinstance(error, Unsendable) else "an object that contains itself"
        raise UsageError(
            f"{parameter('jobs')}: {what} cannot be sent to another process. Give a task folder, models by their addresses, "
            "and functions of modules that can be imported."
        ) from None


class _Job:
    """One process, which makes one run after the other."""

    def __init__(self, process: asyncio.subprocess.Process, progress: Progress) -> None:
        self.process, self._progress = process, progress
        self._errors = asyncio.create_task(self._relay())

    @classmethod
    async def start(cls, first: bytes, folder: str, progress: Progress) -> _Job:
        """A process that has this process's import path and loads the comparison. `progress` says what it prints."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            START,
            to_json(sys.path).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder or None,
            env=whole_environment(),
            start_new_session=True,
        )
        job = cls(process, progress)
        await send_frame(process, first)
        return job

    async def read(self) -> dict[str, Any]:
        """The next message. Raises WorkerDied, saying how."""
        assert self.process.stdout is not None
        try:
            (length,) = struct.unpack(">I", await self.process.stdout.readexactly(4))
            message: dict[str, Any] = orjson.loads(await self.process.stdout.readexactly(length))
            return message
        except asyncio.IncompleteReadError:
            raise WorkerDied(describe_end(await self.process.wait())) from None

    async def stop(self) -> None:
        """Let it record what is in flight and end; kill it where that takes too long."""
        if self.process.returncode is None:
            await send_frame(self.process, to_json(_STOP))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.process.wait()), LAST_SECONDS)
        await self.end()

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._errors

    async def _relay(self) -> None:
        """Say what the process writes to its standard error."""
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            async for text in self.process.stderr:
                self._progress.say(text.decode("utf-8", "replace").rstrip("\r\n"))


@dataclass
class JobPool:
    """Makes runs of a comparison in up to `count` processes.

    A run whose process dies is continued by a new one, at most `DEATHS` times. The first error of a run stops the others; what is
    recorded is kept. `_spent` are calls and US dollars of each run so far.
    """

    first: bytes
    count: int
    progress: Progress
    folder: str = field(default_factory=working_folder)
    _spent: dict[str, tuple[int, float]] = field(default_factory=dict)
    _done: int = 0
    _total: int = 0
    _begun: Path | None = None
    _may_begin: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, call: ComparisonCall, count: int, progress: Progress) -> JobPool:
        """The pool of a call. Raises UsageError for what no other process can load."""
        return cls(_write_call(call), count, progress)

    async def make(
        self,
        runs: Sequence[tuple[str, int]],
        begun: Path | None,
        family: Family,
        on_start: Callable[[str, int], None],
    ) -> None:
        """Make these runs; `on_start` is called with each. The others begin once the first one has its folder, which is `begun`
        (None: at once), for all of them open the sealed rows in its name. Raises what the first run that fails raises."""
        waiting, self._total = deque(runs), len(runs)
        self._begun, self._may_begin = begun, asyncio.Event()
        self._look_for_first()

        async def work(number: int) -> None:
            if number:
                await self._may_begin.wait()
            await self._work(waiting, family, on_start)

        try:
            await gather_in_order([work(number) for number in range(min(self.count, len(runs)))])
        finally:
            self.progress.parts.clear()

    def _look_for_first(self) -> None:
        """Let the other runs begin, if the first one has its folder."""
        if not self._may_begin.is_set() and _has_begun(self._begun):
            self._may_begin.set()

    async def _work(
        self, waiting: deque[tuple[str, int]], family: Family, on_start: Callable[[str, int], None]
    ) -> None:
        job: _Job | None = None
        try:
            while waiting:
                name, seed = waiting.popleft()
                title = f"{name}, seed {seed}"
                on_start(name, seed)
                for death in range(1, DEATHS + 1):
                    self.progress.parts[title] = "starting"
                    self._show()
                    job = job or await _Job.start(self.first, self.folder, self.progress)
                    try:
                        await self._make(job, name, seed, title, family)
                        break
                    except WorkerDied as error:
                        await job.end()
                        job = None
                        if death == DEATHS:
                            raise UsageError(
                                f"{title}: the process that made this run {error}, {DEATHS} times. "
                                "Look for a call that ends the process, or for high use of memory. "
                                "Everything recorded is kept, and the same command continues."
                            ) from None
                        self.progress.say(f"{title}: its process {error}; a new process continues the run")
                del self.progress.parts[title]
                self._done += 1
                self._show()
        finally:
            if job is not None:
                await job.stop()

    async def _make(self, job: _Job, name: str, seed: int, title: str, family: Family) -> None:
        order = {"name": name, "seed": seed, "first": str(family.first), "key": family.key}
        await send_frame(job.process, to_json({**order, "family": family.name, "tests": family.tests}))
        while True:
            message = await job.read()
            self._look_for_first()
            if "done" in message:
                return
            if "kind" in message:
                raise _KINDS.get(message["kind"], WhetError)(f"{title}: {message['text']}")
            if "say" in message:
                self.progress.say(f"{title}: {message['say']}")
            elif "warn" in message:
                self.progress.warn(message["warn"])
            else:
                self.progress.parts[title] = message["line"]
                self._spent[title] = message["calls"], message["cost"]
                self.progress.earlier = sum(calls for calls, _ in self._spent.values())
                self.progress.earlier_cost = sum(cost for _, cost in self._spent.values())

    def _show(self) -> None:
        self.progress.title = f"{self._done} of {self._total} runs done, {len(self.progress.parts)} running"
        self.progress.phase = ""


def _has_begun(folder: Path | None) -> bool:
    try:
        return folder is None or bool(run_id(folder))
    except (UsageError, StorageError, IndexError):
        return False


@dataclass
class _RunOnly(RunMeasurements):
    """Makes a run of a comparison and measures nothing of it: the process with the table does."""

    async def measure(self, plan: RunPlan, assembly: Assembly, result: RunJSON) -> RunJSON:
        return result


def serve_job() -> None:
    """The life of a job: read the comparison and make the runs that are ordered until the input ends."""
    frames_in, frames_out = take_streams()
    end_with_parent()
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    writer = threading.Thread(target=_write_all, args=(messages, frames_out), daemon=True)
    writer.start()
    code = 0
    try:
        with watching("A job was interrupted."):
            asyncio.run(_serve(frames_in, messages))
    except (asyncio.CancelledError, KeyboardInterrupt):
        code = 130
    messages.put(None)
    writer.join()
    sys.stderr.flush()
    os._exit(code)  # threads of code of the user may go on


def _write_all(messages: queue.SimpleQueue[bytes | None], frames_out: BinaryIO) -> None:
    while (message := messages.get()) is not None:
        try:
            write_frame(frames_out, message)
        except OSError:  # nobody reads any more
            os._exit(1)


async def _serve(frames_in: BinaryIO, messages: queue.SimpleQueue[bytes | None]) -> None:
    body = await asyncio.to_thread(read_frame, frames_in)
    opened: OpenComparison | None = None
    async for order in _orders(frames_in):
        try:
            if opened is None:
                call: ComparisonCall = from_sendable(json.loads(body or b""))
                opened = call.open()
                measurements = _RunOnly(
                    opened.task, opened.options, opened.folder, call.transfer, call.reader
                )
                measurements.open()
            family = Family(Path(order["first"]), order["family"], order["tests"], order["key"])
            measurements.family = family
            one = own_options(measurements, order["name"], order["seed"], opened.configs)
            await _make_run(opened.task, one, measurements, messages)
        except Exception as error:
            if not isinstance(error, WhetError):
                traceback.print_exc()
            kind = next((k for k, known in _KINDS.items() if isinstance(error, known)), "")
            text = str(error.args[0]) if isinstance(error, WhetError) else f"{type(error).__name__}: {error}"
            messages.put(to_json({"kind": kind, "text": text}))
        else:
            messages.put(to_json({"done": True}))


async def _orders(frames_in: BinaryIO) -> AsyncIterator[dict[str, Any]]:
    """The runs that are ordered. A wish to stop cancels what is going on; an input that ends ends the process."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def read() -> None:
        while (frame := read_frame(frames_in)) is not None:
            order = orjson.loads(frame)
            if order == _STOP:
                last = threading.Timer(STOP_SECONDS, os._exit, (130,))
                last.daemon = True
                last.start()
                loop.call_soon_threadsafe(task.cancel)
            else:
                loop.call_soon_threadsafe(orders.put_nowait, order)
        os._exit(0)

    threading.Thread(target=read, name="whet-orders", daemon=True).start()
    while True:
        yield await orders.get()


async def _make_run(
    task: Task, options: Options, measurements: RunMeasurements, messages: queue.SimpleQueue[bytes | None]
) -> None:
    """Make a run; meanwhile say how it goes on."""
    display = Display()
    progress = display.progress
    progress.planned = lambda plan: None
    progress.say = lambda text: messages.put(to_json({"say": text}))
    progress.warn = lambda text: messages.put(to_json({"warn": text}))

    async def tell() -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY)
            messages.put(to_json(_snapshot(display)))

    telling = asyncio.create_task(tell())
    try:
        await run_task(task, options, progress, measurements)
    finally:
        telling.cancel()
        messages.put(to_json(_snapshot(display)))


def _snapshot(display: Display) -> dict[str, object]:
    """The state of a run: a line, and its usage so far."""
    core = display.progress.core
    spent = (0, 0.0) if core is None else (core.budget.spent.total_calls, core.budget.spent.cost)
    return {"line": display.line(), "calls": spent[0], "cost": spent[1]}
