"""openai/...: bodies, usages, errors and connections that no specification allows, from real servers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from whet.errors import ProviderError
from whet.models import http as http_client
from whet.models.openai import OpenAIModel
from whet.types import Completion, Message, Request, Usage

ASK = Request((Message("user", "How are you?"),))
CANARY = "sk-canary-7f3a91c2"
USAGE = {"prompt_tokens": 7, "completion_tokens": 2}


@asynccontextmanager
async def bytes_from(raw: bytes) -> AsyncIterator[OpenAIModel]:
    """A model at a server that sends these bytes to every request and closes the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(row.split(b":")[1])
            for row in head.lower().split(b"\r\n")
            if row.startswith(b"content-length")
        )
        await reader.readexactly(length)
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = OpenAIModel("tiny", base_url=f"http://127.0.0.1:{port}/v1", api_key=CANARY)
    try:
        yield model
    finally:
        await model.close()
        server.close()


def http(body: Any, status: str = "200 OK", *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    )
    return "\r\n".join((*head, "", "")).encode() + data


async def answered(raw: bytes) -> Completion:
    async with bytes_from(raw) as model:
        return (await model.generate(ASK))[0]


async def failed(raw: bytes) -> ProviderError:
    async with bytes_from(raw) as model:
        with pytest.raises(ProviderError) as caught:
            await model.generate(ASK)
    assert "canary" not in str(caught.value)
    return caught.value


def body(text: Any = "fine", usage: Any = USAGE, **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"message": message, "finish_reason": "stop", **choice}], "usage": usage}


ODD_USAGES = [
    {"prompt_tokens": 2**63, "completion_tokens": 1},
    {"prompt_tokens": 10**40, "completion_tokens": 1},
    {"prompt_tokens": 2**53, "completion_tokens": 2**53},
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": 7, "completion_tokens": 0},
    {"prompt_tokens": 7, "completion_tokens": -3},
    {"prompt_tokens": 7.5, "completion_tokens": 1.0},
    {"prompt_tokens": "seven", "completion_tokens": "1"},
    {"prompt_tokens": 7, "completion_tokens": None},
    {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    [7, 1],
    "7",
]


@pytest.mark.parametrize("usage", ODD_USAGES, ids=str)
async def test_a_usage_that_cannot_be_right_is_estimated_and_said_once(
    usage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with bytes_from(http(body(usage=usage))) as model:
        with caplog.at_level(logging.WARNING):
            found = [(await model.generate(ASK))[0].usage for _ in range(2)]
    assert found == [Usage(len("How are you?"), len("fine"), estimated=True)] * 2
    assert [r.getMessage() for r in caplog.records].count(
        "openai/tiny reports a usage that cannot be right; one token is counted for each byte instead, "
        "unless it names more."
    ) == 1


READABLE = {
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(body()).encode(), "fine"),
    "NaN": (json.dumps(body(logprobs=float("nan"))).encode(), "fine"),
    "bytes that are no UTF-8": (json.dumps(body()).encode().replace(b"fine", b"f\xffne"), "f\ufffdne"),
    "half a pair": (json.dumps(body("a\ud800b")).encode(), "a\ufffdb"),
    "a pair beside half of one": (json.dumps(body("\U0001f600 \udc00")).encode(), "\U0001f600 \ufffd"),
    "a list of parts": (json.dumps(body([{"type": "text", "text": "fi"}, {"text": "ne"}])).encode(), "fine"),
    "another model's name": (json.dumps({**body(), "model": "other"}).encode(), "fine"),
}


@pytest.mark.parametrize("name", READABLE)
async def test_an_answer_in_an_odd_form_is_an_answer(name: str) -> None:
    raw, text = READABLE[name]
    found = await answered(http(raw))
    assert (found.text, found.error) == (text, None)
    json.dumps(found.text).encode("utf-8", "strict")


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted"])
async def test_another_2xx_with_an_answer_is_an_answer(status: str) -> None:
    assert (await answered(http(body(), status))).text == "fine"


async def test_a_2xx_without_a_body_is_none() -> None:
    error = await failed(http(b"", "204 No Content"))
    assert "HTTP 204: an answer without a body" in str(error) and error.fatal
    error = await failed(http(b""))
    assert "the answer has no body" in str(error) and error.retryable


WORDS = "the GPU fell off the bus"
INSIDE = [
    ({"error": {"message": WORDS}}, 200, "HTTP 200 with an error in it: "),
    ({"error": {"message": WORDS, "code": 503}}, 503, "HTTP 200 with an error in it (status 503): "),
    ({"error": {"message": WORDS, "code": "429"}}, 429, "HTTP 200 with an error in it (status 429): "),
    ({"error": WORDS}, 200, "HTTP 200 with an error in it: "),
    ({"error": {"message": WORDS}, "choices": []}, 200, "HTTP 200 with an error in it: "),
    ({"object": "error", "message": WORDS, "code": 40303}, 200, "HTTP 200 with an error in it: "),
    ({"detail": WORDS}, 200, "HTTP 200 with an error in it: "),
    (body("half", finish_reason="error", error={"message": WORDS, "code": 502}), 502, "(status 502): "),
    (body("", error=WORDS), 200, "HTTP 200 with an error in it: "),
]


@pytest.mark.parametrize(("answer", "status", "place"), INSIDE)
async def test_an_error_inside_a_200_keeps_its_words_and_its_status(
    answer: Any, status: int, place: str
) -> None:
    error = await failed(http(answer))
    assert f"{place}{WORDS}" in str(error) and "HTTP 502" not in str(error)
    assert (error.status, error.retryable, error.billed) == (status, True, False)


async def test_a_choice_that_ended_with_an_error_is_no_answer() -> None:
    error = await failed(http(body("half an answ", finish_reason="error")))
    assert "finish_reason error" in str(error) and error.retryable
    for reason in ("network_error", "insufficient_system_resource", "Abort"):
        for text in ("half an answ", ""):
            error = await failed(http(body(text, finish_reason=reason)))
            assert f"finish_reason {reason}" in str(error) and error.retryable


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "sensitive", "refusal", "guardrail_intervened"])
async def test_an_answer_that_a_filter_ended_is_a_refusal(reason: str) -> None:
    found = await answered(http(body("half", finish_reason=reason)))
    assert found.error == "model: refused (stopped by a content filter)"


