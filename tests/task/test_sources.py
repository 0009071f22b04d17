"""`data:` as a data set of Hugging Face, or as a table whose delimiter is named."""

from __future__ import annotations

import builtins
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from whet.errors import UsageError
from whet.task.rows import read_rows

YAML = "name: t\nprompt: prompt.md\nreward: exact_match\n"
FEW = "columns: {input: text, target: label}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task folder without `data`, with a data set of two splits in the files that `datasets` reads."""
    (tmp_path / "prompt.md").write_text("Answer.\n\n{{input}}\n")
    (tmp_path / "reviews").mkdir()
    for split, count in {"train": 40, "test": 20}.items():
        rows = [{"text": f"{split} text {i}", "label": f"label {i}", "stars": i} for i in range(count)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "reviews" / f"{split}.jsonl").write_text(lines)
    return tmp_path


def load(folder: Path, data: str) -> whet.Task:
    (folder / "task.yaml").write_text(f"{YAML}data: {data}\n")
    return whet.Task.load(folder)


def refused(folder: Path, data: str) -> str:
    with pytest.raises(UsageError) as error:
        load(folder, data)
    return str(error.value)


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def inputs(rows: Any) -> set[str]:
    return {example.text for example in rows}


def test_splits_of_a_data_set_are_named_and_its_columns_renamed(folder: Path) -> None:
    task = load(folder, f"{{datasets: reviews, train: train, test: test, {FEW}}}")
    assert len(task.train) + len(task.validation) == 40 and len(task.test) == 20
    assert inputs(task.test) == {f"test text {i}" for i in range(20)}
    example = next(e for e in task.test if e.text == "test text 3")
    assert example.target == "label 3" and set(example.row) == {"id", "input", "target"}


def test_one_split_is_dealt_by_whet_and_metadata_is_what_columns_name(folder: Path) -> None:
    columns = "columns: {input: text, target: label, rating: stars}"
    task = load(folder, f"{{datasets: reviews, split: train, {columns}}}")
    every = [*task.train, *task.validation, *task.test]
    assert len(every) == 40 and {e.row["rating"] for e in every} == set(range(40))


def test_a_subset_depends_on_its_seed_and_not_on_the_order(folder: Path) -> None:
    data = f"{{datasets: reviews, rows: 12, seed: 1, {FEW}}}"
    task = load(folder, data)
    chosen = inputs([*task.train, *task.validation, *task.test])
    assert len(chosen) == 12
    file = folder / "reviews" / "train.jsonl"
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    assert load(folder, data).fingerprint == task.fingerprint
    other = load(folder, data.replace("seed: 1", "seed: 2"))
    assert inputs([*other.train, *other.validation, *other.test]) != chosen


def test_slots_are_filled_by_columns_of_their_names(folder: Path) -> None:
    (folder / "prompt.md").write_text("{{review}}\n")
    task = load(folder, "{datasets: reviews, columns: {review: text, target: label}}")
    assert set(task.train[0].values) == {"review"}


def test_the_same_in_python_and_saved_as_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    data = {"datasets": "reviews", "columns": {"input": "text", "target": "label"}, "rows": 12}
    task = whet.Task.of("Answer.", data=data, reward="exact_match")
    saved = task.save(folder / "saved")
    assert (saved / "data.jsonl").is_file() and whet.Task.load(saved).fingerprint == task.fingerprint


