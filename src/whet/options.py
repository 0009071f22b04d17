"""What a caller may say about a run that is not in the task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from whet.errors import UsageError, parameter
from whet.models.callable import ModelChoice
from whet.run import Budget
from whet.task import Task

LARGEST_SEED = 2**63 - 1
RoleModel: TypeAlias = "ModelChoice | Mapping[str, Any] | None"
"""The model of a role: an address, a model, a function, or a mapping as under `models` in task.yaml."""


@dataclass(frozen=True)
class Options:
    """Everything about a run that is not in the task. Values set here win over the task.

    `lm`, `optimizer_lm`, `judge_lm` are models (`optimizer_lm="none"` forbids one); `policy` is the model whose weights are
    trained, or the folder of a checkpoint, `processes` how many processes share in that, each on a GPU of its own where
    there are some; `settings` are the method's own, `config` the whole of them; `run` is the run folder, `root` the folder
    of runs; `fork` names a run whose answers are reused, `control` a method that runs afterwards with as many scored
    prompts; `alpha` and `minimum_effect` stand in the place of the task's, and `more` are fresh rows for a finished run.
    `dry_run` plans and stops; `default_limit` says whether a run that nothing bounds gets a limit.
    """

    method: str | None = None
    lm: RoleModel = None
    optimizer_lm: RoleModel = None
    judge_lm: RoleModel = None
    policy: str | None = None
    processes: int = 1
    base_url: str | None = None
    concurrency: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    run: str | Path | None = None
    root: str | Path = "runs"
    fork: str | Path | None = None
    control: str | None = None
    alpha: float | None = None
    minimum_effect: float | None = None
    more: Any = None
    dry_run: bool = False
    default_limit: bool = True

    def __post_init__(self) -> None:
        """Raises UsageError for a seed that no journal holds, a limit below its least value, and settings twice."""
        if not isinstance(self.seed, int) or not -LARGEST_SEED <= self.seed <= LARGEST_SEED:
            raise UsageError(
                f"{parameter('seed')} must be a whole number between -2^63 and 2^63 (64 bits); this is {self.seed}."
            )
        if not isinstance(self.budget, Budget):
            raise UsageError(
                f"{parameter('budget')} must be a whet.Budget, such as whet.Budget(calls=2000); this is {self.budget!r}."
            )
        for name, limit in dataclasses.asdict(self.budget).items():
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise UsageError(f"{parameter(f'budget.{name}')} must be above 0; this is {limit}.")
        if self.config is not None and self.settings:
            raise UsageError(
                f"The method is a {type(self.config).__name__} with all its settings, and settings= is given too. "
                "Leave settings= out, or name the method."
            )

    def limits(self, task: Task) -> Budget:
        """The limits set here, then those of the task."""
        named = {f.name: getattr(self.budget, f.name) for f in dataclasses.fields(Budget)}
        return dataclasses.replace(task.budget, **{k: v for k, v in named.items() if v is not None})
