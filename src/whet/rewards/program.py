"""A reward written by the user: a function `(example, output)`, in `reward.py` or handed over in Python."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import json
import math
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.run import Run
from whet.sources import name_of, place_of_definition, program_of, source_hash
from whet.storable import read_file, shown, words_of
from whet.types import Completion, Example, Reward
from whet.user_code import OutOfTime, back_to, call_within, run_file, working_folder

FILE = "reward.py"
REWARD_TIMEOUT = 60.0
"""Seconds that a reward function may take for one answer, unless the task says more."""
RETURNED = "reward() returned"


def load_module(path: Path, named_by: str, remedy: str) -> types.ModuleType:
    """Run a Python file of the task folder and return its module; nothing is written beside it.

    `named_by` (file:line) says which entry named the file, `remedy` what to write when it is missing. What
    the file prints goes to stderr, and it may import modules that lie beside it. Raises UsageError with file
    and line when it cannot be read or run.
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
        with importing(path.parent), contextlib.redirect_stdout(sys.stderr):
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
            f"{place_of(error, path)}: the file does not load: {words_of(error)}. Correct it."
        ) from error
    return module


@contextlib.contextmanager
def importing(folder: Path) -> Iterator[None]:
    """Modules that lie in a folder can be imported; afterwards they are forgotten, so that another folder's of the same
    name are its own. Nothing is written beside them, and the working directory stays."""
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
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{place}/"):
                del sys.modules[name]


def load_program(path: Path, named_by: str = "reward") -> Callable[..., Any]:
    """The function `reward` of a Python file. Raises UsageError with file and line when it cannot be used."""
    remedy = "Write `def reward(example, output)` in it, or name a built-in reward"
    function: Any = getattr(load_module(path, named_by, remedy), "reward", None)
    if not callable(function):
        raise UsageError(f"{path}:1: there is no function `reward(example, output)` in it. Write one.")
    code = getattr(function, "__code__", None)
    place = f"{path}:{code.co_firstlineno if code is not None else 1}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{place}: `reward` must be an ordinary function, not a coroutine or a generator.")
    check_parameters(function, f"{place}: `reward`")
    wanted: Callable[..., Any] = function
    return wanted


def check_parameters(function: Callable[..., Any], what: str) -> None:
    """Raise UsageError for a function that cannot be called as function(example, output)."""
    try:
        signature = inspect.signature(function)
        signature.bind({}, "")
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
            "Give it these two parameters."
        ) from None


def place_of(error: BaseException, path: Path) -> str:
    """file:line of the deepest line of `path` that an exception went through; line 1 when there is none."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}:{lines[-1] if lines else 1}"


@dataclass(frozen=True)
class ProgramReward:
    """The user's function. It sees a copy of the whole row and returns a number, a Reward, or a dict with `reward`, an
    optional `critique`, and any other numbers, which become named parts. An exception or a value that is no
    finite number is a failed rollout with the boundary `reward`, at the low end of the range.

    `file` is its name in a task folder, `text` the content, None for a function that cannot be written to a file; `digest` is
    the function's identity. One that takes longer than `timeout` seconds ends the run with a UsageError; what was paid is kept.
    """

    path: Path
    function: Callable[..., Any] = field(compare=False)
    low: float = 0.0
    high: float = 1.0
    name: str = "program"
    file: str = FILE
    text: bytes | None = field(default=None, compare=False)
    digest: str = ""
    timeout: float = field(default=REWARD_TIMEOUT, compare=False)
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        async def compute() -> Any:
            return await self._compute(example, completion.text)

        outcome: Any = await run.effect("reward", compute, [example.id, completion.text])
        if "error" in outcome:
            raise RewardFailed(outcome["error"])
        critiques = (outcome["critique"], outcome.get("addressed", {}))
        return Reward(outcome["value"], outcome["parts"], *critiques)

    async def _compute(self, example: Example, output: str) -> dict[str, Any]:
        try:
            row = copy.deepcopy(dict(example.row))
            outcome = self._read(await call_within(lambda: self.function(row, output), self.timeout))
        except OutOfTime:
            raise UsageError(
                f"{self.path.name}: reward() has not returned after {self.timeout:g} s for the row {example.id}. Mend it and run "
                "again, or allow more: `reward_timeout: SECONDS` in task.yaml, reward_timeout= in Python."
            ) from None
        except Exception as error:
            line = place_of(error, self.path).rpartition(":")[2]
            outcome = {"error": f"{self.path.name}:{line}: {words_of(error)}"}
        return {"error": f"{outcome['error']} (row {example.id})"} if "error" in outcome else outcome

    def _read(self, result: Any) -> dict[str, Any]:
        """What the function returned, as it is recorded."""
        if isinstance(result, Reward):
            result = {**result.parts, "reward": result.value, "critique": result.addressed or result.critique}
        named: Mapping[str, Any] = result if isinstance(result, Mapping) else {"reward": result}
        value = _number(named.get("reward"))
        if value is None:
            return {
                "error": f"{self.path.name}: {RETURNED} {shown(result)}; expected a number or a dict with "
                "`reward`"
            }
        if not self.low <= value <= self.high:
            return {
                "error": f"{self.path.name}: {RETURNED} {value}, outside [{self.low}, {self.high}]; "
                "state the range in task.yaml: reward: {program: {low: .., high: ..}}"
            }
        critique, addressed = named.get("critique"), dict[str, str]()
        if not _is_critique(critique):
            return {
                "error": f"{self.path.name}: {RETURNED} {shown(critique)} as the critique; expected a text, a list of texts, or "
                "a dict of these by prompt"
            }
        if isinstance(critique, Mapping):
            addressed = {str(prompt): text for prompt, c in critique.items() if c and (text := _lines(c))}
            critique = list(addressed.values())
        critique = None if critique is None else _lines(critique)
        parts = {
            str(k): n
            for k, v in named.items()
            if k not in ("reward", "critique") and (n := _number(v)) is not None
        }
        graded = {"value": value, "parts": parts, "critique": critique or None}
        lost = [k for k, v in named.items() if k not in ("reward", "critique", *parts) and v is not None]
        graded |= {"dropped": [f"{k}={shown(named[k])}" for k in lost]} if lost else {}
        return {**graded, "addressed": addressed} if addressed else graded


def program_of_file(folder: Path, file: str, where: str, low: float, high: float) -> ProgramReward:
    """The function `reward` of a file of the task folder. Raises UsageError naming `where`."""
    path = folder / file
    function = load_program(path, where)
    text = path.read_bytes()
    digest = hashlib.sha256(text).hexdigest()
    return ProgramReward(path, function, low, high, file=file, text=text, digest=digest)


def program_of_function(function: Callable[..., Any], where: str, low: float, high: float) -> ProgramReward:
    """A function as a reward. What can be written to a file is known by the content of that file, anything else by
    `whet.sources`. Raises UsageError naming `where`."""
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{where}: the reward {name_of(function)} is a generator. Return the number instead."
        )
    check_parameters(function, f"{where}: the reward {name_of(function)}")
    name, program = name_of(function), program_of(function)
    if program is None:
        text, digest = None, source_hash(function)
    else:
        text = (program if name == "reward" else f"{program}\n\nreward = {name}\n").encode()
        digest = hashlib.sha256(text).hexdigest()
    path = Path(place_of_definition(function))
    return ProgramReward(
        path, function, low, high, "program" if name == "lambda" else name, text=text, digest=digest
    )


NONSENSE = ("xqzv", "")
"""Outputs that no example is answered by."""
TRIED = 8
"""Rows that a function is tried on at most."""


def programs_of(reward: Any) -> list[ProgramReward]:
    """The user's functions in a reward: itself, or parts of a sum; none that knows only answers that were given (`recorded`)."""
    if isinstance(reward, ProgramReward):
        return [] if getattr(reward.function, "recorded", False) else [reward]
    return [program for _, part in getattr(reward, "parts", ()) for program in programs_of(part)]


