"""The HTTP client of endpoints: connections that fail, certificates, proxies, cancellation, against real sockets."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yarl import URL

from whet.errors import ProviderError
from whet.models import http
from whet.models.http import Answer, HttpClient, NoAnswer
from whet.models.openai import OpenAIModel
from whet.types import Message, Request

ASK = Request((Message("user", "How are you?"),))
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handle, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def answering(raw: bytes, heard: list[bytes] | None = None) -> Handle:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        if heard is not None:
            heard.append(head)
        writer.write(raw)
        await writer.drain()
        writer.close()

    return handle


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


async def post(url: str, body: bytes = b"{}", seconds: float = 60) -> Answer | NoAnswer:
    client = HttpClient(URL(url), {"X-Role": "test"})
    try:
        return await client.post(url, body, seconds)
    finally:
        await client.close()


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that nobody trusts but who reads `tmp_path / "cert.pem"`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


async def test_a_certificate_that_is_not_trusted_ends_the_run_at_once(certificate: ssl.SSLContext) -> None:
    async with listening(answering(answer(b"{}")), certificate) as port:
        model = OpenAIModel("tiny", base_url=f"https://127.0.0.1:{port}/v1", api_key="k")
        with pytest.raises(ProviderError, match="certificate is not trusted") as caught:
            await model.generate(ASK)
        await model.close()
    assert (caught.value.retryable, caught.value.fatal) == (False, True)
    assert "SSL_CERT_FILE" in str(caught.value)


async def test_a_certificate_of_the_users_own_authority_is_trusted(
    certificate: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with listening(answering(answer(b"fine")), certificate) as port:
        reply = await post(f"https://127.0.0.1:{port}/v1")
    assert isinstance(reply, Answer) and reply.body == b"fine"


async def test_https_at_a_port_that_speaks_http_says_so() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(b"The plain HTTP request was sent to an HTTP port", status="400 Bad Request"))
        await writer.drain()
        writer.close()

    async with listening(refuse) as port:
        model = OpenAIModel("tiny", base_url=f"https://127.0.0.1:{port}/v1", api_key="k")
        with pytest.raises(ProviderError, match="does not speak TLS at this port; try http://") as caught:
            await model.generate(ASK)
        await model.close()
    assert caught.value.fatal


async def test_a_redirect_is_not_followed_and_headers_have_lower_case_names() -> None:
    heard: list[bytes] = []
    moved = answer(
        b"", "Location: http://127.0.0.1:9/other", "Retry-After: 3", status="307 Temporary Redirect"
    )
    async with listening(answering(moved, heard)) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1")
    assert isinstance(reply, Answer) and reply.status == 307
    assert (reply.headers["location"], reply.headers["retry-after"]) == ("http://127.0.0.1:9/other", "3")
    assert len(heard) == 1 and b"x-role: test" in heard[0].lower()


async def test_a_proxy_of_the_environment_is_used_unless_the_host_is_exempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "HTTP_PROXY",
        "NO_PROXY",
        "no_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HTTPS_PROXY",
        "https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    heard: list[bytes] = []
    async with (
        listening(answering(answer(b"by the proxy"), heard)) as proxy,
        listening(answering(answer(b"direct"))) as port,
    ):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        through = await post("http://models.example/v1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        direct = await post(f"http://127.0.0.1:{port}/v1")
    assert isinstance(through, Answer) and through.body == b"by the proxy"
    assert heard[0].startswith(b"POST http://models.example/v1 HTTP/1.1")
    assert isinstance(direct, Answer) and direct.body == b"direct"


async def test_a_small_packed_answer_that_unpacks_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 2**20)
    bomb = gzip.compress(bytes(2**24))
    assert len(bomb) < 2**15
    async with listening(answering(answer(bomb, "Content-Encoding: gzip"))) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1")
    assert reply == NoAnswer("the answer is longer than 1 MiB", 200)


async def test_the_connection_of_a_cancelled_request_ends_at_its_time_limit() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()  # until the other side closes
        closed.set()
        writer.close()

    async with listening(wait) as port:
        client = HttpClient(URL(f"http://127.0.0.1:{port}/v1"), {})
        request = asyncio.create_task(client.post(f"http://127.0.0.1:{port}/v1", b"{}", 0.5))
        await arrived.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await closed.wait()
        assert await client.post(f"http://127.0.0.1:{port}/v1", b"{}", 0.1) == NoAnswer("no answer in time")
        await client.close()


async def test_a_request_that_reached_the_server_is_not_sent_again() -> None:
    heard: list[bytes] = []
    async with listening(answering(b"", heard)) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1")
    assert reply == NoAnswer("the server closed the connection without an answer") and len(heard) == 1


async def test_a_host_that_is_unknown_and_a_port_where_nobody_listens() -> None:
    assert await post("http://no-such-host.invalid/v1") == NoAnswer("the host name is not known")
    async with listening(answering(b"")) as port:
        pass
    assert await post(f"http://127.0.0.1:{port}/v1") == NoAnswer("no connection: connection refused")


async def test_a_long_body_arrives_whole() -> None:
    sizes: list[int] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        sizes.append(len(await reader.readexactly(length)))
        writer.write(answer(b"fine"))
        await writer.drain()
        writer.close()

    async with listening(count) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1", b"x" * 5_000_000)
    assert isinstance(reply, Answer) and sizes == [5_000_000]
