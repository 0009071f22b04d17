"""The choice of the evaluator that looks at the live answers of a prompt, and their number a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.engine.options import Options, RoleModel
from whet.errors import UsageError
from whet.rewards import JUDGE
from whet.task import Task
from whet.types import Message
from whet_live.learner.gate_config import METHOD
from whet_live.registry.names import ANY_PROMPT

DAILY = 100
"""Answers a day that an evaluator grades where nobody says more."""
LOW = 0.5


def check_one_prompt(name: str, what: str) -> None:
    """Raise UsageError for the name that stands for every prompt: `what` happens for one only, as in "an evaluator grades the
    answers"."""
    if name == ANY_PROMPT:
        raise UsageError(f'"{name}" stands for every prompt, and {what} of one. Name each prompt.')


def refuse_to_answer(messages: Sequence[Message]) -> str:
    """The task model of an evaluator, which grades answers that are there already and asks none."""
    raise UsageError("An evaluator asks no task model.")


@dataclass(frozen=True)
class EvaluatorConfig:
    """An evaluator of the answers of `prompt`: the reward of a task folder. It grades at most `daily` answers a day (UTC); a
    grade below `low`, as a share of the reward's range in [0, 1], is a critique. `judge_lm` takes the place of the task's judge,
    `root` is where journals go while answers are graded."""

    prompt: str
    task: Path
    daily: int = DAILY
    low: float = LOW
    judge_lm: RoleModel = None
    base_url: str | None = None
    root: Path = Path("runs")

    def options(self, task: Task) -> Options:
        """The options of a run that asks the judge only: the one that is named, else the task model of the folder. Raises
        UsageError where the reward needs a judge and neither is named."""
        lm: RoleModel = refuse_to_answer
        if JUDGE in task.reward.needs and self.judge_lm is None and not _is_named(task, JUDGE):
            if not _is_named(task, "task"):
                raise UsageError(
                    f"The reward of {self.task} needs a judge, and none is named. Name one with --judge-lm, or under `models` in "
                    "task.yaml."
                )
            lm = None
        return Options(METHOD, lm, "none", self.judge_lm, base_url=self.base_url, root=self.root)


def _is_named(task: Task, role: str) -> bool:
    spec = task.models.get(role)
    return spec is not None and spec.named
