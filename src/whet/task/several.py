"""A task made of several: the tasks that share a prompt, and the models that share a task, as cases of one task.

Rows keep the split that they have in their own task. The splits of all are dealt in turn, so that any first rows of a split are
spread over the cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

from whet.errors import UsageError, quantity
from whet.prompt import Prompt
from whet.rewards import Objectives
from whet.rewards.cases import CaseRewards
from whet.task.spec import SPLITS, WORST, TaskCase, TaskContent
from whet.types import Example, content_hash
from whet_client.prompt.document import MASK
from whet_client.prompt.slots import canonical_name

T = TypeVar("T", bound=TaskContent)


def share_prompt(prompt: Prompt, members: Sequence[TaskContent]) -> tuple[TaskCase, ...]:
    """The members as cases under a shared prompt.

    A prompt with slots is all that a model is asked, and each row must fill them. Under one without slots each member keeps its
    own prompt below. Raises UsageError for members that cannot share a prompt.
    """
    if len(members) < 2:
        raise UsageError(f"`tasks` names {quantity(len(members), 'task')}. Name two or more.")
    if prompt.parts:
        raise UsageError("The shared prompt is that of a program. Several tasks share one prompt.")
    names = [member.name for member in members]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f'Two of the `tasks` have the name "{twice}". Give each a `name` of its own.')
    for member in members:
        _refuse_unshared(prompt, member)
    return tuple(
        TaskCase(m.name, m, None if prompt.slots or m.prompt.text == prompt.text else m.prompt)
        for m in members
    )


def _refuse_unshared(prompt: Prompt, member: TaskContent) -> None:
    """Raise UsageError for a member that has what several tasks cannot share, or rows that leave a slot empty."""
    for has, key in (
        (member.cases, "tasks"),
        (member.program is not None, "program"),
        (isinstance(member.reward, Objectives), "objectives"),
        (member.second_opinion is not None, "second_opinion"),
    ):
        if has:
            raise UsageError(
                f"The task {member.name} has `{key}`, which goes with one task and one task model only. Run it on its own."
            )
    wanted = {slot for slot in prompt.slots if not (slot == MASK and member.labels)}
    for split in SPLITS:
        for row in getattr(member, split):
            if empty := sorted(wanted - {canonical_name(name) for name in row.values}):
                raise UsageError(
                    f"{member.name}: {row.place} fills no slot {{{{{empty[0]}}}}} of the shared prompt. Give every row "
                    f"`{empty[0]}`, or take the slot out: each task's own prompt then stands below the shared one."
                )


def combine(cases: Sequence[TaskCase], worst: bool) -> dict[str, Any]:
    """The joined rows, rewards, labels, descriptions and warnings of the cases, by the fields of a task."""
    labels = [dict(case.task.labels) for case in cases]
    described = [f"{case.name}: {case.task.description}" for case in cases if case.task.description]
    return {
        **{split: _deal([_rows(case, split) for case in cases]) for split in SPLITS},
        "labels": labels[0] if all(label == labels[0] for label in labels) else {},
        "reward": CaseRewards({case.name: case.task.reward for case in cases}, worst),
        "description": "\n".join(dict.fromkeys(described)),
        "warnings": tuple(dict.fromkeys(w for case in cases for w in _warnings(case))),
    }


def _rows(case: TaskCase, split: str) -> list[Example]:
    """The rows of a case under ids of its own. Rows of one input asked of several models are one group."""
    rows: Sequence[Example] = getattr(case.task, split)
    return [replace(row, id=f"{case.name}/{row.id}", case=case.name, group=_group(case, row)) for row in rows]


def _group(case: TaskCase, row: Example) -> str | None:
    if case.name != case.task.name:  # one of several models: the same row stands in other cases too
        return f"{case.task.name}/{row.group or row.id}"
    return None if row.group is None else f"{case.name}/{row.group}"


def _warnings(case: TaskCase) -> list[str]:
    return [f"{case.task.name}: {warning}" for warning in case.task.warnings]


def _deal(rows: Sequence[Sequence[Example]]) -> tuple[Example, ...]:
    """The rows of all cases in turn."""
    return tuple(row for turn in zip_longest(*rows) for row in turn if row is not None)


def over_models(task: T, models: Sequence[str], aggregate: str) -> T:
    """The task whose cases are asked of each of several models (by what tells them apart), or of the one that it has."""
    if len(models) < 2:
        return _with_aggregate(task, aggregate) if task.cases else task
    if not task.cases:
        _refuse_unshared(Prompt(()), task)
    base = task.cases or (TaskCase(task.name, task),)
    cases = tuple(
        replace(case, name=model if len(base) == 1 else f"{case.name} by {model}", model=place)
        for place, model in enumerate(models)
        for case in base
    )
    content = combine(cases, aggregate == WORST)
    kept = {name: content[name] for name in (*SPLITS, "labels", "reward")}
    pinned = content_hash([task.fingerprint, [case.name for case in cases], aggregate])
    return replace(task, **kept, cases=cases, aggregate=aggregate, fingerprint=pinned)


def _with_aggregate(task: T, aggregate: str) -> T:
    if aggregate == task.aggregate:
        return task
    reward: Any = replace(task.reward, worst=aggregate == WORST)  # type: ignore[type-var]
    pinned = content_hash([task.fingerprint, aggregate])
    return replace(task, reward=reward, aggregate=aggregate, fingerprint=pinned)


def case_rows(task: TaskContent) -> list[Mapping[str, Any]]:
    """Of each case its name, the role of its model, and how many rows each split has."""
    return [
        {
            "name": case.name,
            "role": case.role,
            **{s: sum(row.case == case.name for row in getattr(task, s)) for s in SPLITS},
        }
        for case in task.cases
    ]
