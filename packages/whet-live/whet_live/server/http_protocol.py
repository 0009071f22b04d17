"""HTTP/1.1 with limits that uvicorn does not have: connections of one address, size, number and time of a request's
headers, and the time in which a client takes its answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from whet_live.server.limits import ServerLimits
from whet_live.server.metrics import Metrics


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. A client that is too slow or sends too much gets an error and is disconnected."""

    limits: ClassVar[ServerLimits]
    metrics: ClassVar[Metrics]
    proxies: ClassVar[Collection[str]]
    open: ClassVar[Counter[str]]
    waiting: ClassVar[dict[LimitedHttpProtocol, None]]  # connections without a complete request, oldest first

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._unfinished = True
        self._sends = False
        self._bytes = 0
        self._size = 0
        self.access_log = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request, unless there are too many connections of this address. A proxy has as many as
        it likes: its requests are counted by the address that it names."""
        super().connection_made(transport)
        self.metrics.connections.inc()
        self.open[self._address] += 1
        self._make_room()
        if self.open[self._address] > self.limits.address_connections and self._address not in self.proxies:
            self._cut(b"429 Too Many Requests")
        else:
            self.waiting[self] = None
            self._watch()

    def _make_room(self) -> None:
        """If there are too many connections, close the one that has waited longest without a request: clients that connect and
        say nothing take no place from those that ask. Where every one is busy, the new one is refused."""
        if self.open.total() <= self.limits.connections:
            return
        longest = next(iter(self.waiting), None)
        if longest is None:
            self._cut(b"503 Service Unavailable")
        else:
            self.waiting.pop(longest)
            longest._stop_watching()
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection: its deadlines, its place in the queue, its count."""
        self._stop_watching()
        self.waiting.pop(self, None)
        if self._rest is not None:
            self._rest.cancel()
        self.metrics.connections.dec()
        self.open[self._address] -= 1
        if not self.open[self._address]:
            del self.open[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; headers that are not complete yet have a size and a deadline."""
        before = self._unfinished
        self._bytes = self._bytes + len(data) if before else 0
        super().data_received(data)
        if self.transport is None or self.transport.is_closing():
            return
        if not self._unfinished and not self._idle:
            self._stop_watching()
        elif before and self._bytes > self.limits.headers_bytes:
            self._cut(b"431 Request Header Fields Too Large")
        elif self._deadline is None:
            self._watch()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._unfinished, self._sends, self._size = True, True, 0
        super().on_message_begin()

    def on_response_complete(self) -> None:
        """Send the rest of the answer, and read the rest of a body that was refused before its end: to close on a client that
        is still sending would take the answer from it."""
        idle = not self.pipeline
        super().on_response_complete()
        if idle and not self.transport.is_closing():
            self.waiting[self] = None
        self._look_after(0)
        if self._sends:
            self._rest = self.loop.call_later(self.limits.receive, self.transport.close)

    def on_message_complete(self) -> None:
        """The request is complete, perhaps after its answer."""
        self._sends = False
        self.waiting.pop(self, None)
        super().on_message_complete()
        if self._rest is not None:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. A ValueError ends the request with status 400."""
        self._measure(len(name) + len(value))
        if len(self.headers) >= self.limits.headers:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request may be answered."""
        self._unfinished, self._bytes = False, 0
        super().on_headers_complete()

    @property
    def _idle(self) -> bool:
        """Whether no request is under way: what came then is the beginning of none, such as empty lines."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self._sends and not self.pipeline

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _measure(self, size: int) -> None:
        self._size += size
        if self._size > self.limits.headers_bytes:
            raise ValueError("the headers are too large")

    def _look_after(self, before: int) -> None:
        """Cut off a client that takes nothing of its answer for as long as a piece of a stream may take."""
        left = self.transport.get_write_buffer_size()
        if left and left == before:
            self.transport.abort()
        elif left:
            self.loop.call_later(self.limits.send, self._look_after, left)

    def _watch(self) -> None:
        self._deadline = self.loop.call_later(self.limits.receive, self._cut, b"408 Request Timeout")

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self, status: bytes) -> None:
        self._stop_watching()
        if not self.transport.is_closing():
            ending = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(b"HTTP/1.1 " + status + ending)
            self.transport.close()


def limited_http_protocol(
    limits: ServerLimits, metrics: Metrics, proxies: Collection[str] = ()
) -> type[LimitedHttpProtocol]:
    """The protocol of one server; `proxies` are addresses that connect for many others."""
    shared = {"limits": limits, "metrics": metrics, "proxies": proxies, "open": Counter(), "waiting": {}}
    return type("LimitedHttpProtocol", (LimitedHttpProtocol,), shared)
