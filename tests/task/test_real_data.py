"""Published data sets load as task folders. Their rows are read by path and never copied."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from whet.task import Task, load_task

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("WHET_SHARED_DATA", ROOT.parent / "shared" / "data"))

pytestmark = pytest.mark.skipif(
    not (DATA / "gsm8k").is_dir(), reason=f"no data sets at {DATA}; set WHET_SHARED_DATA to their folder"
)


def folder(tmp_path: Path, prompt: str, **keys: Any) -> Path:
    (tmp_path / "prompt.md").write_text(prompt)
    keys = {"name": "real", "prompt": "prompt.md", "reward": "exact_match", **keys}
    (tmp_path / "task.yaml").write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    )
    return tmp_path


def check(task: Task, rows: int) -> None:
    splits = [task.train, task.validation, task.test]
    assert sum(map(len, splits)) == rows
    inputs = [
        {e.text if e.text is not None else json.dumps(dict(e.values)) for e in split} for split in splits
    ]
    assert sum(map(len, inputs)) == len(set.union(*inputs)), "an input stands in two splits"
    assert len({e.id for split in splits for e in split}) == rows


@pytest.mark.parametrize("name", ["sst-2", "mr", "agnews", "sst-5", "dbpedia"])
def test_few_shot_classification(name: str, tmp_path: Path) -> None:
    path = DATA / "few_shot_classification" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    task = load_task(
        folder(
            tmp_path,
            "{{input}} It was {{mask}}.",
            data=str(path),
            labels=rows[0]["label_words"],
            reward=[{"gap": 0.01}, {"exact_match": 1.0}],
        )
    )
    marks = {
        mark: {row["input"] for row in rows if row["split"] == mark} for mark in ("train", "dev", "test")
    }
    check(task, sum(row["split"] != "train" or row["input"] not in marks["dev"] for row in rows))
    assert {e.target for e in (*task.train, *task.validation, *task.test)} == set(task.labels)
    assert len(task.test) == sum(row["split"] == "test" for row in rows)


def test_gsm8k_with_given_splits(tmp_path: Path) -> None:
    files = {name: str(DATA / "gsm8k" / f"{name}.jsonl") for name in ("train", "test")}
    reward = {"regex": {"pattern": r"(-?[\d.]+)\D*$"}}
    task = load_task(folder(tmp_path, "Solve the problem.", data=files, reward=reward))
    sizes = {name: len(Path(path).read_text("utf-8").splitlines()) for name, path in files.items()}
    check(task, sum(sizes.values()))
    assert len(task.test) == sizes["test"] and all(e.row["split"] == "test" for e in task.test)
    assert len(task.validation) == round(sizes["train"] * 3 / 7)
    assert "####" in task.train[0].row["solution"]


@pytest.mark.parametrize("name", ["antonyms", "cause_and_effect", "rhymes", "translation_en-es", "sum"])
def test_instruction_induction(name: str, tmp_path: Path) -> None:
    path = DATA / "instruction_induction" / f"{name}.jsonl"
    task = load_task(folder(tmp_path, "{{input}}", data=str(path), reward="f1"))
    check(task, len(path.read_text("utf-8").splitlines()))


@pytest.mark.parametrize("name", ["navigate", "word_sorting"])
def test_bbh(name: str, tmp_path: Path) -> None:
    path = DATA / "bbh" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    labels = {"labels": rows[0]["label_words"]} if rows[0]["label_words"] else {}
    check(load_task(folder(tmp_path, "Answer.", data=str(path), **labels)), len(rows))


def test_every_file_loads_or_says_why_not(tmp_path: Path) -> None:
    """No stored file makes the loader fail in any other way than with a place and a remedy."""
    from whet.errors import UsageError

    loaded = 0
    files = sorted(p for p in DATA.rglob("*.jsonl") if p.stat().st_size < 400_000)
    for path in files:
        try:
            load_task(folder(tmp_path, "Answer.", data=str(path)))
            loaded += 1
        except UsageError as error:
            assert str(error).startswith((f"{path}:", f"{tmp_path}/task.yaml:"))
    assert loaded >= 20
