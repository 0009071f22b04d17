"""openai/... against the habits of servers that others wrote: each is survived, and said once."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.distributions import ROOT
from tests.engine.world import close, open_core, run_of
from tests.serving import reserved_port

from whet.engine import calls
from whet.engine.model_client import MAX_ATTEMPTS
from whet.errors import ProviderError, UsageError
from whet.models.openai import OpenAIModel
from whet.models.openai_wire import Failure, refused_features
from whet.replies.values import json_values
from whet.rewards.yes_no import probability_of_yes
from whet.run import Run
from whet.testing.faults import HABITS, ServerBehaviour
from whet.testing.server import Answerer, LocalServer, serving
from whet.types import Completion, Message, Request

ASK = Request((Message("user", "Say yes or no."),), 0.5, 4)
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def answer(request: Request) -> str:
    """What a well-behaved model says, within its limit of tokens, and in JSON where a schema asks for it."""
    words = (
        '{"word": "yes"}' if request.schema else "Sure. In JSON that is {'word': 'yes',} STOP and more words"
    )
    return " ".join(words.split()[: request.max_tokens])


@asynccontextmanager
async def server_with(
    *habits: str, answerer: Answerer = answer, limit: float = 60.0, **more: Any
) -> AsyncIterator[tuple[OpenAIModel, LocalServer]]:
    async with serving(answerer, settings=ServerBehaviour(habits=habits, **more)) as server:
        model = OpenAIModel("tiny", base_url=server.base_url, api_key="k", timeout=limit)
        try:
            yield model, server
        finally:
            await model.close()


async def twice(model: OpenAIModel, request: Request) -> list[Completion]:
    return [*await model.generate(request), *await model.generate(replace(request, sample=1))]


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "delay", lambda attempt, wish, rng: 0.0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().removeprefix("openai/tiny ") for record in caplog.records]


@pytest.mark.parametrize(
    ("habit", "request_", "text", "warning"),
    [
        ("one_choice", replace(ASK, n=3), "Sure. In JSON that", "answers once where n answers are asked for"),
        ("keep_stop", replace(ASK, max_tokens=9, stop=("that",)), "Sure. In JSON ", "leaves stop texts"),
        ("no_logprobs", replace(ASK, top_logprobs=5), "Sure. In JSON that", "gives no log-probabilities"),
        ("null_logprobs", replace(ASK, top_logprobs=5), "Sure. In JSON that", "gives no log-probabilities"),
        ("wrong_logprobs", replace(ASK, top_logprobs=5), "Sure. In JSON that", "gives no log-probabilities"),
        ("no_usage", ASK, "Sure. In JSON that", "reports no usage"),
        ("ignore_limit", ASK, answer(replace(ASK, max_tokens=None)), "writes more than max_tokens"),
        ("no_seed", replace(ASK, seed=1), "Sure. In JSON that", None),
        ("ignore_completion_limit", ASK, "Sure. In JSON that", None),
    ],
)
async def test_a_neglected_field_is_survived_and_said_once(
    habit: str, request_: Request, text: str, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_with(habit) as (model, _):
        completions = await twice(model, request_)
    assert {completion.text for completion in completions} == {text}
    assert all(completion.error is None and completion.first_token is None for completion in completions)
    assert probability_of_yes(completions[0].first_token) is None, "a judge's answer is read instead"
    if habit == "no_usage":
        spent = completions[0].usage
        assert (spent.input_tokens, spent.output_tokens) == (14, 18), "bytes, an upper bound"
    (*lines,) = said(caplog)
    assert len(lines) == (warning is not None)
    assert all(line.startswith(str(warning)) for line in lines)


async def test_a_refused_system_role_moves_its_text_into_the_message_of_the_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = (Message("system", "Be brief."), Message("user", "Hello"), Message("assistant", "Hi"))
    request = Request((*messages, Message("user", "And now?")), max_tokens=4)
    async with server_with("no_system") as (model, server):
        with pytest.raises(ProviderError, match="Developer instruction") as raised:
            await model.generate(request)
        assert raised.value.retryable and raised.value.retry_after == 0.0
        assert all(completion.error is None for completion in await twice(model, request))
        sent = [received.body["messages"] for received in server.received]
    first = {"role": "user", "content": "Be brief.\n\nHello"}
    rest = [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And now?"}]
    assert sent[0][0]["role"] == "system" and sent[1:] == [[first, *rest]] * 2
    assert said(caplog) == [
        "refuses the system role; its text stands at the head of the first user message from now on."
    ]


@pytest.mark.parametrize(
    ("status", "words", "refused"),
    [
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it", {"system"}),
        (400, "System role not supported", {"system"}),
        (
            400,
            "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
            {"system"},
        ),
        (500, "Conversation roles must alternate user/assistant/user/assistant/...", {"system"}),
        (500, "Only user and assistant roles are supported!", {"system"}),
        (422, 'messages: Unexpected role "system". The API accepts a top-level parameter', {"system"}),
        (400, "The prompt is too long.", set()),
        (400, "Unsupported parameter: 'seed'.", {"seed"}),
        (429, "System role not supported", set()),
    ],
)
def test_which_refusals_are_about_the_system_role(status: int, words: str, refused: set[str]) -> None:
    failure = Failure(status, json.dumps({"error": {"message": words}}).encode(), {})
    user = {"role": "user", "content": "Hello"}
    body = {"seed": 1, "messages": [{"role": "system", "content": "Be brief."}, user]}
    assert refused_features(failure, body) == refused
    assert not refused_features(failure, {"messages": [user]}), "there is no such message to move"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("`temperature` is deprecated for this model.", {"temperature"}),
        (
            "The model returned the following errors: temperature is deprecated for this model.",
            {"temperature"},
        ),
        ("temperature is no longer supported by this model", {"temperature"}),
        ("`temperature` and `top_p` cannot both be specified for this model. Use only one.", {"temperature"}),
        ("`temperature` may only be set to 1 when thinking is enabled.", {"temperature"}),
        ("invalid temperature: only 1 is allowed for this model", {"temperature"}),
        ("invalid temperature: only 1.0 is allowed for this model", {"temperature"}),
        ("Input validation error: `temperature` must be strictly positive", set()),
        ("temperature: Input should be greater than 0", set()),
        ("Invalid 'temperature': expected a value <= 2, but got 3 instead.", set()),
        ("temperature: range: 0..1", set()),
        ("temperature must be at most 1.5", set()),
        ("temperature must be between 0 and 1", set()),
        ("temperature: Input should be less than or equal to 1", set()),
        ("`stop` is deprecated for this model", {"stop"}),
    ],
)
def test_which_refusals_are_about_the_temperature(words: str, refused: set[str]) -> None:
    failure = Failure(400, json.dumps({"error": {"message": words}}).encode(), {})
    body = {"temperature": 0.0, "stop": ["x"], "messages": [{"role": "user", "content": "Hello"}]}
    assert refused_features(failure, body) == refused


async def test_a_server_without_these_habits_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    async with server_with() as (model, _):
        assert len(await twice(model, replace(ASK, n=2, seed=1, schema=SCHEMA))) == 4
    assert said(caplog) == []


async def test_an_ignored_form_leaves_text_with_json_in_it(caplog: pytest.LogCaptureFixture) -> None:
    async with server_with("free_json") as (model, _):
        completions = await twice(model, replace(ASK, max_tokens=20, schema=SCHEMA))
    assert [json_values(c.text)[0] for c in completions] == [{"word": "yes"}] * 2
    assert said(caplog) == ["does not keep to response_format; JSON is looked for in its text."]


@pytest.mark.usefixtures("no_waiting")
async def test_a_schema_answered_by_500_falls_back_to_an_object_and_then_to_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server takes no schema and ignores the wish for an object, so that text is what there is."""

    def talks(request: Request) -> str:
        return f"As JSON: {json.dumps({'word': request.messages[-1].content})}, I hope."

    async with server_with("schema_500", answerer=talks) as (model, server):
        answers = await generated(tmp_path, model, [f"q{i}" for i in range(8)], schema=SCHEMA)
        assert [json_values(c.text)[0] for c in answers] == [{"word": f"q{i}"} for i in range(8)]
        failures = [entry["status"] for entry in server.ledger.entries].count(500)
        assert failures <= 4, "two failures prove it"
    refusal, neglect = sorted(said(caplog), reverse=True)
    assert refusal.startswith("refuses json_schema")
    assert neglect.startswith("does not keep to response_format")


