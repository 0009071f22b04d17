"""Coroutine functions as ordinary functions, also where an event loop is running already (a notebook)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from whet._util.user_code import MAIN, MainThread, raise_interrupt

P = ParamSpec("P")
R = TypeVar("R")


def blocking(coroutine: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """The twin of `aNAME` that waits: `NAME`, with the same signature and docstring.

    In the main thread, and where a loop is running in this one, the work goes on in a thread with a loop of its own. The main
    thread runs the user's reward functions meanwhile, which end there at their time limit. Ctrl-C, and whatever a handler
    of a signal raises, cancels the work, waits until what is in flight is recorded, and is raised here.
    """

    @functools.wraps(coroutine)
    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        if _is_loop_running() or MainThread.is_free():
            return _in_thread(lambda: coroutine(*args, **kwargs))
        return asyncio.run(coroutine(*args, **kwargs))

    wait.__name__ = wait.__qualname__ = coroutine.__name__.removeprefix("a")
    return wait


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LoopThread(threading.Thread):
    """A coroutine in a thread with a loop of its own. `future` holds its result; `cancel` ends it from another thread."""

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
            result = self._context.run(asyncio.run, self._main())
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
