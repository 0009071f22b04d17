"""A worker process: it reads jobs from its standard input and writes results to its standard output.

Run by path as `python process.py MEGABYTES`, so that it begins without an import of this tool. A frame is a length in four bytes
and as many bytes of JSON. The first frame holds the import path and the working directory. A job names a function that can be
imported, and its arguments. It is answered by an empty frame, once what it needs is loaded, and by a frame with its outcome.

A job in a frame with the key `talk` asks while it goes on. It has a thread of its own, and its messages are frames with the same
number under `talk`: `loaded`; `ask` (a number) with a `question`; `reply` to what was sent `back` about a question; `value`
or `refused`. It gets frames with `to` (the number of a question) and `answer` or `back`; `over` ends its questions.

What the job's code prints goes to standard error. The process ends when its input does, whatever its code is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, BinaryIO

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_STACK = 1024 * 1024
"""Bytes of the stack of a thread where memory is limited: the limit counts all of it."""


def main() -> None:
    """Serve jobs until the input ends."""
    jobs_in, results_out = take_streams()
    end_with_parent()
    _limit_memory(int(sys.argv[1]))
    path, folder = json.loads(read_frame(jobs_in) or b"null")
    sys.path[:] = path
    if folder:
        os.chdir(folder)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs_in, jobs, results_out), daemon=True).start()
    while True:
        outcome = _do(jobs.get(), results_out)
        write_frame(results_out, json.dumps(outcome).encode())


def take_streams() -> tuple[BinaryIO, BinaryIO]:
    """This process's standard input and output, for frames; what its code prints goes to standard error from now on."""
    frames_in, frames_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    return frames_in, frames_out


def end_with_parent() -> None:
    """Ctrl-C and SIGTERM, which a process manager sends to the whole group, are the parent's to handle. On Linux the kernel ends
    this process with its parent, also inside a call that keeps the interpreter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave_to_parent)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _leave_to_parent(number: int, frame: object) -> None:
    """Do nothing. Ignored signals would stay ignored in the programs that code of the user starts."""


def _limit_memory(megabytes: int) -> None:
    if megabytes:
        import resource

        limit = megabytes * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        threading.stack_size(_STACK)


def read_frame(stream: BinaryIO) -> bytes | None:
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


def _read_jobs(stream: BinaryIO, jobs: queue.SimpleQueue[bytes], results_out: BinaryIO) -> None:
    talks, writing = dict[int, _Talk](), threading.Lock()
    while (frame := read_frame(stream)) is not None:
        if not frame.startswith(_TALK):
            jobs.put(frame)
            continue
        message = json.loads(frame)
        number = message["talk"]
        if "work" in message:
            talks[number] = talk = _Talk(number, results_out, writing)
            threading.Thread(target=_hold, args=(talk, message["work"], talks), daemon=True).start()
        elif number in talks:
            talks[number].hear(message)
    os._exit(0)


_TALK = b'{"talk":'


def _do(job: bytes, results_out: BinaryIO) -> dict[str, object]:
    """The outcome of a job: its `value`, or what is `refused` about it."""
    try:
        compute = load_work(json.loads(job))
    except BaseException as error:
        return _refuse(error)
    write_frame(results_out, b"")
    return _outcome_of(compute())


def load_work(work: dict[str, Any]) -> Callable[..., object]:
    """The function that computes the result of a piece of work, with everything loaded that it needs."""
    module, _, name = work["loader"].partition(":")
    compute: Callable[..., object] = getattr(importlib.import_module(module), name)(**work["arguments"])
    return compute


def _refuse(error: BaseException) -> dict[str, object]:
    return {"refused": str(error) or type(error).__name__, "kind": type(error).__name__}


def _outcome_of(value: object) -> dict[str, object]:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return {"refused": f"its result is no JSON: {error}", "kind": type(error).__name__}
    return {"value": value}


class _Talk:
    """The worker's end of a conversation."""

    def __init__(self, number: int, results_out: BinaryIO, writing: threading.Lock) -> None:
        self._number, self._out, self._writing = number, results_out, writing
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[dict[str, Any]]] = {}
        self._over = False

    def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        body = json.dumps({"talk": self._number, **message}).encode()
        with self._writing:
            write_frame(self._out, body)

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message; called in the thread that reads."""
        if "over" in message:
            self._over = True
            for future in list(self._open.values()):
                future.cancel()
        elif message["to"] in self._open:
            with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                self._open.pop(message["to"]).set_result(message)

    async def ask(self, question: Any, reply: Callable[[Any], Coroutine[Any, Any, Any]] | None = None) -> Any:
        """See `Asking`."""
        number = next(self._numbers)
        coming = self._expect(number)
        self.say({"ask": number, "question": question})
        while True:
            message = await asyncio.wrap_future(coming)
            if "answer" in message:
                return message["answer"]
            assert reply is not None
            result = await reply(message["back"])
            coming = self._expect(number)
            self.say({"reply": number, "value": result})

    def _expect(self, number: int) -> Future[dict[str, Any]]:
        if self._over:
            raise asyncio.CancelledError
        future: Future[dict[str, Any]] = Future()
        self._open[number] = future
        return future


def _hold(talk: _Talk, work: dict[str, Any], talks: dict[int, _Talk]) -> None:
    """Do work that asks, and say what came of it."""
    try:
        compute = load_work(work)
        talk.say({"loaded": True})
        outcome = _outcome_of(compute(talk))
    except BaseException as error:
        outcome = _refuse(error)
    talks.pop(talk._number, None)
    talk.say(outcome)


if __name__ == "__main__":
    main()
