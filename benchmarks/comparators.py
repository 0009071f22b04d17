"""What a readable prompt gives up, and what it keeps: sentences, searched words, per-input edits and trained vectors.

    python benchmarks/comparators.py                        # all worlds; an interrupted benchmark goes on
    python benchmarks/comparators.py --world form --seeds 5 --other hf/PATH

One `whet compare` for each world and seed. `form` is the world of `embedded/tiny`: a task hides four clauses
(`benchmarks.simulated.clause_tasks`), seed i has task i. `labels` is the demonstration task (examples/python-docs) with
`embedded/encoder`, `masked` the same with `embedded/mlm`, each seed of a method on the same rows. Every run may make a
world's number of task calls, the sealed test and the transfer included; a row that a gradient is taken of counts as one. For
each method: the mean reward on the sealed test; its difference to random search over words, paired by seed, with a 95%
interval (Student); the median perplexity of the text; and transfer: the same prompt, unchanged, on the same test rows with
another model, and what it is worth there above the prompt as written. `labels` and `masked` are each other's other model;
`form` has none unless `--other` names one. Writes the tables and all figures below `--root`. Needs the extras train and
embedded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulated.clause_tasks import combination, instruction_for, write_task
from scipy import stats

from whet import api
from whet.engine.readability import perplexity
from whet.models.addresses import resolve
from whet.run import Budget
from whet.task import load_task

EXAMPLE = Path(__file__).parent.parent / "examples" / "python-docs"
AS_WRITTEN = "as written"
KNOWN = "by somebody who knows the form"
HINDSIGHT = "best of 18 sentences, in hindsight"
WORDS = "internet,folder,mathematics,string,test,threads,date;network,files,math,text,testing,processes,time"
SENTENCE = "This Python documentation is about"
RANDOM = "random_search"


@dataclass(frozen=True)
class World:
    """Task model, task calls of a run, the model whose perplexity says how a text reads, another model for the same
    prompts, and the methods with their settings."""

    lm: str
    calls: int
    reader: str
    other: str | None
    rows: Mapping[str, Mapping[str, Any]]
    names: Mapping[str, str] = field(default_factory=dict)


SENTENCES = {"steps": 0, "rewrites": 3000, "examples": 2, "max_tokens": 40}
WORLDS = {
    "form": World(
        "embedded/tiny",
        6000,
        "embedded/tiny",
        None,
        {
            RANDOM: {"space": "tokens", "length": 8, "n": 350, "examples": 16},
            "prewrite": SENTENCES,
            "autoprompt": {"length": 8},
            "prefix": {},
            "ptuning": {},
        },
        {"prewrite": "prewrite untrained: the best of sampled sentences"},
    ),
    "labels": World(
        "embedded/encoder",
        60000,
        "embedded/mlm",
        "embedded/mlm",
        {
            RANDOM: {"n": 400, "length": 5, "finalists": 16},
            "rlprompt": {"steps": 40, "finalists": 16},
            "autoprompt": {"finalists": 16},
            "tempera": {"shots": 0, "additions": 24, "words": WORDS, "steps": 200},
        },
    ),
    "masked": World(
        "embedded/mlm",
        8000,
        "embedded/mlm",
        "embedded/encoder",
        {RANDOM: {"n": 250, "length": 5, "finalists": 8, "examples": 24}, "autoprompt": {}},
    ),
}


def task_of(root: Path, world: str, seed: int) -> Path:
    """The task folder of a world for a seed."""
    if world != "form":
        return EXAMPLE
    folder = root / "tasks" / str(seed)
    if not (folder / "task.yaml").is_file():
        write_task(folder, seed)
    return folder


def compare_methods(root: Path, name: str, world: World, seed: int) -> dict[str, dict[str, Any]]:
    """Figures of every method for a seed, and of the prompt as written."""
    found = api.compare(
        task_of(root, name, seed), list(world.rows), lm=world.lm, policy="embedded/tiny", seed=seed,
        settings={f"{method}.{key}": value for method, row in world.rows.items() for key, value in row.items()},
        transfer=world.other, reader=world.reader, budget=Budget(task_calls=world.calls), run=root / "runs" / f"{name}-{seed}",
    )  # fmt: skip
    there = (found.get("transfer") or {}).get("test")
    figures = {
        AS_WRITTEN: {
            "test": found["runs"][0]["baseline"]["test"]["mean"],
            "text": load_task(task_of(root, name, seed)).prompt.region_text(),
            "there": None if there is None else there["mean"],
        }
    }
    for run in found["runs"]:
        moved = run.get("transfer") or {"test": None}
        figures[run["method"]] = {
            "test": run["best"]["test"]["mean"],
            "calls": run["usage"]["calls"]["task"],
            "seconds": run["usage"]["seconds"],
            "prompt": run["best"]["prompt"],
            "perplexity": run["readability"]["perplexity"],
            "texts": run["readability"].get("texts"),
            "there": None if moved["test"] is None else moved["test"]["mean"],
            "why": moved.get("reason", run["readability"].get("reason")),
        }
    return figures


def sentence(root: Path, name: str, world: World, seed: int) -> dict[str, Any]:
    """Figures of a prompt that somebody would write who knows more than a method may."""
    task = task_of(root, name, seed)
    text = instruction_for(combination(seed, 4)) if name == "form" else SENTENCE
    file = root / "sentences" / f"{name}-{seed}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(load_task(task).prompt.edit(text).source)
    means = [
        api.evaluate(task, prompt=file, split="test", lm=lm, root=root / "sentences")["score"]["mean"]
        for lm in (world.lm, world.other)
        if lm is not None
    ]
    return {"test": means[0], "text": text, "there": means[1] if world.other else None}


def run_seed(root: Path, name: str, world: World, seed: int) -> dict[str, dict[str, Any]]:
    """Figures of every row for a seed."""
    figures = compare_methods(root, name, world, seed)
    known = {KNOWN if name == "form" else HINDSIGHT: sentence(root, name, world, seed)}
    found = {AS_WRITTEN: figures.pop(AS_WRITTEN), **known, **figures}
    for row in found.values():
        if "perplexity" not in row:
            row["perplexity"] = asyncio.run(perplexity(resolve(world.reader), row["text"]))
    print(f"{name}, seed {seed}: {json.dumps(found)}", flush=True)
    return found


def interval(gaps: Sequence[float]) -> str:
    """Mean of differences with its 95% interval over seeds; the mean alone where they are all equal."""
    found = np.array(gaps)
    if len(found) < 2 or np.ptp(found) < 1e-12:
        return f"{found.mean():+.3f}"
    half = float(stats.t.ppf(0.975, len(found) - 1) * stats.sem(found))
    return f"{found.mean():+.3f} [{found.mean() - half:+.3f}, {found.mean() + half:+.3f}]"


def table(world: World, found: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """The figures of a world as markdown; `found` has one entry for each seed."""
    lines = [
        f"| | test reward | less {RANDOM} (95%) | perplexity | with {world.other or 'another model'} | "
        "less as written, there (95%) | task calls |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in found[0]:
        runs = [seed[name] for seed in found]
        read = [run["perplexity"] for run in runs if run["perplexity"] is not None]
        moved = [run["there"] for run in runs]
        known = all(value is not None for value in moved)
        bound = any("not possible" in (run.get("why") or "") for run in runs) or (not read and not known)
        searched = name in world.rows and name != RANDOM
        gaps = [run["test"] - seed[RANDOM]["test"] for run, seed in zip(runs, found, strict=True)]
        gains = (
            [run["there"] - seed[AS_WRITTEN]["there"] for run, seed in zip(runs, found, strict=True)]
            if known
            else []
        )
        cells = [
            world.names.get(name, name),
            f"{np.mean([run['test'] for run in runs]):.3f}",
            interval(gaps) if searched else "",
            f"{np.median(read):,.0f}" if read else "no text",
            f"{np.mean(moved):.3f}" if known else "impossible" if bound else "not measured",
            interval(gains) if known and name != AS_WRITTEN else "",
            f"{np.mean([run['calls'] for run in runs]):,.0f}" if name in world.rows else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", choices=[*WORLDS, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--other", help="address of the other model of `form`: one that follows its instructions"
    )
    parser.add_argument("--root", type=Path, default=Path("runs/comparators"))
    given = parser.parse_args()
    for name in WORLDS if given.world == "all" else [given.world]:
        world = WORLDS[name]
        if name == "form" and given.other is not None:
            world = replace(world, other=given.other)
        found = [run_seed(given.root, name, world, seed) for seed in range(given.seeds)]
        given.root.mkdir(parents=True, exist_ok=True)
        (given.root / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        (given.root / f"{name}.md").write_text(table(world, found) + "\n")
        print(f"\n{name}, {len(found)} seeds\n\n{table(world, found)}\n", flush=True)


if __name__ == "__main__":
    main()
