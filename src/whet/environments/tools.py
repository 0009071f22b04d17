"""Tool calls as a world: the model may call plain Python functions before it answers.

A call is an object `{"name": ..., "arguments": {...}}` inside `<tool>...</tool>`, or alone on a line. What comes
back, an error included, is the next observation. A text without a call is the final answer; `<answer>...</answer>`
says which part of it counts.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from whet.environments.episodes import Conversation, WorldStep
from whet.errors import UsageError, did_you_mean
from whet.replies import between
from whet.rewards.program import load_module
from whet.run import Run
from whet.types import JSON, Example, Message, content_hash

SECONDS = 30.0
"""How long a call may take, unless the task says otherwise."""
LONGEST = 4000
"""Characters of an observation at most; the rest of it is cut."""
_QUOTED = 80
_MANUAL = (
    "You may call tools. To call one, write only a line such as\n"
    '<tool>{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}</tool>\n'
    "and wait for what it returns. When you know the answer, write it without a call.\n\nTools:"
)


@dataclass(frozen=True)
class Tool:
    """A function that a model may call: its name, what its signature and docstring say, and itself."""

    name: str
    description: str
    function: Callable[..., object] = field(compare=False)

    @classmethod
    def of(cls, function: Callable[..., object]) -> Tool:
        """The tool that a plain function is. Raises UsageError for one without a name or a docstring."""
        name = getattr(function, "__name__", "")
        description = inspect.getdoc(function)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(f"the tool {name} must be an ordinary function, not a coroutine or a generator.")
        if not name.isidentifier() or not description:
            raise UsageError(
                f"the tool {name} has no docstring, and the model reads that. Write what it does."
            )
        return cls(name, f"{name}{inspect.signature(function)}: {' '.join(description.split())}", function)

    def call(self, arguments: Mapping[str, object]) -> str:
        """What the function returns, as text; a text as it is, anything else as JSON where that works.

        Raises TypeError for arguments that do not fit its signature and annotations.
        """
        result = self.function(**_fit(self.function, arguments))
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class ToolWorld:
    """Functions that a model may call, at most `turns` - 1 times before it must answer.

    `path` is the file that they come from, for messages and the fingerprint of a task. `seconds`: a call that takes
    longer is an error for the model, and is left to itself.
    """

    tools: tuple[Tool, ...]
    turns: int
    path: Path | None = None
    seconds: float = SECONDS
    graded: bool = True

    @property
    def name(self) -> str:
        """tools: their names."""
        return f"tools: {', '.join(tool.name for tool in self.tools)}"

    @property
    def manual(self) -> str:
        """The description of the tools that follows the prompt."""
        return "\n".join([_MANUAL, *(f"- {tool.description}" for tool in self.tools)])

    def check(self, example: Example) -> None:
        """Every row is a question."""

    def observe(self, example: Example) -> Example:
        """The example as it is: a question."""
        return example

    def reset(self, example: Example, opening: Conversation) -> ToolEpisode:
        """The question, with the manual at the end of the system message (a new one, if there is none)."""
        if opening[0].role == "system":
            first = Message("system", f"{opening[0].content}\n\n{self.manual}")
            return ToolEpisode(self, (first, *opening[1:]))
        return ToolEpisode(self, (Message("system", self.manual), *opening))

    def answer(self, call: Mapping[str, object]) -> str:
        """What a call brings; the observation reports every error and then begins with `Error:`."""
        name, arguments = call.get("name"), call.get("arguments", {})
        known = {tool.name: tool for tool in self.tools}
        if name not in known:
            return f'Error: there is no tool "{name}".{did_you_mean(str(name), known)}'
        if not isinstance(arguments, Mapping):
            return f"Error: the arguments of {name} must be an object; this is {json.dumps(arguments)}."
        result = run_with_timeout(self.seconds, lambda: _call_tool(known[name], arguments))
        return f"Error: {name} took longer than {self.seconds:g} seconds." if result is None else result


def _fit(function: Callable[..., Any], arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments as the annotations of their parameters want them; without one a parameter takes what was sent.

    Raises TypeError that names the argument, the type that is wanted and the value.
    """
    signature = inspect.signature(function)
    signature.bind(**arguments)
    rest = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    fitting = {}
    for name, value in arguments.items():
        parameter = signature.parameters.get(name) or rest[0]
        try:
            fitting[name] = _convert(value, _json_type(parameter, scope))
        except msgspec.ValidationError as error:
            wanted = parameter.annotation
            wanted = wanted if isinstance(wanted, str) else inspect.formatannotation(wanted)
            inner = f" ({error})" if isinstance(value, list | dict) else ""
            raise TypeError(f"the argument {name} must be {wanted}; this is {_quote(value)}{inner}") from None
    return fitting


