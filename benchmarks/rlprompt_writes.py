"""rlprompt where there are no labels: `embedded/tiny` writes, and a task hides four clauses; beside random search over words.

    python benchmarks/rlprompt_writes.py [--seeds 3] [--root runs/rlprompt_writes]

The world `form` of `benchmarks/comparators.py`: seed i has task i, 6,000 task calls a run with the sealed test, eight words a
prompt. Prints the sealed reward of both methods and of the prompt as written, then the mean difference paired by seed with its
95% interval (Student). An interrupted benchmark goes on. Needs the extra embedded and scipy; a seed takes some minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from benchmarks.comparators import RANDOM, WORLDS, task_of
from scipy import stats

from whet import api
from whet.run import Budget

SETTINGS = {
    "rlprompt": {"length": 8, "steps": 40, "k": 8, "examples": 16, "finalists": 16},
    RANDOM: WORLDS["form"].rows[RANDOM],
}


def rewards(root: Path, seed: int) -> list[float]:
    """Sealed rewards of the prompt as written and of each method."""
    tests: list[float] = []
    for method, settings in SETTINGS.items():
        result = api.optimize(
            task_of(root, "form", seed), method=method, lm="embedded/tiny", settings=settings, seed=seed,
            budget=Budget(task_calls=6000), run=root / f"{method}-{seed}",
        )  # fmt: skip
        tests = tests or [result["baseline"]["test"]["mean"]]
        tests.append(result["best"]["test"]["mean"])
    print(
        f"seed {seed}: as written {tests[0]:.3f}, rlprompt {tests[1]:.3f}, {RANDOM} {tests[2]:.3f}",
        flush=True,
    )
    return tests


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", type=Path, default=Path("runs/rlprompt_writes"))
    options = parser.parse_args()
    table = np.array([rewards(options.root, seed) for seed in range(options.seeds)])
    gaps = table[:, 1] - table[:, 2]
    half = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps) if len(gaps) > 1 else float("nan")
    means = ", ".join(f"{mean:.3f}" for mean in table.mean(axis=0))
    print(
        f"means {means}; rlprompt less {RANDOM} {gaps.mean():+.3f} [{gaps.mean() - half:+.3f}, {gaps.mean() + half:+.3f}]"
    )


if __name__ == "__main__":
    main()
