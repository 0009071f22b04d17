"""One run of a task, from its folder to its result: find the folder, resume or begin, write what is derived."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from whet._util.arguments import check_path
from whet._util.media import write_parts
from whet._util.storable import to_json
from whet._util.workers.automatic import make_executor
from whet.api.added_rows import AddedRows
from whet.api.comparison import RunMeasurements
from whet.api.control import (
    asks_optimizer,
    options_of_control,
    settings_of_control,
    settings_shared_with,
    share_left_for_control,
)
from whet.engine.assemble import Assembly, Models, assemble
from whet.engine.batched_calls import allow_batches
from whet.engine.budget import BudgetPlan, answer_calls, control_share, plan_budget, with_default_limit
from whet.engine.evaluated_rows import name_rows
from whet.engine.evaluation_folder import (
    ASKED,
    clear_evaluation,
    clear_records,
    holds_evaluation,
    locate_evaluation,
    put_in_place,
)
from whet.engine.evaluation_limits import affordable_scores, evaluate_within_limits, refuse_small_limits
from whet.engine.execute import execute
from whet.engine.files_beside import changed_since, note_files
from whet.engine.final_evaluation import result_of_stopped_run, result_of_untested_run
from whet.engine.first_round import least_calls
from whet.engine.forecast import forecast, forecast_evaluation, measured_usage
from whet.engine.judge_agreement import agreement_calls, scored_rows
from whet.engine.model_client import ModelClient
from whet.engine.openings import SealedTestLedger
from whet.engine.options import Options
from whet.engine.pairs import compare_pairs, sealed_answers
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.result_json import EvaluationJSON, RunJSON
from whet.engine.run_folder import (
    ENDED,
    IMAGES,
    PLACES,
    UNREADABLE,
    OpenRun,
    RunPlan,
    asks_again,
    check_run_folder,
    describe_moved_models,
    describe_replaced,
    differing_entries,
    ended_at,
    evaluated_split,
    goes_on,
    has_failed,
    note_fresh,
    note_in,
    open_run,
    places_of,
    read_header,
    write_derived,
    write_result,
)
from whet.engine.run_folder import read_result as read_result
from whet.engine.run_index import note_in_index
from whet.engine.sampling import sampling_warnings
from whet.engine.trained_policy import check_policy
from whet.engine.training_cost import forecast_training
from whet.engine.trial import works_to_load
from whet.engine.usage_sums import CONTROL, estimates_of_both, usage_of_run, with_part
from whet.errors import (
    BudgetExceeded,
    ProviderError,
    StorageError,
    UsageError,
    did_you_mean,
    parameter,
    quantity,
    task_setting,
)
from whet.methods import configure, get_method
from whet.prompt import Prompt
from whet.reporting import write_report
from whet.rewards import TARGET_SCORE
from whet.run import Budget
from whet.task import Task
from whet.task.prompts import check_braced_names, foreign_slots
from whet.task.rows import INPUT_NAMES
from whet.task.spec import with_gate, with_longest
from whet.types import content_hash
from whet_client.media import with_contents
from whet_client.prompt.document import MASK

R = TypeVar("R", RunJSON, EvaluationJSON)


async def optimize_task(task: Task, opts: Options, progress: Progress) -> RunJSON:
    """A run, and its control run where one is wanted. Raises UsageError before anything is paid."""
    if opts.control is not None:
        get_method(opts.control)
    added = None if opts.more is None else AddedRows(task, opts, progress)
    result = await run_task(task, opts, progress, added)
    if added is not None and not opts.dry_run:
        folder = Path(result["run"])
        _write_result(folder, _without_folder(result))
    ended = result["status"] != "stopped" and result.get("tested", True)
    if opts.control is None or opts.dry_run or "control" in result or not ended:
        return result
    return await _add_control(task, opts, result, progress)


async def _add_control(task: Task, opts: Options, result: RunJSON, progress: Progress) -> RunJSON:
    """Run the control beside a finished run and write result and report again with it inside."""
    method, folder = str(opts.control), Path(result["run"])
    limits = opts.limits(with_gate(task, opts.alpha, opts.minimum_effect, opts.alpha_policy))
    own = usage_of_run(result["usage"])
    budget = share_left_for_control(limits, control_share(limits, asks_optimizer(method)), own, folder)
    progress.begin_part(f"control: {method}")
    progress.planned_calls = limits.calls
    settings = settings_of_control(task, result, method)
    out = folder.with_name(f"{folder.name}-control")
    options = options_of_control(opts, method, settings)
    control = await run_task(task, dataclasses.replace(options, budget=budget, run=out), progress)
    if control["status"] == "stopped":
        raise StorageError(control["improvement"]["reason"])
    if not control.get("tested", True):
        warning = (
            f"The control {method} is not part of this result: {control['ended_by']} ended it before its sealed test. "
            f"To compare with it, give a larger limit, another {parameter('run')} and {parameter('fork', str(folder))}."
        )
        progress.warn(warning)
        result = {**result, "warnings": [*result["warnings"], warning]}
        _write_result(folder, _without_folder(result))
        return result
    names = {result["method"]: folder, f"control {method}": Path(control["run"])}
    answers = {name: [sealed_answers(run)] for name, run in names.items()}
    usage = with_part(result["usage"], CONTROL, control["usage"])
    result = {
        **_without_folder(result),
        "control": {
            "method": control["method"],
            "best": control["best"],
            "improvement": control["improvement"],
            "usage": control["usage"],
            "run": control["run"],
        },
        "usage": usage,
        "warnings": estimates_of_both(result, control, usage),
        "pairs": compare_pairs(answers, with_gate(task, opts.alpha, None).alpha),
    }
    _write_result(folder, result)
    return {**result, "run": str(folder)}


def _without_folder(result: RunJSON) -> RunJSON:
    """A result without the folder, as result.json holds it."""
    written = result.copy()
    written.pop("run", None)
    return written


def _check_control(task: Task, opts: Options, plan: RunPlan, limits: Budget, assembly: Assembly) -> None:
    """Raise UsageError for a control whose models, settings or task do not fit together, before the run itself is paid."""
    control = get_method(str(opts.control))
    settings = settings_shared_with(plan.method, dataclasses.asdict(plan.config), control)
    own = options_of_control(opts, control.entry.name, settings)
    try:
        _plan(task, own, _assemble_models(task, own, limits, assembly.models))
    except UsageError as error:
        raise type(error)(f"{parameter('control', control.entry.name)}: {error.args[0]}") from error


async def run_task(
    task: Task, opts: Options, progress: Progress, measurements: RunMeasurements | AddedRows | None = None
) -> RunJSON:
    """One run of a loaded task: find its folder, resume or begin it, write result, report and best prompt.

    Only the returned result holds the values of `measurements`.
    """
    task = with_longest(with_gate(task, opts.alpha, opts.minimum_effect, opts.alpha_policy), opts.longest)
    task = dataclasses.replace(task, warnings=(*task.warnings, *sampling_warnings(task, opts)))
    limits = opts.limits(task)
    assembly = _assemble_models(task, opts, limits)
    assembly.executor = make_executor(opts.engine, opts.workers, opts.worker_memory, opts.share, progress.say)
    try:
        plan = _plan(task, opts, assembly)
        other = None if measurements is None or measurements.other is None else measurements.other.client
        if opts.default_limit:
            facts = assembly.env, plan.config, assembly.clients
            plan = dataclasses.replace(plan, limits=with_default_limit(task, limits, *facts, other))
        folder = _folder(opts, plan)
        check_run_folder(folder)
        finished, same = _read_finished(folder), _is_of(folder, plan)
        _check_fresh(folder, opts, same, finished is not None and same)
        if finished is not None and same and (opts.dry_run or not finished["improvement"].get("withheld")):
            return await _reuse(finished, folder, plan, opts, assembly, measurements, progress)
        if opts.control is not None:
            _check_control(task, opts, plan, limits, assembly)
        sizes, ledger, foreseen = await _foresee(plan, assembly, opts, limits, folder, measurements)
        if opts.dry_run and (training := forecast_training(plan, Path(opts.root))):
            foreseen["training"] = training
        progress.planned(foreseen)
        if opts.dry_run:
            return _result_of_dry_run(plan, foreseen, progress)
        fork = None if opts.fork is None else find_run(opts.fork, opts.root)
        if (left := _describe_unfinished(opts, plan, folder)) is not None:
            progress.say(f"warning: {left}")
        await assembly.prepare(partial(works_to_load, task), progress.say)
        named, folder = folder, folder.absolute()  # code of the user may change the working directory
        if same and opts.fresh and has_failed(folder):
            clear_records(folder)
        opened = open_run(
            folder, plan, assembly.clients, assembly.cache(folder, opts), progress.on_event, fork
        )
        if elsewhere := describe_moved_models(folder, assembly.clients):
            progress.say(f"warning: {named} continues with another endpoint; the run began with {elsewhere}")
        _begin(opened, folder, task, assembly, opts, progress)
        note_in(opened.core.journal, PLACES, to_json(places_of(assembly.clients)).decode())
        with opened.closing():
            try:
                result = await execute(plan, assembly.env, opened, sizes, ledger, progress)
            except BudgetExceeded as error:
                result = result_of_untested_run(plan, opened, error)
            except ProviderError as error:
                _write_stopped(
                    folder, {**result_of_stopped_run(plan, opened, str(error)), "plan": foreseen}, error
                )
                await note_in_index(folder, progress)
                raise
            result["plan"] = foreseen
            note_in(opened.core.journal, ENDED, datetime.now(UTC).isoformat(timespec="seconds"))
        _write_result(folder, result)
        await note_in_index(folder, progress)
        result = {**result, "run": str(named)}
        if result["status"] == "stopped" and measurements is not None:
            raise StorageError(result["improvement"]["reason"])
        if measurements is None or not result.get("tested", True):
            return result
        return await measurements.measure(plan, assembly, result)
    finally:
        await assembly.close()


def _check_fresh(folder: Path, opts: Options, same: bool, ended: bool) -> None:
    """Raise UsageError where the folder holds this very run and another one is asked for."""
    if not same or not opts.fresh or opts.dry_run:
        return
    if ended or not (asks_again(folder) or has_failed(folder)):
        raise UsageError(
            f"{folder} already holds this run, and {parameter('fresh', True)} makes another run. "
            f"Choose another {parameter('run')}."
        )


async def _reuse(
    finished: RunJSON,
    folder: Path,
    plan: RunPlan,
    opts: Options,
    assembly: Assembly,
    measurements: RunMeasurements | AddedRows | None,
    progress: Progress,
) -> RunJSON:
    """The recorded result of a finished run, with what `measurements` measures of it."""
    adds = isinstance(measurements, AddedRows)
    if not (opts.dry_run or adds):
        recorded = _mark_as_recorded(folder, finished, plan.task, assembly.clients, progress)
        await note_in_index(folder, progress)
        finished = recorded if measurements is None else finished
    if measurements is None or not finished.get("tested", True) or (opts.dry_run and not adds):
        return finished
    return await measurements.measure(plan, assembly, finished)


async def _foresee(
    plan: RunPlan,
    assembly: Assembly,
    opts: Options,
    limits: Budget,
    folder: Path,
    measurements: RunMeasurements | AddedRows | None,
) -> tuple[BudgetPlan, SealedTestLedger, PlanJSON]:
    """The sizes that the limits pay for, the ledger that the sealed test is charged to, and the plan as people read it.

    Raises UsageError for limits that are too small.
    """
    task, facts = plan.task, (assembly.env, plan.config, assembly.clients)
    other = None if measurements is None or measurements.other is None else measurements.other.client
    control = None if opts.control is None else control_share(limits, asks_optimizer(opts.control))
    known = measured_usage(Path(opts.root), task.fingerprint, plan.addresses)
    sizes = plan_budget(task, plan.limits, *facts, other, control, measured=known)
    ledger = SealedTestLedger(None if measurements is None else measurements.family, task.alpha_policy)
    opening = ledger.foresee(folder, task.alpha, task.test)
    foreseen = forecast(
        task, *facts, plan.limits, sizes, plan.limits != limits, known, opening, batches=opts.batch
    )
    if control is not None:
        foreseen["control"] = {"method": str(opts.control), "kept": control.as_json()}
    foreseen |= plan.subject() | assembly.gaps
    if least := await least_calls(plan, assembly.env, assembly.clients, sizes, other):
        foreseen["first_round"] = least
    return sizes, ledger, foreseen


def _begin(
    opened: OpenRun, folder: Path, task: Task, assembly: Assembly, opts: Options, progress: Progress
) -> None:
    """Make an opened run ready for its first call: the prompt's images, workers, batches, and what is noted of its files."""
    write_parts((m.content for m in task.prompt.messages), folder / IMAGES)
    opened.core.executor = assembly.executor
    allow_batches(opened.core.caller, opts.batch, progress.say)
    note_fresh(opened.core.journal, opts.fresh)
    note_files(opened.core.journal, task.folder, progress)


