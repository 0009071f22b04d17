"""A control run: another method on the same task, in the same space, with as many scored prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.engine.journal import read_events
from whet.engine.run_folder import read_header
from whet.methods import get_method
from whet.task import Task

SHARED = ("length", "vocabulary", "examples", "finalists")


def control_settings(task: Task, result: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Settings that give `method` what a finished run had: the settings both know, and its number of prompts.

    The number is what the run's task calls paid for on training examples, after the baseline, the sealed test and
    every validation are taken off.
    """
    folder = Path(result["run"])
    config: Mapping[str, Any] = (read_header(folder) or {})["config"]
    known = {f.name for f in dataclasses.fields(get_method(method).config)}
    settings = {name: config[name] for name in SHARED if name in known and name in config}
    if "n" in known:
        settings["n"] = scored_prompts(task, result, int(config.get("examples") or len(task.train)))
    return settings


def scored_prompts(task: Task, result: Mapping[str, Any], examples: int) -> int:
    """Prompts that a finished run scored on `examples` training examples each; at least 1.

    A rollout of several turns counts as many calls as the sealed test took on average.
    """
    journal = Path(result["run"]) / "journal.sqlite"
    validated = [event.value["n"] for event in read_events(journal, ["validated"])]
    same = result["best"]["id"] == result["baseline"]["id"]
    sides = 1 if same else 2
    outside = sides * (result["baseline"]["validation"]["n"] + result["baseline"]["test"]["n"]) + sum(
        validated
    )
    calls = int(result["usage"]["calls"]["task"]) + int(result["usage"]["cached"]["task"])
    return max(1, (int(calls / _calls_each(journal)) - int(outside)) // min(examples, len(task.train)))


def _calls_each(journal: Path) -> float:
    """Task calls of one rollout, as the sealed test of both sides took them; 1 where there are no turns."""
    rows = [
        row
        for event in read_events(journal, ["final"])
        for side in ("baseline", "best")
        for row in event.value[side]
    ]
    turns = [row["parts"]["turns"] for row in rows if "turns" in row.get("parts", {})]
    return sum(turns) / len(turns) if turns else 1.0
