"""The whole field: every method on every task with equal calls, one row a run, one table of all.

    python -m benchmarks.field                                   # goes on where it was stopped; hours on two cores
    python -m benchmarks.field --short                           # some methods on some tasks: a few minutes
    python -m benchmarks.field --shard 0/4 --results DIR         # every fourth run; the table is made of all rows in DIR
    python -m benchmarks.field --tasks types,trap --methods vista,gepa,random_search,meta_prompt --seeds 3
    python -m benchmarks.field --lm openai/NAME --base-url URL --data DIR --yes    # real rows, the model is its own optimizer
    python -m benchmarks.field --tasks others --methods barfi --set barfi.parts=whole --set barfi.method=meta_prompt
    python -m benchmarks.field --table

A search may make --task-calls rollouts (a rollout of a game is at most five task calls, one of the program two) and
--optimizer-calls calls of the optimizer; the sealed test of start and best comes on top. A seed draws the world and the run. Each
run has a folder of its own below DIR/runs and leaves DIR/TASK-SEED-METHOD.json: its rewards on the sealed rows, what it spent,
its last prompt; for a method that cannot run on a task the reason. A run that was stopped goes on.

The task `others` needs the folder of rulesworld (WHET_SHARED_WORLDS, or ../shared/worlds) and is left out without it. With --lm
the tasks are real rows, read in place from --data or WHET_DATA; what the runs may cost at most is said first, and nothing is
paid without --yes. Methods that train a policy run on the task `form` only, with --train on every task. `apohf` asks a person
and has no run here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.field.table import field_table, write_pages
from benchmarks.field.tasks import TASKS as REAL
from benchmarks.field.worlds import TASKS, FieldTask, Keywords, real_rows
from benchmarks.rulesworld import WORLDS

import whet
from whet.engine.pairs import sealed_answers
from whet.errors import UsageError
from whet.methods import METHODS

SHORT_TASKS = "types", "formats", "trap", "labels"
SHORT_METHODS = (
    "random_search", "meta_prompt", "prompt_learning", "gepa", "opro", "protegi", "vista", "ace", "capo", "bootstrap", "grips",
    "bdpl",
)  # fmt: skip
Job = tuple[int, str, str]
"""Seed, task, method."""


def tasks_of(options: argparse.Namespace) -> dict[str, FieldTask]:
    """The tasks of this run by name."""
    if options.lm:
        named = options.tasks.split(",") if options.tasks else list(REAL)
        data = Path(options.data or "")
        if not options.data or not data.is_dir():
            raise SystemExit("Real rows are read from a folder: name it with --data or WHET_DATA.")
        return {name: real_rows(name, options.lm, options.base_url, data, 80) for name in named}
    default = SHORT_TASKS if options.short else tuple(TASKS)
    names = options.tasks.split(",") if options.tasks else default
    if unknown := [name for name in names if name not in TASKS]:
        raise SystemExit(f"There is no task {', '.join(unknown)}. There are: {', '.join(TASKS)}.")
    if "others" in names and not (WORLDS / "rulesworld").is_dir():
        print(
            f"others is left out: there is no rulesworld in {WORLDS}; name its folder in WHET_SHARED_WORLDS.",
            file=sys.stderr,
        )
    return {name: TASKS[name] for name in names if name != "others" or (WORLDS / "rulesworld").is_dir()}


def jobs_of(options: argparse.Namespace, tasks: dict[str, FieldTask]) -> list[Job]:
    """The runs of this shard, seed by seed, so that a field that was stopped holds whole seeds."""
    default = SHORT_METHODS if options.short else tuple(METHODS)
    methods = options.methods.split(",") if options.methods else default
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    every = [(seed, task, method) for seed in seeds for task in tasks for method in methods]
    shard, of = map(int, options.shard.split("/"))
    return every[shard::of]


def settings_of(options: argparse.Namespace, method: str) -> dict[str, str]:
    """The settings of a method among those that were given."""
    pairs = (text.partition("=") for text in options.set)
    return {name.partition(".")[2]: value for name, _, value in pairs if name.partition(".")[0] == method}


@contextlib.contextmanager
def told(options: argparse.Namespace, task: FieldTask, job: Job) -> Iterator[Keywords]:
    """What `whet.optimize` is told of a run."""
    seed, name, method = job
    with task.built(seed, options.results / "tasks" / f"{name}-{seed}") as keywords:
        tests = 2 * len(getattr(keywords["task"], "test", range(task.test)))
        calls = (options.task_calls + tests) * task.calls
        yield {
            **keywords,
            "method": method,
            "settings": settings_of(options, method),
            "seed": seed,
            "budget": whet.Budget(task_calls=calls, optimizer_calls=options.optimizer_calls),
            "run": options.results / "runs" / f"{name}-{seed}-{method}",
            "progress": False,
        }


def play(options: argparse.Namespace, task: FieldTask, job: Job) -> dict[str, Any]:
    """The row of a run: of one that cannot be, why."""
    seed, name, method = job
    row: dict[str, Any] = {
        "task": name, "what": task.what, "kind": task.kind, "seed": seed, "method": method, "date": date.today().isoformat(),
        "version": whet.__version__, "limits": {"task": options.task_calls, "optimizer": options.optimizer_calls},
    }  # fmt: skip
    if "policy" in METHODS[method].needs and not (task.trains or options.train):
        return {**row, "reason": "methods that train a policy are tried on the task `form` only"}
    with told(options, task, job) as keywords:
        begun = time.perf_counter()
        try:
            result = whet.optimize(**keywords)
        except UsageError as error:
            return {**row, "reason": str(error).partition("\n")[0].partition(". ")[0]}
        if result.best.test is None or result.baseline.test is None or result.best.test.mean is None:
            return {**row, "reason": f"no test: {result.ended_by}"}
        run = Path(result.run)
        answers = sealed_answers(run)
        return {
            **row,
            "seconds": time.perf_counter() - begun,
            "low": answers.low,
            "high": answers.high,
            "rewards": answers.rewards,
            "start": result.baseline.test.mean,
            "prompt": result.best.prompt.region_text()
            if not result.best.prompt.parts
            else result.best.prompt.text,
            "result": {
                **result.to_dict(),
                "run": str(run),
                "readability": {"perplexity": None, "reason": "not measured here"},
            },
        }


def say_cost(options: argparse.Namespace, tasks: dict[str, FieldTask], jobs: Sequence[Job]) -> None:
    """What the runs on a real endpoint may cost, before anything is paid."""
    most = sum((options.task_calls + 2 * tasks[task].test) * tasks[task].calls for _, task, _ in jobs)
    print(
        f"{len(jobs)} runs on {options.lm}: at most {most:,} task and {len(jobs) * options.optimizer_calls:,} optimizer calls. "
        "Each method's plan with tokens and, where the price is known, dollars: whet optimize --dry-run.",
        file=sys.stderr,
    )
    if not options.yes:
        raise SystemExit("Nothing was paid. Give --yes to begin.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are missing, then the table of all that there are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="some methods on four tasks, two seeds")
    parser.add_argument("--tasks", help="names, separated by commas; default: all")
    parser.add_argument("--methods", help="names, separated by commas; default: all")
    parser.add_argument("--seeds", type=int, help="default: 5, short: 2")
    parser.add_argument("--first-seed", type=int, default=0, help="for seeds that nobody has looked at")
    parser.add_argument("--task-calls", type=int, default=300, help="rollouts of a search")
    parser.add_argument("--optimizer-calls", type=int, default=20)
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th run from the I-th")
    parser.add_argument("--results", type=Path, help="folder of the rows and runs; default: runs/field")
    parser.add_argument("--train", action="store_true", help="train policies on every task")
    parser.add_argument(
        "--set", action="append", default=[], metavar="METHOD.NAME=VALUE", help="a setting of a method"
    )
    parser.add_argument("--lm", help="an endpoint's model, for real rows")
    parser.add_argument("--base-url")
    parser.add_argument("--data", default=os.environ.get("WHET_DATA"), help="folder of the real rows")
    parser.add_argument("--yes", action="store_true", help="pay the endpoint")
    parser.add_argument("--table", action="store_true", help="only the table")
    options = parser.parse_args(arguments)
    options.results = options.results or Path("runs/field-short" if options.short else "runs/field")
    options.seeds = options.seeds or (2 if options.short else 5)
    if not options.table:
        run_field(options)
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(options.results.glob("*.json"))]
    if not rows:
        raise SystemExit(f"There is no row in {options.results} yet.")
    print(field_table(rows))
    write_pages(options.results, rows)


def run_field(options: argparse.Namespace) -> None:
    """The runs that have no row yet."""
    options.results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("WHET_STATE", str(options.results.resolve() / "state"))
    tasks = tasks_of(options)
    jobs = jobs_of(options, tasks)
    if options.lm:
        say_cost(options, tasks, jobs)
    for number, job in enumerate(jobs, 1):
        seed, name, method = job
        file = options.results / f"{name}-{seed}-{method}.json"
        if file.is_file():
            continue
        row = play(options, tasks[name], job)
        whole = file.with_suffix(".part")
        whole.write_text(json.dumps(row), encoding="utf-8")
        whole.replace(file)
        mean = (
            sum(v for v in row["rewards"].values() if v is not None) / len(row["rewards"])
            if "rewards" in row
            else None
        )
        said = row.get("reason", "") if mean is None else f"{mean:.3f} in {row['seconds']:.1f} s"
        print(
            f"{number}/{len(jobs)} {name}, seed {seed}, {method}: {said[:120]}", file=sys.stderr, flush=True
        )


if __name__ == "__main__":
    main()
