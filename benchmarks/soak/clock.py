"""The clock of a simulated installation: the real time and an offset that every process of it shares through a small file."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "WHET_SOAK_CLOCK"
"""The environment variable that names the file."""
HOUR = 3_600_000_000_000
_FORM = struct.Struct("<q")
_real_ns, _real = time.time_ns, time.time


class SharedClock:
    """Reads and sets the offset, in nanoseconds. The time never runs backwards as long as the offset only grows."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_FORM.pack(0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def offset(self) -> int:
        """By how much the clock is ahead of the real time."""
        return int(_FORM.unpack(self._memory[: _FORM.size])[0])

    def advance(self, nanoseconds: int) -> None:
        """Set every process's clock forward."""
        self._memory[: _FORM.size] = _FORM.pack(self.offset + nanoseconds)

    def install(self, lag: int = 0) -> None:
        """Make it the clock of this process, behind the others by `lag`: whet reads the time by these two functions."""
        time.time_ns = lambda: _real_ns() + self.offset - lag
        time.time = lambda: _real() + (self.offset - lag) / 1e9

    @staticmethod
    def remove() -> None:
        """Give this process its real clock back."""
        time.time_ns, time.time = _real_ns, _real


def install_from_environment() -> None:
    """Make the clock that the environment names the one of this process; `FILE` or, for one that is slow, `FILE:SECONDS`."""
    path, _, lag = os.environ[VARIABLE].partition(":")
    SharedClock(Path(path)).install(int(float(lag or 0) * 1e9))