async def try_rewards(rewards: Sequence[ProgramReward], examples: Sequence[Example]) -> list[str]:
    """Warnings about the user's functions after a few rows, of other targets where there are some, each with its target, and
    the first three with nonsense as the output.

    Raises UsageError for one that returns no usable number for a target that is a text, or for any of these.
    """
    targets = {_target(example): example for example in reversed(examples)}
    rows = {e.id: e for e in (*examples[:3], *reversed(targets.values()))}
    return [warning for reward in rewards for warning in await _try(reward, [*rows.values()][:TRIED])]


def _target(example: Example) -> str:
    return example.target if isinstance(example.target, str) else json.dumps(example.target)


async def _try(reward: ProgramReward, rows: Sequence[Example]) -> list[str]:
    code = getattr(reward.function, "__code__", None)
    where = f"{reward.path}:{code.co_firstlineno if code is not None else 1}"
    right = [(e, await reward._compute(e, _target(e))) for e in rows if e.target is not None]
    wrong = [(e, await reward._compute(e, text)) for e in rows[:3] for text in NONSENSE]
    outcomes = [outcome for _, outcome in (*right, *wrong)]
    errors = [str(outcome["error"]) for outcome in outcomes if "error" in outcome]
    texts = [str(out["error"]) for e, out in right if "error" in out and isinstance(e.target, str)]
    unusable = [error for error in texts if RETURNED in error]
    if unusable or (errors and len(errors) == len(outcomes) and all(RETURNED in error for error in errors)):
        raise UsageError(f"{where}: tried on {len(rows)} rows: {(unusable or errors)[0]}.")
    if texts or (errors and len(errors) == len(outcomes)):
        share = f"{len(texts) or len(rows)} of {len(rows)} rows that it was tried on"
        return [f"{where}: the reward failed on {share}, with the right answer too: {(texts or errors)[0]}."]
    values = {outcome.get("value") for outcome in outcomes}
    warnings = []
    if right and len(values) == 1:
        warnings.append(
            f"{where}: the reward is {values.pop()} for the target of a row and for nonsense alike ({len(rows)} rows tried). "
            "A reward that is always the same teaches nothing."
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


def _is_critique(value: Any) -> bool:
    """Whether it is a text, a list of texts, a dict of these by prompt, or nothing."""
    texts = [*value.values()] if isinstance(value, Mapping) else [value]
    lines = [line for text in texts for line in (text if isinstance(text, list | tuple) else [text])]
    return all(line is None or isinstance(line, str) for line in lines)


def _lines(critique: Any) -> str:
    return "\n".join(map(str, critique)) if isinstance(critique, list | tuple) else str(critique)


def _number(value: Any) -> float | None:
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
