"""`whet advise` and dry runs: what the training of a policy takes, before a step of it and by an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import whet
from whet.engine.durable import TRAINED_SECONDS
from whet.engine.journal import read_meta
from whet.rl.policy_model import LoraSettings
from whet.rl.policy_model.backbone import foresee_memory

SETTINGS = {"steps": 2, "group": 2, "max_tokens": 4, "examples": 2}


def task_of() -> whet.Task:
    data = [{"input": f"row {i}", "target": f"answer number {i}"} for i in range(12)]
    return whet.Task.of("Answer.", data=data, reward="exact_match")


def silent(messages: Any) -> str:
    return "?"


def plan_of(task: whet.Task, **changes: Any) -> dict[str, Any]:
    settings = {**SETTINGS, **changes}
    result = whet.optimize(
        task,
        lm=silent,
        method="prewrite",
        policy="embedded/tiny",
        settings=settings,
        dry_run=True,
        progress=False,
    )
    return dict(result["plan"]["training"])


def test_hours_are_those_of_an_earlier_run_with_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = task_of()
    before = plan_of(task)
    memory = foresee_memory("embedded/tiny", LoraSettings(rank=8))
    assert before["memory"]["total"] == memory.total and before["steps"] == 2
    assert before["gpu_hours"] is None and "no run of this task" in before["unknown"]["gpu_hours"]
    done = whet.optimize(
        task,
        lm=silent,
        method="prewrite",
        policy="embedded/tiny",
        settings=SETTINGS,
        run="runs/one",
        progress=False,
    )
    assert "training" not in done["plan"], "a run measures what it takes"
    seconds = float(read_meta(Path("runs/one/journal.sqlite"), TRAINED_SECONDS) or 0)
    longer = plan_of(task, steps=100)
    assert longer["measured_in"] == "runs/one" and longer["step_seconds"] == pytest.approx(seconds / 2)
    assert longer["gpu_hours"] == pytest.approx(seconds / 2 * 100 / 3600) and longer["unknown"] == {}
    assert plan_of(task, group=3)["gpu_hours"] is None, "other settings take other steps"


def test_a_model_that_is_not_on_this_machine_has_no_forecast_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    result = whet.optimize(
        task_of(), lm=silent, method="prewrite", policy="hf/empty", dry_run=True, progress=False
    )
    training = result["plan"]["training"]
    assert training["memory"] is None and "cannot be read on this machine" in training["unknown"]["memory"]
