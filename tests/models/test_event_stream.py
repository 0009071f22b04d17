"""Streams of events: what they add up to, however they are written, and how a model finds out that there must be one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whet.errors import ProviderError, UsageError
from whet.models.addresses import resolve
from whet.models.event_stream import read_event_stream
from whet.models.openai_answers import completions, decode_answer, reported_usage
from whet.models.openai_wire import Failure
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving
from whet.types import Completion, Message, Request, Usage

ASK = Request((Message("user", "Say yes or no."),), 0.5, 64)
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def chunk(delta: Any = None, finish: str | None = None, index: int = 0, **more: Any) -> str:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish, **more.pop("choice", {})}
    return json.dumps({"id": "c", "choices": [choice], **more})


def read(text: str) -> list[Completion]:
    data = decode_answer(text.encode())
    made = completions(data, ASK, len, reported_usage(data))
    assert isinstance(made, list)
    return made


END = "fund\u2028."
PIECES = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "re"}),
    chunk({"content": "fund\u2028."}, "stop"),
]
LAST = json.dumps({"choices": [], "usage": USAGE})
WHOLE = {
    "as written by OpenAI": "".join(f"data: {p}\n\n" for p in [*PIECES, LAST]) + "data: [DONE]\n\n",
    "carriage returns": "".join(f"data: {p}\r\n\r\n" for p in [*PIECES, LAST]) + "data: [DONE]\r\n\r\n",
    "carriage returns alone": "".join(f"data: {p}\r\r" for p in [*PIECES, LAST]) + "data: [DONE]\r\r",
    "no blank lines": "".join(f"data:{p}\n" for p in [*PIECES, LAST]) + "data:[DONE]\n",
    "comments and names": ": ping\n\n" + "".join(f"event: chunk\nid: 1\ndata: {p}\n: x\n\n" for p in [*PIECES, LAST]),
    "no end of line": "\n\n".join(f"data: {p}" for p in [*PIECES, LAST]),
    "a byte order mark": "\ufeff" + "".join(f"data: {p}\n\n" for p in [*PIECES, LAST]),
    "data in two lines": "".join(f"data: {p[:1]}\ndata: {p[1:]}\n\n" for p in [*PIECES, LAST]),
    "usage in each chunk": "".join(
        f"data: {chunk({'content': text}, finish, usage={**USAGE, 'completion_tokens': n})}\n\n"
        for text, finish, n in (("re", None, 1), ("fund\u2028.", "stop", 3))
    ),
    "usage of Groq": f"data: {PIECES[1]}\n\ndata: {chunk({'content': END}, 'stop', x_groq={'usage': USAGE})}\n\n",
    "a first chunk about filters": 'data: {"choices": [], "prompt_filter_results": [{}]}\n\n'
    + "".join(f"data: {p}\n\n" for p in [*PIECES, LAST]),
    "the whole message at the end": "".join(f"data: {p}\n\n" for p in PIECES[:2])
    + f"data: {chunk(None, 'stop', choice={'message': {'content': 're' + END}}, usage=USAGE)}\n\n",
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_a_stream_is_one_answer(text: str) -> None:
    (answer,) = read(text)
    assert (answer.text, answer.finish, answer.error, answer.usage) == (
        "refund\u2028.",
        "stop",
        None,
        Usage(7, 3),
    )


def usage_of_stream(*usages: dict[str, Any]) -> Usage | None:
    """What a stream with these usages, one after the other, is read as."""
    chunks = [chunk({"content": END}, "stop"), *(json.dumps({"choices": [], "usage": one}) for one in usages)]
    return reported_usage(decode_answer("".join(f"data: {one}\n\n" for one in chunks).encode()))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (
            {"input_tokens": 10000, "output_tokens": 1},
            {"input_tokens": 1000, "output_tokens": 5, "cache_read_input_tokens": 9000},
            Usage(10000, 5, 9000),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101, "cache_creation_input_tokens": 40},
            {
                "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
                "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0,
            },
            Usage(100, 5, 40),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 90}},
            {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
            Usage(100, 5),
        ),
        (
            {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 90}, "total_tokens": 155},
            {"prompt_tokens": 0, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
            Usage(100, 55, 90, 50),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 155},
            {"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 100},
            Usage(100, 55, 0, 50),
        ),
    ],
    ids=["the whole input first", "no cache written after all", "nothing cached after all", "output last", "zeros last"],
)  # fmt: skip
def test_the_newest_count_of_the_input_holds(
    first: dict[str, Any], last: dict[str, Any], expected: Usage
) -> None:
    assert usage_of_stream(first, last) == expected


def test_thoughts_refusals_parts_and_log_probabilities_come_in_pieces() -> None:
    tokens = [{"token": "ye", "top_logprobs": [{"token": "ye", "logprob": -0.1}]}]
    pieces = [
        chunk({"reasoning_content": "Hm"}), chunk({"reasoning_content": "m."}),
        chunk({"content": "ye"}, choice={"logprobs": {"content": tokens}}), chunk({"content": "s"}, "length"),
    ]  # fmt: skip
    data = read_event_stream("".join(f"data: {p}\n\n" for p in pieces).encode())
    (choice,) = data["choices"]
    assert choice["message"] == {"role": "assistant", "content": "yes", "reasoning_content": "Hmm."}
    assert choice["logprobs"]["content"] == tokens and choice["finish_reason"] == "length"
    details = [
        chunk({"reasoning_details": [{"text": "a"}]}),
        chunk({"reasoning_details": [{"text": "b"}], "content": "x"}, "stop"),
    ]
    (choice,) = read_event_stream("".join(f"data: {p}\n\n" for p in details).encode())["choices"]
    assert choice["message"]["reasoning_details"] == [{"text": "a"}, {"text": "b"}]
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]
    parts = [chunk({"content": thinking}), chunk({"content": "yes"}, "stop")]
    (choice,) = read_event_stream("".join(f"data: {p}\n\n" for p in parts).encode())["choices"]
    assert choice["message"]["content"] == [*thinking, {"type": "text", "text": "yes"}]
    (refused,) = read(
        f"data: {chunk({'refusal': 'I '})}\n\ndata: {chunk({'refusal': 'cannot.'}, 'stop')}\n\n"
    )
    assert "I cannot." in str(refused.error)
    (tool,) = read(f"data: {chunk({'tool_calls': [{'index': 0}]}, 'tool_calls')}\n\n")
    assert tool.text == "" and "calls a tool" in str(tool.error)
    (empty,) = read("data: [DONE]\n\n")
    assert "empty answer" in str(empty.error)


def test_several_choices_come_interleaved() -> None:
    pieces = [
        chunk({"content": "a"}),
        chunk({"content": "x"}, index=1),
        chunk({"content": "b"}, "stop"),
        chunk({}, "stop", 1),
    ]
    data = read_event_stream("".join(f"data: {p}\n\n" for p in pieces).encode())
    assert [choice["message"]["content"] for choice in data["choices"]] == ["ab", "x"]


def test_an_index_that_counts_tokens_is_no_choice() -> None:
    """As text-generation-inference wrote it before 1.4.4."""
    pieces = [
        {"choices": [{"index": n, "delta": {"content": text}, "finish_reason": end}]}
        for n, text, end in ((1, "Y", None), (2, "es", None), (3, ".", "length"))
    ]
    data = decode_answer("".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces).encode())
    (choice,) = data["choices"]  # type: ignore[misc]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Yes.", "length")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("".join(f"data: {p}\n\n" for p in PIECES[:2]), "the stream ended before the answer did"),
        (f"data: {chunk({'content': 'a'}, 'stop')}\n\ndata: {chunk({'content': 'b'}, index=1)}\n\n", "the stream ended"),
        (": ping\n\n", "the stream ended"),
        ("data: <html>busy</html>\n\n", "not a JSON object"),
        ("data: {\"choices\": [\n\n", "not a JSON object"),
    ],
)  # fmt: skip
def test_a_stream_without_an_end_is_a_lost_answer(text: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as caught:
        decode_answer(text.encode())
    assert caught.value.retryable and caught.value.billed


@pytest.mark.parametrize(
    "event",
    [
        'data: {"error": {"message": "overloaded", "code": 529}}\n\n',
        'event: error\ndata: {"message": "overloaded", "code": 529}\n\n',
    ],
)
def test_an_error_in_the_middle_is_a_failure(event: str) -> None:
    data = decode_answer(f"data: {PIECES[1]}\n\n{event}".encode())
    made = completions(data, ASK, len, None)
    assert isinstance(made, Failure) and made.status == 529 and b"overloaded" in made.body


async def ask_twice(*habits: str, **options: Any) -> tuple[list[Any], list[Completion]]:
    """Bodies of the requests, and answers; an attempt that is worth another one at once gets it, as in a run."""
    async with serving(lambda request: "refund", settings=ServerBehaviour(habits=habits)) as server:
        model = resolve("openai/m", base_url=server.base_url, options=options)
        answers: list[Completion] = []
        for _ in range(6):
            try:
                answers += await model.generate(ASK)
            except ProviderError as error:
                assert error.retryable and error.retry_after == 0.0 and not error.billed
            if len(answers) == 2:
                break
        await model.close()
        return [request.body for request in server.received], answers


@pytest.mark.parametrize(
    ("habits", "streams"),
    [
        (("stream_only",), [False, True, True]),
        (("stream_always",), [False, True]),
        (("stream_only", "no_stream_options"), [False, True, True, True]),
        ((), [False, False]),
    ],
)
async def test_a_model_finds_out_once_that_there_must_be_a_stream(
    habits: tuple[str, ...], streams: list[bool]
) -> None:
    bodies, answers = await ask_twice(*habits)
    assert [body.get("stream", False) for body in bodies] == streams
    assert [answer.text for answer in answers] == ["refund", "refund"]
    if "stream_only" in habits and "no_stream_options" not in habits:
        assert answers[-1].usage == Usage(4, 1), "the usage is asked for"


async def test_a_server_without_streams_is_asked_for_none_unless_the_user_wants_one() -> None:
    bodies, answers = await ask_twice("no_stream")
    assert not any(body.get("stream") for body in bodies) and len(answers) == 2
    async with serving(lambda request: "x", settings=ServerBehaviour(habits=("no_stream",))) as server:
        model = resolve("openai/m", base_url=server.base_url, options={"stream": True})
        with pytest.raises(ProviderError, match="Streaming is not supported by this deployment") as caught:
            await model.generate(ASK)
        await model.close()
    assert not caught.value.retryable


async def test_a_stream_can_be_asked_for_and_forbidden() -> None:
    bodies, answers = await ask_twice(stream=True)
    assert all(body["stream"] and body["stream_options"] == {"include_usage": True} for body in bodies)
    assert answers[0].usage == Usage(4, 1)
    async with serving(lambda request: "x", settings=ServerBehaviour(habits=("stream_only",))) as server:
        model = resolve("openai/m", base_url=server.base_url, options={"stream": False})
        with pytest.raises(ProviderError, match="only support stream mode") as caught:
            await model.generate(ASK)
        await model.close()
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "words",
    [
        "parameter.enable_thinking must be set to false for non-streaming calls",
        "Stream must be set to true",
        "Unsupported value: 'stream' does not support false with this model. Only the default (true) value is supported.",
        "Streaming is required for operations that may take longer than 10 minutes",
        "This gateway only serves text/event-stream",
        "non-stream requests are not supported",
    ],
)
async def test_each_provider_says_in_its_own_words_that_there_must_be_a_stream(words: str) -> None:
    from aiohttp import web
    from tests.models.test_openai import raw

    async def handler(http: web.Request) -> web.Response:
        if not (await http.json()).get("stream"):
            return web.json_response({"error": {"message": words}}, status=400)
        return web.Response(text=WHOLE["as written by OpenAI"], content_type="text/event-stream")

    async with raw(handler) as model:
        with pytest.raises(ProviderError) as caught:
            await model.generate(ASK)
        assert caught.value.retryable
        assert (await model.generate(ASK))[0].text == "refund\u2028."


def test_a_stream_is_true_or_false() -> None:
    with pytest.raises(UsageError, match="stream must be bool"):
        resolve("openai/m", base_url="http://h/v1", options={"stream": 1})
