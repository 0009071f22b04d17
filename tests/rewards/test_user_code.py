"""Functions of a user in a thread of their own: what they print, and what others print at the same time."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from contextvars import ContextVar
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import whet
from whet._util import user_code
from whet._util.user_code import OutOfTime, call_within, run_file

PRINTING = """
import asyncio, sys, threading
from whet._util.user_code import call_within

async def rollouts():
    for _ in range(300):
        await call_within(lambda: print("a reward's"), 60, "a reward")

others = [threading.Thread(target=lambda: asyncio.run(rollouts())) for _ in range(2)]
for other in others:
    other.start()
lines = 0
while any(other.is_alive() for other in others):
    print("a line", flush=True)
    lines += 1
assert sys.stdout is sys.__stdout__
print(lines)
"""


def test_other_threads_print_while_functions_run() -> None:
    """Each line once and in its place, and no crash: `sys.stdout` is shared by all threads."""
    done = subprocess.run([sys.executable, "-c", PRINTING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, count = done.stdout.splitlines()
    assert lines == ["a line"] * int(count)
    assert done.stderr.count("a reward's") == 600


def test_an_output_that_somebody_else_put_in_place_stays(capsys: pytest.CaptureFixture[str]) -> None:
    own, printed = StringIO(), threading.Event()

    def reward() -> None:
        print("from the reward")
        printed.set()

    async def steps() -> None:
        waiting = asyncio.ensure_future(call_within(reward, 60, "a reward"))
        await asyncio.sleep(0)
        printed.wait()
        with redirect_stdout(own):
            await waiting
            print("mine")

    before = sys.stdout
    asyncio.run(steps())
    print("after")
    assert own.getvalue() == "mine\n"
    assert "after" in capsys.readouterr().out
    assert sys.stdout is before or getattr(sys.stdout, "out", None) is before


async def test_functions_share_a_thread_but_not_with_one_that_hangs() -> None:
    hung, threads = threading.Event(), list[int]()

    def stays() -> None:
        threads.append(threading.get_ident())
        hung.wait()

    first = await call_within(threading.get_ident, 60, "a reward")
    assert await call_within(threading.get_ident, 60, "a reward") == first
    with pytest.raises(OutOfTime):
        await call_within(stays, 0.05, "a reward")
    assert await call_within(threading.get_ident, 60, "a reward") not in threads
    hung.set()


def test_a_process_that_is_forked_has_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "parent\nchild\n"), done.stderr[-2000:]


FORKED = """
import asyncio, os
from whet._util.user_code import call_within
print(asyncio.run(call_within(lambda: "parent", 60, "a reward")), flush=True)
if (child := os.fork()) == 0:
    print(asyncio.run(call_within(lambda: "child", 30, "a reward")), flush=True)
    os._exit(0)
