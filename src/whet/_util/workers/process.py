"""A worker process: it reads jobs from its standard input and writes results to its standard output.

Run by path as `python process.py MEGABYTES`, so that it begins without an import of this tool. A frame is a length in four bytes
and as many bytes of JSON. The first frame holds the import path and the working directory. A job names a function that can be
imported, and its arguments. It is answered by an empty frame, once what it needs is loaded, and by a frame with its outcome. What
the job's code prints goes to standard error. The process ends when its input does, whatever its code is doing.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import struct
import sys
import threading
from typing import BinaryIO

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> None:
    """Serve jobs until the input ends."""
    jobs_in, results_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    _end_with_parent()
    _limit_memory(int(sys.argv[1]))
    path, folder = json.loads(_read_frame(jobs_in) or b"null")
    sys.path[:] = path
    if folder:
        os.chdir(folder)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs_in, jobs), daemon=True).start()
    while True:
        outcome = _do(jobs.get(), results_out)
        write_frame(results_out, json.dumps(outcome).encode())


def _end_with_parent() -> None:
    """Ctrl-C is the parent's to handle. On Linux the kernel ends this process with its parent, also inside a call that keeps the
    interpreter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _limit_memory(megabytes: int) -> None:
    if megabytes:
        import resource

        limit = megabytes * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the input."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack(">I", head)
    body = stream.read(length)
    return body if len(body) == length else None


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Write a frame."""
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def _read_jobs(stream: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    while (frame := _read_frame(stream)) is not None:
        jobs.put(frame)
    os._exit(0)


def _do(job: bytes, results_out: BinaryIO) -> dict[str, object]:
    """The outcome of a job: its `value`, or what is `refused` about it."""
    try:
        work = json.loads(job)
        module, _, name = work["loader"].partition(":")
        compute = getattr(importlib.import_module(module), name)(**work["arguments"])
    except BaseException as error:
        return {"refused": str(error) or type(error).__name__, "kind": type(error).__name__}
    write_frame(results_out, b"")
    value = compute()
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return {"refused": f"its result is no JSON: {error}", "kind": type(error).__name__}
    return {"value": value}


if __name__ == "__main__":
    main()
