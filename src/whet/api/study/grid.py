"""Several prompts on the same rows: planned, paid once, kept in a journal, and gone on with after a kill or a limit.

A study is a run of its own, with a folder, a journal and a budget. It answers training or validation rows only, so that it
opens no sealed test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.engine.accounting import elapsed_row, usage
from whet.engine.assemble import Assembly
from whet.engine.budget import answer_calls, row_calls
from whet.engine.durable import DurableRun
from whet.engine.forecast import forecast_evaluation, measured_usage, total_count, total_dollars
from whet.engine.options import Options, RoleModel
from whet.engine.pairs import evaluate_grid, example_clusters, known_rewards, summary
from whet.engine.plan_json import PlanJSON, PlannedStudyJSON
from whet.engine.progress import Progress
from whet.engine.result_json import MeanJSON
from whet.engine.run_folder import (
    ENDED,
    RESULT,
    check_run_folder,
    differing_entries,
    note_in,
    open_run,
    read_header,
    read_result,
    write_result,
)
from whet.engine.trial import refuse_broken_reward
from whet.environments.environment import watching_rollouts
from whet.errors import BudgetExceeded, UsageError, did_you_mean, named_fields, parameter, quantity
from whet.methods import get_method
from whet.prompt import Prompt
from whet.run import Budget
from whet.search.minibatch import minibatch
from whet.task import Task
from whet.types import Example, Rollout, content_hash
from whet_client.version import __version__

STUDY = "study"
"""The value of `method` in the header of a study's journal."""
SPLITS = ("validation", "train")


@named_fields
@dataclass(frozen=True)
class StudyOptions(Options):
    """The settings of a study that are not in the task. No model writes text in a study."""

    method: str | None = "random_search"
    optimizer_lm: RoleModel = "none"
    split: str = SPLITS[0]
    rows: int | None = None
    region: str | None = None

    def limits(self, task: Task) -> Budget:
        """The limits set here, then those of the task; none on time."""
        return replace(super().limits(task), seconds=None)


@dataclass(frozen=True)
class StudyPlan:
    """Identity of a study: which prompts answer which rows, by which models. `kind` is components or sensitivity; `setting` is
    what else a result depends on. The limits are not a part of it."""

    kind: str
    task: Task
    options: StudyOptions
    assembly: Assembly
    prompts: Sequence[Prompt]
    rows: Sequence[Example]
    setting: Mapping[str, Any]
    samples: Sequence[int] = ()
    """Of each prompt which answer of the model it is, where a prompt is asked more than once (default: all the first)."""

    @property
    def seed(self) -> int:
        """Seed of everything that is drawn."""
        return self.options.seed

    @property
    def limits(self) -> Budget:
        """Limits over all sessions."""
        return self.options.limits(self.task)

    @property
    def method(self) -> str:
        """The name under which such runs are listed."""
        return f"{STUDY} {self.kind}"

    def identity(self) -> dict[str, Any]:
        """The study's entries in result.json."""
        return {
            "task": self.task.name,
            "method": self.method,
            "split": self.options.split,
            "rows": len(self.rows),
            "models": dict(self.assembly.addresses),
            "seed": self.seed,
        }

    def header(self) -> dict[str, Any]:
        """The identity as JSON."""
        return {
            "whet": __version__,
            "task": self.task.name,
            "fingerprint": self.task.fingerprint,
            "method": self.method,
            "prompts": content_hash([prompt.id for prompt in self.prompts]),
            "rows": content_hash([row.id for row in self.rows]),
            "split": self.options.split,
            "seed": self.seed,
            "models": dict(self.assembly.addresses),
            "generation": dict(self.assembly.generation),
            "setting": dict(self.setting),
        }


