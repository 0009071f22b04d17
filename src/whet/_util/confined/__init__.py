"""Programs in a process of their own that may compute, read Python's own files, and nothing else.

What holds is set by the child itself, in `child`, before the program's first line. `is_enforced` says whether this machine can.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from whet._util.confined.child import OUT_OF_MEMORY, landlock_version
from whet._util.descendants import Descendants, end_group

__all__ = [
    "Limits",
    "OutOfBounds",
    "as_many_as_cores",
    "is_enforced",
    "is_late",
    "read_output",
    "run_confined",
    "start_confined",
    "was_late",
]

_CHILD = Path(__file__).with_name("child.py")
_CORES = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PATH": os.defpath,
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
_WAITS = 3.0
_LONGEST_WAIT = 20.0
"""By how many times the clock's limit may be passed at most while processes wait for a processor."""
_CHECKS_EVERY = 0.2
_ENDS_WITHIN = 0.5
_LATE = tuple(-getattr(signal, name) for name in ("SIGXCPU", "SIGKILL") if hasattr(signal, name))


class OutOfBounds(Exception):
    """A confined program ended without a result; the text is a sentence that says why."""


@dataclass(frozen=True)
class Limits:
    """`seconds` of computing (three times as many by the clock, the wait for a processor aside), `memory` in MiB of address
    space, `output` in bytes."""

    seconds: float = 10.0
    memory: int = 1024
    output: int = 1 << 20

    @property
    def wall(self) -> float:
        """Seconds by the clock after which the process is killed."""
        return _WAITS * self.seconds


def is_enforced() -> bool:
    """Whether files, network and processes can be denied here: Linux on x86-64 with Landlock and seccomp."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and landlock_version() > 0


def as_many_as_cores() -> contextlib.AbstractContextManager[object]:
    """Held while confined processes run: no more of them at once than cores, so that the clock's limit is fair."""
    return _CORES


@contextlib.contextmanager
def start_confined(
    program: Path,
    limits: Limits,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    *,
    readable: Sequence[Path] = (),
    passed: Sequence[int] = (),
    confined: bool = True,
    workspace: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a program that may read `readable` and Python's libraries; its group is killed at the end.

    `passed` are file descriptors that it keeps. Without `confined` files, network and processes are open to it, and only its
    limits hold. In a `workspace` it may start the programs in `readable`, and all of them may write in its working directory,
    which is deleted at the end; network, other files and other processes are denied to them.
    """
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    setting = {
        "seconds": limits.seconds,
        "memory": limits.memory << 20,
        "readable": [*sorted(libraries), "/lib", "/lib64", "/usr/lib", *map(str, readable)],
        "confined": confined,
        "workspace": workspace,
    }
    # A confined process starts no other one but in a workspace, and dies with this one.
    descendants = None if confined and not workspace else Descendants()
    with tempfile.TemporaryDirectory(prefix="whet-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", str(_CHILD), str(program), json.dumps(setting)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            pass_fds=passed,
            cwd=folder,
            env={**_ENVIRONMENT, **variables, **({} if descendants is None else descendants.variables)},
            start_new_session=True,
        )
        try:
            if descendants is not None:
                descendants.join(process.pid)
            yield process
        finally:
            end_group(process.pid)
            if descendants is not None:
                descendants.end()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def read_output(
    process: subprocess.Popen[bytes], payload: bytes, limits: Limits, beside: Sequence[int] = ()
) -> tuple[bytes, str]:
    """The output of the process, cut at the limit, and a sentence that says why the process was ended early, or ''.
    `beside`: processes that it waits for.

    On a machine that has more to do than it can, a process is not ended for the time in which it, or one that it waits for, stood
    in the queue for a processor.
    """
    assert process.stdin is not None and process.stdout is not None
    late, done, pids = threading.Event(), threading.Event(), (process.pid, *beside)

    def end_when_late() -> None:
        began, left = time.monotonic(), limits.wall
        while not done.wait(left):
            passed = time.monotonic() - began
            left = limits.wall - passed + sum(map(seconds_in_queue, pids))
            if left <= 0 or passed >= _LONGEST_WAIT * limits.wall:
                late.set()
                end_group(process.pid)
                return
            left = max(left, _CHECKS_EVERY)

    clock = threading.Thread(target=end_when_late, daemon=True)
    clock.start()
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(payload)
            process.stdin.close()
        output = process.stdout.read(limits.output + 1)
        if len(output) > limits.output:
            return output[: limits.output], f"it wrote more than {limits.output:,} bytes"
        code = process.wait()
    finally:
        done.set()
        clock.join()
    if late.is_set():
        return output, _never_ended(limits)
    return output, _why(code, limits)


def seconds_in_queue(pid: int) -> float:
    """Return the seconds that a process has been ready to run without a processor; 0 where this machine does not report them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def is_late(why: str, limits: Limits) -> bool:
    """Whether a sentence of `read_output` says that the process was ended for its time."""
    return why in (_never_ended(limits), _computed_on(limits))


def was_late(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process that ends by itself now, or has ended, was ended for its time."""
    try:
        return process.wait(_ENDS_WITHIN) in _LATE
    except subprocess.TimeoutExpired:
        return False


def _never_ended(limits: Limits) -> str:
    return f"it had not ended after {limits.wall:g} s"


def _computed_on(limits: Limits) -> str:
    return f"it computed for more than {limits.seconds:g} s"


def _why(code: int, limits: Limits) -> str:
    if code in _LATE:
        return _computed_on(limits)
    if code < 0:
        return f"it was ended by the signal {signal.Signals(-code).name}"
    if code == OUT_OF_MEMORY:
        return "it took more memory than it may"
    return f"it exited with the code {code}" if code else ""


def run_confined(
    program: Path, payload: object, limits: Limits, *, readable: Sequence[Path] = (), workspace: bool = False
) -> Any:
    """Run a program of whet in a confined process, and return its standard output as JSON. `payload` goes to its standard
    input; the program runs other programs in a `workspace`, if there is one.

    Raises OutOfBounds where it ends without that, or not in time.
    """
    with (
        as_many_as_cores(),
        start_confined(
            program,
            limits,
            subprocess.PIPE,
            subprocess.PIPE,
            readable=readable,
            confined=is_enforced(),
            workspace=workspace,
            variables={"TMPDIR": "."} if workspace else {},
        ) as process,
    ):
        output, why = read_output(process, json.dumps(payload).encode(), limits)
    if why:
        raise OutOfBounds(why)
    try:
        return json.loads(output)
    except ValueError:
        raise OutOfBounds("it wrote no result") from None
