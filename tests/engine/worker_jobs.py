"""Functions that worker processes run for tests; imports little, for each worker does so anew."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def named(function: str, values: list[Any]) -> Callable[[], object]:
    """A function of this file as a worker computes it."""
    return lambda: globals()[function](*values)


def own_id() -> int:
    return os.getpid()


def match_for_ever() -> object:
    """Holds the interpreter, so that no thread of the process can end it."""
    return re.match("(a+)+$", "a" * 64 + "b")


def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def kill_parent_once(marker: str) -> str:
    """On a cluster the parent is an actor."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return "done"


def hold(folder: str, count: int) -> str:
    """Note this call, and wait until so many are there, and a file `go`."""
    Path(folder, f"{time.time_ns()}.call").touch()
    while not (Path(folder, "go").exists() and len(list(Path(folder).glob("*.call"))) >= count):
        time.sleep(0.01)
    return "done"


def leave(code: int) -> None:
    os._exit(code)


def take_memory() -> str:
    try:
        bytearray(1 << 30)
    except MemoryError:
        return "refused"
    return "taken"


def make_no_json() -> object:
    return {1, 2}


def length(text: str) -> int:
    return len(text)
