"""Verifiers in a worker process: the grades of this process, and nothing of the code of answers starts from here."""

from __future__ import annotations

import importlib
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from whet._util import confined
from whet._util.workers.automatic import PROCESSES, make_executor
from whet._util.workers.process import load_work
from whet.errors import UsageError
from whet.rewards import build_reward
from whet.rewards.verifiers import measured
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward

pytestmark = pytest.mark.skipif(not confined.is_enforced(), reason="takes Landlock")

TESTS = {"tests": ["assert double(2) == 4", "assert double(0) == 0"]}
PROGRAM = "Minimize\n obj: x\nSubject To\n c1: x >= {}\nEnd"
CASES: list[tuple[Any, str, str, Any, dict[str, Any]]] = [
    ("python_tests", "```python\ndef double(x): return 2 * x\n```", "def double(x): return 1", None, TESTS),
    ({"sql": {"database": "shop.db"}}, "SELECT name FROM items", "SELECT nme", "SELECT name FROM items", {}),
    ("math_equal", "(x+1)^2", "x^3+1", "x^2+2x+1", {}),
    ("solver", PROGRAM.format(3), PROGRAM.format(2), 3, {}),
    ("compiles", "x = 1", "x = = 1", None, {}),
    ([{"compiles": 0.5}, {"exact_match": 0.5}], "x = 1", "x = = 1", "x = 1", {}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE items (name TEXT)")
        database.execute("INSERT INTO items VALUES ('cup')")
    return tmp_path


async def grade_all(folder: Path, run: MemoryRun) -> list[Reward]:
    return [
        await build_reward(spec, folder, "task.yaml:1").grade(
            run, Example("1", {"input": "q"}, target, row), Completion(answer)
        )
        for spec, right, wrong, target, row in CASES
        for answer in (right, wrong)
    ]


async def test_grades_are_those_of_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, run = await grade_all(folder, MemoryRun()), MemoryRun()
    assert [grade.value for grade in here] == [1.0, 0.0] * len(CASES)

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("this process confines no answer itself")

    for name in ("python_tests", "sql", "math_equal", "solver", "compiles"):
        module = importlib.import_module(f"whet.rewards.verifiers.{name}")
        for starting in ("run_confined", "start_confined"):
            monkeypatch.setattr(module, starting, refuse, raising=False)
    run.executor = make_executor(PROCESSES, 1, None, 1, print)
    try:
        assert await grade_all(folder, run) == here
    finally:
        await run.executor.close()


def test_a_machine_without_the_database_or_a_package_is_told_at_once(folder: Path) -> None:
    sql, algebra = (
        measured.measured_in(build_reward(spec, folder, "task.yaml:1"))
        for spec in ({"sql": {"database": "shop.db"}}, ["math_equal"])
    )
    work = next(sql).make_work_to_load()
    (folder / "shop.db").unlink()
    with pytest.raises(UsageError, match=r"the reward sql uses .*shop\.db, which is not there"):
        load_work(asdict(work))
    work = next(algebra).make_work_to_load()
    arguments = {**work.arguments, "versions": {"sympy": "0.1"}}
    with pytest.raises(UsageError, match=r"sympy is .*, and the run has sympy 0\.1"):
        load_work({"loader": work.loader, "arguments": arguments})
