"""Agents that use function calling: their tools reach the model as texts, and its calls reach them as `tool_calls`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.environments.test_harness import ASKS, task

import whet
from whet.environments.function_calls import OfferedTools, message_of, write_messages_as_text
from whet.errors import UsageError

AGENT = (
    ASKS
    + """
ADD = {"name": "add", "description": "The sum.", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": row["input"]}]
"""
)
NEWER = (
    AGENT
    + """
tools = [{"type": "function", "function": ADD}]
while True:
    choice = json.loads(ask(messages=messages, tools=tools))["choices"][0]
    message = choice["message"]
    messages.append(message)
    if choice["finish_reason"] == "stop":
        break
    assert choice["finish_reason"] == "tool_calls" and message["content"] == "I add."
    for call in message["tool_calls"]:
        result = sum(json.loads(call["function"]["arguments"]).values())
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
print(message["content"])
"""
)
STREAMED = (
    AGENT
    + """
tools = [{"type": "function", "function": ADD}]
lines = [json.loads(line[6:]) for line in ask(messages=messages, tools=tools, stream=True).splitlines() if line[6:7] == "{"]
deltas = [line["choices"][0] for line in lines]
calls = deltas[0]["delta"]["tool_calls"]
assert [call["index"] for call in calls] == [0, 1] and deltas[-1]["finish_reason"] == "tool_calls"
print(sum(sum(json.loads(call["function"]["arguments"]).values()) for call in calls))
"""
)
LEGACY = (
    AGENT
    + """
message = json.loads(ask(messages=messages, functions=[ADD]))["choices"][0]["message"]
call = message["function_call"]
messages += [message, {"role": "function", "name": "add", "content": str(sum(json.loads(call["arguments"]).values()))}]
print(json.loads(ask(messages=messages, functions=[ADD]))["choices"][0]["message"]["content"])
"""
)


def write_rows(folder: Path) -> None:
    rows = [{"input": f"{n} 1 2", "target": str(n + 3)} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def adder(messages: Any) -> str:
    """A model (simulated) that calls a tool twice at once where it may, and then says the sum of what it got."""
    manual, last = messages[0]["content"], messages[-1]["content"]
    assert (
        manual.startswith("Add.\n\n")
        and '- add {"type": "object"' in manual
        and manual.endswith(": The sum.")
    )
    if "returned:" in last:
        assert "add returned:\n" in last
        assert "<tool>" in messages[-2]["content"]
        return str(sum(int(line) for line in last.splitlines() if line.isdigit()))
    first, *others = map(int, last.split())
    if "at most one" in manual:
        return f'<tool>{{"name": "add", "arguments": {{"a": {first}, "b": {sum(others)}}}}}</tool>'
    calls = [{"a": first, "b": 0}, {"a": others[0], "b": others[1]}]
    texts = [f"<tool>{json.dumps({'name': 'add', 'arguments': call})}</tool>" for call in calls]
    return "I add.\n" + "\n".join(texts) + "\nadd returned: 99"


@pytest.mark.parametrize("agent", [NEWER, STREAMED, LEGACY])
def test_an_agent_that_calls_functions_gets_its_calls_and_the_model_their_results(
    agent: str, tmp_path: Path
) -> None:
    folder = task(tmp_path, agent)
    write_rows(folder)
    result = whet.evaluate(folder, lm=adder, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0 and result.json["failed"] == 0


def say_and_add(messages: Any) -> str:
    print("asked", file=sys.stderr)
    return adder(messages)


def test_a_resumed_run_asks_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = task(tmp_path, NEWER)
    write_rows(folder)
    first = whet.evaluate(folder, lm=say_and_add, split="train", run=tmp_path / "r", progress=False)
    assert "asked" in capsys.readouterr().err
    again = whet.evaluate(folder, lm=say_and_add, split="train", run=tmp_path / "r", progress=False)
    assert again.score == first.score and "asked" not in capsys.readouterr().err


TOOLS: list[dict[str, object]] = [
    {"type": "function", "function": {"name": "find"}},
    {"type": "function", "function": {"name": "open"}},
]
CALL = '<tool>{"name": "find", "arguments": {"a": "<b>"}}</tool>'


@pytest.mark.parametrize(
    ("choice", "text", "names"),
    [
        ("auto", CALL, ["find"]),
        ("auto", CALL.removesuffix("</tool>"), ["find"]),
        ("auto", f"{CALL}\n{CALL}", ["find", "find"]),
        ("auto", "I know it.", []),
        ("auto", '<tool>{"name": "delete", "arguments": {}}</tool>', []),
        ("auto", "<tool>find</tool>", []),
        ("auto", '<tool>{"name": "find", "arguments": [1]}</tool>', []),
        ("none", CALL, []),
        ("required", CALL, ["find"]),
        ({"type": "function", "function": {"name": "open"}}, CALL, ["find"]),
    ],
)
def test_calls_are_read_from_texts(choice: object, text: str, names: list[str]) -> None:
    tools = OfferedTools.of({"tools": TOOLS, "tool_choice": choice})
    message, finish = message_of(text, tools, legacy=False)
    assert [call["function"]["name"] for call in message.get("tool_calls", [])] == names
    assert finish == ("tool_calls" if names else "stop")
    assert names or message["content"] == text


def test_what_is_asked_of_the_next_message_is_in_the_system_message() -> None:
    def manual(**more: object) -> str:
        body = {"tools": TOOLS, "messages": [{"role": "user", "content": "q"}], **more}
        written: Any = write_messages_as_text(body["messages"], OfferedTools.of(body))
        assert [m["role"] for m in written] == ["system", "user"]
        return str(written[0]["content"])

    assert "must call a tool" in manual(tool_choice="required") and "must" not in manual()
    assert "Call open." in manual(tool_choice={"type": "function", "function": {"name": "open"}})
    assert "Call no tool" in manual(tool_choice="none")
    assert "at most one" in manual(parallel_tool_calls=False)


def test_results_stand_in_the_order_of_their_calls() -> None:
    """A tool may be called twice in one message; the first result is that of the first call, whichever was ready first."""
    calls = [{"id": f"c{n}", "function": {"name": "find", "arguments": f'{{"n": {n}}}'}} for n in (1, 2, 3)]
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"} for n in (3, 1, 2)),
        {"role": "tool", "tool_call_id": "unknown", "content": "result of another"},
        {"role": "user", "content": "go on"},
        {"role": "function", "name": "old", "content": "result 5"},
        {"role": "function", "name": "old", "content": "result 4"},
    ]
    written: Any = write_messages_as_text(talk, OfferedTools(()))
    results = [[line for line in one["content"].splitlines() if line.startswith("result")] for one in written]
    assert results == [
        [],
        [],
        ["result 1", "result 2", "result 3", "result of another"],
        [],
        ["result 5", "result 4"],
    ]


def test_a_call_written_as_text_reads_as_the_same_call() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"a": "</tool> <b>"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "none"}]},
    ]  # fmt: skip
    tools = OfferedTools.of({"tools": TOOLS})
    written: Any = write_messages_as_text(history, tools)
    assert [m["role"] for m in written] == ["system", "user", "assistant", "user"]
    assert tools.read(written[2]["content"]) == ("", [{"name": "find", "arguments": {"a": "</tool> <b>"}}])
    assert written[3]["content"] == "find returned:\nnone" and len(history[1]) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"tools": 3},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "function", "function": {"name": 3}}]},
        {"tools": TOOLS, "tool_choice": "delete"},
        {"tools": TOOLS, "tool_choice": 3},
    ],
)
def test_tools_that_cannot_be_offered_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="tool"):
        OfferedTools.of(body)
