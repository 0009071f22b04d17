"""Clients of the OpenAI SDK that log: completions, responses, streams, sync and async, errors, and the SDK itself where it is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.conftest import TOKEN, World

from whet.errors import UsageError
from whet_client import Client
from whet_client.http import HttpReply
from whet_client.openai import answer_id, wrap

NOWHERE = "http://127.0.0.1:9"


class Value(SimpleNamespace):
    """An object of the SDK: fields that may be missing, as deep as they are."""


def value_of(data: Any) -> Any:
    """JSON as such objects."""
    if isinstance(data, dict):
        return Value(**{name: one if name == "arguments" else value_of(one) for name, one in data.items()})
    return [value_of(one) for one in data] if isinstance(data, list) else data


COMPLETION = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-2026", "system_fingerprint": "fp_1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Tomorrow."}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}  # fmt: skip
CALLS = {
    **COMPLETION,
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"parcel": 7}'}}]}}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m-2026", "status": "completed", "error": None,
    "output": [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Tomorrow.", "annotations": []}]},
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "find", "arguments": "{}"},
    ],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9, "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}},
}  # fmt: skip


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A part of a stream of a completion."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2026"}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Tomor"}),
    chunk({"content": "row."}),
    chunk({}, "stop"),
    {**chunk({}), "choices": [], "usage": COMPLETION["usage"]},
]
CALL_CHUNKS = [
    chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "find", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"parcel"'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 7}"}}]}),
    chunk({}, "tool_calls"),
]  # fmt: skip


def delta(number: int, text: str) -> dict[str, Any]:
    """An event with a part of a response's text."""
    place = {"item_id": "m1", "output_index": 1, "content_index": 0, "logprobs": []}
    return {"type": "response.output_text.delta", "sequence_number": number, "delta": text, **place}


BEGUN = {**RESPONSE, "output": [], "usage": None, "status": "in_progress"}
EVENTS = [
    {"type": "response.created", "sequence_number": 0, "response": BEGUN},
    delta(1, "Tomor"),
    delta(2, "row."),
    {"type": "response.completed", "sequence_number": 3, "response": RESPONSE},
]


class Stream:
    """A stream of the SDK: an iterator that can be closed."""

    def __init__(self, parts: list[Any], error: Exception | None = None) -> None:
        self.parts, self.error = iter(parts), error
        self.response = "the response"
        self.closed = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for part in self.parts:
            return value_of(part)
        if self.error:
            raise self.error
        raise StopIteration

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Note it."""
        self.closed = True


class AsyncStream:
    """The same for asyncio."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self.stream)
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.close()


class Sdk:
    """A client in the form of the SDK's, which answers every call alike."""

    def __init__(self, answer: Any, is_async: bool = False) -> None:
        self.answer, self.is_async = answer, is_async
        self.api_key, self.requests = "secret", list[dict[str, Any]]()
        self.chat = SimpleNamespace(
            completions=SimpleNamespace(create=self.create, parse=self.create, list=lambda: "others")
        )
        self.responses = SimpleNamespace(create=self.create, parse=self.create)
        self.models = SimpleNamespace(list=lambda: ["m"])

    def create(self, **request: Any) -> Any:
        """Any call."""
        self.requests.append(request)
        return self._later() if self.is_async else self._now()

    def _now(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, Stream | AsyncStream) else value_of(self.answer)

    async def _later(self) -> Any:
        return self._now()

    def with_options(self, **_: Any) -> Sdk:
        """The same client."""
        return self


@pytest.fixture
def whet(world: World) -> Iterator[Client]:
    """A client of whet without a network."""

    def send(method: str, path: str, headers: Any, body: bytes | None) -> HttpReply:
        status, found, content = world.answer(
            method, path, {"Authorization": f"Bearer {TOKEN}", **headers}, body or b""
        )
        return HttpReply(status, found, content)

    with Client(NOWHERE, spool=None, send=send) as client:
        yield client


REQUEST = {
    "model": "m",
    "messages": [{"role": "system", "content": "Help."}, {"role": "user", "content": "When?"}],
}


