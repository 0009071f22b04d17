"""What tells two runs apart, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.run_folder import PARTS, RunPlan, differing_entries
from whet.methods import get_method
from whet.run import Budget

ROWS = [{"input": f"row {i}", "target": str(i)} for i in range(10)]


def header(
    prompt: str = "Answer.", rows: Any = ROWS, reward: Any = "exact_match", seed: int = 0
) -> dict[str, Any]:
    task = whet.Task.of(prompt, data=rows, reward=reward, name="t")
    method = get_method("random_search")
    return RunPlan(task, method, method.config(), Budget(), seed, {"task": "a/b"}).header()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": "Answer well."}, "prompt"),
        ({"rows": ROWS[1:]}, "rows"),
        ({"reward": "f1"}, "reward, labels or program"),
        ({"prompt": "So.", "reward": "f1"}, "prompt, reward, labels or program"),
    ],
)
def test_what_was_edited_in_a_task_is_named(changed: dict[str, Any], said: str) -> None:
    assert differing_entries(header(), header(**changed)) == [f"the task, which was edited: {said}"]


def test_other_entries_are_shown_with_both_values_and_an_older_run_has_no_parts() -> None:
    assert differing_entries(header(), header(seed=1)) == ["seed: 0 -> 1"]
    old = {key: value for key, value in header().items() if key != PARTS}
    assert differing_entries(old, header()) == []
    (said,) = differing_entries(old, header("Other."))
    assert said == "the task, which was edited: its prompt, its rows or its reward"


def test_a_run_of_an_edited_task_says_what_was_edited(tmp_path: Path) -> None:
    task = whet.Task.of("Answer.", data=ROWS, reward="exact_match")
    words: dict[str, Any] = {"lm": lambda messages: "1", "method": "random_search", "run": tmp_path / "run"}
    words |= {"optimizer_lm": "none", "settings": {"n": 1}}
    whet.optimize(task, **words)
    other = whet.Task.of("Answer now.", data=ROWS, reward="exact_match", name=task.name)
    with pytest.raises(whet.UsageError, match="differs in the task, which was edited: prompt"):
        whet.optimize(replace(other), **words)
