"""What every request passes: names, origins, sessions, sizes, rates, times, failures. Over real sockets."""

from __future__ import annotations

import gzip
import json
import logging
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.client import FORM, Client
from tests.server.conftest import Running, Start
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_live.server.app import Server
from whet_live.server.app_state import AppState, ServerSettings
from whet_live.server.endpoint import EndpointRouter, check, routes
from whet_live.server.limits import MOST_KEYS, Buckets, ServerLimits, TokenBucket
from whet_live.server.middleware import POLICY
from whet_live.server.pages.access import safe_path
from whet_live.server.roles import PUBLIC


@contextmanager
def dialled(port: int) -> Iterator[socket.socket]:
    """A bare connection."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def everything(connection: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def test_every_answer_carries_the_security_headers(server: Running) -> None:
    client, browser = server.client(), server.browser("admin")
    answers = [
        client.get("/healthz"),
        client.page("/nowhere"),
        client.page("/login"),
        client.get("/v1/prompts"),
        client.get("/healthz", Host="evil.example"),
        browser.page("/access"),
        browser.ask("DELETE", "/access"),
    ]
    assert {answer.status for answer in answers} == {200, 404, 401, 421, 405}
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY and "frame-ancestors 'none'" in POLICY


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:80", "", "127.0.0.1:", "127.0.0.1:x",
        "127.0.0.1:80:80", "[::1", "127.0.0.1/", "user@127.0.0.1", "127.0.0.1 evil", "127.1", "2130706433", "0.0.0.0",
    ],
)  # fmt: skip
def test_other_names_are_not_answered(server: Running, host: str) -> None:
    assert server.client("admin").get("/access", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8321"])
def test_loopback_names_are_answered(server: Running, host: str) -> None:
    assert server.client().get("/healthz", Host=host).status == 200


def test_two_hosts_or_none_are_no_host(server: Running) -> None:
    for head in (b"Host: localhost\r\nHost: localhost\r\n", b""):
        with dialled(server.port) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n")
            assert b" 421 " in everything(connection).split(b"\r\n")[0]


def test_an_absolute_address_does_not_replace_the_host(server: Running) -> None:
    with dialled(server.port) as connection:
        connection.sendall(
            b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert b" 421 " in everything(connection).split(b"\r\n")[0]


def test_a_token_in_the_address_opens_nothing(server: Running) -> None:
    token = server.tokens["admin"]
    for name in ("token", "access_token", "authorization"):
        assert server.client().get(f"/access?{name}={token}").status == 401


@pytest.mark.parametrize(
    "given",
    ["Bearer", "Bearer ", "bearer zq9", "Basic YTpi", "Bearer ' OR '1'='1", "Bearer whet_" + "a" * 5000, "Bearer \xff\xfe",
     "x" * 9000],
)  # fmt: skip
def test_a_wrong_authorization_is_refused_and_not_repeated(server: Running, given: str) -> None:
    answer = server.client().get("/v1/prompts", Authorization=given)
    assert answer.status == 401
    secret = given.partition(" ")[2]
    assert not secret or secret not in answer.body.decode("latin-1")


def test_the_session_cookie_is_out_of_reach(server: Running) -> None:
    answer = server.client().sign_in(server.tokens["viewer"])
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert server.tokens["viewer"] not in str(answer.headers)


def test_behind_tls_the_cookie_is_bound_to_the_host_and_to_tls(start: Start) -> None:
    with start(url="https://whet.example") as server:
        client = server.client()
        answer = client.submit(
            "/login", {"token": server.tokens["viewer"]}, Host="whet.example", Origin="https://whet.example"
        )
        assert answer.status == 303
        assert answer.headers["set-cookie"].startswith("__Host-whet_session=")
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "strict-transport-security" in answer.headers
        other = client.submit(
            "/login", {"token": server.tokens["viewer"]}, Host="whet.example", Origin="http://whet.example"
        )
        assert other.status == 403


def test_a_form_needs_the_secret_of_its_session(server: Running) -> None:
    browser, other = server.browser("admin"), server.browser("admin")
    fields = {"name": "ada", "role": "viewer"}
    for wrong in ("", "0" * 64, other.csrf, browser.csrf[:-1]):
        assert browser.submit("/access", {**fields, "csrf": wrong}).status == 403
    assert browser.submit("/access", fields, Cookie=None).status == 401
    assert browser.submit("/access", fields).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "", None]
)
def test_a_form_of_another_site_is_refused(server: Running, origin: str | None) -> None:
    browser = server.browser("admin")
    assert browser.submit("/access", {"name": "ada", "role": "viewer"}, Origin=origin).status == 403
    if origin is not None:
        assert server.client("admin").send("/v1/feedback", {}, Origin=origin).status == 403
        assert (
            server.client().submit("/login", {"token": server.tokens["admin"]}, Origin=origin).status == 403
        )


def test_a_session_ends_with_sign_out(server: Running) -> None:
    browser = server.browser("viewer")
    assert browser.page("/prompts").status == 200
    assert browser.submit("/logout", {}).status == 303
    assert browser.page("/prompts").status == 303


def test_sign_in_leads_on_within_this_server_only(server: Running) -> None:
    client = server.client()
    answer = client.page("/review?x=%0a%2f")
    assert answer.status == 303 and answer.headers["location"] == "/login?next=%2Freview%3Fx%3D%250a%252f"
    for wanted, led in (
        ("/review?x=1", "/review?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://e", "/"),
        ("/prompts/größe 日本?a=€", "/prompts/gr%C3%B6%C3%9Fe%20%E6%97%A5%E6%9C%AC?a=%E2%82%AC"),
    ):
        entered = client.submit("/login", {"token": server.tokens["viewer"], "next": wanted})
        assert entered.headers["location"] == led
    assert safe_path("/a\nb") == "/"


def test_a_wrong_token_in_the_form_is_told_and_not_repeated(server: Running) -> None:
    answer = server.client().submit("/login", {"token": "whet_wrong"})
    assert answer.status == 403 and "set-cookie" not in answer.headers
    assert "whet_wrong" not in answer.text and "does not open the page" in answer.text


def test_too_many_wrong_tokens_are_stopped_and_right_ones_still_work(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "whet_live.server.app_state.REMEMBERED_SECONDS", -1.0
    )  # every caller is looked up every time
    with start(ServerLimits(failures=TokenBucket(0.001, 5))) as server:
        client, known = server.client(), server.client("viewer")
        assert known.get("/v1/prompts").status == 200
        found = [client.get("/v1/prompts", Authorization=f"Bearer {n}").status for n in range(7)]
        assert found == [401] * 5 + [429] * 2
        assert client.submit("/login", {"token": "wrong"}).status == 429
        assert known.get("/v1/prompts").status == 200
        assert server.browser("editor").page("/prompts").status == 200


def test_ended_sessions_are_not_wrong_tokens(start: Start) -> None:
    with start(ServerLimits(failures=TokenBucket(0.001, 1))) as server:
        old = [server.client().page("/prompts").status for _ in range(2)]
        browser = server.client()
        browser.cookie = "whet_session=ended"
        assert [browser.page("/prompts").status for _ in range(3)] == [303] * 3 and old == [303] * 2
        assert browser.page("/login").status == 200


def test_each_caller_has_a_rate_of_its_own(start: Start) -> None:
    with start(ServerLimits(use=TokenBucket(0.001, 3))) as server:
        one, two = server.client("viewer"), server.client("editor")
        assert [one.get("/v1/prompts").status for _ in range(4)] == [200, 200, 200, 429]
        answer = one.get("/v1/prompts")
        assert int(answer.headers["retry-after"]) > 100
        assert two.get("/v1/prompts").status == 200


def test_strangers_share_the_rate_of_their_address(start: Start) -> None:
    with start(ServerLimits(anonymous=TokenBucket(0.001, 2))) as server:
        client = server.client()
        assert [client.get("/healthz").status for _ in range(3)] == [200, 200, 429]


def test_one_byte_too_many(start: Start) -> None:
    with start(ServerLimits(form_bytes=200, ingest_bytes=300, json_bytes=200, form_fields=3)) as server:
        app, browser = server.client("app"), server.browser("admin")
        for size, status in ((300, 400), (301, 413)):
            assert (
                app.ask("POST", "/v1/feedback", b"x" * size, Content_Type="application/json").status == status
            )
        packed = gzip.compress(b" " * 100_000)
        assert len(packed) < 300
        assert (
            app.ask(
                "POST", "/v1/feedback", packed, Content_Type="application/json", Content_Encoding="gzip"
            ).status
            == 413
        )
        head = f"csrf={browser.csrf}&name=".encode()
        for size, status in ((200, 400), (201, 413)):
            body = head + b"a" * (size - len(head))
            given = {"Content_Type": FORM, "Origin": browser.origin}
            assert browser.ask("POST", "/access", body, **given).status == status
        assert browser.submit("/access", {"name": "a", "role": "viewer", "more": "1"}).status == 400


def test_chunks_are_counted_too(start: Start) -> None:
    with start(ServerLimits(ingest_bytes=100)) as server, dialled(server.port) as connection:
        head = f"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['app']}\r\n"
        connection.sendall(
            head.encode() + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(b"64\r\n" + b" " * 100 + b"\r\n1\r\n \r\n")
        with connection.makefile("rb") as answer:  # not to its end: the rest of the body may still come
            assert b" 413 " in answer.readline()


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"no gzip", "gzip", 400),
        (gzip.compress(b"{}", mtime=0)[:-3], "gzip", 400),
        (b"no deflate", "deflate", 400),
        (zlib.compress(b"{}")[:-3], "deflate", 400),
        (b"{}", "br", 415),
        (b"{}", "identity", 400),
    ],
)
def test_packed_bodies_are_unpacked_or_refused(
    server: Running, body: bytes, encoding: str, status: int
) -> None:
    given = {"Content_Type": "application/json", "Content_Encoding": encoding}
    assert server.client("app").ask("POST", "/v1/feedback", body, **given).status == status


def test_a_body_that_never_ends_is_cut_off(start: Start) -> None:
    with start(ServerLimits(receive=0.2)) as server, dialled(server.port) as connection:
        head = f"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['app']}\r\n"
        connection.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in everything(connection).split(b"\r\n")[0]


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(start: Start) -> None:
    with start(ServerLimits(send=1.0, use=TokenBucket(1e6, 1e6))) as server:
        registry = server.state.live.registry
        for n in range(14):
            registry.create("long", Prompt.parse(f"{n} " + "x" * 900_000), author="test")
        with dialled(server.port) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"GET /v1/versions/long HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['viewer']}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
            viewer, connections = server.client("viewer"), 2
            while connections > 1:  # the one that asks, when the other one is cut off
                said = re.search(r"whet_http_connections (\d+)", viewer.get("/metrics").text)
                assert said is not None
                connections = int(said[1])


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local"])
def test_headers_that_never_end_are_cut_off(start: Start, sent: bytes) -> None:
    with start(ServerLimits(receive=0.2)) as server, dialled(server.port) as connection:
        connection.sendall(sent)
        assert b" 408 " in everything(connection).split(b"\r\n")[0]


def test_a_second_request_that_never_ends_is_cut_off(start: Start) -> None:
    with start(ServerLimits(receive=1.0)) as server, dialled(server.port) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTT")
        found = everything(connection)
        assert found.count(b"HTTP/1.1 200 ") == 1 and found.count(b"HTTP/1.1 408 ") == 1


COMPLETE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("before", [b"", COMPLETE], ids=["first", "second"])
@pytest.mark.parametrize(
    "drops", [b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000, b"\r\n" * 5_000], ids=["headers", "lines"]
)
def test_what_drips_in_byte_by_byte_is_cut_off_within_the_limit(
    start: Start, before: bytes, drops: bytes
) -> None:
    """Each byte comes in time, the request never: the limit is on the whole of it, also after one that was answered."""
    with start(ServerLimits(receive=0.5)) as server, dialled(server.port) as connection:
        found = b""
        if before:
            connection.sendall(before)
            while b"ok" not in found.rpartition(b"\r\n\r\n")[2].lower():
                found += connection.recv(65_536)
        connection.settimeout(0.02)
        for drop in drops:
            try:
                connection.sendall(bytes([drop]))
                found += connection.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                break
            if b" 408 " in found:
                break
        assert found.count(b" 408 ") == 1


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 40_000 + b"\r\n",
        b"".join(b"X-%d: 1\r\n" % n for n in range(200)),
        b"X: " + b"a" * 400_000,
    ],
)
def test_headers_have_a_size_and_a_number(server: Running, head: bytes) -> None:
    with dialled(server.port) as connection:
        try:
            connection.sendall(
                b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"Connection: close\r\n\r\n"
            )
            said = everything(connection).split(b"\r\n")[0]
        except ConnectionError:
            said = b" 431 "
        assert b" 400 " in said or b" 431 " in said


def test_a_long_address_is_refused(server: Running) -> None:
    assert server.client().get("/healthz?" + "a" * 40_000).status in (400, 431)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../access.py", "/static/..%2faccess.py", "/static/%2e%2e/%2e%2e/etc/passwd", "/static//etc/passwd",
        "/static/page.css",
        "/static/C:%5cwindows", "/static/%5c%5chost%5cshare", "/static/a%00b", "/runs/../../etc/passwd", "/runs/%2e%2e%2f%2e%2e",
        "/runs//etc", "/v1/runs/..%2f..", "/v1/runs/%00", "/v1/runs/C:%5c", "/runs/con", "/v1/runs/~root",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(server: Running, path: str) -> None:
    answer = server.client("admin").get(path)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body and b"import" not in answer.body


def test_a_nul_is_refused_before_anything_reads_it(server: Running) -> None:
    client = server.client("admin")
    assert client.get("/v1/prompts/a%00b").status == 400
    assert client.get("/v1/prompts?query=a%00b").status == 400
    assert server.browser("admin").submit("/access", {"name": "a\x00", "role": "viewer"}).status == 400


def test_fields_that_are_no_text_are_refused(server: Running) -> None:
    assert server.client("admin").get("/v1/prompts?query=%ff").status == 400


def test_a_failure_says_a_number_and_nothing_else(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("the secret of all secrets")

    client = server.client("admin")
    assert client.get("/access").status == 200
    monkeypatch.setattr(server.state.access, "users", fail)
    logging.getLogger("whet.live.server").propagate = True
    with caplog.at_level(logging.INFO):
        answer = client.get("/access")
    assert answer.status == 500 and "number" in answer.message
    assert "secret of all" not in answer.text
    logged = json.dumps([getattr(record, "facts", {}) for record in caplog.records]) + caplog.text
    assert "RuntimeError" in logged and "secret of all" not in logged


def test_the_logs_hold_no_token_and_no_query(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("whet.live.server").propagate = True
    with caplog.at_level(logging.DEBUG):
        server.client("admin").get("/v1/prompts?query=canary-query")
        server.browser("viewer").page("/prompts?q=canary-query")
        server.client().get("/v1/prompts", Authorization="Bearer canary-token")
    facts = [getattr(record, "facts", {}) for record in caplog.records]
    logged = json.dumps(facts) + caplog.text
    assert {"/v1/prompts", "/prompts", "/login"} <= {fact.get("route") for fact in facts}
    assert "canary" not in logged and not [t for t in server.tokens.values() if t[5:] in logged]


def test_the_figures_tell_routes_not_addresses(server: Running) -> None:
    server.client("viewer").get("/v1/prompts/no/such-canary")
    server.client("viewer").get("/canary")
    text = server.client("viewer").get("/metrics").text
    assert 'whet_http_requests_total{method="GET",route="/v1/prompts/{name:path}",status="404"} 1.0' in text
    assert "canary" not in text


def test_other_protocols_are_not_spoken(server: Running) -> None:
    with dialled(server.port) as connection:
        connection.sendall(
            b"GET /v1/prompts HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert b" 401 " in everything(connection).split(b"\r\n")[0]


def test_a_route_without_a_permission_is_not_served() -> None:
    router = EndpointRouter()

    @router("GET", "/forgotten")
    def forgotten(call: Any) -> Any:
        return None

    with pytest.raises(UsageError, match="/forgotten declares no permission"):
        routes([router])
        check(routes([router]))


def test_a_route_that_is_no_endpoint_is_not_served() -> None:
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def plain(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    for route in (Route("/plain", plain), Mount("/files", app=plain)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no endpoint"):
            check([route])


def test_the_application_refuses_to_start_with_a_forgotten_permission(server: Running) -> None:
    router = EndpointRouter()
    router("GET", "/forgotten")(lambda call: None)  # type: ignore[arg-type,return-value]
    state = AppState(server.state.live, server.state.access, ServerSettings())
    with pytest.raises(UsageError, match="declares no permission"):
        Server(state, (router,))
    allowed = EndpointRouter()
    allowed("GET", "/fine", PUBLIC)(lambda call: None)  # type: ignore[arg-type,return-value]
    assert len(Server(state, (allowed,)).routes) == 1


def test_buckets_refill_and_forget_the_oldest() -> None:
    clock = [0.0]
    buckets = Buckets(TokenBucket(2.0, 2.0), lambda: clock[0])
    assert [buckets.take("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    clock[0] = 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") == 0.5
    for n in range(MOST_KEYS):
        buckets.take(f"k{n}")
    assert buckets.take("a") == 0.0


def test_client_addresses_sent_by_a_client_are_not_believed(start: Start) -> None:
    with start(ServerLimits(anonymous=TokenBucket(0.001, 2))) as server:
        client = Client(server.port)
        found = [
            client.get("/healthz", X_Forwarded_For=f"10.0.0.{n}", Forwarded=f"for=10.0.0.{n}").status
            for n in range(3)
        ]
        assert found == [200, 200, 429]
