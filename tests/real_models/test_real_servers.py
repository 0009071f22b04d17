"""openai/... against servers that others wrote, with a model that others trained: what differs is survived, and said once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.engine.world import close, open_core, run_of
from tests.real_models.conftest import Server, llama_server
from whet.engine import calls
from whet.errors import ProviderError
from whet.models.openai import OpenAIModel
from whet.replies.values import json_values
from whet.run import Run
from whet.types import Completion, Message, Request

pytestmark = pytest.mark.models

CAPITAL = Request((Message("user", "What is the capital of France?"),), 0.0, 12)
COLOURS = Request((Message("user", "Name three colours."),), 0.0, 8)
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@asynccontextmanager
async def client(server: Server, limit: float = 120.0) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel(server.model, base_url=server.base_url, timeout=limit)
    try:
        yield model
    finally:
        await model.close()


async def generated(
    folder: Path, model: OpenAIModel, requests: list[Request], concurrency: int = 1
) -> list[Completion]:
    """Answers through the engine, with its retries."""
    core = open_core(folder, model, concurrency=concurrency)  # type: ignore[arg-type]

    async def one(run: Run, request: Request) -> Completion:
        return (await run.generate("task", request))[0]

    try:
        return await run_of(core).map(one, requests)
    finally:
        await close(core)


def is_llama(server: Server) -> bool:
    return "llama_cpp.server" in server.command


def question(text: str, tokens: int = 8, **more: object) -> Request:
    return Request((Message("user", text),), 0.0, tokens, **more)  # type: ignore[arg-type]


async def test_an_answer_with_its_usage(server: Server) -> None:
    async with client(server) as model:
        (answer,) = await model.generate(CAPITAL)
    assert answer.error is None and answer.text.strip()
    assert answer.usage.input_tokens > 20 and 0 < answer.usage.output_tokens <= 13


async def test_what_it_neglects_is_made_good_and_said_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Of n answers one comes, and stop texts or log-probabilities are what the server makes of them."""
    request = Request(COLOURS.messages, 0.0, 8, n=3, seed=1, stop=("Red",), top_logprobs=2)
    async with client(server) as model:
        first, again = await model.generate(request), await model.generate(request)
    assert [c.text.strip() for c in (*first, *again)] == ["1."] * 2
    lines = [record.getMessage() for record in caplog.records]
    assert sum("answers once where n answers are asked for" in line for line in lines) == 1
    assert sum("leaves stop texts" in line for line in lines) == (not is_llama(server))
    assert sum("gives no log-probabilities" in line for line in lines) == (not is_llama(server))
    assert (first[0].first_token is not None) == is_llama(server)


async def test_a_structured_answer_falls_back(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-cpp-python answers a schema by 500 and keeps to json_object; transformers ignores both."""
    monkeypatch.setattr(calls, "delay", lambda attempt, wish, rng: 0.0)
    async with client(server) as model:
        ask = [
            question(f'Answer with {{"word": "blue"}} and nothing else. {i}', 24, schema=SCHEMA)
            for i in range(3)
        ]
        answers = await generated(tmp_path, model, ask)
    assert all(answer.error is None for answer in answers)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(set(lines))
    if is_llama(server):
        assert sum("refuses json_schema" in line for line in lines) == 1
        assert any(
            isinstance(value, dict) for answer in answers for value in json_values(answer.text, whole=False)
        )
    else:
        assert not any("refuses" in line for line in lines)


async def test_a_request_that_it_cannot_take_is_data(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that no chat knows: llama-cpp-python answers by 500 what the client did wrong."""
    monkeypatch.setattr(calls, "delay", lambda attempt, wish, rng: 0.0)
    bad = Request((Message("oracle", "Hello"),), 0.0, 4)
    async with client(server) as model:
        sent = Counting(model)
        answers = await generated(
            tmp_path, sent, [question("Hi 1", 2), bad, question("Hi 2", 2), question("Hi 3", 2)]
        )  # type: ignore[arg-type]
    assert [a.error is None for a in answers] == [True, not is_llama(server), True, True]
    assert sent.calls <= 3 + 6


class Counting:
    """The model with a count of its calls."""

    def __init__(self, model: OpenAIModel) -> None:
        self.model = model
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)

    async def generate(self, request: Request) -> list[Completion]:
        self.calls += 1
        return await self.model.generate(request)


async def test_a_model_that_is_not_there_ends_the_run_soon(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers answers every call by a 500 in plain text; llama-cpp-python takes any name."""
    if is_llama(server):
        pytest.skip("takes any name")
    monkeypatch.setattr(calls, "delay", lambda attempt, wish, rng: 0.0)
    model = OpenAIModel("no-such-model", base_url=server.base_url)
    sent = Counting(model)
    with pytest.raises(ProviderError, match="HTTP 500: Internal Server Error") as caught:
        await generated(tmp_path, sent, [question(f"Hi {i}") for i in range(40)], concurrency=4)  # type: ignore[arg-type]
    await model.close()
    assert caught.value.fatal and sent.calls <= 24


async def test_an_overflow_is_data(server: Server, tmp_path: Path) -> None:
    if not is_llama(server):
        pytest.skip("it computes on beyond the context, for minutes")
    async with client(server) as model:
        answers = await generated(tmp_path, model, [question("Hi", 2), question("word " * 900, 2)])
    assert answers[0].error is None
    assert "maximum context length" in str(answers[1].error)


async def test_calls_at_once_wait_in_its_queue_without_a_time_limit_for_that(server: Server) -> None:
    """Four calls take longer than the limit of one; none is cut off, by time or by the call behind it."""
    animals = [question(f"Write a list of ten animals. {i}", 24) for i in range(5)]
    async with client(server) as model:
        await model.generate(CAPITAL)
        began = time.monotonic()
        await model.generate(animals[0])
        one = time.monotonic() - began
    async with client(server, limit=2.5 * one + 0.5) as model:
        answers = await asyncio.gather(*map(model.generate, animals))
    assert all(answer.error is None and answer.text for (answer,) in answers)


@pytest.fixture
def mortal(gguf: Path, tmp_path: Path) -> Iterator[Server]:
    server = llama_server(gguf, tmp_path / "log")
    server.start()
    yield server
    server.kill()


async def test_it_dies_and_comes_back(mortal: Server, tmp_path: Path) -> None:
    async with client(mortal) as model:
        (first,) = await generated(tmp_path / "run", model, [question("Hi 1", 2)])
        mortal.kill()
        waiting = asyncio.create_task(generated(tmp_path / "run2", model, [question("Hi 2", 2)]))
        await asyncio.to_thread(mortal.start)
        (second,) = await waiting
    assert first.error is None and second.error is None
