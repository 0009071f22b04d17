"""Starting and stopping: who may reach the server, the first token, what a kill leaves; and `whet access`."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tests.live.tasks import LM, PROMPT, write_reviews
from tests.server.client import Client
from tests.serving import server_thread
from whet.errors import StorageError, UsageError
from whet.prompt import Prompt
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.cli.serve import access as access_command
from whet_live.cli.serve import serve as serve_command
from whet_live.erasure import retain
from whet_live.experiments import manager
from whet_live.learner import LearnerConfig, learner
from whet_live.learner.learner_store import LearnerSettings
from whet_live.server import background_tasks as work_module
from whet_live.server import middleware
from whet_live.server.access import Access, digest_secret
from whet_live.server.app_state import ServerSettings
from whet_live.server.background_tasks import BackgroundTasks
from whet_live.server.limits import TokenBucket
from whet_live.server.metrics import LOGGERS, log_to_stderr
from whet_live.server.pages import oidc
from whet_live.server.roles import Role
from whet_live.server.run import (
    ServeOptions,
    address_at,
    app_settings,
    background_of,
    serve,
    token_lines,
    welcome,
)
from whet_live.traffic.traffic_tables import inferences

PATIENCE = 600


@pytest.fixture
def logged() -> Iterator[None]:
    """The loggers as they were, after the test."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(one, one.handlers, one.propagate, one.level) for one in loggers]
    yield
    for one, handlers, propagate, level in before:
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("logged")
def test_every_logger_of_the_server_writes_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(logging.INFO)
    for logger in (middleware.log, work_module.log, oidc.log, manager.log, learner._log):
        logger.info("failure", extra={"facts": {"number": "21d15ee6"}})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["what"], line["number"]) for line in lines] == [("failure", "21d15ee6")] * 5


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(
    ("reader", "said"), [(None, "No model reads comments"), ("openai/reader", "The reader sees comments")]
)
def test_the_start_says_who_reads_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str | None, said: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    options = ServeOptions(
        port=0, database=f"sqlite:///{tmp_path}/whet.db", learner=LearnerConfig(optimizer_lm=reader)
    )
    lines = list[str]()

    def stop_before_it_serves(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(options, lines.append, stop_before_it_serves)
    assert sum(line.startswith(said) for line in lines) == 1, lines


PROGRAM = "from whet_live.cli.serve import serve; serve()"


@contextmanager
def process(url: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """`whet serve` in a process: itself, its port, and what it said before it served."""
    command = [sys.executable, "-c", PROGRAM, "--port", "0", "--database", url, *words]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        said = ""
        while "Application startup complete" not in said:
            line = started.stderr.readline()
            assert line, said
            said += line
        port = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert port is not None
        yield started, int(port[1]), said
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def first_token(started: subprocess.Popen[str]) -> str:
    """The token that the first start prints on stdout."""
    assert started.stdout is not None
    found = re.fullmatch(
        r"Open http://127\.0\.0\.1:\d+/login#token=(whet_[\w-]{43})\n", started.stdout.readline()
    )
    assert found is not None and "shown only now" in started.stdout.readline()
    return found[1]


def test_the_first_start_says_a_token_and_the_second_does_not(sqlite_url: str, tmp_path: Path) -> None:
    with process(sqlite_url, "--no-learn", "--runs", str(tmp_path)) as (started, port, said):
        token = first_token(started)
        assert "whet_" not in said
        assert Client(port, token).get("/metrics").status == 200
        assert Client(port).get("/v1/prompts").status == 401
        assert said.count("whet prompts protect '*' production --off") == 1
        started.send_signal(signal.SIGTERM)
        out, rest = started.communicate(timeout=PATIENCE)
        assert started.returncode == 0 and out == "" and "whet_" not in rest
    with process(sqlite_url, "--no-learn") as (started, port, said):
        assert "whet_" not in said and "Sign in with your token" in said and "--off" not in said
        assert Client(port, token).get("/metrics").status == 200
        started.send_signal(signal.SIGINT)
        assert started.wait(PATIENCE) == 0


def test_the_first_start_locks_production_and_the_log_says_so(sqlite_url: str) -> None:
    with process(sqlite_url, "--no-learn"):
        pass
    with open_live(sqlite_url) as live:
        registry = live.registry
        assert registry.protections() == [("*", "production")]
        (entry,) = [one for one in registry.audit().items if one.action == "label.protect"]
        assert (entry.actor, entry.subject, entry.details) == ("whet serve", "*", {"label": "production"})
        registry.create("p", Prompt.parse("Hello."), author="ann")
        with pytest.raises(UsageError, match="promote p VERSION --label production --request") as refused:
            registry.move_label("p", "production", 1, actor="bob")
        assert "whet prompts approve ID" in str(refused.value)
        registry.unprotect("*", "production", actor="ann")
        registry.protect("*", "staging", actor="ann")
    with process(sqlite_url, "--no-learn") as (_, _, said):
        assert "--off" not in said, "what was decided stays decided"
    with open_live(sqlite_url) as live:
        assert live.registry.protections() == [("*", "staging")]


def test_the_learner_in_the_server_works_without_a_person_where_it_may(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_reviews(tmp_path, prompt=PROMPT)
    goal = tmp_path / "goal.json"
    goal.write_text('{"goal": {"name": "thumb"}}', "utf-8")
    words = "Weigh the evidence carefully, mind the tone, and answer with a single word."
    with open_live(sqlite_url) as live:
        live.registry.create("shop/p", Prompt.parse(PROMPT), author="ann", label="production")
        rules = {"quorum": 3, "share": 0, "probation": 0}
        live.learner.configure("shop/p", LearnerSettings("auto", rules=rules), actor="ann")
        for user in "abc":
            asked = Inference("shop/p", 1, {"input": user}, "!", id=f"i{user}", user=user)
            said = Feedback("comment", asked.id, text=words, user=user, id=f"f{user}")
            live.traffic.add([asked], [said])
    options = ["--gate", f"*={task}", "--lm", LM, "--experiment", str(goal), "--every", "0.1"]
    options += ["--runs", str(tmp_path / "runs"), "--optimizer-lm", "openai/reader"]
    options += ["--optimizer-option", "key_variable=READER_KEY"]
    monkeypatch.setenv("READER_KEY", "the-key-of-the-reader")
    function = ("--function", "tests.live.reader:answer", "--api-key", "the-key-of-the-reader")
    with (
        server_thread(*function) as url,
        process(sqlite_url, *options, "--optimizer-base-url", url) as (started, port, said),
    ):
        client = Client(port, first_token(started))
        with open_live(sqlite_url) as live:  # requests would fill the pipe of the log, which nobody reads
            for _ in range(10 * PATIENCE):
                if live.experiments.list().items or started.poll() is not None:
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(0.1)
        running: list[dict[str, Any]] = client.get("/v1/experiments").json["experiments"]
        assert running, client.get("/v1/learning/shop/p").json
        assert client.get("/v1/labels/shop/p").json["labels"] == {"latest": 2, "production": 1, "staging": 2}
        assert [arm["version"] for arm in running[0]["definition"]["arms"]] == [1, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gate", "tasks"], "NAME=TASK"),
        (["--gate", "p=nowhere"], "no such task folder"),
        (["--experiment", "nowhere.json"], "cannot be read"),
        (["--every", "0"], "0.1"),
    ],
)
def test_what_the_learner_cannot_work_with_is_refused_before_anything_is_opened(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(serve_command, words)
    assert found.exit_code != 0 and said in f"{found.output}{found.exception}"
    assert list(tmp_path.iterdir()) == []


def test_nothing_accepted_is_lost_by_a_kill(sqlite_url: str) -> None:
    with process(sqlite_url, "--no-learn") as (started, port, _):
        client = Client(port, first_token(started))
        for n in range(60):
            row = {"kind": "rating", "target": "a", "value": 3, "id": f"f{n}"}
            assert client.send("/v1/feedback", {"feedback": [row]}).status == 200
        started.kill()
        started.wait(60)
    with open_live(sqlite_url) as live:
        assert {row.feedback.id for row in live.traffic.find(limit=100).rows} == {f"f{n}" for n in range(60)}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_needs_a_name_and_somebody_with_a_token(sqlite_url: str, host: str) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match="--url"):
        serve(ServeOptions(host=host, database=sqlite_url), said.append, said.append)
    with pytest.raises(UsageError, match="whet access add"):
        serve(
            ServeOptions(host=host, url="https://whet.example", database=sqlite_url), said.append, said.append
        )
    assert said == []
    with open_live(sqlite_url) as live:
        assert not Access(live.database).is_guarded(), "refusing made a token"


def test_there_is_no_way_to_serve_without_authentication() -> None:
    names = {
        option for parameter in serve_command.params for option in parameter.opts + parameter.secondary_opts
    }
    beside = {name for name in names if name.startswith("--oidc-")}  # tests/server/test_oidc.py
    assert not [
        name for name in names - beside if re.search("auth|insecure|public|open|anonym|token|role", name)
    ]
    assert {f.name for f in ServerSettings.__dataclass_fields__.values()} == {
        "hosts",
        "url",
        "runs",
        "proxies",
        "page_origins",
        "playground",
        "limits",
        "tls",
    }


NO_ORIGINS = (
    "https://", "https://a b", "https://user:key@a", "https://a/path", "https://a/?q=1", "https://a#x", "https://[::1",
    "https://a:99999", "https://a:b",
)  # fmt: skip


def test_an_address_that_is_taken_or_wrong_is_told(sqlite_url: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match="Choose another --port"),
    ):
        serve(ServeOptions(port=taken.getsockname()[1], database=sqlite_url), print, print)
    for options, said in (
        (ServeOptions(url="ftp://x"), "--url"),
        *((ServeOptions(url=url), "--url") for url in NO_ORIGINS),
        (ServeOptions(certificate="c.pem"), "belong together"),
        (ServeOptions(certificate="none.pem", key="none.pem"), "no such file"),
    ):
        with pytest.raises(UsageError, match=said):
            serve(options, print, print)


def test_hosts_are_loopback_the_public_name_and_those_given() -> None:
    assert app_settings(ServeOptions()).allowed == {"localhost", "127.0.0.1", "[::1]"}
    found = app_settings(ServeOptions(url="https://Whet.Example:8443/", hosts=("Other",)))
    assert found.allowed == {"localhost", "127.0.0.1", "[::1]", "whet.example", "other"} and found.secure
    assert app_settings(ServeOptions(certificate="c", key="k")).secure


def test_the_welcome_warns_of_tokens_in_the_clear() -> None:
    for address, warned in (("http://whet.example", True), ("https://whet.example", False)):
        options = ServeOptions(host="0.0.0.0", url=address)
        assert address_at(options, 1) == address
        assert ("Warning" in " ".join(welcome(options, address, None))) is warned
    for host in ("::1", "[::1]"):
        assert address_at(ServeOptions(host=host), 80) == "http://[::1]:80"
    assert token_lines("http://[::1]:80", "t")[0] == "Open http://[::1]:80/login#token=t"


def test_tls_without_a_proxy(sqlite_url: str, tmp_path: Path) -> None:
    import http.client
    import ssl

    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip("openssl makes the certificate")
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    command = [sys.executable, "-c", PROGRAM, "--port", "0", "--database", sqlite_url, "--no-learn", *files]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        port = re.search(r"https://127\.0\.0\.1:(\d+)", started.stderr.readline())
        assert port is not None
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            int(port[1]),
            context=ssl.create_default_context(cafile=str(tmp_path / "cert.pem")),
            timeout=60,
        )
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["strict-transport-security"]
        connection.close()
    finally:
        started.kill()
        started.communicate()


