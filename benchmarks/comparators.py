"""What a readable prompt gives up, and what it keeps: searched words, trained vectors and per-input edits, compared.

    python benchmarks/comparators.py                        # both worlds; an interrupted benchmark goes on
    python benchmarks/comparators.py --world form --seeds 3 --calls 6000

`form` is the world of `embedded/tiny`: a task hides four clauses (`whet.testing.clauses`), seed i has task i. `labels` is
the demonstration task (examples/python-docs) with `embedded/encoder`, each seed of a method on the same rows. Every run
may make `--calls` task calls, the sealed test included; a row that a gradient is taken of counts as one. For each method
the mean reward on the sealed test, its difference to random search over the same words, paired by seed, with a 95 % interval
(Student), the median perplexity of the editable text (under embedded/tiny, and embedded/mlm for labels), and whether the
result can be used with another model. Writes all figures as JSON below `--root`. Needs the extras train and embedded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from whet import api
from whet.models.addresses import resolve
from whet.models.readability import perplexity
from whet.prompt import Prompt
from whet.testing.clauses import write_task

EXAMPLE = Path(__file__).parent.parent / "examples" / "python-docs"


@dataclass(frozen=True)
class World:
    """Task model, calls of a run, the model whose perplexity says how a text reads, and methods with settings."""

    lm: str
    calls: int
    reader: str
    rows: Mapping[str, tuple[str, Mapping[str, Any]]]


RANDOM = "random search"
WORDS = "internet,folder,mathematics,string,test,threads,date;network,files,math,text,testing,processes,time"
WORLDS = {
    "form": World(
        "embedded/tiny",
        6000,
        "embedded/tiny",
        {
            RANDOM: ("random_search", {"space": "tokens", "length": 8, "n": 350, "examples": 16}),
            "autoprompt": ("autoprompt", {"length": 8}),
            "prefix": ("prefix", {}),
            "ptuning": ("ptuning", {}),
        },
    ),
    "labels": World(
        "embedded/encoder",
        60000,
        "embedded/mlm",
        {
            RANDOM: ("random_search", {"n": 400, "length": 5, "finalists": 16}),
            "rlprompt": ("rlprompt", {"steps": 40, "finalists": 16}),
            "autoprompt": ("autoprompt", {"finalists": 16}),
            "tempera": ("tempera", {"shots": 0, "additions": 24, "words": WORDS, "steps": 200}),
        },
    ),
}


def task_of(root: Path, world: str, seed: int) -> Path:
    """The task folder of a world for a seed."""
    if world == "labels":
        return EXAMPLE
    folder = root / "tasks" / str(seed)
    if not (folder / "task.yaml").is_file():
        write_task(folder, seed)
    return folder


def run_row(root: Path, world: str, name: str, seed: int, calls: int) -> dict[str, Any]:
    """Figures of one run, or of the finished run that lies there."""
    method, settings = WORLDS[world].rows[name]
    found = api.optimize(
        task_of(root, world, seed), method=method, lm=WORLDS[world].lm, settings=dict(settings), seed=seed,
        out=root / "runs" / f"{world}-{method}-{seed}-{calls}", max_task_calls=calls,
    )  # fmt: skip
    text = Prompt.parse(found["best"]["prompt"]).text()
    return {
        "test": found["best"]["test"]["mean"],
        "start": found["baseline"]["test"]["mean"],
        "calls": found["usage"]["calls"]["task"],
        "seconds": found["usage"]["seconds"],
        "text": text,
        "system": "system" in found["best"],
        "perplexity": asyncio.run(perplexity(resolve(WORLDS[world].reader), text)),
    }


def difference(mine: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str:
    """Mean difference in test reward over the seeds with its 95 % interval."""
    gaps = np.array([a["test"] - b["test"] for a, b in zip(mine, other, strict=True)])
    if len(gaps) < 2:
        return f"{gaps.mean():+.3f}"
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps))
    return f"{gaps.mean():+.3f} [{gaps.mean() - half:+.3f}, {gaps.mean() + half:+.3f}]"


def table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The figures of a world as markdown."""
    lines = [
        "| | test reward | less random search (95 %) | perplexity of the text | with another model | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        systems = [run["system"] for run in runs]
        readable = [run["perplexity"] for run in runs if run["perplexity"] and not run["system"]]
        cells = [
            name,
            f"{np.mean([run['test'] for run in runs]):.3f}",
            "" if name == RANDOM else difference(runs, found[RANDOM]),
            f"{np.median(readable):.0f}" if readable else "no text",
            "no"
            if all(systems)
            else "yes"
            if not any(systems)
            else f"{systems.count(False)} of {len(systems)}",
            f"{np.mean([run['seconds'] for run in runs]):.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    start = np.mean([run["start"] for run in found[RANDOM]])
    return "\n".join([*lines, f"\nThe start has {start:.3f} (n = {len(found[RANDOM])} seeds)."])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", choices=[*WORLDS, "both"], default="both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--calls", type=int, help="task calls of each run; 6,000 and 60,000 by default")
    parser.add_argument("--root", type=Path, default=Path("runs/comparators"))
    given = parser.parse_args()
    for world in WORLDS if given.world == "both" else [given.world]:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in WORLDS[world].rows}
        for seed in range(given.seeds):
            for name, runs in found.items():
                runs.append(run_row(given.root, world, name, seed, given.calls or WORLDS[world].calls))
                print(f"{world}, {name}, seed {seed}: {runs[-1]}", flush=True)
        given.root.mkdir(parents=True, exist_ok=True)
        (given.root / f"{world}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(table(found), flush=True)


if __name__ == "__main__":
    main()
