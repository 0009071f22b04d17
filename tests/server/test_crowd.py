"""One address that holds many connections, sends too much or too deep: real sockets, and other people are served."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.server.client import Client
from tests.server.conftest import Running, Start
from whet_live.server.app_state import client_of
from whet_live.server.limits import ServerLimits

OTHER = "127.0.0.2"
"""Another address of this machine."""


def from_other(port: int, path: str = "/healthz") -> int:
    """The status that somebody at another address gets."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(OTHER, 0))
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        return connection.getresponse().status
    except OSError as error:
        if "assign" in str(error):
            pytest.skip(f"{OTHER} is no address here")
        raise
    finally:
        connection.close()


def test_silent_sockets_of_one_address_leave_room_for_others(start: Start) -> None:
    with start() as server, ExitStack() as open_:
        from_other(server.port)
        for _ in range(1_100):
            open_.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert [from_other(server.port) for _ in range(5)] == [200] * 5
        assert len(server.state.metrics.text()) and server.state.limits.address_connections == 64


def test_silent_sockets_of_many_addresses_leave_room_for_those_that_ask(start: Start) -> None:
    limits = ServerLimits(connections=24, address_connections=8)
    with start(limits) as server, ExitStack() as open_:
        from_other(server.port)
        for last in range(3, 10):
            for _ in range(8):
                source = (f"127.0.0.{last}", 0)
                open_.enter_context(socket.create_connection(("127.0.0.1", server.port), 60, source))
        assert [from_other(server.port) for _ in range(30)] == [200] * 30
        drips = [
            open_.enter_context(socket.create_connection(("127.0.0.1", server.port), 60, (f"127.0.0.{n}", 0)))
            for n in range(10, 60)
        ]
        for drip in drips:  # headers are complete, the body never comes
            with suppress(OSError):
                drip.sendall(
                    b"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{"
                )
        assert [from_other(server.port) for _ in range(30)] == [200] * 30


def test_silent_sockets_before_the_handshake_leave_room_for_those_that_speak_tls(
    start: Start, tmp_path: Path
) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip("openssl makes the certificate")
    files = {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    trust = ssl.create_default_context(cafile=files["certificate"])

    with start(ServerLimits(connections=24, address_connections=8), **files) as server, ExitStack() as open_:

        def silent(address: str) -> socket.socket:
            return open_.enter_context(
                socket.create_connection(("127.0.0.1", server.port), 60, source_address=(address, 0))
            )

        def ask() -> int:
            made = http.client.HTTPSConnection(
                "127.0.0.1", server.port, context=trust, timeout=60, source_address=(OTHER, 0)
            )
            with closing(made) as connection:
                connection.request("GET", "/healthz", headers={"Host": "localhost"})
                return connection.getresponse().status

        try:
            silent(OTHER).close()
        except OSError:
            pytest.skip(f"{OTHER} is no address here")
        assert ask() == 200
        ninth = [silent("127.0.0.1") for _ in range(9)][8]
        with suppress(ConnectionResetError):
            assert ninth.recv(1) == b"", "one too many of its address is turned away at once"
        for last in range(3, 10):
            for _ in range(8):
                silent(f"127.0.0.{last}")
        assert [ask() for _ in range(10)] == [200] * 10


def test_one_too_many_is_refused_until_another_one_ends(start: Start) -> None:
    with start(ServerLimits(address_connections=3)) as server, ExitStack() as open_:
        held = [
            open_.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)) for _ in range(4)
        ]
        assert held[3].recv(12) == b"HTTP/1.1 429"
        for one in held[:3]:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(12)
        held[0].close()
        for _ in range(100):
            try:
                if Client(server.port).get("/healthz").status == 200:
                    break
            except OSError:
                continue
        else:
            pytest.fail("nobody was let in after one left")


def test_a_proxy_that_is_believed_has_connections_for_many(sqlite_url: str) -> None:
    from tests.server.conftest import running

    limits = ServerLimits(address_connections=2)
    with running(sqlite_url, limits=limits, proxies=("127.0.0.1",)) as server, ExitStack() as open_:
        for _ in range(20):
            open_.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert Client(server.port).get("/healthz", X_Forwarded_For="10.0.0.1").status == 200
        server.state.under_way["10.0.0.1"] = 2
        asked = [Client(server.port).get("/healthz", X_Forwarded_For=f"10.0.0.{n}").status for n in (1, 2)]
        assert asked == [429, 200]


def test_only_what_the_proxy_adds_is_believed() -> None:
    def client(address: str, header: str) -> str:
        scope = {"client": (address, 1), "headers": [(b"x-forwarded-for", header.encode())]}
        return str(client_of(scope, {"10.0.0.1", "10.0.0.2"})[0])

    assert client("10.0.0.1", "1.1.1.1, 2.2.2.2") == "2.2.2.2"
    assert client("10.0.0.1", "1.1.1.1, 2.2.2.2, 10.0.0.2") == "2.2.2.2"
    assert client("3.3.3.3", "2.2.2.2") == "3.3.3.3"
    assert client("10.0.0.1", "") == "10.0.0.1"


@pytest.mark.parametrize("token", ["app", None])
def test_a_body_that_is_too_large_gets_an_answer(server: Running, token: str | None) -> None:
    body = b" " * (8 * 1024 * 1024 + 1)
    answer = server.client(token).ask("POST", "/v1/feedback", body, Content_Type="application/json")
    assert answer.status == (413 if token else 401)


@pytest.mark.parametrize("depth", [5_000, 1_000, 990, 900, 300])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_json_is_refused(server: Running, depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    deep = opening * depth + "1" + closing * depth
    bodies = {
        "/v1/feedback": [f'{{"feedback": [{{"kind": "comment", "target": "a", "text": "b", "meta": {deep}}}]}}', deep],
        "/v1/inferences": [f'{{"inferences": [{{"prompt": "p", "input": {deep}}}]}}', deep],
        "/v1/otlp/v1/traces": [deep, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "a", "attributes": [
                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                {"key": "gen_ai.input.messages", "value": {"stringValue": deep}}]}]}]}]})],
        "/v1/otlp/v1/logs": [deep],
    }  # fmt: skip
    for path, sent in bodies.items():
        for body in sent:
            answer = server.client("app").ask("POST", path, body.encode(), Content_Type="application/json")
            assert answer.status < 500, (path, answer.body[:300])
    for role, path in (("editor", "/v1/prompts"), ("editor", "/v1/proposals"), ("admin", "/v1/experiments")):
        answer = server.client(role).ask("POST", path, deep.encode(), Content_Type="application/json")
        assert answer.status < 500, (path, answer.body[:300])
