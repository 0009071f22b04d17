"""openai/...: an endpoint that does not take a JSON schema is asked with less, and each request pays for it once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.engine.world import close, open_core, run_of

from whet.engine import calls
from whet.engine.model_client import MAX_ATTEMPTS
from whet.models.openai import OpenAIModel
from whet.run import Run
from whet.types import Completion, Message, Request

Answer = tuple[int, Any]
FINE: Answer = (200, {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]})
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
WORD = {"type": "object", "properties": {"w": {"type": "string"}}}


class Endpoint:
    """A real server, the client and the engine in front of it, and the form of every request that arrived."""

    def __init__(self, answer: Callable[[str, int], Answer], folder: Path) -> None:
        self.answer, self.folder = answer, folder
        self.run: Run
        self.forms: list[str] = []

    async def handle(self, http: web.Request) -> web.Response:
        body = await http.json()
        self.forms.append(body.get("response_format", {}).get("type", "none"))
        status, answer = self.answer(self.forms[-1], len(self.forms))
        return web.json_response(answer, status=status)

    async def ask(self, texts: list[str], schema: Any = NUMBER, together: bool = False) -> list[Completion]:
        async def one(run: Run, text: str) -> Completion:
            request = Request((Message("user", text),), schema=schema)
            return (await run.generate("task", request))[0]

        return await self.run.map(one, texts) if together else [await one(self.run, text) for text in texts]


@asynccontextmanager
async def endpoint(answer: Callable[[str, int], Answer], folder: Path, server: Any = None) -> Any:
    server = server or Endpoint(answer, folder)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model = OpenAIModel("tiny", base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1", api_key="k")
    core = open_core(folder, model, concurrency=16)  # type: ignore[arg-type]
    server.run = run_of(core)
    try:
        yield server
    finally:
        await close(core)
        await model.close()
        await runner.cleanup()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float | None]]:
    """What the engine asks its back-off for; nothing waits."""
    asked: list[tuple[int, float | None]] = []

    def delay(attempt: int, retry_after: float | None, rng: Any) -> float:
        asked.append((attempt, retry_after))
        return 0.0

    monkeypatch.setattr(calls, "delay", delay)
    return asked


def refusing(status: int, message: str, *forms: str) -> Callable[[str, int], Answer]:
    return lambda form, number: (status, {"error": {"message": message}}) if form in forms else FINE


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the client said that the endpoint refuses; these answers are no JSON, which it says too."""
    return [text for r in caplog.records if "refuses" in (text := r.getMessage().split(";")[0])]


TEXTS = [f"question {i}" for i in range(10)]
NAMED = "This response_format type is unavailable now"
UNNAMED = "list index out of range"


