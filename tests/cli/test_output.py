"""What code of a task folder does to the standard output hides no result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from whet.cli.main import main

REWARD = """import io, sys
print("from the module")

def reward(example, output):
    print("from the reward")
    sys.stdout = sys.stderr = io.StringIO()
    return float(output == example["target"])
"""


def test_a_reward_that_replaces_the_output_hides_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task"
    task.mkdir()
    rows = [{"id": f"r{n}", "input": f"q{n}", "target": str(n % 2)} for n in range(12)]
    (task / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (task / "prompt.md").write_text("Answer.\n\n{{input}}\n")
    (task / "reward.py").write_text(REWARD)
    (task / "task.yaml").write_text("name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["whet", "evaluate", "task", "--lm", "scripted/echo", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["split"] == "validation"
