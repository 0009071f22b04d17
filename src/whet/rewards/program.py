"""A reward written by the user: `reward.py` with `def reward(example: dict, output: str)`."""

from __future__ import annotations

import importlib.util
import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.run import Run
from whet.types import Completion, Example, Reward


def load_program(path: Path) -> Callable[..., Any]:
    """The function `reward` of a Python file. Raises UsageError with file and line when it cannot be used."""
    spec = importlib.util.spec_from_file_location(f"whet_task_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(
            f"{path}: no such file. Write `def reward(example, output)` in it, or name a built-in reward."
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path}{_line_of(error, path)}: the file does not load: {error!r}.") from error
    function = getattr(module, "reward", None)
    if not callable(function):
        raise UsageError(f"{path}: there is no function `reward(example, output)` in it.")
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{path}: `reward` must be an ordinary function, not a coroutine.")
    program: Callable[..., Any] = function
    return program


def _line_of(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


@dataclass(frozen=True)
class Program:
    """The user's function. It sees the whole row and returns a number, or a dict with `reward`, an optional
    `critique`, and any other numbers, which become named parts. An exception or a value that is no finite
    number is a failed rollout with the boundary `reward`, at the low end of the range."""

    path: Path
    function: Callable[..., Any] = field(compare=False)
    low: float = 0.0
    high: float = 1.0
    name: str = "program"
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        async def compute() -> Any:
            return self._compute(example, completion.text)

        found: Any = await run.effect("reward", compute, [example.id, completion.text])
        if "error" in found:
            raise RewardFailed(found["error"])
        return Reward(found["value"], found["parts"], found["critique"])

    def _compute(self, example: Example, output: str) -> dict[str, Any]:
        try:
            result = self.function(dict(example.row), output)
        except Exception as error:
            return {"error": f"{self.path.name}{_line_of(error, self.path)}: {type(error).__name__}: {error}"}
        named: Mapping[str, Any] = result if isinstance(result, Mapping) else {"reward": result}
        value = _number(named.get("reward"))
        if value is None:
            return {
                "error": f"{self.path.name}: reward() returned {result!r}; expected a number or a dict with `reward`"
            }
        if not self.low <= value <= self.high:
            return {
                "error": f"{self.path.name}: reward() returned {value}, outside [{self.low}, {self.high}]; "
                "state the range in task.yaml: reward: {program: {low: .., high: ..}}"
            }
        critique = named.get("critique")
        if isinstance(critique, list | tuple):
            critique = "\n".join(str(c) for c in critique)
        parts = {
            str(k): n
            for k, v in named.items()
            if k not in ("reward", "critique") and (n := _number(v)) is not None
        }
        return {"value": value, "parts": parts, "critique": None if critique in (None, "") else str(critique)}


class RewardFailed(Exception):
    """The user's reward function failed on one output; the environment turns it into a failed rollout."""


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
