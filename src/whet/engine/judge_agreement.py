"""The agreement of a reward's judges with the people whose scores are in the rows, measured before the judges are relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.engine.durable import DurableRun
from whet.engine.result_json import AgreementJSON
from whet.errors import BudgetExceeded
from whet.rewards import RewardFunction
from whet.rewards.agreement import UNDEFINED, measure, parts_with_humans, select_labelled
from whet.rewards.reward import judge_calls_of
from whet.task import Task
from whet.types import Example

MOST = 50
"""The answers with people's scores that a judge grades at most."""


@dataclass(frozen=True)
class MeasuredAgreement:
    """The figures of each judge, and what is to be said of them."""

    figures: Sequence[AgreementJSON]
    warnings: Sequence[str]


def scored_rows(task: Task, examples: Sequence[Example]) -> Sequence[Example]:
    """The rows whose human scores an evaluation of `examples` measures a judge by: those that no sealed test uses, else these."""
    return (*task.train, *task.validation) or examples


def agreement_calls(reward: RewardFunction, rows: Sequence[Example], most: int = MOST) -> int:
    """Count the judge calls that it takes to grade at most `most` of the answers that people scored."""
    return sum(
        judge_calls_of(part, targets=example.target is not None)
        for part in parts_with_humans(reward)
        for example, _, _ in select_labelled(part, rows).rows[:most]
    )


async def measure_agreement(
    run: DurableRun, reward: RewardFunction, rows: Sequence[Example], most: int = MOST
) -> MeasuredAgreement:
    """Each judge grades at most `most` answers that people scored. Warnings say where it disagrees, and what was not read."""
    figures: list[AgreementJSON] = []
    warnings = []
    for part in parts_with_humans(reward):
        labelled = select_labelled(part, rows)
        if (unread := labelled.warning(part)) is not None:
            warnings.append(unread)
        if most < 2:
            continue
        try:
            one = await measure(run.branch(part.name), part, labelled.rows, most)
        except BudgetExceeded as error:
            warnings.append(f"The agreement of {part.name} with people could not be measured: {error}")
            continue
        if (warning := one.warning(part.name)) is not None:
            warnings.append(warning)
        if one.kind != UNDEFINED:
            figures.append(
                {
                    "reward": part.name,
                    "kind": one.kind,
                    "value": one.value,
                    "low": one.low,
                    "high": one.high,
                    "n": one.n,
                }
            )
    return MeasuredAgreement(figures, warnings)