def test_a_completion_is_logged_and_its_id_takes_feedback(whet: Client, world: World) -> None:
    world.put("shop/help", "Help. {{question}}", 4)
    prompt = whet.prompt("shop/help", user="u")
    sdk = Sdk(COMPLETION)
    ai = wrap(
        sdk, whet=whet, prompt=prompt, inputs={"question": "When?"}, session="s", metadata={"country": "GR"}
    )
    answer = ai.chat.completions.create(**REQUEST)
    assert answer.choices[0].message.content == "Tomorrow." and sdk.requests == [REQUEST]
    whet.feedback(answer_id(answer), thumb="up")
    assert whet.flush(60)
    row = world.inferences[answer_id(answer)]
    assert (row.prompt, row.version, row.user, row.session) == ("shop/help", 4, "u", "s")
    assert (row.inputs, row.output, row.model, row.response) == (
        {"question": "When?"},
        "Tomorrow.",
        "m-2026",
        "chatcmpl-1",
    )
    assert (row.input_tokens, row.output_tokens, row.error) == (7, 2, None) and row.latency >= 0
    assert row.metadata == {"system_fingerprint": "fp_1", "finish_reason": "stop", "country": "GR"}
    assert [one.target for one in world.feedback.values()] == [row.id]


@pytest.mark.parametrize(
    ("call", "answer", "output"),
    [
        ("chat.completions.create", COMPLETION, "Tomorrow."),
        ("chat.completions.parse", CALLS, '{"name": "find", "arguments": "{\\"parcel\\": 7}"}'),
        ("responses.create", RESPONSE, 'Tomorrow.\n{"name": "find", "arguments": "{}"}'),
        ("responses.parse", RESPONSE, 'Tomorrow.\n{"name": "find", "arguments": "{}"}'),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_every_call_sync_and_async(
    whet: Client, world: World, call: str, answer: Any, output: str, is_async: bool
) -> None:
    at: Any = wrap(Sdk(answer, is_async), whet=whet, prompt="p")
    for name in call.split("."):
        at = getattr(at, name)
    request = {"model": "m", "input": "When?", "instructions": "Help."} if "responses" in call else REQUEST
    answered = asyncio.run(_await(at(**request))) if is_async else at(**request)
    assert whet.flush(60)
    row = world.inferences[answer_id(answered)]
    assert (row.output, row.input_tokens, row.output_tokens) == (output, 7, 2)
    assert row.inputs == {"messages": REQUEST["messages"]}


async def _await(value: Any) -> Any:
    return await value


PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "It was sent today."}]},
    {"type": "text", "text": "Tomor"},
    {"type": "reasoning", "text": "So tomorrow."},
    {"type": "text", "text": "row."},
]
"""The content of a message in parts, as reasoning models have it."""


def tool(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    """A call of a tool, or a part of one."""
    return {**more, "function": {"name": name, "arguments": arguments}}


FIND, GET = '{"name": "find", "arguments": "{\\"a\\": 1}"}', '{"name": "get", "arguments": "{}"}'


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ({"content": PARTS}, "Tomorrow."),
        ({"content": [], "refusal": "No."}, "No."),
        (
            {"content": None, "tool_calls": [tool("find", '{"a": 1}', id="c"), tool("get", "{}", id="c")]},
            f"{FIND}\n{GET}",
        ),
        ({"content": None, "tool_calls": [tool("find", {"a": 1})]}, FIND),
    ],
)
def test_messages_as_providers_write_them(
    whet: Client, world: World, message: dict[str, Any], output: str
) -> None:
    answer = {**COMPLETION, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    wrap(Sdk(answer), whet=whet, prompt="p").chat.completions.create(**REQUEST)
    deltas = [chunk({"content": [part]}) for part in PARTS]
    list(wrap(Sdk(Stream(deltas)), whet=whet, prompt="s").chat.completions.create(stream=True, **REQUEST))
    assert whet.flush(60)
    outputs = {row.prompt: row.output for row in world.inferences.values()}
    assert outputs == {"p": output, "s": "Tomorrow."}


@pytest.mark.parametrize(
    ("answer", "is_chat"),
    [
        ({**COMPLETION, "choices": [{"index": 0, "message": {"content": None, "refusal": "No."}}]}, True),
        (Stream([chunk({"refusal": "N"}), chunk({"refusal": "o."})]), True),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]}, False),
        (Stream([{"type": "response.refusal.delta", "delta": "No."}]), False),
    ],
)
def test_what_a_model_refuses_is_marked(whet: Client, world: World, answer: Any, is_chat: bool) -> None:
    """Quality counts it; a refusal is not known by its words."""
    sdk, is_stream = wrap(Sdk(answer), whet=whet, prompt="p"), isinstance(answer, Stream)
    create = sdk.chat.completions.create if is_chat else sdk.responses.create
    given = create(**(REQUEST if is_chat else {"model": "m", "input": "When?"}), stream=is_stream)
    if is_stream:
        list(given)
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert (row.output, row.metadata["refusal"]) == ("No.", True)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("reason", ["content_filter", "max_output_tokens"])
def test_why_a_response_is_incomplete_is_logged(
    whet: Client, world: World, reason: str, is_stream: bool
) -> None:
    """Quality counts what a filter ended."""
    cut = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": reason}}
    events = [*EVENTS[:-1], {"type": "response.incomplete", "sequence_number": 3, "response": cut}]
    sdk = wrap(Sdk(Stream(events) if is_stream else cut), whet=whet, prompt="p")
    given = sdk.responses.create(model="m", input="When?", stream=is_stream)
    if is_stream:
        list(given)
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert row.metadata["finish_reason"] == reason


