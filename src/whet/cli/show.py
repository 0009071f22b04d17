"""What the command line shows: a live line while a run goes on, and results for people or programs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from whet import api
from whet.api import MethodComparison, Progress, RunResult, plan_lines
from whet.cli.common import show_diff, show_table, warn
from whet.cli.interrupt import run
from whet.cli.use import use_lines

PLAIN_SECONDS = 10.0
LIVE_SECONDS = 0.1
LOADING_SECONDS = 3.0
BLOCKS, CURVE = "▁▂▃▄▅▆▇█", 16
NEEDS = {"optimizer_optional": "optimizer (optional)", "label_scores": "labels, a model that scores them"}


def with_progress(task: str, options: Mapping[str, Any]) -> RunResult:
    """Run `optimize` while its state is shown on stderr."""

    async def both() -> RunResult:
        progress = Progress(warn=partial(warn, err=True), planned=planned)
        watcher = asyncio.create_task(watch(progress, options))
        try:
            return await api.aoptimize(Path(task), progress=progress, **options)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    with loading(task) as planned:
        return run(both())


@contextlib.contextmanager
def loading(task: str | Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Say on stderr now and then that the task is still read, until the plan is there; yields what prints the plan."""
    ready = threading.Event()

    def say() -> None:
        started = time.monotonic()
        while not ready.wait(LOADING_SECONDS):
            click.echo(f"reading {task} · {time.monotonic() - started:.0f} s", err=True)

    def planned(values: Mapping[str, Any]) -> None:
        ready.set()
        plan(values)

    threading.Thread(target=say, daemon=True).start()
    try:
        yield planned
    finally:
        ready.set()


def plan(values: Mapping[str, Any]) -> None:
    """The plan, on stderr."""
    for one in plan_lines(values):
        click.echo(one, err=True)


async def watch(progress: Progress, options: Mapping[str, Any]) -> None:
    """A live line on a terminal, a plain line now and then elsewhere."""
    started = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(Text(""), console=Console(stderr=True), transient=True, auto_refresh=False) as live:
            while True:
                live.update(Text(line(progress, options, time.monotonic() - started)), refresh=True)
                await asyncio.sleep(LIVE_SECONDS)
    while True:
        await asyncio.sleep(PLAIN_SECONDS)
        click.echo(line(progress, options, time.monotonic() - started), err=True)


def line(progress: Progress, options: Mapping[str, Any], seconds: float) -> str:
    """One line: phase, best against baseline, how training goes, calls, cost, time, what is left."""
    parts = [progress.phase]
    if progress.baseline is not None and progress.best is not None:
        parts.append(f"best {progress.best:.3f} (baseline {progress.baseline:.3f})")
    core = progress.core
    if progress.figures and progress.phase == "search":
        parts += training(progress, 0 if core is None else core.steps)
    if core is not None:
        spent, limits = core.budget.spent, core.budget.limits
        parts.append(f"{spent.total_calls} calls" + (f" of {limits.calls}" if limits.calls else ""))
        if spent.cost:
            parts.append(f"${spent.cost:.4f}")
        used = _share_used(core)
        if used > 0.02 and seconds > 2:
            parts.append(f"about {seconds * (1 - used) / used:.0f} s left")
    parts.append(f"{seconds:.0f} s")
    if progress.note:
        parts.append(progress.note)
    return " · ".join(parts)


def training(progress: Progress, steps: int) -> list[str]:
    """The newest of `steps` steps (0: unknown), its reward with the curve so far, divergence, pace and memory."""
    figures, rewards, times = progress.figures, progress.rewards, progress.times
    parts = []
    if "step" in figures:
        parts.append(f"step {figures['step'] + 1:.0f}" + (f" of {steps}" if steps else ""))
    if rewards:
        parts.append(f"reward {rewards[-1]:.2f} {curve(rewards)}".rstrip())
    if "kl" in figures:
        parts.append(f"kl {figures['kl']:.2g}")
    if len(times) > 1:
        parts.append(f"{(times[-1] - times[0]) / (len(times) - 1):.2g} s a step")
    if "memory" in figures:
        parts.append(f"{figures['memory']:.1f} GiB")
    return parts


def curve(values: Sequence[float], width: int = CURVE) -> str:
    """The course of a series in at most `width` blocks, each the mean of as many neighbours; nothing for one value.

    The lowest block is the lowest mean, the highest the highest; a level series is drawn low.
    """
    if len(values) < 2:
        return ""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(BLOCKS[int((mean - low) / span * (len(BLOCKS) - 1) + 0.5)] for mean in means)


