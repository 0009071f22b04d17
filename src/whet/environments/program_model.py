"""The object with which a program asks models: the `lm` of its parameters. It lives in the program's process and asks the
run."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, time
from enum import Enum
from typing import Any

from whet._util.sources import name_of
from whet._util.storable import LARGEST, describe_exception
from whet._util.workers import Asking
from whet.errors import UsageError, WhetError, did_you_mean
from whet.types import JSON, Message
from whet_client.storable import show_value

PROGRAM_ROLES = ("task", "judge")


class ProgramFailed(WhetError):
    """A call of a program brought no answer. Uncaught it ends the rollout, whose error it then is.

    `type`: the name of the exception that a tool raised, as recorded, else ''. The exception itself is the `__cause__` where the
    tool was called; a resume has its name alone, so let a program decide by `type`.
    """

    def __init__(self, message: str, type: str = "") -> None:
        super().__init__(message)
        self.type = type

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.type)


class ProgramModel:
    """The object with which a program asks models: the `lm` of its parameters."""

    def __init__(self, asking: Asking, role: str = "task") -> None:
        self._asking, self._role = asking, role

    async def __call__(self, prompt: str, /, **values: Any) -> str:
        """The answer to a named prompt, its slots filled by the keywords and by the row."""
        inputs = {key: value if isinstance(value, str) else to_text(value) for key, value in values.items()}
        return await self._ask({"role": self._role, "prompt": prompt, "inputs": inputs})

    async def ask(self, messages: str | Sequence[object], /, prompt: str = "") -> str:
        """The answer to a text or to messages (`role` and `content`), under no prompt; `prompt` is the one that your code made
        them from, if any."""
        listed: Sequence[Any] = [Message("user", messages)] if isinstance(messages, str) else messages
        own = [m if isinstance(m, Message) else Message(**m) for m in listed]
        pairs = [m.as_list() for m in own]
        return await self._ask({"role": self._role, "prompt": prompt, "messages": pairs})

    async def _ask(self, question: dict[str, Any]) -> str:
        return str(read_run_answer(await self._asking.ask(question)))

    async def tool(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """The return value of a function, recorded as JSON: a resume gets the same value without calling the function. Sets,
        tuples and arrays become lists, data classes become dicts. Raises ProgramFailed for an exception in the function, and
        for a value that JSON cannot hold. Its `type` is the name of the function's exception, which is its cause."""
        name, inputs = name_of(function), {str(i): to_text(each) for i, each in enumerate(arguments)}
        inputs |= {key: to_text(value) for key, value in named.items()}

        causes: list[BaseException] = []

        async def call(_: Any) -> JSON:
            try:
                result = function(*arguments, **named)
                return {"value": as_recorded(await result if inspect.isawaitable(result) else result)}
            except (Exception, SystemExit) as error:
                causes.append(error)
                return {
                    "error": f"program: tool {name}: {describe_exception(error)}",
                    "type": type(error).__name__,
                }

        answer = await self._asking.ask({"tool": name, "inputs": inputs}, call)
        try:
            return read_run_answer(answer)
        except ProgramFailed as failed:
            raise failed from (causes[0] if causes else None)

    def role(self, role: str) -> ProgramModel:
        """The same with the model of another role: task or judge. Raises UsageError for any other."""
        if role not in PROGRAM_ROLES:
            raise UsageError(f'A program asks no role "{role}".{did_you_mean(role, PROGRAM_ROLES)}')
        return type(self)(self._asking, role)


def as_recorded(value: Any) -> JSON:
    """The value of a tool as it is recorded. Raises UsageError for what JSON cannot hold: no program works on words about it."""
    refusal = f"it returned {show_value(value)}"
    try:
        written = json.dumps(value, default=_as_plain, allow_nan=False)
        recorded: JSON = json.loads(written, parse_int=_read_whole_number)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{refusal}, which JSON cannot hold ({error}). Return texts, numbers, lists or dicts."
        ) from None
    if _has_other_keys(value):
        raise UsageError(
            f"{refusal}, whose keys are no texts. Return a dict with texts as keys, or a list of pairs."
        )
    return recorded


def _as_plain(value: Any) -> Any:
    """A value of another type as one that JSON holds. Raises TypeError."""
    if isinstance(value, Set):
        return sorted(value, key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if callable(dump := getattr(value, "model_dump", None)):
        return dump()
    listed = value.tolist() if callable(getattr(value, "tolist", None)) else value
    if listed is value:
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return listed


def _read_whole_number(digits: str) -> int:
    number = int(digits)
    if abs(number) > LARGEST:
        raise ValueError("a whole number beyond 64 bits")
    return number


def _has_other_keys(value: Any) -> bool:
    """Whether a dict in a value has keys that JSON would make into texts."""
    if isinstance(value, Mapping):
        return not all(isinstance(key, str) for key in value) or any(map(_has_other_keys, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


def read_run_answer(answer: dict[str, Any]) -> Any:
    """The run's answer. Raises ProgramFailed for a call without a result, and UsageError for a call that cannot be made."""
    if "failed" in answer:
        raise ProgramFailed(answer["failed"], answer.get("type", ""))
    if "misused" in answer:
        raise UsageError(answer["misused"])
    return answer["value"]


def to_text(value: Any) -> str:
    """A value as a prompt and a trace show it: JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)
