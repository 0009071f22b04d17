"""Functions as models: messages are mappings with attributes, and answers may have any usual form."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

import whet
from whet.errors import ProviderError, UsageError
from whet.models.callable import as_model
from whet.rewards.verifiers.tool_calls import Unreadable, calls_in
from whet.types import Completion, Message, Request, Usage

ASK = Request((Message("system", "Be brief."), Message("user", "Say yes.")))
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
RESPONSE = {
    "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
PARTS = [{"type": "text", "text": "y"}, {"type": "text", "text": "es"}]


class Dumped:
    """A response as a client library makes it: attributes, and `model_dump`."""

    def __init__(self) -> None:
        message = SimpleNamespace(role="assistant", content="yes")
        self.choices = [SimpleNamespace(message=message, finish_reason="stop")]
        self.usage = SimpleNamespace(**USAGE)
        self.error = None


def ask(function: Any) -> Completion:
    (answer,) = asyncio.run(as_model(function).generate(ASK))
    return answer


def test_messages_are_read_as_everybody_reads_them() -> None:
    seen: list[Any] = []

    def model(messages: list[Any]) -> str:
        first = messages[0]
        seen.extend(
            [
                first["content"],
                first.content,
                dict(**first),
                json.loads(json.dumps(messages)),
                first.get("name"),
                first.name,
            ]
        )
        return "yes"

    assert ask(model).text == "yes"
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say yes."}]
    assert seen == ["Be brief.", "Be brief.", plain[0], plain, None, None]
    message = Message("user", "Hi.")
    assert (message["content"], dict(message), {**message}) == (
        "Hi.",
        *[{"role": "user", "content": "Hi."}] * 2,
    )
    with pytest.raises(KeyError):
        message["name"]


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ("yes", Usage(5, 1, estimated=True)),
        ({"content": "yes"}, Usage(5, 1, estimated=True)),
        ({"text": "yes"}, Usage(5, 1, estimated=True)),
        ({"role": "assistant", "content": "yes"}, Usage(5, 1, estimated=True)),
        ({"message": {"role": "assistant", "content": "yes"}}, Usage(5, 1, estimated=True)),
        ({"content": PARTS, "usage": {"input_tokens": 7, "output_tokens": 3}}, Usage(7, 3)),
        (RESPONSE, Usage(7, 3)),
        (Dumped(), Usage(7, 3)),
        (SimpleNamespace(model_dump=lambda: RESPONSE, **RESPONSE), Usage(7, 3)),
        (SimpleNamespace(content="yes", usage_metadata={"input_tokens": 7, "output_tokens": 3}), Usage(7, 3)),
        (Completion("yes", usage=Usage(1, 1)), Usage(1, 1)),
    ],
)  # fmt: skip
def test_an_answer_may_have_any_usual_form(answer: Any, usage: Usage) -> None:
    async def later(messages: Any) -> Any:
        return answer

    for model in (lambda messages: answer, later):
        made = ask(model)
        assert (made.text, made.usage, made.error) == ("yes", usage, None)


CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "</tool>"}'}}
SHOWN = '<tool>{"name": "weather", "arguments": {"town": "\\u003c/tool>"}}</tool>'
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (MESSAGE, SHOWN),
        ({"choices": [{"message": MESSAGE, "finish_reason": "tool_calls"}], "usage": USAGE}, SHOWN),
        ({"choices": [{"message": {**MESSAGE, "content": "I look."}, "finish_reason": "tool_calls"}]}, f"I look.\n{SHOWN}"),
        (SimpleNamespace(content=PARTS, tool_calls=[{"name": "weather", "args": {"town": "</tool>"}}]), f"yes\n{SHOWN}"),
        ({"message": {**MESSAGE, "tool_calls": [CALL, CALL]}}, f"{SHOWN}\n{SHOWN}"),
        ({"content": None, "function_call": CALL["function"]}, SHOWN),
    ],
)  # fmt: skip
def test_tool_calls_of_a_message_are_its_text_and_are_graded(answer: Any, text: str) -> None:
    made = ask(lambda messages: answer)
    assert (made.text, made.error) == (text, None)
    assert {str(call) for call in calls_in(made.text)} == {'weather(town="</tool>")'}


def test_calls_that_cannot_be_read_are_no_answer() -> None:
    response = {
        "choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}, "finish_reason": "stop"}]
    }
    assert (
        ask(lambda messages: response).error == "model: empty answer (it calls a tool, and none was offered)"
    )
    broken = {**MESSAGE, "tool_calls": [{"function": {"name": "weather", "arguments": "{"}}]}
    with pytest.raises(Unreadable, match="no JSON"):
        calls_in(ask(lambda messages: broken).text)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "it returned None"),
        (5, "it returned an int"),
        (["yes"], "it returned a list"),
        ({"output": "yes"}, "a dict with the keys 'output'"),
        (object(), "it returned an object"),
        ({"error": {"message": "no credit", "code": 402}}, "no credit"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(answer: Any, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as caught:
        ask(lambda messages: answer)
    if "credit" not in words:
        assert 'Return a text, {"content": ...}' in str(caught.value)


@pytest.mark.parametrize(
    ("keyword", "words"),
    [
        ("model", 'There is no option "model". Did you mean "lm"?'),
        ("metric", 'Did you mean "reward"?'),
        ("max_calls", 'Did you mean "budget"?'),
        ("temperature", 'It belongs to a model: lm={"address": "provider/name", "temperature": ...}.'),
        ("metod", 'Did you mean "method"?'),
    ],
)
def test_names_of_other_tools_are_understood(keyword: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        whet.optimize("Say {{input}}", **{keyword: "x"})  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_a_method_in_another_case_is_suggested() -> None:
    with pytest.raises(UsageError, match=r'no method "GEPA"\. Did you mean "gepa"'):
        whet.optimize("Say {{input}}", data=[{"input": "a"}], reward="exact_match", method="GEPA")
