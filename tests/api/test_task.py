"""Tasks in memory: the same checks and the same content as a folder, and there and back again."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import whet
from tests.api.world import PROMPT, right, rows
from whet_client.storable import show_value

Rows = list[dict[str, Any]]


def test_rows_of_every_kind_are_the_same_task(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    datasets = pytest.importorskip("datasets")
    lines = tmp_path / "data.csv"
    lines.write_text("input,target\n" + "".join(f"{r['input']},{r['target']}\n" for r in rows()))
    kinds = [
        rows(),
        tuple(rows()),
        iter(rows()),
        pandas.DataFrame(rows()),
        pytest.importorskip("pyarrow").Table.from_pylist(rows()),
        datasets.Dataset.from_list(rows()),
        lines,
        str(lines),
    ]
    tasks = [whet.Task.of(PROMPT, data=kind, reward="exact_match") for kind in kinds]
    assert len({task.fingerprint for task in tasks}) == 1
    assert [len(tasks[0].train), len(tasks[0].validation), len(tasks[0].test)] == [32, 24, 24]


@dataclass
class Row:
    input: str
    target: str


class NamedRow(NamedTuple):
    input: str
    target: str


class Target(enum.Enum):
    RIGHT = "right"


def test_rows_may_be_objects(tmp_path: Path) -> None:
    pydantic, pandas = pytest.importorskip("pydantic"), pytest.importorskip("pandas")
    model = pydantic.create_model("Model", input=(str, ...), target=(str, ...))
    frame = pandas.DataFrame(rows())
    kinds = [
        rows(),
        [Row(**row) for row in rows()],
        [NamedRow(**row) for row in rows()],
        [model(**row) for row in rows()],
        [SimpleNamespace(**row) for row in rows()],
        [row for _, row in frame.iterrows()],
        list(frame.itertuples(index=False)),
    ]
    tasks = [whet.Task.of(PROMPT, data=kind, reward="exact_match") for kind in kinds]
    assert len({task.fingerprint for task in tasks}) == 1
    inner = [{"input": {"q": Row(f"q{n}", "x")}, "target": Target.RIGHT} for n in range(12)]
    example = whet.Task.of("{{q}}", data=inner, reward="exact_match").train[0]
    assert '"target": "x"' in example.values["q"] and example.target == "right"


def test_columns_of_a_frame_fill_slots_and_missing_cells_are_left_out() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"q": ["a", "b", "c", "d"], "note": ["x", None, "y", None], "target": [1, 2, 3, 4]}
    )
    task = whet.Task.of("Answer {{q}}", data=frame, reward="exact_match")
    by_q = {e.values["q"]: e for e in (*task.train, *task.validation, *task.test)}
    assert by_q["a"].values == {"q": "a"} and by_q["a"].row["note"] == "x" and "note" not in by_q["b"].row
    assert by_q["c"].target == 3
    bare = whet.Task.of("Answer.", data=frame[["q", "target"]], reward="exact_match")
    assert bare.train[0].values.keys() == {"q"}


def test_a_named_index_of_a_frame_is_a_column() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"q": list("abcd"), "n": [1, 2, 3, 4], "target": list("wxyz")})
    for indexed in (frame.set_index("q"), frame.set_index(["q", "n"])):
        task = whet.Task.of("Answer {{q}}", data=indexed, reward="exact_match")
        rows = (*task.train, *task.validation, *task.test)
        assert {(e.values["q"], e.target) for e in rows} == set(zip("abcd", "wxyz", strict=True))
    plain = whet.Task.of("Answer.", data=frame.set_index("q", drop=False), reward="exact_match")
    assert plain.train[0].values.keys() == {"q", "n"}


def test_rows_whose_keys_fill_the_slots_need_no_input() -> None:
    data = [{"ticket": f"t{i}", "team": "a", "target": "a"} for i in range(6)]
    task = whet.Task.of("Route {{ticket}}", data=data, reward="exact_match")
    assert (
        task.train[0].values == {"ticket": task.train[0].row["ticket"]} and task.train[0].row["team"] == "a"
    )


def folder_of(tmp_path: Path, text: str) -> Path:
    tmp_path.joinpath("task.yaml").write_text(text)
    return tmp_path


GIVEN = {
    "train": rows(8),
    "validation": [r for r in rows(12) if "1" in r["input"]][8:20],
    "test": rows(30)[100:],
}


@pytest.mark.parametrize(
    "words",
    [
        {"data": rows(), "reward": "exact_match"},
        {"data": rows(), "reward": right},
        {"data": rows(), "reward": {"program": {"function": right, "low": -1, "high": 1}}},
        {"data": rows(), "reward": [{"f1": 0.5}, right], "splits": {"train": 0.5, "validation": 0.2, "test": 0.3, "seed": 3}},
        {"data": {"train": rows(15)[:40], "dev": rows(15)[40:50], "test": rows(15)[50:]}, "reward": "f1"},
        {"data": {"train": rows(15)[:40], "test": rows(15)[40:]}, "reward": "f1", "splits": {"seed": 5}},
        {"data": rows(), "reward": "exact_match", "labels": ["positive", "negative"], "verbalizer": {"positive": "yes"}},
        {"data": rows(), "reward": {"regex": {"pattern": "1e3: [yes]\n#"}}, "description": "1e-3", "name": "on"},
        {"data": rows(), "reward": "f1", "second_opinion": {"program": {"function": right}}},
    ],
    ids=lambda words: re.sub(" at 0x[0-9a-f]+", "", show_value(words["reward"], 40)),
)  # fmt: skip
def test_a_saved_task_is_the_same_task_when_it_is_loaded(tmp_path: Path, words: dict[str, Any]) -> None:
    task = whet.Task.of(PROMPT, **words)
    loaded = whet.Task.load(task.save(tmp_path / "saved"))
    assert loaded.fingerprint == task.fingerprint
    assert (loaded.name, loaded.description, loaded.labels) == (task.name, task.description, task.labels)
    assert [e.id for e in loaded.test] == [e.id for e in task.test]
    assert whet.Task.load(loaded.save(tmp_path / "again")).fingerprint == task.fingerprint


def test_a_prompt_of_several_messages_is_saved(tmp_path: Path) -> None:
    messages = (whet.Message("system", "Be \tkind:\n- yes"), whet.Message("user", PROMPT))
    task = whet.Task.of(whet.Prompt.from_messages(messages), data=rows(), reward="f1")
    assert whet.Task.load(task.save(tmp_path / "saved")).prompt == task.prompt


@pytest.mark.parametrize("reward", [lambda e, o: 1.0, whet.Task.of], ids=["lambda", "method"])
def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path, reward: Any) -> None:
    task = whet.Task.of(PROMPT, data=rows(), reward=lambda e, o: 1.0)
    with pytest.raises(whet.UsageError, match="cannot be written"):
        task.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(whet.UsageError, match="is not empty, and nothing is overwritten"):
        whet.Task.of(PROMPT, data=rows(), reward="f1").save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        ("Answer {{qestion}}", {"data": rows(), "reward": "f1"}, "no row fills the slot {{qestion}}"),
        (PROMPT, {"data": [{**r, "id": "a"} for r in rows()], "reward": "f1"}, r'data\[1\]: the id "a" stands already'),
        (PROMPT, {"data": [{"input": "x"}], "reward": "exact_match"}, r'data\[0\]: the row has no "target"'),
        (PROMPT, {"data": rows()[:1], "reward": "f1"}, "would be empty"),
        (PROMPT, {"data": [], "reward": "f1"}, "data: there are no rows"),
        (PROMPT, {"data": ["a", "b"], "reward": "f1"}, r"data\[0\] is 'a'"),
        (PROMPT, {"data": 3, "reward": "f1"}, "data must be a list of dicts"),
        (PROMPT, {"data": {"trian": rows(), "test": rows()}, "reward": "f1"}, 'no key "trian". Did you mean "train"'),
        (PROMPT, {"data": {"train": rows()}, "reward": "f1"}, "names no test"),
        (PROMPT, {"data": [{"input": {"input": object()}}], "reward": "f1"}, r"data\[0\] cannot be stored as JSON"),
        (PROMPT, {"data": rows(), "reward": "exactmatch"}, 'reward: there is no reward "exactmatch". Did you mean "exact_match"'),
        (PROMPT, {"data": rows(), "reward": lambda output: 1.0}, "is called as reward\\(example, output\\)"),
        (PROMPT, {"data": rows()}, "needs a reward"),
        (PROMPT, {"reward": "f1"}, "needs rows"),
        (PROMPT, {"data": rows(), "reward": "f1", "labels": ["a"]}, "at least two labels"),
        (PROMPT, {"data": rows(), "reward": "f1", "splits": {"train": 1}}, "no share for validation"),
        ("nothing.here", {}, "no such task folder.*give data= and reward="),
        ("", {"data": rows(), "reward": "f1"}, "prompt is empty"),
        ("<!-- whet:begin -->", {"data": rows(), "reward": "f1"}, "whet:"),
        (7, {}, "7 is no task"),
        (Path("nowhere"), {"data": rows()}, "brings its own data"),
        (whet.Task.of(PROMPT, data=rows(), reward="f1"), {"reward": "f1"}, "brings its own reward"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any, words: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def model(messages: list[whet.Message]) -> str:
        raise AssertionError("paid")

    with pytest.raises(whet.UsageError, match=said):
        whet.optimize(task, lm=model, **words)
    assert not list(tmp_path.iterdir())


def test_a_text_that_names_a_task_folder_is_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whet.Task.of(PROMPT, data=rows(), reward="f1", name="mine").save(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    result = whet.evaluate("mine", lm="scripted/echo")
    assert result["task"] == "mine" and result.score.n == 24
