"""A reward written by the user: a function `(example, output)`, in `reward.py` or handed over in Python."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import hashlib
import inspect
import json
import math
import sys
import time
import traceback
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypedDict

from whet._util.sources import (
    import_function,
    importable_name,
    name_of,
    place_of_definition,
    program_text,
    source_hash,
    used_outside,
)
from whet._util.storable import describe_exception, read_file
from whet._util.user_code import (
    OutOfTime,
    await_result,
    back_to,
    call_within,
    passable,
    run_file,
    working_folder,
)
from whet._util.user_modules import digest_of_file
from whet._util.workers import HERE, Executor, Job, Work
from whet.errors import UsageError, parameter, quantity
from whet.run import Run, convert_record
from whet.types import JSON, Completion, Example, Reward, content_hash
from whet_client.media import content_bytes, marks_of
from whet_client.storable import show_value

FILE = "reward.py"
REWARD_TIMEOUT = 60.0
"""Seconds that a reward function may take for one answer, unless the task says more."""
RETURNED = "reward() returned"
STATE_RANGE = "state the range"
"""The error text for a value outside the default range."""
TRACE, PICTURES = "trace", "pictures"
"""Parameters of a function by which it gets more than the output: the steps of the rollout, the files of painted pictures."""
VALUES = ("reward", "score")
"""Keys of a dict, or attributes of an object, under which a function returns the number; the first that is there."""
CRITIQUES = ("critique", "feedback", "comment", "reason", "explanation")
"""Keys or attributes under which it says what is wrong; the first that is there."""


_IMPORTED: dict[Path, set[Path]] = {}
"""Files that were imported while a file of a task folder was loaded last."""


def program_digest(path: Path) -> str:
    """The identity of a file of the task folder that was loaded: its content, with that of the files that it imports from
    there."""
    return digest_of_file(path, sorted(_IMPORTED.get(path.resolve(), ())))


def load_module(path: Path, named_by: str, remedy: str) -> types.ModuleType:
    """Run a Python file of the task folder and return its module; nothing is written beside it.

    `named_by` (file:line) says which entry named the file, `remedy` what to write when it is missing. The file's output goes to
    stderr, and it may import modules from its own folder. Raises UsageError with file and line when it cannot be read or run.
    """
    try:
        source = read_file(path)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise UsageError(f"{named_by}: {path}: {reason}. {remedy}.") from error
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    module = types.ModuleType(f"whet_task_{path.stem}_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        _IMPORTED.pop(path.resolve(), None)
        with importing(path.parent, path), contextlib.redirect_stdout(sys.stderr):
            code = compile(source, str(path), "exec", dont_inherit=True)
            run_file(lambda: exec(code, module.__dict__), path)  # noqa: S102
    except KeyboardInterrupt:
        raise
    except OutOfTime:
        raise UsageError(
            f"{path}:1: the file does not end. Look for a loop without end, or a call that waits."
        ) from None
    except BaseException as error:
        raise UsageError(
            f"{line_of_error(error, path)}: the file does not load: {describe_exception(error)}. Correct it."
        ) from error
    return module


@contextlib.contextmanager
def importing(folder: Path, path: Path | None = None) -> Iterator[None]:
    """Modules that lie in a folder can be imported; afterwards they are forgotten, so that another folder's of the same
    name are its own. Nothing is written beside them, and the working directory stays. They belong to the digest of the file
    `path`."""
    place, known, at = str(folder.resolve()), set(sys.modules), working_folder()
    before = list(sys.path)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, place)
    try:
        yield
    finally:
        back_to(at)
        with contextlib.suppress(ValueError):  # the module may have changed the list
            sys.path.remove(place)
        sys.path += [path for path in before if path not in sys.path]
        sys.dont_write_bytecode = bytecode
        for name in set(sys.modules) - known:
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            if file.startswith(f"{place}/"):
                del sys.modules[name]
                if path is not None:
                    _IMPORTED.setdefault(path.resolve(), set()).add(Path(file))


def load_program(path: Path, named_by: str = "reward") -> Callable[..., object]:
    """The function `reward` of a Python file. Raises UsageError with file and line when it cannot be used."""
    remedy = "Write `def reward(example, output)` in it, or name a built-in reward"
    function: object = getattr(load_module(path, named_by, remedy), "reward", None)
    if not callable(function):
        raise UsageError(f"{path}:1: there is no function `reward(example, output)` in it. Write one.")
    code = getattr(function, "__code__", None)
    place = f"{path}:{code.co_firstlineno if code is not None else 1}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{place}: `reward` is a generator. Return the number instead.")
    check_parameters(function, f"{place}: `reward`")
    wanted: Callable[..., object] = function
    return wanted


def takes_parameter(function: Callable[..., object], name: str) -> bool | None:
    """Whether a function must be given a value for a parameter, by its name; False: it may be, None: it has none of that name."""
    try:
        named = inspect.signature(function).parameters.get(name)
    except ValueError:  # a function without a signature: it is called as it is
        return None
    if named is None or named.kind not in (named.KEYWORD_ONLY, named.POSITIONAL_OR_KEYWORD):
        return None
    return named.default is named.empty


def check_parameters(function: Callable[..., object], what: str) -> None:
    """Raise UsageError for a function that cannot be called as function(example, output), or with what else a reward may read."""
    try:
        signature = inspect.signature(function)
        signature.bind({}, "", **{name: [] for name in (TRACE, PICTURES) if takes_parameter(function, name)})
        names = [*signature.parameters][:2]
        if names[0] == "output" or names[1:] == ["example"]:
            raise UsageError(
                f"{what} is called as reward(example, output), and its parameters are swapped: ({', '.join(names)}). "
                "Write them in this order."
            )
    except ValueError:  # a function without a signature: it is called as it is
        return
    except TypeError:
        raise UsageError(
            f"{what} is called as reward(example, output), which it does not take. "
            "Give it these two parameters; also `trace` where it reads the steps of a rollout, and `pictures` where it reads the "
            "files of painted pictures."
        ) from None


def line_of_error(error: BaseException, path: Path) -> str:
    """file:line of the deepest line of `path` that an exception went through; line 1 when there is none."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}:{lines[-1] if lines else 1}"


