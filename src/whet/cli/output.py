"""The standard output of the command, which holds what the command prints and nothing else."""

from __future__ import annotations

import io
import os
import sys
import threading


def own_output() -> None:
    """Keep the standard output for this process: what the programs that a task starts, and libraries in C, write there goes to
    standard error. A terminal stays as it is, and output that is closed goes nowhere.

    Code of the task that prints from Python is sent to standard error by `whet._util.user_code`. What other threads print goes
    there too: Ray has one that prints what its machines say.
    """
    shared = sys.stdout
    if shared is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
    elif isinstance(shared, io.TextIOWrapper) and _is_of_the_process(shared):
        own = open(os.dup(1), "wb")  # noqa: SIM115 (open as long as the process)
        os.dup2(2, 1)
        sys.stdout = _OwnOutput(
            own,
            encoding=shared.encoding,
            errors=shared.errors,
            line_buffering=shared.line_buffering,
            write_through=shared.write_through,
        )
        sys.__stdout__ = sys.stdout  # type: ignore[misc] # who asks how wide the screen is asks it


class _OwnOutput(io.TextIOWrapper):
    """The standard output of the main thread; the output of other threads goes to standard error."""

    def write(self, text: str, /) -> int:
        """See `io.TextIOBase`."""
        if threading.current_thread() is threading.main_thread():
            return super().write(text)
        return sys.stderr.write(text)


def _is_of_the_process(stream: io.TextIOWrapper) -> bool:
    """Whether a stream is the standard output of the process and no terminal, and there is a standard error beside it."""
    try:
        os.fstat(2)
        return stream.fileno() == 1 and not stream.isatty()
    except (OSError, ValueError):
        return False