async def generated(
    folder: Path, model: OpenAIModel, texts: list[str], concurrency: int = 1, **more: Any
) -> list[Completion]:
    """Answers through the engine, with its retries."""
    core = open_core(folder, model, concurrency=concurrency)  # type: ignore[arg-type]

    async def one(run: Run, text: str) -> Completion:
        return (await run.generate("task", Request((Message("user", text),), **more)))[0]

    try:
        return await run_of(core).map(one, texts)
    finally:
        await close(core)


@pytest.mark.usefixtures("no_waiting")
async def test_a_request_that_the_server_cannot_take_is_no_storm(tmp_path: Path) -> None:
    """What a client does wrong is answered by a 500: such a request is given up while others are answered."""
    long = "a text that is too long " * 10
    async with server_with("all_500", context=20) as (model, server):
        texts = [long if i % 8 == 3 else f"q{i}" for i in range(64)]
        texts = [f"{text} {i}" for i, text in enumerate(texts)]
        answers = await generated(tmp_path, model, texts, concurrency=4)
        bad = [a for a in answers if a.error is not None]
        assert len(bad) == 8
        assert all("HTTP 500" in str(a.error) for a in bad)
        failures = [entry["status"] for entry in server.ledger.entries].count(500)
        assert failures <= 8 * 3 + 4, "three attempts each, but for what others in flight could not tell yet"


