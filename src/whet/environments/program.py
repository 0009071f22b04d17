"""Programs: an async function of `(lm, prompts, example)` that asks models under several named prompts.

Its code runs in a thread of its own, in this process or in a worker. Its calls and tools go through the run, one after the
other, so that a resume gets each recorded answer again and the code makes the same calls. Its actions are the trace of the
rollout.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from whet._util.sources import (
    import_function,
    importable_name,
    name_of,
    place_of_definition,
    source_hash,
)
from whet._util.sources import program_text as text_of_function
from whet._util.storable import describe_exception
from whet._util.user_code import OutOfTime, in_thread, passable
from whet._util.workers import Asking, Back, Job, Work
from whet.environments.agent_forms import AgentAnswer, AgentRequest
from whet.environments.environment import Environment, Generation, as_environment_type
from whet.environments.episodes import Actor, ActorObservation
from whet.environments.program_model import ProgramFailed, ProgramModel, read_run_answer, to_text
from whet.errors import UsageError, WhetError, did_you_mean, quantity
from whet.prompt import Prompt
from whet.rewards.program import function_of_text, line_of_error, load_module, program_digest
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
_AGAIN = 1_000_000
_OVER = {"failed": "program: a call was made after the rollout was over"}
_PLACES: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(frozen=True)
class Program:
    """The user's function, and what one rollout may take. `file` is its name in a task folder, `digest` its identity.

    `slots`: names that every row must fill, those of a command.
    """

    function: Callable[..., Any] = field(compare=False)
    path: Path
    digest: str
    file: str | None = None
    calls: int = CALLS
    seconds: float = SECONDS
    slots: frozenset[str] = frozenset()

    @cached_property
    def described(self) -> dict[str, JSON] | None:
        """The source from which a worker process loads the program: its file, an importable function, or the text of a
        function; None where there is none of these."""
        facts: dict[str, JSON] = {"path": str(self.path), "digest": self.digest}
        if self.file is not None:
            return facts
        if (named := importable_name(self.function)) is not None:
            return {**facts, "function": named}
        text = text_of_function(self.function)
        if text is None:
            return None
        code = inspect.unwrap(self.function).__code__
        return {**facts, "text": text, "name": code.co_name, "line": code.co_firstlineno}

    def make_work_to_load(self) -> Work | None:
        """Work that loads the program in another process; None where it runs in that of the run only."""
        if self.described is None:
            return None
        return Work(f"{__name__}:load_rollout", {"program": self.described, "prompts": {}, "example": {}})


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

    `expected`: the calls of a rollout that a search plans with; None: as many as there may be. `actor` answers the calls of the
    task model; None: that model. `held`: answers of calls that nobody makes, by the prompt and the number of its call.
    """

    program: Program | None = None
    expected: int | None = None
    actor: Actor | None = None
    held: Mapping[tuple[str, int], str] = field(default_factory=dict)

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
            rollout = _ProgramRun(
                self.program, self.generation, run, prompt, example, sample, self.actor, self.held
            )
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