def _mark_as_recorded(
    folder: Path,
    result: R,
    task: Task,
    clients: Mapping[str, ModelClient],
    progress: Progress,
) -> R:
    """A result as it was recorded, marked and said as such; with a warning where its models are elsewhere now, and where files
    beside its task changed."""
    ended, elsewhere = ended_at(folder), describe_moved_models(folder, clients)
    progress.say(
        f"{folder}: finished on {ended}; this is the recorded result, and no model was called "
        "(--fresh calls the models again)"
    )
    warnings = list(result.get("warnings", ()))
    if elsewhere:
        warnings.append(
            f"This result was recorded on {ended} with {elsewhere}, and the present endpoint was not "
            "called. To call it, add --fresh (fresh=True)."
        )
        progress.say(f"warning: {warnings[-1]}")
    if changed := changed_since(folder, task.folder):
        warnings.append(
            f"In the task folder, {changed} changed after this result was recorded. If the reward "
            "reads such a file, the result may be outdated. To call the models again, add --fresh "
            "(fresh=True)."
        )
        progress.say(f"warning: {warnings[-1]}")
    recorded = result.copy()
    recorded["warnings"], recorded["recorded"], recorded["ended"] = warnings, True, ended
    return recorded


def _is_of(folder: Path, plan: RunPlan) -> bool:
    header = read_header(folder)
    return header is not None and not differing_entries(header, plan.header())


