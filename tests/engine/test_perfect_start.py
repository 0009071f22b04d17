"""A start prompt that leaves nothing to learn: it ends a run at once, with a sentence; one that is only lucky does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.types import Message

METHODS = ["gepa", "opro", "protegi", "prompt_learning", "random_search", "meta_prompt", "simba", "grips"]
WRITTEN = "<INSTRUCTION>Read the number carefully and say whether it is even.</INSTRUCTION>"


def run(
    folder: Path, wrong: set[int], method: str, rows: int = 60, **budget: Any
) -> tuple[dict[str, Any], list[str]]:
    """A run on a model that is right without being told except on the `wrong` numbers; what the optimizer was asked."""
    questions: list[str] = []

    def answer(messages: list[Message]) -> str:
        text = messages[-1].content
        number = int(text.rsplit(" ", 1)[-1])
        right = "carefully" in text or number not in wrong
        return ("even" if number % 2 == 0 else "odd") if right else "who knows"

    def write(messages: list[Message]) -> str:
        questions.append(messages[-1].content)
        return WRITTEN

    def part(first: int, count: int) -> list[dict[str, Any]]:
        numbers = range(first, first + count)
        return [{"input": f"Number {n}", "target": "even" if n % 2 == 0 else "odd"} for n in numbers]

    result = whet.optimize(
        "<!-- whet:begin -->\nEven or odd?\n<!-- whet:end -->\n{{input}}",
        data={"train": part(0, 60), "validation": part(100, rows), "test": part(200, 30)},
        reward="exact_match",
        lm=answer,
        optimizer_lm=write,
        method=method,
        budget=whet.Budget(**(budget or {"calls": 400})),
        run=folder / "run",
    )
    return result.to_dict(), questions


@pytest.mark.parametrize("method", METHODS)
def test_a_perfect_start_ends_every_search_at_once_and_says_so(method: str, tmp_path: Path) -> None:
    result, questions = run(tmp_path, set(), method)
    assert not questions
    assert result["usage"]["calls"]["task"] <= 60 + 60, "the validation split, and the sealed test"
    assert any("full reward on all 60 validation rows" in warning for warning in result["warnings"])
    assert result["best"]["prompt"] == result["baseline"]["prompt"] and result["status"] == "completed"


def test_a_small_validation_split_is_not_enough_to_call_a_start_perfect(tmp_path: Path) -> None:
    result, questions = run(tmp_path / "right", set(), "opro", rows=6)
    assert not questions
    said = "full reward on all 6 validation rows and on 14 training rows"
    assert any(said in warning for warning in result["warnings"])
    result, questions = run(tmp_path / "wrong", set(range(60)), "opro", rows=6)
    assert questions, "some training rows are wrong"


@pytest.mark.parametrize("method", ["gepa", "opro", "protegi", "prompt_learning", "meta_prompt"])
@pytest.mark.parametrize("calls", [200, pytest.param(400, marks=pytest.mark.long)])
def test_a_start_that_is_right_on_the_rows_of_a_cut_validation_is_still_improved(
    method: str, calls: int, tmp_path: Path
) -> None:
    """15% of all rows are wrong, none of the first ones of the validation split, which are all that the limit pays for."""
    wrong = {*range(3, 60, 7), *range(140, 160, 2), *range(200, 230, 7)}
    result, questions = run(tmp_path, wrong, method, calls=calls)
    assert questions and not any("full reward on all" in warning for warning in result["warnings"])
    if method == "gepa":
        assert "carefully" in result["best"]["prompt"]
