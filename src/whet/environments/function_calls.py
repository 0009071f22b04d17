"""Function calling for a command that is a program, by texts: its tools become a part of the system message, what they return
becomes a message, and the calls in a model's reply become `tool_calls`.

whet records texts, so that every model can be asked, with or without function calling of its own. A model that was trained for
function calling may call better in its own way: what is found here is to be compared in the app.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from whet.errors import UsageError
from whet.replies.tool_calls import show_tool_call, split_tool_calls
from whet_client.prompt.chat import read_messages
from whet_client.storable import show_value

_MANUAL = (
    "You may call tools. To call one, write a line such as\n"
    '<tool>{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}</tool>\n'
    "with arguments that fit its JSON schema, and end your message; you then get what the tool returns. When you need no tool, "
    "answer without such a line."
)
_ONE = "Write at most one such line in a message."
_REQUIRED = "This message must call a tool."
_FORBIDDEN = "Call no tool in this message: answer in words."
_HEADING = "Tools:"
_RESULTS = ("tool", "function")
"""The roles of messages with what a tool returned."""
_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters by which a model calls a tool that takes a text."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a request, in OpenAI's form. `choice`: `auto`, `none`, `required`, or the name of the one to call; `several`:
    whether a message may call more than one at once."""

    tools: tuple[Mapping[str, Any], ...]
    choice: str = "auto"
    several: bool = True

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> OfferedTools:
        """The tools of the body of a request, of the older form `functions` too. Raises UsageError for what cannot be read."""
        listed = body.get("tools") or [
            {"type": "function", "function": one} for one in body.get("functions") or ()
        ]
        if not isinstance(listed, Sequence):
            raise UsageError("`tools` must be a list.")
        tools = tuple(_function_of(tool) for tool in listed)
        choice = _choice_of(body.get("tool_choice", body.get("function_call")))
        names = {tool["name"] for tool in tools}
        if choice not in ("auto", "none", "required") and choice not in names:
            raise UsageError(f"`tool_choice` names {choice!r}, which is none of the tools.")
        return cls(tools, choice, body.get("parallel_tool_calls") is not False and "functions" not in body)

    def describe(self) -> str:
        """The part of the system message that describes the tools; empty where there are none."""
        if not self.tools:
            return ""
        lines = [_MANUAL]
        if not self.several:
            lines.append(_ONE)
        if self.choice == "required":
            lines.append(_REQUIRED)
        elif self.choice == "none":
            lines.append(_FORBIDDEN)
        elif self.choice != "auto":
            lines.append(f"{_REQUIRED} Call {self.choice}.")
        return "\n".join([*lines, "", _HEADING, *(_describe(tool) for tool in self.tools)])

    def read(self, text: str) -> tuple[str, list[Mapping[str, Any]]]:
        """The text of a reply and its calls, each with `name` and `arguments`; a call of a tool that is not offered is text."""
        if not self.tools or self.choice == "none":
            return text, []
        before, calls = split_tool_calls(text)
        names = {tool["name"] for tool in self.tools}
        if not calls or any(call["name"] not in names for call in calls):
            return text, []
        return before, calls if self.several else calls[:1]

    def takes_text(self, name: str) -> bool:
        """Whether a tool takes a text instead of arguments."""
        return any(tool["name"] == name and tool["parameters"] is _TEXT for tool in self.tools)


def _function_of(tool: object) -> Mapping[str, Any]:
    """The name, description and parameters of a tool: a function, or a custom tool, which takes a text."""
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    function = tool.get(kind) if isinstance(tool, Mapping) and kind in ("function", "custom") else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError(
            f"One of the `tools` is {show_value(tool)}. Each must be a function with a name, which the command runs itself; "
            "tools that a provider runs or describes itself, such as a web search, cannot be offered."
        )
    about = str(function.get("description") or "").strip()
    if kind == "custom":
        return {"name": function["name"], "description": about + _grammar_of(function), "parameters": _TEXT}
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": about, "parameters": parameters}


def _grammar_of(function: Mapping[str, Any]) -> str:
    """The format of a tool's input text, from the tool's description."""
    form = function.get("format")
    if not isinstance(form, Mapping) or form.get("type") in (None, "text"):
        return ""
    grammar = form.get("grammar", form)
    if not isinstance(grammar, Mapping) or "definition" not in grammar:
        raise UsageError(
            f"`format` of the tool {function['name']} is {show_value(form)}, and must be text or a grammar."
        )
    return f"\nThe input obeys this grammar ({grammar.get('syntax')}):\n{grammar['definition']}"


