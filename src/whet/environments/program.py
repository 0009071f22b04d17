"""Programs: an async function of `(lm, prompts, example)` that asks models under several named prompts.

Its code runs in a thread of its own; its calls and tools go through the run, one after the other, so that a resume gets
each recorded answer again and the code makes the same calls. What it did is the trace of the rollout.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from whet._util.sources import name_of, place_of_definition, source_hash
from whet._util.storable import describe_exception
from whet._util.user_code import OutOfTime, in_thread
from whet.environments.environment import Environment, Generation, as_environment_type
from whet.errors import UsageError, WhetError, did_you_mean, quantity
from whet.prompt import Prompt
from whet.rewards.program import load_module, place_of, program_digest
from whet.run import Run, convert_record
from whet.types import (
    EXAMPLE,
    JSON,
    Completion,
    Example,
    Message,
    Request,
    Rollout,
    TraceStep,
    Usage,
    content_hash,
)
from whet_client.storable import repair_surrogates

CALLS, SECONDS = 8, 60.0
"""Calls of a rollout at most, and seconds of its own code at most, unless the task says otherwise."""
AT_ONCE = 64
"""Rollouts that run at the same time, each in a thread of its own."""
LONGEST_SHOWN = 1000
"""Characters of an input or output in a recorded trace."""
PROGRAM_ROLES = ("task", "judge")
_AGAIN = 1_000_000
_PLACES: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class ProgramFailed(WhetError):
    """A call of a program brought no answer. Uncaught it ends the rollout, whose error it then is."""


@dataclass(frozen=True)
class Program:
    """The user's function, and what one rollout may take. `file` is its name in a task folder, `digest` its identity."""

    function: Callable[..., Any] = field(compare=False)
    path: Path
    digest: str
    file: str | None = None
    calls: int = CALLS
    seconds: float = SECONDS


def program_of(function: Any, where: str, calls: int = CALLS, seconds: float = SECONDS) -> Program:
    """A function as a program. Raises UsageError naming `where` for one that cannot be one."""
    _check(function, f"{where}: {name_of(function) if callable(function) else repr(function)}")
    return Program(function, Path(place_of_definition(function)), source_hash(function), None, calls, seconds)


def load_user_program(
    path: Path, named_by: str, calls: int = CALLS, seconds: float = SECONDS, file: str | None = None
) -> Program:
    """The function `program` of a Python file. Raises UsageError with file and line when it cannot be used."""
    remedy = "Write `async def program(lm, prompts, example)` in it"
    function: Any = getattr(load_module(path, named_by, remedy), "program", None)
    if function is None:
        raise UsageError(f"{path}:1: there is no function `program` in it. {remedy}.")
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
    _check(function, f"{path}:{line}: `program`")
    return Program(function, path, program_digest(path), file or path.name, calls, seconds)


def _check(function: Any, what: str) -> None:
    called = vars(type(function)).get("__call__")
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)):
        raise UsageError(f"{what} is no program. Write it as `async def program(lm, prompts, example)`.")
    try:
        inspect.signature(function).bind(None, {}, {})
    except TypeError:
        raise UsageError(
            f"{what} is called as program(lm, prompts, example), which it does not take. Give it these parameters."
        ) from None


