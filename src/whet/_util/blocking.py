"""Coroutine functions as ordinary functions, also where an event loop is running already (a notebook)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import functools
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from whet._util.user_code import MAIN, MainThread, raise_interrupt

P = ParamSpec("P")
R = TypeVar("R")

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop in which the calls of a process are made one after another, by the process's number: a fork has its own."""
_FREE = threading.Lock()
"""Held while that loop runs."""


def blocking(coroutine: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """The twin of `aNAME` that waits: `NAME`, with the same signature and docstring.

    In the main thread, and where a loop is running in this one, the work goes on in a thread of its own. All calls made one
    after another have one loop, because what an async function of the user keeps (a client, a lock) belongs to a loop. The main
    thread runs the user's reward functions meanwhile, which end there at their time limit. Ctrl-C, and whatever a handler
    of a signal raises, cancels the work, waits until what is in flight is recorded, and is raised here.
    """

    @functools.wraps(coroutine)
    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        if _is_loop_running() or MainThread.is_free():
            return _in_thread(lambda: coroutine(*args, **kwargs))
        return run_in_kept_loop(coroutine(*args, **kwargs))

    wait.__name__ = wait.__qualname__ = coroutine.__name__.removeprefix("a")
    return wait


def run_in_kept_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """As `asyncio.run`, but in the loop of the calls before. A call beside or within another has a loop of its own."""
    if not _FREE.acquire(blocking=False):
        return asyncio.run(coroutine)
    try:
        loop = _LOOPS.get(os.getpid())
        if loop is None or loop.is_closed():
            loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
        with ThreadPoolExecutor(thread_name_prefix="whet") as threads:
            loop.set_default_executor(threads)
            try:
                return loop.run_until_complete(coroutine)
            finally:
                ending = loop.create_task(_cancel_others())
                while not ending.done():
                    # each task that waits for an interrupted one raises the interrupt again
                    with contextlib.suppress(KeyboardInterrupt, SystemExit):
                        loop.run_until_complete(ending)
    finally:
        _FREE.release()


async def _cancel_others() -> None:
    """End what a call has left behind in the loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@atexit.register
def _close_loop() -> None:
    loop = _LOOPS.get(os.getpid())
    if loop is not None and not loop.is_running():
        loop.close()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LoopThread(threading.Thread):
    """A coroutine in a thread of its own. `future` holds its result; `cancel` ends it from another thread."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]], name: str = "whet") -> None:
        super().__init__(name=name, daemon=True)
        self.future: Future[Any] = Future()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._make, self._task = make, None
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._cancelled = False

    def run(self) -> None:
        """Run the coroutine to its end."""
        try:
            result = self._context.run(run_in_kept_loop, self._main())
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    async def _main(self) -> object:
        task = asyncio.ensure_future(self._make())
        with self._lock:
            self.loop, self._task = asyncio.get_running_loop(), task  # type: ignore[assignment]
            if self._cancelled:
                task.cancel()
        return await task

    def cancel(self) -> None:
        """Cancel the coroutine; returns at once."""
        with self._lock:
            self._cancelled = True
            if self.loop is not None and self._task is not None and not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._task.cancel)


def _in_thread(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    main = MainThread() if MainThread.is_free() else None
    token = MAIN.set(main)
    thread = LoopThread(make)
    MAIN.reset(token)
    thread.start()
    try:
        with _plain_interrupts():
            if main is not None:
                main.serve(thread.future)
            result: R = thread.future.result()
    except BaseException as error:
        if thread.future.done() and not isinstance(error, KeyboardInterrupt):
            raise
        thread.cancel()  # what a handler of a signal raises (SystemExit) ends the work as Ctrl-C does
        thread.join()
        raise error.with_traceback(None) from None
    return result


@contextlib.contextmanager
def _plain_interrupts() -> Iterator[None]:
    """While the main thread waits, Ctrl-C is a KeyboardInterrupt at once, whatever the running loop makes of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