@pytest.mark.parametrize(
    ("status", "message", "more"),
    [
        (400, NAMED, 1),
        (404, NAMED, 1),
        (500, NAMED, 1),
        (400, UNNAMED, 1),
        (422, UNNAMED, 1),
        (501, "", 1),
        (500, UNNAMED, 2),
    ],
)
async def test_a_refused_schema_falls_back_to_json_object_and_is_not_sent_again(
    status: int, message: str, more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoint(refusing(status, message, "json_schema"), tmp_path) as server:
        assert [c.text for c in await server.ask(TEXTS)] == ["fine"] * 10
        assert server.forms == ["json_schema", "json_object"] * more + ["json_object"] * (10 - more)
        assert [c.text for c in await server.ask(["another"], WORD)] == ["fine"]
        assert server.forms[-1] == "json_object", "a form that was never answered is refused for every schema"
    assert refusals(caplog) == ["openai/tiny refuses json_schema"]


@pytest.mark.parametrize(
    ("status", "message", "times"), [(400, NAMED, 1), (422, UNNAMED, 1), (500, UNNAMED, 2)]
)
async def test_where_no_form_is_taken_the_request_goes_out_without(
    status: int, message: str, times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoint(refusing(status, message, "json_schema", "json_object"), tmp_path) as server:
        assert [c.text for c in await server.ask(TEXTS)] == ["fine"] * 10
        assert server.forms == ["json_schema", "json_object", "none"] * times + ["none"] * (10 - times)
    assert len(refusals(caplog)) == 2


async def test_many_requests_at_once_make_no_storm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refuse = refusing(500, UNNAMED, "json_schema", "json_object")
    async with endpoint(refuse, tmp_path) as server:
        answers = await server.ask([f"question {i}" for i in range(100)], together=True)
        assert [c.text for c in answers] == ["fine"] * 100
        assert len(server.forms) <= 100 + 6 * 16, "two waves pay for each form, and who comes between them"
    assert len(refusals(caplog)) == 2


async def test_a_500_with_another_reason_keeps_its_retries(
    tmp_path: Path, waits: list[tuple[int, float | None]], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(form: str, number: int) -> Answer:
        return (500, {"error": {"message": "overloaded"}}) if number <= MAX_ATTEMPTS else FINE

    async with endpoint(answer, tmp_path) as server:
        (lost,) = await server.ask(["a"])
        assert lost.error is not None and "overloaded" in lost.error
        assert len(server.forms) == MAX_ATTEMPTS
        assert waits == [(n, None) for n in range(1, MAX_ATTEMPTS)]
        await server.ask(["b", "c"])
        assert server.forms[MAX_ATTEMPTS:] == ["json_schema"] * 2
    assert not refusals(caplog)


async def test_an_outage_is_no_proof_against_the_schema(tmp_path: Path) -> None:
    def answer(form: str, number: int) -> Answer:
        return (500, {"error": {"message": "overloaded"}}) if number <= 40 else FINE

    async with endpoint(answer, tmp_path) as server:
        await server.ask(TEXTS, together=True)
        await server.ask(["late"])
        assert server.forms[-1] == "json_schema"


async def test_one_500_is_no_proof_against_the_schema(tmp_path: Path) -> None:
    def answer(form: str, number: int) -> Answer:
        return (500, {"error": {"message": "oops"}}) if number == 1 else FINE

    async with endpoint(answer, tmp_path) as server:
        await server.ask(["a", "b", "c"])
        assert server.forms == ["json_schema", "json_object", "json_schema", "json_schema"]


@pytest.mark.parametrize("status", [400, 500])
async def test_a_schema_that_was_answered_is_not_doubted(status: int, tmp_path: Path) -> None:
    def answer(form: str, number: int) -> Answer:
        return FINE if number in (1, 4) else (status, {"error": {"message": "oops"}})

    async with endpoint(answer, tmp_path) as server:
        await server.ask(["a", "b"])
        assert server.forms == ["json_schema"] * (4 if status == 500 else 2)


async def test_a_single_schema_may_be_refused(tmp_path: Path) -> None:
    schemas: list[str] = []

    def answer(form: str, number: int) -> Answer:
        bad = form == "json_schema" and schemas[-1] == "word"
        return (500, {"error": {"message": "grammar"}}) if bad else FINE

    async with endpoint(answer, tmp_path) as server:
        for i, (name, schema) in enumerate([("number", NUMBER), ("word", WORD)] * 3):
            schemas.append(name)
            await server.ask([f"question {i}"], schema)
        fallen = ["json_schema", "json_object"]
        assert server.forms == ["json_schema", *fallen, "json_schema", *fallen, "json_schema", "json_object"]


async def test_a_request_that_fails_in_every_form_says_nothing_about_the_schema(tmp_path: Path) -> None:
    def answer(form: str, number: int) -> Answer:
        return (400, {"error": {"message": "the prompt is too long"}}) if number <= 3 else FINE

    async with endpoint(answer, tmp_path) as server:
        assert [c.text for c in await server.ask(["a", "b", "c"])] == ["fine"] * 3
        assert server.forms == ["json_schema", "json_object", "none", *["json_schema"] * 3]


async def test_a_list_is_not_asked_for_as_an_object(tmp_path: Path) -> None:
    async with endpoint(refusing(400, NAMED, "json_schema"), tmp_path) as server:
        await server.ask(["a"], {"type": "array"})
        assert server.forms == ["json_schema", "none"]


async def test_without_a_schema_a_400_is_final(tmp_path: Path) -> None:
    refused = refusing(400, UNNAMED, "none")
    async with endpoint(
        lambda form, number: refused(form, number) if number > 1 else FINE, tmp_path
    ) as server:
        _, lost = await server.ask(["first", "a"], None)
        assert lost.error is not None and server.forms == ["none"] * 2


class Picky(Endpoint):
    """Refuses bodies that hold one of these keys, without saying which."""

    def __init__(self, status: int, keys: tuple[str, ...], folder: Path) -> None:
        super().__init__(lambda form, number: FINE, folder)
        self.status, self.keys = status, keys
        self.bodies: list[dict[str, Any]] = []

    async def handle(self, http: web.Request) -> web.Response:
        self.bodies.append(await http.json())
        refused = any(key in self.bodies[-1] for key in self.keys)
        return web.json_response(
            {"error": {"message": "cannot do that"}} if refused else FINE[1],
            status=self.status if refused else 200,
        )

    async def ask_with(self, texts: list[str], **more: Any) -> list[Completion]:
        full = {"stop": ("?",), "top_logprobs": 2, "temperature": 0.5, **more}
        return [(await self.run.generate("task", Request((Message("user", t),), **full)))[0] for t in texts]


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("keys", [("seed",), ("stop", "logprobs"), ("seed", "response_format")])
async def test_a_parameter_that_is_refused_without_a_name_is_left_out_once_that_helps(
    status: int, keys: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    picky = Picky(status, keys, tmp_path)
    schema = NUMBER if "response_format" in keys else None
    async with endpoint(picky.answer, tmp_path, picky) as server:
        answers = await server.ask_with(TEXTS[:4], schema=schema)
        spent = len(picky.bodies)
        assert [c.text for c in (answers + await server.ask_with(TEXTS[4:], schema=schema))] == ["fine"] * 10
        assert len(picky.bodies) == spent + 6, "what is known to be refused is not sent again"
    assert all("temperature" in body and "max_tokens" in body for body in picky.bodies)
    assert any("seed; requests go without it" in r.getMessage() for r in caplog.records)


async def test_a_vague_refusal_of_one_request_takes_no_parameter_that_was_answered(tmp_path: Path) -> None:
    def answer(form: str, number: int) -> Answer:
        return (400, {"error": {"message": "too long"}}) if number in (2, 3) else FINE

    async with endpoint(answer, tmp_path) as server:
        first = await server.run.generate("task", Request((Message("user", "a"),), seed=1, stop=("?",)))
        second = await server.run.generate("task", Request((Message("user", "b"),), seed=1, stop=("?",)))
    assert first[0].error is None and second[0].error is not None
    assert len(server.forms) == 2