def _json_type(parameter: inspect.Parameter, scope: dict[str, object]) -> object:
    """The type of a parameter; Any where there is no annotation, or one that says nothing about a value of JSON."""
    if parameter.annotation is parameter.empty:
        return Any
    annotated = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        kind = get_type_hints(annotated, scope, include_extras=True)["it"]
        kind = kind | None if parameter.default is None else kind
        msgspec.json.schema(kind)
    except Exception:  # a name that only type checkers import, or a class that no JSON stands for
        return Any
    return kind


def _convert(value: object, kind: object) -> object:
    """A value of JSON as a type; a text that is a number of JSON is one where a text does not fit, and a whole number is
    a float as it is. Raises ValidationError.
    """
    try:
        fitting = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        try:
            number = msgspec.json.decode(value, type=int | float) if isinstance(value, str) else None
        except ValueError:
            number = None
        if number is None:
            raise
        return _convert(number, kind)
    return value if isinstance(fitting, float) else fitting


def _quote(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def run_with_timeout(seconds: float, work: Callable[[], str]) -> str | None:
    """What `work` returns, or None when it takes longer; it then goes on in a thread that no exit waits for.

    Python cannot end a thread, and a process for each call would lose what tools keep in memory.
    """
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(work()), name="whet-tool", daemon=True)
    with contextlib.redirect_stdout(sys.stderr):
        thread.start()
        thread.join(seconds)
    return results[0] if results else None


def _call_tool(tool: Tool, arguments: Mapping[str, object]) -> str:
    try:
        return tool.call(arguments).encode("utf-8", "replace").decode()
    except BaseException as error:  # its thread ends with it
        return f"Error: {''.join(traceback.format_exception_only(error)).strip()}"


class ToolEpisode:
    """One question, with the calls that were made for it."""

    def __init__(self, world: ToolWorld, opening: Conversation) -> None:
        self.opening, self.turns = opening, world.turns
        self._world, self._taken = world, 0

    async def step(self, run: Run, text: str) -> WorldStep:
        """Make the call that the text holds, as a recorded effect; without one the text is the answer."""
        self._taken += 1
        call = find_call(text)
        if call is None:
            return WorldStep(done=True, answer=final(text))
        name, arguments = ("", {}) if isinstance(call, str) else (call.get("name"), call.get("arguments", {}))
        record: dict[str, JSON] = {"name": name, "arguments": arguments}
        if self._taken == self.turns:
            return WorldStep(notes={"tool_calls": 1.0}, call={**record, "error": True})

        async def compute() -> JSON:
            if isinstance(call, str):
                return call
            return self._world.answer(call)

        result = str(await run.effect("tool", compute, content_hash(text)))
        shown = result if len(result) <= LONGEST else f"{result[:LONGEST]} ... ({len(result)} characters)"
        failed = result.startswith("Error:")
        notes = {"tool_calls": 1.0, "tool_errors": float(failed)}
        return WorldStep(shown, notes=notes, call={**record, "error": failed})


def find_call(text: str) -> Mapping[str, Any] | str | None:
    """The first tool call in a text, an error text for one that cannot be read, None when there is none.

    >>> find_call('<tool>{"name": "add", "arguments": {"a": 1}}</tool>')
    {'name': 'add', 'arguments': {'a': 1}}
    >>> find_call("It is 5.") is None
    True
    """
    tagged = between(text, "<tool>", "</tool>")
    if tagged:
        return _read(tagged[0])
    for line in text.splitlines():
        if line.strip().startswith("{") and '"name"' in line:
            call = _read(line.strip())
            if isinstance(call, Mapping) and "arguments" in call:
                return call
    return None


def _read(text: str) -> Mapping[str, Any] | str:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f'Error: the call is not valid JSON: {error}. Write {{"name": ..., "arguments": {{...}}}}.'
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        return call
    return 'Error: a call is an object with "name" and "arguments".'


def final(text: str) -> str:
    """The final answer in a text: what stands in its last `<answer>...</answer>`, else all of it."""
    marked = between(text, "<answer>", "</answer>")
    return marked[-1] if marked else text.strip()


def load_tools(path: Path, named_by: str) -> tuple[Tool, ...]:
    """The public functions that a Python file defines, in their order; at least one.

    Names with a leading underscore and imported functions are no tools. `named_by` (file:line) says which entry
    named the file. Raises UsageError with file and line when the file or one of them cannot be used.
    """
    module = load_module(path, named_by, "Write plain functions with docstrings in it")
    own = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not own:
        raise UsageError(f"{path}:1: there is no function in it. Write plain functions with docstrings.")
    tools = []
    for function in own:
        try:
            tools.append(Tool.of(function))
        except UsageError as error:
            raise UsageError(f"{path}:{function.__code__.co_firstlineno}: {error}") from None
    return tuple(tools)
