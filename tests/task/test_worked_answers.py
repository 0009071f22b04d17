"""Targets that show how they were reached: which result they mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from whet.cli.main import cli
from whet.task.worked_answers import split_worked_answers

GSM = "He sprints 3*3=<<3*3=9>>9 times\nSo he runs 9*60=540 meters\n#### {}"
BOX = r"We add and get $\frac{{1}}{{2}}$. Thus the answer is $\boxed{{{}}}$."


@pytest.mark.parametrize(
    ("targets", "results"),
    [
        ([GSM.format("540"), GSM.format("1,080")], ["540", "1,080"]),
        ([GSM.format("540") + "\n", GSM.format("-7")], ["540", "-7"]),
        ([BOX.format(r"\frac{3}{4}"), BOX.format("7")], [r"\frac{3}{4}", "7"]),
        (["因此是九\n=> 九", "因此是四\n=> 四"], ["九", "四"]),
        ([GSM.format("540"), "no mark"], None),
        ([GSM.format("540"), "the same\n=> 540"], None),
        (["#### 540", "#### 7"], None),
        (["# A title\n- one\n- two", "# Another\n- three"], None),
        (["text\n#### one two three four five six seven"] * 2, None),
        ([540, 7], None),
        ([], None),
    ],
)
def test_the_result_is_what_all_targets_mark_alike(targets: list[Any], results: list[str] | None) -> None:
    found = split_worked_answers(targets)
    assert (None if found is None else found.results) == results


def start(tmp_path: Path, rows: list[dict[str, Any]], *options: str) -> tuple[Any, dict[str, Any], str]:
    """The reward, the first row and what was said of a new task."""
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    names = [str(tmp_path / "task"), "--from", str(tmp_path / "rows.json")]
    done = CliRunner().invoke(cli, ["init", *names, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    task = yaml.safe_load((tmp_path / "task" / "task.yaml").read_text())
    first = json.loads((tmp_path / "task" / "data.jsonl").read_text().splitlines()[0])
    return task["reward"], first, done.output


DAYS = [{"question": f"How far in {n} days?", "answer": GSM.format(540 * n)} for n in range(1, 13)]


def test_a_new_task_compares_with_the_result_and_keeps_the_whole(tmp_path: Path) -> None:
    reward, first, chosen = start(tmp_path, DAYS)
    assert reward == {"number": {"last": True}} and first["target"] == "540"
    assert first["worked_answer"] == GSM.format(540) and "the result behind #### is the target" in chosen


def test_a_reward_that_is_named_takes_the_targets_as_they_are(tmp_path: Path) -> None:
    reward, first, _ = start(tmp_path, DAYS, "--reward", "f1")
    assert reward == "f1" and first["target"] == GSM.format(540)


@pytest.mark.parametrize("name", ["ground_truth", "reference", "Ground Truth", "ideal", "expected_response"])
def test_an_answer_beside_the_right_one_is_what_a_model_said(tmp_path: Path, name: str) -> None:
    rows = [
        {"question": f"What is {n}?", "answer": f"Model {n}.", "contexts": [f"c{n}"], name: f"Right {n}."}
        for n in range(12)
    ]
    _, first, _ = start(tmp_path, rows)
    assert first["target"] == "Right 0." and first["input"] == {"question": "What is 0?", "contexts": ["c0"]}
