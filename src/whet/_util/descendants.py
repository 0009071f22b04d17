"""What a command has started ends with it, and with this process, however that ends: Ctrl-C, a crash, a kill.

Another process does the latter, since nothing in a killed one can. It is this file run as a program: a line `MARK GROUP` on its
standard input names a command and its group of processes, `MARK` alone says that it is over, and where the input ends it kills
what is left. It uses nothing but the standard library.

A process that has left the group of its command is known by a mark in its environment, which Linux shows in /proc.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

__all__ = ["MARKS", "Descendants", "end_group"]

MARKS = "WHET_MARKS"
"""The variable with the marks of the commands, of outer runs too, that a process descends from."""
_NONE = 0
"""The group of a command that has not begun."""


class Descendants:
    """What one command starts, which from now on ends with this process. `variables` are those that the command must get."""

    def __init__(self) -> None:
        self._mark, self._group = os.urandom(16).hex(), _NONE
        self.variables = {MARKS: f"{os.environ.get(MARKS, '')} {self._mark}".strip()}
        _ENDING.say(f"{self._mark} {_NONE}")

    def join(self, group: int) -> None:
        """The command has begun and leads the `group`."""
        self._group = group
        _ENDING.say(f"{self._mark} {group}")

    def end(self) -> None:
        """Kill what there is of it."""
        end_processes(self._group, self._mark)
        _ENDING.say(self._mark)


def end_group(group: int) -> None:
    """Kill the processes of a group, unless all have ended. On Windows, which has no groups, those that the first one began."""
    if sys.platform == "win32":
        words = ["taskkill", "/F", "/T", "/PID", str(group)]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter on macOS
        os.killpg(group, signal.SIGKILL)


def end_processes(group: int, mark: str) -> None:
    """Kill a group, and as far as the system shows their environment the processes with a mark, until there is no other one."""
    if group != _NONE:
        end_group(group)
    killed = set[int]()
    while marked := set(_find_marked(mark.encode())) - killed:
        for process in marked:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        killed |= marked


def _find_marked(mark: bytes) -> Iterator[int]:
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return
    for process in processes:
        with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb") as environment:
            if mark in environment.read():
                yield process


class _Ending:
    """The process that ends what this one leaves behind, begun with the first command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe, self._lock = -1, threading.Lock()

    def say(self, line: str) -> None:
        """Send a line. Where no process can be started, or it is gone, nobody hears it."""
        with self._lock, contextlib.suppress(OSError):
            if self._process is None:
                self._start()
            os.write(self._pipe, f"{line}\n".encode())

    def _start(self) -> None:
        reading, pipe = os.pipe()
        try:
            words = [sys.executable, "-I", "-S", __file__]
            self._process = subprocess.Popen(
                words, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True
            )
            self._pipe = pipe
        except OSError:
            os.close(pipe)
            raise
        finally:
            os.close(reading)
        atexit.register(self.close)

    def close(self) -> None:
        """End what is left, and wait for it."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                os.close(self._pipe)
                process.wait()

    def forget(self) -> None:
        """In a forked process: without its end of the pipe, which would keep the input of the other process open."""
        atexit.unregister(self.close)
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this one, and nobody waits for it here
            os.close(self._pipe)
        self._process, self._pipe, self._lock = None, -1, threading.Lock()


_ENDING = _Ending()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ENDING.forget)


def main() -> None:
    """Wait for the end of the input, then kill what is not over."""
    left = dict[str, str]()
    for line in sys.stdin:
        mark, _, group = line.strip().partition(" ")
        left[mark] = group
        if not group:
            del left[mark]
    for mark, group in left.items():
        end_processes(int(group), mark)


if __name__ == "__main__":
    main()
