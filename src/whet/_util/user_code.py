"""Functions of a user in a thread with a time limit: the event loop goes on, and Ctrl-C works, while one runs or hangs.

What loops in Python ends at its limit in any thread. Where the main thread waits for an event loop in another one, functions that
run one at a time run in it (`MainThread`): a timer of the system ends there what waits or matches a pattern too.

Whatever one raises comes back as an `Exception`, and the process keeps its working directory and its standard output.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import inspect
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from whet._util.watchdog import Watched
from whet.errors import WhetError

THREAD = "whet-reward"
SAID_AFTER, ENDED_AFTER = 10.0, 600.0
"""Seconds after which a file that is still running is named, and after which it is given up."""
_log = logging.getLogger(__name__)


class OutOfTime(WhetError):
    """A function has not returned in time."""


class _Ended(SystemExit):
    """An exception that ends a late function. It is ignored if it ends the thread."""


class StrayException(Exception):
    """An exception of a user's function that would end a thread, a task or the event loop on its way: what it was is
    `original`."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(f"{type(original).__name__}")
        self.original = original


_STRAY = (StopIteration, StopAsyncIteration, asyncio.CancelledError, concurrent.futures.CancelledError)


def passable(error: BaseException) -> Exception:
    """The exception of a user's function, in a form that may pass through coroutines and futures."""
    if isinstance(error, Exception) and not isinstance(error, _STRAY):
        return error
    return StrayException(error).with_traceback(error.__traceback__)


class _ThreadStream:
    """Standard output for everybody but the user's functions, which get standard error."""

    def __init__(self, out: object) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        mine = MainThread.busy and threading.current_thread() is threading.main_thread()
        users = mine or threading.current_thread().name == THREAD
        return getattr(sys.stderr if users else self.out, name)


class _ThreadOutput:
    """Puts a `_ThreadStream` in the place of `sys.stdout` while at least one function runs, in any thread, and the working
    directory back afterwards.

    What once was `sys.stdout` is never freed: `print` of another thread may be in it (CPython up to 3.13 borrows it).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = dict[asyncio.AbstractEventLoop, int]()
        self._proxies: dict[int, _ThreadStream] = {}
        self._folder = ""

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """For a coroutine, while the function runs for which it waits."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._has_users():
                self._folder = working_folder()
            self._users[loop] = self._users.get(loop, 0) + 1
            if not isinstance(sys.stdout, _ThreadStream):
                sys.stdout = self._proxies.setdefault(id(sys.stdout), _ThreadStream(sys.stdout))
        try:
            yield
        finally:
            with self._lock:
                self._users[loop] = self._users.get(loop, 1) - 1
                if not self._has_users() and isinstance(sys.stdout, _ThreadStream):
                    sys.stdout = sys.stdout.out
                # A coroutine that its loop left behind is closed at any time: by now the directory is somebody else's.
                if not self._has_users() and _running_loop() is loop:
                    back_to(self._folder)

    def _has_users(self) -> bool:
        """Whether a function runs for a loop that is not over; what a loop left behind counts no more."""
        self._users = {loop: users for loop, users in self._users.items() if users and not loop.is_closed()}
        return bool(self._users)


_SURROUNDINGS = _ThreadOutput()


def working_folder() -> str:
    """The working directory; empty where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, where one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
    """Watch the work of the `with` block, under its name, until it ends."""
    with watch(name, seconds) as watched:
        _UNDER_WAY[watched] = time.monotonic(), name
        try:
            yield watched
        finally:
            _UNDER_WAY.pop(watched, None)


@contextlib.contextmanager
def watch(name: str, seconds: float) -> Iterator[Watched]:
    """Watch the code of the `with` block: if it holds the interpreter for longer than `seconds`, a command ends; elsewhere
    standard error names the code."""
    watched = Watched(name, seconds)
    try:
        yield watched
    finally:
        watched.end()


async def call_within(function: Callable[[], object], seconds: float, name: str) -> Any:
    """The result of the function, awaited where it can be; what it prints goes to stderr. Raises OutOfTime, and what the
    function raises as `caught` makes it. `name` says whose function runs on what.

    A function that is late ends where Python or a timer of the system can end it. Else its thread is left behind, and dies with
    the process.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.setdefault(loop, _Turns())
    turns.users += 1
    try:
        async with turns.lock:
            with _SURROUNDINGS.use(), _watch(name, seconds) as watched:
                main = MAIN.get()
                returned = (
                    _start_thread(function, watched)
                    if main is None
                    else main.start(function, watched, seconds)
                )
                try:
                    result = await _wait(returned, seconds)
                except BaseException as error:
                    returned.add_done_callback(_ignore)
                    if main is not None and isinstance(error, asyncio.CancelledError):
                        main.end(returned)
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
                _end(returned)
                raise OutOfTime
        return returned.result()


