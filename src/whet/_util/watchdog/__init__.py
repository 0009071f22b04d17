"""Ends this process where code of a user holds the interpreter, so that no timer and no signal handler of Python runs.

A match of `re` that backtracks keeps the interpreter's lock until it is through, in whatever thread it runs. Only another process
can end it. `process.py` is that process: it starts with the first code of a user that has a time limit, hears through a pipe what
is under way, that Python runs here, Ctrl-C and SIGTERM, and kills this process where Python does not run and code is late. Where
this process ends under code of a user (`os._exit`, a crash in C), it says so.

That is for commands (`watching`). A program of somebody, a notebook, and every process on Windows is never killed: there the
other process says what holds the interpreter, since nothing in this one can.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from whet._util.watchdog.process import BEAT, SEPARATOR

__all__ = ["Watched", "watching"]

_LONGEST = 2_000
"""Bytes of a line at most: so short a write to a pipe is never mixed with another one."""
_LONGEST_PIECE = 600
_MOST_UNSENT = 10_000
"""Lines that wait at most while the pipe is full."""
NAMED_AFTER, GRACE = 10.0, 1.0
"""Seconds after which code that holds the interpreter is named at the latest, and beyond its limit, in which a timer of this
process may still end it."""
HOLDS = "and holds Python's interpreter, as a match of `re` that backtracks does."


class Watchdog:
    """The pipe to the process that watches this one. `interrupted`: what that says where it ends this process after Ctrl-C or
    SIGTERM; where it is empty, it ends nothing."""

    def __init__(self, interrupted: str = "") -> None:
        self.ends = bool(interrupted)
        self._interrupted = interrupted
        self._unsent = deque[bytes](maxlen=_MOST_UNSENT)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe, self._signals_went_to = -1, -1
        self._lock, self._closed = threading.Lock(), threading.Event()

    def start(self) -> None:
        """Begin to watch, unless it has begun. Where no process can be started, nothing is watched."""
        if self._process is not None:
            return
        reading, pipe = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # Windows knows no such pipes before Python 3.12
            os.set_blocking(pipe, False)
        file = Path(__file__).with_name("process.py")
        words = [sys.executable, "-I", "-S", str(file), str(os.getpid())]
        words += [self._interrupted] if self.ends else []
        try:
            self._process = subprocess.Popen(words, stdin=reading, stdout=subprocess.DEVNULL)
        except OSError:
            os.close(pipe)
            return
        finally:
            os.close(reading)
        self._pipe = pipe
        if self.ends and threading.current_thread() is threading.main_thread():
            self._signals_went_to = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        threading.Thread(target=self._beat, name="whet-watchdog", daemon=True).start()

    def say(self, *messages: str) -> None:
        """Send one line, with a separator between the messages."""
        pieces = ("".join(c if c.isprintable() else " " for c in message) for message in messages)
        line = SEPARATOR.join(piece[:_LONGEST_PIECE] for piece in pieces).encode("utf-8", "replace")[
            :_LONGEST
        ]
        with self._lock, contextlib.suppress(OSError):
            if self._pipe >= 0:
                self._unsent.append(line + b"\n")
                while self._unsent:
                    os.write(self._pipe, self._unsent[0])
                    self._unsent.popleft()

    def close(self) -> None:
        """Watch no more."""
        if self._process is None:
            return
        self._closed.set()
        if self.ends and threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._signals_went_to)
        self._process.kill()
        self._process.wait()
        with self._lock:
            os.close(self._pipe)
            self._pipe = -1

    def forget(self) -> None:
        """In a forked process: the pipe belongs to the one that it was forked from."""
        self._process, self._pipe, self._lock = None, -1, threading.Lock()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            self.say(".")


_ACTIVE: list[Watchdog] = []
_NAMING: list[Watchdog] = []
"""The watchdog that only names late code: it begins where no other one is active, and ends with the process."""
_BEGINNING = threading.Lock()
_NUMBERS = itertools.count()


@contextlib.contextmanager
def watching(interrupted: str) -> Iterator[None]:
    """Meanwhile code that is under way longer than it may, or than two seconds after Ctrl-C or SIGTERM, ends the process
    where nothing else can. Nothing where there are no POSIX signals."""
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


def _naming() -> Watchdog:
    """The watchdog that only names late code, begun once in a process."""
    with _BEGINNING:
        if not _NAMING:
            _NAMING.append(Watchdog())
            atexit.register(_NAMING[0].close)
        _NAMING[0].start()
        return _NAMING[0]


def _forget() -> None:
    global _BEGINNING
    _BEGINNING = threading.Lock()
    for watchdogs in (_ACTIVE, _NAMING):
        for watchdog in watchdogs:
            atexit.unregister(watchdog.close)
            watchdog.forget()
        watchdogs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Watched:
    """The code `name`, in words that begin a sentence, which is under way from now on until `end` and may take `seconds`."""

    def __init__(self, name: str, seconds: float) -> None:
        watchdog = _ACTIVE[-1] if _ACTIVE else _naming()
        self._watchdog: Watchdog | None = watchdog
        self._number = next(_NUMBERS)
        if watchdog.ends:
            watchdog.start()
            self._sentences = (
                f"whet: {name} has not returned after {seconds:g} s {HOLDS} Nothing but a kill can end that, and whet has ended "
                "so. What was recorded is kept. Mend it and run the same command again.",
                f"whet: the process ended while {name} was under way, and without an error of Python: it called os._exit, a "
                "library crashed, or something killed the process, such as a lack of memory. What was recorded is kept. Run the "
                "same command again; with --workers 1 such a function ends a process of its own, and the run goes on.",
            )
        else:
            after = min(seconds, NAMED_AFTER)
            self._sentences = (
                f"whet: {name} has not returned after {after:g} s {HOLDS} No time limit and no Ctrl-C reaches it. Where it "
                f"does not return, kill this process ({os.getpid()}), mend the function and make the same call again: what was "
                "recorded is kept.",
                "",
            )
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """From now on it may take so long."""
        if self._watchdog is not None:
            after = seconds if self._watchdog.ends else min(seconds, NAMED_AFTER) + GRACE
            self._watchdog.say(f"{self._number} {after:.3f} {self._sentences[0]}", self._sentences[1])

    def end(self) -> None:
        """End the watch: the code has returned, or Python's own means have ended the wait for it."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.say(f"{self._number}")
