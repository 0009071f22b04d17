"""The server with real parts around it: PostgreSQL under several servers, a proxy that speaks TLS, an exporter of
OpenTelemetry, and kills while an experiment runs. Each test starts what it needs, and says what is missing."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import select

from tests.live.tasks import LM, PROMPT, write_reviews
from tests.server.client import FORM, Client
from tests.server.conftest import Running, Start
from tests.server.test_run import process
from tests.serving import server_thread
from whet.prompt import Prompt
from whet_client import Client as WhetClient
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.learner.learner_store import LearnerSettings
from whet_live.registry import ANY_PROMPT
from whet_live.server.access import Access
from whet_live.server.limits import ServerLimits, TokenBucket
from whet_live.server.roles import Role
from whet_live.traffic.traffic_tables import inferences

PATIENCE = 300
NAME = "shop/help"


# PostgreSQL, several servers, kill -9


def row(number: str) -> dict[str, Any]:
    return {"prompt": NAME, "version": 1, "output": "An answer.", "id": number}


def write(port: int, token: str, name: str, stored: list[str], stop: threading.Event) -> None:
    """Store answers one by one until told to stop; `stored` are the ids that the server acknowledged."""
    client, number = Client(port, token), 0
    while not stop.is_set():
        ids = [f"{name}-{number}-{n}" for n in range(3)]
        number += 1
        try:
            answer = client.send("/v1/inferences", {"inferences": [row(one) for one in ids]})
        except (OSError, http.client.HTTPException):
            return
        if answer.status in (200, 201, 202):
            stored.extend(ids)


@pytest.mark.long
def test_two_servers_on_one_postgresql_of_which_one_is_killed(postgresql_url: str) -> None:
    """What was acknowledged is there once, the other server goes on, and a third takes the place of the first."""
    with open_live(postgresql_url) as live:
        token = Access(live.database).add("shop", Role.VIEWER, app=True, by="test", prompts=[NAME])
        live.registry.create(NAME, Prompt.parse("Help."), author="ann", label="production")
    stop, stored = threading.Event(), [list[str](), list[str]()]
    with ExitStack() as stack:
        servers = [stack.enter_context(process(postgresql_url, "--no-learn")) for _ in range(2)]
        writers = [
            threading.Thread(target=write, args=(server[1], token, f"w{n}", stored[n], stop))
            for n, server in enumerate(servers)
        ]
        for writer in writers:
            writer.start()
        wait_until(lambda: all(len(ids) > 60 for ids in stored))
        os.kill(servers[0][0].pid, signal.SIGKILL)
        before = len(stored[1])
        wait_until(lambda: len(stored[1]) > before + 60)
        third = stack.enter_context(process(postgresql_url, "--no-learn"))
        wait_until(
            lambda: (
                Client(third[1], token).send("/v1/inferences", {"inferences": [row("last")]}).status == 200
            )
        )
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
    with open_live(postgresql_url) as live, live.database.read() as connection:
        ids = list(connection.execute(select(inferences.c.id)).scalars())
    assert len(ids) == len(set(ids))
    assert {*stored[0], *stored[1], "last"} <= set(ids)


def wait_until(holds: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait until something holds; fail after some minutes."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


# An experiment while servers are killed


def serve_users(live: Live, start: int, count: int, up: dict[int, float], errors: dict[int, float]) -> None:
    """An app in which users see what the running experiment assigns, and say what they think."""
    (definition,) = live.experiments.assignments(NAME)
    chance = random.Random(start)
    for number in range(start, start + count):
        user = f"user-{number}"
        version = version_for(definition, user)
        failed = chance.random() < errors[version]
        shown = Inference(
            NAME, version, user=user, experiment=definition["id"], variant=str(definition["revision"]),
            error="failed" if failed else None,
        )  # fmt: skip
        live.traffic.add(
            [shown], [Feedback("thumb", shown.id, float(chance.random() < up[version]), user=user)]
        )


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def test_an_experiment_survives_kills_of_its_server_and_the_label_goes_and_comes_back(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Killed before the decision and right after it; the move happens once, and harm after it takes the label back."""
    url: str = request.getfixturevalue(f"{kind}_url")
    with open_live(url) as live, ExitStack() as stack:
        registry = live.registry
        for text in ("Help.", "Help in one line."):
            registry.create(NAME, Prompt.parse(text), author="ann")
        registry.move_label(NAME, "production", 1, actor="ann")
        registry.protect_first(ANY_PROMPT, "production", actor="ann")
        registry.unprotect(ANY_PROMPT, "production", actor="ann")
        asked = {
            "prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}], "unit": "user", "cycles": 0,
            "goal": {"name": "thumb", "window": 0}, "guards": [{"metric": "error", "limit": 0.05}],
            "approval": False, "watch": {"seconds": 86400, "holdout": 0.5},
        }  # fmt: skip
        first = live.experiments.create(asked, author="ann")
        server = stack.enter_context(process(url, "--no-learn", "--every", "0.1"))
        serve_users(live, 0, 30, {1: 0.2, 2: 0.9}, {1: 0.0, 2: 0.0})
        os.kill(server[0].pid, signal.SIGKILL)
        serve_users(live, 30, 200, {1: 0.2, 2: 0.9}, {1: 0.0, 2: 0.0})
        assert live.experiments.get(first.id).state == "running"
        server = stack.enter_context(process(url, "--no-learn", "--every", "0.1"))
        wait_until(lambda: registry.labels(NAME)["production"] == 2)
        os.kill(server[0].pid, signal.SIGKILL)
        assert live.experiments.get(first.id).state == "winner"
        serve_users(live, 1000, 200, {1: 0.2, 2: 0.9}, {1: 0.0, 2: 0.9})
        stack.enter_context(process(url, "--no-learn", "--every", "0.1"))
        wait_until(lambda: registry.labels(NAME)["production"] == 1)
        moves = [
            (entry.action, entry.details)
            for entry in registry.audit().items
            if entry.action.startswith("label.")
        ]
        assert sum("production" in str(details) for _, details in moves) >= 3
        watched = [one for one in live.experiments.list().items if one.watches == first.id]
        assert [one.state for one in watched] == ["rolled_back"]
        assert registry.verify_audit().whole


