"""Prompt learning on an endpoint that this project did not write: hidden rules, a simulated optimizer with its own habits.

It is read in place, from ../shared/worlds (or WHET_SHARED_WORLDS), and skipped where that is absent.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whet import api
from whet.run import Budget

ROOT = Path(__file__).resolve().parents[2]
WORLDS = Path(os.environ.get("WHET_SHARED_WORLDS", ROOT.parent / "shared" / "worlds"))
REWARD = """
import sys
sys.path.insert(0, {worlds!r})
from rulesworld import world

def reward(example, output):
    share, whole, critiques = world.critiques(output, {rules})
    return {{"reward": share, "critique": "\\n".join(critiques), "whole": float(whole)}}
"""
pytestmark = pytest.mark.skipif(
    not (WORLDS / "rulesworld").is_dir(), reason="needs the worlds beside the repository"
)


@pytest.fixture(params=["right", "off", "zero"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rulesworld", "--port", str(port), "--points", request.param]
    server = subprocess.Popen(command, cwd=WORLDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, "the endpoint does not answer"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"the endpoint ended with {server.wait(0.05)}")
        yield f"{url}/v1"
    finally:
        server.terminate()
        server.wait(10)


def write_task(folder: Path, rules: int) -> Path:
    sys.path.insert(0, str(WORLDS))
    try:
        from rulesworld import world
    finally:
        sys.path.remove(str(WORLDS))
    folder.mkdir()
    rows = [{"id": f"r{n}", "input": text} for n, text in enumerate(world.requests(140))]
    for split, part in (("train", rows[:90]), ("validation", rows[90:110]), ("test", rows[110:])):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, part)))
    (folder / "prompt.md").write_text("Create the JSON webpage.\n<!-- whet:begin -->\n<!-- whet:end -->\n")
    (folder / "task.yaml").write_text(
        "{name: pages, prompt: prompt.md, reward: reward.py,"
        " data: {train: train.jsonl, validation: validation.jsonl, test: test.jsonl}}"
    )
    (folder / "reward.py").write_text(REWARD.format(worlds=str(WORLDS), rules=rules))
    return folder


def test_hidden_rules_of_others_are_learned_whatever_the_numbers_of_the_reader_are_worth(
    endpoint: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"lm": "openai/mock-task-25", "optimizer_lm": "openai/mock-optimizer-25"}
    result = api.optimize(
        write_task(tmp_path / "task", 25), method="prompt_learning", base_url=endpoint, run=tmp_path / "run",
        budget=Budget(task_calls=300, optimizer_calls=20),  **options,
    )  # fmt: skip
    assert result["baseline"]["test"]["mean"] < 0.4
    assert result["best"]["test"]["mean"] >= 0.95, "more than one rule of 25 is lost"
    lines = [line for line in result["best"]["prompt"].splitlines() if line.startswith("- ")]
    assert 24 <= len(lines) <= 34
    assert not any(
        "breaks a rule" in line or "but page-1 has" in line or "must not start" in line for line in lines
    )
