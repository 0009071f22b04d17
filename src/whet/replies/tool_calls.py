"""Tool calls in texts: `<tool>{"name": ..., "arguments": {...}}</tool>`, as whet writes and reads them everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_CALL = re.compile(r"\s*<tool>(.*?)(?:</tool>|\Z)", re.DOTALL)
_ESCAPED = "\\u003c"
"""The sign < within JSON, so that no argument ends the tag around a call."""


def show_tool_call(name: str, arguments: object) -> str:
    """A call as a text.

    >>> show_tool_call("say", {"text": "</tool>"})
    '<tool>{"name": "say", "arguments": {"text": "\\\\u003c/tool>"}}</tool>'
    """
    shown = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, default=str)
    return f"<tool>{shown.replace('<', _ESCAPED)}</tool>"


def split_tool_calls(text: str) -> tuple[str, list[Mapping[str, Any]]]:
    """The text of a reply before its calls, and the consecutive calls. The text after them is dropped: the model wrote it
    without knowing the calls' results. A reply without a readable call is all text.

    >>> split_tool_calls('Let me look.\\n<tool>{"name": "find", "arguments": {"a": 1}}</tool>\\nIt is 5.')
    ('Let me look.', [{'name': 'find', 'arguments': {'a': 1}}])
    >>> split_tool_calls("It is <tool>.")
    ('It is <tool>.', [])
    """
    start = text.find("<tool>")
    place, calls = start, list[Mapping[str, Any]]()
    while place >= 0 and (match := _CALL.match(text, place)):
        call = _read_call(match[1])
        if call is None:
            break
        calls.append(call)
        place = match.end()
    return (text[:start].strip(), calls) if calls else (text, [])


def _read_call(text: str) -> Mapping[str, Any] | None:
    """A call with its name and an object of arguments; None for anything else."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return {"name": call["name"], "arguments": arguments} if isinstance(arguments, dict) else None
