"""Rows that a task has not: read by its rules, and refused where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.prompt.document import MASK
from whet.rewards import TARGET
from whet.task.examples import PlacedExample, Rules, check_slots, input_hash, make_examples
from whet.task.rows import read_rows
from whet.task.spec import SPLITS, Task
from whet.task.tables import table_of


def fresh_rows(task: Task, more: Any) -> list[PlacedExample]:
    """The labelled rows of a file, a list, a data frame or a data set, none of which the task has.

    Raises UsageError with their place for rows that a task is refused for, for an input that stands in a split of the
    task, and for a group that does.
    """
    needy = [r.name for r in (task.reward, task.second_opinion) if r is not None and TARGET in r.needs]
    slots = {} if task.program is not None else dict.fromkeys(task.prompt.slots, "prompt")
    rules = Rules(slots, task.labels, bool(needy), (*needy, task.reward.name)[0], task.group)
    if isinstance(more, str | Path):
        rows = read_rows(Path(more), "more", frozenset(slots))
    else:
        rows = table_of(more, "more").rows(frozenset(slots) - ({MASK} if task.labels else set()))
    placed, _ = make_examples(rows, rules, {})
    check_slots(placed, rules)
    known = [(split, e) for split in SPLITS for e in getattr(task, split)]
    inputs = {input_hash(e): split for split, e in known}
    groups = {e.group: split for split, e in known if e.group is not None}
    for p in placed:
        if (split := inputs.get(input_hash(p.example))) is not None:
            raise UsageError(
                f"{p.where}: this input stands in the {split} split of the task, so that it proves nothing new. Remove the row."
            )
        if (split := groups.get(p.example.group)) is not None:
            raise UsageError(
                f'{p.where}: the group "{p.example.group}" stands in the {split} split of the task; its rows are not '
                "independent of those. Remove the row."
            )
        if task.world is not None:
            task.world.check(p.example)
    return placed
