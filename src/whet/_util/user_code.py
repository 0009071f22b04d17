"""Functions of a user in a thread with a time limit: the event loop goes on, and Ctrl-C works, while one runs or hangs.

Whatever one raises comes back as an `Exception`, and the process keeps its working directory and its standard output.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from whet._util.watchdog import Watched
from whet.errors import WhetError

THREAD = "whet-reward"
SAID_AFTER, ENDED_AFTER = 10.0, 600.0
"""Seconds after which a file that is still running is named, and after which it is given up."""
_log = logging.getLogger(__name__)


class OutOfTime(WhetError):
    """A function has not returned in time."""


class StrayException(Exception):
    """An exception of a user's function that would end a thread, a task or the event loop on its way: what it was is
    `original`."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(f"{type(original).__name__}")
        self.original = original


_STRAY = (StopIteration, StopAsyncIteration, asyncio.CancelledError, concurrent.futures.CancelledError)


def caught(error: BaseException) -> Exception:
    """What a user's function raised, as an exception that may pass through coroutines and futures."""
    if isinstance(error, Exception) and not isinstance(error, _STRAY):
        return error
    return StrayException(error).with_traceback(error.__traceback__)


class _ThreadStream:
    """Standard output for everybody but the user's functions, which get standard error."""

    def __init__(self, out: Any) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if threading.current_thread().name == THREAD else self.out, name)


class _ThreadOutput:
    """Puts a `_ThreadStream` in the place of `sys.stdout` while at least one function runs, in any thread, and the working
    directory back afterwards.

    What once was `sys.stdout` is never freed: `print` of another thread may be in it (CPython up to 3.13 borrows it).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._proxies: dict[int, _ThreadStream] = {}
        self._folder = ""

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._folder = working_folder()
            self._users += 1
            if not isinstance(sys.stdout, _ThreadStream):
                sys.stdout = self._proxies.setdefault(id(sys.stdout), _ThreadStream(sys.stdout))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and isinstance(sys.stdout, _ThreadStream):
                sys.stdout = sys.stdout.out
            if not self._users:
                back_to(self._folder)


_SURROUNDINGS = _ThreadOutput()


def working_folder() -> str:
    """The working directory; empty where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def back_to(folder: str) -> None:
    """Make it the working directory again, as far as it is another one and there."""
    if folder and folder != working_folder():
        with contextlib.suppress(OSError):
            os.chdir(folder)


@dataclass
class _Turns:
    """One function at a time in an event loop: functions of a user need not be safe for threads."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


_TURNS: dict[asyncio.AbstractEventLoop, _Turns] = {}
_UNDER_WAY: dict[Watched, tuple[float, str]] = {}


def under_way() -> tuple[str, float]:
    """The name of what has been under way longest, and its seconds; ("", 0.0) where nothing is."""
    began, name = min(list(_UNDER_WAY.values()), default=(0.0, ""))
    return name, time.monotonic() - began if name else 0.0


@contextlib.contextmanager
def _watch(name: str, seconds: float) -> Iterator[Watched]:
    """What is done meanwhile is `under_way` by its name, and a run in a process of its own ends where it holds the interpreter
    for longer than it may."""
    sentence = (
        f"whet: {name} has not returned after {seconds:g} s and holds Python's interpreter, as a match of `re` that backtracks "
        "does. Nothing but a kill can end that, and whet has ended so. "
        "What was recorded is kept. Mend it and run the same command again."
    )
    watched = Watched(sentence, seconds)
    _UNDER_WAY[watched] = time.monotonic(), name
    try:
        yield watched
    finally:
        _UNDER_WAY.pop(watched, None)
        watched.end()


async def call_within(function: Callable[[], object], seconds: float, name: str) -> Any:
    """The result of the function, awaited where it can be; what it prints goes to stderr. Raises OutOfTime, and what the
    function raises as `caught` makes it. `name` says whose function runs on what.

    A thread that hangs cannot be ended: it is left behind, and dies with the process.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.setdefault(loop, _Turns())
    turns.users += 1
    try:
        async with turns.lock:
            with _SURROUNDINGS, _watch(name, seconds) as watched:
                returned = _start_thread(function, watched)
                try:
                    result = await _within(asyncio.wrap_future(returned), seconds)
                except BaseException:
                    returned.add_done_callback(_ignore)
                    raise
    finally:
        turns.users -= 1
        if not turns.users:
            del _TURNS[loop]
    if not inspect.isawaitable(result):
        return result
    with _watch(name, seconds):
        return await await_result(result, seconds)


