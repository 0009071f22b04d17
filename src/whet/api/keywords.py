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
    task_lms: instead of `lm`, two or more task models in the same forms, for one prompt (docs/several-tasks.md).
    aggregate: the score of a prompt with several tasks or task models: "mean" (the default), the mean over cases, or "worst",
      the worst case. A case is one task with one model.
    """

    lm: RoleModel
    task_lms: Sequence[RoleModel] | None
    aggregate: str | None


class RunKeywords(TypedDict, total=False):
    """The run: its endpoint, its folder and its progress display.

    judge_lm: the model of a judge, in the forms of `lm`.
    base_url: any OpenAI-compatible endpoint; a list names several servers of the same model.
    concurrency: the largest number of calls in flight.
    seed: the seed of all random draws.
    run: the folder of the run; by default TASK-METHOD-SEED below `root`.
    root: the folder of all runs.
    progress: by default, the plan, the warnings and a progress line are written to stderr, or below the cell of a notebook.
      False writes nothing, and warnings become Python warnings. whet fills a whet.Progress, so that you can display the
      progress yourself.
    """

    judge_lm: RoleModel
    base_url: str | Sequence[str] | None
    concurrency: int | None
    seed: int
    run: str | Path | None
    root: str | Path
    progress: Progress | bool | None


class CallKeywords(TypedDict, total=False):
    """How whet calls the models.

    dry_run: plan and stop; the result has `plan` and the status `planned`.
    batch: make the calls of baseline, validation and sealed test in batches of the provider, at a lower price and hours later
      (docs/scale.md).
    fresh: request new answers instead of using the cache or an earlier run, for example because another model now answers at
      the address.
    max_wait: the longest wait for an endpoint that refuses calls, in seconds; by default an hour.
    workers: the number of processes that call rewards written in Python (docs/scale.md). With 0, this process calls them, one
      at a time. By default, workers begin if a reward of the task folder takes a tenth of a second of processor time for each
      answer. If you give the number, local models also answer in that many processes.
    worker_memory: the memory limit of each process with rewards, in MiB; by default there is no limit.
    worker_gpus: the share of a GPU for each process with a local model, between 0 and 1; by default 1 if there is a GPU.
    engine: where these processes run: "local" (no processes), "processes" (this machine), "ray" (the Ray cluster of this
      machine or of RAY_ADDRESS) or "ray://HOST:PORT" (that cluster).
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
    settings: the settings of the method, if the method is given by name.
    budget: the limits of the run, including retries and the sealed test. Without a limit on calls, tokens or cost, a search may
      make 1,000 calls besides the sealed test.
    """

    optimizer_lm: RoleModel
    settings: Mapping[str, Any] | None
    budget: Budget | None


class TrainingKeywords(TypedDict, total=False):
    """The training, for methods that have weights.

    policy: the model whose weights are trained, or the folder of a checkpoint.
    processes: the number of processes that train together.
    """

    policy: str | None
    processes: int


class MethodKeywords(TypedDict, total=False):
    """The method.

    method: a name from `whet methods`, or a config object such as whet.methods.opro.Config(steps=20), also of your own method
      (`whet.methods.register`).
    fork: a run whose paid answers are reused.
    """

    method: MethodChoice | None
    fork: str | Path | None


class FollowUpKeywords(TypedDict, total=False):
    """The steps after the search.

    control: a method that runs afterwards, within its half of the limits.
    more: fresh rows (in the forms of `data`) that a finished run has not seen. The task model answers them with baseline and
      best prompt, and the test of all such rows replaces the verdict.
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

    task: the task of the run, if its folder has moved or the task was made in memory.
    split: validation (the default), train or test; on the sealed test rows, each model counts as an opening.
    judge_lm: by default the judge of the run.
    base_url: any OpenAI-compatible endpoint; a list names several servers of the same model.
    concurrency: the largest number of calls in flight.
    budget: limits for all models together, over all sessions; a limit on seconds is not supported.
    root: the folder of all runs.
    fresh: request new answers instead of those that an earlier transfer recorded.
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
    rows: the number of rows of the split, drawn by the seed and balanced over targets; by default all rows.
    region: the fence to study; by default the first.
    budget: limits on calls, tokens and dollars over all sessions; a limit on seconds is not supported. The same call with a
      larger limit continues.
    dry_run: plan and stop; the result has `plan` and the status `planned`.
    """

    split: str
    rows: int | None
    region: str | None
    budget: Budget | None
    dry_run: bool


class StudyCallKeywords(StudyKeywords, TaskModelKeywords, RunKeywords, total=False):
    """The keywords of the studies."""
