"""The reward that solves the model of an answer and compares the result.

Chen et al. 2025, "Solver-Informed RL" (SIRL, arXiv:2505.11792), section 4: format, execution and accuracy of the optimum, which
is right within 1e-6 of |target| + 1. Differences: (1) the answer is a model, not a program, so that nothing of it is executed;
(2) an optimum of 0 is a number like any other; (3) a row may give the model, and the answer is then an assignment.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whet._util.confined import Limits, OutOfBounds, run_confined
from whet._util.storable import is_number
from whet.errors import UsageError, quantity
from whet.rewards.asking import RewardOptions
from whet.rewards.fields_of_json import holds_object, json_in
from whet.rewards.targets import accepted_answers, quote_target, show_target
from whet.rewards.verifiers.linear_model import LinearModel, NoModel, read_model
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.reading import LONGEST_ANSWER, code_in, cut, number_option
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward

Measure = Literal["objective", "sirl"]
_PROCESS = Path(__file__).with_name("solver_process.py")
_SATISFIABLE = ("sat", "unsat")
_STATES = ("infeasible", "unbounded", *_SATISFIABLE)
_CLOSE = 1e-6
_FORMAT, _RAN, _RIGHT = 0.5, 1.0, 1.0
"""Weights of SIRL's first stage."""


def is_same_optimum(value: float, target: float) -> bool:
    """|value - target| <= 1e-6 (|target| + 1).

    >>> is_same_optimum(1e-7, 0), is_same_optimum(0.1, 0)
    (True, False)
    """
    return abs(value - target) <= _CLOSE * (abs(target) + 1)


@dataclass(frozen=True)
class Solver(Measured):
    """1 when the model that the answer writes has the optimum, or the status, that is the row's target.

    The model is the last fenced block, else the whole answer: a linear program as JSON or in the LP format (HiGHS by SciPy), or
    SMT-LIB (Z3). A target is the optimum, or `infeasible`, `unbounded`, `sat` or `unsat`. With `measure=sirl` a model that can be
    read earns 0.2 of it, and one that is solved 0.6. With `model`, the column that holds a linear program, the answer is a JSON
    object of values instead: 1 when they keep all constraints and are as good as the optimum; `measure=sirl` pays 0.6 for keeping
    them. Solved in a confined process, `timeout` seconds and `memory` MiB. Parts: `format`, `ran` (or `feasible`), `right`.
    """

    measure: Measure = "objective"
    model: str = ""
    timeout: float = 10.0
    memory: int = 1024
    name: str = "solver"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    packages = ("scipy", "z3-solver")

    def check(self, example: Example) -> None:
        """Raise UsageError for a row with neither an optimum nor a status, or with a model that cannot be read."""
        if self.model:
            self._model_of(example)
            return
        for target in accepted_answers(example):
            if _read_target(target) is None:
                raise UsageError(
                    f"the target {show_target(target)} of {example.place} is neither a number, the optimum, nor one of "
                    f"{', '.join(_STATES)}. Correct the row."
                )
            if _read_target(target) in _SATISFIABLE and importlib.util.find_spec("z3") is None:
                raise UsageError(
                    f"the target {show_target(target)} of {example.place} needs Z3. Install it with: pip install 'whet[solver]'"
                )

    def _model_of(self, example: Example) -> LinearModel:
        text = example.row.get(self.model)
        try:
            if not isinstance(text, str):
                raise NoModel("it holds no text")
            return read_model(text)
        except NoModel as error:
            raise UsageError(
                f"the column {self.model!r} of {example.place} holds no linear program: {error}. Correct the row."
            ) from None

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        text = completion.text[-LONGEST_ANSWER:]
        row = {self.model: example.row.get(self.model)} if self.model else {}
        values: list[JSON] = [
            text,
            {"id": example.id, "target": example.target, "row": row, "where": example.where},
        ]
        graded = await self.compute(run, "solve", values, example.place, [example.id, completion.text])
        right = graded["right"]
        value = right
        if self.measure == "sirl":
            earned = _FORMAT * graded["format"] + _RAN * graded["ran"] + _RIGHT * right
            value = earned / (_FORMAT + _RAN + _RIGHT)
        ran = "feasible" if self.model else "ran"
        parts = {"format": graded["format"], ran: graded["ran"], "right": right}
        return Reward(value, parts, graded["critique"] or None)

    def solve(self, text: str, described: dict[str, Any]) -> dict[str, Any]:
        """The grade of an answer to a row."""
        example = Example(values={}, **described)
        if self.model:
            return self._measure_assignment(text, example)
        code = code_in(text)
        try:
            solved = self._solve_text(code)
        except NoModel as error:
            return _grade(0, 0, 0, f"The model {quote_target(code)} cannot be read: {cut(str(error))}.")
        if "fault" in solved:
            return _grade(1, 0, 0, f"The model was refused: {cut(solved['fault'])}.")
        wanted = [_read_target(target) for target in accepted_answers(example)]
        if any(_agrees(solved, one) for one in wanted):
            return _grade(1, 1, 1, "")
        return _grade(
            1, 1, 0, f"The model is {_describe(solved)}; it should be {_describe_target(wanted[0])}."
        )

    def _solve_text(self, code: str) -> dict[str, Any]:
        """The solver's result for a model. Raises NoModel."""
        if code.lstrip().startswith(("(", ";")):
            if importlib.util.find_spec("z3") is None:
                return {"fault": "SMT-LIB needs Z3, which is not installed: pip install 'whet[solver]'"}
            return self._run({"smt": code})
        return self._optimise(read_model(code))

    def _optimise(self, model: LinearModel) -> dict[str, Any]:
        solved = self._run({"linear": model.to_json()})
        if solved.get("value") is not None:
            solved["value"] = model.constant + (-solved["value"] if model.maximise else solved["value"])
        return solved

    def _run(self, question: Mapping[str, object]) -> dict[str, Any]:
        limits = Limits(self.timeout + 2, self.memory)
        try:
            solved: dict[str, Any] = run_confined(_PROCESS, {**question, "seconds": self.timeout}, limits)
        except OutOfBounds as error:
            return {"fault": str(error)}
        return (
            {"fault": "the solver did not decide it in time"} if solved.get("status") == "unknown" else solved
        )

    def _measure_assignment(self, text: str, example: Example) -> dict[str, Any]:
        model = self._model_of(example)
        objects = [value for value in json_in(text, holds_object)[:1] if isinstance(value, dict)]
        answer = objects[0] if objects else {}
        missing = [name for name in model.variables if not is_number(answer.get(name))]
        if missing:
            number = quantity(len(missing), "variable")
            return _grade(0, 0, 0, f"The answer gives no number for {number}, such as {cut(missing[0])}.")
        values = {name: float(answer[name]) for name in model.variables}
        broken = model.violations(values)
        if broken:
            return _grade(1, 0, 0, f"The values break {broken} of the constraints and bounds.")
        solved = self._optimise(model)
        if solved.get("status") != "optimal":
            raise UsageError(
                f"the model of {example.place} has no optimum: {solved.get('fault') or solved['status']}. Correct the row."
            )
        value, best = model.value(values), solved["value"]
        if is_same_optimum(value, best):
            return _grade(1, 1, 1, "")
        critique = f"The values keep all constraints and make {value:.9g}; {best:.9g} is possible."
        return _grade(1, 1, 0, critique)


