"""The standard output of a command in a process of its own: what it prints, and nothing of what its task's code starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REWARD = """import os
import threading


def reward(example, output):
    os.write(1, b"from C\\n")
    thread = threading.Thread(target=print, args=("from a thread",))
    thread.start()
    thread.join()
    os.system("echo from a child")
    return float(output == example["target"])
"""


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whet", *arguments],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task whose reward prints past Python."""
    task = tmp_path / "task"
    task.mkdir()
    rows = [{"input": f"Dish {i} was {w}.", "target": w} for i in range(10) for w in ("good", "bad")]
    (task / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (task / "prompt.md").write_text("What is it?\n{{input}}")
    (task / "reward.py").write_text(REWARD)
    (task / "task.yaml").write_text(
        "name: task\nprompt: prompt.md\ndata: rows.jsonl\nreward: reward.py\nlabels: [good, bad]\n"
    )
    return tmp_path


def test_json_stands_alone_where_a_reward_starts_programs(folder: Path) -> None:
    done = start(folder, "evaluate", "task", "--lm", "scripted/labels", "--json")
    assert json.loads(done.stdout)["task"] == "task"
    assert all(f"from {source}" in done.stderr for source in ("C", "a thread", "a child"))
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes the output")
def test_a_command_without_an_output_ends_with_its_own_code(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "whet",
        "check",
        "task",
        "--lm",
        "scripted/labels",
        "--threshold",
        "0",
        "--json",
    ]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are UTF-8 in every locale")
def test_a_name_that_the_locale_cannot_write_is_refused_with_a_remedy(folder: Path) -> None:
    named = (folder / "task" / "task.yaml").read_text().replace("name: task", "name: tâche")
    (folder / "task" / "task.yaml").write_text(named, encoding="utf-8")
    ascii_names = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = start(folder, "evaluate", "task", "--lm", "scripted/labels", **ascii_names)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "PYTHONUTF8=1" in done.stderr
