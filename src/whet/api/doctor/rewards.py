"""The reward on three rows: does it crash, tell answers apart, take its arguments in order, and come back?"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from whet.api.doctor.checkup import DoctorReport
from whet.errors import quantity
from whet.rewards import (
    JUDGE,
    LABELS,
    TARGET_SCORE,
    Objectives,
    ProgramReward,
    RewardFailed,
    RewardFunction,
    Weighted,
)
from whet.rewards.text import targets_of
from whet.run import MemoryRun
from whet.task import Task
from whet.types import Completion, Example, Reward

ROWS = 3
FROM_MODEL = frozenset({LABELS, TARGET_SCORE})
"""The requirements of a reward that grades the task model's scores and not a text."""
SLOW, PATIENCE = 1.0, 10.0
NONSENSE = "zxqj 7000003"
_ORDER = "write `def reward(example, output)`: first the row (a dict), then the answer (a text)"
_AGAIN = "`whet doctor TASK --no-calls` tries it again"
_TELL_APART = (
    "give a right answer a higher reward than a wrong one; otherwise a search has no "
    f"direction. Print both answers inside reward(); {_AGAIN}"
)
_OTHER_REWARD = (
    "name a reward that reads these targets (`reward:` in task.yaml; `whet init` proposes one), or correct the targets; "
    f"{_AGAIN}"
)


class _NoEnd(Exception):
    """The reward did not come back."""


async def examine_reward(checkup: DoctorReport, task: Task) -> None:
    """Grade the target and a nonsense answer of three training rows. Rewards that ask a model are not tried."""
    name = f"reward {task.reward.name}"
    if isinstance(task.reward, Objectives) and not task.reward.parts:
        checkup.ok(name, "measures what calls take; no answer is graded")
        return
    if task.world is not None or task.reward.needs & ({JUDGE} | FROM_MODEL):
        checkup.ok(name, "not tried, because this reward needs a model or an episode")
        return
    rows = task.train[:ROWS]
    try:
        right, wrong, seconds = _grade(task.reward, rows)
    except RewardFailed as error:
        swapped = _swap_arguments(task.reward)
        if swapped is not None and _works(swapped, rows):
            checkup.fail(name, f"its arguments look swapped: {error}", _ORDER)
        else:
            checkup.fail(
                name,
                f"crashes: {error}",
                f"correct that line, or the rows that it reads; {_AGAIN} on the first three training rows",
            )
        return
    except _NoEnd:
        checkup.fail(
            name,
            f"no answer within {PATIENCE:g} s",
            f"look for an endless loop or a call that waits; {_AGAIN}",
        )
        return
    if seconds > SLOW:
        checkup.warn(
            name,
            f"slow: {seconds:.1f} s an answer",
            "make the reward faster, because a run grades every answer",
        )
    _constant(checkup, task, name, right, wrong)


def grade_target_and_nonsense(reward: RewardFunction, rows: Sequence[Example]) -> list[tuple[Reward, Reward]]:
    """The rewards of the target and of a nonsense answer for each row, for a reward that asks no model. Raises RewardFailed,
    also for one that does not come back."""
    try:
        return [(_one(reward, row, _target(row)), _one(reward, row, NONSENSE)) for row in rows]
    except _NoEnd:
        raise RewardFailed(f"no answer within {PATIENCE:g} s") from None


def _target(example: Example) -> str:
    return targets_of(example)[0] if example.target is not None else ""


def _constant(
    checkup: DoctorReport, task: Task, name: str, right: Sequence[float], wrong: Sequence[float]
) -> None:
    shown = ", ".join(f"{a:g}/{b:g}" for a, b in zip(right, wrong, strict=True))
    if not any(example.target is not None for example in task.train[:ROWS]):
        checkup.ok(name, (f"works on {quantity(len(wrong), 'row')}; without targets, whet cannot check more"))
    elif all(a == b for a, b in zip(right, wrong, strict=True)):
        swapped = _swap_arguments(task.reward)
        if swapped is not None and _works(swapped, task.train[:ROWS], tells_apart=True):
            checkup.fail(
                name, "its arguments look swapped: with exchanged arguments it distinguishes answers", _ORDER
            )
        else:
            remedy = _TELL_APART if _is_of_user(task.reward) else _OTHER_REWARD
            checkup.fail(name, f"constant: target and nonsense earn the same reward ({shown})", remedy)
    elif sum(a > b for a, b in zip(right, wrong, strict=True)) == 0:
        checkup.warn(
            name,
            f"nonsense earns more than the target ({shown})",
            "a run maximizes the reward; if a lower reward is better, reverse its sign",
        )
    else:
        targets, nonsense = (", ".join(f"{value:g}" for value in values) for values in (right, wrong))
        checkup.ok(
            name, f"on {quantity(len(wrong), 'row')} the target earns {targets}, and nonsense {nonsense}"
        )


def _is_of_user(reward: RewardFunction) -> bool:
    """Whether code of the user grades, alone or as a part."""
    if isinstance(reward, Weighted):
        return any(_is_of_user(part) for _, part in reward.parts)
    return isinstance(reward, ProgramReward)


def _grade(reward: RewardFunction, rows: Sequence[Example]) -> tuple[list[float], list[float], float]:
    """Rewards of targets and of nonsense, and the longest time of one. Raises RewardFailed, _NoEnd."""
    values: list[float] = []
    longest = 0.0
    for example in rows:
        for text in (_target(example), NONSENSE):
            begun = time.monotonic()
            values.append(float(_one(reward, example, text).value))
            longest = max(longest, time.monotonic() - begun)
    return values[::2], values[1::2], longest


def _one(reward: RewardFunction, example: Example, text: str) -> Reward:
    """One reward, in a thread that may be left behind."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(reward.grade(MemoryRun(), example, Completion(text))))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not outcome:
        raise _NoEnd
    if isinstance(outcome[0], RewardFailed):
        raise outcome[0]
    if isinstance(outcome[0], Exception):
        raise RewardFailed(repr(outcome[0]))
    result: Reward = outcome[0]
    return result


def _swap_arguments(reward: RewardFunction) -> ProgramReward | None:
    """The user's function called the other way round; None where there is none."""
    if isinstance(reward, Weighted):
        return next((one for _, part in reward.parts if (one := _swap_arguments(part)) is not None), None)
    if not isinstance(reward, ProgramReward):
        return None
    function: Callable[..., object] = reward.function
    return dataclasses.replace(reward, function=lambda example, output: function(output, example))


def _works(reward: RewardFunction, rows: Sequence[Example], tells_apart: bool = False) -> bool:
    try:
        right, wrong, _ = _grade(reward, rows)
    except (RewardFailed, _NoEnd):
        return False
    return not tells_apart or right != wrong
