"""Where requests and keys go: to the address that was given, by nothing else, and nowhere that an answer points to."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.distributions import SOURCES, tree_of

from whet.api import evaluate
from whet.errors import ProviderError, UsageError
from whet.models.endpoint import check_entrusted
from whet.models.openai import OpenAIModel
from whet.testing.server import serving
from whet.types import Message, Request
from whet_client.connections import Http

CANARY = "sk-canary-0123456789"
ASK = Request((Message("user", "Hello?"),))
CALLERS = {
    "models/http.py", "whet_client/connections.py", "whet_live/quality/channels.py", "_util/workers/ray_cluster.py",
    "whet_live/server/oidc/provider.py", "rl/policy_model/vllm_server.py",
}  # fmt: skip
"""The modules that open connections: to a model, from an app to its server, to the channels of a file that the server is
started with, to the Ray cluster that `--engine` names, to the provider that `--oidc-issuer` names, and to the server of vLLM that
`sampler` names. PostgreSQL is SQLAlchemy's."""
OPENERS = {
    ("aiohttp", "ClientSession"), ("http.client", "HTTPConnection"), ("http.client", "HTTPSConnection"),
    ("urllib.request", "urlopen"), ("urllib.request", "Request"), ("socket", "create_connection"),
    ("asyncio", "open_connection"), ("smtplib", "SMTP"), ("ftplib", "FTP"),
}  # fmt: skip
NAMES = {name for _, name in OPENERS}
METHODS = {"create_connection", "create_datagram_endpoint", "sock_connect", "start_tls"}
"""Of event loops and streams, whatever they are called."""
LIBRARIES = {"httpx", "pyreqwest", "requests", "urllib3", "websockets", "paramiko"}


def openers(tree: ast.Module) -> set[str]:
    """What a module uses that can open a connection to somewhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            found |= {name for name in names if (node.module, name) in OPENERS}
            names = [node.module or ""]
        found |= {name for name in names if name.split(".")[0] in LIBRARIES}
        if isinstance(node, ast.Attribute) and (
            node.attr in METHODS or (node.attr in NAMES and (ast.unparse(node.value), node.attr) in OPENERS)
        ):
            found.add(node.attr)
    return found


def test_only_these_modules_open_connections() -> None:
    """No webhook, no address that a user of the server could name: outside of the tests' own server."""
    assert openers(ast.parse("import httpx\nimport aiohttp\naiohttp.ClientSession()")) == {
        "httpx",
        "ClientSession",
    }
    assert openers(ast.parse("from urllib.request import urlopen")) == {"urlopen"}
    assert openers(ast.parse("loop.create_connection(make, host, 80)")) == {"create_connection"}
    found = {name for name, path in SOURCES.items() if openers(tree_of(path))}
    assert {name for name in found if not name.startswith("testing/")} == CALLERS


