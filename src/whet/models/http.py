"""The HTTP client of endpoints: one POST in, an answer or the reason why there is none out. It runs on pyreqwest.

Errors of the library become values here: an exception that kept the request would keep its headers, and with them the key.
"""

from __future__ import annotations

import errno
import io
import os
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    BodyDecodeError,
    BuilderError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.proxy import ProxyBuilder
from pyreqwest.request import RequestBuilder
from pyreqwest.response import Response
from yarl import URL

from whet.errors import UsageError, parameter

MOST_BYTES = 32 * 2**20
"""A longer answer, unpacked, is refused; no completion has that many bytes."""
_CONNECT_SECONDS = 15.0
_IDLE_SECONDS = 30.0
_NO_CONNECTION, _NO_HOST = "no connection", "the host name is not known"
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: status, body (unpacked), and headers with lower-case names."""

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
        return self.status is None and self.reason.startswith((_NO_CONNECTION, _NO_HOST))


class HttpClient:
    """Connections to one origin, kept alive between requests. It follows no redirect, stores no cookie, and sends each
    request once. Use it from one event loop, and close it there."""

    def __init__(
        self, url: URL, headers: Mapping[str, str], connect_seconds: float = _CONNECT_SECONDS
    ) -> None:
        """`headers` go with every request to `url`. `connect_seconds` (above 0) bounds the time to connect. A proxy named by
        HTTPS_PROXY or HTTP_PROXY is used unless NO_PROXY exempts the host.

        Raises UsageError when no client can be built, for example without certificate authorities on the system.
        """
        builder = (
            ClientBuilder()
            .follow_redirects(False)
            .referer(False)
            .no_proxy()
            .connect_timeout(timedelta(seconds=min(connect_seconds, _CONNECT_SECONDS)))
            .pool_idle_timeout(timedelta(seconds=_IDLE_SECONDS))
            .default_headers(headers)
        )
        if (proxy := _find_proxy(url)) is not None:
            builder = builder.proxy(ProxyBuilder.all(proxy))
        if url.scheme == "http":
            builder = builder.danger_accept_invalid_certs(True)  # no certificate is read, and none is needed
        try:
            self._client: Client = builder.build()
        except BuilderError as error:
            raise UsageError(
                f"No HTTPS client could be made for {url.origin()}: {_get_causes(error)[-1].rstrip('.')}. Install the "
                "system's certificate authorities (Debian: ca-certificates), or set SSL_CERT_FILE to a file that has them."
            ) from None

    async def post(self, url: str, body: bytes, seconds: float) -> Answer | NoAnswer:
        """Send `body` once and wait at most `seconds` for the whole answer. A caller who stops waiting earlier leaves the
        connection open until then: pyreqwest does not end a request whose task was cancelled."""
        return await _exchange(self._client.post(url).body_bytes(body), seconds)

    async def get(self, url: str, seconds: float) -> Answer | NoAnswer:
        """Ask once and wait at most `seconds` for the whole answer."""
        return await _exchange(self._client.get(url), seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def _exchange(request: RequestBuilder, seconds: float) -> Answer | NoAnswer:
    status = None
    try:
        async with request.timeout(timedelta(seconds=seconds)).build_streamed() as response:
            status = response.status
            content = await _read_body(response)
            if content is None:
                return NoAnswer(f"the answer is longer than {MOST_BYTES >> 20} MiB", 200)
            return Answer(status, content, {} if status == 200 else _read_headers(response))
    except PyreqwestError as error:
        return _describe_error(error, status)


async def _read_body(response: Response) -> bytes | None:
    """The unpacked body; None for one above `MOST_BYTES`."""
    reader = response.body_reader
    length = response.get_header("content-length")  # absent where the body is packed
    if length is not None and length.isdecimal() and int(length) <= MOST_BYTES:
        return (await reader.bytes()).to_bytes()
    body = io.BytesIO()
    while (chunk := await reader.read_chunk()) is not None:
        body.write(chunk)
        if body.tell() > MOST_BYTES:
            return None
    return body.getvalue()


def _read_headers(response: Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _find_proxy(url: URL) -> str | None:
    """The proxy that the environment names for `url`."""
    if urllib.request.proxy_bypass(url.host or ""):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _describe_error(error: PyreqwestError, status: int | None) -> NoAnswer:
    """What went wrong, in words of our own: the library's may quote the URL."""
    causes = _get_causes(error)
    last = causes[-1].lower()
    if isinstance(error, RequestTimeoutError):
        connecting = any("(Connect)" in cause for cause in causes)
        return NoAnswer("no connection in time" if connecting else "no answer in time", status)
    if isinstance(
        error, BodyDecodeError
    ):  # the head was read; the library may read the body before it hands the head out
        status = 200 if status is None else status
        if "chunk" in last:
            return NoAnswer("the answer is not proper HTTP", status)
        cut = any("reading a body" in cause for cause in causes)
        return NoAnswer("the answer was cut off" if cut else "the answer cannot be unpacked", status)
    if isinstance(error, DecodeError):
        return NoAnswer("the answer is not proper HTTP", status)
    if any("certificate" in cause.lower() for cause in causes):
        return NoAnswer(
            f"no connection: the server's certificate is not trusted ({causes[-1]}); set SSL_CERT_FILE to a file with the "
            "authority that signed it",
            final=True,
        )
    if "corrupt message" in last or "invalidcontenttype" in last:
        return NoAnswer(
            "no connection: the server does not speak TLS at this port; try http:// instead of https://",
            final=True,
        )
    if (match := _OS_ERROR.search(causes[-1])) is not None:
        return NoAnswer(_describe_os_error(int(match[1])), status)
    if any("dns" in cause.lower() for cause in causes):
        return NoAnswer(_NO_HOST)
    if "closed before message completed" in last:
        return NoAnswer("the server closed the connection without an answer", status)
    return NoAnswer("the connection broke", status)


def _describe_os_error(number: int) -> str:
    if number in (errno.EMFILE, errno.ENFILE):
        return f"too many open files; lower {parameter('concurrency')} or raise the limit with `ulimit -n`"
    if number in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return "the connection broke"
    return f"no connection: {os.strerror(number).lower()}"


def _get_causes(error: PyreqwestError) -> list[str]:
    """The chain of causes from the outermost to the innermost; never empty."""
    causes = error.details.get("causes") if isinstance(error, DetailedPyreqwestError) else None
    return [cause["message"] for cause in causes or ()] or [error.message]