class GradedOutput(TypedDict, total=False):
    """The journal's record of the function's result: an `error`, or a value with its parts and critique."""

    error: str
    value: float
    parts: dict[str, float]
    critique: str | None
    addressed: dict[str, str]


@dataclass(frozen=True)
class ProgramReward:
    """The user's function, plain or async. It sees a copy of the whole row and returns a number, a Reward, a dict or an object
    with `reward` (or `score`), an optional `critique` (or `feedback`) and any other numbers, which become named parts, or a
    pair of number and critique. An exception or a value that is no finite number is a failed rollout with the boundary
    `reward`, at the low end of the range. A function with a parameter `trace` gets the steps of the rollout too, one with
    `pictures` the files of the pictures in the output.

    `stated` says whether the range is the user's; else it is [0, 1], and a value outside of it is refused with what to write.

    `file` is its name in a task folder, `text` the content, None for a function that cannot be written to a file; `digest` is
    the function's identity. One that takes longer than `timeout` seconds ends the run with a UsageError; what was paid is kept.
    `loaded` says that it was loaded from the file at `path`.
    """

    path: Path
    function: Callable[..., object] = field(compare=False)
    low: float = 0.0
    high: float = 1.0
    name: str = "program"
    file: str = FILE
    text: bytes | None = field(default=None, compare=False)
    digest: str = ""
    timeout: float = field(default=REWARD_TIMEOUT, compare=False)
    needs: frozenset[str] = frozenset()
    stated: bool = field(default=False, compare=False)
    loaded: bool = field(default=False, compare=False)

    @property
    def needs_trace(self) -> bool | None:
        """Whether the function must be given the steps of a rollout; None where it takes none."""
        return takes_parameter(self.function, TRACE)

    @property
    def reads_steps(self) -> bool:
        """Whether the function takes the steps of a rollout."""
        return self.needs_trace is not None

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        needed = self.needs_trace
        steps = _steps(completion) if needed or (needed is not None and completion.steps) else None

        async def compute() -> object:
            return await run.executor.run(self.job(example, completion.text, steps))

        seen = [] if steps is None else [content_hash(steps)]
        record = await run.effect("reward", compute, [example.id, completion.text, *seen])
        outcome = convert_record(record, GradedOutput)
        if "error" in outcome:
            raise RewardFailed(outcome["error"])
        critiques = (outcome["critique"], outcome.get("addressed", {}))
        return Reward(outcome["value"], outcome["parts"], *critiques)

    def job(self, example: Example, output: str, steps: list[JSON] | None = None) -> Job:
        """The grading of an output, here or in another process."""

        seconds: list[float] = []

        async def here() -> object:
            return await self._compute(example, output, steps, seconds)

        def make_work() -> Work:
            values = {"row": dict(example.row), "place": example.place, "output": output, "steps": steps}
            files = self._pictures_in(output)
            coded = None if files is None else [base64.b64encode(data).decode() for data in files]
            return Work(f"{__name__}:load_grading", {"reward": self._describe(), **values, "coded": coded})

        name = f"{self.path.name}: reward() for {example.place}"
        late = partial(self._late, example.place)
        return Job(here, make_work, self.timeout, name, late, self.loaded, lambda: sum(seconds))

    def make_work_to_load(self) -> Work:
        """Work that loads the function in another process; what it would compute is nobody's. Raises UsageError for a function
        that cannot be sent."""
        nothing: dict[str, JSON] = {"row": {}, "place": "", "output": "", "steps": None, "coded": None}
        return Work(f"{__name__}:load_grading", {"reward": self._describe(), **nothing})

    def _describe(self) -> dict[str, JSON]:
        """The source from which another process loads the reward: a file, an importable function, or the text of a program.
        Raises UsageError for a function that is none of these."""
        facts: dict[str, JSON] = {"low": self.low, "high": self.high, "stated": self.stated}
        if self.loaded:
            return {**facts, "file": str(self.path), "digest": self.digest}
        if (named := importable_name(self.function)) is not None:
            return {**facts, "function": named, "digest": self.digest}
        if self.text is None:
            raise UsageError(
                f"The reward {self.name} cannot be sent to a worker process: it can be neither imported nor written down as a "
                f"program of its own. Put it into a module or reward.py, or leave out {parameter('workers')} and "
                f"{parameter('engine')}."
            )
        code = inspect.unwrap(self.function).__code__
        place = {"path": str(self.path), "line": code.co_firstlineno, "name": self.name}
        return {**facts, "text": self.text.decode(), **place}

    def _pictures_in(self, output: str) -> list[bytes] | None:
        """The files of the pictures in an output, where the function reads them."""
        if takes_parameter(self.function, PICTURES) is None:
            return None
        return [data for mark in marks_of(output) if (data := content_bytes(mark)) is not None]

    def _call_function(
        self, row: dict[str, Any], output: str, steps: list[JSON] | None, pictures: list[bytes] | None
    ) -> Any:
        more = {} if steps is None else {TRACE: steps}
        return self.function(row, output, **more, **({} if pictures is None else {PICTURES: pictures}))

    async def _compute(
        self,
        example: Example,
        output: str,
        steps: list[JSON] | None = None,
        seconds: list[float] | None = None,
    ) -> dict[str, Any]:
        """The outcome of the function, called in this process; the seconds for which it kept the processor go to `seconds`."""
        row, own, pictures = copy.deepcopy(dict(example.row)), copy.deepcopy(steps), self._pictures_in(output)

        def call() -> Any:
            began = time.thread_time()
            try:
                return self._call_function(row, output, own, pictures)
            finally:
                if seconds is not None:
                    seconds.append(time.thread_time() - began)

        try:
            name = f"{self.path.name}: reward() for {example.place}"
            outcome = self._read(await call_within(call, self.timeout, name))
        except OutOfTime:
            raise self._late(example.place) from None
        except Exception as error:
            outcome = self._describe_failure(error)
        return _name_row(outcome, example.place)

    def compute_apart(
        self,
        row: dict[str, Any],
        place: str,
        output: str,
        steps: list[JSON] | None,
        pictures: list[bytes] | None,
    ) -> dict[str, Any]:
        """The same in a worker process, whose parent sees to the time."""
        try:
            result = self._call_function(row, output, steps, pictures)
            if inspect.isawaitable(result):
                result = asyncio.run(await_result(result, None))
            outcome = self._read(result)
        except BaseException as error:
            outcome = self._describe_failure(passable(error))
        return _name_row(outcome, place)

    def _late(self, place: str) -> UsageError:
        return UsageError(
            f"{self.path.name}: reward() has not returned after {self.timeout:g} s for {place}. Mend it and run "
            "again, or allow more: `reward_timeout: SECONDS` in task.yaml, reward_timeout= in Python."
        )

    def _describe_failure(self, error: Exception) -> dict[str, Any]:
        line = line_of_error(error, self.path).rpartition(":")[2]
        return {"error": f"{self.path.name}:{line}: {describe_exception(error)}"}

    def _read(self, result: object) -> dict[str, Any]:
        """The function's return value, as it is recorded."""
        named = _named_values(result)
        key = next((key for key in VALUES if key in named), "reward")
        wording = next((key for key in CRITIQUES if named.get(key) is not None), "critique")
        value = read_number(named.get(key))
        if value is None:
            return {
                "error": f"{self.path.name}: {RETURNED} {show_value(result)}; expected a number or a dict with `reward`"
            }
        value = _without_rounding(value, self.low, self.high)
        if not self.low <= value <= self.high:
            return {"error": self._outside(value), "outside": value}
        critique, addressed = named.get(wording), dict[str, str]()
        if not _is_critique(critique):
            return {
                "error": f"{self.path.name}: {RETURNED} {show_value(critique)} as the critique; expected a text, a list of "
                "texts, or a dict of these by prompt"
            }
        if isinstance(critique, Mapping):
            addressed = {str(prompt): text for prompt, c in critique.items() if c and (text := _lines(c))}
            critique = list(addressed.values())
        critique = None if critique is None else _lines(critique)
        parts = {
            str(k): n
            for k, v in named.items()
            if k not in (key, wording) and (n := read_number(v)) is not None
        }
        graded = {"value": value, "parts": parts, "critique": critique or None}
        lost = [k for k, v in named.items() if k not in (key, wording, *parts) and v is not None]
        graded |= {"dropped": [f"{k}={show_value(named[k])}" for k in lost]} if lost else {}
        return {**graded, "addressed": addressed} if addressed else graded

    def _outside(self, value: float, others: Sequence[float] = (1.0,)) -> str:
        """The fault of a value outside the range; `others` are other values that the function returned."""
        text = f"{self.path.name}: {RETURNED} {value}, outside [{self.low:g}, {self.high:g}]"
        if self.stated:
            return f"{text}, the range that the task states"
        if all(-_NEARLY <= one <= 1 + _NEARLY for one in (value, *others)):
            return f"{text}. If it was rounded or added up, return min(1.0, max(0.0, value))"
        low, high = math.floor(min(value, 0.0, *others)), math.ceil(max(value, 0.0, *others))
        return (
            f"{text}; {STATE_RANGE} of its values, such as reward: {{{self.file}: {{low: {low}, high: {high}}}}} in task.yaml, "
            f'reward={{"program": {{"function": {self.name}, "low": {low}, "high": {high}}}}} in Python'
        )