async def call_beside(function: Callable[[], Any], seconds: float | None) -> object:
    """Call a function as `call_within` does, but beside other functions and leave its output where the function prints it.
    `seconds=None` sets no limit. The caller watches the time."""
    return await await_result(await _wait(_start_thread(function), seconds), seconds)


async def await_result(result: object, seconds: float | None) -> object:
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
    with _SURROUNDINGS.use(), _watch(name, seconds) as watched:
        returned = _start_thread(function, watched)
        future = asyncio.wrap_future(returned)
        try:
            while not future.done():
                if (left := seconds - clock()) <= 0:
                    raise OutOfTime
                watched.allow(left)
                await asyncio.wait({future}, timeout=left)
            return future.result()
        except OutOfTime:
            _end(returned)
            raise
        except asyncio.CancelledError:  # it may end by itself, and clean up
            asyncio.get_running_loop().call_later(_AGAIN, _end, returned)
            raise
        finally:
            future.cancel()


async def _wait(returned: Future[Any], seconds: float | None) -> Any:
    """The result of a function in another thread. A function that is late, or that nobody waits for any more, is ended as
    far as possible."""
    try:
        return await _within(asyncio.wrap_future(returned), seconds)
    except (OutOfTime, asyncio.CancelledError):
        _end(returned)
        raise


async def _within(future: asyncio.Future[Any], seconds: float | None) -> object:
    try:
        await asyncio.wait({future}, timeout=seconds)
        if not future.done():
            raise OutOfTime
        if future.cancelled():  # by its own code: a cancellation of this task is raised where it waits
            raise StrayException(asyncio.CancelledError())
        if (error := future.exception()) is not None:
            raise error if isinstance(error, KeyboardInterrupt) else passable(error)
        return future.result()
    finally:
        future.cancel()


_Task = tuple[Callable[[], Any], "Future[Any]", "Watched | None"]


