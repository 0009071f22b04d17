"""Ends the processes that a command has started: when the command ends, and when this process ends, even by a kill.

A killed process cannot clean up. So a second process, the reaper, does it: this file, run as a program. The line `MARK GROUP` on
its standard input names a command and its group of processes, and the line `MARK` says that the command is over. When the input
ends, the reaper kills the processes of all commands that are not over. It uses nothing but the standard library.

Each command gets a mark in its environment. On Linux, /proc shows the mark of a process that has left the group of its command.
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
    """The processes that one command starts. From now on, they end with this process. The command must get `variables` in its
    environment."""

    def __init__(self) -> None:
        self._mark, self._group = os.urandom(16).hex(), _NONE
        self.variables = {MARKS: f"{os.environ.get(MARKS, '')} {self._mark}".strip()}
        _REAPER.send(f"{self._mark} {_NONE}")

    def join(self, group: int) -> None:
        """Note that the command has begun and leads the `group`."""
        self._group = group
        _REAPER.send(f"{self._mark} {group}")

    def end(self) -> None:
        """Kill the processes that still run."""
        end_processes(self._group, self._mark)
        _REAPER.send(self._mark)


def end_group(group: int) -> None:
    """Kill the processes of a group, unless all have ended. On Windows, which has no groups: a process and those that it
    began."""
    if sys.platform == "win32":
        words = ["taskkill", "/F", "/T", "/PID", str(group)]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter on macOS
        os.killpg(group, signal.SIGKILL)


def end_processes(group: int, mark: str) -> None:
    """Kill a group, and all processes with a mark whose environment the system shows, until no further process has it."""
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


class _Reaper:
    """The second process, which starts with the first command. See the module."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe, self._lock = -1, threading.Lock()

    def send(self, line: str) -> None:
        """Send a line. Without effect if no process can be started, or if it is gone."""
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
        """Let the second process end what still runs, and wait for it."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                os.close(self._pipe)
                process.wait()

    def forget(self) -> None:
        """In a forked process: close its end of the pipe, which would keep the input of the second process open."""
        atexit.unregister(self.close)
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this one, and nobody waits for it here
            os.close(self._pipe)
        self._process, self._pipe, self._lock = None, -1, threading.Lock()


_REAPER = _Reaper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_REAPER.forget)


def main() -> None:
    """Wait for the end of the input, then kill the processes of the commands that are not over."""
    running = dict[str, str]()
    for line in sys.stdin:
        mark, _, group = line.strip().partition(" ")
        running[mark] = group
        if not group:
            del running[mark]
    for mark, group in running.items():
        end_processes(int(group), mark)


if __name__ == "__main__":
    main()
