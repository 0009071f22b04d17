"""Sharing things out: points to optimizer calls, rollouts to loops. Whole numbers, no chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


def pack(items: Sequence[T], size: int, most: int | None = None) -> list[list[T]]:
    """Items, the most urgent first, in packs of `size` at most; no more than `most` packs, so that the last items may be left out.

    Packs are of even size, and each holds urgent and less urgent items alike.

    >>> pack([1, 2, 3, 4, 5], 2)
    [[1, 4], [2, 5], [3]]
    """
    count = math.ceil(len(items) / max(1, size))
    if most is not None:
        count = min(count, most)
    kept = items[: count * size]
    return [list(kept[start::count]) for start in range(count)]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rollouts of each loop, and how many optimizer calls may be spent up to and with each loop (None: no limit)."""

    rollouts: tuple[int, ...]
    asks: tuple[int | None, ...]


def schedule(rollouts: int | None, asks: int | None, loops: int, batch: int, least: int = 8) -> Schedule:
    """Share a budget over loops.

    Each loop gets `batch` rollouts, or an even share of the limit where that is less; there are fewer
    loops when a share would fall below `least`. The first loop, which finds what is wrong, may spend five sixths of the
    optimizer calls, later ones what is left, half of it each time.
    """
    if rollouts is not None:
        loops = max(1, min(loops, rollouts // least)) if rollouts else 0
        sizes = [min(batch, rollouts // loops + (k < rollouts % loops)) for k in range(loops)]
    else:
        sizes = [batch] * loops
    spent: list[int | None] = []
    used = 0
    for k in range(loops):
        if asks is None:
            spent.append(None)
            continue
        left = asks - used
        used += left if k == loops - 1 else math.ceil(left * 5 / 6) if k == 0 else math.ceil(left / 2)
        spent.append(used)
    return Schedule(tuple(sizes), tuple(spent))


@dataclass(frozen=True)
class LoopPlan:
    """A search in loops: the environment with its validation split cut to what can be paid, roll-outs of each
    loop, optimizer calls up to and with each loop, and the loops in which the current prompt is validated."""

    env: Environment
    rollouts: tuple[int, ...]
    asks: tuple[int | None, ...]
    validated: tuple[int, ...]

    def asks_left(self, loop: int, spent: int) -> int | None:
        """Optimizer calls that the loop may spend."""
        allowed = self.asks[loop]
        return None if allowed is None else max(0, allowed - spent)


def plan_loops(run: Run, env: Environment, loops: int, batch: int, writes: bool) -> LoopPlan:
    """Plan from what the run may spend, as it stands at the start.

    Within a limit, three validations (start, after the first loop, end) take at most three tenths of the roll-outs;
    without one, every loop is validated on the whole split.
    """
    total = payable_rollouts(run, env, writes=writes)
    asks = payable_asks(run, env, total)
    rows = len(env.validation)
    if total is None:
        sizes, spent = schedule(None, asks, loops, batch)
        return LoopPlan(env, sizes, spent, tuple(range(loops)))
    ...