def _result_of_dry_run(plan: RunPlan, foreseen: PlanJSON, progress: Progress) -> RunJSON:
    """The value of a dry run, after the warnings of the task are printed."""
    for warning in plan.task.warnings:
        progress.warn(warning)
    return {
        "task": plan.task.name,
        "method": plan.method.entry.name,
        "seed": plan.seed,
        "models": dict(plan.addresses),
        "status": "planned",
        "plan": foreseen,
        "warnings": list(plan.task.warnings),
    }


def _assemble_models(task: Task, opts: Options, limits: Budget, models: Models | None = None) -> Assembly:
    """The models in their roles, of those in `models` where they are there. Raises UsageError where method, models and reward do
    not fit together."""
    if opts.method is None and opts.config is None and task.method is not None:
        try:
            get_method(task.method)
        except UsageError as error:
            raise UsageError(f"{task.folder / 'task.yaml'}: method: {error}") from None
    assembly = assemble(task, opts, limits, models)
    model = assembly.clients["task"].model
    if TARGET_SCORE in task.reward.needs and not (model.can_score or task.cases):
        raise UsageError(
            f"The reward {task.reward.name} needs the probability of the target, but "
            f"{assembly.addresses['task']} returns only answers. Name a model that scores texts "
            "(hf/..., embedded/...), or a reward that reads answers."
        )
    return assembly


