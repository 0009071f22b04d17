"""The keywords of the public functions, each declared and documented once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from whet.engine.options import RoleModel
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.methods import MethodChoice
from whet.run import Budget
from whet.task import AlphaKeywords, GateKeywords, TaskKeywords


class TaskModelKeywords(TypedDict, total=False):
    """The task model.

    lm: an address such as openai/gpt-4o-mini, a LanguageModel (closed when the run ends), a function (messages) -> text or
      Completion, sync or async (`whet.models.callable`), or a dict as under `models` in task.yaml (with `price`, `temperature`
      and so on).
    task_lms: in the place of `lm`, two or more task models in its forms: one prompt for all of them (docs/several-tasks.md).
    aggregate: with several tasks or task models, what a prompt is worth: "mean", the mean over cases (a task asked of one model;
      the default), or "worst", the worst of them.
    """

    lm: RoleModel
    task_lms: Sequence[RoleModel] | None
    aggregate: str | None


class RunKeywords(TypedDict, total=False):
    """The run: its endpoint, its folder and what is shown.

    judge_lm: the model of a judge, in the forms of `lm`.
    base_url: any OpenAI-compatible endpoint; a list names several servers of the same model.
    concurrency: calls in flight.
    seed: seed of everything that is drawn.
    run: the folder of the run; by default TASK-METHOD-SEED below `root`.
    root: the folder of all runs.
    progress: by default the plan, the warnings and a progress line are written to stderr, in a notebook below the cell. False
      writes nothing; warnings are then Python warnings. A whet.Progress is filled for you to show.
    """

    judge_lm: RoleModel
    base_url: str | Sequence[str] | None
    concurrency: int | None
    seed: int
    run: str | Path | None
    root: str | Path
    progress: Progress | bool | None


class CallKeywords(TypedDict, total=False):
    """How the models are asked.

    dry_run: plan and stop; the result has `plan` and the status `planned`.
    batch: make the calls of baseline, validation and sealed test in batches of the provider, at a lower price and hours later
      (docs/scale.md).
    fresh: ask again what the cache or an earlier run knows, for example because another model answers behind the address.
    max_wait: the seconds to wait at most for an endpoint that turns calls away; by default an hour.
    workers: processes that call rewards written in Python (docs/scale.md); 0: this one calls them, one at a time. By default
      workers begin where a reward of the task folder keeps the processor for a tenth of a second an answer. Local models answer
      in as many processes of their own, if the number is given.
    worker_memory: MiB of data that each process with rewards may have; by default no limit.
    worker_gpus: the part of a GPU that each process with a local model takes, between 0 and 1; by default 1 where there are any.
    engine: where these are: "local" (none), "processes" (on this machine), "ray" (on the Ray cluster that runs here, or at
      RAY_ADDRESS) or "ray://HOST:PORT" (on that one).
    """

    dry_run: bool
    batch: bool
    fresh: bool
    max_wait: float | None
    workers: int | None
    worker_memory: int | None
    worker_gpus: float | None
    engine: str | None


class SearchKeywords(TypedDict, total=False):
    """The search.

    optimizer_lm: the model that writes prompts, in the forms of `lm`; "none" forbids one.
    settings: the settings of the method, where it is given by name.
    budget: limits on everything, retries and the sealed test included. Without any limit on how much is asked, a search is
      limited to 1,000 calls beside the sealed test.
    """

    optimizer_lm: RoleModel
    settings: Mapping[str, Any] | None
    budget: Budget | None


class TrainingKeywords(TypedDict, total=False):
    """The training, for methods that have weights.

    policy: the model whose weights are trained, or the folder of a checkpoint.
    processes: how many processes share in the training.
    """

    policy: str | None
    processes: int


class MethodKeywords(TypedDict, total=False):
    """The method.

    method: a name from `whet methods`, or a config object such as whet.methods.opro.Config(steps=20), of a method of your own too
      (`whet.methods.register`).
    fork: a run whose paid answers are reused.
    """

    method: MethodChoice | None
    fork: str | Path | None


class FollowUpKeywords(TypedDict, total=False):
    """What follows the search.

    control: a method that runs afterwards, within its half of the limits.
    more: fresh rows (as `data`) that a finished run has not seen. Baseline and best answer them too, and what all such rows say
      together replaces the verdict.
    """

    control: str | None
    more: Any


class EvaluateKeywords(
    TaskKeywords, AlphaKeywords, TaskModelKeywords, RunKeywords, CallKeywords, total=False
):
    """The keywords of `whet.evaluate`."""


class CompareKeywords(EvaluateKeywords, GateKeywords, SearchKeywords, TrainingKeywords, total=False):
    """The keywords of `whet.compare`."""


class OptimizeKeywords(CompareKeywords, MethodKeywords, FollowUpKeywords, total=False):
    """The keywords of `whet.optimize`."""


class SessionKeywords(
    TaskKeywords, AlphaKeywords, GateKeywords, MethodKeywords, SearchKeywords, RunKeywords, total=False
):
    """The keywords of `whet.Session`."""


OnPlan = Callable[[str, PlanJSON], None]
"""Called with the address of each model and the plan of its calls, before anything is paid."""


class TransferKeywords(TypedDict, total=False):
    """The transfer.

    task: the task of the run, where its folder has moved or it was made in memory.
    split: validation (the default), train or test; on the sealed test rows each model is an opening, and it is counted.
    judge_lm: by default the judge of the run.
    base_url: any OpenAI-compatible endpoint; a list names several servers of the same model.
    concurrency: calls in flight.
    budget: limits for all models together, over all sessions; seconds are not limited.
    root: the folder of all runs.
    fresh: ask again what an earlier transfer recorded.
    dry_run: plan and stop.
    on_plan: called with the address of each model and the plan of its calls, before anything is paid.
    progress: as in `whet.optimize`.
    """

    task: object
    split: str
    judge_lm: RoleModel
    base_url: str | Sequence[str] | None
    concurrency: int | None
    budget: Budget | None
    root: str | Path
    fresh: bool
    dry_run: bool
    on_plan: OnPlan | None
    progress: Progress | bool | None


class StudyKeywords(TypedDict, total=False):
    """The study.

    split: validation or train. The sealed test rows are never used.
    rows: so many rows of the split, drawn by the seed and balanced over targets; by default all.
    region: the fence that is studied, by default the first.
    budget: limits on calls, tokens and dollars over all sessions; seconds are not limited. The same call with a larger limit
    goes on. dry_run: plan and stop; the result has `plan` and the status `planned`.
    """

    split: str
    rows: int | None
    region: str | None
    budget: Budget | None
    dry_run: bool


class StudyCallKeywords(StudyKeywords, TaskModelKeywords, RunKeywords, total=False):
    """The keywords of the studies."""