async def test_an_answer_that_the_context_ended_is_a_cut_one() -> None:
    found = await answered(http(body("half", finish_reason="model_context_window_exceeded")))
    assert (found.finish, found.error) == ("length", None)
    both = body("fine")
    both["choices"].append(
        {"message": {"content": "half"}, "finish_reason": "error", "error": {"message": WORDS}}
    )
    async with bytes_from(http(both)) as model:
        found = await model.generate(Request(ASK.messages, n=2, temperature=1.0))
    assert [c.error is None for c in found] == [True, False] and WORDS in str(found[1].error)


INSTEAD = [
    ({"content": None, "tool_calls": [{"id": "1"}]}, "it calls a tool, and none was offered"),
    ({"content": "", "reasoning_content": "Let me see."}, "it holds a thought and no text"),
    ({"content": None, "reasoning": "Let me see."}, "it holds a thought and no text"),
]


@pytest.mark.parametrize(("message", "words"), INSTEAD)
async def test_a_message_without_a_text_says_what_it_holds(message: Any, words: str) -> None:
    found = await answered(http({"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}))
    assert found.error == f"model: empty answer ({words})"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LOST = {
    "cut chunks": (CHUNKED + b'20\r\n{"choices"', "the answer was cut off"),
    "broken chunks": (CHUNKED + b'zz\r\n{"choices"', "the answer is not proper HTTP"),
    "broken gzip": (http(b"not packed at all", "200 OK", "Content-Encoding: gzip"), "cannot be unpacked"),
    "a stream without an end": (http(b'data: {"choices": [{"delta": {"content": "fine"}}]}\n\n'), "the stream ended"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "the answer is not proper HTTP"),
    "a status line only": (b"HTTP/1.1 200 OK\r\n", "closed the connection without an answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
async def test_an_answer_that_does_not_arrive_whole_says_so(name: str) -> None:
    raw, words = LOST[name]
    error = await failed(raw)
    assert words in str(error) and "no connection" not in str(error)
    assert (error.retryable, error.fatal) == (True, False)


async def test_an_answer_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MOST_BYTES", 2**20)
    error = await failed(http(body("x" * 2**21)))
    assert "longer than 1 MiB" in str(error) and error.retryable and error.billed
    assert (await answered(http(body("x" * 2**19)))).text == "x" * 2**19


async def test_a_redirect_says_where_to() -> None:
    moved = (
        "301 Moved Permanently",
        f"Location: https://user:pw@other.example/v1/chat/completions?key={CANARY}",
    )
    error = await failed(http(b"", *moved))
    assert "HTTP 301: it points to https://other.example/v1/chat/completions" in str(error) and error.fatal


async def test_a_page_to_sign_in_is_named() -> None:
    page = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body></body></html>"
    assert "the address answers with a web page" in str(await failed(http(page)))
