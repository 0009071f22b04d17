"""Answers that end at the token limit, and answers without a text: graded, counted, and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import ProviderError
from whet.models.callable import as_model
from whet.testing.server import serving

ROWS = [{"id": str(i), "input": f"q{i}", "target": "yes"} for i in range(12)]
DATA = {"train": ROWS[:4], "validation": ROWS[4:8], "test": ROWS[8:]}


def response(text: str, finish: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "finish_reason": finish}]}


def cut(form: str) -> Any:
    made = {
        "choices": response("It is said that ye", "length"),
        "gemini": response("It is said that ye", "MAX_TOKENS"),
        "plain": {"text": "It is said that ye", "stop_reason": "max_tokens"},
    }[form]
    return lambda messages: made if messages[-1].content.endswith(("q4", "q9")) else "yes"


def cut_warnings(result: Any) -> list[str]:
    return [warning for warning in result.warnings if "cut at the token limit" in warning]


@pytest.mark.parametrize("form", ["choices", "gemini", "plain"])
def test_answers_of_a_function_that_were_cut_are_counted(form: str, tmp_path: Path) -> None:
    for _ in range(2):  # the second time from what is recorded
        result = whet.evaluate("Say.", data=DATA, reward="exact_match", lm=cut(form), run=tmp_path / "run")
        assert result.score.mean == 0.75 and result["failed"] == 0
        (warning,) = cut_warnings(result)
        assert warning.startswith("1 of 4 answers were cut at the token limit that the model or its server")
        assert "max_tokens" in warning


def test_an_optimisation_counts_cut_answers_of_the_sealed_test(tmp_path: Path) -> None:
    optimizer = "<prompt>Say yes, {{input}}</prompt>"
    result = whet.optimize(
        "Say.", data=DATA, reward="exact_match", lm=cut("choices"), optimizer_lm=lambda messages: optimizer,
        budget=whet.Budget(calls=60), run=tmp_path / "run",
    )  # fmt: skip
    (warning,) = cut_warnings(result)
    assert " of 4 answers were cut" in warning or " of 8 answers were cut" in warning
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["warnings"]
    assert warning in kept
    assert "cut at the token limit" in Path(whet.report(tmp_path / "run")).read_text()


async def test_the_limit_that_was_set_is_named(tmp_path: Path) -> None:
    model = as_model(lambda messages: response("yes and so on", "length"))
    async with serving(model) as server:
        result = await whet.aevaluate(
            "Say.", data=DATA, reward="contains", lm={"address": "openai/m", "max_tokens": 16},
            base_url=server.base_url, run=tmp_path / "run",
        )  # fmt: skip
    (warning,) = cut_warnings(result)
    assert warning.startswith("4 of 4 answers were cut at the token limit of max_tokens: 16.")
    assert "max_tokens=64" in warning


@pytest.mark.parametrize("empty", ["", "  \n", {"text": ""}, response("", "stop")])
def test_an_empty_answer_is_the_same_in_every_form(empty: Any, tmp_path: Path) -> None:
    def some(messages: list[Any]) -> Any:
        return empty if messages[-1].content.endswith("q4") else "yes"

    result = whet.evaluate("Say.", data=DATA, reward="exact_match", lm=some, run=tmp_path / "some")
    assert result.score.mean == 0.75 and result["failed"] == 1
    assert any("1 of 4 rollouts" in w and "empty answer" in w for w in result.warnings)
    with pytest.raises(ProviderError, match="no answer contains text") as caught:
        whet.evaluate("Say.", data=DATA, reward="exact_match", lm=lambda m: empty, run=tmp_path / "none")
    assert "endpoint" not in str(caught.value), "a function has none"


TOOLS = """
def look(place: str) -> str:
    \"\"\"What is there.\"\"\"
    return "a box"
"""
PROGRAM = """
async def program(lm, prompts, example):
    await lm("first")
    return await lm("second")
"""


def folder_of_a_task(folder: Path, **keys: Any) -> Path:
    folder.mkdir()
    (folder / "tools.py").write_text(TOOLS)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "prompt.md").write_text("Say {{input}}")
    for name in DATA:
        (folder / f"{name}.json").write_text(json.dumps(DATA[name]))
    data = {name: f"{name}.json" for name in DATA}
    (folder / "task.yaml").write_text(json.dumps({"name": "t", "data": data, "reward": "contains", **keys}))
    return folder


LONGER: dict[str, dict[str, Any]] = {
    "turns of an episode": {"prompt": "prompt.md", "environment": {"tools": "tools.py", "turns": 3}},
    "calls of a program": {
        "prompts": {"first": "prompt.md", "second": "prompt.md"}, "program": "program.py",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", LONGER)
def test_a_cut_on_the_way_to_an_answer_is_counted_once_a_row(kind: str, tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    def model(messages: list[whet.Message]) -> Any:
        row = next(
            word for m in messages for word in m.content.split() if word[:1] == "q" and word[1:].isdigit()
        )
        asked[row] = asked.get(row, 0) + 1
        if asked[row] > 1 or (row != "q4" and "program" not in kind):
            return "yes"
        call = '<tool>{"name": "look", "arguments": {"place": "x"}}</tool>'
        return response(f"I look. {call}", "length" if row == "q4" else "stop")

    task = folder_of_a_task(tmp_path / "t", **LONGER[kind])
    result = whet.evaluate(task, lm=model, run=tmp_path / "run")
    assert result.score.mean == 1.0 and asked["q4"] == 2
    (warning,) = cut_warnings(result)
    assert warning.startswith("1 of 4 answers were cut at the token limit")