def _name_row(outcome: dict[str, Any], place: str) -> dict[str, Any]:
    """The outcome, whose error names the row."""
    return {**outcome, "error": f"{outcome['error']} ({place})"} if "error" in outcome else outcome


def load_grading(
    reward: dict[str, Any],
    row: dict[str, Any],
    place: str,
    output: str,
    steps: list[JSON] | None,
    coded: list[str] | None,
) -> Callable[[], object]:
    """The grading of one output, as a worker process computes it. `reward` is what `ProgramReward` said of itself, `coded` the
    pictures in base64. Raises UsageError where the reward is another one now."""
    graded = _load_described(json.dumps(reward, sort_keys=True))
    pictures = None if coded is None else [base64.b64decode(data) for data in coded]
    return lambda: graded.compute_apart(row, place, output, steps, pictures)


@cache
def _load_described(text: str) -> ProgramReward:
    described = json.loads(text)
    ends = described["low"], described["high"], described["stated"]
    if "text" in described:
        return _reward_of_text(described, *ends)
    if "file" in described:
        path = Path(described["file"])
        what, loaded = str(path), program_of_file(path.parent, path.name, "reward", *ends)
    else:
        what = described["function"]
        loaded = program_of_function(import_function(what), "reward", *ends)
    if loaded.digest != described["digest"]:
        raise UsageError(
            f"{what} was edited since the run began, or is another one on this machine. Run the same command again: it reads "
            "the file anew."
        )
    return loaded


