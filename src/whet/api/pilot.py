"""The pilot of `whet.advise`: a few prompts on some training rows, paid within limits, to see whether wording matters at all.

The prompts are the start prompt, asked twice about each row, and it with one usual part more. One half of the rows picks the
best of these, and the other half, which it was not picked on, measures what it gains: picked and measured on the same rows, the
best of equal prompts looks better. No sealed row is answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from whet.api.pay_back import describe_pilot
from whet.api.study.components import (
    Components,
    Part,
    assemble_prompts,
    fill_examples,
    read_components,
    without_rows,
)
from whet.api.study.grid import Grid, StudyOptions, StudyPlan, run_study, study_rows
from whet.engine.assemble import Assembly, assemble
from whet.engine.comparison_json import CallCostJSON, PilotJSON
from whet.engine.journal import read_journal_rows
from whet.engine.progress import Progress
from whet.engine.recorded_answers import JOURNAL
from whet.engine.result_json import MeanJSON
from whet.errors import UsageError, parameter, quantity
from whet.stats import decide
from whet.stats.rates import student_quantile
from whet.task import Task
from whet.types import Example

START = "start prompt"
ROWS = 60
"""Training rows of a pilot, unless the caller says how many."""
FEWEST = 12
_PARTS = ("steps", "examples", "output_format", "chain_of_thought")
_SAMPLES = (0, 1)  # of the start prompt

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Prompts:
    """Names of the prompts that are tried, the start prompt once, and the plan of their answers."""

    names: Sequence[str]
    plan: StudyPlan

    def describe(self, grid: Grid) -> dict[str, Any]:
        """The figures of the answers, as in result.json."""
        table = grid.rewards
        known = np.flatnonzero(~np.isnan(table).any(axis=1))
        clusters = [grid.clusters[int(i)] for i in known]
        if len(set(clusters)) < 2:
            raise UsageError(
                f"In the pilot, all prompts have answers on {quantity(len(known), 'row')}, but a "
                "comparison needs two or more independent rows. Examine the failures with `whet "
                "doctor`."
            )
        means = [mean for i, mean in enumerate(grid.means()) if i != 1]
        return {
            "prompts": [{"name": name, **mean} for name, mean in zip(self.names, means, strict=True)],
            **headroom(table[known], clusters, grid.low, grid.high, self.names, self.plan.seed),
        }


def headroom(
    table: Array, clusters: Sequence[int], low: float, high: float, names: Sequence[str], seed: int
) -> dict[str, Any]:
    """Spread between prompts, noise between two answers to one prompt, and what the best prompt gains on fresh rows.

    `table`: rows x prompts of rewards in [low, high], the start prompt in its first two columns (two samples), then one column
    for each further name. `spread` is the standard deviation of the prompts' true means (the variance component of a two-way
    analysis of variance, 0 where the means differ by no more than chance); `noise` that of an answer to the same row under the
    same prompt, by sqrt(mean of squared differences / 2). The halves are drawn by the seed; no cluster lies in both.
    """
    prompts = np.delete(table, 1, axis=1)
    first = _first_half(clusters, seed)
    best = 1 + int(prompts[first, 1:].mean(axis=0).argmax())
    fresh = [i for i in range(len(prompts)) if i not in set(first)]
    test = decide(
        prompts[fresh, 0].tolist(),
        prompts[fresh, best].tolist(),
        low,
        high,
        clusters=[clusters[i] for i in fresh],
    )
    return {
        "spread": spread_of(prompts),
        "noise": float(np.sqrt(((table[:, 0] - table[:, 1]) ** 2).mean() / 2)),
        "best": names[best],
        "gain": {"estimate": test.difference, "low": test.low, "high": test.high, "basis": "pilot"},
        "best_mean": float(prompts[fresh, best].mean()),
        "picked_on": len(first),
        "measured_on": len(fresh),
    }


def spread_of(table: Array) -> float:
    """The standard deviation of the true means of prompts on the same rows (rows x prompts)."""
    n, k = table.shape
    columns = table.mean(axis=0)
    between = n * ((columns - table.mean()) ** 2).sum() / (k - 1)
    rest = table - table.mean(axis=1, keepdims=True) - columns + table.mean()
    within = (rest**2).sum() / ((n - 1) * (k - 1))
    return float(np.sqrt(max(0.0, between - within) / n))


def _first_half(clusters: Sequence[int], seed: int) -> list[int]:
    """The positions of the rows that pick: whole clusters, about half of the rows and not all clusters."""
    kinds = sorted(set(clusters))
    random.Random(seed).shuffle(kinds)
    chosen: list[int] = []
    for kind in kinds[:-1]:
        if chosen and 2 * len(chosen) >= len(clusters):
            break
        chosen += [i for i, own in enumerate(clusters) if own == kind]
    return sorted(chosen)


async def run_pilot(task: Task, options: StudyOptions, progress: Progress) -> PilotJSON:
    """The pilot of a task, or its plan in a dry run. The same call again continues and pays for nothing twice.

    Raises UsageError before anything is paid for too few training rows, and for limits that do not pay for all answers.
    """
    rows = study_rows(task, options)
    assembly = assemble(task, options, options.limits(task))
    try:
        prompts = _prompts(task, options, assembly, rows)
        lines = [
            f"pilot: {quantity(len(prompts.names), 'prompt')}, the start prompt twice: {', '.join(prompts.names)}"
        ]
        remedy = f"Give fewer {parameter('pilot_rows')} ({FEWEST} or more) or a larger limit."
        result = await run_study(prompts.plan, progress, {"lines": lines}, prompts.describe, remedy)
    finally:
        await assembly.close()
    kept = ("status", "simulated", "prompts", *_FIGURES, "usage", "run", "plan")
    pilot = cast(PilotJSON, {key: result[key] for key in kept if key in result})
    if pilot["status"] == "completed" and pilot["usage"]["cost_usd"] is not None:
        answered = pilot["picked_on"] + pilot["measured_on"]
        pilot["call_cost_usd"] = call_costs(Path(pilot["run"]) / JOURNAL, answered)
    return {**pilot, "summary": describe_pilot(pilot)}


def call_costs(journal: Path, rows: int) -> dict[str, CallCostJSON]:
    """US dollars of an answered call of each role, with Student's 95% interval of the mean.

    Calls about one row are alike, so the interval is that of so many calls as there are rows: never too short for that.
    """
    paid: dict[str, list[float]] = {}
    for role, cost in read_journal_rows(journal, _ANSWERED):
        paid.setdefault(role, []).append(cost)
    costs: dict[str, CallCostJSON] = {}
    for role, dollars in paid.items():
        if len(dollars) > 1 and rows > 1:
            mean = float(np.mean(dollars))
            n = min(rows, len(dollars))
            half = student_quantile(0.975, n - 1) * float(np.std(dollars, ddof=1)) / n**0.5
            costs[role] = {"mean": mean, "low": max(0.0, mean - half), "high": mean + half}
    return costs


_ANSWERED = "SELECT role, cost FROM calls WHERE state = 'answered'"
_FIGURES = ("spread", "noise", "best", "best_mean", "gain", "picked_on", "measured_on")


def _prompts(task: Task, options: StudyOptions, assembly: Assembly, rows: Sequence[Example]) -> _Prompts:
    usual = {part.name: part for part in read_components("parts").parts}
    parts: list[Part] = []
    shown: set[str] = set()
    for name in _PARTS:
        try:
            filled, own = fill_examples(Components((usual[name],)), assembly.env, task.prompt, options.seed)
        except UsageError:  # too few training rows may be shown
            continue
        parts, shown = [*parts, *filled.parts], shown | own
    levels = [[part is other for other in parts] for part in parts]
    made = assemble_prompts(Components(tuple(parts)), task.prompt, options.region, levels)
    rows = without_rows(rows, shown)
    if len(rows) < FEWEST:
        beside = f" beside the {len(shown)} that a prompt shows" if shown else ""
        raise UsageError(
            f"{task.name} has {quantity(len(rows), 'training row')} for a pilot{beside}, which needs "
            f"{FEWEST}. Add training rows, or leave {parameter('pilot')} out."
        )
    setting = {"prompt": task.prompt.id, "parts": [part.name for part in parts], "samples": len(_SAMPLES)}
    samples = (*_SAMPLES, *(0 for _ in parts))
    prompts = [task.prompt] * len(_SAMPLES) + made
    plan = StudyPlan("pilot", task, options, assembly, prompts, rows, setting, samples)
    return _Prompts((START, *(part.name for part in parts)), plan)


def start_mean(pilot: PilotJSON) -> MeanJSON:
    """The mean of the start prompt in a pilot."""
    values = pilot["prompts"][0].items()
    return cast(MeanJSON, {key: value for key, value in values if key != "name"})


def pilot_options(options: StudyOptions, rows: int) -> StudyOptions:
    """The options of a pilot on so many training rows. Raises UsageError for fewer than it needs."""
    if rows < FEWEST:
        raise UsageError(
            f"{parameter('pilot_rows', rows)} must be {FEWEST} or more: one half of the rows picks a "
            "prompt, the other half measures it."
        )
    return replace(options, split="train", rows=rows)
