"""Demonstrations in a program: each prompt gets what went into it and came back in rollouts at the full reward."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.programs.world import PROMPTS, ROWS, program
from whet.engine.journal import read_events
from whet.types import Message

START = {
    **PROMPTS,
    "answer": "Answer the question.\n<!-- whet:begin demonstrations -->\n<!-- whet:end -->\n{{plan}}",
}


def model(messages: tuple[Message, ...]) -> str:
    """Does both steps rightly for every third number, and for all with examples of that step."""
    *_, number = re.findall(r"(?:number|digits) (\d+)", messages[0].content)
    known = int(number) % 3 == 0 or "Answer: " in messages[0].content
    if messages[0].content.startswith("Say what"):
        return f"the digits {number}" if known else f"the number {number}"
    return number if known else f"It is {number}."


def writer(messages: tuple[Message, ...]) -> str:
    return (
        "<INSTRUCTION>Look for it, and say it.</INSTRUCTION><RULE>Say it.</RULE><SUMMARY>Numbers.</SUMMARY>"
    )


def exact(example: dict[str, Any], output: str) -> float:
    return float(output == example["target"])


@pytest.mark.parametrize(
    "method", ["bootstrap", *(pytest.param(one, marks=pytest.mark.long) for one in ("mipro", "simba"))]
)
def test_each_prompt_shows_its_own_step_of_good_rollouts(tmp_path: Path, method: str) -> None:
    if method == "mipro":
        pytest.importorskip("optuna")
    result = whet.optimize(
        START,
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=exact,
        lm=model,
        optimizer_lm=writer,
        method=method,
        budget=whet.Budget(calls=2000),
        run=tmp_path / "run",
    )
    assert result.promoted and result.best.test.mean == 1.0
    parts = result.best.prompt.parts
    planned = re.findall(r"Input: (.*)\nAnswer: (.*)", parts["plan"].text)
    answered = re.findall(r"Input: (.*)\nAnswer: (.*)", parts["answer"].region_text("demonstrations"))
    assert planned or answered
    assert all(
        int(q.removeprefix("number ")) % 3 == 0 and a == f"the digits {q.split()[1]}" for q, a in planned
    )
    assert all(q == f"the digits {a}" for q, a in answered)
    assert "Examples:" in parts["plan"].text and "Examples:" not in parts["answer"].text


def test_what_shared_calls_save_pays_for_the_trials_that_a_limit_cut(tmp_path: Path) -> None:
    """A plan counts two calls for each rollout; a combination that leaves the first prompt as it was pays for one."""
    pytest.importorskip("optuna")
    count = itertools.count()

    def various(messages: tuple[Message, ...]) -> str:
        return f"<INSTRUCTION>Look for it, way {next(count)}.</INSTRUCTION><SUMMARY>Numbers.</SUMMARY>"

    result = whet.optimize(
        PROMPTS,
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=exact,
        lm=model,
        optimizer_lm=various,
        method="mipro",
        budget=whet.Budget(task_calls=500, optimizer_calls=40),
        run=tmp_path / "run",
    )
    trials = read_events(tmp_path / "run" / "journal.sqlite", ["candidate"])
    assert len(trials) > 12
    assert result.usage.calls["task"] <= 500