class _Worker:
    """A thread that runs one function after the other; it is idle again when a function returns, so one that hangs stays out."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock, self._ended = threading.Lock(), False
        self._current: Future[Any] | None = None
        self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
        self._thread.start()

    def end(self, future: Future[Any]) -> None:
        """Raise an exception in the function that is to fill `future`, where it runs Python code, and use the thread no more."""
        with self._lock:
            if self._current is future and self._thread.ident is not None:
                self._ended = True
                thread = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_Ended))

    def _work(self) -> None:
        while not self._ended:
            self._run(*self.tasks.get())

    def _run(self, function: Callable[[], Any], future: Future[Any], watched: Watched | None) -> None:
        with self._lock:
            self._current = future
        _RUNNING[future] = self
        try:
            result = _call(function, watched)
        except BaseException as error:
            self._rest(future)
            future.set_exception(passable(error))
        else:
            self._rest(future)
            future.set_result(result)

    def _rest(self, future: Future[Any]) -> None:
        _RUNNING.pop(future, None)
        with self._lock:
            self._current = None
            if not self._ended:
                _IDLE.append(self)


_IDLE: list[_Worker] = []
_RUNNING: dict[Future[Any], _Worker] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)


def _call(function: Callable[[], Any], watched: Watched | None) -> Any:
    try:
        return function()
    finally:
        if watched is not None:
            watched.end()


def _end(future: Future[Any]) -> None:
    """End the function that is to fill `future`, where it runs Python code in a thread of ours."""
    worker = _RUNNING.get(future)
    if worker is not None:
        worker.end(future)


def _start_thread(function: Callable[[], Any], watched: Watched | None = None) -> Future[Any]:
    """The future of a function in another thread, where it sees the context variables of the caller; `watched` ends there
    when it returns."""
    context = copy_context()
    context.run(
        MAIN.set, None
    )  # the main thread serves the loop of the caller, and none that the function begins
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    _hand_to_worker((partial(context.run, function), future, watched))
    return future


def _hand_to_worker(task: _Task) -> None:
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    worker.tasks.put(task)


class MainThread:
    """The main thread, while it waits for the event loop of another one: it runs functions of a user one after the other, and
    ends what is late by a timer of the system. A signal reaches code there that no other thread can end: a match of `re`, a wait
    for a lock, a socket or a process. Code in C that neither returns nor asks for signals holds it still.
    """

    busy = False

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[_Task, float] | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._current: Future[Any] | None = None
        self._given_up = set[Future[Any]]()

    @classmethod
    def is_free(cls) -> bool:
        """Whether this is the main thread, functions can be ended in it, and none runs in it."""
        main = threading.current_thread() is threading.main_thread()
        return main and hasattr(signal, "setitimer") and not cls.busy

    def start(self, function: Callable[[], Any], watched: Watched, seconds: float) -> Future[Any]:
        """Let the thread that serves call a function, and return the future of its result."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        task = (function, future, watched)
        if self._closed:
            _hand_to_worker(task)
        else:
            self._tasks.put((task, seconds))
        return future

    def end(self, future: Future[Any]) -> None:
        """End the function that is to fill `future` before its time; one that has not begun never does."""
        with self._lock:
            if self._current is future:
                signal.setitimer(signal.ITIMER_REAL, _SOON, _AGAIN)
            elif not future.done():
                self._given_up.add(future)

    def serve(self, done: Future[Any]) -> None:
        """Run functions until `done` is. Raises KeyboardInterrupt for Ctrl-C; what is waiting then goes to other threads."""
        done.add_done_callback(lambda _: self._tasks.put(None))
        try:
            while (item := self._tasks.get()) is not None:
                self._run(*item)
        finally:
            self._closed = True
            with contextlib.suppress(queue.Empty):
                while True:
                    if (left := self._tasks.get_nowait()) is not None:
                        _hand_to_worker(left[0])

    def _run(self, task: _Task, seconds: float) -> None:
        function, future, watched = task
        loop = (
            asyncio._get_running_loop()
        )  # a notebook's, which stands still meanwhile; the function may run one of its own
        asyncio._set_running_loop(None)
        MainThread.busy = True
        try:
            with self._alarm(seconds, future):
                result = _call(function, watched)
        except _Ended:
            future.set_exception(OutOfTime())
        except BaseException as error:
            future.set_exception(passable(error))
            if isinstance(error, _Interrupted):
                raise
        else:
            future.set_result(result)
        finally:
            MainThread.busy = False
            asyncio._set_running_loop(loop)

    @contextlib.contextmanager
    def _alarm(self, seconds: float, future: Future[Any]) -> Iterator[None]:
        """Raise _Ended in this, the main thread, after so many seconds, and when the function that is to fill `future` is to end.
        A timer and a handler of the program go on afterwards."""
        armed, left, interval = True, 0.0, 0.0

        def ring(number: int, frame: object) -> None:
            if armed:
                raise _Ended

        began, handler = time.monotonic(), signal.signal(signal.SIGALRM, ring)
        try:
            with self._lock:
                left, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, _SOON), _AGAIN)
                self._current = future
            if future in self._given_up:
                raise _Ended
            yield
        finally:
            armed = False
            with self._lock:
                self._current = None
                signal.setitimer(signal.ITIMER_REAL, 0)
            self._given_up.discard(future)
            signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
            if left:
                signal.setitimer(signal.ITIMER_REAL, max(_SOON, left - (time.monotonic() - began)), interval)


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C, and no exception that a function raises of its own."""


def raise_interrupt(number: int, frame: object) -> NoReturn:
    """A handler of SIGINT that raises KeyboardInterrupt."""
    raise _Interrupted


MAIN: ContextVar[MainThread | None] = ContextVar("main", default=None)
"""The main thread that serves the event loop of this context."""
_SOON, _AGAIN = 0.001, 1.0
"""Seconds after which a function is ended at once, and after which one that has caught what ends it is ended again."""


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
        raise passable(error) from None
