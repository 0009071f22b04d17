"""`whet.transfer_matrix`: the prompts of several runs, each found for another model, on all of these models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.keywords import TRANSFER_GROUPS, TransferKeywords
from whet.api.results import MatrixResult
from whet.api.running import find_run
from whet.api.transferring import RunTrials, TransferOptions, read_finished, task_of_run, usage_of_trials
from whet.engine.assemble import (
    Assembly,
    TransferModel,
    assemble,
    transfer_model,
    without_price_of_another,
)
from whet.engine.comparison_json import EffectJSON, MatrixCellJSON, MatrixFiguresJSON, MatrixJSON
from whet.engine.openings import run_id
from whet.engine.options import RoleModel
from whet.engine.pairs import example_clusters
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.result_json import MeanJSON, RunJSON, TrialAnswersJSON, UsageJSON
from whet.engine.transfer import compare_sides
from whet.errors import UsageError, parameter
from whet.reporting import display_progress, write_matrix
from whet.run import Budget
from whet.search.archive import Candidate
from whet.stats import ContrastTest, HomeAdvantage, evaluate_home, interval
from whet.stats.intervals import show_number
from whet.task import Task
from whet.types import content_hash

MATRIX = "transfer_matrix"


@check_arguments
@describe_keywords(*TRANSFER_GROUPS, defaults=TransferOptions)
async def atransfer_matrix(
    runs: Sequence[str | Path], *, lms: Sequence[RoleModel] = (), **keywords: Unpack[TransferKeywords]
) -> MatrixResult:
    """Measure the best prompt of each of several finished runs with the model of each, to find out whether prompts are locked
    in to their models.

    `runs`: two or more runs of one task, each with another task model. `lms`: the models, if the addresses of the runs are not
    enough (functions, dicts as under `models` in task.yaml); their addresses are those of the runs. The other arguments are as
    in `whet.transfer`. With `split="test"`, the runs' own answers are used, and each other pair of a run and a model counts as
    an opening. The answers are stored below the runs, in `transfer`, and page and JSON in a separate folder below `root`. The
    same call again pays nothing.

    Raises UsageError before anything is paid: for fewer than two runs, runs of different tasks or of one model, and for what
    `whet.transfer` refuses.
    """
    choices = build_from(TransferOptions, keywords)
    folders = [find_run(run, choices.root) for run in runs]
    read = [read_finished(folder) for folder in folders]
    tasks = [
        task_of_run(folder, header, choices.task) for folder, (_, header) in zip(folders, read, strict=True)
    ]
    homes = [str(result["models"]["task"]) for result, _ in read]
    _refuse_unlike(folders, tasks, homes)
    models: list[Any] = [lm for lm in lms if lm is not None] or list(homes)
    options = choices.for_models(models, tasks[0], read[0][1])
    assembly = assemble(without_price_of_another(tasks[0], models[0]), options, options.budget)
    others: list[TransferModel] = []
    try:
        for model in models:
            others.append(transfer_model(tasks[0], replace(options, lm=model), options.budget, model))
        placed = _by_home(others, homes)
        with display_progress(keywords.get("progress")) as shown:
            matrix = _Matrix(
                folders,
                tasks,
                [result for result, _ in read],
                placed,
                assembly,
                options.budget,
                options.split,
                shown,
                options.fresh,
            )
            matrix.folder = Path(options.root) / _folder_name(tasks[0], folders, options.split)
            return MatrixResult(await matrix.fill(options))
    finally:
        for other in others:
            await other.client.model.close()
        await assembly.close()


def _refuse_unlike(folders: Sequence[Path], tasks: Sequence[Task], homes: Sequence[str]) -> None:
    """Raise UsageError for runs that make no matrix."""
    if len(folders) < 2:
        raise UsageError("A matrix needs two runs or more, each with a different task model.")
    for i, (folder, home) in enumerate(zip(folders, homes, strict=True)):
        if home in homes[:i]:
            raise UsageError(
                f"{folder} and {folders[homes.index(home)]} have the same task model, {home}. Name one run for each model."
            )
    rows = [{name: part for name, part in task.parts.items() if name != "prompt"} for task in tasks]
    for folder, own in zip(folders, rows, strict=True):
        if own != rows[0]:
            raise UsageError(
                f"{folder} and {folders[0]} have different rows or rewards. Name runs of one task."
            )
    if tasks[0].cases:
        raise UsageError(
            "These runs have several tasks or models each, but a matrix needs runs of one task. Name "
            "such runs."
        )


def _by_home(others: Sequence[TransferModel], homes: Sequence[str]) -> list[TransferModel]:
    """The models in the order of the runs. Raises UsageError where they are not those of the runs."""
    known = {other.address: other for other in others}
    if len(known) < len(others) or set(known) != set(homes):
        raise UsageError(
            f"A matrix uses the models of its runs, each once: {', '.join(homes)}. {parameter('lm')} "
            f"names {', '.join(other.address for other in others)}."
        )
    return [known[home] for home in homes]


def _folder_name(task: Task, folders: Sequence[Path], split: str) -> str:
    return f"{task.name}-matrix-{content_hash([sorted(map(run_id, folders)), split])[:6]}"


Side = Literal["start", "best"]


@dataclass(frozen=True)
class _Cell:
    """A prompt of a run that a model is asked about."""

    run: int
    side: Side
    model: int


@dataclass
class _Matrix:
    """Runs, their models, and the answers of each model under each prompt, asked once."""

    folders: Sequence[Path]
    tasks: Sequence[Task]
    results: Sequence[RunJSON]
    others: Sequence[TransferModel]
    assembly: Assembly
    limits: Budget
    split: str
    progress: Progress
    fresh: bool = False
    folder: Path = Path()
    answers: dict[tuple[str, int], TrialAnswersJSON] = field(default_factory=dict)
    usages: list[UsageJSON] = field(default_factory=list)
    simulated: bool = False

    def __post_init__(self) -> None:
        spent: list[UsageJSON] = []
        self.trials = [
            RunTrials(
                folder, task, result, self.assembly, self.limits, self.split, self.progress, spent, self.fresh
            )
            for folder, task, result in zip(self.folders, self.tasks, self.results, strict=True)
        ]
        self.simulated = any(bool(result["simulated"]) for result in self.results)
        if self.split == "test":
            for i, trial in enumerate(self.trials):
                self.answers[trial.start.id, i] = trial.home_answers("baseline")
                self.answers[trial.best.id, i] = trial.home_answers("best")

    def candidate(self, run: int, side: Side) -> Candidate:
        """A prompt of a run."""
        return self.trials[run].start if side == "start" else self.trials[run].best

    def missing(self) -> list[_Cell]:
        """The prompts that each model must answer: each prompt once, however many runs have it."""
        seen, cells = set(self.answers), list[_Cell]()
        sides: tuple[Side, Side] = ("start", "best")
        for model in range(len(self.others)):
            for run in range(len(self.trials)):
                for side in sides:
                    key = self.candidate(run, side).id, model
                    if key not in seen:
                        seen.add(key)
                        cells.append(_Cell(run, side, model))
        return cells

    async def fill(self, options: TransferOptions) -> MatrixJSON:
        """The whole result; in a dry run the plans only. Raises UsageError before anything is paid."""
        cells, first = self.missing(), self.trials[0]
        counts = [sum(cell.model == model for cell in cells) for model in range(len(self.others))]
        plans: list[PlanJSON] = []
        for other, sides in zip(self.others, counts, strict=True):
            plan = first.plan(other, sides)
            if options.on_plan is not None:
                options.on_plan(other.address, plan)
            self.progress.planned({**plan, "model": other.address})
            plans.append({"model": other.address, **plan})
        needed = [(other, sides) for other, sides in zip(self.others, counts, strict=True) if sides]
        first.refuse_unpayable(needed)
        if options.dry_run:
            return {**self.identity("planned", plans)}
        for run, model in dict.fromkeys((cell.run, cell.model) for cell in cells):
            await self.trials[run].open_for(self.others[model])
        for cell in cells:
            candidate = self.candidate(cell.run, cell.side)
            side = await self.trials[cell.run].answer_under(self.others[cell.model], cell.side, candidate)
            self.answers[candidate.id, cell.model] = side
            self.usages.append(side["usage"])
            self.simulated = self.simulated or side["simulated"]
        result: MatrixJSON = {**self.identity("completed", plans), **self.figures()}
        write_matrix(self.folder, result)
        return result

    def identity(self, status: str, plans: list[PlanJSON]) -> MatrixJSON:
        """The matrix and its usage."""
        names = (other.address for other in self.others)
        warnings = [warning for trial in self.trials for warning in trial.warnings]
        if self.split == "validation":
            warnings.append(
                "Each run chose its best prompt on these validation rows, so gains with the run's "
                "own model and the home advantage look larger than they are. For rows on which no "
                f"prompt was chosen, use {parameter('split', 'test')}."
            )
        return {
            "task": self.tasks[0].name,
            "method": MATRIX,
            "status": status,
            "split": self.split,
            "rows": len(self.trials[0].rows),
            "folder": str(self.folder),
            "runs": dict(zip(names, map(str, self.folders), strict=True)),
            "plans": plans,
            "usage": usage_of_trials(self.usages),
            "warnings": warnings,
        }

    def rewards(self, run: int, side: Side, model: int) -> NDArray[np.float64]:
        """The reward of each row, not a number where there is no answer."""
        answers = self.answers[self.candidate(run, side).id, model]
        values = np.array(answers["rewards"], dtype=np.float64)
        values[list(answers.get("unanswered", ()))] = np.nan
        return values

    def figures(self) -> MatrixFiguresJSON:
        """All cells, and what they say together."""
        env, n = self.assembly.env, len(self.others)
        sides = [(env, trial.best.prompt) for trial in self.trials]
        clusters = example_clusters(
            [*sides, *((env, t.start.prompt) for t in self.trials)], self.trials[0].rows
        )
        ends = env.reward.low, env.reward.high
        places = [(run, model) for run in range(n) for model in range(n)]
        cells = [self._cell(run, model, ends, clusters) for run, model in places]
        stacked = np.stack([self.rewards(run, "best", model) for run, model in places], axis=1)
        parts = evaluate_home(stacked.reshape(-1, n, n), *ends, clusters)
        names = [other.address for other in self.others]
        effects = {"models": parts.models, "origins": parts.origins, "own": parts.own}
        return {
            "simulated": self.simulated,
            "verdict": verdict_of(parts, ends[1] - ends[0]),
            "cells": cells,
            "home": _effect(parts.home),
            "effects": {
                kind: dict(zip(names, map(_effect, tests), strict=True)) for kind, tests in effects.items()
            },
            "variance": None
            if (variance := parts.variance) is None
            else {
                "model": variance.model,
                "origin": variance.origin,
                "home": variance.home,
                "rest": variance.rest,
                "home_low": variance.home_low,
                "home_high": variance.home_high,
                "share_of_home": variance.share_of_home,
            },
        }

    def _cell(
        self, run: int, model: int, ends: tuple[float, float], clusters: Sequence[int]
    ) -> MatrixCellJSON:
        best, start = (self.answers[self.candidate(run, side).id, model] for side in ("best", "start"))
        before, after = (self.rewards(run, side, model) for side in ("start", "best"))
        return {
            "origin": self.others[run].address,
            "model": self.others[model].address,
            "run": str(self.folders[run]),
            "score": _mean(after, ends, clusters),
            "start": _mean(before, ends, clusters),
            "gain": compare_sides((start, best), ends, clusters, self.trials[run].same),
        }


def _mean(values: NDArray[np.float64], ends: tuple[float, float], clusters: Sequence[int]) -> MeanJSON:
    """The mean of what was answered, with its 95% interval."""
    known = np.flatnonzero(~np.isnan(values)).tolist()
    if not known:
        nothing: MeanJSON = {"mean": None, "low": None, "high": None, "n": 0, "method": None}
        return nothing | {"answered": 0, "of": len(values)}
    bounds = interval([float(values[i]) for i in known], *ends, clusters=[clusters[i] for i in known])
    return {
        "mean": bounds.mean,
        "low": bounds.low,
        "high": bounds.high,
        "n": bounds.n,
        "method": bounds.method,
        "answered": len(known),
        "of": len(values),
    }


def _effect(test: ContrastTest) -> EffectJSON:
    return {"difference": test.difference, "low": test.low, "high": test.high, "p_adjusted": test.p_adjusted}


def verdict_of(effects: HomeAdvantage, width: float) -> str:
    """One sentence on the home advantage; `width` is that of the range of the reward."""
    home, parts = effects.home, effects.variance
    if home.difference is None or parts is None:
        return "No verdict: no row was answered by all models under all prompts."
    ends = f"(95% interval {show_number(home.low)} to {show_number(home.high)}, {home.n:,} rows)"
    share = parts.share_of_home
    part = "" if share is None else f"; that is {share:.0%} of the variance between the cells"
    if home.low > 0:
        return (
            "Locked in: with the model for which it was found, a prompt earns "
            f"{show_number(home.difference)} more than prompt and model explain {ends}{part}."
        )
    if home.high < 0:
        return (
            "Not locked in: with the model for which it was found, a prompt earns "
            f"{show_number(-home.difference)} less than prompt and model explain {ends}."
        )
    small = home.high <= 0.05 * width
    more = "" if small else " More rows would decide."
    bound = "a home advantage above 0.05 of the reward's range is excluded" if small else "nor excluded"
    return (
        f"Lock-in is not shown: the home advantage is {show_number(home.difference)} {ends}, {bound}.{more}"
    )


transfer_matrix = blocking(atransfer_matrix)

__all__ = ["atransfer_matrix", "transfer_matrix", "verdict_of"]