raise SystemExit(os.waitpid(child, 0)[1])
"""


async def test_what_nobody_waits_for_any_more_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    """A coroutine that a function returns too late, and one whose caller is gone before it begins."""
    late, kept = threading.Event(), list[Any]()

    async def value() -> float:
        return 1.0

    def returns() -> Any:
        with suppress(BaseException):  # what ends it
            late.wait()
        kept.append(value())
        return kept[-1]

    with pytest.raises(OutOfTime):
        await call_within(returns, 0.01, "a reward")
    late.set()
    for _ in iter(lambda: [inspect.getcoroutinestate(one) for one in kept], [inspect.CORO_CLOSED]):
        await asyncio.sleep(0)
    waiting = asyncio.ensure_future(call_within(value, 5, "a reward"))
    while not waiting.done():
        await asyncio.sleep(0)
        waiting.cancel()
    gc.collect()
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


def test_a_file_that_does_not_end_is_named_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(user_code, "SAID_AFTER", 0.01)
        patch.setattr(user_code, "ENDED_AFTER", 0.02)
        with pytest.raises(OutOfTime):
            run_file(ended.wait, "task/reward.py")
    ended.set()
    assert [record.getMessage() for record in caplog.records] == [
        "task/reward.py is still running, and is given up after 0 s; Ctrl-C ends it."
    ]
    assert run_file(lambda: 5, "task/reward.py") == 5 and len(caplog.records) == 1


@pytest.mark.parametrize("name", ["reward.py", "data.py"])
def test_a_file_of_a_task_that_does_not_end_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "SAID_AFTER", 0.01)
    monkeypatch.setattr(user_code, "ENDED_AFTER", 0.05)
    (tmp_path / name).write_text("import time\ntime.sleep(5)\n")
    choice = {"reward": str(tmp_path / name)} if name == "reward.py" else {"data": tmp_path / name}
    words: dict[str, Any] = {"data": [{"input": f"q{n}", "target": "a"} for n in range(9)], "reward": "f1"}
    with pytest.raises(whet.UsageError, match=rf"{name}:1: the file does not end"):
        whet.Task.of("Say {{input}}", **{**words, **choice})


async def begin(release: threading.Event) -> Any:
    """A call that waits for the event, which its event loop leaves behind."""
    call = call_within(release.wait, 60, "a reward")
    call.send(None)
    return call


def test_a_call_that_was_given_up_leaves_the_directory_of_later_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that ends early leaves its coroutines to the collector, which closes them while something else runs."""
    release = threading.Event()
    monkeypatch.chdir(tmp_path)

    call = asyncio.run(begin(release))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    try:
        with suppress(RuntimeError):  # its event loop is closed
            call.close()
        assert Path.cwd() == elsewhere
    finally:
        release.set()


def test_a_call_that_its_loop_left_behind_keeps_no_later_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later function's directory stayed: the call that was left behind counted as one under way."""
    release = threading.Event()
    monkeypatch.chdir(tmp_path)

    left = asyncio.run(begin(release))
    try:
        asyncio.run(call_within(lambda: os.chdir("/"), 60, "another reward"))
        assert Path.cwd() == tmp_path
    finally:
        release.set()
        with suppress(RuntimeError):
            left.close()


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_functions_see_the_context_variables_of_the_call_that_they_answer(tmp_path: Path) -> None:
    """Two evaluations at once; a client that the caller put in place, or a span, is the one of each."""

    async def evaluate(tenant: str) -> set[tuple[str, str]]:
        TENANT.set(tenant)
        seen = set[tuple[str, str]]()

        def note(who: str) -> None:
            seen.add((who, TENANT.get()))

        def model(messages: list[Any]) -> str:
            note("model")
            return "a"

        def reward(example: Any, output: str) -> float:
            note("reward")
            return 1.0

        async def program(lm: Any, prompts: Any, example: Any) -> Any:
            note("program")
            TENANT.set(f"{tenant}'s own")
            await lm.tool(lambda: note("tool"))
            return await lm("a")

        functions: list[Any] = [model, reward, program]
        for function in functions:
            function.version = tenant
        data = [{"input": f"q{i}"} for i in range(9)]
        task = whet.Task.of({"a": "Answer {{input}}"}, program=program, data=data, reward=reward)
        await whet.aevaluate(task, lm=model, run=tmp_path / tenant, progress=False)
        assert TENANT.get() == tenant
        return seen

    both = await asyncio.gather(evaluate("ann"), evaluate("bob"))
    for tenant, seen in zip(("ann", "bob"), both, strict=True):
        own = f"{tenant}'s own"
        assert seen == {("program", tenant), ("tool", own), ("model", own), ("reward", tenant)}


async def test_a_call_of_whet_in_a_function_has_no_main_thread_to_wait_for() -> None:
    """The main thread serves the outer call and may be waiting for this very function."""
    seen: list[object] = []
    token = user_code.MAIN.set(user_code.MainThread())
    try:
        await user_code.call_beside(lambda: seen.append(user_code.MAIN.get()), 60)
    finally:
        user_code.MAIN.reset(token)
    assert seen == [None]
