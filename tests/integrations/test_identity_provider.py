"""Sign-in at providers that others wrote: `oidc-provider-mock`, on Authlib, and `nanoidp`, which in its strictest profile demands
PKCE, the secret of the client and the registered redirect address."""

from __future__ import annotations

import html
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.server.conftest import Running, running
from whet_live.server.limits import ServerLimits
from whet_live.server.oidc.settings import OidcSettings, RoleRule
from whet_live.server.roles import Role

pytestmark = pytest.mark.integrations
PATIENCE = 120.0
CLIENT, SECRET = "whet", "a-secret.of_the-client"
GROUP, ADDRESS = "prompt-approvers", "ada@example.org"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def provider(log: Path, port: int, *command: str) -> Iterator[str]:
    """The address of a provider that runs as a program of its own."""
    found = shutil.which(command[0])
    if found is None:
        pytest.skip(f"{command[0]} is not installed: make test-integrations")
    with log.open("wb") as lines:
        process = subprocess.Popen([found, *command[1:]], stdout=lines, stderr=lines, cwd=log.parent)
    try:
        end = time.monotonic() + PATIENCE
        while not answers(port):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/.well-known/openid-configuration")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def authlib_provider(folder: Path, callback: str, claims: Mapping[str, object]) -> Iterator[str]:
    port, user = free_port(), json.dumps({"sub": "ada", **claims})
    command = ("oidc-provider-mock", "--port", str(port), "--require-nonce", "true", "--user-claims", user)
    with provider(folder / "provider.log", port, *command) as address:
        yield address


@contextmanager
def strict_provider(folder: Path, callback: str, claims: Mapping[str, object]) -> Iterator[str]:
    port = free_port()
    client = {"client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [callback]}
    settings = {
        "config_version": 1,
        "server": {"host": "127.0.0.1", "port": port},
        "oauth": {"issuer": f"http://127.0.0.1:{port}", "audience": CLIENT, "clients": [client]},
    }
    person = {"password": "ada's password", "email": claims["email"], "groups": claims["groups"]}
    users = {"config_version": 1, "users": {"ada": {**person, "roles": ["USER"], "tenant": "default"}}}
    (folder / "settings.yaml").write_text(json.dumps(settings), "utf-8")
    (folder / "users.yaml").write_text(json.dumps(users), "utf-8")
    command = ("nanoidp", "--config", str(folder), "--profile", "oauth21")
    with provider(folder / "provider.log", port, *command) as address:
        yield address


PROVIDERS = {"Authlib": authlib_provider, "nanoidp": strict_provider}
PERSON: Mapping[str, object] = {"email": ADDRESS, "email_verified": True, "groups": [GROUP]}


def sign_in(server: Running) -> str:
    """What a browser shows at the end that signs in as ada, by the forms of whatever provider; then who is there."""
    browser = build_opener(HTTPCookieProcessor())
    at_provider = browser.open(f"{server.address}/login/oidc?next=%2Freview", timeout=PATIENCE)
    page = at_provider.read().decode()
    hidden = re.findall(r'<input[^>]*type="hidden"[^>]*name="([^"]+)"[^>]*value="([^"]*)"', page)
    form = {name: html.unescape(value) for name, value in hidden}
    form |= {"sub": "ada", "username": "ada", "password": "ada's password"}
    try:
        ended = browser.open(at_provider.url, urlencode(form).encode(), timeout=PATIENCE)
    except HTTPError as error:
        ended = error
    shown = ended.read().decode()
    if ended.status != 200:
        return " ".join(re.findall(r'<p role="alert" class="alert">(.*?)</p>', shown)) or shown
    prompts = browser.open(f"{server.address}/prompts", timeout=PATIENCE).read().decode()
    who = re.search(r"<span>([^<]+)<small>(\w+)</small>", prompts)
    assert who is not None, prompts
    return f"{who[1]} {who[2]}"


@contextmanager
def served(
    folder: Path, name: str, person: Mapping[str, object], default: Role | None = None
) -> Iterator[Running]:
    """A server whose people sign in at that provider."""
    port = free_port()
    with PROVIDERS[name](folder, f"http://127.0.0.1:{port}/login/oidc/callback", person) as issuer:
        rules = (RoleRule(Role.APPROVER, "group", GROUP),)
        settings = OidcSettings(issuer, CLIENT, SECRET, rules, default)
        with running(
            f"sqlite:///{folder}/whet.db", limits=ServerLimits(), oidc=settings, port=port
        ) as server:
            yield server


@pytest.mark.parametrize("name", PROVIDERS)
def test_people_sign_in_with_the_role_of_their_group(tmp_path: Path, name: str) -> None:
    with served(tmp_path, name, PERSON) as server:
        assert sign_in(server) == f"{ADDRESS} approver"


@pytest.mark.parametrize("name", PROVIDERS)
def test_who_is_in_no_group_is_refused(tmp_path: Path, name: str) -> None:
    with served(tmp_path, name, {**PERSON, "groups": ["others"]}) as server:
        assert f"No rule of this server lets {ADDRESS} in." in sign_in(server)


def test_an_address_that_the_provider_has_not_verified_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, "Authlib", {**PERSON, "email_verified": False}) as server:
        assert f"has not verified your e-mail address {ADDRESS}" in sign_in(server)