def _plan(task: Task, opts: Options, assembly: Assembly) -> RunPlan:
    """The work of the run. Raises UsageError for a method or a policy that does not fit."""
    method = get_method(assembly.method)
    settings = {**(task.settings if opts.method in (None, task.method) else {}), **opts.settings}
    plan = RunPlan(
        task,
        method,
        configure(method, settings, task.locate(opts.settings)) if opts.config is None else opts.config,
        opts.limits(task),
        opts.seed,
        assembly.addresses,
        assembly.generation,
        assembly.policy,
    )
    check_policy(plan.policy, plan.config)
    if plan.method.check is not None:
        plan.method.check(assembly.env, plan.config)
    return plan


def _folder(opts: Options, plan: RunPlan) -> Path:
    """The run's folder: what the caller names, or `runs/TASK-METHOD-SEED`, or the next free number where that is another run."""
    if opts.run is not None:
        return Path(opts.run)
    name = f"{plan.task.name}-{plan.method.entry.name}-{plan.seed}"
    number, failed = 1, None
    while True:
        folder = Path(opts.root) / (name if number == 1 else f"{name}-{number}")
        header = read_header(folder)
        if header is None:
            return failed or folder
        if goes_on(folder, header, plan.header()):
            return folder
        if not differing_entries(header, plan.header()):
            ended = _read_finished(folder) is not None
            if (not ended and asks_again(folder)) if opts.fresh else (ended or not has_failed(folder)):
                return folder
            failed = failed or (None if opts.fresh else folder)
        number += 1


