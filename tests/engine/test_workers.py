"""Worker processes: the same results as without, what hangs or dies, and what cannot be sent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import whet
from tests.engine.worker_jobs import (
    die_once,
    leave,
    length,
    make_no_json,
    match_for_ever,
    own_id,
    take_memory,
)
from tests.engine.world import child_processes
from whet._util.workers import Executor, Job, Work
from whet._util.workers.automatic import TRIED, Automatic
from whet._util.workers.pool import make_pool, send_frame
from whet.errors import UsageError
from whet.rewards.program import ProgramReward, load_grading, program_of_file, program_of_function
from whet.types import Example

REWARD = """
import os
from beside import exclaim

print("loading")

def reward(example, output):
    print("grading")
    if example["input"].endswith(("3", "4", "6")):
        raise ValueError(exclaim("three"))
    right = output == example["target"]
    return {"reward": float(right), "length": len(output), "critique": None if right else exclaim("wrong")}
"""


def echo(messages: Any) -> str:
    """Repeats the last word, but for one."""
    word = messages[-1].content.split()[-1]
    return "other" if word == "w5" else str(word)


class Counting:
    """`echo`, and how often it was asked."""

    version = "1"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Any) -> str:
        self.calls += 1
        return echo(messages)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task whose reward fails on one row and imports a file beside it."""
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.yaml").write_text("name: words\nprompt: prompt.md\ndata: rows.jsonl\nreward: reward.py\n")
    (task / "prompt.md").write_text("Say {{input}}")
    (task / "reward.py").write_text(REWARD)
    (task / "beside.py").write_text("def exclaim(text): return text + '!'\n")
    rows = [{"input": f"w{i}", "target": f"w{i}"} for i in range(40)]
    (task / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return task


def evaluate(folder: Path, workers: int | None, **options: Any) -> Mapping[str, Any]:
    where = folder.parent / f"run-{workers}"
    options = {"split": "train", "lm": echo, "run": where, "progress": False, **options}
    return whet.evaluate(folder, workers=workers, **options)


def rows_of(result: Mapping[str, Any]) -> Any:
    return [result[key] for key in ("score", "warnings")]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_result_is_that_of_one_process(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here, elsewhere = evaluate(folder, 0), evaluate(folder, 2)
    assert rows_of(here) == rows_of(elsewhere)
    assert any("reward.py:10: ValueError: three!" in warning for warning in here["warnings"])
    printed = capfd.readouterr()
    assert "grading" not in printed.out
    assert "grading" in printed.err and "loading" in printed.err
    assert not child_processes()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_goes_on_with_another_number_of_workers(folder: Path) -> None:
    model = Counting()
    first = evaluate(folder, 2, lm=model, run=folder.parent / "run")
    (folder.parent / "run" / "result.json").unlink()
    made = model.calls
    assert rows_of(evaluate(folder, 0, lm=model, run=folder.parent / "run")) == rows_of(first)
    assert model.calls == made > 0


def job(function: Callable[..., object], *values: Any, seconds: float = 30.0, spent: float = 0.0) -> Job:
    """A job of that function."""

    async def here() -> object:
        return function(*values)

    late = UsageError("too late")
    arguments = {"function": function.__name__, "values": list(values)}
    work = Work("tests.engine.worker_jobs:named", arguments)
    return Job(here, lambda: work, seconds, "f for row 1", lambda: late, True, lambda: spent)


async def do(*jobs: Job, count: int = 1, memory: int = 0) -> list[Any]:
    """Results and errors of jobs in a pool of their own."""
    return await do_all(make_pool(count, memory), jobs)


async def do_all(executor: Executor, jobs: Sequence[Job]) -> list[Any]:
    """Results and errors of jobs by an executor, which ends then."""
    try:
        return await asyncio.gather(*map(executor.run, jobs), return_exceptions=True)
    finally:
        await executor.close()


async def test_jobs_share_the_workers_and_each_is_another_process() -> None:
    ids = await do(*[job(own_id) for _ in range(8)], count=2)
    assert len(set(ids)) <= 2 and os.getpid() not in ids


async def test_what_holds_the_interpreter_is_killed_and_the_next_job_is_done() -> None:
    late, done = await do(job(match_for_ever, seconds=0.2), job(length, "abc"))
    assert str(late) == "too late" and done == 3


async def test_a_job_whose_worker_died_is_done_again(tmp_path: Path) -> None:
    assert await do(job(die_once, str(tmp_path / "marker"))) == ["done"]


async def test_a_job_that_ends_its_worker_each_time_is_given_up() -> None:
    (error,) = await do(job(leave, 7))
    assert isinstance(error, UsageError)
    assert "f for row 1: the worker process that ran it ended with exit code 7, 3 times" in str(error)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
async def test_a_worker_has_the_memory_that_it_is_given() -> None:
    assert await do(job(take_memory), memory=512) == ["refused"]
    assert await do(job(take_memory)) == ["taken"]


async def test_a_result_that_is_no_json_is_refused_and_named() -> None:
    (error,) = await do(job(make_no_json))
    assert isinstance(error, UsageError) and "no JSON" in str(error)


KEPT_BY_NO_JSON = {
    "tuple": (1, 2),
    "number as key": {1: 2},
    "set": {1, 2},
    "object": object(),
    "nan": float("nan"),
}


@pytest.mark.parametrize("value", KEPT_BY_NO_JSON.values(), ids=KEPT_BY_NO_JSON)
async def test_values_that_json_does_not_keep_are_refused(value: object) -> None:
    (error,) = await do(job(length, value))
    assert isinstance(error, UsageError) and "cannot be sent to a worker process" in str(error)


async def test_a_function_that_is_no_program_of_its_own_is_refused() -> None:
    held = object()
    reward = program_of_function(lambda example, output: float(held is None), "reward", 0.0, 1.0)
    (error,) = await do(grading(reward))
    assert isinstance(error, UsageError) and "cannot be sent to a worker process" in str(error)


async def test_a_cancelled_job_takes_its_worker_with_it() -> None:
    pool = make_pool(1)
    try:
        work = asyncio.ensure_future(pool.run(job(match_for_ever)))
        while not (child_processes() or work.done()):  # noqa: ASYNC110 (a process that starts sets no event here)
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await pool.run(job(length, "ab")) == 2
    finally:
        await pool.close()


def grading(reward: ProgramReward) -> Job:
    return reward.job(Example("e", {}, None, {"input": "w1", "target": "w1"}), "w1")


async def test_a_file_that_was_edited_since_is_refused(folder: Path) -> None:
    reward = program_of_file(folder, "reward.py", "task.yaml:4", 0.0, 1.0)
    (folder / "reward.py").write_text(REWARD + "\n# edited\n")
    (error,) = await do(grading(reward))
    assert isinstance(error, UsageError) and "was edited since the run began" in str(error)


def test_a_file_is_loaded_once_in_a_process(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reward = program_of_file(folder, "reward.py", "task.yaml:4", 0.0, 1.0)
    work, before = grading(reward).make_work(), capfd.readouterr().err.count("loading")
    grades = [load_grading(**work.arguments)() for _ in range(2)]
    assert grades[0] == grades[1] and before == 1
    assert capfd.readouterr().err.count("loading") == 1


async def test_slow_functions_move_to_workers_and_fast_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet._util.workers.automatic.count_processors", lambda: 2)
    monkeypatch.setattr("whet._util.workers.automatic.has_room_for", lambda copies: True)
    for spent, moved in ((0.5, True), (0.01, False)):
        said: list[str] = []
        executor = Automatic(said.append)
        try:
            ids = [await executor.run(job(own_id, spent=spent)) for _ in range(TRIED + 1)]
        finally:
            await executor.close()
        assert set(ids[:TRIED]) == {os.getpid()}
        assert (ids[TRIED] != os.getpid()) is moved
        assert ["f takes 0.5 s of the processor an answer" in line for line in said] == [True] * moved


SCRIPT = """
import sys, whet

def reward(example, output):
    return float(output == example["target"]) * SCALE

SCALE = 1.0

def failing(example, output):
    return helper(example) if example["input"].endswith(("1", "4", "7")) else 1.0

def helper(example):
    raise KeyError("gone")

rows = [{"input": f"w{i}", "target": f"w{i}"} for i in range(20)]

if __name__ == "__main__":
    task = {"data": rows, "reward": reward, "lm": lambda messages: messages[-1].content.split()[-1]}
    result = whet.evaluate("Say {{input}}", **task, split="train", workers=2, progress=False)
    print(result["score"]["mean"])
    task["reward"] = failing
    result = whet.evaluate("Say {{input}}", **task, split="train", workers=2, progress=False)
    print(*result["warnings"])
"""


def test_a_function_of_a_script_is_sent_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mean, warning = done.stdout.splitlines()
    assert mean == "1.0"
    line = SCRIPT.splitlines().index(next(one for one in SCRIPT.splitlines() if "return helper" in one)) + 1
    assert f"script.py:{line}: KeyError: 'gone'" in warning


PARENT = """
import asyncio, sys
from tests.engine.test_workers import job, match_for_ever
from whet._util.workers.pool import make_pool, send_frame

asyncio.run(make_pool(1).run(job(match_for_ever)))
"""


def test_workers_end_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT]) as parent:
        while not (children := psutil.Process(parent.pid).children()):
            assert parent.poll() is None
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@pytest.mark.parametrize(("name", "value"), [("workers", -1), ("workers", "two"), ("worker_memory", 1)])
def test_numbers_that_are_none_are_refused(folder: Path, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a whole number"):
        whet.evaluate(folder, lm=echo, **{name: value})


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_sent_to_a_process_that_is_dead_is_no_error_in_any_loop(loop: str) -> None:
    """asyncio warns where uvloop, which servers and the actors of Ray use, raises."""

    async def send() -> None:
        process = await asyncio.create_subprocess_exec("true", stdin=subprocess.PIPE)
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        await send_frame(process, b"nobody reads this")

    pytest.importorskip(loop).run(send())
