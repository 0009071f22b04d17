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
from typing import Any

from whet.errors import UsageError
from whet.replies.tool_calls import show_tool_call, split_tool_calls

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
        """What the system message says of them; empty where there are none."""
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


def _function_of(tool: object) -> Mapping[str, Any]:
    """The name, description and parameters of a tool."""
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError(
            'Each of the `tools` must be a function: {"type": "function", "function": {"name": ...}}. whet runs no other tools.'
        )
    return function


def _choice_of(choice: object) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(choice, str):
        raise UsageError("`tool_choice` must be auto, none, required, or name a function.")
    return choice


def _describe(tool: Mapping[str, Any]) -> str:
    parameters = json.dumps(
        tool.get("parameters") or {"type": "object", "properties": {}}, ensure_ascii=False
    )
    about = str(tool.get("description") or "").strip()
    return f"- {tool['name']} {parameters}" + (f": {about}" if about else "")


def write_messages_as_text(messages: object, tools: OfferedTools) -> object:
    """The messages of a request as texts: calls stand in messages of the assistant, what the tools returned in messages of the
    user, and the system message ends with the tools. A value that is no list of messages is returned unchanged, for whoever
    reads it to refuse."""
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        return messages
    names, written = dict[str, str](), list[dict[str, Any]]()
    for message in messages:
        role = message.get("role")
        if role == "assistant" and (calls := _calls_of(message)):
            lines = []
            for call in calls:
                function = call.get("function", call)
                names[str(call.get("id"))] = str(function.get("name"))
                lines.append(show_tool_call(str(function.get("name")), _arguments(function.get("arguments"))))
            text = _text(message.get("content"))
            written.append({"role": "assistant", "content": "\n".join([*([text] if text else []), *lines])})
        elif role in ("tool", "function"):
            name = message.get("name") or names.get(str(message.get("tool_call_id")), "a tool")
            result = f"{name} returned:\n{_text(message.get('content'))}"
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
    """The text of a content, which may be a list of parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in content
        )
    return "" if content is None else str(content)


def message_of(text: str, tools: OfferedTools, legacy: bool) -> tuple[dict[str, Any], str]:
    """The message of the assistant for a reply in OpenAI's form, and why it ended; `legacy` writes `function_call`."""
    before, calls = tools.read(text)
    if not calls:
        return {"role": "assistant", "content": text}, "stop"
    functions = [
        {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
        for call in calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": before or None}
    if legacy:
        return {**message, "function_call": functions[0]}, "function_call"
    listed = [
        {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": one} for one in functions
    ]
    return {**message, "tool_calls": listed}, "tool_calls"
