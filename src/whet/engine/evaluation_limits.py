"""The limits of a task's budget in an evaluation, which has no search to end with the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.engine.assemble import BOUND_UNDER_LIMIT
from whet.engine.budget import row_calls
from whet.engine.final_evaluation import execute_evaluation
from whet.engine.judge_agreement import MOST
from whet.engine.openings import SealedTestLedger
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.result_json import EvaluationJSON
from whet.engine.run_folder import OpenRun, RunPlan
from whet.environments.environment import Environment
from whet.errors import BudgetExceeded, UsageError, quantity
from whet.rewards.agreement import parts_with_humans
from whet.rewards.reward import judge_calls_of
from whet.run import Budget
from whet.task import Task
from whet.types import Example


def affordable_scores(limits: Budget, env: Environment, rows: Sequence[Example], turns: int) -> int:
    """Count the answers with people's scores that a judge may grade beside an evaluation of `rows`, of `turns` calls each,
    within the limits on calls."""
    each, parts = row_calls(env, turns), parts_with_humans(env.reward)
    taken, judged = len(rows) * (each["task_calls"] + each["judge_calls"]), len(rows) * each["judge_calls"]
    spare = [
        limit - used
        for limit, used in ((limits.calls, taken), (limits.judge_calls, judged))
        if limit is not None
    ]
    calls = sum(map(judge_calls_of, parts))
    return min([MOST, *(max(0, one) // max(1, calls) for one in spare)])


def refuse_small_limits(task: Task, limits: Budget, plan: PlanJSON, rows: int) -> None:
    """Raise UsageError when an evaluation takes more calls than a limit allows."""
    numbers = {f"{role}_calls": ends["expected"] or 0 for role, ends in plan["calls"].items()}
    for name, number in {"calls": sum(numbers.values()), **numbers}.items():
        limit = getattr(limits, name)
        if limit is not None and number > limit:
            calls, evaluated = name.replace("_", " "), quantity(rows, "row")
            raise UsageError(
                f"The budget of {task.name} allows {limit:,} {calls}, and an evaluation of {evaluated} takes {number:,}. "
                f"Raise max_{name}, or leave it out."
            )


async def evaluate_within_limits(
    plan: RunPlan,
    limits: Budget,
    env: Environment,
    opened: OpenRun,
    rows: Sequence[Example],
    split: str,
    progress: Progress,
    scored: int,
) -> EvaluationJSON:
    """Evaluate the plan's prompt on rows of a split. Limits on calls, tokens and dollars hold; one on seconds is for a search.
    Raises BudgetExceeded where one ends the evaluation."""
    opened.core.budget.limits = replace(limits, seconds=None)
    ledger = SealedTestLedger(policy=plan.task.alpha_policy, follows=True)
    try:
        return await execute_evaluation(plan, env, opened, rows, split, ledger, progress, scored)
    except BudgetExceeded as error:
        continues = (
            "The answers so far are recorded: the same command continues with a larger limit in `budget:`."
        )
        if (
            plan.generation["max_tokens"] == BOUND_UNDER_LIMIT
            and plan.task.models["task"].output_bound is None
        ):
            continues += (
                f" Keep such a limit: it bounds each answer at {BOUND_UNDER_LIMIT:,} tokens, and without that bound the "
                "evaluation begins again."
            )
        raise BudgetExceeded(error.limit, f"{error} {continues}") from None
