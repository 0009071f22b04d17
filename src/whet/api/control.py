"""The control of a run: what is kept for it, and its method with what it takes over of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.engine.journal import read_events
from whet.engine.options import Options
from whet.engine.result_json import RunJSON, UsageJSON
from whet.engine.run_folder import read_header
from whet.engine.transfer import limits_left
from whet.engine.usage_sums import usage_of_run
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
    """What was kept for a control of the limits, which hold for both runs, or what a run left where that is less. Raises
    UsageError where nothing is left of one."""
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
                f"{parameter('control')} from the beginning."
            )
    return Budget(**kept)


def settings_of_control(task: Task, result: RunJSON, method: str) -> dict[str, object]:
    """Settings that give `method` what a finished run had: the settings both know, its space, and its number of prompts.

    The number is what the run's task calls paid for on training examples, after the baseline, the sealed test and
    every validation are taken off.
    """
    folder = Path(result["run"])
    config: Mapping[str, Any] = (read_header(folder) or {})["config"]
    settings = settings_shared_with(get_method(str(result["method"])), config, get_method(method))
    if "n" in {f.name for f in dataclasses.fields(get_method(method).config)}:
        settings["n"] = _count_scored_prompts(task, result, int(config.get("examples") or len(task.train)))
    return settings


def settings_shared_with(main: Method, config: Mapping[str, object], control: Method) -> dict[str, Any]:
    """What a control takes over of the run's settings before anything is known of the run: those that both methods know, but
    none that is left open, and the space of its prompts."""
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
    """Prompts that a finished run scored on `examples` training examples each; at least 1.

    A rollout of several turns counts as many calls as the sealed test took on average.
    """
    journal = Path(result["run"]) / "journal.sqlite"
    validated = [event.value["n"] for event in read_events(journal, ["validated"])]
    same = result["best"]["id"] == result["baseline"]["id"]
    sides = 1 if same else 2
    start = [result["baseline"]["validation"], result["baseline"]["test"]]
    outside = sides * sum(score["n"] for score in start if score is not None) + sum(validated)
    used = usage_of_run(result["usage"])
    calls = int(used["calls"]["task"]) + int(used["cached"]["task"])
    return max(1, (int(calls / _calls_of_rollout(journal)) - int(outside)) // min(examples, len(task.train)))


def _calls_of_rollout(journal: Path) -> float:
    """Task calls of one rollout, as the sealed test of both sides took them; 1 where there are no turns."""
    rows = [
        row
        for event in read_events(journal, ["final"])
        for side in ("baseline", "best")
        for row in event.value[side]
    ]
    turns = [row["parts"]["turns"] for row in rows if "turns" in row.get("parts", {})]
    return sum(turns) / len(turns) if turns else 1.0
