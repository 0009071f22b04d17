"""A start prompt that earns the full reward on every row: there is nothing to learn from, and no search is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards import Objectives
from whet.run import Run
from whet.search.plan import payable_rollouts
from whet.types import Example, Rollout

EVENT = "perfect_start"
LEAST_ROWS = 20
"""Rows that must be right: all of the validation split, and training rows where it has fewer."""
SHARE = 4
"""Rows beyond the first validation cost at most one in so many of the rollouts that are left."""
_CHUNK = 8


def promises_nothing(env: Environment, baseline: Sequence[Rollout]) -> bool:
    """Whether the start prompt has the full reward on all rows that it was measured on. Not for a task with objectives: more may
    be asked of its prompt than the full reward."""
    return not isinstance(env.reward, Objectives) and _right(baseline, env.reward.high)


async def is_perfect(
    run: Run,
    env: Environment,
    start: Prompt,
    validation: Sequence[Example],
    baseline: Sequence[Rollout],
) -> bool:
    """Whether a start prompt that `promises_nothing` earns the full reward on the whole `validation` split, and on training rows
    where that has fewer than 20; its `baseline` rollouts are some of them.

    The other rows are answered until one is wrong. False where the limits do not pay for them.
    """
    known = {r.example_id for r in baseline}
    rest = [row for row in validation if row.id not in known]
    seen = len(known) + len(rest)
    rows = [*rest, *env.train[: max(0, LEAST_ROWS - seen)]]
    payable = payable_rollouts(run, env, writes=True)
    if payable is not None and len(rows) > payable // SHARE:
        return False
    for at in range(0, len(rows), _CHUNK):
        if not _right(await env.evaluate(run, start, rows[at : at + _CHUNK]), env.reward.high):
            return False
    run.log(EVENT, {"validation": seen, "train": len(rows) - len(rest)})
    return True


def sentence(event: Mapping[str, object]) -> str:
    """The sentence in a result about a start prompt that is perfect."""
    also = f" and on {event['train']} training rows" if event["train"] else ""
    return (
        f"The start prompt earns the full reward on all {event['validation']} validation rows{also}, "
        "so there is nothing to learn from and no search was made. Harder rows, or a more detailed "
        "reward, would show what can still be improved."
    )


def _right(rollouts: Sequence[Rollout], high: float) -> bool:
    return bool(rollouts) and all(r.error is None and r.reward >= high for r in rollouts)