class Faulty:
    """Stands for what a server works on: fails at first, then says that it was asked again."""

    def __init__(self) -> None:
        self.looks = 0
        self.again = threading.Event()

    @property
    def experiments(self) -> Faulty:
        return self

    def refresh(self) -> None:
        """One look at the experiments."""
        self.looks += 1
        if self.looks == 1:
            raise StorageError("locked")
        if self.looks == 2:
            raise ZeroDivisionError
        self.again.set()


def test_what_the_server_does_by_itself_goes_on_after_a_failure_and_ends() -> None:
    faulty = Faulty()
    work = BackgroundTasks(cast(Live, faulty), seconds=0.001)
    before = {*threading.enumerate()}
    work.start()
    assert faulty.again.wait(60)
    work.stop()
    assert {*threading.enumerate()} <= before
    BackgroundTasks(cast(Live, Faulty())).stop()


def test_the_server_deletes_what_is_older_than_the_retention_and_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, looks = threading.Event(), []

    def watched(*given: Any, **more: Any) -> Any:
        looks.append(given)
        if len(looks) < 3:
            raise StorageError("locked") if len(looks) == 1 else ZeroDivisionError
        gone = retain(*given, **more)
        done.set()
        return gone

    monkeypatch.setattr(work_module, "retain", watched)
    monkeypatch.setattr(work_module, "RETAIN_SECONDS", 0.001)
    day = 86_400_000_000
    with open_live(f"sqlite:///{tmp_path}/r.db") as live:
        ages = {"old": 8, "young": 6}
        live.traffic.add([Inference("p", id=key) for key in ages])
        with live.database.begin() as connection:
            for key, days in ages.items():
                rows = inferences.update().where(inferences.c.id == key)
                connection.execute(rows.values(received=now() - days * day))
        work = background_of(live, ServeOptions(retention=7))
        work.start()
        assert done.wait(60)
        work.stop()
        assert [row.inference.id for row in live.traffic.inferences().rows] == ["young"]
        (line,) = live.registry.audit().items
        assert (line.actor, line.action, line.details["inferences"]) == ("whet serve", "traffic.expire", 1)


