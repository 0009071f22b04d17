"""The control of a run: what is kept for it, and its method with what it takes over of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.engine.journal import read_events
from whet.engine.options import Options
from whet.engine.paid_calls import count_search_calls
from whet.engine.result_json import RunJSON, UsageJSON
from whet.engine.run_folder import read_header
from whet.engine.transfer import limits_left
from whet.errors import UsageError, parameter
from whet.methods import OPTIMIZER, OPTIMIZER_OPTIONAL, Method, get_method
from whet.run import Budget
from whet.task import Task

_SHARED = ("length", "vocabulary", "examples", "finalists")
"""Settings that a control run takes over."""


def asks_optimizer(method: str) -> bool:
    """Whether a method asks the optimizer model."""
    return bool({OPTIMIZER, OPTIMIZER_OPTIONAL} & set(get_method(method).entry.needs))


def share_left_for_control(limits: Budget, share: Budget, spent: UsageJSON, folder: Path) -> Budget:
    """The part of the limits that was kept for a control, or what the run left where that is less. The limits hold for both
    runs. Raises UsageError where nothing is left of one."""
    rest = limits_left(limits, spent)
    if limits.seconds is not None:
        rest = dataclasses.replace(rest, seconds=max(0.0, limits.seconds - spent["seconds"]))
    kept = {
        name: None if amount is None else min(amount, getattr(rest, name))
        for name, amount in dataclasses.asdict(share).items()
    }
    for name, amount in kept.items():
        if amount is not None and amount <= 0:
            limit = parameter(f"budget.{name}", getattr(limits, name))
            raise UsageError(
                f"{folder} used all of {limit}, a limit that includes its control. The result is "
                f"kept. To run the control, give a larger limit and another {parameter('run')}, with "
                f"{parameter('control')} from the beginning and {parameter('fork', str(folder))}, which pays for no answer "
                "of this run again."
            )
    return Budget(**kept)


def settings_of_control(task: Task, result: RunJSON, method: str) -> dict[str, object]:
    """Settings that give `method` what a finished run had: the settings both know, its space, and its number of prompts.

    The number is what the task calls of the run's search could pay on training examples, after its validations are taken off.
    """
    folder = Path(result["run"])
    config: Mapping[str, Any] = (read_header(folder) or {})["config"]
    settings = settings_shared_with(get_method(str(result["method"])), config, get_method(method))
    if "n" in {f.name for f in dataclasses.fields(get_method(method).config)}:
        settings["n"] = _count_scored_prompts(task, result, int(config.get("examples") or len(task.train)))
    return settings


def settings_shared_with(main: Method, config: Mapping[str, object], control: Method) -> dict[str, Any]:
    """The settings of the run that a control takes over before the run begins: those that both methods have and that are not
    left open, and the space of its prompts."""
    known = {f.name for f in dataclasses.fields(control.config)}
    settings = {name: config[name] for name in _SHARED if name in known and config.get(name) is not None}
    if main.entry.space and "space" in known:
        settings["space"] = main.entry.space
    return settings


def options_of_control(opts: Options, method: str, settings: Mapping[str, object]) -> Options:
    """The options of a run as its control has them."""
    return dataclasses.replace(
        opts,
        method=method,
        settings=settings,
        processes=1,
        config=None,
        fork=None,
        control=None,
        more=None,
        policy=None,
    )


def _count_scored_prompts(task: Task, result: RunJSON, examples: int) -> int:
    """Prompts whose rollouts on `examples` training examples each a finished run's search could pay; at least 1.

    The calls that the search spent on validation are subtracted. The start prompt adds none where its answers were recorded. A
    rollout takes as many calls as one of the baseline took.
    """
    journal, start = Path(result["run"]) / "journal.sqlite", result["baseline"]
    calls, validation = count_search_calls(journal), start["validation"]
    spent, rows = float(calls.searched), validation["of"] if validation else 1
    for event in read_events(journal, ["validated"]):
        free = event.value["id"] == start["id"]
        spent -= event.value["n"] * (calls.charged + (0 if free else calls.distinct)) / rows
    rollout = (calls.requests + calls.charged) / rows or 1.0
    return max(1, int(spent / rollout) // min(examples, len(task.train)))
