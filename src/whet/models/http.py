"""The HTTP client of endpoints: one request out, an answer or the reason why there is none in.

It speaks HTTP/1.1 on the event loop itself: a call costs it a third of the processor time that aiohttp takes, and no call waits
for another thread. Errors are values here: an exception that kept the request would keep its headers, and with them the key.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import ipaddress
import os
import re
import select
import socket
import ssl
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from yarl import URL

from whet.errors import UsageError, parameter
from whet.models.http_connection import LATE, NO_CONNECTION, NO_HOST, Answer, Connection, NoAnswer

__all__ = ["LATE", "MOST_BYTES", "Answer", "HttpClient", "NoAnswer"]

MOST_BYTES = 32 * 2**20
"""A longer answer, unpacked, is refused; no completion has that many bytes."""
_CONNECT_SECONDS = 15.0
_IDLE_SECONDS = 30.0
_FRESH_SECONDS = 0.1
"""For so long after an answer a connection counts as open without a look at its socket."""
_ADDRESS_SECONDS = 60.0
"""For so long new connections go to the address that the name of the host led to."""
_NEXT_ADDRESS_SECONDS = 0.25
"""After so long without a connection the next address of a host is tried at the same time."""
_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_AUTHORITIES = ("/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_CLOSED = NoAnswer("the connection broke")
_OWN_HEADERS = ("accept-encoding", "connection", "content-length", "transfer-encoding")


class HttpClient:
    """Connections to one origin, kept alive between requests. It follows no redirect, stores no cookie, and sends each
    request once. Use it from one event loop, and close it there."""

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        connect_seconds: float = _CONNECT_SECONDS,
        most_bytes: int | None = None,
    ) -> None:
        """`headers` go with every request to `url`. `connect_seconds` (above 0) bounds the time to connect, `most_bytes` an
        answer, unpacked (by default MOST_BYTES). A proxy named by HTTPS_PROXY or HTTP_PROXY is used unless NO_PROXY exempts
        the host.

        Raises UsageError for a proxy that cannot be used, and for https without certificate authorities on the system.
        """
        self._loop, self._most_bytes = asyncio.get_running_loop(), most_bytes or MOST_BYTES
        self._origin, self._proxy = url.origin(), _find_proxy(url)
        self._connect_seconds = min(connect_seconds, _CONNECT_SECONDS)
        tunnel = self._origin.scheme == "https" and self._proxy is not None
        secure = "https" in (self._origin.scheme, self._proxy.scheme if self._proxy else "")
        self._context = _trusting(self._origin) if secure else None
        self._tunnel = self._connect_request() if tunnel else None
        self._fields = self._header_lines(headers)
        self._heads: dict[str, bytes] = {}
        self._idle: list[Connection] = []
        self._opened: set[Connection] = set()
        self._asked: dict[Connection, tuple[float, Callable[[], float]]] = {}
        self._address: tuple[str, float] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    def post(
        self, url: str, body: bytes, seconds: float, more: Callable[[], float] = lambda: 0.0
    ) -> Coroutine[Any, Any, Answer | NoAnswer]:
        """Send `body` once and wait at most `seconds` for the whole answer, and as long again as `more` says each time that
        they are over. A caller who stops waiting ends the connection."""
        head = self._heads.get(url)
        if head is None:
            head = self._heads[url] = self._request_line("POST", url) + self._fields + b"Content-Length: "
        return self._exchange(b"%b%d\r\n\r\n%b" % (head, len(body), body), seconds, more)

    async def get(self, url: str, seconds: float) -> Answer | NoAnswer:
        """Ask once and wait at most `seconds` for the whole answer."""
        request = self._request_line("GET", url) + self._fields + b"\r\n"
        return await self._exchange(request, seconds, lambda: 0.0)

    async def close(self) -> None:
        """Close the connections. An exchange under way ends without an answer."""
        self._closed = True
        for timer in (self._sweeper, self._watch):
            if timer is not None:
                timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        connections = list(self._opened)
        for connection in connections:
            connection.transport.abort()
        await asyncio.gather(*(connection.gone for connection in connections))

    async def _exchange(self, request: bytes, seconds: float, more: Callable[[], float]) -> Answer | NoAnswer:
        end = self._loop.time() + seconds
        connection = self._take_idle() or await self._connect(seconds)
        if isinstance(connection, NoAnswer):
            return connection
        self._asked[connection] = end, more
        if self._watch is None or end < self._watch.when():
            self._watch_until(end)
        try:
            return await connection.send(request)
        finally:
            self._asked.pop(connection, None)
            if connection.reusable:
                self._keep(connection)
            else:
                connection.transport.abort()

    def _watch_until(self, end: float) -> None:
        """See at `end` who waits too long. One timer serves all exchanges: few of them ever take all of their time."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(end, self._end_late)

    def _end_late(self) -> None:
        """End the exchanges whose time is over, but for those that are given more."""
        self._watch = None
        now = self._loop.time()
        for connection, (end, more) in list(self._asked.items()):
            if end > now:
                continue
            if (left := more()) > 0:
                self._asked[connection] = now + left, more
            else:
                del self._asked[connection]
                connection.fail(LATE)
        if self._asked:
            self._watch_until(min(end for end, _ in self._asked.values()))

    def _keep(self, connection: Connection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle for long."""
        oldest = self._loop.time() - _IDLE_SECONDS
        for connection in self._idle:
            if connection.idle_since <= oldest:
                connection.transport.abort()
        self._idle = [c for c in self._idle if c.reusable and c.idle_since > oldest]
        self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep) if self._idle else None

    def _take_idle(self) -> Connection | None:
        """The connection that was used last, without those that the server has closed."""
        while self._idle:
            connection = self._idle.pop()
            fresh = self._loop.time() - connection.idle_since < _FRESH_SECONDS
            if connection.reusable and (fresh or not _has_news(connection.transport)):
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, seconds: float) -> Connection | NoAnswer:
        """A connection that is ready for a request, within `seconds` and those that a connection may take."""
        try:
            async with asyncio.timeout(min(self._connect_seconds, seconds)):
                while self._address is None or self._address[1] < self._loop.time():
                    if self._looking is None:
                        self._looking = asyncio.create_task(self._look_up())
                        self._looking.add_done_callback(self._end_look_up)
                    looking = self._looking
                    await asyncio.wait([looking])
                    if self._closed:
                        return _CLOSED
                    looking.result()
                    if (idle := self._take_idle()) is not None:
                        return idle
                connection = await self._open(self._address[0])
            if self._closed:
                connection.transport.abort()
                return _CLOSED
            return connection
        except _Refusal as refusal:
            return refusal.answer
        except TimeoutError:
            return self._with_proxy(NoAnswer(f"{NO_CONNECTION} in time"))
        except (OSError, UnicodeError) as error:
            self._address = None
            return self._with_proxy(_describe_error(error))

    def _with_proxy(self, reply: NoAnswer) -> NoAnswer:
        """Why there is no connection, with the proxy that it would go through: that may be the reason."""
        if self._proxy is None or not reply.unreached:
            return reply
        way = f"by way of the proxy {self._proxy.origin()}; NO_PROXY={self._origin.host} goes around it"
        return NoAnswer(f"{reply.reason} ({way})", final=reply.final)

    async def _look_up(self) -> None:
        """Find out at which address the host of the name can be reached; the connection to it is kept. All calls that need one
        at the same time wait for this one."""
        async with asyncio.timeout(self._connect_seconds):
            connection = await self._open((self._proxy or self._origin).raw_host or "")
        peer = connection.transport.get_extra_info("peername")
        self._address = str(peer[0]), self._loop.time() + _ADDRESS_SECONDS
        connection.reusable = True
        self._keep(connection)

    def _end_look_up(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            task.exception()

    async def _open(self, host: str) -> Connection:
        """A new connection by way of `host`, a name or an address. Raises OSError, UnicodeError and _Refusal."""
        loop, first = self._loop, self._proxy or self._origin
        secure = first.scheme == "https"
        connection = Connection(self._most_bytes, self._opened)
        # uvloop tries one address after the other, and knows no delay.
        delay: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop):
            delay["happy_eyeballs_delay"] = _NEXT_ADDRESS_SECONDS
        await loop.create_connection(
            lambda: connection,
            host,
            first.port or 0,
            ssl=self._context if secure else None,
            server_hostname=first.raw_host if secure else None,
            **delay,
        )
        if self._tunnel is None:
            return connection
        try:
            reply = await connection.send(self._tunnel, tunnel=True)
            if not isinstance(reply, Answer) or reply.status >= 300:
                raise _Refusal(reply)
            assert self._context is not None
            transport = await loop.start_tls(
                connection.transport, connection, self._context, server_hostname=self._origin.raw_host
            )
            assert transport is not None
            connection.transport = transport
        except BaseException:
            connection.transport.abort()
            self._opened.discard(connection)
            raise
        return connection

    def _connect_request(self) -> bytes:
        """The request that asks the proxy for a tunnel to the origin."""
        host = f"{self._origin.host_subcomponent}:{self._origin.port}"
        lines = [f"CONNECT {host} HTTP/1.1", f"Host: {host}", *self._proxy_lines(), "", ""]
        return "\r\n".join(lines).encode("ascii")

    def _proxy_lines(self) -> list[str]:
        """The header for a proxy that wants a password."""
        if self._proxy is None or not self._proxy.user:
            return []
        words = f"{self._proxy.user}:{self._proxy.password or ''}".encode()
        return [f"Proxy-Authorization: Basic {base64.b64encode(words).decode()}"]

    def _header_lines(self, headers: Mapping[str, str]) -> bytes:
        """The headers of every request, ready to be sent. Raises UsageError for one that no request can carry."""
        lines = [f"{name}: {value}" for name, value in headers.items() if name.lower() not in _OWN_HEADERS]
        if not any(name.lower() == "host" for name in headers):
            lines.insert(0, f"Host: {self._origin.host_port_subcomponent}")
        if self._tunnel is None:
            lines += self._proxy_lines()
        lines.append("Accept-Encoding: gzip, deflate")
        for line in lines:
            if not (line.isascii() and line.isprintable()):
                raise UsageError(
                    f"The header {line.partition(':')[0]!a} holds a character that no header has (a line break, an accent)."
                )
        return "".join(f"{line}\r\n" for line in lines).encode("ascii")

    def _request_line(self, method: str, url: str) -> bytes:
        """The first line: with the path, or with the whole address for a proxy that passes requests on."""
        target = URL(url).with_fragment(None)
        place = str(target) if self._proxy is not None and self._tunnel is None else target.raw_path_qs
        return f"{method} {place} HTTP/1.1\r\n".encode("ascii")


class _Refusal(Exception):
    """A proxy opens no way to the origin."""

    def __init__(self, reply: Answer | NoAnswer) -> None:
        super().__init__()
        status = reply.status if isinstance(reply, Answer) else None
        why = f"the proxy refuses it (HTTP {status})" if status else f"by the proxy: {reply.reason}"  # type: ignore[union-attr]
        self.answer = NoAnswer(f"{NO_CONNECTION}: {why}", final=status == 407)


def _find_proxy(url: URL) -> URL | None:
    """The proxy that the environment names for `url`. Raises UsageError for one that cannot be used."""
    if urllib.request.proxy_bypass(url.host or "") or _is_exempt(url.host or ""):
        return None
    text = urllib.request.getproxies().get(url.scheme, "").strip()
    if not text:
        return None
    name = f"{url.scheme.upper()}_PROXY"
    with contextlib.suppress(ValueError):
        proxy = URL(text if "://" in text else f"http://{text}")
        if proxy.scheme in ("http", "https") and proxy.raw_host:
            return proxy
    raise UsageError(f"The proxy in {name} cannot be used. Name one like http://host:3128, or unset {name}.")


def _is_exempt(host: str) -> bool:
    """Whether NO_PROXY names a network that an address is in, such as 10.0.0.0/8, which `urllib` does not read."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in urllib.request.getproxies_environment().get("no", "").split(","):
        with contextlib.suppress(ValueError):
            if "/" in entry and address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
    return False


def _trusting(origin: URL) -> ssl.SSLContext:
    """Trust in the certificate authorities of the system, or of SSL_CERT_FILE. Raises UsageError where there are none."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    paths = ssl.get_default_verify_paths()
    folder = paths.capath and bool(os.listdir(paths.capath))
    if context.cert_store_stats()["x509_ca"] or folder:
        return context
    if not {paths.openssl_cafile_env, paths.openssl_capath_env} & os.environ.keys():
        for name in _AUTHORITIES:
            with contextlib.suppress(OSError):
                context.load_verify_locations(name)
                return context
    raise UsageError(
        f"No HTTPS client could be made for {origin}: no certificate authority is known. Install the system's certificate "
        "authorities (Debian: ca-certificates), or set SSL_CERT_FILE to a file that has them."
    )


def _has_news(transport: asyncio.Transport) -> bool:
    """Whether something came over a connection where nothing was asked: the server has closed it, and the event loop, which was
    busy, has not seen that yet."""
    number = transport.get_extra_info("socket").fileno()
    if number < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])


def _describe_error(error: OSError | UnicodeError) -> NoAnswer:
    """Why there is no connection, by the kind and the number of an error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswer(
            f"{NO_CONNECTION}: the server's certificate is not trusted ({error.verify_message}); set SSL_CERT_FILE to a file "
            "with the authority that signed it",
            final=True,
        )
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return NoAnswer(
            f"{NO_CONNECTION}: the server does not speak TLS at this port; try http:// instead of https://",
            final=True,
        )
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "no reason given").lower().replace("_", " ")
        return NoAnswer(f"{NO_CONNECTION}: TLS failed ({words})")
    if isinstance(error, socket.gaierror | UnicodeError):
        return NoAnswer(NO_HOST)
    match = _ERROR_NUMBER.search(str(error))
    number = error.errno or (int(match[1]) if match else 0)
    if number in (errno.EMFILE, errno.ENFILE):
        return NoAnswer(
            f"too many open files; lower {parameter('concurrency')} or raise the limit with `ulimit -n`"
        )
    if number in (0, errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return NoAnswer("the connection broke")
    return NoAnswer(f"{NO_CONNECTION}: {os.strerror(number).lower()}")
