"""`whet.transfer`: the prompts of a finished run with other task models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Unpack, cast

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.comparison import found_candidate
from whet.api.keywords import TRANSFER_GROUPS, OnPlan, TransferKeywords
from whet.api.results import TransferResult
from whet.api.running import find_run, read_result
from whet.engine.assemble import (
    Assembly,
    TransferModel,
    assemble,
    transfer_model,
    without_price_of_another,
)
from whet.engine.budget import test_set_budget
from whet.engine.comparison_json import AgainstHomeJSON, HomeJSON, ModelTransferJSON, TransferJSON
from whet.engine.forecast import forecast_evaluation
from whet.engine.openings import SealedTestLedger, run_id
from whet.engine.options import Options, RoleModel
from whet.engine.pairs import example_clusters, sealed_answers
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.result_json import RunJSON, TrialAnswersJSON, TrialJSON, UsageJSON
from whet.engine.run_folder import RunPlan, read_header, task_folder
from whet.engine.transfer import TRANSFER, TransferTest, compare_sides, limits_left
from whet.engine.usage_sums import roles_in
from whet.errors import BudgetExceeded, UsageError, did_you_mean, named_fields, parameter, quantity
from whet.methods import get_method
from whet.models.callable import ModelChoice
from whet.reporting import display_progress
from whet.run import Budget
from whet.search.archive import Candidate
from whet.task import SPLITS, Task, TaskKeywords, task_of
from whet.types import content_hash


@named_fields
@dataclass(frozen=True)
class TransferOptions(Options):
    """The options of a transfer."""

    method: str | None = "random_search"
    optimizer_lm: RoleModel = "none"
    task: object = None
    split: str = "validation"
    on_plan: OnPlan | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in SPLITS:
            raise UsageError(f'There is no split "{self.split}".{did_you_mean(self.split, SPLITS)}')

    def for_models(self, models: Sequence[Any], task: Task, header: Mapping[str, Any]) -> TransferOptions:
        """The options that ask the first of the models, by default with the judge of the run; seconds are not limited."""
        judge = self.judge_lm
        if judge is None and not task.models["judge"].named:
            judge = header["models"].get("judge")
        limits = replace(self.budget or Budget(), seconds=None)
        return replace(self, lm=models[0], judge_lm=judge, budget=limits)


@check_arguments
@describe_keywords(*TRANSFER_GROUPS, defaults=TransferOptions)
async def atransfer(
    run: str | Path, lms: Sequence[RoleModel], **keywords: Unpack[TransferKeywords]
) -> TransferResult:
    """Measure the start prompt and the best prompt of a finished run, both unchanged, with other task models.

    `run`: its folder, or its name below `root`. `lms`: addresses, LanguageModels, functions, or dicts as under `models` in
    task.yaml. The answers are stored below `run`, in the folder `transfer`; the same call again pays nothing.

    Raises UsageError before anything is paid for a run without a result, a task that is not the run's, a best prompt that needs
    trained weights (`whet.compare(transfer=...)` tries such prompts), a model that cannot answer, and limits that do not pay
    for all answers. Raises UsageError later if tokens or dollars run out, and ProviderError for a dead endpoint. Answers are
    kept, and the same call with larger limits continues.
    """
    choices = build_from(TransferOptions, keywords)
    models = [lm for lm in lms if lm is not None]
    if not models:
        raise UsageError(f"Name at least one model with {parameter('lm', 'provider/name')}.")
    folder = find_run(run, choices.root)
    result, header = read_finished(folder)
    known = task_of_run(folder, header, choices.task)
    options = choices.for_models(models, known, header)
    assembly = assemble(without_price_of_another(known, models[0]), options, options.budget)
    try:
        with display_progress(keywords.get("progress")) as shown:
            trials = RunTrials(
                folder, known, result, assembly, options.budget, options.split, shown, fresh=options.fresh
            )
            return TransferResult(await _try_models(trials, options, models))
    finally:
        await assembly.close()


async def _try_models(
    trials: RunTrials, options: TransferOptions, models: Sequence[ModelChoice | Mapping[str, Any]]
) -> TransferJSON:
    """The result of all models, or their plans only. Raises UsageError before anything is paid."""
    others: list[TransferModel] = []
    try:
        for model in models:
            others.append(transfer_model(trials.task, replace(options, lm=model), options.budget, model))
        _refuse_twice([other.address for other in others])
        plans = [trials.plan(other) for other in others]
        for other, plan in zip(others, plans, strict=True):
            if options.on_plan is not None:
                options.on_plan(other.address, plan)
            trials.progress.planned({**plan, "model": other.address})
        trials.refuse_unpayable([(other, trials.sides) for other in others])
        rows = [] if options.dry_run else [await trials.row(other) for other in others]
    finally:
        for other in others:
            await other.client.model.close()
    named: list[PlanJSON] = [
        {"model": other.address, **plan} for other, plan in zip(others, plans, strict=True)
    ]
    return {**trials.summary(rows), "status": "planned" if options.dry_run else "completed", "plans": named}


def read_finished(folder: Path) -> tuple[RunJSON, dict[str, Any]]:
    """Result and header of a finished run. Raises UsageError for anything else."""
    result, header = read_result(folder), read_header(folder) or {}
    if "improvement" not in result or result.get("status") == "stopped" or not result.get("tested", True):
        raise UsageError(
            f"{folder} holds no finished run, but the best prompt of a finished run is needed. To "
            "finish the run, repeat its command."
        )
    if "system" in result["best"]:
        raise UsageError(
            f"{folder}: the best prompt was tested together with trained weights, and without them it "
            "is a different system. `whet compare TASK --methods ... --transfer ADDR` tries both "
            "together."
        )
    return cast("RunJSON", result), header


def task_of_run(folder: Path, header: Mapping[str, Any], named: Any) -> Task:
    """The task of the run. Raises UsageError where it is not there, or is another one by now."""
    place = task_folder(folder) if named is None else named
    say = f"Name it with {parameter('task', 'FOLDER')}"
    if place is None:
        raise UsageError(f"{folder} does not record the folder of its task. {say}.")
    try:
        task = task_of(place, TaskKeywords())
    except UsageError as error:
        raise UsageError(f"The task of {folder} cannot be read: {error} {say} if it has moved.") from None
    if task.fingerprint != header["fingerprint"]:
        raise UsageError(
            f"{task.folder} is not the task that {folder} ran: its prompt, rows or reward was edited "
            f"later, so the figures could not be compared. Restore them, or {say[:1].lower()}{say[1:]}."
        )
    return task


def _describe_failure(side: TrialJSON, rows: int) -> str:
    """The first error of a trial, where it is recorded; and what to do where no answer earned anything."""
    error = f' The first error: "{side["error"]}".' if "error" in side else ""
    again = (
        " If what failed is mended now, ask again with --fresh (fresh=True)."
        if side["failed"] == rows
        else ""
    )
    return error + again


def _refuse_twice(addresses: Sequence[str]) -> None:
    twice = next((address for address in addresses if addresses.count(address) > 1), None)
    if twice is not None:
        raise UsageError(f"{parameter('lm', twice)} is named twice. Name each model once.")


class RunTrials:
    """Start prompt and best prompt of a run on the rows of a split, by one model after the other."""

    def __init__(
        self,
        folder: Path,
        task: Task,
        result: RunJSON,
        assembly: Assembly,
        limits: Budget,
        split: str,
        progress: Progress,
        spent: list[UsageJSON] | None = None,
        fresh: bool = False,
    ) -> None:
        """`spent` is what other trials under the same limits took, and grows. `fresh`: earlier trials are asked again."""
        self.fresh = fresh
        self.progress, self.limits = progress, limits
        self._spent: list[UsageJSON] = [] if spent is None else spent
        self.folder, self.task, self.result, self.split = folder, task, result, split
        self.rows = getattr(task, split)
        if not self.rows:
            raise UsageError(f"{task.name} has no {split} rows. Choose another {parameter('split')}.")
        self.env, self.judge = assembly.env, assembly.clients.get("judge")
        self.start, self.best = Candidate(task.prompt), found_candidate(task, folder, result)
        method = get_method("random_search")
        seed, addresses = int(result["seed"]), assembly.addresses
        self.run = RunPlan(task, method, method.config(), Budget(), seed, addresses, assembly.generation)
        self.warnings: list[str] = []

    @property
    def same(self) -> bool:
        """Whether the run found nothing."""
        return self.best.id == self.start.id

    @property
    def sides(self) -> int:
        """The number of prompts to try."""
        return 1 if self.same else 2

    def plan(self, other: TransferModel, sides: int | None = None) -> PlanJSON:
        """The calls of a model under so many prompts (default: those of the run), their tokens and their price."""
        clients = {"task": other.client} | ({} if self.judge is None else {"judge": self.judge})
        rows = list(self.rows) * (self.sides if sides is None else sides)
        return forecast_evaluation(self.task, other.answers(self.env), clients, self.run.config, rows)

    def refuse_unpayable(self, others: Sequence[tuple[TransferModel, int]]) -> None:
        """Raise UsageError where all answers, of each model under so many prompts, may take more calls than the limits allow."""
        task = replace(self.task, test=tuple(self.rows))
        each = [
            (test_set_budget(task, other.answers(self.env), self.run.config, other.client), sides)
            for other, sides in others
        ]
        answers = sum(sides for _, sides in others) * len(self.rows)
        for name in ("calls", "task_calls", "judge_calls"):
            limit = getattr(self.limits, name)
            most = sum(sides * (getattr(need, name) or 0) for need, sides in each)
            if limit is not None and limit < most:
                one = {sides for _, sides in others}
                shown = next(iter(one)) * len(self.rows) if len(one) == 1 else answers
                raise UsageError(
                    f"{parameter(f'budget.{name}', limit)} does not pay for {quantity(shown, 'answer')} of "
                    f"{quantity(len(others), 'model')}: they may take {most}, retries included. Give that many, or fewer models."
                )

    async def row(self, other: TransferModel) -> ModelTransferJSON:
        """The two means with a model, and the paired difference."""
        await self.open_for(other)
        env = other.answers(self.env)
        sides = [
            await self.answer_under(other, name, candidate)
            for name, candidate in (("start", self.start), ("best", self.best))[: self.sides]
        ]
        before, after = sides[0], sides[-1]
        clusters = example_clusters(((env, self.start.prompt), (env, self.best.prompt)), self.rows)
        ends = env.reward.low, env.reward.high
        for side in sides:
            missing = len(side["unanswered"])
            if missing:
                enter = "has no answer and enters" if missing == 1 else "have no answer and enter"
                self.warnings.append(
                    f"{other.address}: {missing} of {quantity(len(self.rows), 'row')} {enter} no mean and no interval of a "
                    "mean. The interval of the difference includes their worst and best possible values."
                )
            if failed := side["failed"] - missing:
                self.warnings.append(
                    f"{other.address}: {failed} of {quantity(len(self.rows), 'answer')} failed and "
                    f"{'counts' if failed == 1 else 'count'} as the lowest reward."
                    f"{_describe_failure(side, len(self.rows))}"
                )
        return {
            "model": other.address,
            "simulated": before["simulated"],
            "baseline": before["score"],
            "best": after["score"],
            "gain": compare_sides((before, after), ends, clusters, self.same),
            **self._against_home(before, ends, clusters),
            "usage": usage_of_trials([side["usage"] for side in sides]),
        }

    async def answer_under(self, other: TransferModel, name: str, candidate: Candidate) -> TrialJSON:
        """The answers of a model under a prompt, the `start` or the `best` one. Raises UsageError where tokens or dollars end."""
        test = TransferTest(other, self.judge, self.folder / TRANSFER, apart=True, fresh=self.fresh)
        self.progress.begin_part(f"{other.address}, {name} prompt")
        rest = reduce(limits_left, self._spent, self.limits)
        try:
            side = await test.transfer(
                self.run,
                self.env,
                candidate,
                f"{name}-{self.split}",
                rest,
                self.split,
                self.progress,
            )
        except BudgetExceeded as error:
            field = "cost_usd" if error.limit == "cost" else error.limit
            limit = parameter(f"budget.{field}", getattr(self.limits, field))
            raise UsageError(
                f"{limit} ended while {other.address} answered under the {name} prompt. The answers "
                "are kept, and the same command with a larger limit continues."
            ) from error
        self._spent.append(side["usage"])
        return side

    def _against_home(
        self, start: TrialAnswersJSON, ends: tuple[float, float], clusters: Sequence[int]
    ) -> AgainstHomeJSON:
        """Compare the rewards of start prompt and best prompt with the run's own model and with this model, on the sealed rows,
        whose answers are in the run's journal."""
        if self.split != "test":
            return {}
        return {
            "home": {
                "baseline": compare_sides((start, self.home_answers("baseline")), ends, clusters),
                "best": compare_sides((start, self.home_answers("best")), ends, clusters),
            }
        }

    def home_answers(self, side: Literal["baseline", "best"]) -> TrialAnswersJSON:
        """The rewards of a prompt with the run's own model, as a trial holds them."""
        rewards = sealed_answers(self.folder, side).rewards
        values = [rewards[row.id] for row in self.rows]
        return {
            "rewards": [0.0 if value is None else value for value in values],
            "unanswered": [i for i, value in enumerate(values) if value is None],
        }

    async def open_for(self, other: TransferModel) -> None:
        """Count an opening of the sealed test, once for a run and a model."""
        if self.split != "test" or self.same:
            return
        name = content_hash([run_id(self.folder), TRANSFER, other.address])
        ledger = SealedTestLedger(policy=self.task.alpha_policy, follows=True)
        opening = await asyncio.to_thread(ledger.open, name, self.task.alpha, self.rows)
        self.warnings += [
            *opening.warnings,
            f"{other.address}: this is opening {opening.number} of these test rows.",
        ]

    def summary(self, rows: Sequence[ModelTransferJSON]) -> TransferJSON:
        """The whole result."""
        if self.same:
            self.warnings.append("The run found no better prompt, so start and best are the same prompt.")
        elif not self.result["improvement"]["promoted"]:
            self.warnings.append(
                "The run did not promote this prompt, because its gain on the sealed test is not "
                f"proven ({self.folder}/report.html)."
            )
        home: HomeJSON = {"model": self.result["models"]["task"]}
        before, after = self.result["baseline"], self.result["best"]
        if self.split == "validation":
            home["baseline"], home["best"] = before["validation"], after["validation"]
        elif self.split == "test":
            home["baseline"], home["best"] = before["test"], after["test"]
        return {
            "task": self.task.name,
            "method": TRANSFER,
            "run": str(self.folder),
            "split": self.split,
            "home": home,
            "models": list(rows),
            "usage": usage_of_trials([row["usage"] for row in rows]),
            "warnings": self.warnings,
        }


def usage_of_trials(usages: Sequence[UsageJSON]) -> UsageJSON:
    """The total usage of several trials."""
    roles = dict.fromkeys(role for usage in usages for role in usage["calls"])
    unknown, free = roles_in(usages, "price_unknown"), roles_in(usages, "not_priced")
    usage: UsageJSON = {
        "calls": {role: sum(usage["calls"].get(role, 0) for usage in usages) for role in roles},
        "input_tokens": sum(usage["input_tokens"] for usage in usages),
        "output_tokens": sum(usage["output_tokens"] for usage in usages),
        "seconds": sum(usage["seconds"] for usage in usages),
        "cost_usd": None if unknown else sum(usage["cost_usd"] or 0.0 for usage in usages),
    }
    if unknown:
        usage["price_unknown"] = unknown
    if free:
        usage["not_priced"] = free
    return usage


transfer = blocking(atransfer)

__all__ = ["atransfer", "transfer"]
