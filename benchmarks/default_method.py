"""What a task with labels gains by each method that may be its default, where the model scores and cannot write.

    python benchmarks/default_method.py --data FOLDER [--seeds 3] [--rows 24 64 200] [--calls N] [--root runs/default_method]

Rows of AG News, SST-2 and six classes of DBpedia are read in place, from `few_shot_classification` in the folder that --data or
WHET_DATA names. `embedded/encoder` answers, the start is the prompt that `whet init` writes, validation has three quarters as
many rows as training (20 at least), and the sealed test has up to 300 rows. Prints the accuracy of start and result of each run,
then the mean gain of each method over tasks and seeds with its 95% interval (Student, by run). An interrupted benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path

import numpy as np
from scipy import stats

import whet

ARMS = ("bdpl", "random_search", "grips", "bootstrap")
LABELS = {
    "agnews": {0: "World", 1: "Sports", 2: "Business", 3: "Tech"},
    "sst-2": {0: "negative", 1: "positive"},
    "dbpedia": {0: "company", 2: "artist", 6: "building", 8: "village", 9: "animal", 12: "film"},
}


def splits(data: Path, name: str, count: int, seed: int) -> dict[str, list[dict[str, str]]]:
    """`count` training rows of a task, and those of the other splits, dealt by the seed."""
    labels = LABELS[name]
    with (data / "few_shot_classification" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        read = {row["input"]: row["label"] for row in map(json.loads, lines)}
    rows = [
        {"input": text, "target": labels[label]} for text, label in sorted(read.items()) if label in labels
    ]
    random.Random(seed).shuffle(rows)
    end = count + max(20, count * 3 // 4)
    return {"train": rows[:count], "validation": rows[count:end], "test": rows[end : end + 300]}


def gain(options: argparse.Namespace, name: str, count: int, method: str, seed: int) -> float:
    """What a run adds to the accuracy of the start on the sealed rows."""
    labels = list(LABELS[name].values())
    fence = "<!-- whet:begin -->\nGive the right answer.\n<!-- whet:end -->"
    result = whet.optimize(
        f"{fence}\n\n{{{{input}}}}\n\nAnswer with one of: {', '.join(labels)}.",
        data=splits(options.data, name, count, seed),
        reward="exact_match",
        labels=labels,
        lm="embedded/encoder",
        method=method,
        seed=seed,
        run=options.root / f"{name}-{count}-{method}-{seed}",
        budget=whet.Budget(calls=options.calls),
        progress=False,
    )
    start, best = result.baseline.test.mean, result.best.test.mean
    print(f"{name}, {count} rows, {method}, seed {seed}: {start:.3f} -> {best:.3f}", flush=True)
    return float(best - start)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("WHET_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=[24, 64, 200])
    parser.add_argument("--calls", type=int, help="limit on calls; default: none")
    parser.add_argument("--root", type=Path, default=Path("runs/default_method"))
    options = parser.parse_args()
    if options.data is None:
        print("Name the folder of the rows: --data or WHET_DATA.")
        return
    options.data = Path(options.data)
    os.environ["WHET_STATE"] = str(options.root / "state")
    print("| training rows | method | mean gain |\n|---|---|---|")
    for count in options.rows:
        for method in ARMS:
            gains = [
                gain(options, name, count, method, seed) for name in LABELS for seed in range(options.seeds)
            ]
            half = stats.t.ppf(0.975, len(gains) - 1) * np.std(gains, ddof=1) / len(gains) ** 0.5
            print(
                f"| {count} | `{method}` | {np.mean(gains):+.3f} [{np.mean(gains) - half:+.3f}, {np.mean(gains) + half:+.3f}] |",
                flush=True,
            )


if __name__ == "__main__":
    main()
