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
from whet.task import AlphaKeywords, GateKeywords, RegionKeywords, TaskKeywords


class LmKeywords(TypedDict, total=False):
    """The task model.

    lm: an address such as openai/gpt-4o-mini, a LanguageModel (closed when the run ends), a function (messages) -> text or
      Completion, sync or async (`whet.models.callable`), or a dict as under `models` in task.yaml (with `price`, `temperature`
      and so on).
    """

    lm: RoleModel


class TaskModelKeywords(LmKeywords, total=False):
    """Several task models.

    task_lms: instead of `lm`, two or more task models in the same forms, for one prompt (docs/several-tasks.md).
    aggregate: the score of a prompt with several tasks or task models: "mean" (the default), the mean over cases, or "worst",
      the worst case. A case is one task with one model.
    """

    task_lms: Sequence[RoleModel] | None
    aggregate: str | None


class OptimizerKeywords(TypedDict, total=False):
    """The optimizer model.

    optimizer_lm: the model that writes prompts, in the forms of `lm`; "none" forbids one.
    """

    optimizer_lm: RoleModel


class JudgeKeywords(TypedDict, total=False):
    """The judge.

    judge_lm: the model of a judge, in the forms of `lm`.
    """

    judge_lm: RoleModel


class EndpointKeywords(TypedDict, total=False):
    """The endpoint.

    base_url: any OpenAI-compatible endpoint; a list names several servers of the same model.
    """

    base_url: str | Sequence[str] | None


class ConcurrencyKeywords(TypedDict, total=False):
    """The pace.

    concurrency: the largest number of calls in flight.
    """

    concurrency: int | None


class RootKeywords(TypedDict, total=False):
    """The folder of runs.

    root: the folder of all runs.
    """

    root: str | Path


class ProgressKeywords(TypedDict, total=False):
    """The progress display.

    progress: by default, the plan, the warnings and a progress line are written to stderr, or below the cell of a notebook.
      False writes nothing, and warnings become Python warnings. whet fills a whet.Progress, so that you can display the
      progress yourself.
    """

    progress: Progress | bool | None


class BudgetKeywords(TypedDict, total=False):
    """The budget.

    budget: the limits of the run, including retries and the sealed test. Without a limit on calls, tokens or cost, a search may
      make 1,000 calls besides the sealed test.
    """

    budget: Budget | None


class DryRunKeywords(TypedDict, total=False):
    """The dry run.

    dry_run: plan and stop; the result has `plan` and the status `planned`.
    """

    dry_run: bool


class FreshKeywords(TypedDict, total=False):
    """New answers.

    fresh: request new answers instead of using the cache or an earlier run, for example because another model now answers at
      the address.
    """

    fresh: bool


class SplitKeywords(TypedDict, total=False):
    """The rows.

    split: train, validation (the default) or test. The rows of `test` are sealed: each use of them counts as an opening.
    """

    split: str


class SeedKeywords(TypedDict, total=False):
    """The seed.

    seed: the seed of all random draws.
    """

    seed: int


class OutKeywords(TypedDict, total=False):
    """The place of the result.

    out: the file or the folder that receives the result, instead of its usual place.
    """

    out: str | Path | None


class ConfirmKeywords(OutKeywords, total=False):
    """The decision on a proposal.

    confirm: a function that sees the proposal and returns whether whet writes it; by default, whet does.
    """

    confirm: Callable[[dict[str, Any]], bool] | None


class RatingKeywords(TypedDict, total=False):
    """The words of a column of ratings.

    good: the good values in the column. If there are two values, it is enough to name one.
    bad: the bad values in the column.
    """

    good: str | Sequence[str]
    bad: str | Sequence[str]


class JudgementKeywords(RatingKeywords, total=False):
    """The judgements, and the reward model that is fitted to them.

    scale: the lowest and the highest rating of a scale, if the ratings do not show it.
    person: learn only from this person.
    features: the features of an answer that the reward model sees: surface, words or embedded/encoder.
    """

    scale: Sequence[float] | None
    person: str | None
    features: str


class SubjectKeywords(TypedDict, total=False):
    """The task of the prompt.

    task: a task folder or a Task. By default it is the task of the run that the prompt comes from; name it if that folder has
      moved, if the task was made in memory, or if the prompt comes from no run.
    """

    task: object


class RunKeywords(
    JudgeKeywords,
    EndpointKeywords,
    ConcurrencyKeywords,
    RootKeywords,
    ProgressKeywords,
    SeedKeywords,
    total=False,
):
    """The run.

    run: the folder of the run; by default TASK-METHOD-SEED below `root`.
    """

    run: str | Path | None