def _choice_of(choice: object) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, Mapping):
        function = choice.get("function") or choice.get("custom") or choice
        choice = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(choice, str):
        raise UsageError("`tool_choice` must be auto, none, required, or name a function.")
    return choice


def _describe(tool: Mapping[str, Any]) -> str:
    parameters, about = json.dumps(tool["parameters"], ensure_ascii=False), tool["description"]
    return f"- {tool['name']} {parameters}" + (f": {about}" if about else "")


def write_messages_as_text(messages: object, tools: OfferedTools) -> object:
    """The messages of a request as texts: calls stand in messages of the assistant, what the tools returned in messages of the
    user, and the system message ends with the tools. A value that is no list of messages is returned unchanged, for whoever
    reads it to refuse."""
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        return messages
    names, written = dict[str, str](), list[dict[str, Any]]()
    for message in _in_order_of_calls(messages):
        role = message.get("role")
        if role == "assistant" and (calls := _calls_of(message)):
            lines = []
            for call in calls:
                function = call.get("function") or call.get("custom") or call
                arguments = {"input": function["input"]} if "input" in function else function.get("arguments")
                names[str(call.get("id"))] = str(function.get("name"))
                lines.append(show_tool_call(str(function.get("name")), _arguments(arguments)))
            text = _text(message.get("content"))
            written.append({"role": "assistant", "content": "\n".join([*([text] if text else []), *lines])})
        elif role in _RESULTS:
            name = message.get("name") or names.get(str(message.get("tool_call_id")), "a tool")
            word = "failed" if message.get("failed") else "returned"
            result = f"{name} {word}:\n{_text(message.get('content'))}"
            if written and written[-1].get("result"):
                written[-1]["content"] += f"\n\n{result}"
            else:
                written.append({"role": "user", "content": result, "result": True})
        else:
            written.append(dict(message))
    for message in written:
        message.pop("result", None)
    manual = tools.describe()
    if manual and written and written[0].get("role") in ("system", "developer"):
        written[0] = {**written[0], "content": f"{_text(written[0].get('content'))}\n\n{manual}"}
    elif manual:
        written.insert(0, {"role": "system", "content": manual})
    return written


def _in_order_of_calls(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, with results that follow each other in the order of their calls: in a text, only their place says which call
    of a tool each belongs to."""
    places: dict[str, int] = {}
    ordered: list[Mapping[str, Any]] = []
    for are_results, run in groupby(messages, lambda message: message.get("role") in _RESULTS):
        if are_results:
            ordered += sorted(
                run, key=lambda result: places.get(str(result.get("tool_call_id")), len(places))
            )
            continue
        for message in run:
            ordered.append(message)
            places |= {str(call.get("id")): len(places) + n for n, call in enumerate(_calls_of(message))}
    return ordered


def _calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls, single = message.get("tool_calls"), message.get("function_call")
    every = [*(calls if isinstance(calls, list) else []), *([single] if single else [])]
    return [call for call in every if isinstance(call, Mapping)]


def _arguments(arguments: object) -> object:
    """The arguments of a call, which are JSON in a text."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _text(content: object) -> str:
    """The text of a content, which may be a list of parts, with a mark for each image. Raises UsageError for an unknown part."""
    if isinstance(content, list):
        return read_messages([{"role": "user", "content": content}], "messages")[0].content if content else ""
    return "" if content is None else str(content)


def message_of(text: str, tools: OfferedTools, legacy: bool) -> tuple[dict[str, Any], str]:
    """The message of the assistant for a reply in OpenAI's form, and why it ended; `legacy` writes `function_call`."""
    before, calls = tools.read(text)
    if not calls:
        return {"role": "assistant", "content": text}, "stop"
    message: dict[str, Any] = {"role": "assistant", "content": before or None}
    written = [_write_call(call, tools) for call in calls]
    if legacy:
        return {**message, "function_call": written[0]["function"]}, "function_call"
    listed = [{"id": f"call_{secrets.token_hex(8)}", **one} for one in written]
    return {**message, "tool_calls": listed}, "tool_calls"


def call_text(call: Mapping[str, Any]) -> str:
    """The text by which a model calls a tool that takes one."""
    value = call["arguments"].get("input", "")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_call(call: Mapping[str, Any], tools: OfferedTools) -> dict[str, Any]:
    """A call in OpenAI's form, without an id."""
    name = call["name"]
    if tools.takes_text(name):
        return {"type": "custom", "custom": {"name": name, "input": call_text(call)}}
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return {"type": "function", "function": {"name": name, "arguments": arguments}}
