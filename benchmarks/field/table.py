"""The table of the whole field, of the rows that there are: ranks, differences to the controls, cost, and what did not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.api.comparison import method_summary
from whet.engine.pairs import SealedAnswers, compare_with_start
from whet.reporting import write_comparison
from whet.stats import interval

Row = Mapping[str, Any]
Cell = tuple[str, int]
CONTROLS = "random_search", "meta_prompt"


def scaled_mean(row: Row) -> float:
    """The mean reward on the sealed rows, 0 for the lowest and 1 for the highest possible; a row without an answer counts 0."""
    values = [row["low"] if value is None else value for value in row["rewards"].values()]
    return float((fmean(values) - row["low"]) / (row["high"] - row["low"]))


def cells_of(rows: Sequence[Row]) -> dict[str, dict[Cell, Row]]:
    """The runs that were made, by method, and by task and seed."""
    made: dict[str, dict[Cell, Row]] = {}
    for row in rows:
        if "rewards" in row:
            made.setdefault(row["method"], {})[row["task"], row["seed"]] = row
    return made


def as_answers(runs: Mapping[Cell, Row], cells: Sequence[Cell]) -> SealedAnswers:
    """A method's scaled means as answers to tasks and seeds, for the tests of `whet.compare`."""
    names = [f"{task} {seed}" for task, seed in cells]
    values = {name: scaled_mean(runs[cell]) for name, cell in zip(names, cells, strict=True)}
    return SealedAnswers(values, {name: place for place, name in enumerate(names)}, 0.0, 1.0)


def beside_controls(made: Mapping[str, Mapping[Cell, Row]]) -> dict[tuple[str, str], Row]:
    """Each method beside each control on the tasks and seeds that both have, adjusted over all these comparisons together."""
    firsts, seconds = {}, {}
    for name, runs in made.items():
        for control in CONTROLS:
            cells = sorted(runs.keys() & made.get(control, {}).keys())
            if name != control and cells:
                firsts[f"{name} {control}"] = [as_answers(runs, cells)]
                seconds[f"{name} {control}"] = [as_answers(made[control], cells)]
    return {tuple(row["a"].split()): row for row in compare_with_start(firsts, seconds)} if firsts else {}


def places(made: Mapping[str, Mapping[Cell, Row]], name: str) -> list[float]:
    """For each task and seed of a method the share of the other methods that ended above it (level: half)."""
    shares = []
    for cell, row in made[name].items():
        own = scaled_mean(row)
        others = [scaled_mean(runs[cell]) for other, runs in made.items() if other != name and cell in runs]
        if others:
            shares.append(fmean(1.0 if other > own else 0.5 if other == own else 0.0 for other in others))
    return shares


def shown_place(shares: Sequence[float]) -> str:
    """The mean share of methods above with its 95% interval over tasks and seeds."""
    if not shares:
        return "-"
    over = interval(shares, 0.0, 1.0)
    return f"{over.mean:.2f} [{over.low:.2f}, {over.high:.2f}]"


def difference(row: Row | None) -> str:
    """A paired difference with its joint interval and adjusted p."""
    return (
        "-"
        if row is None
        else f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}], p {row['p_adjusted']:.2g}"
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def field_table(rows: Sequence[Row]) -> str:
    """All tables, as Markdown: worth by task, then ranks, differences and cost, then what did not run and why."""
    made, tasks = cells_of(rows), list(dict.fromkeys(row["task"] for row in rows))
    tests = beside_controls(made)
    above = {name: places(made, name) for name in made}
    order = sorted(made, key=lambda name: fmean(above[name] or [0.5]))

    def mean_of(runs: Mapping[Cell, Row], task: str) -> str:
        own = [scaled_mean(row) for (name, _), row in runs.items() if name == task]
        return f"{fmean(own):.3f}" if own else "-"

    starts: dict[str, dict[int, float]] = {task: {} for task in tasks}
    for row in rows:
        if "rewards" in row:
            starts[row["task"]][row["seed"]] = (row["start"] - row["low"]) / (row["high"] - row["low"])
    start = ["the start prompt", *(f"{fmean(own.values()):.3f}" if own else "-" for own in starts.values())]
    worth = markdown(
        ["method", *tasks],
        [start, *([name, *(mean_of(made[name], task) for task in tasks)] for name in order)],
    )
    whole = [
        [
            name, str(len({task for task, _ in made[name]})), shown_place(above[name]),
            *(difference(tests.get((name, control))) for control in CONTROLS), *cost(list(made[name].values())),
        ]
        for name in order
    ]  # fmt: skip
    head = ["method", "tasks", "share of methods above it", *(f"beyond {name}" for name in CONTROLS)]
    ranks = markdown(
        [*head, "task calls", "optimizer calls", "tokens", "seconds", "characters of the prompt"], whole
    )
    seeds = {row["seed"] for row in rows}
    what = "\n".join(
        f"- `{task}` ({kind}): {text}."
        for task, kind, text in dict.fromkeys((r["task"], r["kind"], r["what"]) for r in rows)
    )
    parts = [f"{len(seeds)} seeds. Tasks:", what, worth, ranks, reasons(rows, tasks), unread(made)]
    return "\n\n".join(part for part in parts if part)


