"""The latent-rules benchmark: prompt learning beside the one-call rewrite and the prompt that states every rule.

    python -m benchmarks.latent_rules.run
    python -m benchmarks.latent_rules.run --quick
    python -m benchmarks.latent_rules.run --task-lm openai/NAME --base-url URL --runs DIR

Without models of yours, all results are SIMULATED. Every arm runs through the same engine within the same limits:
100 or 500 task calls, baseline and validations included, and at most 12 or 30 optimizer calls. The sealed test
of start and result, 50 pages each, comes on top. With `--runs` what is paid is kept, and the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.latent_rules.arms import ARMS, LEARN, REWRITE
from benchmarks.latent_rules.tables import PUBLISHED, loops_table, main_tables, robustness_table, time_table
from benchmarks.latent_rules.trial import Budget, Endpoint, Job, Trial, play
from benchmarks.simulated.rules import SIZES

BUDGETS = {"100": Budget(100, 12), "500": Budget(500, 30)}
RESULTS, TIMES, ROBUSTNESS, LOOPS = "results", "times", "robustness", "loops"
LATENCY = ({"latency": 0.05}, {"latency": 0.5})
TIMED = (REWRITE, LEARN)
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

WORSE = {"garble": 0.2, "drop": 0.3, "capacity": 6, "off_format": 0.2}
# Name, options of the generator, options of the optimizer, other fields of a Job.
VARIANTS: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("as they are", {}, {}, {}),
    ("other worlds", {}, {}, {"world": 1000}),
    ("optimizer: garble=0.2", {}, {"garble": 0.2}, {}),
    ("optimizer: drop=0.3", {}, {"drop": 0.3}, {}),
    ("optimizer: capacity=6", {}, {"capacity": 6}, {}),
    ("optimizer: off_format=0.2", {}, {"off_format": 0.2}, {}),
    ("optimizer: all four", {}, WORSE, {}),
    ("generator: slip=0.003", {"slip": 0.003}, {}, {}),
    ("generator: room=30, length=2000", {"room": 30, "length": 2000}, {}, {}),
    ("generator: hint=0", {"hint": 0}, {}, {}),
    ("generator: habit=0, spread=2", {"habit": 0, "spread": 2}, {}, {}),
    ("at most 5 complaints per page", {}, {}, {"critiques": 5}),
    ("at most 2 complaints per page", {}, {}, {"critiques": 2}),
    ("at most 1 complaint per page", {}, {}, {"critiques": 1}),
    ("critiques without demands", {}, {}, {"demands": False}),
    ("critiques without demands, optimizer: all four", {}, WORSE, {"demands": False}),
)


def results_jobs(given: argparse.Namespace) -> list[Job]:
    """Every arm at every size, seed and budget."""
    return [
        Job(rules, seed, arm, BUDGETS[budget], endpoint=endpoint(given))
        for budget in given.budgets
        for rules in given.rules
        for arm in given.arms
        for seed in range(given.seeds)
    ]


def times_jobs(given: argparse.Namespace) -> list[Job]:
    """The larger budget at 50 rules, 50 ms per task call and 500 ms per optimizer call."""
    task, optimizer = LATENCY
    return [
        Job(50, seed, arm, BUDGETS["500"], "latency", task, optimizer)
        for arm in TIMED
        for seed in range(min(3, given.seeds))
    ]


def robustness_jobs(given: argparse.Namespace) -> list[Job]:
    """Prompt learning within the smaller budget under simulators of other habits."""
    return [
        Job(rules, seed, LEARN, BUDGETS["100"], name, task, optimizer, **_world(other, seed))
        for name, task, optimizer, other in VARIANTS
        for rules in given.rules
        if rules != 25
        for seed in range(given.seeds)
    ]


def loops_jobs(given: argparse.Namespace) -> list[Job]:
    """Prompt learning bounded by its loops alone: one, and five."""
    return [
        Job(rules, seed, LEARN, BUDGETS["500"], endpoint=endpoint(given), loops=loops)
        for loops in PUBLISHED
        for rules in given.rules
        if rules != 25
        for seed in range(given.seeds)
    ]


def _world(other: dict[str, Any], seed: int) -> dict[str, Any]:
    return {**other, "world": other["world"] + seed} if "world" in other else other


def endpoint(given: argparse.Namespace) -> Endpoint:
    """The models of the command line."""
    return Endpoint(given.task_lm, given.optimizer_lm, given.base_url)


def play_all(jobs: Sequence[Job], root: Path, processes: int) -> list[Trial]:
    """Trials in the order of the jobs, whatever the number of processes."""
    work = partial(play, root=root)
    if processes == 1:
        return [trial for job in jobs for trial in work(job)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return [trial for trials in pool.map(work, jobs) for trial in trials]


def benchmark(given: argparse.Namespace) -> tuple[str, list[Trial]]:
    """The Markdown of the tables asked for, and all trials."""
    lines: list[str] = []
    trials: list[Trial] = []
    with folder(given.runs) as root:
        for name in given.tables:
            jobs = _JOBS[name](given)
            found = play_all(jobs, root, 1 if name == TIMES else given.processes)
            label = "SIMULATED: " if any(t.simulated for t in found) else ""
            lines += [f"{label}{_heading(name, given)}", "", *_TABLES[name](found)]
            trials += found
    return "\n".join(lines).rstrip() + "\n", trials


_JOBS = {RESULTS: results_jobs, TIMES: times_jobs, ROBUSTNESS: robustness_jobs, LOOPS: loops_jobs}
_TABLES = {RESULTS: main_tables, TIMES: time_table, ROBUSTNESS: robustness_table, LOOPS: loops_table}


def _heading(name: str, given: argparse.Namespace) -> str:
    seeds = f"{given.seeds} seed{'s' if given.seeds > 1 else ''}"
    local = endpoint(given).simulated
    most = " and ".join(
        f"{BUDGETS[b].task_calls} task calls (--max-task-calls {BUDGETS[b].limit(local)}) with at most "
        f"{BUDGETS[b].optimizer_calls} optimizer calls"
        for b in given.budgets
    )
    return {
        RESULTS: f"{seeds}, 50 sealed pages each, mean with its 95% interval; {most}.",
        TIMES: f"50 rules, 500 task calls, {min(3, given.seeds)} seeds; 50 ms per task call, 500 ms per optimizer "
        "call, 32 calls at once, one run at a time; median with fastest and slowest.",
        ROBUSTNESS: f"{seeds}, prompt learning, 100 task calls and at most 12 optimizer calls; mean share "
        "of rules followed (that of the worst seed), in bold below 0.95, 0.90, 0.85 at 10, 50, 100 rules; accuracy.",
        LOOPS: f"{seeds}, 50 sealed pages each, share of pages that follow every rule with its 95% interval. A loop of whet "
        "is a round: at most 40 training pages, their critiques, the calls that read them.",
    }[name]


@contextmanager
def folder(given: Path | None) -> Iterator[Path]:
    """Where the runs lie: the folder given, or one that is gone afterwards."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.latent_rules.run", description="The latent-rules benchmark."
    )
    made.add_argument(
        "--quick", action="store_true", help="one seed, 10 and 50 rules, the smaller budget, results only"
    )
    made.add_argument("--rules", type=int, nargs="+", help=f"numbers of hidden rules (default: {SIZES})")
    made.add_argument("--seeds", type=int, help="worlds, request sets and run seeds 0 to N - 1 (default: 5)")
    made.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="what to compare")
    made.add_argument("--budgets", nargs="+", choices=BUDGETS, help="task calls for learning (default: both)")
    made.add_argument(
        "--tables", nargs="+", choices=_TABLES, help="default: all; with models of yours results"
    )
    made.add_argument("--processes", type=int, default=2, help="runs at once (default: 2)")
    made.add_argument("--task-lm", help="address of the model that writes pages (default: the simulator)")
    made.add_argument("--optimizer-lm", help="address of the optimizer model (default: the task model)")
    made.add_argument("--base-url", help="URL of an OpenAI-compatible endpoint")
    made.add_argument("--runs", type=Path, help="folder for the runs, to resume (default: none are kept)")
    made.add_argument("--json", type=Path, help="file for every trial")
    made.add_argument(
        "--write", type=Path, help=f"Markdown file to put the tables into, between {BEGIN} and {END}"
    )
    return made


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line with what `--quick` and models of the caller's imply."""
    given = parser().parse_args(arguments)
    own = given.task_lm is not None or given.optimizer_lm is not None
    given.rules = given.rules or ([10, 50] if given.quick else list(SIZES))
    given.seeds = given.seeds or (1 if given.quick else 5)
    given.budgets = given.budgets or (["100"] if given.quick else list(BUDGETS))
    given.tables = given.tables or ([RESULTS] if given.quick or own else list(_TABLES))
    if own and not set(given.tables) <= {RESULTS, LOOPS}:
        raise SystemExit(
            "Times and robustness vary the simulators: with models of your own ask for results and loops only."
        )
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for and print the tables."""
    given = read_arguments(arguments)
    markdown, trials = benchmark(given)
    print(markdown)
    if given.json is not None:
        rows = [asdict(t) | {"share": t.share, "accuracy": t.accuracy} for t in trials]
        given.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if given.write is not None:
        given.write.write_text(
            insert_markdown(given.write.read_text(encoding="utf-8"), markdown), encoding="utf-8"
        )


def insert_markdown(page: str, markdown: str) -> str:
    """A page with the text between its two marks replaced. Raises SystemExit when it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"The file to write needs the lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{markdown}\n{END}{after}"


if __name__ == "__main__":
    main()
