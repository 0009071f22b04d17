"""Providers by their names: where requests go, which key they carry, and what of a task file is trusted with one."""

from __future__ import annotations

import json
import sys

import pytest

from whet.errors import ProviderError, UsageError
from whet.models.addresses import resolve
from whet.models.endpoint import AZURE_TOKEN, AZURE_VERSIONS, TRUSTED_HOSTS, check_entrusted, endpoint_of
from whet.models.openai import OpenAIModel
from whet.models.providers import PROVIDERS
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving
from whet.types import Message, Request

CANARY = "canary-5d41e0c7"
ASK = Request((Message("user", "Say yes or no."),), 0.5, 64)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of any provider is set."""
    names = {name for provider in PROVIDERS.values() for name in (*provider.keys, *provider.urls)}
    for name in (*names, *AZURE_VERSIONS, AZURE_TOKEN, TRUSTED_HOSTS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "variable", "url"),
    [
        ("anthropic/claude-x", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1/chat/completions"),
        (
            "gemini/gemini-x",
            "GOOGLE_API_KEY",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("groq/llama", "GROQ_API_KEY", "https://api.groq.com/openai/v1/chat/completions"),
        ("openrouter/meta/llama:free", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/chat/completions"),
        ("xai/grok", "XAI_API_KEY", "https://api.x.ai/v1/chat/completions"),
        ("fireworks/m", "FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1/chat/completions"),
    ],
)
def test_a_provider_is_reached_at_its_own_address_with_its_own_key(
    monkeypatch: pytest.MonkeyPatch, address: str, variable: str, url: str
) -> None:
    provider, _, name = address.partition("/")
    with pytest.raises(UsageError, match=rf"{address} at .* needs a key\. Set .*{variable}"):
        resolve(address)
    monkeypatch.setenv(variable, CANARY)
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example/v1")
    assert resolve(address).address == address
    endpoint = endpoint_of(provider, name)
    assert str(endpoint.url("chat", "completions")) == url
    assert endpoint.headers == {"Authorization": f"Bearer {CANARY}"}


@pytest.mark.parametrize(
    ("provider", "variable", "value", "url"),
    [
        ("ollama", "OLLAMA_HOST", "0.0.0.0:11500", "http://localhost:11500/v1"),
        ("ollama", "OLLAMA_HOST", "10.1.2.3", "http://10.1.2.3:11434/v1"),
        ("ollama", "OLLAMA_HOST", ":11500", "http://localhost:11500/v1"),
        ("ollama", "OLLAMA_HOST", "https://ollama.example", "https://ollama.example/v1"),
        ("ollama", "OLLAMA_API_BASE", "http://box:11434/", "http://box:11434/v1"),
        ("anthropic", "ANTHROPIC_BASE_URL", "https://proxy.example", "https://proxy.example/v1"),
        ("groq", "GROQ_BASE_URL", "https://proxy.example/groq", "https://proxy.example/groq"),
        ("vllm", "VLLM_BASE_URL", "http://gpu:8001/v1", "http://gpu:8001/v1"),
        ("lmstudio", "LM_STUDIO_API_BASE", "http://localhost:1299/v1", "http://localhost:1299/v1"),
        ("ollama", "NONE_AT_ALL", "", "http://localhost:11434/v1"),
        ("vllm", "NONE_AT_ALL", "", "http://localhost:8000/v1"),
        ("llamacpp", "NONE_AT_ALL", "", "http://localhost:8080/v1"),
        ("sglang", "NONE_AT_ALL", "", "http://localhost:30000/v1"),
    ],
)
def test_variables_move_a_provider_and_a_server_here_needs_no_key(
    monkeypatch: pytest.MonkeyPatch, provider: str, variable: str, value: str, url: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv(PROVIDERS[provider].keys[0], CANARY if provider in ("anthropic", "groq") else "")
    assert endpoint_of(provider, "m").base_url == url
    assert endpoint_of(provider, "m", base_url="http://given/v1").base_url == "http://given/v1"


@pytest.mark.parametrize(
    ("endpoint", "version", "path"),
    [
        ("https://r.openai.azure.com", "", "/openai/v1/chat/completions"),
        ("https://r.openai.azure.com/", "preview", "/openai/v1/chat/completions?api-version=preview"),
        (
            "https://r.openai.azure.com/",
            "2024-10-21",
            "/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21",
        ),
        ("https://r.openai.azure.com/openai/v1/", "2024-10-21", "/openai/v1/chat/completions"),
        (
            "https://r.openai.azure.com/openai/deployments/other/chat/completions?api-version=2025-01-01",
            "",
            "/openai/deployments/other/chat/completions?api-version=2025-01-01",
        ),
    ],
)
def test_azure_by_deployment_and_by_version_1(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, version: str, path: str
) -> None:
    with pytest.raises(UsageError, match="Set AZURE_OPENAI_ENDPOINT"):
        endpoint_of("azure", "gpt-x")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_API_VERSION", version)
    found = endpoint_of("azure", "gpt-x")
    assert str(found.url("chat", "completions")) == f"https://r.openai.azure.com{path}"
    assert found.headers == {"api-key": CANARY}


async def test_azure_is_asked_at_the_path_of_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerBehaviour(api_key=CANARY, habits=("azure_key",))
    async with serving(lambda request: "yes", settings=settings) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.base_url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", CANARY)
        monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2024-10-21")
        model = resolve("azure/gpt-x")
        (answer,) = await model.generate(ASK)
        await model.close()
    assert answer.text == "yes"
    (asked,) = server.received
    assert asked.path == "/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21"
    assert "authorization" not in asked.headers


async def test_two_keys_headers_query_and_body_reach_the_server_and_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECOND_KEY", CANARY)
    monkeypatch.setenv("TENANT_TOKEN", f"{CANARY}-t")
    options = {
        "key_variable": "SECOND_KEY",
        "headers": {"X-Title": "a test, $$5", "X-Tenant": "id ${TENANT_TOKEN}"},
        "extra_body": {"top_k": 20},
        "top_p": 0.9,
        "reasoning_effort": "low",
        "seed": 11,
        "temperature": 0.3,
    }
    async with serving(lambda request: "yes") as server:
        model = resolve("openai/m", base_url=f"{server.base_url}?api-version=2&team=blue", options=options)
        await model.generate(ASK)
        await model.generate(Request(ASK.messages, 0.5, 64, sample=2))
        await model.close()
    first, second = server.received
    assert first.path == "/v1/chat/completions?api-version=2&team=blue"
    assert first.headers["authorization"] == f"Bearer {CANARY}"
    assert (first.headers["x-title"], first.headers["x-tenant"]) == ("a test, $5", f"id {CANARY}-t")
    assert {key: first.body[key] for key in ("top_k", "top_p", "reasoning_effort", "seed", "temperature")} == {
        "top_k": 20, "top_p": 0.9, "reasoning_effort": "low", "seed": 11, "temperature": 0.3,
    }  # fmt: skip
    assert second.body["seed"] == 13, "further samples are others"
    assert isinstance(model, OpenAIModel)
    shown = f"{model!r} {vars(model)} {model.base_url} {json.dumps(dict(model.identity))} {model.variant}"
    assert CANARY not in shown
    assert model.base_url.endswith("/v1?api-version=2&team=...")


def test_what_changes_answers_tells_models_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def variant(**options: object) -> str:
        model = resolve("openai/m", base_url="http://h/v1", options=options)
        assert isinstance(model, OpenAIModel)
        return model.variant

    monkeypatch.setenv("A_KEY", CANARY)
    assert variant() == variant(timeout=3, key_variable="A_KEY", stream=True) == ""
    chosen = [{"top_p": 0.5}, {"seed": 1}, {"extra_body": {"a": 1}}, {"headers": {"X-Beta": "on"}}]
    assert len({variant(**one) for one in chosen}) == 4


async def test_an_echoed_header_is_blanked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY", CANARY)
    settings = ServerBehaviour(api_key="right", habits=("azure_key",))
    async with serving(lambda request: "yes", settings=settings) as server:
        model = resolve("openai/m", base_url=server.base_url, options={"headers": {"api-key": "$GATEWAY"}})
        with pytest.raises(ProviderError, match=r"HTTP 401.*\[key\].*check the key in headers") as caught:
            await model.generate(ASK)
        await model.close()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key_variable": "NOT_SET"}, "the key belongs in the variable NOT_SET, which is not set"),
        ({"headers": {"X-A": "$NOT_SET"}}, "names the variable NOT_SET, which is not set"),
        ({"headers": {"Content-Type": "text/plain"}}, "cannot be set as a header"),
        ({"headers": {"X A": "b"}}, "cannot be set as a header"),
        ({"headers": {"X-A": "a\r\nX-B: c"}}, "holds a character"),
        ({"extra_body": {"messages": []}}, "messages cannot be set there"),
        ({"extra_body": {"stream": True}}, "write `stream: true`"),
        ({"stream": "yes"}, "stream must be bool"),
    ],
)
def test_unusable_options_are_refused_before_any_call(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve("openai/m", base_url="http://h/v1", options=options)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(UsageError, match=r"pip install 'whet\[litellm\]'"):
        resolve("litellm/bedrock/claude")


def test_a_key_goes_where_it_belongs_and_where_a_person_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY", "TEAM_KEY"):
        monkeypatch.setenv(name, CANARY)
    groq, mine = "https://api.groq.com/openai/v1", "https://models.mine.example/v1"
    check_entrusted(groq, "groq")
    check_entrusted(groq, "openai", "GROQ_API_KEY")
    check_entrusted(mine, "openai", "UNSET_KEY")
    check_entrusted(mine, "openai", None, {"X-Title": "nothing secret", "Authorization": "none"})
    for host, provider, key, headers, named in (
        (groq, "openai", None, None, "OPENAI_API_KEY"),
        (mine, "openai", "TEAM_KEY", None, "TEAM_KEY"),
        (mine, "groq", None, None, "GROQ_API_KEY"),
        (mine, "ollama", None, {"Authorization": "Bearer $TEAM_KEY"}, "TEAM_KEY"),
        ("https://api.groq.com.evil.example/v1", "groq", None, None, "GROQ_API_KEY"),
    ):
        with pytest.raises(UsageError, match=f"the key in {named} would go with them") as caught:
            check_entrusted(host, provider, key, headers)
        assert CANARY not in str(caught.value)
    monkeypatch.setenv(TRUSTED_HOSTS, "other.example, MODELS.mine.example")
    check_entrusted(mine, "openai", "TEAM_KEY")


@pytest.mark.parametrize("path", ["", "/models"])
async def test_a_base_url_without_a_version_says_what_to_try(path: str) -> None:
    async with serving(lambda request: "yes") as server:
        base = server.base_url.removesuffix("/v1") + path
        model = resolve("openai/m", base_url=base)
        with pytest.raises(ProviderError, match="HTTP 404") as caught:
            await model.generate(ASK)
        await model.close()
    assert f"try the base URL {base}/v1" in str(caught.value)


async def test_a_server_here_that_is_not_running_is_named_as_such() -> None:
    model = resolve("ollama/m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ProviderError, match="no server is listening there"):
        await model.generate(ASK)
    await model.close()