class CallKeywords(DryRunKeywords, FreshKeywords, total=False):
    """The keywords of the calls to the models.

    batch: make the calls of baseline, validation and sealed test in batches of the provider, at a lower price and hours later
      (docs/scale.md).
    max_wait: the longest wait for an endpoint that refuses calls, in seconds; by default ten minutes beyond the wait that it
        names, an hour at most.
    workers: the number of processes that call rewards written in Python (docs/scale.md). With 0, this process calls them, one
      at a time. By default, workers begin if a reward of the task folder takes a tenth of a second of processor time for each
      answer. If you give the number, local models also answer in that many processes.
    worker_memory: the memory limit of each process with rewards, in MiB; by default there is no limit.
    worker_gpus: the share of a GPU for each process with a local model, between 0 and 1; by default 1 if there is a GPU.
    engine: where these processes run: "local" (no processes), "processes" (this machine), "ray" (the Ray cluster of this
      machine or of RAY_ADDRESS) or "ray://HOST:PORT" (that cluster).
    """

    batch: bool
    max_wait: float | None
    workers: int | None
    worker_memory: int | None
    worker_gpus: float | None
    engine: str | None


class SearchKeywords(OptimizerKeywords, BudgetKeywords, total=False):
    """The search.

    settings: the settings of the method, if the method is given by name.
    """

    settings: Mapping[str, Any] | None


class TrainingKeywords(TypedDict, total=False):
    """The training, for methods that have weights.

    policy: the model whose weights are trained, or the folder of a checkpoint.
    processes: the number of processes that train together.
    """

    policy: str | None
    processes: int


class MethodChoiceKeywords(TypedDict, total=False):
    """The method.

    method: a name from `whet methods`, or a config object such as whet.methods.opro.Config(steps=20), also of your own method
      (`whet.methods.register`).
    """

    method: MethodChoice | None


class MethodKeywords(MethodChoiceKeywords, total=False):
    """Answers of another run.

    fork: a run whose paid answers are reused.
    """

    fork: str | Path | None


class FollowUpKeywords(TypedDict, total=False):
    """The steps after the search.

    control: a method that runs afterwards, within its half of the limits.
    more: fresh rows (in the forms of `data`) that a finished run has not seen. The task model answers them with baseline and
      best prompt, and the test of all such rows replaces the verdict.
    """

    control: str | None
    more: Any


class TaskRunKeywords(TaskKeywords, AlphaKeywords, TaskModelKeywords, RunKeywords, CallKeywords, total=False):
    """The keywords of every run of a task."""


class EvaluateKeywords(TaskRunKeywords, SplitKeywords, total=False):
    """The keywords of `whet.evaluate`."""


class CompareKeywords(TaskRunKeywords, GateKeywords, SearchKeywords, TrainingKeywords, total=False):
    """The keywords of `whet.compare`."""


class OptimizeKeywords(CompareKeywords, MethodKeywords, FollowUpKeywords, total=False):
    """The keywords of `whet.optimize`."""


class SessionKeywords(
    TaskKeywords, AlphaKeywords, GateKeywords, MethodKeywords, SearchKeywords, RunKeywords, total=False
):
    """The keywords of `whet.Session`."""


OnPlan = Callable[[str, PlanJSON], None]
"""Called with the address of each model and the plan of its calls, before anything is paid."""


class TransferKeywords(
    SplitKeywords,
    JudgeKeywords,
    EndpointKeywords,
    ConcurrencyKeywords,
    RootKeywords,
    ProgressKeywords,
    BudgetKeywords,
    DryRunKeywords,
    FreshKeywords,
    SubjectKeywords,
    total=False,
):
    """The transfer. The judge is by default that of the run. `budget` holds for all models together, over all sessions; a
    limit on seconds is not supported. On the sealed test rows, each model counts as an opening.

    on_plan: called with the address of each model and the plan of its calls, before anything is paid.
    """

    on_plan: OnPlan | None


class StudyKeywords(SplitKeywords, RegionKeywords, BudgetKeywords, DryRunKeywords, total=False):
    """The study. It never uses the sealed test rows: `split` is validation or train. Without `region`, it studies the first
    fence. `budget` limits calls, tokens and dollars over all sessions, not seconds. The same call with a larger limit continues.

    rows: the number of rows of the split, drawn by the seed and balanced over targets; by default all rows.
    """

    rows: int | None