@pytest.mark.usefixtures("no_waiting")
async def test_a_server_that_answers_everything_by_500_ends_the_run_soon(tmp_path: Path) -> None:
    async with server_with("all_500", context=1) as (model, server):
        with pytest.raises(ProviderError, match="This model holds 1 tokens") as caught:
            await generated(tmp_path, model, [f"a question {i}" for i in range(64)], concurrency=16)
        assert caught.value.fatal
        assert 4 * 16 <= len(server.ledger.entries) <= 5 * 16


@pytest.mark.usefixtures("no_waiting")
async def test_errors_in_plain_text_and_the_reset_connection_behind_them(tmp_path: Path) -> None:
    """After such an error the server resets the connection when it is used again: that is a failure to be retried."""

    def fails_first(request: Request) -> str:
        seen.append(request.messages[0].content)
        if seen.count(seen[-1]) == 1:
            raise RuntimeError("boom")
        return "fine"

    seen: list[str] = []
    async with server_with("plain_errors", answerer=fails_first) as (model, server):
        answers = await generated(tmp_path, model, ["a", "b", "c"])
        assert [a.text for a in answers] == ["fine"] * 3
        assert [entry["status"] for entry in server.ledger.entries].count(0) <= 3
        with pytest.raises(ProviderError, match="HTTP 500: Internal Server Error"):
            await model.generate(replace(ASK, messages=(Message("user", "d"),)))


async def test_a_time_limit_does_not_count_the_queue(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the event loop goes on while the server computes: half a second for each call, four in all."""
    loop, begun, answered = asyncio.get_running_loop(), itertools.count(), itertools.count(1)
    turns, now = [asyncio.Event() for _ in range(9)], loop.time()
    turns[0].set()

    def clock() -> float:
        nonlocal now
        now += 1e-6
        return now

    async def slow(request: Request) -> str:
        nonlocal now
        await turns[next(begun)].wait()
        now += 0.5
        return answer(request)

    async def asked(number: int) -> None:
        await model.generate(replace(ASK, sample=number))
        turns[next(answered)].set()

    async with server_with("serial", answerer=slow, limit=0.8) as (model, server):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", clock)
            await asyncio.gather(*map(asked, range(8)))
        assert len(server.ledger.entries) == 8
    assert said(caplog) == [
        "lets calls wait while it answers earlier ones; the time limit of a call counts from the last of these."
    ]


async def test_one_hung_call_still_ends_at_its_time_limit() -> None:
    """Answers to calls that began later do not prolong it, nor does a server that answers nobody."""

    async def slow(request: Request) -> str:
        await asyncio.sleep(10**6 if request.messages[0].content == "hang" else 0.02)
        return "fine"

    async with server_with(answerer=slow, limit=0.4) as (model, _):
        hung = asyncio.create_task(model.generate(replace(ASK, messages=(Message("user", "hang"),))))
        await asyncio.sleep(0)
        while not hung.done():
            with suppress(ProviderError):  # a busy machine may answer late
                await model.generate(ASK)
        with pytest.raises(ProviderError, match=r"no answer within 0\.4 s"):
            await hung


async def test_calls_of_one_prompt_stay_together_on_a_server_with_one_cached_prefix(tmp_path: Path) -> None:
    """Calls arrive in the order in which they were made, so that a prompt's rows follow one another."""
    prompts: list[str] = []

    def note(request: Request) -> str:
        prompts.append(request.messages[0].content)
        return "fine"

    async with server_with("serial", answerer=note) as (model, _):
        core = open_core(tmp_path, model, concurrency=4)  # type: ignore[arg-type]

        async def row(run: Run, item: tuple[str, int]) -> None:
            prompt, number = item
            await run.generate("task", Request((Message("system", prompt), Message("user", f"{number}"))))

        async def rows(run: Run, prompt: str) -> None:
            await run.map(row, [(prompt, number) for number in range(12)])

        await run_of(core).map(rows, ["one", "two", "three"])
        await close(core)
    switches = sum(a != b for a, b in itertools.pairwise(prompts))
    assert switches <= 2 + 2 * 4, "one change of prompt after another, but for the calls in flight"


async def test_no_stream_is_asked_for_that_another_call_could_cut_off(tmp_path: Path) -> None:
    async with server_with("interrupt", latency=0.02) as (model, server):
        answers = await generated(tmp_path, model, [f"q{i}" for i in range(8)], concurrency=8)
        assert all(a.error is None for a in answers)
        assert [entry["status"] for entry in server.ledger.entries] == [200] * 8


async def test_a_stream_is_cut_off_by_a_server_with_that_habit() -> None:
    """What the imitation does to a client that does stream."""
    arrived, over = asyncio.Event(), asyncio.Event()

    async def streamed(request: Request) -> str:
        if not arrived.is_set():
            arrived.set()
            await over.wait()
        return "fine"

    async with server_with("interrupt", answerer=streamed) as (model, _):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "stream": True}
        first = asyncio.create_task(model.probe(body))
        await arrived.wait()
        await model.generate(ASK)
        _, error, _ = await first
        over.set()
        assert error is not None and error.retryable


