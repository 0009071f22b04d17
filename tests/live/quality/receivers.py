"""Real receivers of alerts on this machine: an HTTP server and an SMTP server that keep what they get, and can refuse."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Received:
    """What came in; `refusals` are the statuses with which the next requests are answered, the first one first."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        self.refusals: list[int] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def http_receiver() -> Iterator[Received]:
    """An HTTP server that takes JSON."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.append(self.path)
            received.bodies.append(json.loads(body))
            status = received.refusals.pop(0) if received.refusals else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        yield from _serve(server, received)


class Inbox:
    """Mails that came in, with the addresses of their envelopes. `refuses` are recipients that are not known here."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[tuple[str, list[str]]] = []
        self.refuses: set[str] = set()
        self.port = 0


@contextmanager
def smtp_receiver() -> Iterator[Inbox]:
    """An SMTP server without TLS (RFC 5321: EHLO, MAIL, RCPT, DATA, RSET, QUIT)."""
    inbox = Inbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 here")
            sender, to = "", []
            while line := self.rfile.readline().decode().strip():
                word = line[:4].upper()
                if word == "EHLO":
                    self.say("250 here")
                elif word == "MAIL":
                    sender = line.partition("<")[2].partition(">")[0]
                    self.say("250 ok")
                elif word == "RCPT":
                    address = line.partition("<")[2].partition(">")[0]
                    if address in inbox.refuses:
                        self.say("550 unknown")
                    else:
                        to.append(address)
                        self.say("250 ok")
                elif word == "DATA":
                    self.say("354 go on")
                    self.take(sender, to)
                    self.say("250 ok")
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok" if word == "RSET" else "502 unknown")

        def take(self, sender: str, to: list[str]) -> None:
            lines = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line.removeprefix(b"."))
            inbox.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))
            inbox.envelopes.append((sender, to))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        inbox.port = server.server_address[1]
        yield from _serve(server, inbox)


def _serve(server: socketserver.BaseServer, value: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield value
    finally:
        server.shutdown()
        thread.join()