def test_no_route_of_the_server_takes_an_address() -> None:
    named = re.compile(r"""["'](?:base_)?(?:url|uri|webhook|callback|endpoint|host)["']""")
    routes = [path for name, path in SOURCES.items() if name.startswith("whet_live/server/v1/")]
    assert routes
    assert [path for path in routes if named.search(path.read_text("utf-8"))] == []


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server that nobody should reach; its address and what arrived."""
    seen: list[web.Request] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(request)
        return web.json_response({})

    async with _serving(take) as url:
        yield url, seen


@asynccontextmanager
async def _serving(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_neither_question_nor_key_with_it(status: int) -> None:
    async with trap() as (elsewhere, seen):

        async def lead(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": elsewhere + "/v1/chat/completions"})

        async with _serving(lead) as url:
            model = OpenAIModel("tiny", base_url=f"{url}/v1", api_key=CANARY)
            with pytest.raises(ProviderError) as caught:
                await model.generate(ASK)
            await model.close()
            client = Http(url, CANARY, 5.0)
            answer = await asyncio.to_thread(client.send, "POST", "/v1/feedback", {}, b"{}")
            client.close()
        assert answer.status == status and CANARY not in str(caught.value)
        assert seen == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1@evil.example/v1",
        "https://api.openai.com:key@evil.example/v1",
        "https://api.openai.com@evil.example/v1",
        "ftp://evil.example/v1",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "//evil.example/v1",
        "https:///v1",
        "https://evil.example/v1?key=1",
        "https://evil.example/v1#api.openai.com",
    ],
)
def test_an_address_that_looks_like_another_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAIModel("tiny", base_url=url, api_key=CANARY)
    assert CANARY not in str(caught.value)
    if "@" in url or "?" in url or not url.startswith("http"):
        with pytest.raises(UsageError):
            Http(url, CANARY, 5.0)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "127.1"])
async def test_other_spellings_of_this_machine_are_no_way_around(host: str) -> None:
    """The operator names the address, there is no list to get around: whatever is reached is what was named, and an error
    names it too."""
    model = OpenAIModel("tiny", base_url=f"http://{host}:1/v1", api_key=CANARY)
    with pytest.raises(ProviderError) as caught:
        await model.generate(ASK)
    await model.close()
    assert CANARY not in str(caught.value) and "openai/tiny at http://" in str(caught.value)


async def test_a_role_that_the_task_model_takes_goes_to_the_address_of_the_task_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that nobody named is the task model, at its own address, not that model's name at the default one."""
    asked: list[str] = []

    def answer(request: Request) -> str:
        asked.append(request.messages[0].content)
        return '{"explanation": "Fine.", "score": 5}' if "You judge" in asked[-1] else "An answer."

    async with trap() as (elsewhere, seen), serving(answer) as server:
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{elsewhere}/v1")
        (tmp_path / "prompt.md").write_text("Answer.\n{{input}}\n")
        rows = [json.dumps({"input": f"question {n}"}) for n in range(10)]
        (tmp_path / "data.jsonl").write_text("\n".join(rows))
        (tmp_path / "task.yaml").write_text(
            f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {{judge: {{rubric: Be kind.}}}}\n"
            f"models: {{task: {{address: openai/m, base_url: {server.base_url}}}}}\n"
        )
        found = await asyncio.to_thread(evaluate, tmp_path, run=tmp_path / "run")
    assert found["score"]["mean"] == 1.0 and any("You judge" in one for one in asked)
    assert seen == []


def folder_at(folder: Path, url: str, role: str = "task") -> Path:
    """A task folder that sends one role's requests to an address of its own."""
    (folder / "prompt.md").write_text("Answer.\n{{input}}\n")
    (folder / "data.jsonl").write_text("\n".join(json.dumps({"input": f"question {n}"}) for n in range(10)))
    others = "" if role == "task" else "task: scripted/constant, "
    (folder / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {judge: {rubric: Be kind.}}\n"
        f"models: {{{others}{role}: {{address: openai/m, base_url: {url}}}}}\n"
    )
    return folder


@pytest.mark.parametrize("role", ["task", "judge"])
def test_a_task_folder_cannot_take_the_key_to_an_address_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    task = folder_at(tmp_path, "https://models.evil.invalid/v1", role)
    with pytest.raises(UsageError, match=r"models\.evil\.invalid.*OPENAI_API_KEY.*base_url") as caught:
        evaluate(task, run=tmp_path / "run")
    assert CANARY not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        ("https://models.example/v1", {}),
        (
            "https://models.example/v1",
            {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "https://models.example/other"},
        ),
        ("https://api.openai.com/v1", {"OPENAI_API_KEY": CANARY}),
        ("http://127.0.0.1:8000/v1", {"OPENAI_API_KEY": CANARY}),
        ("http://[::1]:8000/v1", {"OPENAI_API_KEY": CANARY}),
        ("http://localhost:8000/v1", {"OPENAI_API_KEY": CANARY}),
    ],
    ids=[
        "no key",
        "the user's own host",
        "the key's host",
        "this machine",
        "this machine by IPv6",
        "by name",
    ],
)
def test_addresses_that_the_key_may_go_to(
    monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str]
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check_entrusted(url)


@pytest.mark.parametrize(
    "host",
    [
        "api.openai.com.evil.example",
        "evil-api.openai.com",
        "localhost.evil.example",
        "0x08080808",
        "134744072",
        "[::ffff:8.8.8.8]",
    ],
)
def test_hosts_that_only_look_like_it_get_no_key(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="would go with them"):
        check_entrusted(f"https://{host}/v1")


async def test_an_address_that_the_user_gives_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    reply = '{"explanation": "Fine.", "score": 5}'
    task = folder_at(tmp_path, "https://models.evil.invalid/v1")
    async with serving(lambda request: reply) as server:
        found = await asyncio.to_thread(evaluate, task, run=tmp_path / "run", base_url=server.base_url)
        assert found["score"]["mean"] == 1.0 and len(server.ledger.entries) > 0
