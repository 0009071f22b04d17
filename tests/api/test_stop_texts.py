"""Stop texts: closing tags among them, functions as models, and options that reach no function."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError
from whet.replies import close_tag
from whet.types import Completion, Request

CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}'


def evaluate(folder: Path, answer: Any, target: Any, reward: Any, **options: Any) -> Any:
    labels = options.pop("labels", None)
    return whet.evaluate(
        "Q {{input}}", data={"test": [{"input": "q", "target": target}]}, reward=reward, labels=labels, split="test",
        lm={"address": answer if callable(answer) else lambda messages: answer, **options}, root=folder, progress=False,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:No training row")
@pytest.mark.parametrize(
    ("reward", "target", "answer", "stop", "labels"),
    [
        ("math_equal", "\\frac{1}{2}", "Half of 1. <answer>\\frac{1}{2}</answer> Done.", "</answer>", None),
        ("list", ["a", "b"], "Not c, d: <answer>a, b</answer>", "</answer>", None),
        ("exact_match", "B", "A is wrong. <answer>B</answer>", "</answer>", ["A", "B"]),
        ("exact_match", "B", "A is wrong. <answer>B\n</answer>", "\n</answer>", ["A", "B"]),
        ("exact_match", "B", "A is wrong. <answer>B</answer>", "</answer", ["A", "B"]),
        (
            {"tool_calls": {"calls": "target"}}, [{"name": "f", "arguments": {"x": 1}}],
            f"{CALL}</tool_call>", "</tool_call>", None,
        ),
        (
            {"tool_calls": {"calls": "target"}}, [{"name": "f", "arguments": {"x": 1}}],
            '<function=f>{"x": 1}</function>', "</function>", None,
        ),
    ],
)  # fmt: skip
def test_a_stop_text_that_is_a_closing_tag_changes_no_reward(
    reward: Any, target: Any, answer: str, stop: str, labels: Any, tmp_path: Path
) -> None:
    result = evaluate(tmp_path, answer, target, reward, stop=[stop], labels=labels)
    assert (result.score.mean, result["failed"]) == (1.0, 0)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (Completion("<a>1</a> and <a>2"), "<a>1</a> and <a>2</a>"),
        (Completion("<a>1</a>"), "<a>1</a>"),
        (Completion("It is 1"), "It is 1"),
        (Completion("<b>1"), "<b>1"),
        (Completion("<a>1", finish="length"), "<a>1"),
    ],
)
def test_only_an_open_tag_of_an_answer_that_came_to_its_end_is_closed(
    completion: Completion, text: str
) -> None:
    assert close_tag(completion, ("x", "</a>")).text == text


@pytest.mark.parametrize(("finish", "mean"), [("stop", 1.0), ("length", 0.0)])
def test_a_last_call_may_stand_open(finish: str, mean: float, tmp_path: Path) -> None:
    answer = {"text": CALL, "stop_reason": finish}
    result = evaluate(
        tmp_path,
        lambda messages: answer,
        [{"name": "f", "arguments": {"x": 1}}],
        {"tool_calls": {"calls": "target"}},
    )
    assert result.score.mean == mean


def test_the_answers_of_a_function_are_cut_behind_their_thoughts(tmp_path: Path) -> None:
    text = "<think>First\n\nthen.</think>yes\n\nmore"
    assert evaluate(tmp_path, text, "yes", "exact_match", stop=["\n\n"]).score.mean == 1.0


def test_an_option_that_cannot_reach_a_function_is_refused(tmp_path: Path) -> None:
    for name, value in {
        "top_p": 0.5,
        "headers": {"X": "1"},
        "base_url": "http://x/v1",
        "stream": True,
    }.items():
        with pytest.raises(UsageError, match=f"the task model is a function, and the option {name} does not"):
            evaluate(tmp_path, "yes", "yes", "exact_match", **{name: value})


def test_a_function_that_does_not_learn_of_a_temperature_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(messages: Any) -> str:
        return "yes"

    def asked(messages: Any, request: Request) -> str:
        return f"{request.temperature:g} {request.seed}"

    with caplog.at_level(logging.WARNING, "whet.models"):
        assert evaluate(tmp_path, asked, "0.5 7", "exact_match", temperature=0.5, seed=7).score.mean == 1.0
        assert not caplog.records
        evaluate(tmp_path, plain, "yes", "exact_match", temperature=0.5)
    assert "does not learn of the option temperature" in caplog.text