def _share_used(core: Any) -> float:
    """The largest share of any limit that is used, in [0, 1]."""
    budget = core.budget
    left = budget.searchable()
    shares = [
        1 - getattr(left, name) / limit
        for name in ("calls", "task_calls", "optimizer_calls", "tokens", "cost_usd", "seconds")
        if (limit := getattr(budget.limits, name)) and getattr(left, name) is not None
    ]
    return min(1.0, max(shares, default=0.0))


def compare_with_progress(
    task: str, names: Sequence[str], seeds: int, options: Mapping[str, Any]
) -> MethodComparison:
    """Run `compare`, naming each run on stderr as it begins."""

    def on_run(method: str, seed: int, progress: Progress) -> None:
        progress.warn, progress.planned = partial(warn, err=True), planned
        click.echo(f"{method}, seed {seed} …", err=True)

    with loading(task) as planned:
        return run(api.acompare(Path(task), names, seeds=seeds, on_run=on_run, **options))


def interval(score: Mapping[str, Any]) -> str:
    """A score with its 95 % interval and the number of examples."""
    return f"{score['mean']:.3f}  [{score['low']:.3f}, {score['high']:.3f}]  n={score['n']}"


def result(values: Mapping[str, Any]) -> None:
    """The result of a run: baseline against best, the gate's verdict, the diff, the report."""
    from whet.prompt import text_diff

    if values["status"] == "planned":
        return
    simulated = "  (SIMULATED: a scripted model answered)" if values.get("simulated") else ""
    say = click.echo
    say(f"{values['task']} · {values['method']} · seed {values['seed']}{simulated}\n")
    say(f"{'':22}{'sealed test, 95 % interval'}")
    say(f"{'baseline':<22}{interval(values['baseline']['test'])}")
    say(f"{'best':<22}{interval(values['best']['test'])}")
    if "control" in values:
        control = values["control"]
        test = interval(control["best"]["test"])
        say(f"{'control ' + control['method']:<22}{test}   (as many scored prompts)")
    for name, score in values.get("more", {}).items():
        if name in ("baseline", "best"):
            say(f"{name + ', added rows':<22}{interval(score)}")
    improvement = values["improvement"]
    color = "green" if improvement["promoted"] else None
    say(f"\n{click.style(improvement['reason'], fg=color, bold=True)}")
    _pairs(values)
    if diff := text_diff(values["baseline"]["prompt"], values["best"]["prompt"]):
        say("")
        show_diff(diff)
    usage = values["usage"]
    calls = ", ".join(f"{count} {role}" for role, count in usage["calls"].items() if count) or "none"
    cost = f", ${usage['cost_usd']:.4f}" if usage["cost_usd"] else ""
    cost += ", price unknown: set prices in task.yaml" if usage.get("price_unknown") else ""
    say(f"\ncalls: {calls}{cost}; {usage['seconds']:.0f} s; ended by {values['ended_by']}")
    for warning in values["warnings"]:
        warn(warning)
    say(f"prompt: {values['run']}/best.md\nreport: {values['run']}/report.html")
    for use in use_lines(values):
        say(use)


def evaluation(values: Mapping[str, Any]) -> None:
    """The result of an evaluation."""
    if values["status"] == "planned":
        return
    simulated = "  (SIMULATED)" if values["simulated"] else ""
    click.echo(f"{values['task']} · {values['split']} · {interval(values['score'])}{simulated}")
    for name, mean in values["parts"].items():
        click.echo(f"  {name}: {mean:.4f}")
    for warning in values["warnings"]:
        warn(warning)


def comparison(values: Mapping[str, Any]) -> None:
    """Methods, best test mean first: what they reached and took, then how it reads and what it is worth elsewhere.

    Below the tables stands why a figure is missing.
    """
    if values.get("status") == "planned":
        return
    rows = sorted(values["methods"], key=lambda r: -r["test_mean"])
    head = ["method", "runs", "test mean", "95 % interval", "min", "max", "baseline", "promoted", "calls"]
    show_table([*head, "USD"], [_reached(r) for r in rows])
    if names := list(dict.fromkeys(name for r in rows for name in r.get("objectives", ()))):
        click.echo("")
        show_table(
            ["method", *names], [[r["method"], *(_objective(r, name) for name in names)] for r in rows]
        )
    _pairs(values)
    other = values.get("transfer")
    head = ["method", "perplexity"]
    if other is not None:
        head += ["transfer", "gain there", "95 % interval", "calls there", "USD there"]
    click.echo("")
    show_table(head, [_beside(r) for r in rows])
    if other is not None:
        written = "not measured" if other["test"] is None else interval(other["test"])
        click.echo(f"\ntransfer: {other['model']}; the prompt as written there: {written}")
    for row in rows:
        for name in ("readability", "transfer"):
            for reason in row.get(name, {}).get("reasons", ()):
                click.echo(f"{row['method']}: {name}: {reason}")


