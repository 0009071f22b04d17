"""`whet compare --jobs`: Ctrl-C and a kill end every process, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_contract import PATIENCE, hear_interrupts
from tests.command_line import whet_here
from tests.crash.world import write_task
from tests.serving import server_thread

WAITS = """import os, pathlib, threading

def reward(example, output):
    if pathlib.Path("wait").exists():
        pathlib.Path(f"pid-{os.getpid()}").touch()
        threading.Event().wait()
    return float(output == example["target"])
"""
OPTIONS = ["--max-calls", "60", "--reader", "none", "--out", "runs", "--jobs", "2"]
WORDS = ["compare", "task", "--methods", "grips,random_search", *OPTIONS]


def begin(folder: Path, url: str) -> subprocess.Popen[str]:
    """The command in the middle of two runs, each of which waits in its reward."""
    write_task(folder / "task")
    path = folder / "task" / "task.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("reward:")]
    path.write_text("\n".join([*lines, "reward: reward.py", ""]))
    (folder / "task" / "reward.py").write_text(WAITS)
    (folder / "wait").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *WORDS, "--base-url", url], cwd=folder, text=True,
        env={**os.environ, "OPENAI_API_KEY": "sk-test"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=hear_interrupts, start_new_session=True,
    )  # fmt: skip
    _wait(lambda: len(list(folder.glob("pid-*"))) == 2 or process.poll() is not None)
    return process


def _wait(until: object) -> None:
    """Wait until a function says so, or the patience ends."""
    assert callable(until)
    end = time.monotonic() + PATIENCE
    while not until() and time.monotonic() < end:
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_the_end_of_the_command_ends_its_jobs_and_the_same_command_goes_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    with server_thread("--function", "tests.crash.answers:answer") as url:
        process = begin(tmp_path, url)
        jobs = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
        assert len(jobs) == 2 and process.pid not in jobs, process.communicate()[1]
        if how == signal.SIGTERM:  # as process managers send it
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE)
        if how != signal.SIGKILL:
            assert process.returncode == 128 + how and "resumes" in said and "Traceback" not in said
        _wait(lambda: not any(map(_is_alive, jobs)))
        assert not any(map(_is_alive, jobs))
        (tmp_path / "wait").unlink()
        done = whet_here(tmp_path, *WORDS, "--base-url", url, "--json", OPENAI_API_KEY="sk-test")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["method"] for run in runs] == ["grips", "random_search"]
    assert all(sum(run["usage"]["calls"].values()) <= 60 for run in runs)
