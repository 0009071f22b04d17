"""Ends this process where code of a user holds the interpreter, so that no timer and no signal handler of Python runs.

A match of `re` that backtracks keeps the interpreter's lock until it is through, in whatever thread it runs. Only another process
can end it. `process.py` is that process: it starts with the first code of a user that has a time limit, hears through a pipe what
is under way, that Python runs here, and Ctrl-C, and kills this process where Python does not run and code is late.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from whet._util.watchdog.process import BEAT

__all__ = ["Watched", "watching"]

_LONGEST = 2_000
"""Bytes of a message at most: so short a write to a pipe is never mixed with another one."""


class Watchdog:
    """The pipe to the process that watches this one. `interrupted`: what that says where it ends this process after Ctrl-C."""

    def __init__(self, interrupted: str) -> None:
        self._interrupted = interrupted
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe, self._signals_went_to = -1, -1
        self._lock, self._closed = threading.Lock(), threading.Event()

    def start(self) -> None:
        """Begin to watch, unless it has begun. Where no process can be started, nothing is watched."""
        if self._process is not None:
            return
        reading, pipe = os.pipe()
        os.set_blocking(pipe, False)
        file = Path(__file__).with_name("process.py")
        words = [sys.executable, "-I", "-S", str(file), str(os.getpid()), self._interrupted]
        try:
            self._process = subprocess.Popen(words, stdin=reading, stdout=subprocess.DEVNULL)
        except OSError:
            os.close(pipe)
            return
        finally:
            os.close(reading)
        self._pipe = pipe
        if threading.current_thread() is threading.main_thread():
            self._signals_went_to = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        threading.Thread(target=self._beat, name="whet-watchdog", daemon=True).start()

    def say(self, message: str) -> None:
        """Send one line."""
        line = "".join(c if c.isprintable() else " " for c in message).encode("utf-8", "replace")[:_LONGEST]
        with self._lock, contextlib.suppress(OSError):
            if self._pipe >= 0:
                os.write(self._pipe, line + b"\n")

    def close(self) -> None:
        """Watch no more."""
        if self._process is None:
            return
        self._closed.set()
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._signals_went_to)
        with self._lock:
            os.close(self._pipe)
            self._pipe = -1
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a forked process: the pipe belongs to the one that it was forked from."""
        self._process, self._pipe, self._lock = None, -1, threading.Lock()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            self.say(".")


_ACTIVE: list[Watchdog] = []
_NUMBERS = itertools.count()


@contextlib.contextmanager
def watching(interrupted: str) -> Iterator[None]:
    """Meanwhile code that is under way longer than it may, or than two seconds after Ctrl-C, ends the process where nothing else
    can. Nothing where there are no POSIX signals."""
    if os.name != "posix" or _ACTIVE:
        yield
        return
    watchdog = Watchdog(interrupted)
    _ACTIVE.append(watchdog)
    try:
        yield
    finally:
        _ACTIVE.clear()
        watchdog.close()


def _forget() -> None:
    for watchdog in _ACTIVE:
        watchdog.forget()
    _ACTIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Watched:
    """A piece of code that is under way from now on until `end`. `sentence` is what a person reads if it has to be ended."""

    def __init__(self, sentence: str, seconds: float) -> None:
        self._watchdog = _ACTIVE[-1] if _ACTIVE else None
        self._number, self._sentence = next(_NUMBERS), sentence
        if self._watchdog is not None:
            self._watchdog.start()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """From now on it may take so long."""
        if self._watchdog is not None:
            self._watchdog.say(f"{self._number} {seconds:.3f} {self._sentence}")

    def end(self) -> None:
        """It has returned, or Python's own means have ended the wait for it."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.say(f"{self._number}")
