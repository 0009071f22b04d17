"""litellm/NAME, with a stand-in for the package: what it is called with, and what its answers and exceptions become."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whet.errors import ProviderError, UsageError
from whet.models.addresses import check_base_url, resolve
from whet.types import Message, Request, Usage

CANARY = "canary-77aa01ce"
ASK = Request((Message("user", "Say yes."),), 0.5, 64)


class RateLimited(Exception):
    """As litellm's exceptions are: a status, and the response behind it."""

    status_code = 429
    response = SimpleNamespace(headers={"Retry-After": "3"})


class Refused(Exception):
    """A refusal of the provider that litellm's own lists do not foresee."""

    status_code = 400


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    async def acompletion(**values: Any) -> Any:
        seen.append(values)
        if values["model"] == "busy":
            raise RateLimited(f"slow down, {CANARY}")
        if values["model"] == "broken":
            raise RuntimeError("no route")
        if values["model"] == "own" and "temperature" in values:
            raise Refused("AnthropicException - `temperature` is deprecated for this model.")
        choices = [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return SimpleNamespace(model_dump=lambda: {"choices": choices, "usage": usage})

    package = ModuleType("litellm")
    package.acompletion = acompletion  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "litellm", package)
    monkeypatch.setenv("BEDROCK_KEY", CANARY)
    return seen


async def test_a_call_and_its_answer(calls: list[dict[str, Any]]) -> None:
    options = {"key_variable": "BEDROCK_KEY", "top_p": 0.5, "extra_body": {"top_k": 4}, "seed": 3}
    model: Any = resolve("litellm/bedrock/claude", base_url="https://h.example/v1", options=options)
    (answer,) = await model.generate(ASK)
    assert (answer.text, answer.usage, model.address) == ("yes", Usage(7, 3), "litellm/bedrock/claude")
    (call,) = calls
    assert call["messages"] == [{"role": "user", "content": "Say yes."}]
    wanted = {
        "model": "bedrock/claude", "api_base": "https://h.example/v1", "api_key": CANARY, "top_p": 0.5, "top_k": 4,
        "seed": 3, "max_tokens": 64, "temperature": 0.5, "num_retries": 0, "drop_params": True,
    }  # fmt: skip
    assert {key: call.get(key) for key in wanted} == wanted
    assert model.variant and CANARY not in f"{model!r} {vars(model)}"


async def test_exceptions_are_failures_with_their_status(calls: list[dict[str, Any]]) -> None:
    with pytest.raises(ProviderError, match="HTTP 429") as caught:
        await resolve("litellm/busy", options={"key_variable": "BEDROCK_KEY"}).generate(ASK)
    assert (caught.value.retryable, caught.value.retry_after) == (True, 3.0) and CANARY not in str(
        caught.value
    )
    with pytest.raises(ProviderError, match="RuntimeError: no route") as caught:
        await resolve("litellm/broken").generate(ASK)
    assert caught.value.retryable and caught.value.status is None and len(calls) == 2


async def test_what_a_provider_refuses_is_left_out_from_then_on(calls: list[dict[str, Any]]) -> None:
    model = resolve("litellm/own")
    with pytest.raises(ProviderError, match="deprecated") as caught:
        await model.generate(ASK)
    assert caught.value.retryable
    assert [(await model.generate(ASK))[0].text for _ in range(2)] == ["yes", "yes"]
    assert [call.get("temperature") for call in calls] == [0.5, None, None]
    assert calls[-1]["max_tokens"] == 64


def test_what_cannot_be_used_is_refused(calls: list[dict[str, Any]]) -> None:
    with pytest.raises(UsageError, match="NOT_SET, which is not set"):
        resolve("litellm/x", options={"key_variable": "NOT_SET"})
    with pytest.raises(UsageError, match='unknown option "headers"'):
        resolve("litellm/x", options={"headers": {"a": "b"}})
    with pytest.raises(UsageError, match="a key may go with them"):
        check_base_url("litellm/x", "https://elsewhere.example/v1")
    assert calls == []
