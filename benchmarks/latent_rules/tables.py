"""The benchmark's figures as Markdown: means over seeds with intervals, costs, times, robustness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from benchmarks.latent_rules.arms import ARMS, CEILING, LEARN
from benchmarks.latent_rules.trial import Trial
from scipy import stats

from whet.stats import interval

TITLES = {"start": "start prompt", **{name: arm.title for name, arm in ARMS.items()}}
PUBLISHED = {1: {10: 0.15, 50: 0.0, 100: 0.0}, 5: {10: 1.0, 50: 0.7, 100: 0.55}}
"""Pages that follow every rule after so many loops, by number of rules: Arize, "Prompt Learning: Using English Feedback to
Optimize LLM Systems", 2025, with models and rules of their own."""
REACH = {10: 0.95, 25: 0.925, 50: 0.90, 100: 0.85}
"""Mean share of rules followed that 100 task calls and 12 optimizer calls should reach, by number of rules."""


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its 95% interval, in [0, 1]."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.2f}, {self.high:.2f})"


def estimate(by_seed: Sequence[Sequence[float]]) -> Estimate:
    """Mean of values in [0, 1] that come in one list per seed.

    The interval is Student's over the means of the seeds, which vary with the world, the pages and the run;
    where all values are 0 or 1 it is nowhere narrower than Wilson's over all pages, which also holds
    when no seed differs from another. For one seed it is the gate's over its pages.
    """
    means = [fmean(values) for values in by_seed]
    pages = [value for values in by_seed for value in values]
    mean, ends = fmean(means), []
    if len(means) > 1:
        half = stats.t.ppf(0.975, len(means) - 1) * stdev(means) / math.sqrt(len(means))
        ends += [mean - half, mean + half]
    if len(means) == 1 or set(pages) <= {0.0, 1.0}:
        found = interval(pages, 0.0, 1.0)
        ends += [found.low, found.high]
    return Estimate(mean, max(0.0, min(ends)), min(1.0, max(ends)))


def shares(trials: Sequence[Trial]) -> Estimate:
    """Mean share of rules followed."""
    return estimate([trial.shares for trial in trials])


def accuracies(trials: Sequence[Trial]) -> Estimate:
    """Share of pages that follow every rule."""
    return estimate([[float(share == 1.0) for share in trial.shares] for trial in trials])


def costs(trials: Sequence[Trial]) -> str:
    """Mean calls and tokens of a run, its sealed tests included."""
    task, asked = (fmean(t.calls[role] for t in trials) for role in ("task", "optimizer"))
    return f"{task:.0f} + {asked:.1f}, {fmean(t.tokens for t in trials) / 1000:.0f}"


def main_tables(trials: Sequence[Trial]) -> list[str]:
    """Share, accuracy and cost of every arm, for each budget."""
    lines: list[str] = []
    for budget in dict.fromkeys(t.budget for t in trials):
        mine = [t for t in trials if t.budget == budget]
        lines += [f"### {budget} task calls for learning", ""]
        lines += ["Mean share of rules followed:", "", *_grid(mine, lambda found: str(shares(found)))]
        lines += ["Accuracy, the share of pages that follow every rule:", ""]
        lines += _grid(mine, lambda found: str(accuracies(found)), _ratios(mine))
        paid = [t for t in mine if t.arm not in ("start", CEILING)]
        lines += [
            "Task calls + optimizer calls, thousands of tokens of a whole run:",
            "",
            *_grid(paid, costs),
        ]
    return lines


def _grid(
    trials: Sequence[Trial], cell: Callable[[Sequence[Trial]], str], last: Mapping[str, str] | None = None
) -> list[str]:
    """One line per arm, one column per number of rules."""
    sizes = sorted({t.rules for t in trials})
    rows = [
        [TITLES[arm], *(cell([t for t in trials if (t.arm, t.rules) == (arm, n)]) for n in sizes)]
        for arm in dict.fromkeys(t.arm for t in trials)
    ]
    return [*table(["", *(f"{n} rules" for n in sizes)], rows + ([list(last.values())] if last else [])), ""]


def _ratios(trials: Sequence[Trial]) -> Mapping[str, str]:
    """Accuracy of prompt learning over that of the ceiling."""
    found = {"": "prompt learning, over the ceiling"}
    for n in sorted({t.rules for t in trials}):
        ours, most = ([t.accuracy for t in trials if (t.arm, t.rules) == (a, n)] for a in (LEARN, CEILING))
        if not ours or not most:
            return {}
        found[str(n)] = f"{fmean(ours) / fmean(most):.3f}" if fmean(most) else "-"
    return found


def time_table(trials: Sequence[Trial]) -> list[str]:
    """Wall seconds of a whole run with simulated latency: the median over seeds, and the extremes."""
    rows = []
    for arm in dict.fromkeys(t.arm for t in trials):
        mine = [t for t in trials if t.arm == arm]
        seconds = [t.seconds for t in mine]
        spread = f"{median(seconds):.1f} ({min(seconds):.1f}, {max(seconds):.1f})"
        rows.append([TITLES[arm], spread, costs(mine), str(shares(mine)), str(accuracies(mine))])
    head = ["", "seconds", "task + optimizer calls, thousands of tokens", "share", "accuracy"]
    return [*table(head, rows), ""]


def robustness_table(trials: Sequence[Trial]) -> list[str]:
    """Mean share of rules followed under other simulators with the worst seed's, in bold below REACH, and accuracy."""
    sizes = sorted({t.rules for t in trials})
    rows = []
    for variant in dict.fromkeys(t.variant for t in trials):
        cells = []
        for n in sizes:
            mine = [t for t in trials if (t.variant, t.rules) == (variant, n)]
            share, worst = fmean(t.share for t in mine), min(t.share for t in mine)
            cell = f"{share:.3f}" if share >= REACH.get(n, 0.0) else f"**{share:.3f}**"
            cells.append(f"{cell} ({worst:.3f}), {fmean(t.accuracy for t in mine):.2f}")
        rows.append([variant, *cells])
    return [*table(["simulators", *(f"{n} rules" for n in sizes)], rows), ""]


def loops_table(trials: Sequence[Trial]) -> list[str]:
    """The share of pages that follow every rule after so many loops, beside the figures that Arize published for its own."""
    sizes = sorted({t.rules for t in trials})
    rows = []
    for loops in dict.fromkeys(t.budget for t in trials):
        mine = {n: [t for t in trials if (t.rules, t.budget) == (n, loops)] for n in sizes}
        name = f"{loops} loop{'s' if loops > 1 else ''}"
        if loops in PUBLISHED:
            cells = [f"{PUBLISHED[loops][n]:.0%}" if n in PUBLISHED[loops] else "-" for n in sizes]
            rows.append([f"{name}, as published", *cells, "not published"])
        rows.append(
            [
                f"{name}, whet",
                *(str(accuracies(mine[n])) for n in sizes),
                "; ".join(map(costs, mine.values())),
            ]
        )
    costs_head = f"calls and thousands of tokens a run of whet ({', '.join(map(str, sizes))} rules)"
    return [*table(["", *(f"{n} rules" for n in sizes), costs_head], rows), ""]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
