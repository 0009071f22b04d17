"""An evaluation with a judge measures how far it agrees with the people whose scores stand in the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.rewards.agreement import human_scores

ROWS = [{"input": f"q{n}", "output": f"answer {n}", "quality": n % 5 + 1} for n in range(20)]


def judge(messages: Sequence[Any]) -> str:
    """A judge that scores "answer N" as people did, and every other text with 3."""
    shown = str(messages)
    number = shown.rpartition("answer ")[2].split("\\")[0] if "answer " in shown else ""
    return f'{{"explanation": "so", "score": {int(number) % 5 + 1 if number.isdecimal() else 3}}}'


def evaluate(folder: Path, judge_lm: Any, rows: Sequence[dict[str, Any]] = ROWS, **more: Any) -> Any:
    return whet.evaluate(
        "{{input}}",
        data=rows,
        reward={"judge": {"rubric": "Is it right?", "human": "quality"}},
        lm=lambda messages: "hm",
        judge_lm=judge_lm,
        run=folder / "run",
        progress=False,
        **more,
    )


def test_an_evaluation_says_how_far_its_judge_agrees_with_people(tmp_path: Path) -> None:
    result = evaluate(tmp_path, judge)
    (figures,) = result.agreement
    assert (figures["reward"], figures["kind"]) == ("judge", "spearman")
    assert figures["n"] >= 10 and figures["value"] > 0.99
    assert not any("agrees poorly" in text for text in result.warnings)


def test_an_evaluation_warns_of_a_judge_that_disagrees(tmp_path: Path) -> None:
    result = evaluate(
        tmp_path, lambda messages: f'{{"explanation": "so", "score": {len(str(messages)) % 2 + 3}}}'
    )
    assert any("agrees poorly" in text for text in result.warnings)


def test_the_plan_holds_the_calls_of_the_measurement_and_a_limit_bounds_them(tmp_path: Path) -> None:
    planned = evaluate(tmp_path, judge, dry_run=True)["plan"]["calls"]["judge"]["expected"]
    rows = evaluate(tmp_path, judge)
    scored = rows.agreement[0]["n"]
    assert planned == rows.usage.calls["judge"] == rows.score.n + scored
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "prompt.md").write_text("{{input}}")
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    reward = {"judge": {"rubric": "Is it right?", "human": "quality"}}
    task = {"name": "t", "prompt": "prompt.md", "data": "data.jsonl", "reward": reward}
    (folder / "task.yaml").write_text(json.dumps(task | {"budget": {"max_judge_calls": rows.score.n + 8}}))
    limited = whet.evaluate(
        folder, lm=lambda messages: "hm", judge_lm=judge, run=tmp_path / "other", progress=False
    )
    assert limited.agreement[0]["n"] == 4 and limited.usage.calls["judge"] == rows.score.n + 4


def test_scores_that_cannot_be_read_are_named_with_their_place(tmp_path: Path) -> None:
    rows = [row | {"quality": "so so"} if row["input"] in ("q3", "q4", "q5", "q6") else row for row in ROWS]
    warnings = evaluate(tmp_path, judge, rows).warnings
    assert any("cannot be read, such as 'so so' in" in text or '"so so" in' in text for text in warnings)


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        (["\u2605\u2605\u2605\u2605", "\u2605\u2605\u2605\u2606\u2606", "\u2b50\u2b50"], [4, 3, 2]),
        (["80%", "100 %", "20%"], [4, 5, 1]),
        (["4/5", "3 \u2605", "\u2605\u2605\u00bd"], [4, 3, 2.5]),
        (["80%", "4"], [4, None]),
        (["\u2b50\ufe0f\u2b50\ufe0f", "\u2605\u2606"], [5, 2.5]),
    ],
)
def test_stars_and_percentages_are_scores(values: list[str], scores: list[float]) -> None:
    assert human_scores(values, 1, 5) == scores
