"""The scripts in examples/ run as they stand: in an empty folder, without a key, in seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SAYS = {
    "agent": [r"Promoted: better by 1 on average", r"act earned 1\.00", r"answer earned 0\.\d+"],
    "classifier": [r"Promoted: better by 0\.\d+ on average", r"Review: \{\{review\}\}"],
    "comments": [r"\+ Give times as 18:00\.  \(rests on r3\)", "- Answer in at most three", "undone True"],
    "own_method": [r"climb: [01]\.\d+ on the sealed test", r"random_search: 0\.\d+ on the sealed test"],
    "two_step": [r"Promoted: better by 0\.\d+ on average", r"search earned 0\.\d+", r"answer earned 0\.\d+"],
}


def test_every_script_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == SAYS.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=pytest.mark.long) if one in ("agent", "two_step") else one
        for one in sorted(SAYS)
    ],
)
def test_an_example_runs_offline(tmp_path: Path, name: str) -> None:
    offline = (
        "import runpy, sys\n"
        "def stay(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'):\n"
        "        raise PermissionError('examples need no network')\n"
        "sys.addaudithook(stay)\n"
        f"runpy.run_path({str(FOLDER / f'{name}.py')!r}, run_name='__main__')\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", offline], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for pattern in SAYS[name]:
        assert re.search(pattern, done.stdout), done.stdout


def test_the_classifier_takes_fifteen_lines() -> None:
    lines = (FOLDER / "classifier.py").read_text().splitlines()[2:]
    assert len([line for line in lines if line.strip()]) == 15