def _describe_unfinished(opts: Options, plan: RunPlan, folder: Path) -> str | None:
    """The settings in which an unfinished run differs, where this run takes another folder because of it; None where there is
    no such run."""
    if opts.run is not None or (folder / "journal.sqlite").exists():
        return None
    name = f"{plan.task.name}-{plan.method.entry.name}-{plan.seed}"
    for older in sorted(Path(opts.root).glob(f"{name}*")):
        header = read_header(older) if older.name == name or older.name.startswith(f"{name}-") else None
        if (
            header is None
            or evaluated_split(header) is not None
            or read_result(older).get("status") not in (None, "stopped")
        ):
            continue
        differences = "; ".join(differing_entries(header, plan.header()))
        how = f"differs in {differences}" if differences else "calls the models again"
        return f"{older} is not finished. This is another run, in {folder}, which {how}"
    return None


def _read_finished(folder: Path) -> RunJSON | None:
    result = _result_if_finished(folder)
    return None if result is None else cast("RunJSON", result)


def _read_finished_evaluation(folder: Path) -> EvaluationJSON | None:
    result = _result_if_finished(folder)
    return None if result is None else cast("EvaluationJSON", result)


def _unanswered_rows(finished: EvaluationJSON) -> int:
    """Count the rows of an evaluation that the provider did not answer."""
    score = finished["score"]
    return score.get("of", 0) - score.get("answered", score.get("of", 0))


def _result_if_finished(folder: Path) -> dict[str, Any] | None:
    result = read_result(folder)
    return None if result.get("status") in (None, "stopped", UNREADABLE) else {**result, "run": str(folder)}


def _write_result(folder: Path, result: RunJSON) -> None:
    """Everything derived from the journal, `result.json` last and atomically: it marks the run as finished."""
    result = result.copy()
    result.pop("recorded", None)
    result.pop("ended", None)
    write_derived(folder / "best.md", with_contents(result["best"]["prompt"]).encode())
    write_report(folder, result)
    write_result(folder, result)


def _write_stopped(folder: Path, result: RunJSON, error: ProviderError) -> None:
    error.result = dict(result)
    write_result(folder, result)
    write_report(folder, result)


def with_prompt(task: Task, prompt: Prompt, what: str) -> Task:
    """The task with another prompt. Raises UsageError for one with a slot that no input fills, or with other prompts than the
    task's program has; `what` names it."""
    if prompt.parts.keys() != task.prompt.parts.keys():
        own, wanted = (", ".join(p.parts) or "a slot without a name" for p in (prompt, task.prompt))
        raise UsageError(f"{what} has different prompts from {task.name}: {own}. It must have {wanted}.")
    fields = task.train[0].values.keys()
    unknown = prompt.slots - task.prompt.slots - fields - {MASK}
    if MASK in prompt.slots - task.prompt.slots - fields and not task.labels:
        remedy = task_setting("Give the task labels=[...]", "Add `labels:` to task.yaml")
        raise UsageError(
            f"{what}: {{{{{MASK}}}}} is the place of a label, but {task.name} has no labels. {remedy}."
        )
    if unknown:
        slot = min(unknown)
        raise UsageError(
            f"{what}: no input of {task.name} fills the slot {{{{{slot}}}}}.{did_you_mean(slot, fields)}"
        )
    check_braced_names(prompt, fields, what)
    warnings = foreign_slots(prompt, Path(what), fields, (*INPUT_NAMES, "input"))
    return dataclasses.replace(task, prompt=prompt, warnings=(*task.warnings, *warnings))


