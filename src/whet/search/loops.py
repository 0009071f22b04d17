"""How a budget is shared over loops of roll-out and learning. Planned from what the run is told at its start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from whet.env import Environment
from whet.run import Run
from whet.search.minibatch import minibatch
from whet.search.plan import payable_rollouts
from whet.types import Example

LEAST = 8
_VALIDATIONS = 3
_FIRST_ASKS = 5 / 6


@dataclass(frozen=True)
class LoopPlan:
    """A search in loops: the environment with its validation split cut to what can be paid, the roll-outs of each
    loop, the optimizer calls up to and with each loop (None: no limit), and the loops that validate their prompt."""

    env: Environment
    rollouts: tuple[int, ...]
    asks: tuple[int | None, ...]
    validated: frozenset[int]

    def asks_left(self, loop: int, spent: int) -> int | None:
        """Optimizer calls that the loop may spend when `spent` are gone."""
        allowed = self.asks[loop]
        return None if allowed is None else max(0, allowed - spent)


def plan_loops(run: Run, env: Environment, loops: int, batch: int, *, writes: bool) -> LoopPlan:
    """Plan `loops` loops of `batch` roll-outs at most.

    Without a limit every loop validates its prompt on the whole split. Within one, the start, the first
    result and the last one are validated, which takes three tenths of the roll-outs at most; the others are shared evenly, in
    fewer loops when a share would fall below 8. The first loop may spend five sixths of the optimizer calls, a later one
    half of what is left.
    """
    total = payable_rollouts(run, env, writes=writes)
    asks = _payable_asks(run, env, total)
    if total is None:
        return LoopPlan(env, (batch,) * loops, _share_asks(asks, loops), frozenset(range(loops)))
    rows = min(len(env.validation), max(1, total * 3 // 10 // _VALIDATIONS))
    if rows < len(env.validation):
        kept = sorted(run.rng.sample(range(len(env.validation)), rows))
        env = replace(env, validation=tuple(env.validation[i] for i in kept))
    left = max(1, total - rows * min(_VALIDATIONS, loops + 1))
    loops = max(1, min(loops, left // LEAST))
    sizes = tuple(min(batch, left // loops + (k < left % loops)) for k in range(loops))
    return LoopPlan(env, sizes, _share_asks(asks, loops), frozenset({0, 1}))


def _payable_asks(run: Run, env: Environment, rollouts: int | None) -> int | None:
    found = []
    if run.limits.optimizer_calls is not None:
        found.append(run.limits.optimizer_calls)
    if run.limits.calls is not None:
        found.append(run.limits.calls // 5)
    return min(found) if found else None


def _share_asks(asks: int | None, loops: int) -> tuple[int | None, ...]:
    if asks is None:
        return (None,) * loops
    spent: list[int | None] = []
    used = 0
    for loop in range(loops):
        left = asks - used
        used += left if loop == loops - 1 else math.ceil(left * (_FIRST_ASKS if loop == 0 else 0.5))
        spent.append(used)
    return tuple(spent)


def draw(run: Run, env: Environment) -> Iterator[Example]:
    """Training examples without end: each pass over the split in an order of its own."""
    orders = minibatch(run.rng, env.train, len(env.train)), run.rng.sample(env.train, len(env.train))
    passes = 0
    while True:
        yield from orders[passes % 2]
        passes += 1