class LearnKeywords(
    OptimizerKeywords,
    EndpointKeywords,
    RegionKeywords,
    FreshKeywords,
    DryRunKeywords,
    RootKeywords,
    ProgressKeywords,
    RatingKeywords,
    ConfirmKeywords,
    total=False,
):
    """The keywords of `whet.learn` that other functions have too."""


class StudyCallKeywords(StudyKeywords, TaskModelKeywords, RunKeywords, total=False):
    """The keywords of the studies."""


class AdviseKeywords(
    LmKeywords,
    OptimizerKeywords,
    JudgeKeywords,
    EndpointKeywords,
    BudgetKeywords,
    DryRunKeywords,
    SeedKeywords,
    ProgressKeywords,
    total=False,
):
    """The keywords of `whet.advise` that other functions have too."""


class MigrateKeywords(
    AlphaKeywords,
    SubjectKeywords,
    MethodChoiceKeywords,
    SearchKeywords,
    RunKeywords,
    CallKeywords,
    total=False,
):
    """The keywords of `whet.migrate` that other functions have too."""


class PreferencesKeywords(
    JudgementKeywords,
    ConfirmKeywords,
    MethodChoiceKeywords,
    TaskModelKeywords,
    SearchKeywords,
    TrainingKeywords,
    RunKeywords,
    CallKeywords,
    total=False,
):
    """The keywords of `whet.learn_preferences` that other functions have too."""


class QuestionKeywords(JudgementKeywords, SeedKeywords, total=False):
    """The keywords of `whet.preference_questions` that other functions have too."""


class SensitivityKeywords(StudyCallKeywords, SubjectKeywords, total=False):
    """The keywords of `whet.study_sensitivity` that other functions have too."""


RUN_GROUPS = (
    SeedKeywords,
    JudgeKeywords,
    EndpointKeywords,
    ConcurrencyKeywords,
    RunKeywords,
    RootKeywords,
    ProgressKeywords,
)
"""The groups of `RunKeywords`, for `describe_keywords`."""
CALL_GROUPS = (DryRunKeywords, FreshKeywords, CallKeywords)
"""The groups of `CallKeywords`."""
SEARCH_GROUPS = (OptimizerKeywords, BudgetKeywords, SearchKeywords)
"""The groups of `SearchKeywords`."""
TASK_GROUPS = (TaskKeywords, RegionKeywords)
"""The groups of `TaskKeywords`."""
TRANSFER_GROUPS = (
    SubjectKeywords,
    SplitKeywords,
    JudgeKeywords,
    EndpointKeywords,
    ConcurrencyKeywords,
    BudgetKeywords,
    RootKeywords,
    FreshKeywords,
    DryRunKeywords,
    ProgressKeywords,
    TransferKeywords,
)
"""The groups of `TransferKeywords`."""
STUDY_GROUPS = (SplitKeywords, RegionKeywords, BudgetKeywords, DryRunKeywords, StudyKeywords)
"""The groups of `StudyKeywords`."""
LEARN_GROUPS = (
    RatingKeywords,
    OutKeywords,
    ConfirmKeywords,
    OptimizerKeywords,
    EndpointKeywords,
    RegionKeywords,
    FreshKeywords,
    DryRunKeywords,
    RootKeywords,
    ProgressKeywords,
)
"""The groups of `LearnKeywords`."""
MODEL_GROUPS = (LmKeywords, TaskModelKeywords)
"""The groups of `TaskModelKeywords`."""
METHOD_GROUPS = (MethodChoiceKeywords, MethodKeywords)
"""The groups of `MethodKeywords`."""
ADVISE_GROUPS = (
    LmKeywords,
    OptimizerKeywords,
    JudgeKeywords,
    EndpointKeywords,
    BudgetKeywords,
    DryRunKeywords,
    SeedKeywords,
    ProgressKeywords,
)
"""The groups of `AdviseKeywords`."""
MIGRATE_GROUPS = (
    SubjectKeywords,
    AlphaKeywords,
    MethodChoiceKeywords,
    *SEARCH_GROUPS,
    *RUN_GROUPS,
    *CALL_GROUPS,
)
"""The groups of `MigrateKeywords`."""
JUDGEMENT_GROUPS = (RatingKeywords, JudgementKeywords)
"""The groups of `JudgementKeywords`."""
PREFERENCES_GROUPS = (
    *JUDGEMENT_GROUPS,
    OutKeywords,
    ConfirmKeywords,
    MethodChoiceKeywords,
    *MODEL_GROUPS,
    *SEARCH_GROUPS,
    TrainingKeywords,
    *RUN_GROUPS,
    *CALL_GROUPS,
)
"""The groups of `PreferencesKeywords`."""
