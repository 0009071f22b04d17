"""What an evaluation writes of its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows
from whet.cli import show
from whet.errors import ProviderError


class Partial(Counted):
    """Never answers one row."""

    def __call__(self, messages: list[whet.Message]) -> str:
        if "Dish 3 was good" in str(messages):
            raise ProviderError("This row is too long.")
        return super().__call__(messages)


def read_lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(result["rows"]).read_text("utf-8").splitlines()]


def test_each_row_of_an_evaluation_is_written_the_worst_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: dict[str, Any] = {"reward": right, "lm": Partial(), "run": tmp_path / "run"}
    words["data"] = {
        "train": rows(6),
        "validation": [{"input": "Dish 80 was bad.", "target": "x"}],
        "test": [{"input": "Dish 90 was bad.", "target": "x"}],
    }
    found = whet.evaluate(PROMPT, **words, split="train")
    lines = read_lines(found)
    assert len(lines) == 24 == found.score.of
    assert (
        lines[0]["fields"]["input"] == "Dish 3 was good." and lines[0]["answer"] is lines[0]["reward"] is None
    )
    assert "too long" in lines[0]["error"]
    rewards = [line["reward"] for line in lines[1:]]
    assert rewards == sorted(rewards) and sum(rewards) / 23 == pytest.approx(found.score.mean)
    assert {line["answer"] for line in lines if line["reward"] == 0.0} == {"unclear"}
    assert all(line["answer"] == line["target"] for line in lines if line["reward"] == 1.0)
    capsys.readouterr()
    show.show_evaluation(found.json)
    assert f"the worst first: {tmp_path / 'run' / 'rows.jsonl'}" in capsys.readouterr().out
    assert "rows" not in json.loads((tmp_path / "run" / "result.json").read_text())


def test_the_rows_have_one_place_whether_the_evaluation_is_recorded_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "run": "run"}
    places = [whet.evaluate(PROMPT, **words)["rows"] for _ in range(2)]
    assert places == [str(Path("run") / "rows.jsonl")] * 2


def test_the_rows_are_those_of_the_evaluation_in_the_folder(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "run": tmp_path / "run"}
    first = read_lines(whet.evaluate(PROMPT, **words))
    assert read_lines(whet.evaluate(PROMPT, **words)) == first, "recorded"
    careful = read_lines(whet.evaluate(PROMPT.replace("Sort", "Be careful and sort"), **words))
    assert {line["reward"] for line in careful} == {1.0} != {line["reward"] for line in first}
    assert read_lines(whet.evaluate(PROMPT, **words, fresh=True)) == first


def test_rows_of_several_models_are_written_too(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": rows(3), "reward": right, "run": tmp_path / "run"}
    found = whet.evaluate(PROMPT, **words, task_lms=[Counted(), lambda messages: "negative"])
    lines = read_lines(found)
    assert len(lines) == found.score.n and {line["case"] for line in lines} == set(found.score.cases)


def test_whole_numbers_of_any_size_are_written_as_they_are(tmp_path: Path) -> None:
    data = [{"input": f"Number {n}.", "target": 2**64 + n} for n in range(6)]
    found = whet.evaluate(
        "{{input}}", data=data, reward="number", lm=lambda m: str(2**64), run=tmp_path / "run"
    )
    assert found.score.mean is not None
    lines = read_lines(found)
    assert lines and all(f"Number {line['target'] - 2**64}." == line["fields"]["input"] for line in lines)
