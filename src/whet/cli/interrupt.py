"""A run in a process of its own: Ctrl-C stops it, the first one cleanly and in time, the second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from whet._util.watchdog import watching

T = TypeVar("T")

EXIT_INTERRUPTED = 130
INTERRUPTED = "Interrupted. Everything recorded is kept, and the same command resumes the run."
LAST_SECONDS = 1.8
"""A run that has not stopped by then, because code of somebody holds it, ends as by a kill, which journals survive."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Ctrl-C cancels it (KeyboardInterrupt) and ends the process where that takes too long."""
    tune()

    async def main() -> T:
        with watching(INTERRUPTED), _stopping():
            return await coroutine

    out, err = sys.stdout, sys.stderr
    try:
        return asyncio.run(main())
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
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    cancel = before
    interrupted = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            _end()
        interrupted = True
        last = threading.Timer(LAST_SECONDS, _end)
        last.daemon = True
        last.start()
        cancel(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if not interrupted:
            signal.signal(signal.SIGINT, before)


def _end() -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)
