"""The recipes for SLURM and Kubernetes on the page on scale: their commands with the variables of a cluster, and the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.distributions import ROOT

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "scale.md").read_text("utf-8"), re.DOTALL)
TASK = """
name: words
prompt: prompt.md
data: rows.jsonl
reward: exact_match
labels: [negative, positive]
models: {task: scripted/labels, optimizer: scripted/phrases}
"""


def slurm_jobs() -> list[tuple[str, dict[str, str]]]:
    """The script for each number of its array, and what SLURM sets."""
    (script,) = (block for block in BLOCKS if "#SBATCH" in block)
    found = re.search(r"--array=(\d+)-(\d+)", script)
    assert found is not None
    numbers = range(int(found[1]), int(found[2]) + 1)
    return [
        (script, {"SLURM_ARRAY_TASK_ID": str(n), "SLURM_ARRAY_TASK_COUNT": str(len(numbers))})
        for n in numbers
    ]


def kubernetes_jobs() -> list[tuple[str, dict[str, str]]]:
    """The command of each index of the job, and what Kubernetes sets."""
    (block,) = (block for block in BLOCKS if "kubectl" in block)
    job = yaml.safe_load(block.partition("<<'END'\n")[2].rpartition("END")[0])["spec"]
    assert job["completionMode"] == "Indexed"
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c"]
    return [(container["args"][0], {"JOB_COMPLETION_INDEX": str(n)}) for n in range(job["completions"])]


def run(folder: Path, command: str, variables: Mapping[str, str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **variables, "PATH": path, "WHET_STATE": str(folder / "state")}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("jobs", [slurm_jobs, kubernetes_jobs])
def test_every_job_of_an_array_makes_its_shard(jobs: object, tmp_path: Path) -> None:
    task = tmp_path / "mytask"
    task.mkdir()
    (task / "task.yaml").write_text(TASK)
    (task / "prompt.md").write_text("Sort the review.\nReview: {{input}}")
    words = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
    rows = [{"input": f"Dish {i} was {word}.", "target": t} for i in range(20) for word, t in words.items()]
    (task / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert callable(jobs)
    made = jobs()
    for command, variables in made:
        run(tmp_path, command, variables)
    shards = sorted(path.name for path in (tmp_path / "runs" / "field").glob("comparison-*-of-*.json"))
    assert shards == [f"comparison-{n}-of-{len(made)}.json" for n in range(1, len(made) + 1)]
    run(tmp_path, "whet merge runs/field --out table", {})
    table = json.loads((tmp_path / "table" / "comparison.json").read_text())
    assert sorted((one["method"], one["seed"]) for one in table["runs"]) == [
        (method, seed) for method in ("opro", "random_search") for seed in (0, 1)
    ]
    assert table["missing"] == []