def function_of_text(text: str, name: str, path: str, line: int) -> Any:
    """The function that a program (`program_of`) defines under a name, at its own place: errors name the line where it was
    written."""
    module = types.ModuleType("whet_function")
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    function = module.__dict__[name]
    function.__code__ = function.__code__.replace(co_filename=path, co_firstlineno=line)
    return function


def _reward_of_text(described: Mapping[str, Any], low: float, high: float, stated: bool) -> ProgramReward:
    """The function that a program calls `reward`."""
    path = described["path"]
    function = function_of_text(described["text"], "reward", path, described["line"])
    return ProgramReward(Path(path), function, low, high, described["name"], stated=stated)


def _steps(completion: Completion) -> list[JSON]:
    """The steps of a rollout; of a single answer one."""
    only: dict[str, JSON] = {"role": "task", "name": "", "arguments": {}, "output": completion.text}
    return [dict(step) for step in completion.steps] or [only]


def _named_values(result: Any) -> Mapping[str, object]:
    """A function's return value as named entries: a dict, an object with `items` or with `score`, a pair of number and
    critique."""
    if isinstance(result, Reward):
        critique = result.addressed or result.critique
        return {**result.parts, "reward": result.value, "critique": critique}
    if isinstance(result, Mapping):
        return result
    if callable(getattr(result, "items", None)) and callable(getattr(result, "keys", None)):
        return dict(result.items())
    key = next((key for key in VALUES if read_number(getattr(result, key, None)) is not None), None)
    if key is not None:
        words = {name: text for name in CRITIQUES if isinstance(text := getattr(result, name, None), str)}
        return {key: getattr(result, key), **words}
    if isinstance(result, tuple | list) and len(result) == 2 and read_number(result[1]) is None:
        second = result[1]
        return (
            {**second, "reward": result[0]}
            if _is_report(second)
            else {"reward": result[0], "critique": second}
        )
    return {"reward": result}


