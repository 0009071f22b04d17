"""The task of the tests that kill processes."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]

REWARD = """
def reward(example, output):
    right = output.strip() == example["target"]
    return {"reward": float(right), "critique": None if right else "wrong"}
"""


def write_task(folder: Path, reward: str = "exact_match", fences: int = 1) -> None:
    """The task; with two `fences` the greeting can be edited too."""
    folder.mkdir(parents=True)
    if reward == "reward.py":
        (folder / reward).write_text(REWARD)
    (folder / "task.yaml").write_text(
        f"name: crash\nprompt: prompt.md\nreward: {reward}\nmodels: {{task: openai/test}}\n"
        "data: {train: train.jsonl, validation: validation.jsonl, test: test.jsonl}\n"
    )
    (folder / "prompt.md").write_text(
        (
            "You answer questions.\n"
            if fences == 1
            else "<!-- whet:begin role -->\nYou answer questions.\n<!-- whet:end -->\n"
        )
        + "<!-- whet:begin -->\nAnswer the question.\n<!-- whet:end -->\n"
    )
    for split, numbers in {"train": (1, 2, 3), "validation": (4, 5), "test": (6, 7)}.items():
        rows = [{"id": f"n{n}", "input": f"number {n}", "target": str(n)} for n in numbers]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