@pytest.mark.parametrize(
    "parts",
    [
        [tool("find", '{"a": 1}', id="c1"), tool("get", "{}", id="c2")],  # no index
        [tool("find", '{"a": 1}', index=0, id="c1"), tool("get", "{}", index=0, id="c2")],  # one index for all
        [tool("find", '{"a": 1}'), tool("get", "{}")],  # neither index nor id
        [tool("find", '{"a"', id="c1"), tool(None, ": 1}"), tool("get", "{", id="c2"), tool("", "}")],
        [tool("find", '{"a"', id="c1"), tool("", ": 1}", id="c1"), tool("get", "{}", id="c2")],
        [tool("find", "", index=0, id="x1"), tool(None, '{"a": 1}', index=0, id="x2"), tool("get", "{}", index=1, id="x3")],
        [tool("find", '{"a"', index=0, id="c1"), tool("get", "{", index=1, id="c2"), tool(None, ": 1}", index=0),
         tool(None, "}", index=1)],
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [False, True])
def test_streamed_calls_of_tools_stay_apart(
    whet: Client, world: World, parts: list[dict[str, Any]], together: bool
) -> None:
    chunks = [chunk({"tool_calls": one}) for one in ([parts] if together else [[part] for part in parts])]
    list(wrap(Sdk(Stream(chunks)), whet=whet, prompt="p").chat.completions.create(stream=True, **REQUEST))
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert row.output == f"{FIND}\n{GET}"


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        (CHUNKS, "Tomorrow."),
        (CALL_CHUNKS, '{"name": "find", "arguments": "{\\"parcel\\": 7}"}'),
        (EVENTS, 'Tomorrow.\n{"name": "find", "arguments": "{}"}'),
    ],
)
def test_streams_reach_the_app_whole_and_are_logged_at_their_end(
    whet: Client, world: World, parts: list[Any], output: str
) -> None:
    stream = wrap(Sdk(Stream(parts)), whet=whet, prompt="p").chat.completions.create(stream=True, **REQUEST)
    assert stream.response == "the response"
    id = answer_id(stream)
    assert list(stream) == [value_of(part) for part in parts]

    async def read() -> tuple[str, list[Any]]:
        ai = wrap(Sdk(AsyncStream(Stream(parts)), True), whet=whet, prompt="p")
        async with await ai.chat.completions.create(stream=True, **REQUEST) as stream:
            return answer_id(stream), [part async for part in stream]

    other, received = asyncio.run(read())
    assert received == [value_of(part) for part in parts]
    assert whet.flush(60)
    for row in (world.inferences[id], world.inferences[other]):
        assert (row.output, row.model, row.metadata.get("left")) == (output, "m-2026", None)
        assert (row.input_tokens, row.output_tokens) == ((None, None) if parts is CALL_CHUNKS else (7, 2))
    assert len(world.inferences) == 2


def test_a_stream_that_breaks_or_is_left_is_logged_with_what_came(whet: Client, world: World) -> None:
    broken = wrap(Sdk(Stream(CHUNKS[:2], OSError("reset"))), whet=whet, prompt="p").chat.completions.create(
        stream=True
    )
    with pytest.raises(OSError, match="reset"):
        list(broken)
    sdk = Sdk(Stream(EVENTS))
    with wrap(sdk, whet=whet, prompt="p").responses.create(stream=True) as left:
        next(left)
        next(left)
    assert sdk.answer.closed
    assert whet.flush(60)
    row = world.inferences[answer_id(broken)]
    assert (row.output, row.error) == ("Tomor", "OSError: reset")
    row = world.inferences[answer_id(left)]
    assert (row.output, row.response, row.metadata["left"]) == ("Tomor", "resp_1", True)


def _leave_by_break(stream: Iterator[Any]) -> None:
    for _ in stream:
        break


