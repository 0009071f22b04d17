"""A run in a process of its own: Ctrl-C or SIGTERM stops it cleanly and in time, a second Ctrl-C at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from whet._util.watchdog import watching

T = TypeVar("T")

INTERRUPTED = "Interrupted. Everything recorded is kept. If this was a run, the same command resumes it."
LAST_SECONDS = 1.8
"""A run that has not stopped by then, because code of somebody holds it, ends as by a kill, which journals survive."""
_TERMINATED = threading.Event()
"""SIGTERM has come since the command began."""


def exit_code() -> int:
    """The exit code of a command that a signal has stopped, as shells have it: 143 after SIGTERM, else 130."""
    return 128 + (signal.SIGTERM if _TERMINATED.is_set() else signal.SIGINT)


@contextlib.contextmanager
def heed_termination() -> Iterator[None]:
    """Meanwhile SIGTERM does what Ctrl-C does at that moment. A second SIGTERM changes nothing: `timeout` sends it to a process
    and again to its group."""
    _TERMINATED.clear()
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if not _TERMINATED.is_set():
            _TERMINATED.set()
            interrupt = signal.getsignal(signal.SIGINT)
            (interrupt if callable(interrupt) else signal.default_int_handler)(number, frame)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Ctrl-C cancels it (KeyboardInterrupt) and ends the process where that takes too long."""
    tune()

    async def main() -> T:
        with watching(INTERRUPTED), _stopping():
            return await coroutine

    out, err = sys.stdout, sys.stderr
    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if _TERMINATED.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:  # code of a task folder may have put others in their place
        sys.stdout, sys.stderr = out, err


def tune() -> None:
    """Settings of the interpreter for many calls at once, measured by benchmarks/http_client.py.

    Look for cycles of objects less often, and not in what is loaded: a paid call makes many objects and no cycle, and the
    collector would take a quarter of its processor time. Let the journal's thread in after half a millisecond: it gives up
    the interpreter at each of SQLite's steps, and would wait ten times as long to have it back.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    sys.setswitchinterval(0.0005)


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """Meanwhile Ctrl-C, and SIGTERM, which does the same, end the process where the run does not stop in time."""
    if not _is_main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: handler for number, handler in handlers.items() if callable(handler)}
    cancel = heeded.get(signal.SIGINT, _cancel_this())
    interrupted = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            if number == signal.SIGINT:
                _end()
            return
        interrupted = True
        if number == signal.SIGTERM:
            _TERMINATED.set()
        last = threading.Timer(LAST_SECONDS, _end)
        last.daemon = True
        last.start()
        cancel(number, frame)

    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in heeded.items():
                signal.signal(number, handler)


def _cancel_this() -> Callable[[int, FrameType | None], None]:
    """A handler that cancels this task, for a command that does not hear Ctrl-C, as shells start those in the background."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def cancel(number: int, frame: FrameType | None) -> None:
        if task is not None:
            loop.call_soon_threadsafe(task.cancel)

    return cancel


def _end() -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{INTERRUPTED}\n".encode())
    os._exit(exit_code())


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
