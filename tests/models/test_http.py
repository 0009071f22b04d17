"""The HTTP client of endpoints: connections that fail, certificates, proxies, cancellation, against real sockets."""

from __future__ import annotations

import asyncio
import base64
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yarl import URL

from whet.errors import ProviderError, UsageError
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
    async with client_of(url) as client:
        return await client.post(url, body, seconds)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[HttpClient]:
    client = HttpClient(URL(url), {"X-Role": "test"})
    try:
        yield client
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


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


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


@pytest.mark.parametrize("exempt", ["127.0.0.0/8", "10.0.0.0/8, 127.0.0.1/32", "::/0,127.0.0.1"])
async def test_no_proxy_may_name_networks(exempt: str, no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "http://127.0.0.1:9")
    no_proxies.setenv("no_proxy", exempt)
    async with listening(answering(answer(b"direct"))) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1")
    assert isinstance(reply, Answer) and reply.body == b"direct"


async def test_a_proxy_that_is_not_there_is_named(no_proxies: pytest.MonkeyPatch) -> None:
    """Before, the message said that no server was listening at the address of the model, which one did."""
    no_proxies.setenv("http_proxy", "http://127.0.0.1:9")
    async with listening(answering(answer(b"direct"))) as port:
        model = OpenAIModel("tiny", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
        with pytest.raises(
            ProviderError, match=r"proxy http://127\.0\.0\.1:9; NO_PROXY=127\.0\.0\.1 goes around it"
        ) as caught:
            await model.generate(ASK)
        await model.close()
    assert "no server is listening" not in str(caught.value) and caught.value.refused


async def test_a_small_packed_answer_that_unpacks_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 2**20)
    bomb = gzip.compress(bytes(2**24))
    assert len(bomb) < 2**15
    async with listening(answering(answer(bomb, "Content-Encoding: gzip"))) as port:
        reply = await post(f"http://127.0.0.1:{port}/v1")
    assert reply == NoAnswer("the answer is longer than 1 MiB", 200)


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_request_that_is_given_up_ends_its_connection(cancelled: bool) -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()  # until the other side closes
        closed.set()
        writer.close()

    async with listening(wait) as port, client_of(f"http://127.0.0.1:{port}/v1") as client:
        seconds = 60 if cancelled else 0.05
        request = asyncio.create_task(client.post(f"http://127.0.0.1:{port}/v1", b"{}", seconds))
        await arrived.wait()
        if cancelled:
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
        else:
            assert await request == NoAnswer("no answer in time")
        await closed.wait()


async def test_a_call_gets_more_time_as_long_as_it_is_given_some() -> None:
    asked: list[float] = []

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def more() -> float:
        asked.append(0.001)
        return 0.001 if len(asked) < 3 else 0.0

    async with listening(wait) as port, client_of(f"http://127.0.0.1:{port}/v1") as client:
        reply = await client.post(f"http://127.0.0.1:{port}/v1", b"{}", 0.05, more)
    assert reply == NoAnswer("no answer in time") and len(asked) == 3


async def test_each_call_has_its_own_time() -> None:
    begun = asyncio.Event()
    release = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/long" in head:
            begun.set()
            await release.wait()
            writer.write(answer(b"late, and in time"))
        else:
            await reader.read()  # until the other side closes
        writer.close()

    async with listening(handle) as port, client_of(f"http://127.0.0.1:{port}/v1") as client:
        url = f"http://127.0.0.1:{port}"
        long = asyncio.create_task(client.post(f"{url}/long", b"{}", 60))
        await begun.wait()
        replies = [await client.post(f"{url}/short", b"{}", seconds) for seconds in (0.05, 0.01)]
        release.set()
        assert all(isinstance(one, NoAnswer) and one.reason.endswith("in time") for one in replies), replies
        assert await long == Answer(200, b"late, and in time", {})


