"""The field on a model of the reader's choice: one row a run, taken up again, rendered as a table."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from benchmarks.field.meter import Meter
from tests.serving import server_thread

from benchmarks import real_field

DATA = Path(os.environ.get("WHET_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
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
    assert [real_field.grade(row, text)["reward"] for text in (" warm\n", "Warm", "It is hot")] == [1, 0, 0]
    assert "hot" in real_field.grade(row, "cold")["critique"]


def rows_in(results: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in results.glob("*.json")}


def test_the_optimizer_may_be_at_another_address(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    task, author = (tmp_path / name for name in ("task.jsonl", "optimizer.jsonl"))
    with (
        server_thread("--lm", "scripted/labels", "--ledger", str(task)) as url,
        server_thread("--lm", "scripted/phrases", "--ledger", str(author)) as other,
    ):
        results = run(
            tmp_path, "--lm", "openai/small", "--base-url", url, "--optimizer-lm", "openai/large",
            "--optimizer-base-url", other, "--data", str(data), "--arms", "opro,hand", "--against", "hand",
        )  # fmt: skip
    asked = {
        file: [json.loads(line)["model"] for line in file.read_text().splitlines()] for file in (task, author)
    }
    assert set(asked[task]) == {"small"} and set(asked[author]) == {"large"}
    row = rows_in(results)["sst-2-0-opro"]
    assert row["calls"]["optimizer"] == len(asked[author])
    assert 0 < row["asked"] < row["tokens"]
    assert len(row["rewards"]) == 12 and sum(row["rewards"]) / 12 == row["test"]
    assert row["prompt_tokens"] == 0 or row["prompt"] != real_field.START
    hand = rows_in(results)["sst-2-0-hand"]
    assert hand["prompt_tokens"] > 0
    won = sum(a > b for a, b in zip(row["rewards"], hand["rewards"], strict=True))
    lost = sum(a < b for a, b in zip(row["rewards"], hand["rewards"], strict=True))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| opro |"))
    assert f"], {won} to {lost} |" in line


def test_a_meter_counts_by_role_and_refuses_what_is_too_much() -> None:
    said = json.dumps({"model": "mine", "messages": [{"role": "user", "content": "two words"}]}).encode()

    def ask(url: str) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"{url}/chat/completions", said, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    with server_thread("--text", "three words here") as url:
        models = {"task": "small", "test": "small"}
        with Meter(url, models, {"task": 2}, 10.0, "key") as meter:
            answers = [ask(meter.url(role)) for role in ("task", "task", "task", "test", "judge")]
    assert [status for status, _ in answers] == [200, 200, 403, 200, 404]
    assert answers[0][1]["choices"][0]["message"]["content"] == "three words here"
    assert "used up: 2" in answers[2][1]["error"]["message"]
    usage = answers[0][1]["usage"]
    assert meter.calls["task"] == 2 and meter.calls["test"] == 1 and meter.calls["task refused"] == 1
    assert meter.calls["task read"] == 2 * usage["prompt_tokens"]
    assert meter.calls["task written"] == 2 * usage["completion_tokens"]


def test_a_tool_of_others_needs_an_interpreter_that_has_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    results = run(tmp_path, "--data", str(data), "--arms", "capo,hand")
    assert set(rows_in(results)) == {"sst-2-0-hand"}
    assert "capo is left out: --peer capo=PYTHON" in capsys.readouterr().out
    with server_thread("--lm", "scripted/labels") as url, pytest.raises(SystemExit, match=r"log\.txt"):
        run(
            tmp_path, "--lm", "openai/small", "--base-url", url, "--data", str(data), "--arms", "capo",
            "--optimizer-lm", "openai/small", "--peer", f"capo={sys.executable}",
        )  # fmt: skip
    assert set(rows_in(results)) == {"sst-2-0-hand"}


@pytest.mark.skipif(
    not DATA.is_dir(), reason="the data of real tasks is not here: WHET_SHARED_DATA names its folder"
)
@pytest.mark.parametrize("name", real_field.TASKS)
def test_rows_of_a_real_task(name: str) -> None:
    if not real_field.TASKS[name].path(DATA).is_file():
        pytest.skip(f"{DATA} has no {real_field.TASKS[name].file}")
    rows = real_field.rows_of(DATA, name, 0, 40, 60)
    assert [len(rows[split]) for split in ("validation", "test")] == [40, 60]
    inputs = [row["input"] for split in rows.values() for row in split]
    assert len(inputs) == len(set(inputs)) >= 140
    words = real_field.TASKS[name].labels.values()
    if words:
        assert all({row["target"] for row in rows[split]} == set(words) for split in rows)
    whole_words = [rf"(?<!\w){re.escape(row['input'])}(?!\w)" for row in rows["test"]]
    assert not any(re.search(words, text) for words in whole_words for text in real_field.TASKS[name].hand)