def _is_report(value: object) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in CRITIQUES)


_ROUNDING = 1e-9
"""The share of the range by which sums of floats may miss it."""
_NEARLY = 0.01
"""The distance beyond 0 and 1 at which a value still counts as meant to be inside: the message then says to clip the value, and
not to state another range."""


def program_of_file(
    folder: Path, file: str, where: str, low: float, high: float, stated: bool = True
) -> ProgramReward:
    """The function `reward` of a file of the task folder. Raises UsageError naming `where`."""
    path = folder / file
    function = load_program(path, where)
    text, digest = path.read_bytes(), program_digest(path)
    return ProgramReward(
        path, function, low, high, file=file, text=text, digest=digest, stated=stated, loaded=True
    )


def program_of_function(
    function: Callable[..., object], where: str, low: float, high: float, stated: bool = True
) -> ProgramReward:
    """A function as a reward. A function with a source file is identified by the content of that file, any other by
    `whet._util.sources`. Raises UsageError naming `where`."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{where}: the reward {name_of(function)} is a generator. Return the number instead."
        )
    check_parameters(function, f"{where}: the reward {name_of(function)}")
    name, program = name_of(function), program_text(function)
    if program is None:
        text, digest = None, source_hash(function)
    else:
        text = (program if name == "reward" else f"{program}\n\nreward = {name}\n").encode()
        digest = hashlib.sha256(text + used_outside(function).encode()).hexdigest()
    path = Path(place_of_definition(function))
    known = "program" if name == "lambda" else name
    return ProgramReward(path, function, low, high, known, text=text, digest=digest, stated=stated)


NONSENSE = ("xqzv", "")
"""Outputs that no example is answered by."""
TRIED = 8
"""Rows that a function is tried on at most."""


def programs_of(reward: object) -> list[ProgramReward]:
    """The user's functions in a reward: itself, or parts of a sum; none that knows only answers that were given (`recorded`)."""
    if isinstance(reward, ProgramReward):
        return [] if getattr(reward.function, "recorded", False) else [reward]
    return [program for _, part in getattr(reward, "parts", ()) for program in programs_of(part)]


async def try_rewards(
    rewards: Sequence[ProgramReward],
    examples: Sequence[Example],
    labels: Collection[str] = (),
    executor: Executor = HERE,
) -> list[str]:
    """Warnings about the user's functions after a few rows, of other targets where there are some, each with its target, and
    the first three with nonsense as the output. The executor calls them.

    Raises UsageError for one that returns no usable number for a target that is a text, or for any of these; where answers are
    `labels`, also for one that raises on every target, for they are what it will get.
    """
    targets = {_target(example): example for example in reversed(examples)}
    rows = {e.id: e for e in (*examples[:3], *reversed(targets.values()))}
    return [
        warning
        for reward in rewards
        for warning in await _try(executor, reward, [*rows.values()][:TRIED], bool(labels))
    ]


