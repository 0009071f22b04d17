"""The options of a run that are not part of the task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from whet._util.arguments import check_path
from whet._util.fields import build_from
from whet._util.storable import LARGEST, is_number
from whet._util.workers.automatic import ENGINES, LOCAL, is_ray
from whet.errors import UsageError, did_you_mean, named_fields, parameter
from whet.methods import MethodChoice, choose_method
from whet.models.callable import ModelChoice
from whet.models.model_workers import WorkerChoice
from whet.run import Budget
from whet.task import Task
from whet.task.spec import AGGREGATES
from whet_client.storable import show_value

RoleModel: TypeAlias = ModelChoice | Mapping[str, Any] | None
"""The model of a role: an address, a model, a function, or a mapping as under `models` in task.yaml."""


@named_fields
@dataclass(frozen=True)
class Options:
    """Everything about a run that is not in the task. A value set here replaces that of the task."""

    method: str | None = None
    """The method's name; None: the task's, or the default."""
    lm: RoleModel = None
    """The task model; with `task_lms`, the first of them."""
    optimizer_lm: RoleModel = None
    """The model that writes prompts; "none" forbids one."""
    judge_lm: RoleModel = None
    """The model of a judge."""
    policy: str | None = None
    """The model whose weights are trained, or the folder of a checkpoint."""
    processes: int = 1
    """The number of processes that train together, each on its own GPU if there are GPUs."""
    workers: int | None = None
    """The number of processes that call rewards written in Python; 0: this process calls them."""
    worker_memory: int | None = None
    """The memory limit of each worker in MiB; None: no limit."""
    worker_gpus: float | None = None
    """The share of a GPU for each process with a local model."""
    engine: str | None = None
    """The executor of the user's functions and local models: `local`, `processes`, `ray` or `ray://HOST:PORT`."""
    base_url: str | Sequence[str] | None = None
    """The OpenAI-compatible endpoint of the models; several endpoints are servers of the same model."""
    concurrency: int | None = None
    """The largest number of calls in flight."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the method that was given by name."""
    config: Any = None
    """The config of the method, instead of `settings`."""
    budget: Budget = field(default_factory=Budget)
    """The limits of the run."""
    seed: int = 0
    """The seed of all random draws."""
    run: str | Path | None = None
    """The folder of the run; None: TASK-METHOD-SEED below `root`."""
    root: str | Path = "runs"
    """The folder of all runs."""
    fork: str | Path | None = None
    """A run whose paid answers are reused."""
    control: str | None = None
    """A method that runs afterwards, within its half of the limits."""
    alpha: float | None = None
    """Replaces the task's `alpha`."""
    alpha_policy: str | None = None
    """Replaces the task's `alpha_policy`."""
    minimum_effect: float | None = None
    """Replaces the task's `minimum_effect`."""
    longest: int | None = None
    """Replaces the task's `longest`."""
    more: object = None
    """Fresh rows for a finished run."""
    dry_run: bool = False
    """Plan the run and stop."""
    batch: bool = False
    """Whether calls that no other step waits for may go out in batches of the provider, which can take hours."""
    fresh: bool = False
    """Request new answers instead of using the cache or a finished run."""
    max_wait: float | None = None
    """The longest wait for an endpoint that refuses calls, in seconds."""
    default_limit: bool = True
    """Whether a run without any limit gets a limit on its calls."""
    task_lms: Sequence[RoleModel] | None = None
    """Several task models, for one prompt."""
    aggregate: str | None = None
    """The score of a prompt with several models or tasks: the mean over cases, or the worst case."""
    other_lms: Sequence[RoleModel] = ()
    """The task models after the first, once the task has a case for each."""
    share: int = 1
    """The number of runs that use the models at once; each gets an equal part of the calls in flight and of the calls a
    minute."""

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid path, a seed that a journal cannot hold, an invalid limit, and settings given
        twice."""
        for name in ("run", "root", "fork"):
            check_path(parameter(name), getattr(self, name))
        if not isinstance(self.seed, int) or not -LARGEST <= self.seed <= LARGEST:
            raise UsageError(
                f"{parameter('seed')} must be a whole number between -2^63 and 2^63 (64 bits); this is {show_value(self.seed)}."
            )
        for name in ("processes", "concurrency"):
            if (value := getattr(self, name)) is not None and not (is_number(value) and value >= 1):
                raise UsageError(f"{parameter(name)} must be 1 or more; this is {show_value(value)}.")
        for name, least in (("workers", 0), ("worker_memory", 256)):
            if (value := getattr(self, name)) is not None and not (is_number(value) and value >= least):
                raise UsageError(
                    f"{parameter(name)} must be a whole number, {least} or more; this is {show_value(value)}."
                )
        gpus = self.worker_gpus
        if gpus is not None and not (is_number(gpus) and 0 <= gpus <= 1):
            raise UsageError(
                f"{parameter('worker_gpus')} must be a number between 0 and 1; this is {show_value(gpus)}."
            )
        self._check_engine()
        if self.max_wait is not None and not (is_number(self.max_wait) and self.max_wait > 0):
            raise UsageError(
                f"{parameter('max_wait')} must be seconds above 0; this is {show_value(self.max_wait)}."
            )
        if not isinstance(self.budget, Budget):
            raise UsageError(
                f"{parameter('budget')} must be a whet.Budget, such as whet.Budget(calls=2000); this is {self.budget!r}."
            )
        for name, limit in dataclasses.asdict(self.budget).items():
            whole = name not in ("cost_usd", "seconds")
            if limit is None or (is_number(limit) and limit > 0 and not (whole and limit % 1)):
                continue
            what = "above 0, a whole number below 2^63" if whole else "above 0 and finite"
            raise UsageError(f"{parameter(f'budget.{name}')} must be {what}; this is {show_value(limit)}.")
        if self.aggregate is not None and self.aggregate not in AGGREGATES:
            raise UsageError(
                f"{parameter('aggregate')} is one of {', '.join(AGGREGATES)}; this is {show_value(self.aggregate)}."
            )
        if self.task_lms is not None and self.lm is not None:
            raise UsageError(
                f"{parameter('lm')} names one task model, but {parameter('task_lms')} names several. "
                "Omit one of the two options."
            )
        if self.config is not None and self.settings:
            raise UsageError(
                f"The method is a {type(self.config).__name__} with all its settings, but settings= "
                "is given too. Omit settings=, or name the method."
            )

    @property
    def worker_choice(self) -> WorkerChoice | None:
        """The workers in which local models answer; None: they answer in the process of the run."""
        if self.engine == LOCAL or self.workers == 0 or (self.engine is None and self.workers is None):
            return None
        return WorkerChoice(self.engine, self.workers, self.worker_gpus, self.share)

    def _check_engine(self) -> None:
        """Raise UsageError for an unknown engine, and for an engine that contradicts the number of workers."""
        engine = self.engine
        if engine is None:
            return
        if engine not in ENGINES and not is_ray(engine):
            raise UsageError(
                f"{parameter('engine')} is one of {', '.join(ENGINES)}, or ray://HOST:PORT; this is {show_value(engine)}."
                f"{did_you_mean(str(engine), ENGINES)}"
            )
        if self.workers is not None and (self.workers == 0) != (engine == LOCAL):
            raise UsageError(
                f"{parameter('engine', engine)} and {parameter('workers', self.workers)} contradict "
                "each other. Omit one of them."
            )

    def limits(self, task: Task) -> Budget:
        """The limits set here, then those of the task."""
        named = {f.name: getattr(self.budget, f.name) for f in dataclasses.fields(Budget)}
        return dataclasses.replace(task.budget, **{k: v for k, v in named.items() if v is not None})


def options_of_method(choice: MethodChoice | None, keywords: Mapping[str, object]) -> Options:
    """The options of a run with one method, given by its name, as a Method or as a config."""
    method, config = (None, None) if choice is None else choose_method(choice)
    name = None if method is None else method.entry.name
    return build_from(Options, {**keywords, "method": name, "config": config})
