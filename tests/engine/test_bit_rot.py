"""A journal whose bytes changed on the disk: one clear error, or the right answer; never another one."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import right
from whet.engine.journal import read_events, read_journal_rows
from whet.errors import ProviderError, StorageError, WhetError

ROWS = [
    {"input": f"Dish {i} was {word}.", "target": target}
    for i in range(12)
    for word, target in (("bad", "negative"), ("good", "positive"))
]


class Half:
    """Answers so many calls, then is gone; knows half of the rows."""

    simulated = False
    version = 1

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, messages: list[Any]) -> str:
        self.most -= 1
        if self.most < 0:
            raise ProviderError("gone", fatal=True)
        text = messages[-1].content
        return "negative" if "bad" in text and "1" in text else "positive"


def evaluate(root: Path, most: int) -> Any:
    return whet.evaluate(
        "Sort: {{input}}",
        data=ROWS,
        split="train",
        reward=right,
        lm=Half(most),
        root=root,
        progress=False,
        concurrency=1,
    )


def _half_a_run(folder: Path) -> Path:
    with pytest.raises(ProviderError):
        evaluate(folder, 6)
    (journal,) = folder.glob("*/journal.sqlite")
    (folder / "cache.sqlite").unlink(missing_ok=True)
    for end in ("result.json", "report.html"):
        (journal.parent / end).unlink(missing_ok=True)
    return journal


@pytest.mark.parametrize("kind", ["flip", "many", "cut", "zeros"])
@pytest.mark.parametrize("times", [15, pytest.param(40, marks=pytest.mark.long)])
def test_changed_bytes_are_an_error_or_change_nothing(tmp_path: Path, kind: str, times: int) -> None:
    whole = evaluate(tmp_path / "whole", 1000).score
    journal = _half_a_run(tmp_path / "half")
    rng, refused, data = random.Random(kind), 0, journal.read_bytes()
    for number in range(times):
        root = tmp_path / f"{kind}-{number}"
        shutil.copytree(tmp_path / "half", root)
        found = bytearray(data)
        if kind == "cut":
            found = found[: rng.randrange(16, len(data))]
        else:
            for _ in range({"flip": 1, "many": 30, "zeros": 1}[kind]):
                place = rng.randrange(16, len(data))
                if kind == "zeros":
                    found[place : place + 512] = bytes(len(found[place : place + 512]))
                else:
                    found[place] ^= 1 << rng.randrange(8)
        (root / journal.parent.name / journal.name).write_bytes(bytes(found))
        try:
            assert evaluate(root, 1000).score == whole, number
        except WhetError as error:
            refused += 1
            assert "\n" not in str(error) and journal.name in str(error), number
        shutil.rmtree(root)
    assert refused > 0


def test_a_letter_of_an_answer_that_changed_is_found(tmp_path: Path) -> None:
    journal = _half_a_run(tmp_path / "half")
    data = journal.read_bytes()
    assert b'"positive"' in data
    journal.write_bytes(data.replace(b'"positive"', b'"negative"'))
    with pytest.raises(WhetError, match="is damaged"):
        evaluate(tmp_path / "half", 1000)


def rotten(journal: Path, statement: str) -> None:
    """Change what stands in a row, and leave its checksum, as a bit that flips does."""
    with sqlite3.connect(journal) as db:
        assert db.execute(statement).rowcount == 1
    db.close()


CHANGES = {
    "meta": "key = 'header'",
    "calls": "id = 3",
    "details": "id = 3",
    "events": "seq = 1",
    "effects": "key = (SELECT MIN(key) FROM effects)",
    "results": "digest = (SELECT MIN(digest) FROM results)",
}


UNCHECKED = {"effects": ("role", "calls"), "events": ("seq",), "meta": ("key",)}
"""Columns that no checksum covers."""


class Detailed(Half):
    """Says how much of its input was cached."""

    def __call__(self, messages: list[Any]) -> Any:
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
        return {"choices": [{"message": {"content": super().__call__(messages)}}], "usage": usage}


def columns_of(journal: Path, table: str) -> list[str]:
    return [row[0] for row in read_journal_rows(journal, "SELECT name FROM pragma_table_info(?)", (table,))]


@pytest.mark.parametrize("table", CHANGES)
def test_a_row_of_any_table_that_changed_is_named_with_run_and_table(tmp_path: Path, table: str) -> None:
    """Each column of a row, its state and its numbers too."""
    journal = unfinished(tmp_path / "half")
    tried = 0
    for column in columns_of(journal, table):
        if column in ("sum", *UNCHECKED.get(table, ())):
            continue
        root = tmp_path / f"{table}-{column}"
        shutil.copytree(tmp_path / "half", root)
        text = f"'x' || COALESCE({column}, '')"
        other = (
            f"CASE typeof({column}) WHEN 'integer' THEN {column} + 64 WHEN 'real' THEN 0.5 ELSE {text} END"
        )
        (copy,) = root.glob("*/journal.sqlite")
        rotten(copy, f"UPDATE {table} SET {column} = {other} WHERE {CHANGES[table]}")
        with pytest.raises(StorageError) as error:
            again(root)
        assert f"of its table {table} has changed" in str(error.value), column
        assert str(copy) in str(error.value) and "choose another run:" in str(error.value)
        tried += 1
    assert tried >= (1 if table == "meta" else 2)


def test_a_journal_whose_header_is_gone_starts_no_other_run(tmp_path: Path) -> None:
    journal = unfinished(tmp_path)
    rotten(journal, "UPDATE meta SET key = 'heeder' WHERE key = 'header'")
    with pytest.raises(StorageError, match="its header is missing"):
        again(tmp_path)


def unfinished(root: Path) -> Path:
    """A run that its model ended after 15 calls."""
    with pytest.raises(ProviderError):
        again(root, 15)
    (journal,) = root.glob("*/journal.sqlite")
    (root / "cache.sqlite").unlink(missing_ok=True)
    return journal


def again(root: Path, most: int = 1000) -> Any:
    return whet.optimize(
        "Sort: {{input}}", data=ROWS, reward=right, lm=Detailed(most), optimizer_lm="none", method="grips", root=root,
        progress=False, concurrency=1, budget=whet.Budget(calls=200),
    )  # fmt: skip


def test_an_event_that_changed_is_an_error_of_the_report_too(tmp_path: Path) -> None:
    journal = unfinished(tmp_path)
    rotten(journal, "UPDATE events SET value = replace(value, '0', '1') WHERE seq = 1")
    with pytest.raises(StorageError, match="of its table events has changed"):
        whet.report(journal.parent)


def test_a_fork_takes_no_answer_that_changed(tmp_path: Path) -> None:
    journal = unfinished(tmp_path)
    rotten(journal, f"UPDATE results SET value = value || ' ' WHERE {CHANGES['results']}")
    with pytest.raises(StorageError, match="of its table results has changed"):
        whet.optimize(
            "Sort: {{input}}", data=ROWS, reward=right, lm=Detailed(1000), optimizer_lm="none", method="grips", seed=1,
            root=tmp_path, fork=journal.parent, progress=False, budget=whet.Budget(calls=200),
        )  # fmt: skip


def test_a_journal_of_an_older_version_without_checksums_is_read_and_goes_on(tmp_path: Path) -> None:
    whole = again(tmp_path / "whole")
    journal = unfinished(tmp_path / "half")
    with sqlite3.connect(journal) as db:
        for table in CHANGES:
            db.execute(f"ALTER TABLE {table} DROP COLUMN sum")
    db.close()
    assert [event.name for event in read_events(journal)]
    assert whet.report(journal.parent).is_file()
    older = again(tmp_path / "half")
    assert (older.best.prompt.text, older.best.test.mean) == (whole.best.prompt.text, whole.best.test.mean)
    assert all("sum" in columns_of(journal, table) for table in CHANGES)
    unchecked = read_journal_rows(journal, "SELECT COUNT(sum), COUNT(*) FROM calls")[0]
    assert 0 < unchecked[0] < unchecked[1], "rows of then have none, new ones have"