def run_file(function: Callable[[], object], path: object) -> Any:
    """The result of a function that runs the file `path`, in a thread beside the caller, so that Ctrl-C works; a file that takes
    long is named once. Raises OutOfTime after ENDED_AFTER seconds, and leaves the thread behind; and what the function
    raises as `caught` makes it."""
    with _watch(str(path), ENDED_AFTER) as watched:
        returned = _start_thread(function, watched)
        if not concurrent.futures.wait([returned], SAID_AFTER).done:
            _log.warning(
                "%s is still running, and is given up after %.0f s; Ctrl-C ends it.", path, ENDED_AFTER
            )
            if not concurrent.futures.wait([returned], ENDED_AFTER - SAID_AFTER).done:
                raise OutOfTime
        return returned.result()


async def call_beside(function: Callable[[], Any], seconds: float | None) -> object:
    """As `call_within`, for functions that run beside each other and print where they like; None: for as long as it takes."""
    return await await_result(await _within(asyncio.wrap_future(_start_thread(function)), seconds), seconds)


async def await_result(result: Any, seconds: float | None) -> object:
    """The result, awaited where it can be. Raises OutOfTime, and what it raises as `caught` makes it; Ctrl-C stays itself."""
    if not inspect.isawaitable(result):
        return result
    try:
        return await _within(asyncio.ensure_future(_of(result)), seconds)
    finally:
        _close(result)


async def in_thread(
    function: Callable[[], object], seconds: float, clock: Callable[[], float], name: str
) -> object:
    """The result of a function that runs in a thread until `clock` shows more than `seconds`; what it prints goes
    to stderr. Raises OutOfTime, and leaves the thread behind. `name` says whose function runs on what."""
    with _SURROUNDINGS, _watch(name, seconds) as watched:
        future = asyncio.wrap_future(_start_thread(function, watched))
        try:
            while not future.done():
                if (left := seconds - clock()) <= 0:
                    raise OutOfTime
                watched.allow(left)
                await asyncio.wait({future}, timeout=left)
            return future.result()
        finally:
            future.cancel()


async def _within(future: asyncio.Future[Any], seconds: float | None) -> object:
    try:
        await asyncio.wait({future}, timeout=seconds)
        if not future.done():
            raise OutOfTime
        if future.cancelled():  # by its own code: a cancellation of this task is raised where it waits
            raise StrayException(asyncio.CancelledError())
        if (error := future.exception()) is not None:
            raise error if isinstance(error, KeyboardInterrupt) else caught(error)
        return future.result()
    finally:
        future.cancel()


class _Worker:
    """A thread that runs one function after the other; it is idle again when a function returns, so one that hangs stays out."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any], Watched | None]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._work, name=THREAD, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._run(*self.tasks.get())

    def _run(self, function: Callable[[], object], future: Future[Any], watched: Watched | None) -> None:
        try:
            try:
                result = function()
            finally:
                if watched is not None:
                    watched.end()
        except BaseException as error:
            _IDLE.append(self)
            future.set_exception(caught(error))
        else:
            _IDLE.append(self)
            future.set_result(result)


_IDLE: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)


def _start_thread(function: Callable[[], object], watched: Watched | None = None) -> Future[Any]:
    """What the function will have returned in a thread beside this one; `watched` ends there when it returns."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    worker.tasks.put((function, future, watched))
    return future


def _ignore(future: Future[Any]) -> None:
    if future.exception() is None:
        _close(future.result())


def _close(result: object) -> None:
    """Close a coroutine that nobody began to await: Python warns of it otherwise."""
    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()


async def _of(result: Awaitable[Any]) -> object:
    try:
        return await result
    except SystemExit as error:  # a task would hand it to the event loop
        raise caught(error) from None
