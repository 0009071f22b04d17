"""A small server for the client: prompts from a dictionary, rows kept as they are read by the real reader of requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from whet.errors import UsageError
from whet_live.traffic.schema import RowsRefused, parse_feedback, read_inferences

TOKEN = "secret"


class World:
    """What the server knows and has seen. `broken` answers every request with a status, `taken` are ids in use."""

    def __init__(self) -> None:
        self.prompts: dict[tuple[str, str], dict[str, Any]] = {}
        self.experiments: list[Any] = []
        self.inferences: dict[str, Any] = {}
        self.feedback: dict[str, Any] = {}
        self.requests: list[tuple[str, str, int]] = []
        self.names_rows = False
        self.taken: set[str] = set()
        self.beyond: set[str] = set()
        self.broken = 0
        self.lock = threading.Lock()

    def put(self, name: str, text: str, version: int = 1, label: str = "production", **more: Any) -> None:
        """Store a version under a label and under its number."""
        value = {
            "name": name, "version": version, "messages": [{"role": "auto", "content": text}], "config": {}, **more,
        }  # fmt: skip
        self.prompts[name, label] = value
        self.prompts[name, str(version)] = value

    def answer(
        self, method: str, target: str, headers: Any, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        path = urlsplit(target)
        status, found, more = 200, {}, {}
        if self.broken:
            status, found = self.broken, {"error": {"status": self.broken, "message": "broken"}}
        elif headers.get("Authorization") != f"Bearer {TOKEN}":
            status, found = 401, {"error": {"status": 401, "message": "Who are you?"}}
        elif method == "GET":
            query = {key: values[0] for key, values in parse_qs(path.query).items()}
            if path.path == "/v1/assignments":
                value: Any = {"experiments": self.experiments}
            else:
                which = query.get("label") or query["version"]
                value = self.prompts.get((unquote(path.path).removeprefix("/v1/prompts/"), which))
            if value is None:
                status, found = 404, {"error": {"status": 404, "message": "There is no such prompt."}}
            else:
                more = {"ETag": sha256(json.dumps(value).encode()).hexdigest()[:8]}
                found = value
                if headers.get("If-None-Match") == more["ETag"]:
                    return self.told(method, target, 304, more, b"")
        else:
            status, found = self.rows(path.path, json.loads(body))
        return self.told(method, target, status, more, json.dumps(found).encode())

    def told(
        self, method: str, target: str, status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer, written down."""
        self.requests.append((method, target, status))
        return status, headers, body

    def rows(self, path: str, body: Any) -> tuple[int, Any]:
        """Store the rows of a request altogether or not at all."""
        try:
            rows: list[Any] = read_inferences(body) if path == "/v1/inferences" else parse_feedback(body)
        except RowsRefused as error:
            refused = [row.as_json() for row in error.rows] if self.names_rows else []
            return 400, {"error": {"status": 400, "message": str(error)}, "refused": refused}
        except UsageError as error:
            return 400, {"error": {"status": 400, "message": str(error)}}
        first: dict[str, Any] = {}
        conflicts = [
            {"id": row.id}
            for row in rows
            if row.id in self.taken or replace(first.setdefault(row.id, row), time=row.time) != row
        ]
        refused = [{"id": row.id} for row in rows if row.id in self.beyond]
        if refused:
            return 403, {"error": {"status": 403, "message": "not for this prompt"}, "refused": refused}
        if conflicts:
            return 409, {"error": {"status": 409, "message": "taken"}, "conflicts": conflicts}
        kept = self.inferences if path == "/v1/inferences" else self.feedback
        with self.lock:
            kept.update({row.id: row for row in rows})
        return 200, {"accepted": len(rows), "duplicates": 0, "ids": [row.id for row in rows]}


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with kept-alive connections."""

    protocol_version = "HTTP/1.1"
    world: World

    def do_GET(self) -> None:
        """Any request."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, headers, found = self.world.answer(self.command, self.path, self.headers, body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Ends its connections when it stops, as a server that is killed does."""

    daemon_threads = True

    def __init__(self, world: World, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), type("Bound", (Handler,), {"world": world}))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.connections: list[Any] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection."""
        self.connections.append(request)
        super().process_request(request, client_address)

    def stop(self) -> None:
        """Stop listening, and cut every connection."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(2)
            except OSError:
                continue


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    """A running server of that world."""
    found = Server(world)
    yield found
    found.stop()