def _leave_by_an_error(stream: Iterator[Any]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for _ in stream:
            1 / 0  # noqa: B018


def _leave_by_closing_a_generator(stream: Iterator[Any]) -> None:
    parts = (part for part in stream)
    next(parts)
    parts.close()


@pytest.mark.parametrize("leave", [_leave_by_break, _leave_by_an_error, _leave_by_closing_a_generator])
def test_a_stream_that_the_app_drops_is_logged_with_what_came(
    whet: Client, world: World, leave: Callable[[Iterator[Any]], None]
) -> None:
    ai = wrap(Sdk(Stream(CHUNKS[1:])), whet=whet, prompt="p")
    leave(ai.chat.completions.create(stream=True, **REQUEST))
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert (row.output, row.metadata["left"], row.error) == ("Tomor", True, None)


async def _break(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        break


async def _cancel(stream: AsyncIterator[Any]) -> None:
    came = asyncio.Event()

    async def read() -> None:
        async for _ in stream:
            came.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("leave", [_break, _cancel])
def test_a_stream_of_asyncio_that_the_app_drops_is_logged_with_what_came(
    whet: Client, world: World, leave: Callable[[AsyncIterator[Any]], Awaitable[None]]
) -> None:
    async def use() -> None:
        ai = wrap(Sdk(AsyncStream(Stream(CHUNKS[1:])), True), whet=whet, prompt="p")
        await leave(await ai.chat.completions.create(stream=True, **REQUEST))

    asyncio.run(use())
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert (row.output, row.metadata["left"]) == ("Tomor", True)


def test_a_call_and_a_stream_that_wait_when_their_task_is_cancelled_are_logged(
    whet: Client, world: World
) -> None:
    class Waiting(AsyncStream):
        async def __anext__(self) -> Any:
            return await asyncio.Event().wait()

    class Slow(Sdk):
        async def _later(self) -> Any:
            return await asyncio.Event().wait()

    async def use() -> None:
        stream = await wrap(
            Sdk(Waiting(Stream([])), True), whet=whet, prompt="stream"
        ).chat.completions.create(stream=True, **REQUEST)
        call = wrap(Slow(None, True), whet=whet, prompt="call").chat.completions.create(**REQUEST)
        for waiting in (anext(stream), call):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting, 0.001)

    asyncio.run(use())
    assert whet.flush(60)
    rows = {row.prompt: row for row in world.inferences.values()}
    assert (rows["call"].error, rows["call"].output) == ("CancelledError", "")
    assert (rows["stream"].error, rows["stream"].metadata["left"]) == (None, True)


def test_a_stream_of_several_choices_logs_the_first_and_their_number(whet: Client, world: World) -> None:
    other = {"index": 1, "delta": {"content": "Never."}, "finish_reason": "stop"}
    parts = [CHUNKS[0], {**CHUNKS[0], "choices": [other]}, *CHUNKS[1:]]
    list(wrap(Sdk(Stream(parts)), whet=whet, prompt="p").chat.completions.create(stream=True, n=2, **REQUEST))
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert (row.output, row.metadata["choices"]) == ("Tomorrow.", 2)


@pytest.mark.parametrize("is_async", [False, True])
def test_errors_stay_the_apps_and_are_logged(whet: Client, world: World, is_async: bool) -> None:
    error = TimeoutError("too slow")
    ai = wrap(Sdk(error, is_async), whet=whet, prompt="p")
    with pytest.raises(TimeoutError) as raised:
        asyncio.run(
            _await(ai.chat.completions.create(**REQUEST))
        ) if is_async else ai.chat.completions.create(**REQUEST)
    assert raised.value is error
    assert whet.flush(60)
    (row,) = world.inferences.values()
    assert (row.error, row.output, row.model) == ("TimeoutError: too slow", "", "m")


def test_a_log_that_fails_never_reaches_the_app(
    whet: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("odd")

    def broken(*_: object, **__: object) -> str:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Client, "log", broken)
    ai = wrap(Sdk(COMPLETION), whet=whet, prompt="p")
    assert ai.chat.completions.create(**REQUEST).id == "chatcmpl-1"
    sdk = Sdk(COMPLETION)
    odd = Odd()
    sdk._now = lambda: odd  # type: ignore[method-assign]
    assert wrap(sdk, whet=whet, prompt="p").chat.completions.create(**REQUEST) is odd
    assert "An answer could not be logged" in caplog.text


def test_everything_else_of_the_client_is_as_it_was(whet: Client, world: World) -> None:
    sdk = Sdk(COMPLETION)
    ai = wrap(sdk, whet=whet, prompt="p")
    assert (ai.api_key, ai.models.list(), ai.chat.completions.list()) == ("secret", ["m"], "others")
    answer = ai.with_options(timeout=3).chat.completions.create(**REQUEST)
    assert whet.flush(60) and list(world.inferences) == [answer_id(answer)]
    with pytest.raises(AttributeError):
        getattr(ai, "none")  # noqa: B009 - the type has no such attribute


def test_what_cannot_be_wrapped_or_has_no_id_is_refused(whet: Client) -> None:
    with pytest.raises(UsageError, match='Did you mean "session"'):
        wrap(Sdk(COMPLETION), whet=whet, prompt="p", sesion="s")
    with pytest.raises(UsageError, match="wrap: user holds a control character"):
        wrap(Sdk(COMPLETION), whet=whet, prompt="p", user="a\nb")
    with pytest.raises(UsageError, match="prompt is a LivePrompt or the name of one; this is int"):
        wrap(Sdk(COMPLETION), whet=whet, prompt=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no answer of a wrapped client"):
        answer_id(value_of(COMPLETION))


def test_ids_are_forgotten_with_their_answers(whet: Client) -> None:
    from whet_client import openai

    ai = wrap(Sdk(COMPLETION), whet=whet, prompt="p")
    answers = [ai.chat.completions.create(**REQUEST) for _ in range(50)]
    assert len({answer_id(one) for one in answers}) == 50
    before = len(openai._ids)
    del answers
    gc.collect()
    assert len(openai._ids) <= before - 50


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint in the form of OpenAI's."""

    def do_POST(self) -> None:
        """Answer by the path, as a stream where that is asked for."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parts, whole = (CHUNKS, COMPLETION) if "chat" in self.path else (EVENTS, RESPONSE)
        if request.get("model") == "none":
            self.reply(404, "application/json", json.dumps({"error": {"message": "no such model"}}))
        elif request.get("stream"):
            self.reply(
                200,
                "text/event-stream",
                "".join(f"data: {json.dumps(one)}\n\n" for one in parts) + "data: [DONE]\n\n",
            )
        else:
            self.reply(200, "application/json", json.dumps(whole))

    def reply(self, status: int, kind: str, text: str) -> None:
        """An answer with a length."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_with_the_sdk_itself(whet: Client, world: World) -> None:
    sdk = pytest.importorskip(
        "openai", reason="the OpenAI SDK is not installed (`make test-models` installs it)"
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    options = {"base_url": f"http://127.0.0.1:{server.server_port}", "api_key": "k", "max_retries": 0}
    with sdk.OpenAI(**options) as plain:
        ai = wrap(plain, whet=whet, prompt="p")
        answer = ai.chat.completions.create(**REQUEST)
        assert answer.model_dump()["choices"][0]["message"]["content"] == "Tomorrow."
        response = ai.responses.create(model="m", input="When?")
        assert response.output_text == "Tomorrow."
        with ai.chat.completions.create(stream=True, **REQUEST) as stream:
            assert "".join(one.choices[0].delta.content or "" for one in stream if one.choices) == "Tomorrow."
        events = ai.responses.create(model="m", input="When?", stream=True)
        assert [one.type for one in events][-1] == "response.completed"
        raw = ai.chat.completions.with_raw_response.create(**REQUEST)
        assert raw.parse().id == "chatcmpl-1"
        with pytest.raises(sdk.NotFoundError) as raised:
            ai.chat.completions.create(model="none", messages=[])

    async def ask() -> str:
        async with wrap(sdk.AsyncOpenAI(**options), whet=whet, prompt="p") as later:
            stream = await later.chat.completions.create(stream=True, **REQUEST)
            assert (
                "".join([one.choices[0].delta.content or "" async for one in stream if one.choices])
                == "Tomorrow."
            )
            return answer_id(stream)

    other = asyncio.run(ask())
    server.shutdown()
    server.server_close()
    assert whet.flush(60)
    tool = '\n{"name": "find", "arguments": "{}"}'
    outputs = [
        (answer, "Tomorrow."), (response, f"Tomorrow.{tool}"), (stream, "Tomorrow."), (events, f"Tomorrow.{tool}"),
    ]  # fmt: skip
    for one, output in outputs:
        row = world.inferences[answer_id(one)]
        assert (row.output, row.input_tokens, row.output_tokens, row.error) == (output, 7, 2, None)
    assert world.inferences[other].output == "Tomorrow."
    assert "no such model" in str(raised.value)
    assert [one.error for one in world.inferences.values() if one.error] == [f"NotFoundError: {raised.value}"]
    assert len(world.inferences) == 6