async def evaluate_task(
    task: Task, split: str, opts: Options, progress: Progress | None = None, *, listed: bool = True
) -> EvaluationJSON:
    """The mean reward of the task's prompt on a split; `listed` in the index of runs, where there is one.

    Raises UsageError before anything is paid.
    """
    task = with_gate(task, opts.alpha, opts.minimum_effect, opts.alpha_policy)
    task = dataclasses.replace(task, warnings=(*task.warnings, *sampling_warnings(task, opts)))
    splits = {"train": task.train, "validation": task.validation, "test": task.test}
    limits = opts.limits(task)
    assembly = _assemble_models(task, dataclasses.replace(opts, method="random_search"), limits)
    method = get_method("random_search")
    plan = RunPlan(
        task,
        method,
        method.config(),
        Budget(),
        opts.seed,
        assembly.addresses,
        {"split": split, "prompt": task.prompt.id, **assembly.generation},
    )
    known = measured_usage(Path(opts.root), task.fingerprint, plan.addresses)
    scored = affordable_scores(limits, assembly.env, splits[split], answer_calls(assembly.env, plan.config))
    agreement = agreement_calls(assembly.env.reward, scored_rows(task, splits[split]), scored)
    foreseen = forecast_evaluation(
        task, assembly.env, assembly.clients, plan.config, splits[split], known, opts.batch, agreement
    )
    foreseen |= assembly.gaps | {"models": dict(plan.addresses)}
    if split == "test":
        foreseen |= SealedTestLedger(policy=task.alpha_policy, follows=True).foresee_look(task)
    progress = progress or Progress()
    assembly.executor = make_executor(opts.engine, opts.workers, opts.worker_memory, opts.share, progress.say)
    progress.planned(foreseen)
    if opts.dry_run:
        await assembly.close()
        refuse_small_limits(task, limits, foreseen, len(splits[split]))
        return _evaluation_of_dry_run(plan, split, foreseen, progress)
    for warning in task.warnings:
        progress.warn(warning)
    places = {role: getattr(client.model, "base_url", None) for role, client in assembly.clients.items()}
    question = content_hash([to_json(plan.header()).decode(), places])
    run = locate_evaluation(opts, plan, split, question)
    try:
        check_run_folder(run)
        finished, same = _read_finished_evaluation(run), holds_evaluation(run, plan, question)
        recorded = finished is not None and same and not opts.fresh
        if finished is not None and recorded:
            if not (missing := _unanswered_rows(finished)):
                return _mark_as_recorded(run, name_rows(finished, run, run), task, assembly.clients, progress)
            progress.say(
                f"{run}: {quantity(missing, 'row')} had no answer; the models are called again for these rows"
            )
        refuse_small_limits(task, limits, foreseen, len(splits[split]))
        await assembly.prepare(partial(works_to_load, task), progress.say)
        named, place = run, run.absolute()
        kept = finished is not None and not recorded and evaluated_split(read_header(place) or {}) is not None
        run = place.with_name(f"{place.name}.fresh") if kept else place
        if not holds_evaluation(run, plan, question) or (opts.fresh and not asks_again(run)):
            if not same and (words := describe_replaced(place, plan)):
                progress.say(words)
            clear_evaluation(run)
        opened = open_run(run, plan, assembly.clients, assembly.cache(place, opts), lambda name, value: None)
        _begin(opened, run, task, assembly, opts, progress)
        note_in(opened.core.journal, ASKED, question)
        with opened.closing():
            result = await evaluate_within_limits(
                plan, limits, assembly.env, opened, splits[split], split, progress, scored
            )
            note_in(opened.core.journal, ENDED, datetime.now(UTC).isoformat(timespec="seconds"))
        result["plan"] = foreseen
        write_result(run, result)
        if run != place:
            put_in_place(place, run)
        if listed:
            await note_in_index(place, progress)
        return name_rows(result, place, named)
    finally:
        await assembly.close()


def _evaluation_of_dry_run(
    plan: RunPlan, split: str, foreseen: PlanJSON, progress: Progress
) -> EvaluationJSON:
    """The result of an evaluation that was only planned."""
    planned = _result_of_dry_run(plan, foreseen, progress)
    return {
        "task": planned["task"],
        "method": "evaluate",
        "seed": planned["seed"],
        "models": planned["models"],
        "status": planned["status"],
        "plan": foreseen,
        "warnings": planned["warnings"],
        "split": split,
    }


def find_run(run: str | Path, root: str | Path = "runs") -> Path:
    """The folder of a run given as a folder or as a name below the root. Raises UsageError with near names."""
    check_path("the run", run)
    check_path(parameter("root"), root)
    for folder in (Path(run), Path(root) / str(run)):
        if (folder / "journal.sqlite").is_file():
            return folder
    known = [str(p.parent.relative_to(root)) for p in Path(root).glob("**/journal.sqlite") if p.is_file()]
    for folder in (Path(run), Path(root) / str(run)):
        if (folder / "comparison.html").is_file():
            inside = sorted(str(path.parent) for path in folder.glob("*/journal.sqlite"))
            raise UsageError(
                f"{folder} is a comparison of {quantity(len(inside), 'run')}: {', '.join(inside)}. Its page is "
                f"{folder / 'comparison.html'}; name one of the runs."
            )
    close = difflib.get_close_matches(str(run), known, n=3)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(
        f'There is no run "{run}" in {Path(root).absolute()} ({quantity(len(known), "run")} there).{meant} '
        "Give the path of a run in another folder; `whet runs --root FOLDER` lists the runs there."
    )
