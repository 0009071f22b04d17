"""Run in a confined process: executes the code of an answer and calls what it defines, as it is asked line by line.

It imports nothing of whet, knows no test, and is trusted by nobody: what it says are values, and the process of the tests
compares them. Standard input and output hold one JSON value a line.
In: `{"code"}`, then `{"do": ...}`; out: `{"names"}` or `{"raised"}`,
then `{"value", "arguments"}` or `{"raised"}`.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import sys
import types
from typing import Any

_DEEPEST = 50
_LONGEST_TEXT = 500
_OPERATORS = {
    name: getattr(operator, name)
    for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "neg",
    )
}  # fmt: skip


class Codec:
    """Plain values as JSON; every other object as a number under which it is kept, one object always under the same."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def write(self, value: Any, depth: int = 0) -> Any:
        """A value as JSON. A subclass of a plain type is written as that type."""
        if depth > _DEEPEST:
            raise ValueError("the value is nested too deep")
        if value is None or value is True or value is False:
            return value
        for kind, name in (
            (int, "i"),
            (float, "f"),
            (complex, "c"),
            (str, "s"),
            (bytes, "b"),
            (bytearray, "y"),
        ):
            if isinstance(value, kind):
                return [name, _WRITERS[name](value)]
        known = f"{type(value).__module__}.{type(value).__name__}"
        if known in _TYPES and type(value) is _find_type(known):
            return [known, _TYPES[known][0](value)]
        for sort, name in ((list, "l"), (tuple, "t"), (set, "e"), (frozenset, "z")):
            if isinstance(value, sort):
                return [name, [self.write(one, depth + 1) for one in _iterate(sort, value)]]
        if isinstance(value, dict):
            return ["d", [[self.write(k, depth + 1), self.write(v, depth + 1)] for k, v in dict.items(value)]]
        number = self._numbers.setdefault(id(value), len(self.kept))
        if number == len(self.kept):
            self.kept.append(value)
        return ["o", number, type(value).__name__]

    def read(self, written: Any) -> Any:
        """The value that `write` wrote, or the object that is kept under a number."""
        if written is None or isinstance(written, bool):
            return written
        name, content = written[:2]
        if name == "o":
            return self.kept[content]
        if name == "d":
            return {self.read(key): self.read(value) for key, value in content}
        if name in _CONTAINERS:
            return _CONTAINERS[name](self.read(one) for one in content)
        return read_plain(name, content)


def read_plain(name: str, content: Any) -> Any:
    """A value that is no container, from what `Codec.write` wrote."""
    return _TYPES[name][1](_find_type(name), content) if name in _TYPES else _READERS[name](content)


def _find_type(name: str) -> Any:
    module, _, kind = name.partition(".")
    return getattr(importlib.import_module(module), kind)


def _iterate(sort: Any, value: object) -> Any:
    """The items as the plain type holds them, whatever a subclass says."""
    return sort.__iter__(value)


_WRITERS: dict[str, Any] = {
    "i": lambda v: format(int.__index__(v), "x"),
    "f": float.hex,
    "c": lambda v: [float.hex(complex(v).real), float.hex(complex(v).imag)],
    "s": lambda v: str.__str__(v).encode("utf-8", "surrogatepass").hex() if not v.isascii() else "=" + str.__str__(v),
    "b": lambda v: bytes(v).hex(),
    "y": lambda v: bytes(v).hex(),
}  # fmt: skip
_READERS = {
    "i": lambda c: int(c, 16),
    "f": float.fromhex,
    "c": lambda c: complex(float.fromhex(c[0]), float.fromhex(c[1])),
    "s": lambda c: c[1:] if c[:1] == "=" else bytes.fromhex(c).decode("utf-8", "surrogatepass"),
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(
        ("datetime.date", "datetime.datetime", "datetime.time"), (lambda v: v.isoformat(), lambda kind, c: kind.fromisoformat(c))
    ),
    "datetime.timedelta": (lambda v: [v.days, v.seconds, v.microseconds], lambda kind, c: kind(*c)),
    "decimal.Decimal": (str, lambda kind, c: kind(c)),
    "fractions.Fraction": (
        lambda v: [format(v.numerator, "x"), format(v.denominator, "x")], lambda kind, c: kind(*(int(n, 16) for n in c))
    ),
}  # fmt: skip
_CONTAINERS: dict[str, Any] = {"l": list, "t": tuple, "e": set, "z": frozenset}


def _do(codec: Codec, question: dict[str, Any]) -> dict[str, Any]:
    kind, target = question["do"], codec.read(question["of"])
    arguments = [codec.read(one) for one in question.get("arguments", [])]
    named = {key: codec.read(one) for key, one in question.get("named", {}).items()}
    if kind == "call":
        value = target(*arguments, **named)
    elif kind == "attribute":
        value = getattr(target, question["name"])
    elif kind == "set":
        value = None
        setattr(target, question["name"], arguments[0])
    elif kind in _OPERATORS:
        value = _OPERATORS[kind](target, *arguments)
    else:
        value = _BUILT_IN[kind](target, *arguments)
    after = [codec.write(one) for one in (*arguments, *named.values())]
    return {"value": codec.write(value), "arguments": after}


def _is_instance(kind: Any, value: object) -> bool:
    return isinstance(value, kind)


_BUILT_IN: dict[str, Any] = {
    "isinstance": _is_instance,
    "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "bool": bool, "hash": hash, "getitem": operator.getitem,
    "setitem": operator.setitem, "delitem": operator.delitem, "contains": operator.contains,
}  # fmt: skip


def _names(codec: Codec, code: str) -> dict[str, Any]:
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    exec(compile(code, "<answer>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    defined = {name: one for name, one in vars(module).items() if not isinstance(one, types.ModuleType)}
    return {"names": {name: codec.write(value) for name, value in defined.items()}}


def _describe(error: BaseException) -> dict[str, Any]:
    """The classes of an exception, its name and text, and its arguments if they are plain values."""
    kinds = [[kind.__module__, kind.__name__] for kind in type(error).__mro__]
    described: dict[str, Any] = {"raised": kinds, "name": type(error).__name__, "text": ""}
    try:
        described["text"] = str(error)[:_LONGEST_TEXT]
        codec = Codec()
        made_of = json.dumps(codec.write(error.__reduce__()[1]))
        if not codec.kept and len(made_of) <= _LONGEST_TEXT:
            described["made_of"] = json.loads(made_of)
    except BaseException:
        return described
    return described


def main() -> None:
    """Answer lines until the input ends."""
    questions, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    codec = Codec()
    for line in questions:
        question = json.loads(line)
        try:
            reply = _names(codec, question["code"]) if "code" in question else _do(codec, question)
            text = json.dumps(reply)
        except BaseException as error:
            text = json.dumps(_describe(error))
        answers.write(text + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