def parquet(folder: Path, columns: dict[str, Any]) -> None:
    """A data set of 30 rows in a file of Parquet; `columns`: the type and the value of each beside `text` and `label`."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    made = {name: pa.array([value] * 30, kind(pa)) for name, (kind, value) in columns.items()}
    texts = {"text": [f"text {i}" for i in range(30)], "label": ["ab"[i % 2] for i in range(30)]}
    (folder / "frame").mkdir()
    pq.write_table(pa.table({**texts, **made}), folder / "frame" / "train.parquet")


@pytest.mark.parametrize("columns", [", columns: {text: text, notes: notes, target: label}", ""])
@pytest.mark.parametrize("gaps", [10, 30])
@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_cell_without_a_value_is_filled_in_as_nothing_with_a_warning(
    folder: Path, columns: str, gaps: int, gap: float | None
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = [f"text {i}" for i in range(30)]
    notes = pa.array([gap] * gaps + [0.5] * (30 - gaps), pa.float64())
    (folder / "frame").mkdir()
    made = pa.table({"text": texts, "target" if not columns else "label": ["a"] * 30, "notes": notes})
    pq.write_table(made, folder / "frame" / "train.parquet")
    (folder / "prompt.md").write_text("{{text}} {{notes}}\n")
    task = load(folder, f"{{datasets: frame{columns}}}")
    values = {e.values["text"]: e.values["notes"] for e in (*task.train, *task.validation, *task.test)}
    assert values == {text: "" if i < gaps else "0.5" for i, text in enumerate(texts)}
    assert any(f"{gaps} rows have null for a slot" in warning for warning in task.warnings)


NARROW: dict[str, tuple[Any, Any]] = {
    "score": (lambda pa: pa.float32(), 0.1),
    "half": (lambda pa: pa.float16(), np.float16(0.1)),
    "many": (lambda pa: pa.list_(pa.float32()), [0.1, 0.2]),
    "deep": (lambda pa: pa.struct([("a", pa.float32()), ("b", pa.float64())]), {"a": 0.1, "b": 0.1}),
    "objects": (lambda pa: pa.list_(pa.struct([("a", pa.float32())])), [{"a": 1e20}]),
}
READ = {
    "score": 0.1,
    "half": 0.1,
    "many": [0.1, 0.2],
    "deep": {"a": 0.1, "b": 0.1},
    "objects": [{"a": 1e20}],
}


def test_numbers_of_32_and_16_bits_are_the_decimals_that_were_written(folder: Path) -> None:
    parquet(folder, NARROW)
    rest = ", ".join(f"{name}: {name}" for name in NARROW)
    task = load(folder, f"{{datasets: frame, columns: {{input: text, target: score, {rest}}}}}")
    example = task.train[0]
    assert example.target == 0.1 and {name: example.row[name] for name in NARROW} == READ
    score = whet.evaluate(task, lm=lambda messages: "0.1", split="train").score
    assert score.mean == 1.0, "the right answer is right"


@pytest.mark.parametrize("kept", [False, True])
def test_narrow_numbers_of_a_data_frame_are_the_same(folder: Path, kept: bool) -> None:
    pd = pytest.importorskip("pandas")
    parquet(folder, NARROW)
    types = {"dtype_backend": "pyarrow"} if kept else {}
    frame = pd.read_parquet(folder / "frame" / "train.parquet", **types)
    frame = frame.rename(columns={"text": "input", "label": "target"})
    row = whet.Task.of("Say {{input}}", data=frame, reward="exact_match").train[0].row
    lost = () if kept else ("deep", "objects")  # pandas makes objects of plain numbers of them
    assert {name: row[name] for name in READ if name not in lost} == {
        name: value for name, value in READ.items() if name not in lost
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{datasets: reviews, split: tset, columns: {input: text}}", 'no split "tset". Known: '),
        (
            "{datasets: reviews, columns: {input: txet, target: label}}",
            'no column "txet". Did you mean "text"?',
        ),
        ("{datasets: reviews, colums: {input: text}}", 'Did you mean "columns"?'),
        ("{datasets: reviews, split: train, train: train, test: test}", "Keep one of the two"),
        ("{datasets: reviews, seed: 3}", "Add rows: 500"),
        ("{datasets: reviews, train: train, columns: {input: text, target: label}}", "names no test file"),
        ("{datasets: reviews, rows: 0}", "data: rows must be a whole number of 1 or more"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_line(folder: Path, data: str, said: str) -> None:
    message = refused(folder, data)
    assert said in message and "task.yaml:4" in message


def test_a_missing_package_is_one_line_that_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    message = refused(folder, "{datasets: reviews}")
    assert message.endswith("Install it: pip install 'whet[datasets]'") and "\n" not in message


def table(folder: Path, mark: str, name: str = "rows.csv") -> None:
    lines = [f'"row; {i}"{mark}label {i}' for i in range(30)]
    (folder / name).write_text("\n".join([f"input{mark}target", *lines]) + "\n")


@pytest.mark.parametrize(
    ("mark", "written", "name"),
    [
        (";", '";"', "rows.csv"),
        ("\t", "tab", "rows.tsv"),
        ("\t", '"\\t"', "rows.csv"),
        ("|", '"|"', "rows.txt"),
    ],
)
def test_a_table_has_the_delimiter_that_is_named(folder: Path, mark: str, written: str, name: str) -> None:
    table(folder, mark, name)
    task = load(folder, f"{{file: {name}, delimiter: {written}}}")
    assert len(task.train) + len(task.validation) + len(task.test) == 30
    assert task.train[0].text is not None and task.train[0].text.startswith("row; ")


def test_tables_by_split_may_differ(folder: Path) -> None:
    table(folder, ";", "a.csv")
    lines = [f"other {i},label {i}" for i in range(10)]
    (folder / "b.csv").write_text("\n".join(["input,target", *lines]) + "\n")
    task = load(folder, '{train: {file: a.csv, delimiter: ";"}, test: b.csv}')
    assert len(task.train) + len(task.validation) == 30 and len(task.test) == 10


def test_the_delimiter_of_a_table_is_found_and_may_be_named(folder: Path) -> None:
    table(folder, ";")
    named = load(folder, '{file: rows.csv, delimiter: ";"}')
    assert load(folder, "rows.csv").train == named.train


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{file: rows.csv, delimiter: ";;"}', "one character or tab"),
        ('{file: rows.csv, delimiter: ""}', "one character or tab"),
        ("{file: rows.csv, delimeter: x}", 'Did you mean "delimiter"?'),
        ("{file: none.csv, delimiter: x}", "there is no file"),
    ],
)
def test_a_delimiter_that_is_none_is_refused(folder: Path, data: str, said: str) -> None:
    table(folder, ";")
    assert said in refused(folder, data)


def test_the_command_that_converts_a_file_makes_rows_of_it(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "my rows.parquet"
    pd.DataFrame({"input": ["a", "é"], "target": ["007", "x"], "n": [1, 2]}).to_parquet(path)
    with pytest.raises(UsageError, match="Convert it: pip install pandas pyarrow && python -c") as refused:
        read_rows(path, "data")
    words = shlex.split(str(refused.value).rpartition("&& ")[2])
    subprocess.run([sys.executable, *words[1:]], check=True)
    rows = [row.value for row in read_rows(path.with_suffix(".jsonl"), "data")]
    assert rows == [{"input": "a", "target": "007", "n": 1}, {"input": "é", "target": "x", "n": 2}]
