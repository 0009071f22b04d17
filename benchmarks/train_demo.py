"""Does the rewriter of `make train-demo` beat expert iteration, at as many samples of rewrites?

    python benchmarks/train_demo.py --seeds 5 --arms "prewrite;10 rounds;20 rounds"    # how the settings were chosen
    python benchmarks/train_demo.py --first 20 --seeds 10 --arms "prewrite;20 rounds"  # fresh seeds; goes on where it stopped

Each run searches `examples/house-style` with `embedded/tiny` as task model and as policy. `prewrite` has the settings of the
task folder: `steps` groups of `group` rewrites. Expert iteration samples as many rewrites in R rounds, with the same rate, bound
on tokens, rows for each rewrite and number of finalists. Prints the reward on the sealed rows for each seed, and the difference
to `prewrite`, paired by seed, with its 95% interval (Student).
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from whet import api

TASK = Path(__file__).parents[1] / "examples" / "house-style"
SETTINGS: dict[str, Any] = yaml.safe_load((TASK / "task.yaml").read_text())["settings"]
SAMPLES = SETTINGS["steps"] * SETTINGS["group"]
SHARED = ("examples", "lr", "max_tokens", "rewrites")


def settings_of(arm: str) -> tuple[str, dict[str, Any]]:
    """The method of an arm and its settings: "prewrite", or "R rounds" of expert iteration; settings stand behind commas."""
    first, *more = arm.split(", ")
    other = {key: yaml.safe_load(value) for key, value in (pair.split("=") for pair in more)}
    if first == "prewrite":
        return first, {**SETTINGS, **other}
    rounds = int(first.removesuffix(" rounds"))
    same = {key: SETTINGS[key] for key in SHARED}
    return "expert_iteration", {**same, "rounds": rounds, "samples": SAMPLES // rounds, **other}


def task_without_method(root: Path) -> Path:
    """A copy of the demo's task that names no method and no settings."""
    folder = root / "task"
    if not (folder / "task.yaml").is_file():
        shutil.copytree(TASK, folder, dirs_exist_ok=True)
        task = yaml.safe_load((TASK / "task.yaml").read_text())
        (folder / "task.yaml").write_text(
            yaml.safe_dump({k: v for k, v in task.items() if k not in ("method", "settings")})
        )
    return folder


def run_arm(root: Path, arm: str, seed: int) -> dict[str, float]:
    """Test reward and task calls of one run, or of the finished run that lies there."""
    method, settings = settings_of(arm)
    name = "-".join([arm.replace(", ", "-").replace(" ", "-").replace("=", "-"), str(SAMPLES), str(seed)])
    found = api.optimize(
        task_without_method(root), method=method, lm="embedded/tiny", policy="embedded/tiny", settings=settings,
        seed=seed, run=root / "runs" / name,
    )  # fmt: skip
    return {"test": found["best"]["test"]["mean"], "calls": found["usage"]["calls"]["task"]}


def lead(mine: Mapping[int, Any], other: Mapping[int, Any]) -> str:
    """Mean difference of two arms over the seeds of both, with its 95% interval (Student)."""
    seeds = sorted(mine.keys() & other.keys())
    gaps = np.array([mine[s]["test"] - other[s]["test"] for s in seeds])
    half = stats.t.ppf(0.975, max(1, len(gaps) - 1)) * stats.sem(gaps) if len(gaps) > 1 else float("nan")
    return f"{gaps.mean():+.3f} [{gaps.mean() - half:+.3f}, {gaps.mean() + half:+.3f}]"


def table(found: Mapping[str, Mapping[int, Any]], seeds: range) -> str:
    """The table as markdown."""
    lines = [
        "| arm | "
        + " | ".join(f"seed {s}" for s in seeds)
        + " | mean | task calls | prewrite is better by |",
        "|" + "---|" * (len(seeds) + 4),
    ]
    for arm, runs in found.items():
        cells = [f"{runs[s]['test']:.3f}" if s in runs else "" for s in seeds]
        mean, calls = (np.mean([r[key] for r in runs.values()]) for key in ("test", "calls"))
        ahead = lead(found["prewrite"], runs) if arm != "prewrite" and "prewrite" in found else ""
        lines.append(f"| {arm} | {' | '.join(cells)} | {mean:.3f} | {calls:.0f} | {ahead} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--arms", default="prewrite;5 rounds;10 rounds;20 rounds", help="separated by semicolons"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--root", type=Path, default=Path("runs/train-demo"))
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    found: dict[str, dict[int, Any]] = {}
    for seed in seeds:
        for arm in given.arms.split(";"):
            figures = run_arm(given.root, arm, seed)
            found.setdefault(arm, {})[seed] = figures
            print(json.dumps({"arm": arm, "seed": seed, **figures}), flush=True)
    print(table(found, seeds))


if __name__ == "__main__":
    main()