def _target(example: Example) -> str:
    return example.target if isinstance(example.target, str) else json.dumps(example.target)


async def _try(executor: Executor, reward: ProgramReward, rows: Sequence[Example], exact: bool) -> list[str]:
    async def grade(example: Example, output: str) -> dict[str, Any]:
        outcome: dict[str, Any] = await executor.run(reward.job(example, output))
        return outcome

    code = getattr(reward.function, "__code__", None)
    where = f"{reward.path}:{code.co_firstlineno if code is not None else 1}"
    right = [(e, await grade(e, _target(e))) for e in rows if e.target is not None]
    wrong = [(e, await grade(e, text)) for e in rows[:3] for text in NONSENSE]
    others = dict.fromkeys(_target(e) for e in rows if e.target is not None)
    swapped = [await grade(e, text) for e in rows[:3] for text in others if text != _target(e)]
    outcomes = [outcome for _, outcome in (*right, *wrong)]
    outside = [outcome for outcome in (*outcomes, *swapped) if "outside" in outcome]
    if outside and not reward.stated:
        values = [one.get("outside", one.get("value", 0.0)) for one in (*outcomes, *swapped)]
        furthest = max((one["outside"] for one in outside), key=abs)
        raise UsageError(
            f"{where}: tried on {quantity(len(rows), 'row')}: {reward._outside(furthest, values)}."
        )
    errors = [str(outcome["error"]) for outcome in outcomes if "error" in outcome]
    texts = [str(out["error"]) for e, out in right if "error" in out and isinstance(e.target, str)]
    unusable = [error for error in texts if RETURNED in error]
    if unusable or (errors and len(errors) == len(outcomes) and all(RETURNED in error for error in errors)):
        raise UsageError(f"{where}: tried on {quantity(len(rows), 'row')}: {(unusable or errors)[0]}.")
    if texts or (errors and len(errors) == len(outcomes)):
        if exact and len(errors) == len(outcomes):
            raise UsageError(
                f"{where}: the reward failed on all {len(rows)} rows that it was tried on, with the right label too: {errors[0]}."
            )
        share = f"{len(texts) or len(rows)} of {quantity(len(rows), 'row')} that it was tried on"
        return [f"{where}: the reward failed on {share}, with the right answer too: {(texts or errors)[0]}."]
    distinct = {outcome.get("value") for outcome in outcomes}
    warnings = []
    if right and len(distinct) == 1:
        warnings.append(
            f"{where}: the reward is {distinct.pop()} for the target of a row and for nonsense alike "
            f"({quantity(len(rows), 'row')} tried). A reward that is always the same teaches nothing."
        )
    if (
        dropped := next((outcome["dropped"] for outcome in outcomes if "dropped" in outcome), None)
    ) is not None:
        warnings.append(
            f"{where}: the reward returns {', '.join(dropped)}, which is dropped: beside `reward` and `critique` a dict holds "
            "finite numbers. A text that says what is wrong goes under `critique`."
        )
    return warnings


class RewardFailed(Exception):
    """The reward failed on one output; the environment turns it into a failed rollout."""

    @property
    def where(self) -> str:
        """The error of that rollout: `reward: what happened`, or `provider: ...` where the judge's provider failed."""
        text = str(self)
        return text if text.startswith("provider:") else f"reward: {text}"


def _is_critique(value: object) -> bool:
    """Whether it is a text, a list of texts, a dict of these by prompt, or nothing."""
    texts = [*value.values()] if isinstance(value, Mapping) else [value]
    lines = [line for text in texts for line in (text if isinstance(text, list | tuple) else [text])]
    return all(line is None or isinstance(line, str) for line in lines)


def _lines(critique: object) -> str:
    return "\n".join(map(str, critique)) if isinstance(critique, list | tuple) else str(critique)


def _without_rounding(value: float, low: float, high: float) -> float:
    """The value, or the end of the range that it misses by a rounding error: weights that are 1 together sum to 1 + 2e-16."""
    inside = min(max(value, low), high)
    return inside if abs(value - inside) <= _ROUNDING * max(abs(low), abs(high), high - low) else value


def read_number(value: Any) -> float | None:
    """A number of any type, such as one of NumPy or a Decimal, as a float; None for a text and a number that is not finite."""
    dimensions: object = getattr(value, "ndim", None)
    if isinstance(value, str | bytes) or dimensions:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