def cost(runs: Sequence[Row]) -> list[str]:
    """Means a run: calls with the sealed test, tokens, seconds, and how long the last prompt is."""
    usage = [row["result"]["usage"] for row in runs]
    return [
        *(f"{fmean(one['calls'][role] for one in usage):.0f}" for role in ("task", "optimizer")),
        f"{fmean(one['input_tokens'] + one['output_tokens'] for one in usage):,.0f}",
        f"{fmean(row['seconds'] for row in runs):.1f}",
        f"{fmean(len(row['prompt']) for row in runs):,.0f}",
    ]


def reasons(rows: Sequence[Row], tasks: Sequence[str]) -> str:
    """Why a dash stands where it stands: methods with the same reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(row["method"] for row in rows):
        own = {row["task"]: row["reason"] for row in rows if row["method"] == name and "reason" in row}
        if own:
            where = "all tasks" if set(own) == set(tasks) else ", ".join(own)
            reason = (
                next(iter(own.values())).partition("; the model is")[0].replace(f"The method {name}", "it")
            )
            together.setdefault((where, reason), []).append(f"`{name}`")
    lines = [f"- {', '.join(names)} on {where}: {reason}." for (where, reason), names in together.items()]
    return "Not run:\n\n" + "\n".join(lines) if lines else ""


def unread(made: Mapping[str, Mapping[Cell, Row]]) -> str:
    """In how many runs of a method a warning says that texts of the optimizer model were lost."""
    lost = {
        name: sum(
            any(
                "of use" in text or "lost" in text or "could be used" in text
                for text in row["result"]["warnings"]
            )
            for row in runs.values()
        )
        for name, runs in made.items()
    }
    told = ", ".join(f"`{name}` {count} of {len(made[name])}" for name, count in lost.items() if count)
    return f"Runs in which texts of the optimizer could not be used: {told}." if told else ""


def write_pages(folder: Path, rows: Sequence[Row]) -> None:
    """For each task the page, CSV, Markdown and LaTeX that `whet compare` writes, in `folder`/compare/TASK."""
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task and "rewards" in row]
        seeds = (
            set.intersection(
                *(
                    {row["seed"] for row in own if row["method"] == name}
                    for name in {r["method"] for r in own}
                )
            )
            if own
            else set()
        )
        own = [row for row in own if row["seed"] in seeds]
        if not own:
            continue
        names = list(dict.fromkeys(row["method"] for row in own))
        answers = {
            name: [collect_sealed_answers([row for row in own if row["method"] == name])] for name in names
        }
        pairs = [
            {**row, "b": control}
            for control in CONTROLS if control in answers
            for row in compare_with_start({n: answers[n] for n in names if n != control}, dict.fromkeys(names, answers[control]))
        ]  # fmt: skip
        results = [row["result"] for row in own]
        compared = {
            "task": task,
            "runs": results,
            "methods": [method_summary(n, results) for n in names],
            "pairs": pairs,
            "beside_start": [],
        }
        write_comparison(folder / "compare" / task, compared)


def collect_sealed_answers(rows: Sequence[Row]) -> SealedAnswers:
    """The sealed answers of a method's runs, each seed with test rows of its own."""
    ordered = sorted(rows, key=lambda row: int(row["seed"]))
    rewards = {f"{row['seed']}/{name}": value for row in ordered for name, value in row["rewards"].items()}
    places = {name: place for place, name in enumerate(rewards)}
    return SealedAnswers(rewards, places, ordered[0]["low"], ordered[0]["high"])