@dataclass(frozen=True)
class Grid:
    """The rollouts of each prompt on the same rows, and the cluster of each row."""

    rollouts: Sequence[Sequence[Rollout]]
    rows: Sequence[Example]
    clusters: Sequence[int]
    low: float
    high: float

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Rows x prompts; not a number where there is no answer."""
        columns = [
            [np.nan if reward is None else reward for reward in known_rewards(own)] for own in self.rollouts
        ]
        return np.asarray(columns, dtype=np.float64).T

    def means(self) -> list[MeanJSON]:
        """Of each prompt the mean reward with its 95% interval, as in result.json."""
        return [summary(own, self.low, self.high, self.rows) for own in self.rollouts]


def study_rows(task: Task, options: StudyOptions) -> list[Example]:
    """The rows of a study: those of the split, or so many of them, drawn by the seed and balanced over targets.

    Raises UsageError for the sealed test, an unknown split, and a split without rows.
    """
    split, number = options.split, options.rows
    if split == "test":
        raise UsageError(
            f"{parameter('split', 'test')}: a study tries many prompts, but the sealed test rows are "
            "only for a final prompt. Choose validation or train."
        )
    if split not in SPLITS:
        raise UsageError(f'There is no split "{split}".{did_you_mean(split, SPLITS)}')
    rows = list(getattr(task, split))
    if not rows:
        raise UsageError(f"{task.name} has no {split} rows. Choose another {parameter('split')}.")
    if number is None or number >= len(rows):
        return rows
    if number < 2:
        raise UsageError(f"{parameter('rows', number)}: a study needs 2 rows or more.")
    return minibatch(random.Random(options.seed), rows, number, balanced=True)


def calls_of_answer(assembly: Assembly) -> int:
    """Calls of all roles that one answer takes at most, retries aside."""
    config = get_method("random_search").config()
    return row_calls(assembly.env, answer_calls(assembly.env, config))["calls"]


def forecast_study(plan: StudyPlan) -> PlanJSON:
    """The plan of a study: calls, tokens and dollars, each prompt by its own length."""
    assembly = plan.assembly
    known = measured_usage(Path(plan.options.root), plan.task.fingerprint, assembly.addresses)
    config = get_method("random_search").config()
    each = [
        forecast_evaluation(
            replace(plan.task, prompt=prompt), assembly.env, assembly.clients, config, plan.rows, known
        )
        for prompt in plan.prompts
    ]
    first = each[0]

    about: PlannedStudyJSON = {
        "prompts": len(plan.prompts),
        "rows": len(plan.rows),
        "split": plan.options.split,
    }
    return (
        first
        | {
            "study": about,
            "models": dict(assembly.addresses),
            "calls": {role: total_count([one["calls"][role] for one in each]) for role in first["calls"]},
            "tokens": total_count([one["tokens"] for one in each]),
            "cost_usd": total_dollars([one["cost_usd"] for one in each]),
        }
        | assembly.gaps
    )


def refuse_unpayable(foreseen: PlanJSON, limits: Budget, remedy: str) -> None:
    """Raise UsageError where the limits do not pay for all answers; nothing is paid by then."""
    needs = {f"{role}_calls": ends["most"] or 0 for role, ends in foreseen["calls"].items()}
    needs = {"calls": sum(needs.values()), **needs}
    about = foreseen["study"]
    for name, need in needs.items():
        limit = getattr(limits, name)
        if limit is not None and limit < need:
            raise UsageError(
                f"{parameter(f'budget.{name}', limit)} does not pay for {quantity(about['prompts'], 'prompt')} on "
                f"{quantity(about['rows'], about['split'] + ' row')}: that takes {need:,} {name.replace('_', ' ')}, before "
                f"retries. {remedy}"
            )


async def run_study(
    plan: StudyPlan,
    progress: Progress,
    header: Mapping[str, Any],
    describe: Callable[[Grid], Mapping[str, Any]],
    remedy: str,
) -> dict[str, Any]:
    """The result of a study, or its plan in a dry run: `header` describes the variants, `describe` the results.

    Raises UsageError before anything is paid where the limits do not pay for all answers; `remedy` says what then helps.
    """
    foreseen = forecast_study(plan)
    progress.planned(foreseen)
    for text in header["lines"]:
        progress.say(f"plan: {text}")
    refuse_unpayable(foreseen, plan.limits, remedy)
    if plan.options.dry_run:
        return {
            **plan.identity(),
            "status": "planned",
            **header,
            "plan": foreseen,
            "warnings": list(plan.task.warnings),
        }
    return await _measure(plan, progress, foreseen, lambda grid: {**header, **describe(grid)})


async def _measure(
    plan: StudyPlan,
    progress: Progress,
    foreseen: Mapping[str, object],
    describe: Callable[[Grid], Mapping[str, Any]],
) -> dict[str, Any]:
    """The result of a study: what `describe` makes of the answers, with who answered and what it took.

    A study that is finished is read from its folder; if answers are missing, the models are called again for these. Raises
    UsageError where a limit ends it early; what was answered is kept.
    """
    assembly, options = plan.assembly, plan.options
    folder = _folder(plan)
    check_run_folder(folder)
    if (done := _read_finished(folder, plan)) is not None:
        if not (lacking := done.get("unanswered", 0)):
            progress.say(f"{folder}: already finished; this is the recorded result, and no model was called")
            return {**done, "run": str(folder), "recorded": True}
        progress.say(
            f"{folder}: {quantity(lacking, 'rollout')} had no answer; the models are called again for these rollouts"
        )
    place = folder.absolute()
    opened = open_run(place, plan, assembly.clients, assembly.cache(place, options), lambda name, value: None)
    with opened.closing():
        core = opened.core
        progress.core = core
        progress.begin(f"{quantity(len(plan.prompts), 'prompt')}", len(plan.prompts) * len(plan.rows))
        try:
            async with core.draining():
                run = DurableRun(core, f"/{STUDY}", Budget())
                with watching_rollouts(progress.on_rollout):
                    rollouts = await evaluate_grid(
                        run, assembly.env, plan.prompts, plan.rows, plan.samples, core.incomplete_sessions
                    )
                again = f"another {parameter('run')}"
                refuse_broken_reward([rollout for own in rollouts for rollout in own], again)
        except BudgetExceeded as error:
            field = "cost_usd" if error.limit == "cost" else error.limit
            limit = parameter(f"budget.{field}", getattr(plan.limits, field))
            raise UsageError(
                f"{limit} ended before all prompts had answers. The answers are kept, and the same "
                "command with a larger limit continues."
            ) from error
        finally:
            core.journal.append([elapsed_row(core)])
        env = assembly.env
        sides = (env, plan.task.prompt), (env, plan.task.prompt)
        clusters = example_clusters(sides, plan.rows)
        grid = Grid(rollouts, plan.rows, clusters, env.reward.low, env.reward.high)
        every = [rollout for own in rollouts for rollout in own]
        core.note_unanswered(every)
        result = {
            **plan.identity(),
            "status": "completed",
            "simulated": core.caller.simulated,
            "unanswered": sum(not rollout.answered for rollout in every),
            **describe(grid),
            "usage": usage(core),
            "plan": dict(foreseen),
            "warnings": [
                *plan.task.warnings,
                *_warnings(every),
            ],
        }
        note_in(core.journal, ENDED, datetime.now(UTC).isoformat(timespec="seconds"))
    write_result(place, result)
    return {**result, "run": str(folder)}


def _warnings(rollouts: Sequence[Rollout]) -> list[str]:
    """The warnings about rollouts without an answer, and about those that failed, each with the words of the first."""
    missing = [r for r in rollouts if not r.answered]
    failed = [r for r in rollouts if r.answered and r.error is not None]
    lines = []
    if missing:
        lines.append(
            f"{len(missing)} of {len(rollouts)} rollouts have no answer. Means leave them out; intervals include "
            f"their worst and best possible values. The same command calls the models again for them. The first "
            f"(row {missing[0].example_id}): {missing[0].error}"
        )
    if failed:
        lines.append(
            f"{len(failed)} of {len(rollouts)} rollouts failed and count as the lowest reward; the first "
            f"(row {failed[0].example_id}): {failed[0].error}"
        )
    return lines


def _folder(plan: StudyPlan) -> Path:
    options = plan.options
    if options.run is not None:
        return Path(options.run)
    name = f"{plan.task.name}-{STUDY}-{plan.kind}-{content_hash(plan.header())[:8]}"
    return Path(options.root) / name


def _read_finished(folder: Path, plan: StudyPlan) -> dict[str, Any] | None:
    header = read_header(folder)
    if header is None or differing_entries(header, plan.header()) or not (folder / RESULT).is_file():
        return None
    result = read_result(folder)
    return result if result.get("status") == "completed" else None


def as_json(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Dataclasses as JSON."""
    return [asdict(value) for value in values]
