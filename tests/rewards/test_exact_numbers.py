"""Numbers that a double cannot hold, and tolerances written in decimals, are compared as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet

BIG = 9007199254740993  # 2**53 + 1: no double is it


def mean(target: str, answer: str, reward: Any, folder: Path) -> float:
    """The mean of rows in a file; `target` is JSON as it stands there."""
    (folder / "prompt.md").write_text("Question {{input}}\n")
    rows = [f'{{"input": "q{i}", "target": {target}, "calls": {target}}}' for i in range(9)]
    (folder / "data.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "task.yaml").write_text(
        f"name: t\ndata: data.jsonl\nprompt: prompt.md\nreward: {json.dumps(reward)}\n"
    )
    found = whet.evaluate(folder, lm=lambda messages: answer, run=folder / "run", progress=False)
    assert found["failed"] == 0
    return float(found["score"]["mean"])


def call(number: str) -> str:
    return f'[{{"name": "f", "arguments": {{"x": {number}}}}}]'


@pytest.mark.parametrize(
    ("target", "answer", "reward", "right"),
    [
        ('"{\\"a\\": 1e400}"', '{"a": 1e400}', "json", True),
        ('"{\\"a\\": 1e400}"', '{"a": 1e401}', "json", False),
        ('{"a": 5}', '{"a": 1e400}', "json", False),
        (f'{{"a": {BIG}}}', f'{{"a": {BIG}.0}}', "json", True),
        (f'{{"a": {BIG}}}', f'{{"a": {BIG - 1}.0}}', "json", False),
        (f'{{"a": {BIG}.0}}', f'{{"a": {BIG}}}', "json", True),
        ('{"a": 0.1}', '{"a": 0.10000000000000001}', "json", True),
        ('"[5, 1e400]"', "[5, 1e401]", {"list": {"exact": True}}, False),
        (f"[5, {BIG}]", f"[5, {BIG}.0]", {"list": {"exact": True}}, True),
        (f"[5, {BIG}]", f"[5, {BIG - 1}.0]", {"list": {"exact": True}}, False),
        (call(str(BIG)), call(f"{BIG}.0"), {"tool_calls": {"measure": "all"}}, True),
        (call(str(BIG)), call(f"{BIG - 1}.0"), {"tool_calls": {"measure": "all"}}, False),
        (json.dumps(call("1e400")), call("1e400"), {"tool_calls": {"measure": "all"}}, True),
        (json.dumps(call("1e400")), call("1e401"), {"tool_calls": {"measure": "all"}}, False),
        (f"{BIG}", f"{BIG}", "number", True),
        (f"{BIG}", f"{BIG - 1}", "number", False),
        (f"{BIG}.0", f"{BIG:,}", "number", True),
        (f'"{BIG}"', f"{BIG - 1}.0", "number", False),
        ('"1e400"', "1e401", "number", False),
    ],
)
def test_a_number_beyond_a_double_is_compared_as_it_is_written(
    target: str, answer: str, reward: Any, right: bool, tmp_path: Path
) -> None:
    assert mean(target, answer, reward, tmp_path) == float(right)


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ('"1e400"', "5", False),
        ('"2^{2000}"', "3", False),
        ('"10^{400}"', "10^{400}", True),
        ('"[0, 1e400]"', "[0, 3]", False),
    ],
)
def test_mathematics_knows_numbers_beyond_a_double(
    target: str, answer: str, right: bool, tmp_path: Path
) -> None:
    assert mean(target, answer, "math_equal", tmp_path) == float(right)


@pytest.mark.parametrize(
    ("target", "answer", "reward", "right"),
    [
        ("1", "1.3", {"number": {"absolute": 0.3}}, True),
        ("1", "1.31", {"number": {"absolute": 0.3}}, False),
        ("10", "13", {"number": {"relative": 0.3}}, True),
        ("10", "13.1", {"number": {"relative": 0.3}}, False),
        ("1", "1.3", {"math_equal": {"relative": 0.3}}, True),
        ("1", "1.31", {"math_equal": {"relative": 0.3}}, False),
        ('"\\\\sqrt{100}"', "13", {"math_equal": {"relative": 0.3}}, True),
    ],
)
def test_a_tolerance_holds_at_its_very_end(
    target: str, answer: str, reward: Any, right: bool, tmp_path: Path
) -> None:
    assert mean(target, answer, reward, tmp_path) == float(right)