@dataclass(frozen=True)
class ProgramEnvironment(Environment):
    """An environment whose rollouts run a program. Labels are read from its answer, never scored.

    `expected`: the calls of a rollout that a search plans with; None: as many as there may be.
    """

    program: Program | None = None
    expected: int | None = None

    @property
    def calls(self) -> int:
        """Model calls of one rollout at most, or the expected ones."""
        most = CALLS if self.program is None else self.program.calls
        return self.expected or most

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Run the program for one example and grade what it returns."""
        assert self.program is not None
        loop = asyncio.get_running_loop()
        async with _PLACES.setdefault(loop, asyncio.Semaphore(AT_ONCE)):
            rollout = _ProgramRun(self.program, self.generation, run, prompt, example, sample)
            completion = await rollout.completion()
        if completion.error is None and self.labels:
            completion = self._parse_label(completion)
        graded = await self._grade(run, prompt, example, completion, sample)
        unknown = next((name for name in graded.addressed if name and name not in prompt.parts), None)
        if unknown is not None:
            near = did_you_mean(unknown, prompt.parts)
            error = (
                f'reward: a critique is addressed to "{unknown}", which is no prompt of the program.{near}'
            )
            graded = replace(graded, reward=self.reward.low, error=error, critique=None, addressed={})
        return replace(in_focus(graded, prompt), steps=tuple(rollout.steps))


def in_focus(rollout: Rollout, prompt: Prompt) -> Rollout:
    """The rollout as whoever edits the region in focus may see it: without critiques that are addressed to other prompts."""
    if prompt.focus is None or not rollout.addressed:
        return rollout
    part, _ = prompt.part_of()
    own = {name: text for name, text in rollout.addressed.items() if name in (part, "")}
    return replace(rollout, critique="\n".join(own.values()) or None, addressed=own)


class ProgramModel:
    """What a program asks models with; the `lm` of its parameters."""

    def __init__(self, rollout: _ProgramRun, role: str = "task") -> None:
        self._rollout, self._role = rollout, role

    async def __call__(self, prompt: str, /, **values: Any) -> str:
        """The answer to a named prompt, its slots filled by the keywords and by the row."""
        inputs = {key: value if isinstance(value, str) else _json(value) for key, value in values.items()}
        return await self._rollout.answer(
            self._role, prompt, inputs, self._rollout.render_prompt(prompt, inputs)
        )

    async def ask(self, messages: str | Sequence[object], /, prompt: str = "") -> str:
        """The answer to a text or to messages (`role` and `content`), under no prompt; `prompt` is the one that your code made
        them from, if any."""
        if prompt:
            self._rollout.find_prompt(prompt)
        listed: Sequence[Any] = [Message("user", messages)] if isinstance(messages, str) else messages
        own = tuple(m if isinstance(m, Message) else Message(**m) for m in listed)
        return await self._rollout.answer(self._role, prompt, {m.role: m.content for m in own}, own)

    async def tool(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """What a function returns, recorded as JSON: a resume gets the same without calling it. Raises ProgramFailed with what
        went wrong in it."""
        return await self._rollout.use_tool(function, arguments, named)

    def role(self, role: str) -> ProgramModel:
        """The same with the model of another role: task or judge. Raises UsageError for any other."""
        if role not in PROGRAM_ROLES:
            raise UsageError(f'A program asks no role "{role}".{did_you_mean(role, PROGRAM_ROLES)}')
        return ProgramModel(self._rollout, role)


class _ProgramRun:
    """One rollout of a program: its code in a thread with an event loop of its own, its calls in the loop of the run."""

    def __init__(
        self,
        program: Program,
        generation: Generation,
        run: Run,
        prompt: Prompt,
        example: Example,
        sample: int,
    ) -> None:
        self.program, self.generation, self.run = program, generation, run
        self.prompt, self.example, self.sample = prompt, example, sample
        self.steps: list[TraceStep] = []
        self._loop, self._turn = asyncio.get_running_loop(), asyncio.Lock()
        self._open: set[asyncio.Task[Any]] = set()
        self._seen: dict[str, int] = {}
        self._calls, self._waiting, self._spent, self._since = 0, 0, 0.0, time.monotonic()
        self._ended: WhetError | None = None
        self._over, self._finish = False, "stop"

    async def completion(self) -> Completion:
        """What the program returned, with all tokens of its calls. Raises what ended the run itself, such as its budget."""
        error, output = None, ""
        try:
            name = f"{self.program.path.name}: the program for {self.example.place}"
            result = await in_thread(
                lambda: asyncio.run(self._call_program()), self.program.seconds, self._own, name
            )
            output = _output(result)
        except OutOfTime:
            raise UsageError(
                f"{self.program.path.name}: the program has taken {self.program.seconds:g} s beside its calls for "
                f"{self.example.place}. Mend it and run again, or allow more: program: {{seconds: SECONDS}}."
            ) from None
        except Exception as exception:
            failed = isinstance(exception, ProgramFailed)
            error = repair_surrogates(str(exception)) if failed else self._name_failure(exception)
        finally:
            await self._close()
        if self._ended is not None:
            raise self._ended
        usage = sum((step.usage for step in self.steps), Usage())
        steps: tuple[dict[str, JSON], ...] = tuple(
            {"role": step.role, "name": step.prompt, "arguments": dict(step.inputs), "output": step.output}
            for step in self.steps
        )
        return Completion(output, self._finish, usage, error, steps=steps)

    async def _call_program(self) -> Any:
        row = {key: value for key, value in self.example.row.items() if key != "target"}
        texts = {name: part.text for name, part in self.prompt.parts.items()}
        return await self.program.function(
            ProgramModel(self), texts, copy.deepcopy({**row, **self.example.values})
        )

    def _name_failure(self, exception: BaseException) -> str:
        place = Path(place_of(exception, self.program.path))
        return f"program: {place.name}: {describe_exception(exception)}"

    def _own(self) -> float:
        """Seconds in which it did not wait for a model."""
        return self._spent + (0.0 if self._waiting else time.monotonic() - self._since)

    async def _close(self) -> None:
        """Give up the calls that are still open."""
        self._over = True
        for task in (left := list(self._open)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _there(self, work: Coroutine[Any, Any, Any]) -> object:
        """What a coroutine returns that runs in the loop of the run."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._watch(work), self._loop))

    async def _watch(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        EXAMPLE.set(self.example)
        self._open.add(task)
        try:
            async with self._turn:
                if self._ended is not None:
                    raise self._ended
                if self._over:
                    raise ProgramFailed("program: a call was made after the rollout was over")
                return await work
        except (ProgramFailed, asyncio.CancelledError):
            raise
        except WhetError as error:  # that of the run, which no program may swallow
            self._ended = error
            raise
        finally:
            work.close()
            self._open.discard(task)

    def find_prompt(self, name: str) -> Prompt:
        """A named prompt. Raises UsageError for a name that nobody knows."""
        if name not in self.prompt.parts:
            raise UsageError(f'The program has no prompt "{name}".{did_you_mean(name, self.prompt.parts)}')
        return self.prompt.parts[name]

    def render_prompt(self, name: str, inputs: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages of a named prompt. Raises UsageError for a name or a slot that nobody knows."""
        part, example = self.find_prompt(name), self.example
        text = Example("", inputs).user_text if inputs else example.user_text
        filled = replace(example, values={**example.values, **inputs}, text=text)
        empty = sorted(part.slots - filled.values.keys())
        if empty:
            raise UsageError(
                f'Nothing fills the slot {{{{{empty[0]}}}}} of the prompt {name}. Write lm("{name}", {empty[0]}=...).'
            )
        return part.render(filled)

    async def answer(
        self, role: str, name: str, inputs: Mapping[str, str], messages: tuple[Message, ...]
    ) -> str:
        """The text that a model answers. Raises ProgramFailed when there is none."""
        return str(await self._there(self._ask(role, name, inputs, messages)))

    async def _ask(
        self, role: str, name: str, inputs: Mapping[str, str], messages: tuple[Message, ...]
    ) -> str:
        if self._calls == self.program.calls:
            raise ProgramFailed(
                f"program: more than {quantity(self._calls, 'call')} in one rollout (program: {{calls: N}} allows more)"
            )
        self._calls += 1
        key, g = content_hash([role, [[m.role, m.content] for m in messages]]), self.generation
        self._seen[key] = again = self._seen.get(key, -1) + 1
        sample = self.sample + again * _AGAIN
        request = Request(messages, g.temperature, g.max_tokens, stop=g.stop, schema=g.schema, sample=sample)
        self._spent, self._waiting = self._own(), 1
        try:
            completion = g.answer((await self.run.generate(role, request))[0])
        finally:
            self._since, self._waiting = time.monotonic(), 0
        self.steps.append(TraceStep(name, inputs, completion.text, role, completion.usage))
        if role == "task" and completion.finish == "length":
            self._finish = "length"
        if completion.error is not None:
            raise ProgramFailed(completion.error)
        return completion.text

    async def use_tool(self, function: Callable[..., Any], arguments: Sequence[Any], named: Any) -> Any:
        """What a tool returns, from the journal where it is recorded; a failure is recorded too."""
        own = asyncio.get_running_loop()
        name, shown = name_of(function), {str(i): _json(a) for i, a in enumerate(arguments)}
        shown |= {key: _json(value) for key, value in named.items()}

        async def here() -> JSON:
            try:
                result = function(*arguments, **named)
                return {"value": json.loads(_json(await result if inspect.isawaitable(result) else result))}
            except (Exception, SystemExit) as error:
                return {"error": f"program: tool {name}: {describe_exception(error)}"}

        async def work() -> object:
            async def compute() -> JSON:
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), own))

            record = await self.run.effect("program_tool", compute, content_hash([name, shown]))
            outcome = convert_record(record, dict[str, object])
            result = outcome.get("value")
            self.steps.append(TraceStep(name, shown, str(outcome.get("error") or _json(result)), "tool"))
            if "error" in outcome:
                raise ProgramFailed(str(outcome["error"]))
            return result

        return await self._there(work())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _output(result: Any) -> str:
    output = result.get("output") if isinstance(result, Mapping) else getattr(result, "output", result)
    if not isinstance(output, str):
        raise TypeError(
            f"the program returned {result!r}; expected a text, or an object with a text as its `output`"
        )
    return output


def trace_json(steps: Sequence[TraceStep]) -> list[dict[str, JSON]]:
    """A trace as a report shows it; long texts are cut."""
    return [
        {
            "prompt": step.prompt,
            "role": step.role,
            "inputs": {key: value[:LONGEST_SHOWN] for key, value in step.inputs.items()},
            "output": step.output[:LONGEST_SHOWN],
            "tokens": [step.usage.input_tokens, step.usage.output_tokens],
        }
        for step in steps
    ]


def expecting(env: Environment, rollouts: Sequence[Rollout]) -> Environment:
    """The environment, whose searches plan with as many calls as the longest of these rollouts made, if it runs a program."""
    if not isinstance(env, ProgramEnvironment):
        return env
    calls = [sum(step.role != "tool" for step in rollout.steps) for rollout in rollouts]
    return replace(env, expected=max(calls, default=0) or None)


def as_program(env: Environment, program: Program) -> ProgramEnvironment:
    """The same task, answered by a program."""
    return as_environment_type(env, ProgramEnvironment, scores=False, program=program)
