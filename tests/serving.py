"""`server_thread`: the local server as `python -m whet.testing.server` starts it, without the half second of a new process.
`reserved_port`: where no server is yet, or none any more."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from whet.testing.server import _parser, _serving


@contextmanager
def server_thread(*arguments: str) -> Iterator[str]:
    """Base URL of a server in a thread of this process, started with command-line arguments.

    A server that hangs, or that is itself what a test is about, belongs in a process: `whet.testing.server_process`.
    """
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        end = asyncio.Event()
        async with _serving(_parser().parse_args(arguments)) as server:
            started.set_result((server.base_url, asyncio.get_running_loop(), end))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    url, loop, end = started.result()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of this test's own: it refuses connections unless a server listens that was started on it, and no other process gets
    it meanwhile."""
    with socket.socket() as holding:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]
