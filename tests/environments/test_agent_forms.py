"""Requests of the SDKs of OpenAI and Anthropic, as they send them, and what they get."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.environments.test_function_calls import adder, write_rows
from tests.environments.test_harness import task

import whet
from whet.environments.agent_anthropic import MessagesForm
from whet.environments.agent_chat import ChatForm
from whet.environments.agent_forms import AgentAnswer, AgentForm, AgentRequest
from whet.environments.agent_responses import ResponsesForm
from whet.errors import UsageError
from whet.models.openai_forms import AnswerForms
from whet.models.openai_wire import request_body
from whet.types import Request, Usage
from whet_client.media import count_marks

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n one").decode()
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}
CALL = '<tool>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool>'
USER = {"role": "user", "content": "q"}
CHAT: dict[str, Any] = {"model": "m", "messages": [USER]}
MESSAGES: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [USER]}
RESPONSES: dict[str, Any] = {"model": "m", "input": "q"}
ADD = {"name": "add", "description": "The sum.", "input_schema": SCHEMA}
ADD_FLAT = {
    "type": "function",
    "name": "add",
    "description": "The sum.",
    "parameters": SCHEMA,
    "strict": True,
}


def pairs(call: AgentRequest) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in call.messages]


def ask(form: AgentForm, body: dict[str, Any], text: str, finish: str = "stop") -> dict[str, Any]:
    """What a request gets for a reply of the model, without the ids, which are random."""
    usage = Usage(100, 20, cached_input_tokens=30, reasoning_tokens=5, cache_write_tokens=10)
    return form.write(form.read(body), AgentAnswer(text, finish, usage))


HEADS = """\
import json, os, sys, urllib.request
row = json.load(sys.stdin)
def ask(url, head, body):
    head = {**head, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as reply:
        return reply.read().decode()
def events(text):
    pieces = [piece.split("\\n") for piece in text.strip().split("\\n\\n")]
    read = [json.loads(data.removeprefix("data: ")) for _, data in pieces]
    assert [name.removeprefix("event: ") for name, _ in pieces] == [data["type"] for data in read]
    return read
PARAMETERS = {"type": "object", "properties": {"a": {}, "b": {}}}
"""
ANTHROPIC = (
    HEADS
    + """
url, head = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
head["anthropic-version"] = "2023-06-01"
assert "ANTHROPIC_AUTH_TOKEN" not in os.environ
def read(stream, body):
    if not stream:
        return json.loads(ask(url, head, body))
    message = None
    for event in events(ask(url, head, {**body, "stream": True})):
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            else:
                assert delta["type"] == "input_json_delta" and block["input"] == {}
                block["input"] = json.loads(delta["partial_json"])
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    assert event["type"] == "message_stop"
    return message
answers = []
for stream in (False, True):
    messages = [{"role": "user", "content": [{"type": "text", "text": row["input"]}]}]
    body = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 5000, "messages": messages,
            "system": [{"type": "text", "text": "Add.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "add", "description": "The sum.", "input_schema": PARAMETERS}]}
    counted = json.loads(ask(url + "/count_tokens", head, {k: v for k, v in body.items() if k != "max_tokens"}))
    assert counted.keys() == {"input_tokens"} and counted["input_tokens"] > 20
    while (message := read(stream, body))["stop_reason"] == "tool_use":
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        assert message["content"][0] == {"type": "text", "text": "I add."} and len(calls) == 2
        assert message["usage"]["input_tokens"] > 0 and message["usage"]["output_tokens"] > 0
        messages.append({"role": "assistant", "content": message["content"]})
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": str(sum(call["input"].values()))} for call in calls]})
    assert message["stop_reason"] == "end_turn"
    answers.append(message["content"][0]["text"])
assert answers[0] == answers[1], answers
print(answers[0])
"""
)
OPENAI = (
    HEADS
    + """
url, head = os.environ["OPENAI_BASE_URL"] + "/responses", {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
def read(stream, body):
    if not stream:
        return json.loads(ask(url, head, body))
    items, response = [], None
    for number, event in enumerate(events(ask(url, head, {**body, "stream": True}))):
        assert event["sequence_number"] == number
        if event["type"] == "response.output_item.added":
            items.append(event["item"])
        elif event["type"] == "response.content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif event["type"] == "response.output_text.delta":
            items[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
        elif event["type"] == "response.function_call_arguments.delta":
            assert items[event["output_index"]]["id"] == event["item_id"]
            items[event["output_index"]]["arguments"] += event["delta"]
        elif event["type"] == "response.output_item.done":
            items[event["output_index"]]["status"] = "completed"
            assert items[event["output_index"]] == event["item"]
    assert event["type"] == "response.completed" and event["response"]["output"] == items
    return event["response"]
answers = []
for stream in (False, True):
    for kept in (False, True):
        question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": row["input"]}]}
        tools = [{"type": "function", "name": "add", "description": "The sum.", "parameters": PARAMETERS, "strict": False}]
        body = {"model": os.environ["OPENAI_MODEL"], "instructions": "Add.", "input": [question], "tools": tools, "store": kept}
        while True:
            response = read(stream, body)
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            if not calls:
                break
            assert response["usage"]["total_tokens"] > 0 and len(calls) == 2
            results = [{"type": "function_call_output", "call_id": call["call_id"],
                        "output": str(sum(json.loads(call["arguments"]).values()))} for call in calls]
            if kept:
                body |= {"input": results, "previous_response_id": response["id"]}
            else:
                body["input"] += [*response["output"], *results]
        assert response["status"] == "completed"
        answers.append(response["output"][0]["content"][0]["text"])
assert len(set(answers)) == 1, answers
print(answers[0])
"""
)


@pytest.mark.parametrize("agent", [ANTHROPIC, OPENAI])
def test_an_agent_in_the_form_of_its_sdk_calls_tools_at_once_and_in_a_stream(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-the-user")
    folder = task(tmp_path, agent)
    write_rows(folder)
    result = whet.evaluate(folder, lm=adder, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0 and result.json["failed"] == 0
    assert result.usage.calls["task"] == (4 if agent == ANTHROPIC else 8) * result.score.n


LIMITED = (
    HEADS
    + """
url, head = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
body = {"model": "m", "max_tokens": 7, "temperature": 0.7, "stop_sequences": ["END"], "messages": [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
    {"role": "user", "name": "Eva", "content": row["input"]}]}
print(json.loads(ask(url, head, body))["content"][0]["text"])
try:
    ask(url.replace("messages", "embeddings"), head, {})
except urllib.error.HTTPError as error:
    assert error.code == 404 and "/v1/responses" in error.read().decode()
try:
    ask(url, {"x-api-key": "of another"}, body)
except urllib.error.HTTPError as error:
    assert json.load(error)["error"]["type"] == "authentication_error"
    assert error.headers["x-should-retry"] == "false"
"""
)


def test_the_length_and_ends_of_an_answer_are_passed_on_and_what_the_task_decides_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = list[Request]()

    def model(messages: Any, request: Request) -> str:
        asked.append(request)
        return "yes"

    folder = task(tmp_path, LIMITED)
    with caplog.at_level(logging.WARNING, logger="whet.program"):
        result = whet.evaluate(folder, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert result.json["failed"] == 0 and result.score.n > 1
    assert {(request.max_tokens, request.stop, request.temperature) for request in asked} == {
        (7, ("END",), 0.0)
    }
    said = [record.getMessage() for record in caplog.records if record.name == "whet.program"]
    assert len(said) == 3 and "with temperature;" in said[0] and "thoughts of earlier answers" in said[1]
    assert "messages with a `name`" in said[2], "said once"


def test_messages_of_anthropic_are_read_with_their_blocks() -> None:
    call = MessagesForm().read({
        **MESSAGES, "system": "Be brief.", "tools": [{**ADD, "input_examples": [{"a": 1, "b": 2}]}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "text", "text": "What?", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I add."}, {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
                    {"type": "text", "text": "no sum"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
                {"type": "text", "text": "Again."},
                {"type": "document", "title": "A", "source": {"type": "text", "media_type": "text/plain", "data": "two"}}]},
            {"role": "user", "content": "Now."},
        ],
    })  # fmt: skip
    roles, texts = zip(*pairs(call), strict=True)
    assert roles == ("system", "user", "assistant", "user")
    assert texts[0].startswith("Be brief.\n\nYou may call tools.") and "at most one" in texts[0]
    assert texts[0].endswith(': The sum.\nExample: {"a": 1, "b": 2}') and "must call a tool" in texts[0]
    assert count_marks(texts[1]) == 1 and texts[1].endswith("\nWhat?")
    assert texts[2] == f"I add.\n{CALL}"
    assert texts[3].startswith("add failed:\nno sum\n[[whet:image:") and texts[3].endswith(
        "\n\nAgain.\nA\ntwo\n\nNow."
    )
    assert call.limit == 100 and not call.stream


def test_answers_in_the_form_of_anthropic() -> None:
    form = MessagesForm()
    body = {**MESSAGES, "tools": [ADD]}
    written = ask(form, body, f"I add.\n{CALL}")
    text, use = written["content"]
    assert text == {"type": "text", "text": "I add."} and written["stop_reason"] == "tool_use"
    assert use == {"type": "tool_use", "id": use["id"], "name": "add", "input": {"a": 1, "b": 2}}
    usage = {
        "input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 30,
        "output_tokens": 20,
    }
    assert written["usage"] == usage
    assert ask(form, body, "cut", "length")["stop_reason"] == "max_tokens"
    assert [name for name, _ in form.stream(ask(form, body, "Hi"))] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip


def test_a_thread_of_messages_goes_on_from_what_whet_has_answered() -> None:
    form = MessagesForm()
    written = ask(form, {**MESSAGES, "tools": [ADD], "thread": {"type": "create"}}, f"I add.\n{CALL}")
    result = {"type": "tool_result", "tool_use_id": written["content"][1]["id"], "content": "3"}
    thread = {"type": "continue", "previous_message_id": written["id"]}
    body = {**MESSAGES, "messages": [{"role": "user", "content": [result]}], "thread": thread}
    assert pairs(form.read(body)) == [
        ("user", "q"),
        ("assistant", f"I add.\n{CALL}"),
        ("user", "add returned:\n3"),
    ]
    with pytest.raises(UsageError, match="thread"):
        MessagesForm().read(body)


OPTIONAL: dict[str, Any] = {**SCHEMA, "required": ["a"], "additionalProperties": False}
CLOSED: dict[str, Any] = {
    **OPTIONAL,
    "required": ["a", "b"],
    "properties": {**SCHEMA["properties"], "b": OPTIONAL},
}


@pytest.mark.parametrize(
    ("form", "body", "sent"),
    [
        (ChatForm(), {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": OPTIONAL}}},
         {"name": "x", "schema": OPTIONAL, "strict": False}),
        (ChatForm(), {**CHAT, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "description": "Two.", "schema": SCHEMA, "strict": True}}},
         {"name": "x", "description": "Two.", "schema": SCHEMA, "strict": True}),
        (ResponsesForm(), {**RESPONSES, "text": {"format": {"type": "json_schema", "name": "x", "schema": OPTIONAL}}},
         {"name": "x", "schema": OPTIONAL, "strict": False}),
        (MessagesForm(), {**MESSAGES, "output_config": {"format": {"type": "json_schema", "schema": OPTIONAL}}},
         {"name": "answer", "schema": OPTIONAL, "strict": False}),
        (MessagesForm(), {**MESSAGES, "output_config": {"format": {"type": "json_schema", "schema": CLOSED}}},
         {"name": "answer", "schema": CLOSED, "strict": False}),
        (MessagesForm(), {**MESSAGES, "output_config": {"format": {"type": "json_schema", "schema": {
            **CLOSED, "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "b": {"enum": ["c"]}}}}}},
         {"name": "answer", "strict": True}),
        (ChatForm(), {**CHAT, "response_format": {"type": "json_object"}}, None),
    ],
)  # fmt: skip
def test_a_schema_is_as_strict_as_its_request_says_or_as_strict_as_it_can_be(
    form: AgentForm, body: dict[str, Any], sent: dict[str, Any] | None
) -> None:
    call = form.read(body)
    request = Request(call.messages, schema=call.schema, schema_options=call.schema_options)
    field = request_body("m", request, frozenset(), AnswerForms().of(request))["response_format"]
    if sent is None:
        assert field == {"type": "json_object"}
    else:
        assert {key: field["json_schema"][key] for key in sent} == sent


def test_items_of_responses_are_read_and_their_calls_stand_together() -> None:
    call = ResponsesForm().read({
        **RESPONSES, "instructions": "Be brief.", "tools": [ADD_FLAT], "max_output_tokens": 50, "stream": True,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}},
        "input": [
            {"role": "developer", "content": "In JSON."},
            {"role": "user", "content": [
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_text", "text": "What?"}]},
            {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [
                {"type": "output_text", "text": "I add.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "f", "call_id": "1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
            {"type": "function_call", "id": "g", "call_id": "2", "name": "add", "arguments": '{"a": 1, "b": 2}'},
            {"type": "function_call_output", "call_id": "1", "output": "3"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "4"}]},
        ],
    })  # fmt: skip
    roles, texts = zip(*pairs(call), strict=True)
    assert roles == ("system", "system", "user", "assistant", "user")
    assert count_marks(texts[2]) == 1 and texts[3] == f"I add.\n{CALL}\n{CALL}"
    assert texts[4] == "add returned:\n3\n\nadd returned:\n4"
    assert call.schema == SCHEMA and call.limit == 50 and call.stream


def test_answers_in_the_form_of_responses_can_be_continued_and_named() -> None:
    form = ResponsesForm()
    body = {**RESPONSES, "tools": [ADD_FLAT], "instructions": "One."}
    written = ask(form, body, f"I add.\n{CALL}")
    message, call = written["output"]
    assert message["content"][0]["text"] == "I add." and json.loads(call["arguments"]) == {"a": 1, "b": 2}
    assert written["usage"]["input_tokens_details"] == {"cached_tokens": 30, "cache_write_tokens": 10}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    went_on = pairs(
        form.read(
            {**RESPONSES, "instructions": "Two.", "previous_response_id": written["id"], "input": [result]}
        )
    )
    assert went_on == [
        ("system", "Two."),
        ("user", "q"),
        ("assistant", f"I add.\n{CALL}"),
        ("user", "add returned:\n3"),
    ]
    named = [
        {"role": "user", "content": "q"},
        *({"type": "item_reference", "id": item["id"]} for item in (message, call)),
        result,
    ]
    assert pairs(form.read({**RESPONSES, "input": named})) == went_on[1:]
    cut = ask(form, {**body, "store": False}, "cut", "length")
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [name for name, _ in form.stream(cut)][-1] == "response.incomplete"
    with pytest.raises(UsageError, match="previous_response_id"):
        form.read({**RESPONSES, "previous_response_id": cut["id"]})


def test_a_custom_tool_gets_its_text_in_both_forms_of_openai() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
    flat = {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar}
    nested = {"type": "custom", "custom": {"name": "patch", "description": "Patches.", "format": {
        "type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x+/"}}}}  # fmt: skip
    reply = '<tool>{"name": "patch", "arguments": {"input": "xx"}}</tool>'
    responses, chat = {**RESPONSES, "tools": [flat]}, {**CHAT, "tools": [nested]}
    manuals = [pairs(ResponsesForm().read(responses))[0][1], pairs(ChatForm().read(chat))[0][1]]
    assert manuals[0] == manuals[1] and manuals[0].endswith(
        "Patches.\nThe input obeys this grammar (lark):\nstart: /x+/"
    )
    form = ResponsesForm()
    (item,) = ask(form, responses, reply)["output"]
    assert item["type"] == "custom_tool_call" and item["input"] == "xx"
    message = ask(ChatForm(), chat, reply)["choices"][0]["message"]
    assert message["tool_calls"][0]["custom"] == {"name": "patch", "input": "xx"}
    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}
    listed = pairs(form.read({**responses, "input": [{**USER}, item, result]}))[1:]
    tool = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
    assert listed == pairs(ChatForm().read({**chat, "messages": [USER, message, tool]}))[1:]
    assert listed[1:] == [("assistant", reply), ("user", "patch returned:\ndone")]


def test_a_cut_answer_of_chat_says_so_and_an_image_that_a_tool_returned_is_sent() -> None:
    assert ask(ChatForm(), CHAT, "cut", "length")["choices"][0]["finish_reason"] == "length"
    assert ask(ChatForm(), CHAT, "Hi")["usage"]["prompt_tokens_details"] == {"cached_tokens": 30}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    call = {"id": "1", "type": "function", "function": {"name": "see", "arguments": "{}"}}
    listed = [USER, {"role": "assistant", "content": None, "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}, image]}]  # fmt: skip
    assert count_marks(pairs(ChatForm().read({**CHAT, "messages": listed}))[-1][1]) == 1


def test_the_agent_gets_what_follows_the_answer_that_it_has_begun() -> None:
    form = MessagesForm()
    begun = {"role": "assistant", "content": "The answer is ("}
    body = {**MESSAGES, "messages": [USER, begun], "stop_sequences": [")"]}
    call = form.read(body)
    ((role, text),) = pairs(call)
    assert role == "user" and text.startswith("q\n\n") and text.endswith("\nThe answer is (")
    assert call.stop == (")",) and call.limit is not None and call.limit > 100
    for reply in ("The answer is (B", "\nThe answer is (B", "B"):
        assert ask(form, body, reply)["content"] == [{"type": "text", "text": "B"}]
    assert ask(form, body, "The answer is (")["content"] == []
    last = {"role": "user", "content": "Sure?"}
    assert pairs(form.read({**body, "messages": [USER, begun, last]})) == [
        ("user", "q"), ("assistant", "The answer is ("), ("user", "Sure?"),
    ]  # fmt: skip


def test_a_stop_text_that_stands_in_the_begun_answer_ends_what_follows() -> None:
    form = MessagesForm()
    begun = {"role": "assistant", "content": [{"type": "text", "text": "```json"}]}
    body = {**MESSAGES, "messages": [USER, begun], "stop_sequences": ["```", "END"]}
    assert form.read(body).stop == ("END",)
    written = ask(form, body, '```json\n{"a": 1}\n```\nThat is all.')
    assert written["content"] == [{"type": "text", "text": '\n{"a": 1}\n'}]
    assert (written["stop_reason"], written["stop_sequence"]) == ("stop_sequence", "```")
    events = [data for _, data in form.stream(written)]
    assert isinstance(events[-2], dict) and events[-2]["delta"] == {
        "stop_reason": "stop_sequence",
        "stop_sequence": "```",
    }


def test_a_thread_keeps_a_begun_answer_and_what_followed_it_as_one() -> None:
    form = MessagesForm()
    begun = {"role": "assistant", "content": "It is ("}
    written = ask(form, {**MESSAGES, "messages": [USER, begun], "thread": {"type": "create"}}, "It is (B)")
    thread = {"type": "continue", "previous_message_id": written["id"]}
    call = form.read({**MESSAGES, "messages": [{"role": "user", "content": "Sure?"}], "thread": thread})
    assert pairs(call) == [("user", "q"), ("assistant", "It is (B)"), ("user", "Sure?")]


def test_thoughts_of_earlier_answers_are_left_out_in_every_form() -> None:
    said, asked = {"role": "assistant", "content": "4"}, {"role": "user", "content": "Sure?"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    own = {"role": "assistant", "content": [THOUGHT, hidden, {"type": "text", "text": "4"}]}
    item = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "x",
    }
    calls = [
        MessagesForm().read({**MESSAGES, "messages": [USER, own, asked]}),
        ResponsesForm().read({**RESPONSES, "input": [USER, item, said, asked]}),
        ChatForm().read({**CHAT, "messages": [USER, {**said, "reasoning_content": "Hm."}, asked]}),
    ]
    for call in calls:
        assert pairs(call) == [("user", "q"), ("assistant", "4"), ("user", "Sure?")] and call.thoughts
    only = {"role": "assistant", "content": [THOUGHT]}
    assert pairs(MessagesForm().read({**MESSAGES, "messages": [USER, only]})) == [("user", "q")]
    assert not MessagesForm().read(MESSAGES).thoughts and not ChatForm().read(CHAT).thoughts


def test_what_a_model_refused_is_shown_as_its_answer_in_both_forms_of_openai() -> None:
    part = {"type": "refusal", "refusal": "I cannot."}
    chat = {"role": "assistant", "content": None, "refusal": "I cannot.", "annotations": [], "audio": None}
    expected = [("user", "q"), ("assistant", "I cannot."), ("user", "q")]
    assert pairs(ChatForm().read({**CHAT, "messages": [USER, chat, USER]})) == expected
    parts = {"role": "assistant", "content": [part]}
    assert pairs(ChatForm().read({**CHAT, "messages": [USER, parts, USER]})) == expected
    assert pairs(ResponsesForm().read({**RESPONSES, "input": [USER, parts, USER]})) == expected


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


@pytest.mark.parametrize(
    ("form", "body", "named"),
    [
        (ChatForm(), {**CHAT, "logprobs": True}, "logprobs"),
        (ChatForm(), {**CHAT, "audio": {"voice": "x"}}, "audio"),
        (ChatForm(), {**CHAT, "n": 2}, "`n`"),
        (ChatForm(), {**CHAT, "modalities": ["text", "audio"]}, "modalities"),
        (ChatForm(), {**CHAT, "web_search_options": {"x": 1}}, "web_search_options"),
        (ChatForm(), {**CHAT, "stop": 3}, "stop"),
        (ChatForm(), {**CHAT, "max_tokens": "many"}, "max_tokens"),
        (ChatForm(), [], "JSON object"),
        (MessagesForm(), {**MESSAGES, "mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        (MessagesForm(), {**MESSAGES, "container": "c"}, "container"),
        (MessagesForm(), {**MESSAGES, "messages": []}, "messages"),
        (MessagesForm(), {**MESSAGES, "messages": [USER, {"role": "assistant", "content": " "}]}, "without text"),
        (MessagesForm(), {**MESSAGES, "messages": [USER, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "add", "input": {}}]}]}, "tool_result"),
        (MessagesForm(), {**MESSAGES, "messages": [{"role": "user", "content": [THOUGHT]}]}, "thinking"),
        (MessagesForm(), {**MESSAGES, "tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
        (MessagesForm(), {**MESSAGES, "tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "sub"),
        (MessagesForm(), {**MESSAGES, "tool_choice": {"type": "some"}}, "some"),
        (MessagesForm(), {**MESSAGES, "output_config": {"shape": 1}}, "shape"),
        (MessagesForm(), {**MESSAGES, "context_management": {"edits": [{"type": "clear_tool_uses_1"}]}}, "clear_tool_uses_1"),
        (MessagesForm(), {**MESSAGES, "messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}}]}]}, "a.pdf"),
        (MessagesForm(), {**MESSAGES, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "file", "file_id": "f1"}}]}]}, "f1"),
        (ResponsesForm(), {**RESPONSES, "background": True}, "background"),
        (ResponsesForm(), {**RESPONSES, "conversation": "c"}, "conversation"),
        (ResponsesForm(), {**RESPONSES, "prompt": {"id": "p"}}, "prompt"),
        (ResponsesForm(), {**RESPONSES, "include": ["message.output_text.logprobs"]}, "logprobs"),
        (ResponsesForm(), {**RESPONSES, "text": {"format": {"type": "grammar"}}}, "text.format"),
        (ResponsesForm(), {**RESPONSES, "tools": [{"type": "web_search"}]}, "web_search"),
        (ResponsesForm(), {**RESPONSES, "input": [{"type": "web_search_call", "id": "w"}]}, "web_search_call"),
        (ResponsesForm(), {**RESPONSES, "input": [{"type": "reasoning", "summary": []}]}, "no message"),
        (ResponsesForm(), {**RESPONSES, "input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        (ResponsesForm(), {**RESPONSES, "input": 3}, "input"),
        (ResponsesForm(), {**RESPONSES, "input": [
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input_file"),
        (ResponsesForm(), {**RESPONSES, "previous_response_id": "resp_1"}, "resp_1"),
    ],
)  # fmt: skip
def test_what_would_change_the_answer_and_cannot_be_passed_on_is_named(
    form: AgentForm, body: Any, named: str
) -> None:
    with pytest.raises(UsageError) as caught:
        form.read(body)
    assert named in str(caught.value)


def test_what_changes_no_answer_is_accepted_and_what_the_task_decides_is_listed() -> None:
    chat = ChatForm().read(
        {
            **CHAT,
            "user": "u",
            "seed": 1,
            "top_p": 0.5,
            "logprobs": False,
            "stream_options": {"include_usage": True},
        }
    )
    assert chat.sampling == ("seed", "top_p")
    thinking = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    own = {
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "container": None,
    }
    assert MessagesForm().read({**MESSAGES, **own, "context_management": thinking}).sampling == (
        "thinking",
        "output_config.effort",
    )
    own = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
    }
    assert ResponsesForm().read({**RESPONSES, **own}).sampling == ("reasoning", "text.verbosity")