def _grade(read: float, ran: float, right: float, critique: str) -> dict[str, Any]:
    return {"format": float(read), "ran": float(ran), "right": float(right), "critique": critique}


def _read_target(target: object) -> float | str | None:
    """The optimum or the status that a target is."""
    if is_number(target):
        return float(target)  # type: ignore[arg-type]
    if not isinstance(target, str):
        return None
    state = target.strip().lower()
    if state in _STATES:
        return state
    try:
        value = float(state)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _agrees(solved: Mapping[str, Any], wanted: float | str | None) -> bool:
    if isinstance(wanted, float):
        return solved["status"] == "optimal" and is_same_optimum(solved["value"], wanted)
    return bool(solved["status"] == wanted)


def _describe(solved: Mapping[str, Any]) -> str:
    return (
        f"solved, with the optimum {solved['value']:.9g}"
        if solved["status"] == "optimal"
        else str(solved["status"])
    )


def _describe_target(wanted: float | str | None) -> str:
    return f"{wanted:.9g}" if isinstance(wanted, float) else str(wanted)


def build_solver(options: RewardOptions) -> Solver:
    """`reward: {solver: {measure: objective, model: COLUMN, timeout: 10, memory: 1024}}`.

    Raises UsageError with the place, and where SciPy is not installed.
    """
    options.only("measure", "model", "timeout", "memory")
    if importlib.util.find_spec("scipy") is None:
        options.refuse("it needs SciPy. Install it with: pip install 'whet[solver]'")
    measure = options.text("measure", "objective")
    if measure not in ("objective", "sirl"):
        options.refuse(f"the option measure is objective or sirl; this is {measure!r}.")
    return Solver(
        "sirl" if measure == "sirl" else "objective",
        options.text("model") if "model" in options.values else "",
        number_option(options, "timeout", 10.0, 600),
        int(number_option(options, "memory", 1024, 1 << 20)),
    )