def test_the_retention_is_an_option_and_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ServeOptions] = []
    monkeypatch.setattr("whet_live.server.run.serve", lambda options, say, hand: asked.append(options))
    for words, variable in ([], None), ([], "30"), (["--retention-days", "7"], "30"):
        CliRunner().invoke(
            serve_command,
            [*words, "--no-learn"],
            env={"WHET_RETENTION_DAYS": variable},
            catch_exceptions=False,
        )
    assert [options.retention for options in asked] == [None, 30, 7]
    CliRunner().invoke(
        serve_command, ["--rows-per-second", "5", "--bytes-per-second", "6", "--disk-per-app", "7"]
    )
    limits = asked.pop().limits
    assert (limits.rows, limits.sent_bytes, limits.kept_bytes) == (TokenBucket(5, 50), TokenBucket(6, 60), 7)
    refused = CliRunner().invoke(serve_command, ["--retention-days", "0"])
    assert refused.exit_code == 2 and len(asked) == 3


def run(url: str, *words: str) -> str:
    """What a command of `whet access` prints."""
    done = CliRunner().invoke(access_command, [*words, "--database", url], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_access_by_the_command_line(sqlite_url: str) -> None:
    token = run(sqlite_url, "add", "maria", "--role", "admin").strip()
    other = run(sqlite_url, "token", "maria").strip()
    warned = CliRunner().invoke(access_command, ["add", "till", "--role", "app", "--database", sqlite_url])
    assert warned.exit_code == 0 and "--prompt NAME" in warned.output
    app = run(sqlite_url, "add", "shop", "--role", "app", "--prompt", "a/b", "--prompt", "c").strip()
    run(sqlite_url, "token", "shop", "--all-prompts")
    assert len({token, other, app}) == 3 and all(one.startswith("whet_") for one in (token, other, app))
    users = json.loads(run(sqlite_url, "list", "--json"))
    assert [(user["name"], user["role"]) for user in users] == [
        ("maria", "admin"),
        ("shop", "app"),
        ("till", "app"),
    ]
    listed = run(sqlite_url, "list")
    assert "  a/b, c\n" in listed and "  all prompts\n" in listed
    assert sorted(str(one["prompts"]) for one in users[1]["tokens"]) == ["None", "['a/b', 'c']"]
    assert token not in listed and users[0]["tokens"][0]["id"] in listed
    run(sqlite_url, "revoke", users[0]["tokens"][0]["id"])
    run(sqlite_url, "role", "shop", "--role", "viewer")
    with open_live(sqlite_url) as live:
        found = {user.name: user for user in Access(live.database).users()}
    assert found["shop"].app and found["shop"].role is Role.VIEWER
    assert [bool(one.revoked) for one in found["maria"].tokens] == [True, False]
    key = run(sqlite_url, "add", "pages", "--role", "page", "--prompt", "a/b").strip()
    assert key.startswith("whetp_") and "pages  page\n" in run(sqlite_url, "list")
    bare = CliRunner().invoke(access_command, ["add", "site", "--role", "page", "--database", sqlite_url])
    assert bare.exit_code != 0 and "--prompt NAME" in str(bare.exception)
    run(sqlite_url, "disable", "shop")
    with pytest.raises(UsageError, match="last admin"):
        run(sqlite_url, "disable", "maria")
    with pytest.raises(UsageError, match="cannot become a program"):
        run(sqlite_url, "role", "maria", "--role", "app")


def test_a_token_made_by_the_command_line_comes_with_the_link_that_signs_in(sqlite_url: str) -> None:
    """The token alone is on stdout, for scripts; a program gets no link, and no link is shown before a server ran."""

    def made(*words: str) -> tuple[str, str]:
        done = CliRunner().invoke(access_command, [*words, "--database", sqlite_url], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout.strip(), done.stderr

    assert made("add", "first", "--role", "admin")[1] == ""
    with open_live(sqlite_url) as live:
        Access(live.database).note_address("https://whet.example.org")
    secret, link = made("add", "maria", "--role", "viewer")
    assert link.strip() == f"Sign in: https://whet.example.org/login#token={secret}"
    assert made("token", "maria")[1].count("/login#token=") == 1
    assert made("add", "shop", "--role", "app", "--all-prompts")[1] == ""
    assert made("token", "shop", "--all-prompts")[1] == ""


def test_a_token_ends_after_its_days(sqlite_url: str) -> None:
    secret = run(sqlite_url, "add", "maria", "--role", "viewer", "--days", "3").splitlines()[0]
    more = run(sqlite_url, "token", "maria", "--days", "400").splitlines()[0]
    listed = run(sqlite_url, "list")
    assert listed.count("  until 20") == 2 and "expired" not in listed
    with open_live(sqlite_url) as live:
        moment = now()
        (maria,) = Access(live.database).users()
        (long, short) = (one.expires or 0 for one in maria.tokens)
        assert abs(short - moment - 3 * 86_400_000_000) < 600_000_000 and long > short
        later = Access(live.database, clock=lambda: short)
        assert (
            later.by_token(digest_secret(secret.encode())) is None
            and later.by_token(digest_secret(more.encode())) is not None
        )
        for days in (0, -1, 36_501):
            with pytest.raises(UsageError, match="36,500 days"):
                later.expiry(days)