class _ProgramRun:
    """One rollout of a program: its code in a thread with an event loop of its own or in a worker process, its calls in the
    loop of the run, one after the other."""

    def __init__(
        self,
        program: Program,
        generation: Generation,
        run: Run,
        prompt: Prompt,
        example: Example,
        sample: int,
        actor: Actor | None = None,
        held: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        self.program, self.generation, self.run, self.actor = program, generation, run, actor
        self.held, self._numbers = held or {}, Counter[str]()
        self.prompt, self.example, self.sample = prompt, example, sample
        self.steps: list[TraceStep] = []
        self._loop, self._turn = asyncio.get_running_loop(), asyncio.Lock()
        self._open: set[asyncio.Task[Any]] = set()
        self._seen: dict[str, int] = {}
        self._places: list[str] = []
        self._calls, self._waiting, self._spent, self._since = 0, 0, 0.0, time.monotonic()
        self._ended: WhetError | None = None
        self.over, self._finish, self._processor = False, "stop", 0.0

    async def completion(self) -> Completion:
        """The program's return value, with all tokens of its calls. Raises an exception that ended the run itself, such as a
        spent budget."""
        outcome = await self._run_program()
        if self._ended is not None:
            raise self._ended
        await self._recall_order()
        usage = sum((step.usage for step in self.steps), Usage())
        steps: tuple[dict[str, JSON], ...] = tuple(
            {"role": step.role, "name": step.prompt, "arguments": dict(step.inputs), "output": step.output}
            for step in self.steps
        )
        return Completion(outcome["output"], self._finish, usage, outcome["error"], steps=steps)

    async def _recall_order(self) -> None:
        """Put the steps in the order in which they came when the rollout ran first: a program may ask several things at once, and
        a replay answers them faster. Raises ReplayDiverged where it did other steps then."""

        async def compute() -> object:
            return self._places

        branch, all_places = self.run.branch("order"), sorted(self._places)
        record = await branch.effect("program_order", compute, content_hash(all_places))
        steps = dict(zip(self._places, self.steps, strict=True))
        self.steps = [steps[place] for place in convert_record(record, list[str])]

    def _place(self, content: JSON) -> tuple[str, int]:
        """The name of the branch in which a call or a tool is recorded, by its content and not by when it is asked for; and how
        often that was asked for before."""
        key = content_hash(content)
        self._seen[key] = again = self._seen.get(key, -1) + 1
        return f"{key[:16]}.{again}", again

    def _add_step(self, place: str, step: TraceStep) -> None:
        self._places.append(place)
        self.steps.append(step)

    async def _run_program(self) -> dict[str, Any]:
        """The outcome of the program's code, here or in a worker process."""
        described = self.program.described
        if described is None:
            return await self._call_here()

        def make_work() -> Work:
            texts = {name: part.text for name, part in self.prompt.parts.items()}
            arguments = {"program": described, "prompts": texts, "example": self._values()}
            return Work(f"{__name__}:load_rollout", arguments)

        name, movable = self._name(), self.program.file is not None
        seconds = self.program.seconds
        job = Job(
            self._call_here,
            make_work,
            seconds,
            name,
            self._late,
            movable,
            lambda: self._processor,
            self._reply,
        )
        outcome: dict[str, Any] = await self.run.executor.run(job)
        return outcome

    async def _call_here(self) -> dict[str, Any]:
        """The same in a thread of this process."""

        def call() -> Any:
            began = time.thread_time()
            try:
                values = copy.deepcopy(self._values())
                texts = {name: part.text for name, part in self.prompt.parts.items()}
                return asyncio.run(self.program.function(ProgramModelHere(self), texts, values))
            finally:
                self._processor = time.thread_time() - began

        self._since = time.monotonic()
        try:
            result = await in_thread(call, self.program.seconds, self.own_seconds, self._name())
            return {"output": _output(result), "error": None}
        except OutOfTime:
            raise self._late() from None
        except Exception as exception:
            return _describe_failure(exception, self.program.path)
        finally:
            await self._close()

    def _name(self) -> str:
        return f"{self.program.path.name}: the program for {self.example.place}"

    def _values(self) -> dict[str, Any]:
        """The row as the program sees it."""
        row = {key: value for key, value in self.example.row.items() if key != "target"}
        return {**row, **self.example.values}

    def _late(self) -> UsageError:
        return UsageError(
            f"{self.program.path.name}: the program has taken {self.program.seconds:g} s beside its calls for "
            f"{self.example.place}. Mend it and run again, or allow more: program: {{seconds: SECONDS}}."
        )

    def own_seconds(self) -> float:
        """Seconds in which it did not wait for a model."""
        return self._spent + (0.0 if self._waiting else time.monotonic() - self._since)

    async def _close(self) -> None:
        """Give up the calls that are still open."""
        self.over = True
        for task in (left := list(self._open)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def ask(self, question: Any, reply: Callable[[Any], Coroutine[Any, Any, Any]] | None = None) -> Any:
        """See `Asking`; called in the loop of the program."""
        own = asyncio.get_running_loop()

        async def back(value: Any) -> Any:
            assert reply is not None
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reply(value), own))

        if (
            self.over
        ):  # the thread of a program that was given up goes on, and the loop of the run may have ended
            return _OVER
        watching = self._watch(question, back)
        try:
            waiting = asyncio.run_coroutine_threadsafe(watching, self._loop)
        except RuntimeError:
            watching.close()
            return _OVER
        return await asyncio.wrap_future(waiting)

    async def _watch(self, question: Any, back: Back) -> Any:
        """The answer to a question of the program's thread, when it is its turn."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with self._turn:
                if self._ended is not None:
                    raise self._ended
                if self.over:
                    return _OVER
                return await self._reply(question, back)
        except asyncio.CancelledError:
            raise
        except WhetError as error:  # that of the run, which no program may swallow
            self._ended = error
            raise
        finally:
            self._open.discard(task)

    async def _reply(self, question: dict[str, Any], back: Back) -> dict[str, Any]:
        """The answer to a question of the program: a `value`, or what `failed` or is `misused`. Raises what ends the run."""
        token = EXAMPLE.set(self.example)
        try:
            if "tool" in question:
                return await self._use_tool(question["tool"], question["inputs"], back)
            role, name = question["role"], question["prompt"]
            try:
                if "messages" in question:
                    if name:
                        self.find_prompt(name)
                    messages = tuple(Message(*pair) for pair in question["messages"])
                    inputs = {m.role: m.content for m in messages}
                else:
                    inputs = question["inputs"]
                    messages = self._render_prompt(name, inputs)
            except UsageError as error:
                return {"misused": str(error)}
            return await self._ask(role, name, inputs, messages, question)
        finally:
            EXAMPLE.reset(token)

    def find_prompt(self, name: str) -> Prompt:
        """A named prompt. Raises UsageError for a name that nobody knows."""
        if name not in self.prompt.parts:
            raise UsageError(f'The program has no prompt "{name}".{did_you_mean(name, self.prompt.parts)}')
        return self.prompt.parts[name]

    def _render_prompt(self, name: str, inputs: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages of a named prompt. Raises UsageError for a name or a slot that nobody knows."""
        part, example = self.find_prompt(name), self.example
        unknown = next((key for key in inputs if key not in part.slots), None) if part.slots else None
        if unknown is not None:
            raise UsageError(
                f'The prompt {name} has no slot {{{{{unknown}}}}}, so that lm("{name}", {unknown}=...) would be lost.'
                f"{did_you_mean(unknown, part.slots)}"
            )
        text = Example("", inputs).user_text if inputs else example.user_text
        filled = replace(example, values={**example.values, **inputs}, text=text)
        empty = sorted(part.slots - filled.values.keys())
        if empty:
            raise UsageError(
                f'Nothing fills the slot {{{{{empty[0]}}}}} of the prompt {name}. Write lm("{name}", {empty[0]}=...).'
            )
        return part.render(filled)

    async def _ask(
        self,
        role: str,
        name: str,
        inputs: Mapping[str, str],
        messages: tuple[Message, ...],
        question: Mapping[str, Any],
    ) -> dict[str, Any]:
        if self._calls == self.program.calls:
            most = quantity(self._calls, "call")
            return {"failed": f"program: more than {most} in one rollout (program: {{calls: N}} allows more)"}
        self._calls += 1
        place, again = self._place([role, [m.as_list() for m in messages]])
        g, run = self.generation, self.run.branch(place)
        sample = self.sample + again * _AGAIN
        schema, stop = question.get("schema"), (*g.stop, *question.get("stop", ()))
        form, options = (g.schema, None) if schema is None else (schema, question.get("schema_options"))
        limits = [limit for limit in (g.max_tokens, question.get("limit")) if limit is not None]
        request = Request(
            messages,
            g.temperature,
            min(limits, default=None),
            stop=stop,
            schema=form,
            sample=sample,
            schema_options=options,
        )
        self._spent, self._waiting = self.own_seconds(), 1
        record: JSON = None
        held = await self._recall_held(run, name) if role == "task" and self.held else None
        try:
            if held is not None:
                completion = Completion(held, "stop")
            elif self.actor is not None and role == "task":
                (action,) = await self.actor.act(run, [ActorObservation.first(messages)], sample)
                finish, record = "length" if action.cut else "stop", action.record
                completion = Completion(action.text, finish, action.usage, action.error)
            else:
                completion = g.answer((await run.generate(role, request))[0])
        finally:
            self._since, self._waiting = time.monotonic(), 0
        self._add_step(place, TraceStep(name, inputs, completion.text, role, completion.usage, record))
        if role == "task" and completion.finish == "length":
            self._finish = "length"
        if completion.error is not None:
            return {"failed": completion.error}
        return {"value": completion.text, "finish": completion.finish, "usage": asdict(completion.usage)}

    async def _recall_held(self, run: Run, name: str) -> str | None:
        """The answer that the next call of a prompt is held to; None where it is free. Recorded, because calls that are made at
        once may come in another order in a replay."""
        number, self._numbers[name] = self._numbers[name], self._numbers[name] + 1

        async def compute() -> JSON:
            return self.held.get((name, number))

        held = await run.effect("held", compute)
        return None if held is None else convert_record(held, str)

    async def _use_tool(self, name: str, inputs: Mapping[str, str], back: Back) -> dict[str, Any]:
        """The return value of a tool, from the journal where it is recorded. A failure is recorded too. The program calls
        it."""

        async def compute() -> object:
            return await back(True)

        place, _ = self._place(["tool", name, dict(inputs)])
        record = await self.run.branch(place).effect("program_tool", compute, content_hash([name, inputs]))
        outcome = convert_record(record, dict[str, object])
        result = outcome.get("value")
        self._add_step(place, TraceStep(name, inputs, str(outcome.get("error") or to_text(result)), "tool"))
        if "error" in outcome:
            return {"failed": str(outcome["error"]), "type": str(outcome.get("type", ""))}
        return {"value": result}