class Kept:
    """A server that keeps its connections and answers each request of one with the next of `replies`; None closes it."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.heard: list[tuple[int, bytes]] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                await reader.readexactly(int(length or 0))
                self.heard.append((number, head))
                reply = self.replies.pop(0)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def kept(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return (
        "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]).encode() + body
    )


async def replies_to(server: Kept, count: int) -> list[Answer | NoAnswer]:
    async with listening(server) as port, client_of(f"http://127.0.0.1:{port}/v1") as client:
        return [await client.post(f"http://127.0.0.1:{port}/v1/x?y=%20z", b"{}", 60) for _ in range(count)]


async def test_a_connection_serves_one_request_after_the_other() -> None:
    server = Kept(kept(b"one"), kept(b"two", status="404 Not Found"), kept(b"three"))
    found = await replies_to(server, 3)
    assert [(r.status, r.body) for r in found if isinstance(r, Answer)] == [
        (200, b"one"),
        (404, b"two"),
        (200, b"three"),
    ]
    assert server.connections == 1
    head = server.heard[2][1].split(b"\r\n")
    assert head[0] == b"POST /v1/x?y=%20z HTTP/1.1" and head[1].startswith(b"Host: 127.0.0.1:")
    assert (
        b"X-Role: test" in head and b"Content-Length: 2" in head and b"Accept-Encoding: gzip, deflate" in head
    )


async def test_what_a_server_says_beyond_its_answer_ends_the_connection() -> None:
    twice = kept(b"one") + kept(b"nobody asked")
    server = Kept(twice, kept(b"two"))
    found = await replies_to(server, 2)
    assert [r.body for r in found if isinstance(r, Answer)] == [b"one", b"two"]
    assert server.connections == 2


@pytest.mark.parametrize("packing", ["gzip", "deflate", "raw deflate", "two gzips", "identity"])
async def test_packed_bodies_are_unpacked_however_they_are_cut(packing: str) -> None:
    text = b"What is packed here is long enough to be packed. " * 50
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(text), "deflate": zlib.compress(text), "identity": text,
        "raw deflate": raw.compress(text) + raw.flush(), "two gzips": gzip.compress(text[:99]) + gzip.compress(text[99:]),
    }[packing]  # fmt: skip
    name = {"raw deflate": "deflate", "two gzips": "gzip"}.get(packing, packing)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"7\r\n" + packed[i : i + 7] + b"\r\n" for i in range(0, len(packed) // 7 * 7, 7))
    rest = packed[len(packed) // 7 * 7 :]
    body += b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
    server = Kept(head + body + b"0\r\n\r\n", kept(b"fine"))
    found = await replies_to(server, 2)
    assert [r.body for r in found if isinstance(r, Answer)] == [text, b"fine"] and server.connections == 1


@pytest.mark.parametrize(
    ("raw", "reply"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", Answer(200, b"until the end", {})),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer(b"fine"), Answer(200, b"fine", {})),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"fine"), Answer(200, b"fine", {})),
        (b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", Answer(204, b"", {"x-a": "b"})),
        (b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", NoAnswer("the answer is not proper HTTP")),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\ncut", NoAnswer("the answer was cut off", 500)),
        (answer(b"x", "Content-Encoding: br"), NoAnswer("the answer cannot be unpacked", 200)),
        (answer(gzip.compress(b"whole")[:-4], "Content-Encoding: gzip"), NoAnswer("the answer cannot be unpacked", 200)),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 2**21, NoAnswer("the answer is not proper HTTP")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", NoAnswer("the answer is not proper HTTP")),
    ],
)  # fmt: skip
async def test_what_may_come_in_place_of_a_plain_answer(raw: bytes, reply: Answer | NoAnswer) -> None:
    async with listening(answering(raw)) as port:
        assert await post(f"http://127.0.0.1:{port}/v1") == reply


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again(
    no_proxies: pytest.MonkeyPatch,
) -> None:
    """Also where the event loop was busy and has not seen that it is closed: the request would be lost with it."""
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        for text in (b"one", b"two"):
            with listener.accept()[0] as connection:
                while not connection.recv(65536).endswith(b"{}"):
                    pass
                connection.sendall(kept(text))
                asked.wait()
            closed.set()

    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with client_of(url) as client:
            first = await client.post(url, b"{}", 60)
            no_proxies.setattr(http, "_FRESH_SECONDS", 0)
            asked.set()
            closed.wait()  # the event loop stands still
            second = await client.post(url, b"{}", 60)
        thread.join()
    assert [first, second] == [Answer(200, b"one", {}), Answer(200, b"two", {})]


@asynccontextmanager
async def tunnelling(seen: list[bytes], status: str = "200 Connection established") -> AsyncIterator[int]:
    """A proxy that opens ways to where it is asked to."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if not status.startswith("200"):
            writer.close()
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    async with listening(handle) as port:
        yield port


async def test_https_goes_through_a_proxy_in_a_tunnel(
    certificate: ssl.SSLContext, tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    no_proxies.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    seen: list[bytes] = []
    heard: list[bytes] = []
    async with (
        listening(answering(answer(b"fine"), heard), certificate) as port,
        tunnelling(seen) as proxy,
    ):
        no_proxies.setenv("https_proxy", f"http://us%65r:p%40ss@127.0.0.1:{proxy}")
        reply = await post(f"https://localhost:{port}/v1")
    assert reply == Answer(200, b"fine", {})
    assert seen[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"user:p@ss") in seen[0]
    assert heard[0].startswith(b"POST /v1 HTTP/1.1") and b"Proxy" not in heard[0]


@pytest.mark.parametrize(
    ("status", "final"), [("407 Proxy Authentication Required", True), ("502 Bad Gateway", False)]
)
async def test_a_proxy_that_opens_no_way(status: str, final: bool, no_proxies: pytest.MonkeyPatch) -> None:
    async with tunnelling([], status) as proxy:
        no_proxies.setenv("https_proxy", f"127.0.0.1:{proxy}")
        reply = await post("https://models.example/v1")
    assert reply == NoAnswer(f"no connection: the proxy refuses it (HTTP {status[:3]})", final=final)
    assert reply.unreached


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "http://", "http://[::1"])
async def test_a_proxy_that_cannot_be_used_is_refused(proxy: str, no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", proxy)
    with pytest.raises(UsageError, match="The proxy in HTTP_PROXY cannot be used"):
        HttpClient(URL("http://models.example/v1"), {})


async def test_https_without_certificate_authorities_says_so(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    no_proxies.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    no_proxies.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="set SSL_CERT_FILE to a file"):
        HttpClient(URL("https://models.example/v1"), {})


async def test_a_header_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="header 'X-Name' holds a character"):
        HttpClient(URL("http://models.example/v1"), {"X-Name": "one\r\nX-Other: two"})


async def test_closing_ends_what_is_under_way() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        closed.set()
        writer.close()

    async with listening(wait) as port:
        client = HttpClient(URL(f"http://127.0.0.1:{port}/v1"), {})
        request = asyncio.create_task(client.post(f"http://127.0.0.1:{port}/v1", b"{}", 60))
        await arrived.wait()
        await client.close()
        assert isinstance(await request, NoAnswer)
        await closed.wait()


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
