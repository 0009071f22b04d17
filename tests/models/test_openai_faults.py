"""openai/...: the client against a server that fails in every way it knows, and under load."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from whet.engine.model_client import MAX_ATTEMPTS, delay
from whet.errors import ProviderError, UsageError
from whet.models.openai import OpenAIModel
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import LocalServer, server_process, serving
from whet.types import Message, Request

CANARY = "sk-canary-7f3a91c2/+b64"
ASK = Request((Message("system", "Be brief."), Message("user", "How are you?")))


def echo(request: Request) -> str:
    return request.messages[-1].content


@asynccontextmanager
async def client(server: LocalServer, **more: Any) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("tiny", base_url=server.base_url, api_key=CANARY, **more)
    try:
        yield model
    finally:
        await model.close()


def assert_clean(error: BaseException) -> None:
    """No trace of the key in anything that could be printed or dumped."""
    texts = [str(error), *traceback.format_exception(error), repr(error.__cause__), repr(error.__context__)]
    assert not any("canary" in text for text in texts)


FAULTS: dict[str, tuple[bool, int | None]] = {
    "error_500": (True, 500),
    "rate_429": (True, 429),
    "malformed": (True, 200),
    "truncated": (True, 200),
    "drop": (True, None),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_matrix_without_an_answer(fault: str) -> None:
    settings = ServerBehaviour(retry_after=0.25)
    async with (
        serving(echo, faults=Faults(**{fault: 1.0}), settings=settings) as server,
        client(server) as model,
    ):
        with pytest.raises(ProviderError) as caught:
            await model.generate(ASK)
        error = caught.value
        assert (error.retryable, error.fatal) == (True, False)
        assert error.status == FAULTS[fault][1]
        assert error.retry_after == (0.25 if fault == "rate_429" else None)
        assert len(server.ledger.entries) == 1, "one attempt is one request"
        assert_clean(error)


@pytest.mark.parametrize(
    ("fault", "error"), [("empty", "empty answer"), ("refusal", "refused: I cannot help")]
)
async def test_fault_matrix_with_an_answer(fault: str, error: str) -> None:
    async with serving(echo, faults=Faults(**{fault: 1.0})) as server, client(server) as model:
        (found,) = await model.generate(ASK)
        assert found.error is not None and found.error.startswith(f"model: {error}")
        assert found.usage.input_tokens == 5


async def test_a_mixture_of_faults_is_survived_by_bounded_retries() -> None:
    faults = Faults(0.05, 0.05, 0.05, 0.05, 0.0, 0.0, 0.05)
    chance = random.Random(3)
    async with (
        serving(echo, faults=faults, settings=ServerBehaviour(retry_after=0.0, seed=9)) as server,
        client(server) as model,
    ):

        async def ask(i: int) -> str:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    return (await model.generate(Request((Message("user", f"number {i}"),))))[0].text
                except ProviderError as error:
                    assert error.retryable
                    assert delay(attempt, error.retry_after, chance) <= 30
            return "lost"

        assert await asyncio.gather(*map(ask, range(200))) == [f"number {i}" for i in range(200)]
        met = {entry["fault"] for entry in server.ledger.entries}
        assert met == {"", "error_500", "rate_429", "malformed", "truncated", "drop"}


async def test_timeouts_and_dead_endpoints() -> None:
    async with (
        serving(echo, settings=ServerBehaviour(latency=5.0)) as server,
        client(server, timeout=0.5) as model,
    ):
        with pytest.raises(ProviderError, match=r"no answer within 0\.5 s") as caught:
            await model.generate(ASK)
        assert (caught.value.retryable, caught.value.status) == (True, None)
    async with serving(echo) as server:
        address = server.base_url
    model = OpenAIModel("tiny", base_url=address, api_key=CANARY)
    with pytest.raises(ProviderError, match="connection refused") as caught:
        await model.generate(ASK)
    await model.close()
    assert (caught.value.retryable, caught.value.fatal, caught.value.status) == (True, False, None)
    assert_clean(caught.value)


@pytest.mark.parametrize("feature", ["seed", "n", "logprobs", "temperature", "stop", "max_tokens"])
async def test_a_refused_feature_is_left_out_from_then_on(feature: str) -> None:
    full = Request(ASK.messages, 0.5, 9, n=2, seed=5, stop=("?",), schema={"type": "object"}, top_logprobs=2)
    async with serving(echo, settings=ServerBehaviour(reject=(feature,))) as server, client(server) as model:
        both = await asyncio.gather(model.generate(full), model.generate(full), return_exceptions=True)
        for error in both:
            assert isinstance(error, ProviderError)
            assert (error.retryable, error.retry_after, error.status) == (True, 0.0, 400)
        found = await model.generate(full)
        assert [c.text for c in found] == ["How are you"] * (1 if feature == "n" else 2)
        await model.generate(full)
        assert [entry["status"] for entry in server.ledger.entries] == [400, 400, 200, 200]


async def test_a_thousand_calls_in_flight() -> None:
    async with serving(echo, settings=ServerBehaviour(latency=0.3)) as server, client(server) as model:
        found = await asyncio.gather(*(model.generate(ASK) for _ in range(1000)))
        assert all(c.text == "How are you?" for (c,) in found)


async def test_server_in_a_process_with_roles_and_a_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    with server_process("--text", "fine", "--ledger", str(ledger), "--most-in-flight", "8") as address:
        assert address.startswith("http://127.0.0.1:")
        model = OpenAIModel("tiny", base_url=address.replace("/v1", "/judge/v1"), api_key="k")
        assert (await model.generate(ASK))[0].text == "fine"
        await model.close()
    (line,) = [json.loads(text) for text in ledger.read_text().splitlines()]
    assert (line["role"], line["model"], line["status"], line["output_tokens"]) == ("judge", "tiny", 200, 1)
    with pytest.raises(UsageError, match="did not start"), server_process("--text", "x", "--drop", "2"):
        pass


async def test_faults_follow_seed_and_content_and_not_the_order_of_arrival() -> None:
    async def fates(order: list[int]) -> dict[str, list[str]]:
        faults, settings = Faults(error_500=0.5), ServerBehaviour(seed=4)
        async with serving(echo, faults=faults, settings=settings) as server, client(server) as model:
            for i in order:
                await asyncio.gather(
                    model.generate(Request((Message("user", f"{i}"),))), return_exceptions=True
                )
            found: dict[str, list[str]] = {}
            for entry in server.ledger.entries:
                found.setdefault(entry["digest"], []).append(entry["fault"])
            return found

    first = await fates([*range(12), *range(12)])
    assert first == await fates([*range(11, -1, -1), *range(12)])
    assert any(one != two for one, two in first.values()), "a retry has a fresh chance"


async def test_the_server_sheds_load_above_its_bound() -> None:
    full = asyncio.Event()

    async def held(request: Request) -> str:
        await full.wait()
        return "fine"

    async with serving(held, settings=ServerBehaviour(most_in_flight=4)) as server, client(server) as model:
        asked = [asyncio.create_task(model.generate(ASK)) for _ in range(10)]
        waiting = set(asked)
        while len(waiting) > 4:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        full.set()
        await asyncio.gather(*asked, return_exceptions=True)
        statuses = sorted(entry["status"] for entry in server.ledger.entries)
        assert statuses == [200] * 4 + [429] * 6


async def test_what_the_served_model_refuses_or_breaks() -> None:
    def broken(request: Request) -> str:
        raise RuntimeError("boom")

    async with serving(broken) as server, client(server) as model:
        with pytest.raises(ProviderError, match="boom") as caught:
            await model.generate(ASK)
        assert caught.value.status == 500
        async with client(server) as other:
            _, error, _ = await other.probe({"messages": 1})
            assert error is not None and error.status == 400


@pytest.mark.parametrize(
    "form", ["{}", '{{"error": {}}}', '{{"error": {{"message": {}}}}}', '{{"error": {{"code": {}}}}}']
)
async def test_a_refusal_that_is_nested_deep_is_an_error_like_any_other(form: str) -> None:
    body = form.format("[" * 900 + "]" * 900)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        model = OpenAIModel("tiny", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(ProviderError, match="400") as caught:
            await model.generate(ASK)
        await model.close()
    assert caught.value.status == 400
