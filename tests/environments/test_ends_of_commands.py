"""What a command has started ends with the command, and with whet, however whet ends."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_contract import hear_interrupts
from tests.environments.test_harness import answers, task

import whet

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a process that has left its group is found by its environment in /proc"
)
HOLDS = """\
import os, signal, subprocess, sys, threading
signal.alarm(120)  # nothing of it outlives a test that fails
pipe = os.open(PIPE, os.O_WRONLY)
waits = "import signal, threading; signal.alarm(120); threading.Event().wait()"
for apart in (False, True):
    subprocess.Popen([sys.executable, "-c", waits], pass_fds=[pipe], start_new_session=apart)
os.write(pipe, b"begun ")
"""
"""A command that starts a process in its group and one outside of it; all three hold a named pipe."""
WAITS = "threading.Event().wait()\n"


class Pipe:
    """A named pipe that commands hold."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.holds = HOLDS.replace("PIPE", repr(str(path)))
        self.end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> bytes:
        """The next words; empty once no process holds the pipe any more."""
        assert select.select([self.end], [], [], 60)[0], "a process that a command has started lives on"
        return os.read(self.end, 4096)

    def read_to_the_end(self) -> bytes:
        return b"".join(iter(self.read, b""))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "pipe")
    yield made
    os.close(made.end)


@pytest.mark.parametrize("where", ["command", "check"])
def test_what_a_command_starts_ends_with_it_in_a_session_of_its_own_too(
    tmp_path: Path, pipe: Pipe, where: str
) -> None:
    agent, check = (pipe.holds if where == name else "" for name in ("command", "check"))
    (tmp_path / "other.py").write_text(check)
    folder = task(tmp_path, f"{agent}print('yes')", check=["python", "other.py"])
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.json["failed"] == 0 and pipe.read_to_the_end() == b"begun " * result.score.n


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (signal.SIGINT, "--workers 1"),
        (signal.SIGTERM, ""),
        (signal.SIGKILL, "--workers 1"),
        pytest.param(signal.SIGINT, "", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "--workers 1", marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, "", marks=pytest.mark.long),
    ],
)
def test_commands_that_are_under_way_end_with_whet(
    tmp_path: Path, pipe: Pipe, how: signal.Signals, workers: str
) -> None:
    task(tmp_path, pipe.holds + WAITS, seconds=600)
    words = f"evaluate . --lm openai/m --base-url http://127.0.0.1:9/v1 --concurrency 1 {workers}".split()
    with subprocess.Popen(
        [sys.executable, "-m", "whet", *words], cwd=tmp_path, env={**os.environ, "OPENAI_API_KEY": "sk-test"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=hear_interrupts,
    ) as process:  # fmt: skip
        assert pipe.read()
        process.send_signal(how)
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)
    pipe.read_to_the_end()


def test_a_command_ends_with_an_evaluation_that_is_cancelled(tmp_path: Path, pipe: Pipe) -> None:
    folder = task(tmp_path, pipe.holds + WAITS, seconds=600)

    async def cancel() -> None:
        evaluation = asyncio.ensure_future(
            whet.aevaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
        )
        assert await asyncio.to_thread(pipe.read)
        evaluation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluation

    asyncio.run(cancel())
    pipe.read_to_the_end()


def test_a_command_ends_with_the_limit_of_seconds(tmp_path: Path, pipe: Pipe) -> None:
    folder = task(tmp_path, pipe.holds + WAITS, seconds=600)
    budget = whet.Budget(seconds=2)
    result = whet.optimize(
        folder, lm=answers, method="random_search", budget=budget, run=tmp_path / "r", progress=False
    )
    assert not result["tested"]
    pipe.read_to_the_end()


@pytest.mark.parametrize("ends", [False, True], ids=["killed", "ended"])
def test_what_the_command_of_a_verifier_starts_ends_too(tmp_path: Path, pipe: Pipe, ends: bool) -> None:
    code = pipe.holds.replace("pass_fds", "stdout=-3, stderr=-3, pass_fds") + ("" if ends else WAITS)
    reward = {"compiles": {"command": [sys.executable, "-c", code]}}
    script = (
        "import whet; rows = [{'input': f'q{n}'} for n in range(9)]; "
        f"whet.evaluate('Write {{{{input}}}}', lm=lambda messages: 'x', data=rows, reward={json.dumps(reward)})"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        assert pipe.read()
        if not ends:
            process.kill()
    assert process.returncode == (0 if ends else -signal.SIGKILL)
    pipe.read_to_the_end()
