"""The recipes of the page on scale for SLURM, Kubernetes, Ray and SkyPilot: their commands with the variables of a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.distributions import ROOT

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "scale.md").read_text("utf-8"), re.DOTALL)
SHARDS = 4
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


def ray_jobs() -> list[tuple[str, dict[str, str]]]:
    """The loop that submits all jobs."""
    (script,) = (block for block in BLOCKS if "ray job submit" in block)
    return [(script, {})]


def sky_jobs() -> list[tuple[str, dict[str, str]]]:
    """The command of each node, and what SkyPilot sets."""
    (block,) = (block for block in BLOCKS if "sky launch" in block)
    job = yaml.safe_load(block.partition("<<'END'\n")[2].rpartition("END")[0])
    nodes = range(job["num_nodes"])
    return [
        (job["run"], {"SKYPILOT_NODE_RANK": str(n), "SKYPILOT_NUM_NODES": str(len(nodes))}) for n in nodes
    ]


RAY = """#!/bin/bash
# what follows -- is the job
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def run(folder: Path, command: str, variables: Mapping[str, str]) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "ray").write_text(RAY)
    (folder / "bin" / "ray").chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **variables, "PATH": path, "WHET_STATE": str(folder / "state")}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("jobs", [slurm_jobs, kubernetes_jobs, ray_jobs, sky_jobs])
def test_every_job_of_an_array_makes_its_shard(jobs: object, tmp_path: Path) -> None:
    task = tmp_path / "mytask"
    task.mkdir()
    (task / "task.yaml").write_text(TASK)
    (task / "prompt.md").write_text("Sort the review.\nReview: {{input}}")
    words = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
    rows = [{"input": f"Dish {i} was {word}.", "target": t} for i in range(20) for word, t in words.items()]
    (task / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(task, tmp_path / "shared" / "mytask")
    assert callable(jobs)
    for number, (command, variables) in enumerate(jobs()):
        machine = tmp_path
        if jobs is sky_jobs:
            (machine := tmp_path / f"machine-{number}").mkdir()
        run(machine, command.replace("/mnt/field/", f"{tmp_path}/shared/"), variables)
    place = tmp_path / "shared" if jobs in (ray_jobs, sky_jobs) else tmp_path
    shards = sorted(path.name for path in (place / "runs" / "field").glob("comparison-*-of-*.json"))
    assert shards == [f"comparison-{n}-of-{SHARDS}.json" for n in range(1, SHARDS + 1)]
    run(tmp_path, f"whet merge {place}/runs/field --out table", {})
    table = json.loads((tmp_path / "table" / "comparison.json").read_text())
    assert sorted((one["method"], one["seed"]) for one in table["runs"]) == [
        (method, seed) for method in ("opro", "random_search") for seed in (0, 1)
    ]
    assert table["missing"] == []