class ProgramModelHere(ProgramModel):
    """The `lm` of a program in the process of the run, with what whet's own programs ask of it besides."""

    _asking: _ProgramRun

    async def ask_as_agent(self, call: AgentRequest, prompt: str = "") -> AgentAnswer:
        """The answer to the request of a command, or of an agent under a named prompt. Raises ProgramFailed for a call that
        brought none."""
        pairs = [m.as_list() for m in call.messages]
        own = {
            "schema": call.schema,
            "schema_options": call.schema_options,
            "stop": call.stop,
            "limit": call.limit,
        }
        answer = await self._asking.ask({"role": self._role, "prompt": prompt, "messages": pairs, **own})
        return AgentAnswer(str(read_run_answer(answer)), answer["finish"], Usage(**answer["usage"]))

    def document(self, name: str) -> Prompt:
        """A named prompt as it is, with its front matter and slots. Raises UsageError for a name that nobody knows."""
        return self._asking.find_prompt(name)

    def own_seconds(self) -> float:
        """Seconds since the rollout began in which it did not wait for a model."""
        return self._asking.own_seconds()

    def is_over(self) -> bool:
        """Whether the run waits for the rollout no more."""
        return self._asking.over


def load_rollout(
    program: dict[str, Any], prompts: dict[str, str], example: dict[str, Any]
) -> Callable[[Asking], object]:
    """One rollout of a program, as a worker process computes it. `program` is what `Program.described` says. Raises UsageError
    where it is another one now."""
    loaded = _load_described(json.dumps(program, sort_keys=True))

    def compute(asking: Asking) -> object:
        try:
            result = asyncio.run(loaded.function(ProgramModel(asking), prompts, example))
            return {"output": _output(result), "error": None}
        except BaseException as error:
            return _describe_failure(passable(error), loaded.path)

    return compute


@cache
def _load_described(text: str) -> Program:
    described = json.loads(text)
    path = Path(described["path"])
    if "text" in described:
        place = described["path"], described["line"]
        return Program(function_of_text(described["text"], described["name"], *place), path, "")
    if "function" in described:
        what = described["function"]
        loaded = program_of(import_function(what), "program")
    else:
        what, loaded = described["path"], load_user_program(path, "program")
    if loaded.digest != described["digest"]:
        raise UsageError(
            f"{what} was edited since the run began, or is another one on this machine. Run the same command again: it reads "
            "the file anew."
        )
    return loaded


def _describe_failure(exception: Exception, path: Path) -> dict[str, Any]:
    """The outcome of a program that raised an exception."""
    error = repair_surrogates(str(exception))
    if not isinstance(exception, ProgramFailed):
        error = f"program: {Path(line_of_error(exception, path)).name}: {describe_exception(exception)}"
    return {"output": "", "error": error}


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
