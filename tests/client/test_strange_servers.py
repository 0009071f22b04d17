"""What answers at the server's address is not the server, or answers without an end."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
