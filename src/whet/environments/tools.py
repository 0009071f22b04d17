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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from whet.environments.episodes import Conversation, WorldStep
from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt
from whet.replies import between
from whet.rewards.program import load_module
from whet.run import Run
from whet.types import JSON, Example, Message, content_hash
from whet_client.prompt.fence import front_matter_of
from whet_client.prompt.slots import SLOT

SECONDS = 30.0
"""The longest time of a call in seconds, unless the task sets another."""
LONGEST = 4000
"""Characters of an observation at most; the rest of it is cut."""
_QUOTED = 80
_MANUAL = (
    "You may call tools. To call one, write only a line such as\n"
    '<tool>{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}</tool>\n'
    "and wait for what it returns. When you know the answer, write it without a call."
)
_LIST = "Tools:"


@dataclass(frozen=True)
class Tool:
    """A function that a model may call: its name, its head (name and parameters), its description, and itself.

    `parameters`: those that are described, each with its description; `bare_head` is the head without these descriptions.
    """

    name: str
    head: str
    about: str
    function: Callable[..., object] = field(compare=False)
    bare_head: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The text that the model reads."""
        return f"{self.head}: {self.about}"

    @property
    def region(self) -> str:
        """The name of the prompt's region that describes the tool, if descriptions are editable."""
        return f"tool-{self.name}"

    @property
    def texts(self) -> dict[str, str]:
        """By the name of its region, what the tool is about, and then what each described parameter is."""
        return {self.region: self.about} | {f"{self.region}.{k}": text for k, text in self.parameters.items()}

    @property
    def lines(self) -> list[str]:
        """The tool in a list in which its texts are regions."""
        heads = [f"- {self.bare_head or self.head}", *(f"  - {name}" for name in self.parameters)]
        return [
            f"{head}: <!-- whet:begin {region} -->{text}<!-- whet:end -->"
            for head, (region, text) in zip(heads, self.texts.items(), strict=True)
        ]

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
        signature, described = inspect.signature(function), _describe_parameters(function)
        bare = [
            one.replace(annotation=described[name][0]) if name in described else one
            for name, one in signature.parameters.items()
        ]
        return cls(
            name,
            f"{name}{signature}",
            " ".join(description.split()),
            function,
            f"{name}{signature.replace(parameters=bare)}",
            {parameter: text for parameter, (_, text) in described.items()},
        )

    def call(self, arguments: Mapping[str, object]) -> str:
        """The function's return value as text: a text unchanged, anything else as JSON where possible.

        Raises TypeError for arguments that do not fit its signature and annotations.
        """
        result = self.function(**_fit(self.function, arguments))
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class ToolWorld:
    """Functions that a model may call, at most `turns` - 1 times before it must answer.

    `path` is the file that they come from, for messages and the fingerprint of a task. `seconds`: a call that takes
    longer is an error for the model, and is left to itself. `in_prompt`: the prompt itself describes the tools
    (`describe_tools`), so the manual does not.
    """

    tools: tuple[Tool, ...]
    turns: int
    path: Path | None = None
    seconds: float = SECONDS
    graded: bool = True
    in_prompt: bool = False

    @property
    def name(self) -> str:
        """tools: their names; of tools without a file, a hash of their descriptions too."""
        names = ", ".join(tool.name for tool in self.tools)
        if self.path is not None:
            return f"tools: {names}"
        return f"tools: {names} ({content_hash([tool.description for tool in self.tools])[:12]})"

    @property
    def manual(self) -> str:
        """The text that follows the prompt: the form of a tool call, and the list of the tools unless the prompt has it."""
        if self.in_prompt:
            return _MANUAL
        return "\n".join([f"{_MANUAL}\n\n{_LIST}", *(f"- {tool.description}" for tool in self.tools)])

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
        """The result of a call. The observation reports every error and then begins with `Error:`."""
        name, arguments = call.get("name"), call.get("arguments", {})
        known = {tool.name: tool for tool in self.tools}
        if name not in known:
            return f'Error: there is no tool "{name}".{did_you_mean(str(name), known)}'
        if not isinstance(arguments, Mapping):
            return f"Error: the arguments of {name} must be an object; this is {json.dumps(arguments)}."
        result = run_with_timeout(self.seconds, lambda: _call_tool(known[name], arguments))
        return f"Error: {name} took longer than {self.seconds:g} seconds." if result is None else result


