"""The limits of a task's budget hold for `evaluate` and `check`, and the plan has what a judge may be asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.command_line import whet_here
from whet.errors import BudgetExceeded, UsageError

ROWS = [{"input": f"row {n}", "target": "x"} for n in range(40)]


def answers(messages: Any) -> str:
    return "an answer to " + str(messages[-1]["content"])


def judges(messages: Any, request: Any) -> str:
    """A judge (simulated) whose first reply to each question is unreadable."""
    return "Hm." if request.temperature == 0.0 else json.dumps({"explanation": "short", "score": 3})


def write_task(folder: Path, **budget: int) -> Path:
    files = {"train": ROWS[:10], "validation": ROWS[10:22], "test": ROWS[22:]}
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "prompt.md").write_text("Answer {{input}}.")
    reward = {"judge": {"rubric": "Good is short.", "reference": "ignore"}}
    values = {"name": "t", "prompt": "prompt.md", "data": {n: f"{n}.jsonl" for n in files}, "reward": reward}
    (folder / "task.yaml").write_text(json.dumps({**values, **({"budget": budget} if budget else {})}))
    return folder


def evaluate(folder: Path, **budget: int) -> whet.Evaluation:
    task = write_task(folder, **budget)
    return whet.evaluate(task, lm=answers, judge_lm=judges, run=folder / "run", progress=False)


@pytest.mark.parametrize("budget", [{"max_calls": 30}, {"max_judge_calls": 13}, {"max_tokens": 2_500}])
def test_a_limit_ends_an_evaluation_which_goes_on_with_a_larger_one(
    budget: dict[str, int], tmp_path: Path
) -> None:
    with pytest.raises(BudgetExceeded, match="The answers so far are recorded") as ended:
        evaluate(tmp_path, **budget)
    assert ("bounds each answer" in str(ended.value)) == ("max_tokens" in budget)
    whole = evaluate(tmp_path, **dict.fromkeys(budget, 100_000))
    assert whole.score.n == 12 and set(whole.json["usage"]["cached"].values()) == {0}
    assert whole.json["usage"]["calls"] == {"task": 12, "optimizer": 0, "judge": 24}


def test_an_evaluation_that_begins_again_without_its_limit_on_tokens_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BudgetExceeded, match="bounds each answer at 1,024 tokens"):
        evaluate(tmp_path, max_tokens=2_500)
    task = write_task(tmp_path)
    whet.evaluate(task, lm=answers, judge_lm=judges, run=tmp_path / "run")
    said = capsys.readouterr().err
    assert "begins again, because it differs from the one there (generation.max_tokens: 1024 -> none)" in said


def test_an_evaluation_in_the_place_of_a_finished_one_says_in_what_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(tmp_path)
    task = write_task(tmp_path)
    (task / "prompt.md").write_text("Answer {{input}} kindly.")
    whet.evaluate(task, lm=answers, judge_lm=judges, run=tmp_path / "run")
    assert "the evaluation begins again, because it differs from the one there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"max_calls": 23}, "allows 23 calls, and an evaluation of 12 rows takes 24"),
        ({"max_task_calls": 11}, "allows 11 task calls, and an evaluation of 12 rows takes 12"),
    ],
)
def test_a_limit_that_cannot_hold_is_refused_before_a_call(
    budget: dict[str, int], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=expected):
        evaluate(tmp_path, **budget)


def test_the_plan_says_that_a_judge_may_be_asked_twice(tmp_path: Path) -> None:
    assert evaluate(tmp_path).json["plan"]["calls"]["judge"] == {"expected": 12, "most": 24}


def test_a_check_beyond_the_budget_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, max_task_calls=3)
    done = whet_here(tmp_path, "check", ".", "--threshold", "0.5", "--lm", "scripted/echo")
    assert done.returncode == 2 and "allows 3 task calls" in done.stderr
