"""The user's reward is tried before all rows are paid for."""

from __future__ import annotations

from collections.abc import Sequence

from whet._util.workers import Work
from whet.engine.durable import DurableRun
from whet.environments.environment import Environment
from whet.environments.replayed import make_world_work
from whet.errors import UsageError, parameter
from whet.rewards import ProgramReward
from whet.rewards.agreement import parts_with_humans, select_labelled
from whet.rewards.asking import UNREAD
from whet.rewards.program import STATE_RANGE, programs_of, try_rewards
from whet.rewards.verifiers.measured import measured_in
from whet.run import convert_record
from whet.task import Task
from whet.task.spec import TaskContent
from whet.types import Example, Rollout

FIRST = 3
"""Rows that are answered alone where a trial of the reward shows that something is wrong with it."""


async def try_reward(run: DurableRun, task: Task) -> list[str]:
    """Warnings about the user's reward; the same at every resume. Raises UsageError for one that cannot be used."""
    tasks = list({id(case.task): case.task for case in task.cases}.values()) or [task]
    warnings: list[str] = []
    for one in tasks:
        for judge in parts_with_humans(one.reward):
            select_labelled(judge, (*one.train, *one.validation))
        programs = [program for program in programs_of(one.reward) if not program.needs_trace]
        if one.world is None and programs:
            warnings += await _try_programs(run, one, programs)
    return warnings


def works_to_load(task: Task) -> list[Work]:
    """Work that loads each function of the user that a worker may call, and each verifier. Raises UsageError for what cannot be
    sent."""
    contents: list[TaskContent] = [*(case.task for case in task.cases), task]
    rewards = [reward.make_work_to_load() for one in contents for reward in programs_of(one.reward)]
    programs = [one.program.make_work_to_load() for one in contents if one.program is not None]
    works: list[Work] = []
    verifiers = [one.make_work_to_load() for content in contents for one in measured_in(content.reward)]
    games = [make_world_work(content.world) for content in contents]
    for work in (*rewards, *programs, *verifiers, *games):
        if work is not None and work not in works:
            works.append(work)
    return works


async def _try_programs(run: DurableRun, task: TaskContent, programs: Sequence[ProgramReward]) -> list[str]:
    async def try_rows() -> object:
        return await try_rewards(programs, task.train, task.labels, run.executor)

    return convert_record(await run.effect("try_reward", try_rows), list[str])


async def try_first(run: DurableRun, task: Task, env: Environment, examples: Sequence[Example]) -> None:
    """Answer the first examples alone, for a reward that there are warnings about. Raises UsageError where it fails on all of
    them: better now than when all are paid for."""
    if not (env.scores or env.supports_batching):
        refuse_broken_reward(await env.evaluate(run, task.prompt, examples[:FIRST]))


def refuse_broken_reward(rollouts: Sequence[Rollout], again: str | None = None) -> None:
    """Raise UsageError when the user's reward or program failed on every answer that reached it: its code is wrong, not the
    answers. `again` is what has all asked again, where that is not `fresh`."""
    refuse_range(rollouts)
    rollouts = [r for r in rollouts if r.error is None or not r.error.startswith(("provider:", "parse:"))]
    for boundary, what in (
        ("reward:", "The reward failed on every answer"),
        ("program:", "The program failed on every row"),
    ):
        errors = [r.error for r in rollouts if r.error is not None and r.error.startswith(boundary)]
        if errors and len(errors) == len(rollouts):
            anew = parameter("fresh", True) if again is None else again
            raise UsageError(f"{what}. The first error: {errors[0].rstrip('.')}. {_remedy(errors, anew)}")


def refuse_range(rollouts: Sequence[Rollout]) -> None:
    """Raise UsageError when the user's reward left the range that holds where none is stated: at its end it would be taken for
    the worst."""
    outside = [r.error for r in rollouts if r.error is not None and STATE_RANGE in r.error]
    if outside:
        raise UsageError(
            f"The reward left its range on {len(outside)} of {len(rollouts)} rows: {outside[0]}."
        )


def _remedy(errors: Sequence[str], again: str) -> str:
    """The remedies: another judge, where a judge answers and nothing can be read; and the command that asks again after a
    repair."""
    if not all(UNREAD in error for error in errors):
        return f"If something outside the task was at fault and is mended now, ask again with {again}."
    judge = parameter("judge_lm", "provider/name")
    return (
        f"Name another model as the judge with {judge}, or `models: {{judge: ...}}` in task.yaml. If this judge is mended now, "
        f"ask it again with {again}."
    )
