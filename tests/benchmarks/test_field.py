"""The whole field: worlds of lessons that can be learned, one row a run, taken up again, a table with what did not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.field import __main__ as field
from benchmarks.field.table import field_table
from benchmarks.simulated import load
from benchmarks.simulated.lessons import lines, stated_lessons, world_of

from whet.types import Message, Request

ARMS = "random_search,meta_prompt,gepa,bdpl"


def rows_of(results: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in results.glob("*.json")}


def field_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    results = tmp_path / "results"
    field.main(["--tasks", "formats", "--methods", ARMS, "--results", str(results), *options])
    return results


def test_shards_leave_the_rows_of_the_whole_field_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for shard in ("0/2", "1/2"):
        results = field_of(tmp_path, monkeypatch, "--seeds", "2", "--shard", shard)
    rows = rows_of(results)
    assert set(rows) == {f"formats-{seed}-{method}" for seed in (0, 1) for method in ARMS.split(",")}
    written = {file: file.stat().st_mtime_ns for file in results.glob("*.json")}
    capsys.readouterr()
    field_of(tmp_path, monkeypatch, "--seeds", "2")
    assert {file: file.stat().st_mtime_ns for file in results.glob("*.json")} == written
    made = [row for row in rows.values() if "rewards" in row]
    assert all(row["result"]["usage"]["calls"]["optimizer"] <= 20 for row in made)
    assert all(row["result"]["usage"]["calls"]["task"] <= 300 + 120 for row in made)
    assert {row["method"] for row in rows.values() if "reason" in row} == {"bdpl"}
    shown = capsys.readouterr().out
    assert "- `bdpl` on all tasks: it needs `labels:` in the task" in shown
    assert (results / "compare" / "formats" / "comparison.html").is_file()


@pytest.mark.long
def test_a_method_that_reads_the_wanted_forms_is_ahead_of_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(field_of(tmp_path, monkeypatch, "--seeds", "3"))

    def mean(method: str, seed: int) -> float:
        rewards = rows[f"formats-{seed}-{method}"]["rewards"]
        return float(sum(rewards.values()) / len(rewards))

    assert all(mean("meta_prompt", seed) > mean("random_search", seed) + 0.2 for seed in range(3))


def test_the_differences_are_paired_by_task_and_seed() -> None:
    def row(method: str, seed: int, value: float) -> dict[str, Any]:
        usage = {"calls": {"task": 1, "optimizer": 0}, "input_tokens": 1, "output_tokens": 1}
        result = {"usage": usage, "warnings": []}
        return {
            "task": "t", "kind": "simulated", "what": "w", "seed": seed, "method": method, "low": -1.0, "high": 1.0, "start": 0.0,
            "rewards": {"a": value, "b": value}, "seconds": 1.0, "prompt": "p", "result": result,
        }  # fmt: skip

    rows = [row("random_search", s, -0.2 * s) for s in range(5)] + [
        row("opro", s, -0.2 * s + 0.4) for s in range(5)
    ]
    shown = field_table(rows)
    assert "| opro | 1 | 0.00 " in shown and "| +0.200 [" in shown
    assert "| the start prompt | 0.500 |" in shown


@pytest.mark.parametrize("name", ["types", "formats"])
def test_a_prompt_with_all_lessons_is_right_where_the_start_is_not(name: str) -> None:
    world, model = world_of(name, 4), load("lesson-task", {"world": name, "seed": "4"})
    lessons = {
        key: value
        for row in world.rows(0, 200)
        for key, value in world.read(f"Input: {row['input']}\nWanted: {row['target']}").items()
    }
    assert set(lessons) == set(world.values)

    def right(prompt: str) -> float:
        asked = [
            Request((Message("system", prompt), Message("user", row["input"])))
            for row in world.rows(5000, 100)
        ]
        wanted = [row["target"] for row in world.rows(5000, 100)]
        return (
            sum(model.answer(request, 0) == target for request, target in zip(asked, wanted, strict=True))
            / 100
        )

    taught = "\n".join([world.start, *lines(lessons)])
    assert stated_lessons(world, taught) == lessons
    assert right(taught) > 0.9 > 0.4 > right(world.start)
