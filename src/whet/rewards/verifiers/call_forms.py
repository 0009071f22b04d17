"""Tool calls in the forms that models write beside JSON: Python (`[f(x=1)]`, Llama and BFCL), `<function=f>{"x": 1}</function>`
(Llama) and `<function=f><parameter=x>1</parameter></function>` (Qwen3-Coder)."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from whet.replies import read_json_float
from whet.replies.blocks import blocks_in
from whet.rewards.targets import quote_target

FUNCTION = "<function="
_END_OF_FUNCTION = "</function>"
_PARAMETER, _END_OF_PARAMETER = "<parameter=", "</parameter>"


class Unreadable(ValueError):
    """The answer should be tool calls, and is not. The text is a sentence without its end."""


class UntypedText(str):
    """The value of a parameter that was written between tags, where `5` may be a number or a text."""

    __slots__ = ()

    def means(self, value: object) -> object:
        """The value as one of the kind of `value`: the text itself beside a text, else its JSON or Python literal."""
        if isinstance(value, str):
            return str(self)
        try:
            return json.loads(self, parse_float=read_json_float)
        except (ValueError, RecursionError):
            pass
        parsed = _parse(self.strip())
        try:
            return str(self) if parsed is None else _literal(parsed, "it")
        except Unreadable:
            return str(self)


def read_functions(text: str) -> list[dict[str, Any]]:
    """The calls between `<function=NAME>` and `</function>`, with an object of JSON or with parameters between tags of their own.

    Raises Unreadable.

    >>> read_functions('<function=f>{"x": 1}</function><function=g><parameter=y>a</parameter></function>')
    [{'name': 'f', 'arguments': {'x': 1}}, {'name': 'g', 'arguments': {'y': 'a'}}]
    """
    calls = list[dict[str, Any]]()
    for piece in text.split(FUNCTION)[1:]:
        name, begun, rest = piece.partition(">")
        body, closed, _ = rest.partition(_END_OF_FUNCTION)
        if not begun or not closed:
            raise Unreadable(f"{FUNCTION}NAME> is not closed")
        calls.append({"name": name.strip(), "arguments": _read_body(name.strip(), body)})
    return calls


def _read_body(name: str, body: str) -> dict[str, Any]:
    if not body.strip():
        return {}
    if _PARAMETER in body:
        return _read_parameters(name, body)
    try:
        arguments = json.loads(body, parse_float=read_json_float)
    except (ValueError, RecursionError):
        raise Unreadable(f"the arguments of {quote_target(name)} are no JSON: {quote_target(body)}") from None
    if not isinstance(arguments, dict):
        raise Unreadable(f"the arguments of {quote_target(name)} are no object: {quote_target(body)}")
    return arguments


def _read_parameters(name: str, body: str) -> dict[str, Any]:
    before, *pieces = body.split(_PARAMETER)
    arguments, rests = dict[str, Any](), [before]
    for piece in pieces:
        key, begun, rest = piece.partition(">")
        value, closed, after = rest.partition(_END_OF_PARAMETER)
        if not begun or not closed:
            raise Unreadable(f"{_PARAMETER}NAME> of {quote_target(name)} is not closed")
        if key.strip() in arguments:
            raise Unreadable(f"{quote_target(name)} has the parameter {quote_target(key.strip())} twice")
        arguments[key.strip()] = UntypedText(value.removeprefix("\n").removesuffix("\n"))
        rests.append(after)
    if "".join(rests).strip():
        raise Unreadable(f"{quote_target(name)} has text between its parameters")
    return arguments


def read_python_calls(answer: str) -> list[dict[str, Any]] | None:
    """The calls of an answer, or of a fenced block of it, that is nothing but a list of calls in Python; None where there is
    none. Nothing is evaluated: the arguments are literals with names.

    Raises Unreadable for a list of calls with other arguments.

    >>> read_python_calls('[f(x=1), g.h(y=["a"])]')
    [{'name': 'f', 'arguments': {'x': 1}}, {'name': 'g.h', 'arguments': {'y': ['a']}}]
    """
    for text in (answer, *reversed(blocks_in(answer))):
        if calls := _calls_of_list(text.strip()):
            return [_read_python_call(call) for call in calls]
    return None


def _calls_of_list(text: str) -> list[ast.Call]:
    """The elements of a list of calls; none for any other text."""
    if not (text.startswith("[") and text.endswith("]") and "(" in text):
        return []
    parsed = _parse(text)
    elements = parsed.elts if isinstance(parsed, ast.List) else []
    calls = [node for node in elements if isinstance(node, ast.Call) and _dotted_name(node.func)]
    return calls if len(calls) == len(elements) else []


def _dotted_name(node: ast.expr) -> str:
    """`a.b` as a text; empty for any other expression."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _parse(text: str) -> ast.expr | None:
    """The expression that a text is in Python; None where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _read_python_call(call: ast.Call) -> dict[str, Any]:
    name = _dotted_name(call.func)
    arguments = dict[str, Any]()
    for keyword in call.keywords:
        if keyword.arg is None:
            raise Unreadable(f"{quote_target(name)} unpacks its arguments (`**`)")
        arguments[keyword.arg] = _literal(
            keyword.value, f"the argument {keyword.arg} of {quote_target(name)}"
        )
    if call.args:
        raise Unreadable(f"{quote_target(name)} has arguments without names")
    return {"name": name, "arguments": arguments}


def _literal(node: ast.expr, what: str) -> Any:
    """The value of a literal, as JSON has it. Raises Unreadable for anything else."""
    try:
        return json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise Unreadable(f"{what} is no literal that JSON has") from None
