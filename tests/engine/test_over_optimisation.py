"""A reward that can be exploited on the training rows, and a run that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch

from whet import api

REWARD = '''\
"""Training rows pay for capital letters; the others want small ones, and none is ever perfect."""


def reward(example, output):
    letters = [c for c in output if c.isalpha()]
    small = sum(c.islower() for c in letters) / max(1, len(letters))
    return 0.95 * (1 - small if example["split"] == "train" else small)
'''


def exploited(folder: Path, split: str) -> Path:
    """A task in which training rows are those of `split`; with another name than train nothing can be exploited."""
    folder.mkdir()
    words = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron"]
    data = {}
    for name, first, count in (("train", 0, 8), ("validation", 8, 30), ("test", 38, 12)):
        inputs = [
            f"{words[i % 8]} {words[(i // 8 + 3 * i + 1) % 8]} {words[(i * i) % 7]}"
            for i in range(first, first + count)
        ]
        rows = [{"input": text, "split": name} for text in dict.fromkeys(inputs)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data[name] = f"{name}.jsonl"
    (folder / "prompt.md").write_text(
        "<!-- whet:begin -->\nWrite the line.\n<!-- whet:end -->\n\n{{input}}\n"
    )
    (folder / "reward.py").write_text(REWARD if split == "train" else REWARD.replace("1 - small", "small"))
    task = {"name": "t", "prompt": "prompt.md", "data": data, "reward": "reward.py"}
    (folder / "task.yaml").write_text(json.dumps(task))
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "steps", "warned", "alarm"),
    [("train", 24, True, "warn"), ("none", 6, False, "stop"), ("train", 24, True, "stop")],
)
def test_a_run_warns_or_stops_when_its_reward_rises_and_what_is_held_out_falls(
    tmp_path: Path, split: str, steps: int, warned: bool, alarm: str
) -> None:
    """Seed and number of checks were chosen after a look: with them the policy finds the exploit early, and not by the last
    digits of a sum."""
    torch.set_num_threads(1)
    settings = {
        "steps": steps,
        "group": 8,
        "examples": 1,
        "lr": 5e-3,
        "max_tokens": 20,
        "rewrites": 1,
        "checks": 6,
        "alarm": alarm,
    }
    found = api.optimize(
        exploited(tmp_path / "task", split), method="prewrite", lm="embedded/tiny", policy="embedded/tiny",
        settings=settings, run=tmp_path / "run", seed=2,
    )  # fmt: skip
    stopped = "training was stopped after" in found["ended_by"]
    assert stopped == (warned and alarm == "stop"), found["ended_by"]
    if stopped:
        return
    said = [warning for warning in found["warnings"] if "the reward is being exploited" in warning]
    assert bool(said) == warned, found["warnings"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "reward of the training steps" in page and "Training" in page
    assert ("the reward is being exploited" in page) == warned
