"""Sizes of a run, fixed before anything is paid: validation rows, and what the sealed test needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.engine.calls import ModelClient
from whet.engine.run_folder import RunPlan
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.errors import UsageError, parameter
from whet.rewards import TARGET_SCORE
from whet.run import Budget
from whet.task.spec import SECOND
from whet.types import Example, Request, Usage

SMALLEST_VALIDATION = 5
VALIDATION_SHARE = 0.1
RETRY_SLACK = 1.1
GROWTH_TOKENS = 256


@dataclass(frozen=True)
class Shape:
    """The validation rows used, and what is held back: `held` from the search, `kept` of it from the sealed test too."""

    validation: tuple[Example, ...]
    held: Budget
    kept: Budget = field(default_factory=Budget)


def shape_run(
    plan: RunPlan, env: Environment, desks: Mapping[str, ModelClient], other: ModelClient | None = None
) -> Shape:
    """Reserve the sealed test of baseline and best, and choose how many validation rows a tight budget allows.

    A validation costs at most a tenth of what the test leaves (at least 5 rows). `other`: a model that the best prompt
    is tried with afterwards, for which as much is kept as its answers to the test may take. Raises UsageError
    naming the smallest workable number when a limit is too small.
    """
    task, limits = plan.task, plan.limits
    turns = answer_calls(env, plan.config)
    each = _each_row(env, turns)
    rows = _test_rows(2 * len(task.test), desks["task"])
    kept = Budget(0, 0, 0, 0, 0, 0.0) if other is None else answers_of(plan, env, other)
    again = _second_calls(plan, desks)
    smallest = min(SMALLEST_VALIDATION, len(task.validation))
    extra = {"calls": 1 + int("optimizer" in plan.addresses), "task_calls": 1, "judge_calls": 0}
    for name, calls in each.items():
        limit = getattr(limits, name)
        needed = (rows + 2 * smallest) * calls + extra[name] + getattr(kept, name) + again[name]
        if limit is not None and limit < needed:
            raise UsageError(
                f"{parameter(f'budget.{name}', limit)} is too small: the sealed test of baseline and best "
                f"({len(task.test)} examples each){', its second opinion' if again[name] else ''}"
                f"{' and of transfer' if other else ''} and a first validation need "
                f"{needed}. Give at least {needed}."
            )
    bounded = [(getattr(limits, n), c, again[n]) for n, c in each.items() if c]
    room = [(limit - used) / c - rows for limit, c, used in bounded if limit is not None]
    count = len(task.validation)
    if room:
        count = min(count, max(smallest, int(min(room) * VALIDATION_SHARE)))
    tokens, cost = _worst_test(plan, env, desks["task"], rows, turns)
    tokens, cost = tokens + (kept.tokens or 0), cost + (kept.cost_usd or 0.0)
    _refuse_small(limits, tokens, cost)
    held = {n: (rows + count) * calls + getattr(kept, n) + again[n] for n, calls in each.items()}
    return Shape(tuple(task.validation[:count]), Budget(**held, tokens=tokens, cost_usd=cost), kept)


def _second_calls(plan: RunPlan, desks: Mapping[str, ModelClient]) -> dict[str, int]:
    """Calls by limit that a second opinion on the sealed test of baseline and best may take."""
    each = int(getattr(plan.task.second_opinion, "judge_calls", 0))
    calls = each * _test_rows(2 * len(plan.task.test), desks[SECOND]) if SECOND in desks else 0
    return {"calls": calls, "task_calls": 0, "judge_calls": calls}


def answers_of(plan: RunPlan, env: Environment, desk: ModelClient) -> Budget:
    """What one prompt's answers to the sealed test by the model of `desk` may take at most: calls, tokens, US dollars."""
    turns = answer_calls(env, plan.config)
    rows = _test_rows(len(plan.task.test), desk)
    tokens, cost = _worst_test(plan, env, desk, rows, turns)
    calls = {name: rows * each for name, each in _each_row(env, turns).items()}
    return Budget(**calls, optimizer_calls=0, tokens=tokens, cost_usd=cost)


def _each_row(env: Environment, turns: int) -> dict[str, int]:
    """Calls by limit that one row costs at most."""
    judges = int(getattr(env.reward, "judge_calls", 0))
    per_row = turns + int(TARGET_SCORE in env.reward.needs)
    return {"calls": per_row + judges, "task_calls": per_row, "judge_calls": judges}


def _test_rows(rows: int, desk: ModelClient) -> int:
    """Rows to reserve for, with what retries may take where a call can fail."""
    local = desk.model.local
    return math.ceil(rows * (1.0 if local else RETRY_SLACK)) + (0 if local else 2)


def answer_calls(env: Environment, config: Any) -> int:
    """Task calls of one rollout at most: turns of the task's world, or what the method's system asks for an answer.

    A method whose system asks more than once says so in `Config.calls_per_answer`.
    """
    turns = env.calls if isinstance(env, MultiTurn) else 1
    return turns * int(getattr(config, "calls_per_answer", 1))


def _worst_test(
    plan: RunPlan, env: Environment, desk: ModelClient, rows: int, turns: int
) -> tuple[int, float]:
    """Tokens and dollars of `rows` test rollouts at their worst, for a prompt that may grow by 256 tokens.

    Each of the `turns` calls of a rollout reads the question and all earlier messages.
    """
    if desk.model.local:
        return 0, 0.0
    worst = [
        desk.worst_case("task", Request(plan.task.prompt.render(e), max_tokens=env.generation.max_tokens))[1]
        for e in plan.task.test
    ]
    total = sum(worst, Usage())
    share = rows / len(worst)
    written = math.ceil(total.output_tokens * share)
    read = math.ceil(total.input_tokens * share) + GROWTH_TOKENS * rows
    before = turns * (turns - 1) // 2
    usage = Usage(read * turns + (written + GROWTH_TOKENS * rows) * before, written * turns)
    return usage.input_tokens + usage.output_tokens, desk.cost(usage)


def _refuse_small(limits: Budget, tokens: int, cost: float) -> None:
    """A token or cost limit must hold the test at its worst, and a fifth more to search with."""
    if limits.tokens is not None and limits.tokens < 1.2 * tokens:
        least = math.ceil(1.2 * tokens)
        raise UsageError(
            f"{parameter('budget.tokens', limits.tokens)} is too small: at worst the sealed test alone uses {tokens} tokens. "
            f"Give at least {least}, or lower models.task.max_tokens in task.yaml."
        )
    if limits.cost_usd is not None and limits.cost_usd < 1.2 * cost:
        raise UsageError(
            f"{parameter('budget.cost_usd', limits.cost_usd)} is too small: at worst the sealed test alone costs ${cost:.4f}. "
            f"Give at least {1.2 * cost:.4f}, or lower models.task.max_tokens in task.yaml."
        )