def _pairs(values: Mapping[str, Any]) -> None:
    """Methods in pairs, on the same rows."""
    if pairs := values.get("pairs"):
        click.echo("")
        head = ["pair", "difference", "interval, all together", "p", "p adjusted"]
        show_table(head, [_pair(pair) for pair in pairs])


def _objective(r: Mapping[str, Any], name: str) -> str:
    """The baseline's mean of an objective, that of the best prompts, and what the gate said of them."""
    if name not in r.get("objectives", ()):
        return "-"
    one = r["objectives"][name]
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in one["verdicts"].items())
    return f"{one['baseline']:.4g} -> {one['best']:.4g} ({verdicts})"


def _pair(pair: Mapping[str, Any]) -> list[str]:
    difference, low, high = (f"{pair[key]:+.3f}" for key in ("difference", "low", "high"))
    ps = [f"{pair[key]:.3g}" for key in ("p", "p_adjusted")]
    return [f"{pair['a']} - {pair['b']}", difference, f"[{low}, {high}]", *ps]


def _reached(r: Mapping[str, Any]) -> list[str]:
    low, high, worst, best, before = (
        f"{r[key]:.3f}" for key in ("test_low", "test_high", "test_min", "test_max", "baseline_test")
    )
    ends, promoted = f"[{low}, {high}]", f"{r['promoted']}/{r['runs']}"
    reached = [r["method"], str(r["runs"]), f"{r['test_mean']:.3f}", ends, worst, best, before]
    return [*reached, promoted, f"{r['calls']:.0f}", _dollars(r)]


def _dollars(r: Mapping[str, Any]) -> str:
    """What something cost; unknown where a price is."""
    if r["price_unknown"]:
        return "unknown"
    return "-" if r["cost_usd"] is None else f"{r['cost_usd']:.4f}"


def _beside(r: Mapping[str, Any]) -> list[str]:
    perplexity, moved = r["readability"]["perplexity"], r.get("transfer")
    cells = [r["method"], "-" if perplexity is None else f"{perplexity:,.0f}"]
    if moved is None:
        return cells
    if moved["test_mean"] is None:
        return [*cells, *["-"] * 5]
    return [
        *cells,
        f"{moved['test_mean']:.3f}",
        f"{moved['gain_difference']:+.3f}",
        f"[{moved['gain_low']:+.3f}, {moved['gain_high']:+.3f}]",
        f"{moved['calls']:.0f}",
        _dollars(moved),
    ]


def methods(values: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The table of methods, with the package of those that are not whet's own; on stderr what cannot be used."""
    show_table(
        ["method", "what", "paper", "needs", "trains"],
        [
            [
                r["name"],
                r["title"] if r["package"] == "whet" else f"{r['title']} (package {r['package']})",
                r["paper"] if r["arxiv"] == "-" else f"{r['paper']} ({r['arxiv']})",
                ", ".join(NEEDS.get(need, need) for need in r["needs"]) or "-",
                r["trains"],
            ]
            for r in values["methods"]
        ],
    )
    for row in values["unusable"]:
        click.echo(f"whet: {row['error']}", err=True)


def runs(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of runs."""
    if not rows:
        click.echo("No runs yet. Start with: whet optimize TASK")
        return
    cells = []
    for r in rows:
        trials = {"evaluate": f"evaluated on {r['split']}", "transfer": "tried with another model"}
        status = trials.get(r["method"], "completed") if r["status"] == "completed" else r["status"]
        mean, n = ("-", "-") if r["mean"] is None else (f"{r['mean']:.3f}", str(r["n"]))
        promoted = {True: "yes", False: "no"}.get(r["promoted"], "-")
        cells.append([r["run"], status, mean, n, promoted, str(r["calls"]), _dollars(r)])
    show_table(["run", "status", "mean", "n", "promoted", "calls", "USD"], cells)