# The mode auto, from a comment to a roll-back


@pytest.mark.long
def test_a_comment_becomes_a_version_that_is_gated_tried_promoted_and_taken_back(
    sqlite_url: str, tmp_path: Path
) -> None:
    """A whole server, spoken to as apps do; nobody decides anything after the mode was set."""
    task = write_reviews(tmp_path, prompt=PROMPT)
    tries = tmp_path / "experiment.json"
    experiment = {
        "goal": {"name": "thumb", "window": 0}, "unit": "user", "cycles": 0, "guards": [{"metric": "error", "limit": 0.05}],
        "approval": False, "watch": {"seconds": 86400, "holdout": 0.5},
    }  # fmt: skip
    tries.write_text(json.dumps(experiment), "utf-8")
    with open_live(sqlite_url) as live, ExitStack() as stack:
        registry = live.registry
        registry.create(NAME, Prompt.parse(PROMPT), author="ann", label="production")
        registry.protect_first(ANY_PROMPT, "production", actor="ann")
        registry.unprotect(ANY_PROMPT, "production", actor="ann")
        rules = {"quorum": 3, "share": 0, "probation": 0}
        live.learner.configure(NAME, LearnerSettings("auto", rules=rules), actor="ann")
        token = Access(live.database).add("shop", Role.VIEWER, app=True, by="test", prompts=[NAME])
        model = stack.enter_context(server_thread("--function", "tests.live.reader:answer"))
        options = ["--gate", f"*={task}", "--lm", LM, "--experiment", str(tries), "--every", "0.2"]
        options += ["--runs", str(tmp_path / "runs"), "--optimizer-lm", "openai/reader", "--base-url", model]
        started, port, _ = stack.enter_context(process(sqlite_url, *options))
        threading.Thread(target=lambda: started.stderr and started.stderr.read(), daemon=True).start()
        words = "Weigh the evidence carefully, mind the tone, and answer with a single word."
        with WhetClient(f"http://127.0.0.1:{port}", token, spool=None, timeout=60) as client:
            for user in "abc":
                answer = client.log(client.prompt(NAME, user=user), "!", inputs={"input": user}, user=user)
                client.feedback(answer, comment=words, user=user)
            assert client.flush(60)
        wait_until(lambda: live.experiments.list(NAME).items)
        (first,) = live.experiments.list(NAME).items
        assert (first.author, first.definition.versions, first.state) == ("learner", [1, 2], "running")
        assert registry.labels(NAME) == {"latest": 2, "production": 1, "staging": 2}
        learned = registry.get(f"{NAME}/2")
        assert learned.author == "learner" and learned.evidence is not None
        assert learned.evidence["gate"]["promoted"] is True
        serve_users(live, 0, 300, {1: 0.2, 2: 0.9}, {1: 0.0, 2: 0.0})
        wait_until(lambda: registry.labels(NAME)["production"] == 2)
        assert live.experiments.get(first.id).winner == 2
        serve_users(live, 1000, 300, {1: 0.2, 2: 0.9}, {1: 0.0, 2: 0.9})
        wait_until(lambda: registry.labels(NAME)["production"] == 1)
        assert registry.verify_audit().whole


