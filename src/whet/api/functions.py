"""The public functions that Python programs, the command line and the server call.

Each coroutine function `aNAME` has a twin `NAME` that waits for it, also in a notebook.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Unpack

from whet._util.arguments import check_arguments, check_path, describe_keywords, select_keywords, write_fault
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.added_rows import MORE
from whet.api.comparison import RunMeasurements, compare_runs
from whet.api.jobs import ComparisonCall, JobPool
from whet.api.keywords import (
    CALL_GROUPS,
    LEARN_GROUPS,
    METHOD_GROUPS,
    MODEL_GROUPS,
    RUN_GROUPS,
    SEARCH_GROUPS,
    TASK_GROUPS,
    CompareKeywords,
    EvaluateKeywords,
    FollowUpKeywords,
    LearnKeywords,
    OptimizeKeywords,
    SplitKeywords,
    TrainingKeywords,
)
from whet.api.results import Evaluation, LearnResult, MethodComparison, RunResult
from whet.api.running import evaluate_task, find_run, optimize_task, run_task, with_prompt
from whet.api.shards import Shard, write_shard
from whet.api.study import STUDY, write_study
from whet.engine.assemble import spread_over_models
from whet.engine.comparison_json import RunRowJSON
from whet.engine.journal import events_after
from whet.engine.options import Options, RoleModel, options_of_method
from whet.engine.progress import Progress
from whet.engine.readability import READER
from whet.engine.run_folder import RESULT, UNREADABLE, evaluated_split, read_header, read_result
from whet.engine.run_index import list_runs, run_row
from whet.engine.transfer import TRANSFER
from whet.errors import UsageError, did_you_mean, parameter
from whet.feedback import one_call
from whet.feedback.prompt_file import prompt_path
from whet.feedback.proposals import MOST_CALLS, LearnRequest
from whet.methods import MethodChoice
from whet.prompt import Prompt
from whet.reporting import display_progress, place_of, write_comparison, write_report
from whet.task import SPLITS, AlphaKeywords, GateKeywords, Task, TaskKeywords, prompt_of, task_of
from whet.task.table import table_of


@check_arguments
@describe_keywords(
    *TASK_GROUPS,
    AlphaKeywords,
    GateKeywords,
    *MODEL_GROUPS,
    *METHOD_GROUPS,
    *SEARCH_GROUPS,
    TrainingKeywords,
    *RUN_GROUPS,
    *CALL_GROUPS,
    FollowUpKeywords,
    defaults=Options,
)
async def aoptimize(
    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[Any],
    **keywords: Unpack[OptimizeKeywords],
) -> RunResult:
    """Search for a better prompt and test it on the sealed test rows. Repeating the call resumes the run, or returns the
    finished result.

    `task`: the text of a prompt, its messages, a prompt file, a Prompt, a Task, or a task folder.

    Identity: a run folder is pinned to the prompt, the rows, the reward, the method with its settings and version, the models'
      addresses, the budget and the seed. If any of them changes, the call begins another run. A function is pinned by its
      source, its closure and the functions of its module that it uses. So an edited reward or model function is a different
      function, and its answers are not taken from a cache. whet does not see data that such a function reads at run time (a
      file, a server): change its attribute `version` when the data changes.

    Raises UsageError before anything is paid, and ProviderError for a dead endpoint (result.json then has the status
    `stopped`).
    """
    options = options_of_method(keywords.get("method"), keywords)
    with display_progress(keywords.get("progress"), place_of(task)) as shown:
        loaded = task_of(task, select_keywords(TaskKeywords, keywords))
        return RunResult(await optimize_task(*spread_over_models(loaded, options), shown))


@check_arguments
@describe_keywords(
    SplitKeywords,
    *TASK_GROUPS,
    AlphaKeywords,
    *MODEL_GROUPS,
    *RUN_GROUPS,
    *CALL_GROUPS,
    defaults=Options,
    split="validation",
)
async def aevaluate(
    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[Any],
    *,
    prompt: str | Path | Prompt | Mapping[str, Any] | Sequence[Any] | None = None,
    **keywords: Unpack[EvaluateKeywords],
) -> Evaluation:
    """Measure the mean reward of a prompt (default: the task's own) on one split, with its 95% interval.

    `prompt`: a text, messages, a Prompt such as `result.best.prompt`, or a file. `split`: train, validation or test (an opening
    of the sealed test counts and spends its part of `alpha`). Raises the same errors as `whet.optimize`.
    """
    split = keywords.get("split", "validation")
    if split not in SPLITS:
        raise UsageError(f'There is no split "{split}".{did_you_mean(split, SPLITS)}')
    with display_progress(keywords.get("progress"), place_of(task)) as shown:
        loaded = task_of(task, select_keywords(TaskKeywords, keywords), needs=(split,))
        if prompt is not None:
            what = str(prompt) if isinstance(prompt, Path) else "The prompt"
            loaded = with_prompt(loaded, prompt_of(prompt, parameter("prompt")), what)
        loaded, options = spread_over_models(loaded, build_from(Options, keywords))
        return Evaluation(await evaluate_task(loaded, split, options, shown))


@check_arguments
@describe_keywords(
    *TASK_GROUPS,
    AlphaKeywords,
    GateKeywords,
    *MODEL_GROUPS,
    *SEARCH_GROUPS,
    TrainingKeywords,
    *RUN_GROUPS,
    *CALL_GROUPS,
    defaults=Options,
)
async def acompare(
    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[Any],
    methods: Sequence[MethodChoice],
    *,
    seeds: int = 1,
    transfer: RoleModel = None,
    reader: str = READER,
    on_run: Callable[[str, int, Progress], None] = lambda method, seed, progress: None,
    shard: str | None = None,
    jobs: int | None = None,
    **keywords: Unpack[CompareKeywords],
) -> MethodComparison:
    """Run several methods under equal limits, with `seeds` seeds each, and summarise each method.

    Each run measures the perplexity of its text under `reader`, which is a model's address or `none`. With
    the address of another model as `transfer`, it also measures the prompt with that model. `run` is the folder of the runs.
    Raises the same errors as `whet.optimize`.

    The plan of all runs together is shown before anything is paid. The folder gets the comparison as comparison.html, .csv, .md
    and .tex, and the returned result as comparison.json. With `shard`, such as "3/20", the call makes every twentieth run,
    beginning with the third; `whet.merge` joins the shards.

    `jobs` is the number of runs at the same time, each in its own process; the comparison is the same as with one process. The
    jobs share the limits on calls in flight and on calls a minute. Another process must be able to load the task, functions and
    models.
    """
    call = ComparisonCall(
        task,
        methods,
        seeds,
        transfer,
        reader,
        {name: value for name, value in keywords.items() if name != "progress"},
        1 if jobs is None else jobs,
    )
    part = None if shard is None else Shard.parse(shard)
    with display_progress(keywords.get("progress"), place_of(task)) as shown:
        opened = call.open()
        folder, options, loaded = opened.folder, opened.options, opened.task
        pool = JobPool.of(call, options.share, shown) if options.share > 1 else None
        measurements = RunMeasurements(loaded, options, folder, transfer, reader)
        if part is not None:
            part = part.of_comparison(folder, loaded, opened.names, seeds, options)
            part = part.of_family(folder, make=not options.dry_run)
        compared = await compare_runs(
            measurements, opened.names, seeds, on_run, run_task, shown, opened.configs, part, pool
        )
        if part is not None and not options.dry_run:
            write_shard(folder, part, compared)
        elif not options.dry_run:
            write_comparison(folder, compared)
        return MethodComparison({**compared, "folder": str(folder)})


@check_arguments
@describe_keywords(*LEARN_GROUPS, defaults=Options, good=(), bad=())
async def alearn(
    prompt: str | Path | Prompt,
    feedback: str | Path | Sequence[str | Path | Mapping[str, Any]] = (),
    *,
    accepted: Sequence[str] | frozenset[str] = (),
    most_calls: int = MOST_CALLS,
    undo: bool = False,
    write: Callable[[dict[str, Any]], str] | None = None,
    **keywords: Unpack[LearnKeywords],
) -> LearnResult:
    """Turn feedback (a file, files and rows, or a data frame) into instructions of a prompt; return the proposal with its
    `status`.

    `prompt` is the file of a prompt, which is written with its ledger beside it (or to `out`). It may also be a prompt in
    memory, as a text or a Prompt; `result.prompt` is then the new prompt. `optimizer_lm` reads the comments and writes
    instructions, in at most `most_calls` calls. Without it, whet invents no instructions: it calls `write` with each group of
    comments (`feedback`: ids of rows, `texts`), which returns an instruction, or an empty text for none. `accepted`
    are ids of flagged rows or instructions that a person accepts. `root` is the folder for journals of paid calls. `undo` takes
    back the last step instead.

    Raises UsageError for unusable input, and ProviderError for a dead endpoint.
    """
    sources: Any = [feedback] if isinstance(feedback, str | Path) else feedback
    if hasattr(feedback, "columns") or hasattr(feedback, "column_names"):
        sources = table_of(feedback, "feedback").values
    out, good, bad = keywords.get("out"), keywords.get("good", ()), keywords.get("bad", ())
    target, path = None if out is None else Path(out), prompt_path(prompt)
    root, dry_run = keywords.get("root", "runs"), keywords.get("dry_run", False)
    for name, value in (("the prompt", path), (parameter("out"), out), (parameter("root"), root)):
        check_path(name, value)
    if not dry_run:
        _check_written(target or path)
    if most_calls < 1:
        raise UsageError(f"{parameter('most_calls')} must be 1 or more; this is {most_calls}.")
    if undo:
        if path is None or path.is_dir():
            raise UsageError("Only a step in a prompt file can be undone. Give the path of the file.")
        return LearnResult(one_call.unlearn(path))
    with ExitStack() as files, ExitStack() as stack:  # nothing moves on the terminal while a person is asked
        shown = stack.enter_context(display_progress(keywords.get("progress")))

        def ask_person(proposal: dict[str, Any]) -> bool:
            stack.close()
            confirm = keywords.get("confirm")
            return confirm is None or confirm(proposal)

        def ask_writer(group: dict[str, Any]) -> str:
            assert write is not None
            stack.close()
            return write(group)

        request = LearnRequest(
            prompt=path or files.enter_context(_file_of(prompt)),
            feedback=sources,
            optimizer_lm=keywords.get("optimizer_lm"),
            base_url=keywords.get("base_url"),
            region=keywords.get("region"),
            accepted=frozenset(accepted),
            most_calls=most_calls,
            root=Path(root),
            good=[good] if isinstance(good, str) else good,
            bad=[bad] if isinstance(bad, str) else bad,
            fresh=keywords.get("fresh", False),
        )
        result = await one_call.learn(
            request,
            out=target,
            dry_run=dry_run,
            confirm=ask_person,
            write=None if write is None else ask_writer,
            progress=shown,
        )
    if path is not None:
        return LearnResult(result)
    nowhere = {"written_to": None, "ledger": None} if target is None else {}
    return LearnResult({**result, "prompt": "a prompt in memory", **nowhere})


@contextmanager
def _file_of(prompt: str | Path | Prompt) -> Iterator[Path]:
    """Write a prompt in memory to a file that exists during a call."""
    source = (prompt if isinstance(prompt, Prompt) else Prompt.parse(str(prompt))).source
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.md"
        path.write_text(source, "utf-8", newline="")
        yield path


def _check_written(path: Path | None) -> None:
    """Raise UsageError for a file that cannot be written at its place."""
    if path is None:
        return
    reason = write_fault(path.parent) if path.parent.exists() else f"there is no folder {path.parent}"
    if reason is not None:
        raise UsageError(
            f"{path} cannot be written: {reason}. Name another file with {parameter('out', 'FILE')}."
        )


optimize = blocking(aoptimize)
evaluate = blocking(aevaluate)
compare = blocking(acompare)
learn = blocking(alearn)


@check_arguments
def report(run: str | Path, root: str | Path = "runs") -> Path:
    """Write `report.html` of a run again, also of an unfinished run, and return its path."""
    folder = find_run(run, root)
    path, header = folder / RESULT, read_header(folder) or {}
    if header.get("method") == TRANSFER:
        raise UsageError(
            f"{folder} is a transfer to another model and has no report. Its figures are in {path}."
        )
    if evaluated_split(header) is not None:
        raise UsageError(f"{folder} is an evaluation and has no report. Its figures: whet show {folder}")
    result = read_result(folder)
    readable = None if result.get("status") == UNREADABLE else result or None
    if str(header.get("method", "")).startswith(STUDY):
        if readable is None:
            raise UsageError(
                f"{folder} is a study without a result yet. To continue the study, repeat its command."
            )
        return write_study(folder, readable)
    return write_report(folder, readable)


@check_arguments
def runs(root: str | Path = "runs", *, team: bool = False) -> Sequence[RunRowJSON]:
    """List one row for each run folder below the root: its kind, its state and its result. With `team`, list the runs of the
    index at `$WHET_STATE`, from all machines, with `machine`, `began` and `changed` (docs/scale.md).

    `split` is the split over whose `n` rows `mean` is taken: the sealed test of a run, or the split of an evaluation.
    `promoted` is None for an evaluation, and before the end of a run.
    """
    if team:
        return list_runs()
    check_path(parameter("root"), root)
    every = (run_row(path.parent) for path in sorted(Path(root).glob("**/journal.sqlite")) if path.is_file())
    return [row for row in every if row["method"] != MORE]


@check_arguments
def run_events(folder: str | Path, after: int = 0, limit: int = 500) -> list[dict[str, Any]]:
    """The events that a run logged after the event number `after`, in order, also during the run: seq, name, value, calls."""
    events = events_after(Path(folder) / "journal.sqlite", after, limit)
    return [{"seq": seq, "name": e.name, "value": e.value, "calls": e.calls} for seq, e in events]
