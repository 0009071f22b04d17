"""Kill -9 at boundaries inside the rollouts of a program: nothing recorded is paid again, and the answer is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash import test_every_boundary as crash

PROGRAM = """
async def program(lm, prompts, example):
    first = await lm("plan")
    word = await lm.tool(lambda text: text.split()[-1], first)
    return await lm("answer", question=f"number {word}")
"""


def write_task(folder: Path, reward: str = "exact_match", plain=crash.write_task, **options: Any) -> None:  # type: ignore[no-untyped-def]
    plain(folder, reward, **options)
    text = (folder / "prompt.md").read_text()
    (folder / "plan.md").write_text(f"Plan first.\n{text}")
    (folder / "program.py").write_text(PROGRAM)
    config = (folder / "task.yaml").read_text()
    prompts = "program: {file: program.py, calls: 2}\nprompts: {plan: plan.md, answer: prompt.md}"
    (folder / "task.yaml").write_text(config.replace("prompt: prompt.md", prompts))


@pytest.mark.parametrize("every", [60, pytest.param(17, marks=pytest.mark.long)])
def test_a_kill_inside_a_program_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(crash, "write_task", write_task)
    with crash.endpoint(tmp_path) as served:
        crash.sweep(tmp_path, served, "opro", {"steps": 1, "samples": 2, "finalists": 1}, every=every)
