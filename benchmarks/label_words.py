"""autoprompt with the words of the task for its labels, and with words that it searches for: the demonstration task.

    python benchmarks/label_words.py [--seeds 3] [--words 1 3] [--root runs/label_words]

examples/python-docs with embedded/mlm, 8,000 task calls a run, the sealed test included; words replace the first fence.
Prints the sealed accuracy of each run and the words found, then the mean difference to the words of the task, paired by
seed, with its 95% interval (Student). An interrupted benchmark goes on. Needs the extra embedded and scipy; a run takes
about two minutes on one core.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from whet import api
from whet.engine.journal import read_events
from whet.run import Budget
from whet.task import load_task

TASK = Path(__file__).parent.parent / "examples" / "python-docs"


def accuracy(root: Path, words: int, seed: int) -> float:
    """Sealed accuracy of a run with so many words searched for each label."""
    folder = root / f"{words}-{seed}"
    task = load_task(TASK)
    task = replace(task, region=task.prompt.regions[0].name)
    found = api.optimize(
        task, method="autoprompt", lm="embedded/mlm", settings={"label_words": words}, seed=seed,
        budget=Budget(task_calls=8000), run=folder,
    )  # fmt: skip
    told = [event.value for event in read_events(folder / "journal.sqlite", ["label_words"])]
    print(f"label_words={words}, seed {seed}: {found['best']['test']['mean']:.3f}", *told, flush=True)
    return float(found["best"]["test"]["mean"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--root", type=Path, default=Path("runs/label_words"))
    given = parser.parse_args()
    found = {
        words: np.array([accuracy(given.root, words, seed) for seed in range(given.seeds)])
        for words in (0, *given.words)
    }
    for words in given.words:
        gaps = found[words] - found[0]
        half = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps) if len(gaps) > 1 else float("nan")
        print(
            f"{words} words searched for each label: {found[words].mean():.3f}, with those of the task {found[0].mean():.3f}, "
            f"difference {gaps.mean():+.3f} [{gaps.mean() - half:+.3f}, {gaps.mean() + half:+.3f}]"
        )


if __name__ == "__main__":
    main()
