"""Ctrl-C and SIGTERM in the middle of reward code, of a slow endpoint and of code that holds the process; a reward that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, rows
from tests.cli.test_contract import hear_interrupts
from tests.cli.test_contract import in_a_process as command
from tests.command_line import whet_here
from tests.crash.world import write_task
from tests.serving import server_thread
from whet.engine.journal import read_journal_rows

DEF = "import pathlib, threading\n\ndef reward(example, output):\n    pathlib.Path('there').touch()\n"
HANG = f"{DEF}    threading.Event().wait()\n"
HOLDS = f"{DEF}    import re\n    return float(bool(re.search('^(a|a)+$', 'a' * 60 + '!')))\n"
"""A match that keeps the interpreter's lock for years."""
BUSY = f"{DEF}    while True:\n        pass\n"
PATIENCE = 240.0
"""Seconds until a process is given up. It ends in two; what is interrupted would go on for an hour or for ever."""
LOADING = "import pathlib, threading\npathlib.Path('there').touch()\nthreading.Event().wait()\n"


def task(folder: Path, reward: str, more: str = "") -> None:
    """The crash world with a reward of its own."""
    write_task(folder / "task")
    path = folder / "task" / "task.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("reward:")]
    path.write_text("\n".join([*lines, "reward: reward.py", more, ""]))
    (folder / "task" / "reward.py").write_text(reward)


def interrupt(
    folder: Path, url: str, ready: Callable[[], bool], times: int = 1, command: str = "",
    how: signal.Signals = signal.SIGINT, hearing: Callable[[], None] = hear_interrupts,
    program: Sequence[str] = ("-m", "whet"),
) -> tuple[int, str]:  # fmt: skip
    """Exit code, and what was said."""
    words = (command or f"optimize task --method grips --base-url {url} --out run").split()
    process = subprocess.Popen(
        [sys.executable, *program, *words], cwd=folder, env={**os.environ, "OPENAI_API_KEY": "sk-test"}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=hearing,
    )  # fmt: skip
    while not ready() and process.poll() is None:
        time.sleep(0.01)
    for _ in range(times):
        process.send_signal(how)
    _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, said


@pytest.mark.parametrize("reward", [HANG, BUSY, LOADING], ids=["waits", "computes", "loads"])
def test_an_interrupt_ends_a_run_in_the_middle_of_reward_code(tmp_path: Path, reward: str) -> None:
    task(tmp_path, reward)
    with server_thread("--function", "tests.crash.answers:answer") as url:
        code, said = interrupt(tmp_path, url, (tmp_path / "there").exists)
        assert code == 130 and "resumes" in said and "Traceback" not in said


def ignore_interrupts() -> None:
    """What a shell does to a command that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("reward", "times", "hearing"), [(HANG, 2, ignore_interrupts), (LOADING, 1, hear_interrupts)]
)
def test_sigterm_ends_a_run_as_an_interrupt_does_and_a_second_one_changes_nothing(
    tmp_path: Path, reward: str, times: int, hearing: Callable[[], None]
) -> None:
    """`timeout` sends the signal to a process and then to the group that it is in."""
    task(tmp_path, reward)
    there = (tmp_path / "there").exists
    with server_thread("--function", "tests.crash.answers:answer") as url:
        code, said = interrupt(tmp_path, url, there, times, how=signal.SIGTERM, hearing=hearing)
    assert code == 143 and said.count("resumes") == 1 and "Traceback" not in said, said


def test_sigterm_ends_a_command_that_waits_for_its_model_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Answer.\n")
    (tmp_path / "feedback.csv").write_text("comment\nAnswer in one sentence.\n")
    ledger = tmp_path / "ledger.jsonl"
    with server_thread("--text", "x", "--ledger", str(ledger), "--latency", "3600") as url:
        words = f"learn prompt.md feedback.csv --optimizer-lm openai/gpt-x --base-url {url} --yes"
        ready = lambda: ledger.exists() and ledger.read_text() != ""  # noqa: E731
        code, said = interrupt(tmp_path, url, ready, command=words, how=signal.SIGTERM)
    assert code == 143 and "Interrupted" in said and "Traceback" not in said, said
    assert "resumes the run" not in said, said
    assert (tmp_path / "prompt.md").read_text() == "Answer.\n"


def test_an_interrupt_does_not_wait_for_a_slow_endpoint_and_counts_what_it_gave_up(tmp_path: Path) -> None:
    write_task(tmp_path / "task")
    ledger = tmp_path / "ledger.jsonl"
    slow = ("--function", "tests.crash.answers:answer", "--ledger", str(ledger), "--latency", "3600")
    with server_thread(*slow) as url:
        journal = tmp_path / "run" / "journal.sqlite"
        code, said = interrupt(tmp_path, url, lambda: _open_calls(journal) > 0)
    assert code == 130 and "resumes" in said
    assert _open_calls(journal) > 0, "what was sent may have been billed"
    with server_thread("--function", "tests.crash.answers:answer") as url:
        words = ("optimize", "task", "--method", "grips", "--base-url", url, "--out", "run", "--json")
        done = whet_here(tmp_path, *words, OPENAI_API_KEY="sk-test")
    assert done.returncode == 0, done.stderr
    assert any("in flight" in warning for warning in json.loads(done.stdout)["warnings"])


@pytest.mark.parametrize(
    ("times", "how"),
    [
        (2, signal.SIGINT),
        pytest.param(1, signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(1, signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_ends_a_run_whose_reward_holds_the_interpreter(
    tmp_path: Path, times: int, how: signal.Signals
) -> None:
    task(tmp_path, HOLDS)
    with server_thread("--function", "tests.crash.answers:answer") as url:
        code, said = interrupt(tmp_path, url, (tmp_path / "there").exists, times, how=how)
    assert (code, "resumes" in said) == (-signal.SIGKILL, True)


def test_a_reward_that_holds_the_interpreter_ends_at_its_limit_with_its_row(tmp_path: Path) -> None:
    task(tmp_path, HOLDS, "reward_timeout: 0.2")
    with server_thread("--function", "tests.crash.answers:answer") as url:
        done = command(tmp_path, "evaluate", "task", "--base-url", url)
    assert done.returncode == -signal.SIGKILL
    assert "reward.py: reward() for row" in done.stderr and "has not returned after 0.2 s" in done.stderr


DIES = """
import os

