"""openai/...: the real client over real HTTP, fault by fault."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from whet.errors import ProviderError, UsageError
from whet.models.endpoint import endpoint_of
from whet.models.language_model import LanguageModel
from whet.models.openai import OpenAIModel
from whet.models.openai_wire import request_body
from whet.models.waits import find_wait
from whet.prompt import Prompt
from whet.testing.faults import ServerBehaviour
from whet.testing.server import LocalServer, serving
from whet.types import Completion, Message, Request, Usage

CANARY = "sk-canary-7f3a91c2/+b64"
ASK = Request((Message("system", "Be brief."), Message("user", "How are you?")))


def echo(request: Request) -> str:
    return request.messages[-1].content


@asynccontextmanager
async def client(server: LocalServer, **more: Any) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("tiny", **({"base_url": server.base_url, "api_key": CANARY} | more))
    try:
        yield model
    finally:
        await model.close()
        await model.close()


@asynccontextmanager
async def raw(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[OpenAIModel]:
    """A model at an endpoint that answers with exactly what `handler` returns."""
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    model = OpenAIModel("tiny", base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1/", api_key=CANARY)
    try:
        yield model
    finally:
        await model.close()
        await runner.cleanup()


async def answered(body: Any, request: Request = ASK) -> list[Completion]:
    """Completions from an HTTP 200 with this JSON body."""

    async def handler(http: web.Request) -> web.Response:
        return web.json_response(body)

    async with raw(handler) as model:
        return await model.generate(request)


async def failed(
    status: int, body: Any = None, headers: dict[str, str] | None = None, request: Request = ASK
) -> ProviderError:
    """The error from an HTTP answer with this status; a str body is sent as text."""

    async def handler(http: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body or {"error": {"message": "no"}})
        return web.Response(status=status, text=text, headers=headers)

    async with raw(handler) as model:
        with pytest.raises(ProviderError) as caught:
            await model.generate(request)
    assert_clean(caught.value)
    return caught.value


def assert_clean(*things: object) -> None:
    """No form of the key in anything that could be printed, logged or dumped."""
    for thing in things:
        texts = [str(thing), repr(thing)]
        if isinstance(thing, BaseException):
            texts += traceback.format_exception(thing)
            texts += [repr(thing.__cause__), repr(thing.__context__)]
        encoded = base64.b64encode(CANARY.encode()).decode()
        for form in (CANARY, "canary-7f3a91c2", encoded, encoded.rstrip("=")):
            assert not any(form in text for text in texts)


def choice(text: str | None, **more: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more


async def test_an_answer() -> None:
    async with serving(echo) as server, client(server) as model:
        assert isinstance(model, LanguageModel)
        assert (model.address, model.simulated, model.local) == ("openai/tiny", False, False)
        assert (model.can_generate, model.can_score) == (True, False)
        assert await model.generate(ASK) == [Completion("How are you?", "stop", Usage(5, 3))]
        assert server.ledger.entries[0]["model"] == "tiny"


async def test_n_answers_share_the_bill() -> None:
    async with serving(echo) as server, client(server) as model:
        found = await model.generate(Request((Message("user", "one two three"),), n=3))
        assert [c.text for c in found] == ["one two three"] * 3
        assert sum((c.usage for c in found), Usage()) == Usage(3, 9)


def test_the_body_of_a_request() -> None:
    schema = {"type": "object"}
    full = Request(
        ASK.messages, 0.7, 99, n=2, seed=5, stop=("a", "b", "c", "d", "e"), schema=schema, top_logprobs=50
    )
    body = request_body("tiny", full, frozenset())
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How are you?"},
    ]
    assert (body["temperature"], body["max_tokens"], body["n"], body["seed"]) == (0.7, 99, 2, 5)
    assert (body["stop"], body["logprobs"], body["top_logprobs"]) == (["a", "b", "c", "d"], True, 20)
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert set(request_body("tiny", ASK, frozenset())) == {"model", "messages", "max_tokens", "temperature"}


async def test_first_token_and_finish() -> None:
    top = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -2.5}, {"token": "b", "logprob": -4}]
    top.append(
        top[0]
    )  # vLLM lists the token that it chose twice; the two of "b" are tokens that are written alike
    logprobs = {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": [*top, {"token": "c"}]}]}
    (found,) = await answered({"choices": [choice("a", finish_reason="length", logprobs=logprobs)]})
    assert found.first_token == {"a": -0.1, "b": pytest.approx(math.log(math.exp(-2.5) + math.exp(-4)))}
    assert (found.text, found.finish, found.error) == ("a", "length", None)


async def test_stop_sequences_hold_whatever_the_endpoint_does() -> None:
    (found,) = await answered(
        {"choices": [choice("one. two! three.")]}, Request(ASK.messages, stop=("!", "."))
    )
    assert found.text == "one"


async def test_usage_is_estimated_from_above_when_absent() -> None:
    odd: tuple[Any, ...] = (
        None,
        {"prompt_tokens": "many"},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        [],
    )
    for usage in odd:
        (found,) = await answered({"choices": [choice("ünd")], "usage": usage})
        assert found.usage == Usage(len("Be brief.How are you?"), 4, estimated=True)


BAD_ANSWERS = {
    "empty text": (choice(""), "model: empty answer"),
    "white space": (choice(" \n"), "model: empty answer"),
    "no text": (choice(None), "model: empty answer"),
    "thought until the limit": (
        choice("", finish_reason="length"),
        "model: empty answer (token limit reached before any text)",
    ),
    "refusal": (
        {"message": {"content": None, "refusal": "I will not."}},
        "model: refused: I will not.",
    ),
    "filter": (
        choice("half", finish_reason="content_filter"),
        "model: refused (stopped by a content filter)",
    ),
    "no message": ({"index": 0}, "model: empty answer (a choice without a message)"),
    "a number": ({"message": {"content": 5}}, "model: content is a number (5)"),
    "a truth value": ({"message": {"content": False}}, "model: content is a truth value (false)"),
    "an object": ({"message": {"content": {"a": 1}}}, 'model: content is an object ({"a": 1})'),
    "no parts that are texts": (
        {"message": {"content": [5]}},
        "model: content is a list without a text ([5])",
    ),
    "no parts": ({"message": {"content": []}}, "model: empty answer"),
    "not a choice": ("text", "model: empty answer (a choice without a message)"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_is_a_failed_completion(name: str) -> None:
    bad, error = BAD_ANSWERS[name]
    (found,) = await answered({"choices": [bad], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    assert found.error == error
    assert found.usage == Usage(7, 2)


async def test_no_choice_and_textual_parts() -> None:
    (found,) = await answered({"choices": []})
    assert found.error == "model: empty answer (no choice in it)"
    (found,) = await answered(
        {"choices": [choice(None) | {"message": {"content": [{"text": "a"}, {"x": 1}]}}]}
    )
    assert found.text == "a"


@pytest.mark.parametrize(
    "body", ["", "{", "<html>busy</html>", "[]", "null", '{"object": "x"}', '{"choices": 3}']
)
async def test_a_garbled_body_is_worth_another_attempt(body: str) -> None:
    error = await failed(200, body)
    assert (error.retryable, error.fatal, error.status, error.retry_after) == (True, False, 200, None)


async def test_an_error_inside_a_200_is_what_it_says() -> None:
    assert (await failed(200, {"error": {"message": "upstream", "code": 503}})).status == 503
    assert (await failed(200, {"error": {"message": f"key {CANARY}", "code": "x"}})).retryable


STATUSES = {
    408: (True, False), 409: (True, False), 425: (True, False), 429: (True, False), 500: (True, False),
    502: (True, False), 503: (True, False), 529: (True, False), 400: (False, False), 413: (False, False),
    422: (False, False), 401: (False, True), 402: (False, True), 403: (False, True), 404: (False, True),
    405: (False, True), 302: (False, True), 204: (False, True),
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
async def test_what_a_status_means(status: int) -> None:
    error = await failed(status, {"error": {"message": "said the server"}})
    assert (error.retryable, error.fatal) == STATUSES[status]
    assert error.status == status
    assert f"openai/tiny: HTTP {status}" in str(error)


async def test_codes_overrule_statuses() -> None:
    assert (await failed(429, {"error": {"message": "x", "code": "insufficient_quota"}})).fatal
    assert (await failed(400, {"error": {"message": "x", "code": "billing_hard_limit_reached"}})).fatal
    assert (await failed(429, {"error": {"message": "x", "type": "exceeded_current_quota_error"}})).fatal
    assert (await failed(429, {"error": {"message": "x", "code": "1113"}})).fatal
    assert (await failed(400, {"error": {"message": "x", "code": "model_not_found"}})).fatal


async def test_retry_after_in_every_spelling() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=100), usegmt=True)
    assert (await failed(429, headers={"Retry-After": "1.5"})).retry_after == 1.5
    assert (await failed(503, headers={"Retry-After-Ms": "250", "Retry-After": "9"})).retry_after == 0.25
    assert (await failed(429, headers={"Retry-After": soon})).retry_after == pytest.approx(99.5, abs=3)
    assert (await failed(429, headers={"Retry-After": past})).retry_after == 0
    assert (await failed(429, headers={"Retry-After": "2, 2"})).retry_after == 2
    assert find_wait({"retry-after": "2, soon"}, None, "") is None
    for odd in ("soon", "nan", "inf", "-1e999"):
        assert find_wait({"retry-after": odd}, None, "") is None
    assert find_wait({"retry-after": "-3"}, None, "") == 0


async def test_the_cost_in_a_header_of_a_proxy_is_the_cost_of_the_call() -> None:
    answer = {
        "choices": [{"message": {"content": "fine"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    }
    headers, own = {"X-LiteLLM-Response-Cost": "0.0042"}, dict[str, float]()

    async def handler(http: web.Request) -> web.Response:
        return web.json_response(answer | {"usage": {**answer["usage"], **own}}, headers=headers)  # type: ignore[dict-item]

    async with raw(handler) as model:
        assert (await model.generate(ASK))[0].usage == Usage(9, 3, cost_usd=0.0042)
        headers["X-LiteLLM-Response-Cost"] = "0.0"  # a model without a price in LiteLLM's list
        assert (await model.generate(ASK))[0].usage == Usage(9, 3)
        headers["X-LiteLLM-Response-Cost"] = "None"
        assert (await model.generate(ASK))[0].usage == Usage(9, 3)
        headers["X-LiteLLM-Response-Cost"], own["cost"] = "0.5", 0.25
        assert (await model.generate(ASK))[0].usage == Usage(9, 3, cost_usd=0.25)


async def test_null_in_the_place_of_a_choice_is_no_answer_of_the_model() -> None:
    error = await failed(200, {"choices": [None], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    assert error.retryable and "the answer holds null in the place of a choice" in str(error)


QUOTED = {
    "messages": [{"content": "a } b"}],
    "n": 2,
    "seed": 5,
    "stop": ["?"],
    "temperature": 0.5,
    "max_tokens": 9,
}
REFUSALS = [
    ({"error": {"message": "Unrecognized request argument supplied: seed"}}, {"seed"}),
    ({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, {"seed"}),
    ({"error": {"message": "Only n = 1 is available", "param": "n"}}, {"n"}),
    ("`n` must be 1", {"n"}),
    ({"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}}, {"max_tokens"}),
    ({"error": {"message": "'temperature' does not support 0.5 with this model."}}, {"temperature"}),
    ({"error": {"message": "temperature must be at most 0.2"}}, set()),
    ({"error": {"message": "This model's maximum context length is 10 tokens"}}, set()),
    (
        {"detail": [{"loc": ["body", "messages"], "msg": "unsupported role", "input": {"seed": 5, "n": 2}}]},
        set(),
    ),
    (
        {"detail": [{"loc": ["body", "seed"], "msg": "not allowed", "input": {"n": 2, "temperature": 1}}]},
        {"seed"},
    ),
    ({"error": {"message": f"unsupported: {json.dumps(QUOTED)}"}}, set()),
    ({"error": {"message": f"{QUOTED} is not supported here"}}, set()),
    (f"seed is not supported in {json.dumps(QUOTED)}", {"seed"}),
    (f"not supported: {json.dumps({**QUOTED, 'messages': []})[:40]}", set()),
]


@pytest.mark.parametrize(("body", "features"), REFUSALS)
async def test_which_feature_a_message_refuses(body: Any, features: set[str]) -> None:
    full = Request(ASK.messages, 0.5, 9, n=2, seed=5, stop=("?",), top_logprobs=2)
    error = await failed(400, body, request=full)
    assert error.retryable == bool(features)
    kept = request_body("tiny", full, features)
    gone = {"seed": "seed", "n": "n", "temperature": "temperature"}
    assert all(gone[name] not in kept for name in features & gone.keys())
    assert ("max_completion_tokens" in kept) == ("max_tokens" in features)


async def test_the_key_travels_in_the_header_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, settings=ServerBehaviour(api_key=CANARY)) as server, client(server) as model:
        assert (await model.generate(ASK))[0].error is None
        assert_clean(model, vars(model), server.ledger.entries, model._endpoint, model._endpoint.key)
    encoded = base64.b64encode(CANARY.encode()).decode()
    for echoed in (CANARY, encoded, f"Bearer {CANARY}", CANARY.replace("/", "%2F").replace("+", "%2B")):
        error = await failed(401, {"error": {"message": f"Incorrect API key provided: {echoed}. Sorry."}})
        assert "[key]" in str(error) and "check the key" in str(error)
        await failed(500, echoed + " <- the key")
        await failed(400, {"detail": [echoed]})
    assert_clean(caplog.text)


async def test_no_key_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def handler(http: web.Request) -> web.Response:
        seen.append(http.headers.get("Authorization"))
        return web.json_response({"choices": [choice("ok")]})

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with raw(handler) as model:
        bare = OpenAIModel("tiny", base_url=model.base_url)
        await bare.generate(ASK)
        await bare.close()
        monkeypatch.setenv("JUDGE_KEY", f" {CANARY}\n")
        judge = OpenAIModel("tiny", base_url=model.base_url, key_variable="JUDGE_KEY")
        await judge.generate(ASK)
        await judge.close()
    assert seen == [None, f"Bearer {CANARY}"]


def test_unusable_settings_are_refused_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="Set OPENAI_API_KEY"):
        OpenAIModel("tiny")
    for url in ("localhost:8000", "ftp://host/v1", "http://", "http://[::1", "http://host:99999/v1"):
        with pytest.raises(UsageError, match="base URL"):
            OpenAIModel("tiny", base_url=url)
    for url in ("https://user:canary-7f3a91c2@host/v1", f"https://host/v1?key={CANARY}"):
        with pytest.raises(UsageError, match="carries credentials") as caught:
            OpenAIModel("tiny", base_url=url)
        assert_clean(caught.value)
    for key in ("two words", "line\nbreak", "clé"):
        with pytest.raises(UsageError, match="holds a character"):
            OpenAIModel("tiny", base_url="http://host/v1", api_key=key)
    with pytest.raises(UsageError, match="stands in quotation marks"):
        OpenAIModel("tiny", base_url="http://host/v1", api_key="'sk-abc'")
    for timeout in (0, -1, float("nan")):
        with pytest.raises(UsageError, match="timeout"):
            OpenAIModel("tiny", base_url="http://host/v1", timeout=timeout)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host/v1/chat/completions")
    assert OpenAIModel("tiny").base_url == "http://host/v1"


async def test_odd_texts_arrive() -> None:
    async with serving(echo) as server, client(server) as model:
        for text in ("lone \ud800 surrogate", "nul \x00", "ünïcode 🎉", "x" * (2 * 2**20)):
            found = await model.generate(Request((Message("user", text),)))
            assert found[0].text == text.replace("\ud800", "?")
            assert model.count_tokens(text) >= len(text)


async def test_redirects_are_not_followed() -> None:
    error = await failed(307, "", {"Location": "http://127.0.0.1:1/v1/chat/completions"})
    assert error.fatal and "Check the base URL" in str(error)


async def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(echo) as server:
        proxy = server.base_url.removesuffix("/v1")
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with client(server) as direct:
            assert (await direct.generate(ASK))[0].text == "How are you?"
        async with client(server, base_url="http://nowhere.invalid/v1") as proxied:
            assert (await proxied.generate(ASK))[0].text == "How are you?"


async def test_a_chat_endpoint_cannot_score() -> None:
    model = OpenAIModel("tiny", base_url="http://host/v1")
    with pytest.raises(UsageError, match="cannot score"):
        await model.score([Prompt.parse("a")], [{}], [["b"]])
    await model.close()


def test_one_object_serves_one_loop_after_another() -> None:
    model: list[OpenAIModel] = []

    async def once() -> str:
        async with serving(echo) as server:
            if not model:
                model.append(OpenAIModel("tiny", base_url=server.base_url, api_key="k"))
            model[0]._replicas.all[0].endpoint = endpoint_of("openai", "tiny", base_url=server.base_url)
            model[0]._replicas.all[0]._targets.clear()
            text = (await model[0].generate(ASK))[0].text
            await model[0].close()
            return text

    assert asyncio.run(once()) == asyncio.run(once()) == "How are you?"
