"""Handshakes of a server that speaks TLS itself. A socket that says nothing holds a place of its address from the beginning, and
a handshake has as much time as a request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from whet_live.server.http_protocol import LimitedHttpProtocol

_NO_FILES_LEFT = 0.1
"""Seconds until the next look where no file can be opened."""


class TlsDoor:
    """Accepts connections and lets in those whose handshake comes to its end: `inside` is the protocol of requests, `make` makes
    one. Handshakes under way count for the limits of addresses and of all connections together, of which the oldest give way.
    """

    def __init__(
        self, inside: type[LimitedHttpProtocol], make: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> None:
        self._inside, self._make, self._context = inside, make, context
        self._held: Counter[str] = Counter()
        self._waiting: dict[asyncio.Task[None], None] = {}  # oldest first

    async def accept(self, listening: socket.socket) -> None:
        """Accept at a socket until this is cancelled."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_NO_FILES_LEFT)
            else:
                self._admit(connection, str(address[0]))

    def close(self) -> None:
        """End the handshakes under way."""
        for task in list(self._waiting):
            task.cancel()

    def _admit(self, connection: socket.socket, address: str) -> None:
        limits, open_ = self._inside.limits, self._inside.open
        held = self._held[address] + open_[address]
        if held >= limits.address_connections and address not in self._inside.proxies:
            connection.close()
            return
        if self._held.total() + open_.total() >= limits.connections and self._waiting:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)
            oldest.cancel()
        self._held[address] += 1
        task = asyncio.get_running_loop().create_task(self._shake_hands(connection))
        self._waiting[task] = None
        task.add_done_callback(lambda done: self._end(done, address))

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self._context, ssl_handshake_timeout=self._inside.limits.receive
            )
        except (OSError, asyncio.CancelledError):
            with contextlib.suppress(OSError):
                connection.close()

    def _end(self, task: asyncio.Task[None], address: str) -> None:
        self._waiting.pop(task, None)
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
