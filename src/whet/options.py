"""What a user may say about a run that is not in the task folder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.run import Limits
from whet.task import Task

LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Options:
    """Everything about a run that is not in the task folder. An option given here wins over the task file.

    `lm`, `optimizer_lm`, `judge_lm` are model addresses (`optimizer_lm="none"` forbids one); `policy` is the model
    whose weights are trained, or the folder of a checkpoint, `processes` how many processes share in that, each on a
    GPU of its own where there are some; `max_*` are limits; `settings` are the method's own (`--set`); `out` is the run
    folder, `root` the folder of runs; `fork` names a run whose answers are reused, `control` a method that runs
    afterwards with as many scored prompts.
    """

    method: str | None = None
    lm: str | None = None
    optimizer_lm: str | None = None
    judge_lm: str | None = None
    policy: str | None = None
    processes: int = 1
    base_url: str | None = None
    max_calls: int | None = None
    max_task_calls: int | None = None
    max_optimizer_calls: int | None = None
    max_judge_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    concurrency: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    out: str | Path | None = None
    root: str | Path = "runs"
    fork: str | Path | None = None
    control: str | None = None

    def limits(self, task: Task) -> Limits:
        """Limits from the options, then from the task file. Raises UsageError for one below its least value."""
        values: dict[str, Any] = {}
        for name in Limits.__dataclass_fields__:
            given = getattr(self, f"max_{name}")
            if given is not None and not 0 < given < math.inf:
                raise UsageError(f"--max-{name.replace('_', '-')} must be above 0; this is {given}.")
            values[name] = given if given is not None else getattr(task.budget, name)
        return Limits(**values)


def make_options(**given: Any) -> Options:
    """Options from keyword arguments. Raises UsageError for an unknown one, naming the nearest, and for a seed that no
    journal holds."""
    known = [f.name for f in dataclasses.fields(Options)]
    for name in given:
        if name not in known:
            raise UsageError(f'There is no option "{name}".{did_you_mean(name, known)}')
    options = Options(**given)
    if not -LARGEST_SEED <= options.seed <= LARGEST_SEED:
        raise UsageError(f"--seed must lie between -2^63 and 2^63 (64 bits); this is {options.seed}.")
    return options
