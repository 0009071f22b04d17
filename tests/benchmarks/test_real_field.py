"""The field on a model of the reader's choice: one row a run, taken up again, rendered as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import real_field

WORDS = {0: ("bad", "dull"), 1: ("good", "lovely")}
LIMITS = ("--task-calls", "60", "--optimizer-calls", "4", "--validation", "6", "--test", "12")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with rows like those of the real task."""
    file = tmp_path / "data" / real_field.TASKS["sst-2"].file
    file.parent.mkdir(parents=True)
    rows = [
        {
            "id": f"{split}-{n}-{word}",
            "split": split,
            "input": f"{split} film {n} was {word}.",
            "label": label,
        }
        for split, size in (("train", 24), ("test", 8))
        for n in range(size)
        for label, words in WORDS.items()
        for word in words
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "data"


def run(tmp_path: Path, *options: str) -> Path:
    results = tmp_path / "results"
    models = ("--lm", "scripted/labels", "--optimizer-lm", "scripted/phrases")
    real_field.main([*models, "--tasks", "sst-2", *LIMITS, "--results", str(results), *options])
    return results


def test_every_run_leaves_a_row_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    arms = ("--data", str(data), "--arms", "opro,random_search,hand")
    results = run(tmp_path, *arms)
    rows: dict[str, dict[str, Any]] = {
        file.stem: json.loads(file.read_text()) for file in results.glob("*.json")
    }
    assert set(rows) == {f"sst-2-0-{arm}" for arm in ("opro", "random_search", "hand")}
    for row in rows.values():
        assert row["wins"] + row["losses"] + row["ties"] == 12
        assert row["test"] - row["start"] == pytest.approx((row["wins"] - row["losses"]) / 12)
        assert row["calls"]["optimizer"] <= 4
    assert all(rows[f"sst-2-0-{arm}"]["calls"]["task"] <= 60 for arm in ("opro", "random_search"))
    assert len({row["start"] for row in rows.values()}) == 1
    first = capsys.readouterr().out
    assert "| opro | 1 |" in first
    written = {file: file.stat().st_mtime_ns for file in results.glob("*.json")}
    run(tmp_path, *arms)
    assert {file: file.stat().st_mtime_ns for file in results.glob("*.json")} == written
    real_field.main(["--table", "--results", str(results)])
    assert capsys.readouterr().out.count("| opro | 1 |") == 2


def test_seeds_have_test_rows_of_their_own(data: Path) -> None:
    one, two = (real_field.rows_of(data, "sst-2", seed, 6, 12) for seed in (0, 1))
    inputs = [{row["input"] for row in rows["test"]} for rows in (one, two)]
    assert not inputs[0] & inputs[1]
    assert {row["target"] for row in one["train"]} == {"positive", "negative"}
    assert not {row["input"] for row in one["train"]} & {row["input"] for row in one["validation"]}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--tasks", "sst-2"], "--lm"),
        (["--lm", "scripted/labels", "--tasks", "sst-2"], "WHET_DATA"),
        (["--lm", "scripted/labels", "--tasks", "sst-9"], "no task sst-9"),
        (["--lm", "scripted/labels", "--arms", "oprah"], "no arm oprah"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_paid(
    options: list[str],
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WHET_DATA", raising=False)
    with pytest.raises(SystemExit):
        real_field.main([*options, "--results", str(tmp_path / "results")])
    assert named in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_only_exactly_a_target_counts() -> None:
    row = {"targets": ["hot", "warm"]}
    assert [real_field.graded(row, text)["reward"] for text in (" warm\n", "Warm", "It is hot")] == [1, 0, 0]
    assert "hot" in real_field.graded(row, "cold")["critique"]