def reward(row, output):
    if os.path.exists("dies") and output not in ("xqzv", "", row["target"]):
        os._exit(7)
    return float(output == row["target"])
"""


def test_a_reward_that_ends_the_process_is_named_with_its_row_and_the_run_goes_on(tmp_path: Path) -> None:
    task(tmp_path, DIES)
    (tmp_path / "dies").touch()
    with server_thread("--text", "something else") as url:
        words = ("evaluate", "task", "--base-url", url, "--out", "run", "--json")
        died = command(tmp_path, *words)
        assert died.returncode == 7 and "--workers 1" in died.stderr
        assert "the process ended while reward.py: reward() for row" in died.stderr
        (tmp_path / "dies").unlink()
        done = whet_here(tmp_path, *words, OPENAI_API_KEY="sk-test")
    assert done.returncode == 0 and "the process ended" not in done.stderr, done.stderr
    assert json.loads(done.stdout)["score"]["mean"] == 0.0


def test_a_pattern_that_backtracks_is_an_error_with_its_row(tmp_path: Path) -> None:
    task(tmp_path, "", "reward_timeout: 0.2")
    yaml = tmp_path / "task" / "task.yaml"
    yaml.write_text(yaml.read_text().replace("reward: reward.py", "reward: {regex: {pattern: '^(a|a)+$'}}"))
    with server_thread("--text", f"{'a' * 60}!") as url:
        done = whet_here(tmp_path, "evaluate", "task", "--base-url", url, OPENAI_API_KEY="sk-test")
    assert done.returncode == 2 and "for row" in done.stderr and "reward_timeout" in done.stderr, done.stderr


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    task(tmp_path, LOADING)
    code, _ = interrupt(tmp_path, "http://127.0.0.1:9/v1", (tmp_path / "there").exists, times=2)
    assert code == 130


def test_an_interrupt_ends_an_examination(tmp_path: Path) -> None:
    task(tmp_path, HANG)
    there = (tmp_path / "there").exists
    patient = "import whet.api.doctor.rewards as r; r.PATIENCE = 3600.0; import whet.__main__ as m; m.run()"
    words = "doctor task --no-calls"
    code, said = interrupt(tmp_path, "", there, command=words, program=("-c", patient))
    assert code == 130 and "Traceback" not in said


EARLY = """
import os, signal, sys

class AtTheCommands:
    def find_spec(self, name, path=None, target=None):
        if name == "whet.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtTheCommands())
from whet.__main__ import run
run()
"""


def test_an_interrupt_while_the_commands_are_loaded_says_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EARLY], capture_output=True, text=True, preexec_fn=hear_interrupts
    )
    assert ended.returncode == -signal.SIGINT and ended.stderr == "", ended.stderr


def _open_calls(journal: Path) -> int:
    try:
        return len(read_journal_rows(journal, "SELECT 1 FROM calls WHERE state = 'open'"))
    except Exception:
        return 0


def test_a_reward_that_hangs_is_an_error_with_its_row_and_a_remedy(tmp_path: Path) -> None:
    task(tmp_path, HANG, "reward_timeout: 0.2")
    with server_thread("--function", "tests.crash.answers:answer") as url:
        done = whet_here(tmp_path, "evaluate", "task", "--base-url", url, OPENAI_API_KEY="sk-test")
    assert done.returncode == 2
    assert "reward.py: reward() has not returned after 0.2 s for row" in done.stderr
    assert "reward_timeout" in done.stderr and "Traceback" not in done.stderr


def test_a_reward_function_has_a_time_limit_in_python_too(tmp_path: Path) -> None:
    def hangs(example: object, output: str) -> float:
        threading.Event().wait()
        return 0.0

    async def waits(example: object, output: str) -> float:
        await asyncio.Event().wait()
        return 0.0

    def times_out(example: object, output: str) -> float:
        raise TimeoutError("its own")

    words: dict[str, Any] = {"data": rows(), "lm": Counted(), "root": tmp_path}
    functions: list[Any] = [hangs, waits]
    for reward in functions:
        with pytest.raises(whet.UsageError, match=r"has not returned after 0\.1 s for row \w+ at data\["):
            whet.evaluate(PROMPT, reward=reward, reward_timeout=0.1, **words)
    with pytest.raises(whet.UsageError, match="its own"):
        whet.evaluate(PROMPT, reward=times_out, reward_timeout=5, **words)
    with pytest.raises(whet.UsageError, match="reward_timeout"):
        whet.evaluate(PROMPT, reward=hangs, reward_timeout=0, **words)