def _describe_parameters(function: Callable[..., Any]) -> dict[str, tuple[object, str]]:
    """By parameter that is annotated as `Annotated[TYPE, "description"]`, its type and description."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # a name that only type checkers import
        return {}
    described = {}
    for name, hint in hints.items():
        texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str) and text.strip()]
        if name in inspect.signature(function).parameters and len(texts) == 1:
            described[name] = hint.__origin__, " ".join(texts[0].split())
    return described


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
    """The return value of `work`, or None when it takes longer. It then continues in a thread that no exit waits for.

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
        calls = find_calls(text)
        if not calls:
            return WorldStep(done=True, answer=final(text))
        call = calls[0]
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
        if len(calls) > 1:
            shown += (
                f"\n(This is the result of the first call. The reply had {len(calls)}; a reply makes one.)"
            )
        notes = {"tool_calls": 1.0, "tool_errors": float(failed)}
        return WorldStep(shown, notes=notes, call={**record, "error": failed})


def find_calls(text: str) -> list[Mapping[str, Any] | str]:
    """The tool calls in a text, an error text for each that cannot be read.

    They stand between `<tool>` and `</tool>`, or between `<tool_call>` and `</tool_call>` as some models write it, else each on a
    line of its own.

    >>> find_calls('<tool>{"name": "add", "arguments": {"a": 1}}</tool>')
    [{'name': 'add', 'arguments': {'a': 1}}]
    >>> find_calls('<tool>{"name": "add", "arguments": {"a": 1}}')
    [{'name': 'add', 'arguments': {'a': 1}}]
    >>> find_calls("It is 5.")
    []
    """
    for tag in ("tool", "tool_call"):
        if tagged := between(text, f"<{tag}>", f"</{tag}>"):
            return [_read(call) for call in tagged]
        begun = text.partition(f"<{tag}>")[2].lstrip()
        if begun.startswith("{"):  # a stop text or the end of the room took the closing tag
            with contextlib.suppress(ValueError, RecursionError):
                begun = begun[: json.JSONDecoder().raw_decode(begun)[1]]
            return [_read(begun)]
    lines = [line.strip() for line in text.splitlines() if '"name"' in line]
    calls = [_read(line) for line in lines if line.startswith("{")]
    return [call for call in calls if isinstance(call, Mapping) and "arguments" in call]


def _read(text: str) -> Mapping[str, Any] | str:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f'Error: the call is not valid JSON: {error}. Write {{"name": ..., "arguments": {{...}}}}.'
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        if "arguments" not in call and isinstance(call.get("parameters"), dict):  # as Llama writes it
            call["arguments"] = call.pop("parameters")
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


def describe_tools(prompt: Prompt, tools: Sequence[Tool]) -> Prompt:
    """The prompt with a list of the tools behind its text, in which what each is about is a region, `tool-NAME`, and what a
    parameter of it is described as another one, `tool-NAME.PARAMETER`.

    A prompt without a fence gets one around its own text. A prompt that describes tools already, such as one that a search wrote,
    keeps these descriptions. Raises UsageError for a description with a slot.
    """
    known = {region.name for region in prompt.regions} if prompt.fenced else set()
    missing = [tool for tool in tools if tool.region not in known]
    if not missing:
        return prompt
    for tool in missing:
        if SLOT.search("\n".join(tool.lines)):
            raise UsageError(
                f"the description of the tool {tool.name} holds a slot ({{{{...}}}}). Reword it."
            )
    messages = list(prompt.messages)
    number = next((n for n, message in enumerate(messages) if message.role == "system"), 0)
    text = messages[number].content
    if not prompt.fenced:
        front = front_matter_of(text)
        text = f"{front}<!-- whet:begin -->\n{text[len(front) :].strip()}\n<!-- whet:end -->"
    lines = [line for tool in missing for line in tool.lines]
    head = [] if known & {tool.region for tool in tools} else ["", _LIST]
    messages[number] = Message(messages[number].role, "\n".join([text.rstrip(), *head, *lines, ""]))
    return Prompt.from_messages(tuple(messages))