# TLS behind a proxy


@contextmanager
def tls_proxy(port: int, folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """`tls_proxy.py` with a certificate for whet.example: its port, and what trusts it."""
    if which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=whet.example",
         "-addext", "subjectAltName=DNS:whet.example", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, capture_output=True, check=True,
    )  # fmt: skip
    command = [sys.executable, str(Path(__file__).with_name("tls_proxy.py")), str(folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield int(proxy.stdout.readline()), ssl.create_default_context(cafile=str(folder / "cert.pem"))
        finally:
            proxy.kill()


def over_tls(
    proxy: tuple[int, ssl.SSLContext],
    method: str,
    path: str,
    body: str = "",
    came_from: str = "127.0.0.1",
    **headers: str,
) -> Any:
    """One request to whet.example by way of the proxy, from an address of this machine: its status, headers and body."""
    port, trusts = proxy
    plain = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(came_from, 0))
    with trusts.wrap_socket(plain, server_hostname="whet.example") as connection:
        lines = {"Host": "whet.example", "Content-Length": str(len(body)), "Connection": "close", **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


def test_behind_a_proxy_that_speaks_tls(start: Start, tmp_path: Path) -> None:
    """The public address is an option, never a header: cookies are secure, and nothing forwarded is believed."""
    forged = {
        "X_Forwarded_Host": "evil.example",
        "X_Forwarded_Proto": "http",
        "X_Forwarded_For": "10.0.0.1",
        "Forwarded": "host=evil.example",
    }
    with start(url="https://whet.example") as server, tls_proxy(server.port, tmp_path) as proxy:
        form = urlencode({"token": server.tokens["viewer"]})
        send = {"Content_Type": FORM, "Accept": "text/html", "Origin": "https://whet.example", **forged}
        status, headers, _ = over_tls(proxy, "POST", "/login", form, **send)
        assert status == 303 and "evil" not in headers["location"]
        cookie = headers["set-cookie"]
        assert cookie.startswith("__Host-whet_session=") and "secure" in cookie.lower()
        assert headers["strict-transport-security"]
        seen = {"Accept": "text/html", "Cookie": cookie.partition(";")[0], **forged}
        status, headers, body = over_tls(proxy, "GET", "/prompts", **seen)
        assert status == 200 and b"evil" not in body
        foreign = {**send, "Origin": "https://evil.example"}
        assert over_tls(proxy, "POST", "/login", form, **foreign)[0] == 403
        assert over_tls(proxy, "GET", "/healthz", Host="evil.example")[0] in (400, 421)


@pytest.mark.parametrize("believed", [True, False])
def test_an_address_is_that_of_the_client_behind_a_proxy_that_is_named(
    start: Start, tmp_path: Path, believed: bool
) -> None:
    """Wrong tokens are counted for the address that the proxy saw, whatever the client says of itself; for the proxy's own
    where it is not named."""
    limits = ServerLimits(failures=TokenBucket(0.001, 2))
    proxies = ("127.0.0.1",) if believed else ()
    with (
        start(limits, url="https://whet.example", proxies=proxies) as server,
        tls_proxy(server.port, tmp_path) as proxy,
    ):

        def wrong(address: str, number: int) -> int:
            claims = {"Authorization": f"Bearer wrong{number}", "X_Forwarded_For": f"10.0.0.{number}"}
            return int(over_tls(proxy, "GET", "/v1/prompts", came_from=address, **claims)[0])

        assert [wrong("127.0.0.2", n) for n in range(4)] == [401, 401, 429, 429]
        assert wrong("127.0.0.3", 9) == (401 if believed else 429)


def test_without_a_public_address_a_forwarded_one_changes_nothing(server: Running) -> None:
    """A client in the clear that says it came by TLS gets the cookie of a client in the clear, and no other name is answered."""
    client = server.client()
    claims = {
        "X_Forwarded_Proto": "https",
        "X_Forwarded_Host": "whet.example",
        "Forwarded": "proto=https;host=whet.example",
    }
    answer = client.submit("/login", {"token": server.tokens["viewer"]}, **claims)
    assert answer.status == 303 and "strict-transport-security" not in answer.headers
    assert "__Host-" not in answer.headers["set-cookie"] and "whet.example" not in str(answer.headers)
    assert client.get("/healthz", Host="whet.example", X_Forwarded_Host="127.0.0.1").status == 421


# OTLP in protobuf over HTTP


def test_spans_in_protobuf_come_in_over_http(server: Running) -> None:
    """What an exporter sends: protobuf, packed with gzip, and sent again after a lost answer; a refusal is protobuf as well."""
    trace = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="opentelemetry-proto makes the messages",
    )
    message = trace.ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for number in range(3):
        span = spans.add(
            trace_id=bytes([7] * 16), span_id=bytes([number + 1] * 8), name="chat", kind=3,
            start_time_unix_nano=1_790_000_000_000_000_000, end_time_unix_nano=1_790_000_001_500_000_000,
        )  # fmt: skip
        texts = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "talk",
            "whet.prompt": NAME, "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": f"Größe {number}"}]}]
            ),
        }  # fmt: skip
        for key, value in texts.items():
            span.attributes.add(key=key).value.string_value = value
    body = message.SerializeToString()
    app = server.client("app")
    for _ in range(2):
        answer = app.ask(
            "POST", "/v1/otlp/v1/traces", gzip.compress(body),
            Content_Type="application/x-protobuf", Content_Encoding="gzip",
        )  # fmt: skip
        assert answer.status == 200 and answer.headers["content-type"] == "application/x-protobuf"
        reply = trace.ExportTraceServiceResponse()
        reply.ParseFromString(answer.body)
        assert not reply.HasField("partial_success")
    with server.state.live.database.read() as connection:
        rows = connection.execute(select(inferences.c.output, inferences.c.session)).all()
    assert sorted((row.output, row.session) for row in rows) == [(f"Größe {n}", "talk") for n in range(3)]
    refused = app.ask("POST", "/v1/otlp/v1/traces", b"\xff\xff", Content_Type="application/x-protobuf")
    assert refused.status == 400 and refused.headers["content-type"] == "application/x-protobuf"
    assert (
        Client(server.port)
        .ask("POST", "/v1/otlp/v1/traces", body, Content_Type="application/x-protobuf")
        .status
        == 401
    )
