"""A column that says of each row to which split it belongs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError

MARKS = ["train"] * 5 + ["val"] * 3 + ["Test"] * 4
ROWS = [{"input": f"question {n}", "target": str(n), "split": mark} for n, mark in enumerate(MARKS)]
TABLE = "question,target,split\n" + "".join(f"question {n},{n},{mark}\n" for n, mark in enumerate(MARKS))


def targets(task: whet.Task) -> tuple[set[str], set[str], set[str]]:
    """The targets of the rows of each split."""
    train, validation, test = ({e.target for e in part} for part in (task.train, task.validation, task.test))
    return train, validation, test


MARKED = ({"0", "1", "2", "3", "4"}, {"5", "6", "7"}, {"8", "9", "10", "11"})


@pytest.mark.parametrize("prompt", ["Answer: {{input}}\n", "Answer.\n"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_rows_of_a_file_go_where_they_are_marked(make: Callable[..., Path], kind: str, prompt: str) -> None:
    files = {"prompt.md": prompt}
    if kind == "csv":
        files |= {
            "task.yaml": "name: t\nprompt: prompt.md\ndata: rows.csv\nreward: exact_match\n",
            "rows.csv": TABLE,
        }
        files["prompt.md"] = prompt.replace("input", "question")
    task = whet.Task.load(make(files, rows=ROWS))
    assert targets(task) == MARKED
    assert not any("split" in example.values for example in (*task.train, *task.test))
    (said,) = [line for line in task.warnings if "split" in line]
    assert "(5 train, 3 validation, 4 test); to divide the rows anew: splits: {column: none}" in said


@pytest.mark.parametrize("frame", [False, True])
def test_rows_from_python_go_where_they_are_marked(frame: bool) -> None:
    data: Any = ROWS
    if frame:
        data = pytest.importorskip("pandas").DataFrame(ROWS)
    for prompt in ("Answer: {{input}}", "Answer."):
        task = whet.Task.of(prompt, data=data, reward="exact_match")
        assert targets(task) == MARKED and not any("split" in e.values for e in task.train)


def test_another_column_is_named_or_the_marks_are_declined(make: Callable[..., Path]) -> None:
    rows = [{**row, "fold": "test" if n < 6 else "train"} for n, row in enumerate(ROWS)]
    named = whet.Task.load(make(rows=rows, yaml="splits: {column: fold, seed: 1}\n"))
    assert targets(named)[2] == {str(n) for n in range(6)} and len(named.train) + len(named.validation) == 6
    assert not named.warnings
    anew = whet.Task.load(
        make(rows=ROWS, yaml="splits: {column: none, train: 0.5, validation: 0.25, test: 0.25}\n")
    )
    assert tuple(map(len, targets(anew))) == (6, 3, 3) and targets(anew) != MARKED


def test_what_is_no_mark_and_what_fills_a_slot_is_left_alone(make: Callable[..., Path]) -> None:
    plain = [{**row, "split": "banana"} for row in ROWS]
    assert tuple(map(len, targets(whet.Task.load(make(rows=plain))))) == (5, 3, 4)
    asked = [{"input": {"split": row["split"], "n": row["input"]}, "target": row["target"]} for row in ROWS]
    task = whet.Task.load(make({"prompt.md": "{{split}} {{n}}\n"}, rows=asked))
    assert targets(task) != MARKED and "split" in task.train[0].values


@pytest.mark.parametrize(
    ("change", "yaml", "reason"),
    [
        ({3: "later"}, "", r"data.jsonl:4: the column .split. has 'later', which is no split. .*column: none"),
        ({n: "train" for n in range(12)}, "splits: {column: split}\n", r'task.yaml:3: the column "split" marks no row as test. '),
        ({n: "test" for n in range(12)}, "splits: {column: split}\n", r'task.yaml:3: the column "split" marks no row as train. '),
        ({}, "splits: {column: folds}\n", r'task.yaml:3: There is no column "folds".'),
        ({}, "splits: {column: split, train: 0.5, validation: 0.2, test: 0.3}\n", "marks the rows of all three splits"),
    ],
)  # fmt: skip
def test_marks_that_cannot_be_used_are_refused(
    make: Callable[..., Path], change: dict[int, str], yaml: str, reason: str
) -> None:
    rows = [{**row, "split": change.get(n, row["split"])} for n, row in enumerate(ROWS)]
    with pytest.raises(UsageError, match=reason):
        whet.Task.load(make(rows=rows, yaml=yaml))


@pytest.mark.parametrize(
    ("marks", "yaml", "reason"),
    [
        (["train"] * 12, "", "(12 train), and the rows are divided anew, because it marks no row as test"),
        (["test"] * 12, "", "(12 test), and the rows are divided anew, because it marks no row as train"),
        (MARKS, "splits: {seed: 3}\n", "4 test), and the rows are divided anew, because `splits` says how"),
    ],
)  # fmt: skip
def test_marks_of_a_column_that_nobody_named_and_that_divide_nothing_are_said(
    make: Callable[..., Path], marks: list[str], yaml: str, reason: str
) -> None:
    rows = [{**row, "split": mark} for row, mark in zip(ROWS, marks, strict=True)]
    task = whet.Task.load(make(rows=rows, yaml=yaml))
    assert tuple(map(len, targets(task))) == (5, 3, 4)
    assert any(reason in line and "splits: {column: split}" in line for line in task.warnings)


def test_a_row_that_is_marked_for_two_splits_counts_in_the_more_sealed_one(make: Callable[..., Path]) -> None:
    rows = [*ROWS, {**ROWS[9], "split": "train"}, {**ROWS[6], "split": "train"}, {**ROWS[10], "split": "val"}]
    task = whet.Task.load(make(rows=rows))
    assert targets(task) == MARKED
    assert any(
        "2 rows of train stand in a later split too and count there only" in line for line in task.warnings
    )
    assert any("1 row of validation stands in a later split too" in line for line in task.warnings)


@pytest.mark.parametrize(
    ("emptied", "sealed"), [("validation", "test"), ("train", "test"), ("train", "validation")]
)
def test_a_split_all_of_whose_rows_stand_in_a_later_one_is_refused(
    emptied: str, sealed: str, make: Callable[..., Path]
) -> None:
    rows = [
        {"input": f"{split} {n}", "target": "a", "split": split}
        for split in ("train", "validation", "test")
        for n in range(2)
    ]
    rows = [{**row, "input": str(row["input"]).replace(emptied, sealed)} for row in rows]
    with pytest.raises(
        UsageError,
        match=f"each row that is marked as {emptied} stands in a later split too .* so {emptied} would be",
    ):
        whet.Task.load(make(rows=rows))


def test_a_file_of_one_split_with_rows_of_another_is_said(make: Callable[..., Path], tmp_path: Path) -> None:
    files = {
        "task.yaml": "name: t\nprompt: prompt.md\ndata: {train: a.csv, test: b.csv}\nreward: exact_match\n",
        "a.csv": "input,target,split\n"
        + "".join(f"a{n},{n},{'test' if n == 2 else 'train'}\n" for n in range(6)),
        "b.csv": "input,target,split\n" + "".join(f"b{n},{n},test\n" for n in range(6)),
    }
    (said,) = whet.Task.load(make(files)).warnings
    assert said.startswith('1 row of the train file says otherwise in the column "split" (first: ')
    assert "a.csv:4, test)" in said
