"""What answers at the server's address is not the server, or answers without an end."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.client.conftest import TOKEN, World

from whet_client.connections import Http
from whet_client.http import HttpReply, Unavailable
from whet_client.sender import Sender

URL = "http://127.0.0.1:9"


@pytest.mark.parametrize("body", [b"<html>Sign in to this network</html>", b"{}", b"[]", b"7", b"null", b""])
def test_rows_are_kept_until_the_server_itself_has_them(world: World, body: bytes) -> None:
    found, strange = threading.Semaphore(0), [True]

    def send(method: str, path: str, headers: object, content: bytes | None) -> HttpReply:
        if strange:
            strange.clear()
            found.release()
            return HttpReply(200, {}, body)
        status, _, said = world.answer(method, path, {"Authorization": f"Bearer {TOKEN}"}, content or b"")
        return HttpReply(status, {}, said)

    sender = Sender(send, URL, None, 1_000_000, 0.0)
    sender.put("feedback", {"kind": "copy", "target": "i", "value": 1.0, "id": "f1"})
    assert found.acquire(timeout=60)
    assert sender.flush(60) and list(world.feedback) == ["f1"]
    sender.close(1)
    assert (sender.tally.sent, sender.tally.refused, sender.tally.lost) == (1, 0, 0)


@contextmanager
def dripping(chunked: bool) -> Iterator[str]:
    """A server that sends the body of its answer a byte at a time, for as long as somebody reads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            how = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000000000"
            with connection:
                connection.recv(65_536)
                connection.sendall(f"HTTP/1.1 200 OK\r\n{how}\r\n\r\n".encode())
                try:
                    for _ in itertools.repeat(None, 50_000_000):
                        connection.sendall(b"1\r\n \r\n" if chunked else b" ")
                except OSError:
                    return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_without_an_end_is_given_up(chunked: bool) -> None:
    with dripping(chunked) as url:
        http = Http(url, None, 0.2)
        with pytest.raises(Unavailable, match=r"not complete after|timed out"):
            http.send("GET", "/v1/prompts/p")
        http.close()


class KeptAlive(BaseHTTPRequestHandler):
    """A server that keeps connections, and notes requests and connections on itself."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Note a connection."""
        super().setup()
        self.server.connections += 1  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        """Note a request, and answer it whole: with a length, or in chunks."""
        self.server.requests.append(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            body = b"2\r\n{}\r\n0\r\n\r\n"
        else:
            self.send_header("Content-Length", "2")
            body = b"{}"
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("path", ["/whole", "/chunked"])
def test_a_kept_connection_takes_the_next_request_and_no_request_is_sent_twice(path: str) -> None:
    """Each request but the first of a connection came twice: the first answer was never taken for complete."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), KeptAlive)
    server.daemon_threads = True
    server.connections, server.requests = 0, list[bytes]()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    http = Http(f"http://127.0.0.1:{server.server_address[1]}", None, 60)
    bodies = [b"1", b"2", b"3"]
    assert [http.send("POST", path, {}, body).body for body in bodies] == [b"{}"] * 3
    http.close()
    server.shutdown()
    thread.join(60)
    server.server_close()
    assert (server.requests, server.connections) == (bodies, 1)  # type: ignore[attr-defined]
