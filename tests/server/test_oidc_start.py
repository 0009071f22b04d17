"""Starting a server with an identity provider: options, what is said at the start, what is imported; and `whet access link`."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from tests.server.client import Client
from tests.server.identity_provider import CLIENT, SECRET, Provider, identity_provider
from tests.server.test_oidc import Browser, name_shown
from tests.server.test_run import first_token, process
from whet.errors import UsageError
from whet_live import open_live
from whet_live.cli.serve import access as access_command
from whet_live.cli.serve import serve as serve_command
from whet_live.database import Database
from whet_live.server.access import Access, digest_secret
from whet_live.server.oidc.settings import RoleRule, read_groups
from whet_live.server.roles import Role


@pytest.fixture
def provider() -> Iterator[Provider]:
    with identity_provider() as running_provider:
        yield running_provider


def settled(provider: Provider, *words: str) -> list[str]:
    return ["--oidc-issuer", provider.address, "--oidc-client-id", CLIENT, *words]


def failed(*words: str, **environment: str) -> str:
    """What a start that is refused says."""
    done = CliRunner().invoke(serve_command, ["--no-learn", "--port", "0", *words], env=environment)
    assert done.exit_code != 0
    return str(done.exception) if isinstance(done.exception, UsageError) else done.output


def test_a_server_process_signs_people_in(
    sqlite_url: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_OIDC_CLIENT_SECRET", SECRET)
    monkeypatch.setenv("WHET_OIDC_ROLES", "editor=domain:example.org approver=email:bob@example.org")
    host = provider.address.removeprefix("http://")
    with process(sqlite_url, "--no-learn", *settled(provider)) as (started, port, said):
        first_token(started)
        assert f"redirect address to register there: http://127.0.0.1:{port}/login/oidc/callback" in said
        assert f"Whoever has an account at {host} gets the role viewer." in said and SECRET not in said
        browser = Browser(port)
        browser.sign_in(provider)
        assert name_shown(browser.client()) == "ada@example.org editor"
        started.send_signal(signal.SIGTERM)
        _, rest = started.communicate(timeout=60)
        assert started.returncode == 0 and SECRET not in rest


def test_a_provider_that_does_not_answer_is_said_at_the_start_and_tokens_work(
    sqlite_url: str, provider: Provider
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        words = ["--oidc-issuer", nobody, "--oidc-client-id", CLIENT]
        with process(sqlite_url, "--no-learn", *words) as (started, port, said):
            assert re.search(
                r"Warning: The identity provider 127.0.0.1:\d+ does not answer: .*tokens work\.", said
            )
            token = first_token(started)
            assert Client(port, token).get("/v1/prompts").status == 200
            answer = Client(port).page("/login/oidc")
            assert answer.status == 502 and "does not answer" in answer.text


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"issuer": "https://another.example"}, 'names the issuer "https://another.example"'),
        ({"issuer": None}, 'names the issuer "None"'),
        ({"token_endpoint": None}, "lacks token_endpoint"),
        ({"jwks_uri": 7}, "lacks jwks_uri"),
        ({"token_endpoint": "http://id.example.org/token"}, "token_endpoint of http://127.0.0.1"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "authorization_endpoint of http://127.0.0.1"),
        ({"userinfo_endpoint": "https://user:key@id.example.org/"}, "userinfo_endpoint of http://127.0.0.1"),
    ],
)
def test_a_provider_that_is_another_one_or_none_ends_the_start(
    sqlite_url: str, provider: Provider, document: dict[str, Any], said: str
) -> None:
    provider.document = document
    assert said in failed("--database", sqlite_url, *settled(provider))
    with open_live(sqlite_url) as live:
        assert Access(live.database).users() == [], "no token was made that nobody saw"


ISSUER = ("--oidc-issuer", "https://id.example.org")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--oidc-client-id", "whet"], "--oidc-issuer is missing"),
        (["--oidc-role", "editor=domain:example.org"], "--oidc-issuer is missing"),
        ([*ISSUER], "--oidc-client-id is missing"),
        (["--oidc-issuer", "http://id.example.org", "--oidc-client-id", "w"], "begins with https://"),
        (["--oidc-issuer", "http://127.0.0.1.evil.example", "--oidc-client-id", "w"], "begins with https://"),
        (["--oidc-issuer", "https://", "--oidc-client-id", "w"], "begins with https://"),
        (["--oidc-issuer", "https://a b", "--oidc-client-id", "w"], "begins with https://"),
        (["--oidc-issuer", "id.example.org", "--oidc-client-id", "w"], "begins with https://"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-default-role", "none"], "lets nobody in without rules"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-default-role", "app"], "app"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editor"], 'is "editor". Write ROLE=RULE'),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editr=group:x"], 'Did you mean "editor"'),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "app=group:x"], 'names the role "app"'),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editor=claim:x"], "Write ROLE=RULE"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editor=domain:a@b.c"], "Write ROLE=RULE"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editor=email:example.org"], "Write ROLE=RULE"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-role", "editor=group:"], "Write ROLE=RULE"),
        ([*ISSUER, "--oidc-client-id", "w", "--oidc-session-hours", "0"], "oidc-session-hours"),
    ],
)
def test_settings_that_cannot_be_are_told(words: list[str], said: str) -> None:
    assert said in failed(*words)


def test_the_values_of_rules_are_compared_as_they_are_meant() -> None:
    domain = RoleRule(Role.EDITOR, "domain", "example.org")
    assert domain.fits("a@example.org", []) and not domain.fits("a@b.example.org", [])
    assert not domain.fits("example.org@evil.example", []) and not domain.fits("a@evilexample.org", [])
    group = RoleRule(Role.EDITOR, "group", "/prompts")
    assert group.fits("", ["x", "/prompts"]) and not group.fits("", ["/prompts/more", "prompts"])


def test_groups_are_read_where_the_setting_says() -> None:
    claims = {
        "groups": ["a", 7, None],
        "one": "b",
        "realm": {"roles": ["c"]},
        "https://x.example/g": ["d"],
        "n": 7,
    }
    read = [
        read_groups(claims, name)
        for name in ("groups", "one", "realm.roles", "https://x.example/g", "n", "no", "n.x")
    ]
    assert read == [["a"], ["b"], ["c"], ["d"], [], [], []]


def test_the_libraries_of_sign_in_are_imported_for_a_provider_only(sqlite_url: str) -> None:
    program = (
        "import sys\nfrom whet_live.server.run import ServeOptions, open_sign_in\nimport whet_live.server.app\n"
        "from whet_live.server import OidcSettings\nopen_sign_in(ServeOptions())\n"
        "print({'jwt', 'cryptography', 'whet_live.server.oidc.provider'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_access_link_and_list(sqlite_url: str) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(access_command, [*words, "--database", sqlite_url], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def refuse(*words: str) -> str:
        with pytest.raises(UsageError) as error:
            run(*words)
        return str(error.value)

    run("add", "maria", "--role", "admin")
    run("add", "bob", "--role", "viewer")
    run("add", "shop", "--role", "app", "--all-prompts")
    run("link", "maria", "Maria@Example.org")
    assert "maria  admin  signs in as maria@example.org\n" in run("list")
    assert "linked to maria already" in refuse("link", "bob", "maria@example.org")
    assert "no e-mail address" in refuse("link", "bob", "maria")
    assert "is a program" in refuse("link", "shop", "shop@example.org")
    assert 'Did you mean "bob"' in refuse("link", "bop", "bob@example.org")
    run("link", "maria", "m@example.org")
    run("link", "bob", "maria@example.org")
    assert "bob  viewer  signs in as maria@example.org\n" in run("list")


def test_open_sessions_go_on_after_the_tables_are_brought_up_to_date(database_url: str) -> None:
    """The tables as 0013 had them: sessions with a token, and no user."""
    with open_live(database_url) as live:
        access = Access(live.database)
        secret = access.add("ada", Role.EDITOR, by="test")
        (ada,) = access.users()
        token = ada.tokens[0].id
        cookie = access.open_session(secret) or ""
        end = access.read_time() + 3_600_000_000
        _make_old(live.database, token, digest_secret(cookie.encode()).decode(), end)
    with open_live(database_url) as live:
        access = Access(live.database)
        known = access.by_session(digest_secret(cookie.encode()))
        assert known is not None and (known.name, known.token) == ("ada", token)
        assert access.open_session(secret) is not None


def _make_old(database: Database, token: str, key: str, end: int) -> None:
    with database.begin() as connection:
        for statement in (
            "DROP TABLE access_sessions",
            "DROP TABLE access_identities",
            "DROP TABLE access_sign_ins",
            "CREATE TABLE access_sessions (digest VARCHAR(64) PRIMARY KEY, token VARCHAR(36) NOT NULL REFERENCES "
            "access_tokens (id), created BIGINT NOT NULL, expires BIGINT NOT NULL)",
            "CREATE INDEX ix_access_sessions_token ON access_sessions (token)",
            "CREATE INDEX ix_access_sessions_expires ON access_sessions (expires)",
            "UPDATE alembic_version SET version_num = '0013_quality_looks'",
        ):
            connection.execute(text(statement))
        row = {"digest": key, "token": token, "created": 1, "expires": end}
        connection.execute(
            text("INSERT INTO access_sessions VALUES (:digest, :token, :created, :expires)"), row
        )
