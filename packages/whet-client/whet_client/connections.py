"""Requests to the server: kept-alive connections of the standard library, no redirects, bounded answers."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from whet_client.errors import UsageError
from whet_client.http import HttpReply, Unavailable

LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of one answer."""

_LOST = (ConnectionError, http.client.HTTPException)


class Http:
    """Requests to one server with one token. Threads may share it: each request has a connection to itself.

    `timeout` is in seconds and bounds every wait for the network, and the time until the body has come. Raises
    UsageError for an address that is none.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise UsageError(
                f'"{url[:80]}" is no address of a server. Write http://HOST:PORT or https://HOST.'
            )
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("The token has characters that no token has. Copy it again.")
        self.url = url.rstrip("/")
        self._base = parts.path.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._context = ssl.create_default_context() if self._secure else None
        self._timeout = timeout
        self._token = token
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"Http({self.url!r})"

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpReply:
        """The answer of the server, whatever its status. Every request of whet may be repeated: one that is lost with
        a connection that the server had closed meanwhile is sent once more. Raises Unavailable."""
        all_headers = {"Accept": "application/json", **(headers or {})}
        if self._token is not None:
            all_headers["Authorization"] = f"Bearer {self._token}"
        connection, used = self._take()
        try:
            try:
                answer, keep = self._exchange(connection, method, path, all_headers, body)
            except _LOST:
                connection.close()
                if not used:
                    raise
                connection = self._new()
                answer, keep = self._exchange(connection, method, path, all_headers, body)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = str(error) or type(error).__name__
            raise Unavailable(f"The server {self.url} cannot be reached: {reason}.") from error
        with self._lock:
            keep = keep and not self._closed
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return answer

    def close(self) -> None:
        """Close idle connections, and from now on each after its request."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def restart_after_fork(self) -> None:
        """Start anew in a child process: connections belong to the parent."""
        self._lock = threading.Lock()
        self._idle = []

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return self._new(), False

    def _new(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> tuple[HttpReply, bool]:
        """The answer, and whether the connection can be used again."""
        end = time.monotonic() + self._timeout
        connection.request(method, f"{self._base}{path}", body, dict(headers))
        response = connection.getresponse()
        content = bytearray()
        while piece := response.read1(LARGEST_ANSWER + 1 - len(content)):
            content += piece
            if len(content) > LARGEST_ANSWER:
                raise http.client.HTTPException(f"its answer has more than {LARGEST_ANSWER} bytes")
            if time.monotonic() > end and not response.isclosed():
                raise TimeoutError(f"its answer is not complete after {self._timeout:g} seconds")
        names = {name.lower(): value for name, value in response.getheaders()}
        response.close()  # reading to the end by `read1` leaves it open, and the connection would refuse the next request
        return HttpReply(response.status, names, bytes(content)), not response.will_close