async def test_contents_are_plain_texts() -> None:
    """A server that takes no parts in a content never gets any."""
    async with server_with() as (model, _):
        body = {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
        _, error, _ = await model.probe(body)
        assert error is not None, "the imitation takes none either"
        assert (await model.generate(ASK))[0].error is None


@pytest.mark.usefixtures("no_waiting")
async def test_a_prompt_that_overflows_the_context_is_data_and_not_asked_again(tmp_path: Path) -> None:
    async with server_with(context=20) as (model, server):
        answers = await generated(tmp_path, model, ["short", "long " * 30, "short too"])
        assert [a.error is None for a in answers] == [True, False, True]
        assert "This model holds 20 tokens" in str(answers[1].error)
        assert [entry["status"] for entry in server.ledger.entries].count(400) == 1


async def test_a_server_that_dies_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = asyncio.Event()
    waits = 0

    class Clock:
        """The engine's sleep before a retry: while the server is away it comes back during the third one."""

        @staticmethod
        async def sleep(seconds: float) -> None:
            nonlocal waits
            waits += 1
            assert waits < MAX_ATTEMPTS
            if waits == 3:
                gone.set()
                await back.wait()

    gone = asyncio.Event()
    with reserved_port() as port:
        async with serving(answer, port=port) as server:
            model = OpenAIModel("tiny", base_url=server.base_url, api_key="k")
            assert (await generated(tmp_path / "a", model, ["before"]))[0].error is None
        monkeypatch.setattr(calls, "asyncio", _Asyncio(Clock.sleep))
        waiting = asyncio.create_task(generated(tmp_path / "b", model, ["after"]))
        await gone.wait()
        async with serving(answer, port=port) as server:
            back.set()
            assert (await waiting)[0].error is None
            assert len(server.ledger.entries) == 1
    await model.close()


class _Asyncio:
    """asyncio with another sleep."""

    def __init__(self, sleep: Any) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def test_an_unknown_habit_is_refused() -> None:
    with pytest.raises(UsageError, match=r'no habit "serail"\. Did you mean "serial"'):
        ServerBehaviour(habits=("serail",))
    assert all(ServerBehaviour(habits=(habit,)).habits for habit in HABITS)


def test_the_page_has_a_row_with_a_test_for_each_habit() -> None:
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    section = page.partition("### What servers do differently")[2].partition("### Failures of a call")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    shown = {habit for row in rows for habit in re.findall(r"`(\w+)`", row[3])}
    thoughts = {habit for habit in HABITS if habit.startswith(("thought", "part_", "reasoning"))}
    assert shown == set(HABITS) - thoughts
    tests = re.compile(r" `tests/models/(\w+\.py)::(\w+)` ")
    for *_, habit, test in rows:
        named = tests.fullmatch(test)
        assert named or not habit.strip(), "what the test server imitates is tested"
        if named:
            assert f"def {named[2]}(" in (ROOT / "tests" / "models" / named[1]).read_text("utf-8")
