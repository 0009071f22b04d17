"""Functions of a user in a thread of their own: what they print, and what others print at the same time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from whet.rewards.timed import call_within

PRINTING = """
import asyncio, sys, threading
from whet.rewards.timed import call_within

async def rollouts():
    for _ in range(300):
        await call_within(lambda: print("a reward's"), 60)

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
    own = StringIO()

    async def steps() -> None:
        waiting = asyncio.ensure_future(call_within(lambda: print("from the reward"), 60))
        await asyncio.sleep(0)
        with redirect_stdout(own):
            await waiting
            print("mine")

    before = sys.stdout
    asyncio.run(steps())
    print("after")
    assert own.getvalue() == "mine\n"
    assert "after" in capsys.readouterr().out
    assert sys.stdout is before or getattr(sys.stdout, "out", None) is before
