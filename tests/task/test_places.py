"""Messages about a row name the file and the line on which it stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.near_duplicates import writing_warnings

RAISES = "def reward(example, output):\n    return 1 / (len(output) - len(output))\n"
RETURNS = "def reward(example, output):\n    return 'much'\n"


def folder(path: Path, rows: Sequence[Any], reward: str, program: str = "") -> Path:
    path.mkdir()
    (path / "prompt.md").write_text("Say it.\n\n{{input}}\n")
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "reward.py").write_text(program)
    (path / "task.yaml").write_text(f"name: t\nprompt: prompt.md\ndata: rows.jsonl\nreward: {reward}\n")
    return path


def rows(**changes: Any) -> list[dict[str, Any]]:
    made = [{"id": f"r{n}", "input": f"Say the number {n}.", "target": str(n)} for n in range(12)]
    return [row | changes if row["id"] == "r1" else row for row in made]


REFUSED = {
    "a reward that raises": ("reward.py", RAISES, {}, "rows.jsonl:"),
    "a reward without a number": ("reward.py", RETURNS, {}, " at task/rows.jsonl:"),
    "a target that is no number": (
        "number",
        "",
        {"target": "x"},
        "of row r1 at task/rows.jsonl:2 is no number",
    ),
    "a target that is no date": ("date", "", {"target": "x"}, "of row r5 at task/rows.jsonl:6 is no date"),
    "a target that is no list": ("list", "", {"target": 5}, "of row r1 at task/rows.jsonl:2 is no list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_line_of_the_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward, program, changes, says = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "task", rows(**changes), reward, program)
    with pytest.raises(whet.UsageError) as caught:
        whet.evaluate(Path("task"), lm="scripted/echo", split="train")
    assert says in str(caught.value), caught.value


def test_copied_rows_are_named_by_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = rows()
    copies = [{**row, "id": f"c{row['id']}", "input": row["input"].upper()} for row in made]
    task = whet.Task.load(folder(Path("task"), [*made, *copies], "exact_match"))
    warnings = "\n".join(writing_warnings(task))
    line = {row["input"]: n for n, row in enumerate([*made, *copies], 1)}
    named = [f'"{text}" at task/rows.jsonl:{number}' for text, number in line.items()]
    assert sum(name in warnings for name in named) >= 2, warnings
