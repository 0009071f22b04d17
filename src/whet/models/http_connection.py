"""One HTTP/1.1 connection: a request out, then an answer, or the reason why there is none.

httptools, the parser of Node.js, reads what comes; an answer that it does not take is not proper HTTP. A connection belongs to
the thread of its event loop, so that no call waits for another thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

NO_CONNECTION, NO_HOST, LATE = "no connection", "the host name is not known", "no answer in time"
_IMPROPER, _PACKED = "the answer is not proper HTTP", "the answer cannot be unpacked"
_MOST_HEAD = 2**20
_OVERHEAD = 8
"""Bytes on the wire for a byte of an answer, at most: chunks of one byte take six."""
_GZIP, _ZLIB, _RAW = 31, 15, -15


COST_HEADER = "x-litellm-response-cost"
"""The header in which a LiteLLM proxy reports the US dollars of a call."""
CACHE_KEY_HEADER = "x-litellm-cache-key"
"""The header in which a LiteLLM proxy names an answer from its cache."""
CACHE_HEADERS = (
    "cf-aig-cache-status", "helicone-cache", "x-portkey-cache-status", "x-openrouter-cache-status",
)  # fmt: skip
"""The headers in which gateways (Cloudflare, Helicone, Portkey, OpenRouter) say whether their own cache answered: HIT, SEMANTIC
HIT, MISS."""
TYPE_HEADER = "content-type"
"""The places in which an answer may name the encoding of its characters."""
_OF_A_CALL = {name.encode() for name in (COST_HEADER, CACHE_KEY_HEADER, *CACHE_HEADERS, TYPE_HEADER)}


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: status, body (unpacked), and headers with lower-case names; of a 200
    only those that say what it cost, whether a gateway's cache answered, and how its characters are encoded."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a request has no complete answer. `status` is that of an answer that began and broke off; `final` says that
    another attempt would fail alike, as with a certificate that is not trusted; `unreached`, that no server took the request."""

    reason: str
    status: int | None = None
    final: bool = False

    @property
    def unreached(self) -> bool:
        """Whether no server took the request, so that nobody can bill it."""
        return self.status is None and self.reason.startswith((NO_CONNECTION, NO_HOST))


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `reusable`: the last one ended as it should, and the server keeps the connection."""

    transport: asyncio.Transport

    def __init__(self, most_bytes: int, opened: set[Connection]) -> None:
        """An answer of more than `most_bytes`, unpacked, is refused. The connection is in `opened` as long as it is open."""
        self._loop = asyncio.get_running_loop()
        self._most, self._opened = most_bytes, opened
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.reusable = False
        self.idle_since = 0.0
        self._waiting: asyncio.Future[Answer | NoAnswer] | None = None
        self._status: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # of uvloop, none by its class
        self._opened.add(self)

    def send(self, request: bytes, tunnel: bool = False) -> asyncio.Future[Answer | NoAnswer]:
        """Write a request. The future has the answer; of a `tunnel`, as soon as its headers are there."""
        self.reusable, self._tunnel = False, tunnel
        self._parser = HttpResponseParser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self._status = None
        self._unpacker: _Unpacker | None = None
        self._size = self._received = 0
        waiting = self._waiting = self._loop.create_future()
        self.transport.write(request)
        return waiting

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:  # nothing was asked
            self.transport.abort()
            return
        self._received += len(data)
        if self._received > (_MOST_HEAD if self._status is None else _OVERHEAD * self._most + _MOST_HEAD):
            self.fail(_IMPROPER)
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.fail(_IMPROPER)

    def on_message_begin(self) -> None:
        """The parser met the first byte of an answer; after the answer nothing may follow."""
        if self._waiting is None:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser read a header."""
        if self._status is None:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The parser read all headers: of an answer, or of what goes before it."""
        status = self._parser.get_status_code()
        if status < 200:
            self._fields = []
            return
        self._status = status
        if self._tunnel:
            self._end(Answer(status, b"", {}))
            return
        for name, value in self._fields:
            if len(name) == 16 and name.lower() == b"content-encoding":
                packing = value.strip().lower()
                if packing in (b"gzip", b"x-gzip", b"deflate"):
                    self._unpacker = _Unpacker(packing != b"deflate")
                elif packing not in (b"", b"identity"):
                    self.fail(_PACKED)

    def on_body(self, data: bytes) -> None:
        """The parser read a part of the body."""
        if self._waiting is None:
            return
        if self._unpacker is not None:
            try:
                data = self._unpacker.unpack(data, self._most + 1 - self._size)
            except zlib.error:
                self.fail(_PACKED)
                return
        self._size += len(data)
        if self._size > self._most:
            self.fail(f"the answer is longer than {self._most >> 20} MiB")
            return
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        """The parser read an answer to its end, or what goes before it."""
        if self._waiting is not None and self._status is not None:
            self.reusable = self._parser.should_keep_alive() and not self.transport.get_write_buffer_size()
            self._complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._opened.discard(self)
        if not self.gone.done():
            self.gone.set_result(None)
        if self._waiting is None:
            return
        if self._status is None:
            self.fail("the connection broke" if exc else "the server closed the connection without an answer")
        elif exc is None and self._ends_with_connection():
            self._complete()
        else:
            self.fail("the answer was cut off")

    def fail(self, reason: str) -> None:
        """End the exchange under way without an answer, and the connection with it."""
        self._end(NoAnswer(reason, self._status))
        self.reusable = False
        self.transport.abort()

    def _complete(self) -> None:
        status, unpacker = self._status, self._unpacker
        assert status is not None
        if unpacker is not None and not unpacker.complete:
            self.fail(_PACKED)
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._end(Answer(status, body, self._headers_of_call() if status == 200 else self._headers()))

    def _headers(self) -> dict[str, str]:
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._fields}

    def _headers_of_call(self) -> dict[str, str]:
        return {
            name.lower().decode(): value.decode("latin-1")
            for name, value in self._fields
            if name.lower() in _OF_A_CALL
        }

    def _ends_with_connection(self) -> bool:
        """Whether nothing else says where the body ends."""
        return not self._headers().keys() & {"content-length", "transfer-encoding"}

    def _end(self, result: Answer | NoAnswer) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)


class _Unpacker:
    """Unpacks gzip or deflate as it comes."""

    def __init__(self, gzip: bool) -> None:
        self._gzip = gzip
        self._stream = zlib.decompressobj(_GZIP) if gzip else None
        self._begun = False

    def unpack(self, data: bytes, most: int) -> bytes:
        """The decompressed content of the next bytes, at most `most` bytes. Raises zlib.error."""
        if self._stream is None:  # servers call two formats deflate; zlib's first byte tells which one it is
            self._stream = zlib.decompressobj(_ZLIB if data[0] & 0x0F == 8 else _RAW)
        parts, room = [], most
        while data and room > 0:
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP if self._gzip else _ZLIB)
            self._begun = True
            parts.append(self._stream.decompress(data, room))
            room -= len(parts[-1])
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        return b"".join(parts)

    @property
    def complete(self) -> bool:
        """Whether what came is whole; nothing at all is."""
        return not self._begun or (self._stream is not None and self._stream.eof)
