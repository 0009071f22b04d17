"""One run of a task, from its folder to its result: find the folder, resume or begin, write what is derived."""

from __future__ import annotations

import dataclasses
import difflib
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from whet._util.arguments import check_path
from whet._util.storable import to_json
from whet.api.added_rows import AddedRows
from whet.api.comparison import RunMeasurements
from whet.engine.assemble import Assembly, Models, assemble
from whet.engine.budget import control_share, plan_budget, with_default_limit
from whet.engine.execute import execute
from whet.engine.files_beside import changed_since, note_files
from whet.engine.final_evaluation import execute_evaluation, result_of_stopped_run, result_of_untested_run
from whet.engine.forecast import forecast, forecast_evaluation, measured_usage
from whet.engine.journal import Journal, read_events, read_rows
from whet.engine.model_client import ModelClient
from whet.engine.openings import SealedTestLedger
from whet.engine.options import Options
from whet.engine.pairs import compare_pairs, sealed_answers
from whet.engine.progress import Progress
from whet.engine.run_folder import (
    ENDED,
    PLACES,
    RESULT,
    UNREADABLE,
    RunPlan,
    check_folder,
    describe_moved_models,
    differing_entries,
    ended_at,
    evaluated_split,
    goes_on,
    note_in,
    open_run,
    places_of,
    read_header,
    write_derived,
    write_result,
)
from whet.engine.run_folder import read_result as read_result
from whet.engine.trained_policy import check_policy
from whet.engine.transfer import limits_left
from whet.engine.usage_sums import CONTROL, estimates_of_both, usage_of_run, usage_without_control, with_part
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
from whet.methods import OPTIMIZER, OPTIMIZER_OPTIONAL, Method, configure, get_method
from whet.prompt import Prompt
from whet.reporting import write_report
from whet.rewards import TARGET_SCORE
from whet.run import Budget
from whet.task import Task
from whet.task.prompts import check_braced_names, foreign_slots
from whet.task.rows import INPUT_NAMES
from whet.task.spec import with_gate, with_longest
from whet.types import content_hash
from whet_client.prompt.document import MASK

_SHARED = ("length", "vocabulary", "examples", "finalists")
"""Settings that a control run takes over."""


async def optimize_task(task: Task, opts: Options, progress: Progress) -> dict[str, Any]:
    """A run, and its control run where one is wanted. Raises UsageError before anything is paid."""
    if opts.control is not None:
        get_method(opts.control)
    added = None if opts.more is None else AddedRows(task, opts, progress)
    result = await run_task(task, opts, progress, added)
    if added is not None and not opts.dry_run:
        folder = Path(result["run"])
        _write_result(folder, {key: value for key, value in result.items() if key != "run"})
    ended = result["status"] != "stopped" and result.get("tested", True)
    if opts.control is None or opts.dry_run or "control" in result or not ended:
        return result
    return await _add_control(task, opts, result, progress)


async def _add_control(
    task: Task, opts: Options, result: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Run the control beside a finished run and write result and report again with it inside."""
    method, folder = str(opts.control), Path(result["run"])
    limits = opts.limits(with_gate(task, opts.alpha, opts.minimum_effect))
    own = usage_of_run(result["usage"])
    budget = _left_for_control(limits, control_share(limits, _optimizes(method)), own, folder)
    progress.begin_part(f"control: {method}")
    progress.planned_calls = limits.calls
    settings = _control_settings(task, result, method)
    out = folder.with_name(f"{folder.name}-control")
    own = {**_own_options(method, settings), "budget": budget, "run": out}
    control = await run_task(task, dataclasses.replace(opts, **own), progress)
    if control["status"] == "stopped":
        raise StorageError(control["improvement"]["reason"])
    kept = ("method", "best", "improvement", "usage", "run")
    names = {result["method"]: folder, f"control {method}": Path(control["run"])}
    answers = {name: [sealed_answers(run)] for name, run in names.items()}
    result = {
        **{k: v for k, v in result.items() if k != "run"},
        "control": {k: control[k] for k in kept},
        "usage": (usage := with_part(result["usage"], CONTROL, control["usage"])),
        "warnings": estimates_of_both(result, control, usage),
        "pairs": compare_pairs(answers, with_gate(task, opts.alpha, None).alpha),
    }
    _write_result(folder, result)
    return {**result, "run": str(folder)}


def _optimizes(method: str) -> bool:
    """Whether a method asks the optimizer model."""
    return bool({OPTIMIZER, OPTIMIZER_OPTIONAL} & set(get_method(method).entry.needs))


def _left_for_control(limits: Budget, share: Budget, spent: Mapping[str, Any], folder: Path) -> Budget:
    """What was kept for a control of the limits, which hold for both runs, or what a run left where that is less. Raises
    UsageError where nothing is left of one."""
    rest = limits_left(limits, spent)
    if limits.seconds is not None:
        rest = dataclasses.replace(rest, seconds=max(0.0, limits.seconds - spent["seconds"]))
    kept = {
        name: None if amount is None else min(amount, getattr(rest, name))
        for name, amount in dataclasses.asdict(share).items()
    }
    for name, amount in kept.items():
        if amount is not None and amount <= 0:
            limit = parameter(f"budget.{name}", getattr(limits, name))
            raise UsageError(
                f"{folder} used all of {limit}, which holds for its control too. Its result is kept; give a larger limit and "
                f"another {parameter('run')}, with {parameter('control')} from the beginning."
            )
    return Budget(**kept)


def _control_settings(task: Task, result: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Settings that give `method` what a finished run had: the settings both know, its space, and its number of prompts.

    The number is what the run's task calls paid for on training examples, after the baseline, the sealed test and
    every validation are taken off.
    """
    folder = Path(result["run"])
    config: Mapping[str, Any] = (read_header(folder) or {})["config"]
    settings = _shared_settings(get_method(str(result["method"])), config, get_method(method))
    if "n" in {f.name for f in dataclasses.fields(get_method(method).config)}:
        settings["n"] = _scored_prompts(task, result, int(config.get("examples") or len(task.train)))
    return settings


def _shared_settings(main: Method, config: Mapping[str, Any], control: Method) -> dict[str, Any]:
    """What a control takes over of the run's settings before anything is known of the run: those that both methods know, but
    none that is left open, and the space of its prompts."""
    known = {f.name for f in dataclasses.fields(control.config)}
    settings = {name: config[name] for name in _SHARED if name in known and config.get(name) is not None}
    if main.entry.space and "space" in known:
        settings["space"] = main.entry.space
    return settings


def _check_control(task: Task, opts: Options, plan: RunPlan, limits: Budget, assembly: Assembly) -> None:
    """Raise UsageError for a control whose models, settings or task do not fit together, before the run itself is paid."""
    control = get_method(str(opts.control))
    settings = _shared_settings(plan.method, dataclasses.asdict(plan.config), control)
    own = dataclasses.replace(opts, **_own_options(control.entry.name, settings))
    try:
        _plan(task, own, _assemble_models(task, own, limits, assembly.models))
    except UsageError as error:
        raise type(error)(f"{parameter('control', control.entry.name)}: {error.args[0]}") from error


def _own_options(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a control that are not those of its run."""
    nothing = dict.fromkeys(("config", "fork", "control", "more", "policy"))
    return {**nothing, "method": method, "settings": settings, "processes": 1}


def _scored_prompts(task: Task, result: Mapping[str, Any], examples: int) -> int:
    """Prompts that a finished run scored on `examples` training examples each; at least 1.

    A rollout of several turns counts as many calls as the sealed test took on average.
    """
    journal = Path(result["run"]) / "journal.sqlite"
    validated = [event.value["n"] for event in read_events(journal, ["validated"])]
    same = result["best"]["id"] == result["baseline"]["id"]
    sides = 1 if same else 2
    outside = sides * (result["baseline"]["validation"]["n"] + result["baseline"]["test"]["n"]) + sum(
        validated
    )
    used = usage_of_run(result["usage"])
    calls = int(used["calls"]["task"]) + int(used["cached"]["task"])
    return max(1, (int(calls / _calls_each(journal)) - int(outside)) // min(examples, len(task.train)))


def _calls_each(journal: Path) -> float:
    """Task calls of one rollout, as the sealed test of both sides took them; 1 where there are no turns."""
    rows = [
        row
        for event in read_events(journal, ["final"])
        for side in ("baseline", "best")
        for row in event.value[side]
    ]
    turns = [row["parts"]["turns"] for row in rows if "turns" in row.get("parts", {})]
    return sum(turns) / len(turns) if turns else 1.0


async def run_task(
    task: Task, opts: Options, progress: Progress, measurements: RunMeasurements | AddedRows | None = None
) -> dict[str, Any]:
    """One run of a loaded task: find its folder, resume or begin it, write result, report and best prompt.

    What `measurements` measures of the finished run is in the returned result only.
    """
    task = with_longest(with_gate(task, opts.alpha, opts.minimum_effect), opts.longest)
    limits = opts.limits(task)
    assembly = _assemble_models(task, opts, limits)
    try:
        plan = _plan(task, opts, assembly)
        other = None if measurements is None or measurements.other is None else measurements.other.client
        facts = assembly.env, plan.config, assembly.clients
        if opts.default_limit:
            plan = dataclasses.replace(plan, limits=with_default_limit(task, limits, *facts, other))
        folder = _folder(opts, plan)
        check_folder(folder)
        finished = _read_finished(folder)
        ended = finished is not None and _is_of(folder, plan)
        if ended and opts.fresh and not opts.dry_run:
            raise UsageError(
                f"{folder} holds this run already, and {parameter('fresh', True)} makes another one. Choose another "
                f"{parameter('run')}."
            )
        if finished is not None and ended and (opts.dry_run or not finished["improvement"].get("withheld")):
            if not (opts.dry_run or isinstance(measurements, AddedRows)):
                recorded = _mark_as_recorded(folder, finished, task, assembly.clients, progress)
                finished = recorded if measurements is None else finished
            if measurements is None or not finished.get("tested", True):
                return finished
            if opts.dry_run and not isinstance(measurements, AddedRows):
                return finished
            return await measurements.measure(plan, assembly, finished)
        if opts.control is not None:
            _check_control(task, opts, plan, limits, assembly)
        control = None if opts.control is None else control_share(limits, _optimizes(opts.control))
        known = measured_usage(Path(opts.root), task.fingerprint, plan.addresses)
        sizes = plan_budget(task, plan.limits, *facts, other, control, measured=known)
        ledger = SealedTestLedger(None if measurements is None else measurements.family)
        opening = ledger.foresee(folder, task.alpha, task.test)
        foreseen = forecast(task, *facts, plan.limits, sizes, plan.limits != limits, known, opening)
        if control is not None:
            foreseen["control"] = {"method": opts.control, "kept": control.as_json()}
        foreseen |= plan.subject() | {**assembly.gaps}
        progress.planned(foreseen)
        if opts.dry_run:
            return _result_of_dry_run(plan, foreseen, progress)
        fork = None if opts.fork is None else find_run(opts.fork, opts.root)
        named, folder = folder, folder.absolute()  # code of the user may change the working directory
        opened = open_run(
            folder, plan, assembly.clients, assembly.cache(folder, opts), progress.on_event, fork
        )
        if elsewhere := describe_moved_models(folder, assembly.clients):
            progress.say(f"warning: {named} goes on with another endpoint: it began with {elsewhere}")
        note_in(opened.core.journal, PLACES, to_json(places_of(assembly.clients)).decode())
        note_files(opened.core.journal, task.folder, progress)
        with opened.closing():
            try:
                result = {
                    **await execute(plan, assembly.env, opened, sizes, ledger, progress),
                    "plan": foreseen,
                }
            except BudgetExceeded as error:
                result = {**result_of_untested_run(plan, opened, error), "plan": foreseen}
            except ProviderError as error:
                _write_stopped(
                    folder, {**result_of_stopped_run(plan, opened, str(error)), "plan": foreseen}, error
                )
                raise
            note_in(opened.core.journal, ENDED, datetime.now(UTC).isoformat(timespec="seconds"))
        _write_result(folder, result)
        result = {**result, "run": str(named)}
        if result["status"] == "stopped" and measurements is not None:
            raise StorageError(result["improvement"]["reason"])
        if measurements is None or not result.get("tested", True):
            return result
        return await measurements.measure(plan, assembly, result)
    finally:
        await assembly.close()


def _mark_as_recorded(
    folder: Path,
    result: Mapping[str, Any],
    task: Task,
    clients: Mapping[str, ModelClient],
    progress: Progress,
) -> dict[str, Any]:
    """A result as it was recorded, marked and said as such; with a warning where its models are elsewhere now, and where files
    beside its task changed."""
    ended, elsewhere = ended_at(folder), describe_moved_models(folder, clients)
    progress.say(f"{folder}: finished on {ended}; recorded result, nothing was asked (--fresh asks again)")
    warnings = list(result.get("warnings", ()))
    if elsewhere:
        warnings.append(
            f"The result is that of {ended}, with {elsewhere}: the model there was not asked. --fresh (fresh=True) asks it."
        )
        progress.say(f"warning: {warnings[-1]}")
    if changed := changed_since(folder, task.folder):
        warnings.append(
            f"In the folder of the task {changed} changed since this result was made. If the reward reads that, the result may "
            "be another one now: --fresh (fresh=True) asks again."
        )
        progress.say(f"warning: {warnings[-1]}")
    return {**result, "warnings": warnings, **{RECORDED: True, "ended": ended}}


def _is_of(folder: Path, plan: RunPlan) -> bool:
    header = read_header(folder)
    return header is not None and not differing_entries(header, plan.header())


def _result_of_dry_run(plan: RunPlan, foreseen: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """What a dry run returns, after the warnings of the task are said."""
    for warning in plan.task.warnings:
        progress.warn(warning)
    models = dict(plan.addresses)
    names = {"task": plan.task.name, "method": plan.method.entry.name, "seed": plan.seed, "models": models}
    return {**names, "status": "planned", "plan": foreseen, "warnings": list(plan.task.warnings)}


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
            f"The reward {task.reward.name} needs the probability of the target, and {assembly.addresses['task']} only answers. "
            "Name a model that scores texts (hf/..., embedded/...), or a reward that reads answers."
        )
    return assembly


def _plan(task: Task, opts: Options, assembly: Assembly) -> RunPlan:
    """What the run does. Raises UsageError for a method or a policy that does not fit."""
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
    number = 1
    while True:
        folder = Path(opts.root) / (name if number == 1 else f"{name}-{number}")
        header = read_header(folder)
        done = opts.fresh and _read_finished(folder) is not None
        same = header is not None and not differing_entries(header, plan.header())
        if header is None or (same and not done) or goes_on(folder, header, plan.header()):
            return folder
        number += 1


def _read_finished(folder: Path) -> dict[str, Any] | None:
    result = read_result(folder)
    return None if result.get("status") in (None, "stopped", UNREADABLE) else {**result, "run": str(folder)}


def _write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Everything derived from the journal, `result.json` last and atomically: it marks the run as finished."""
    result = {key: value for key, value in result.items() if key not in (RECORDED, "ended")}
    write_derived(folder / "best.md", result["best"]["prompt"].encode())
    write_report(folder, result)
    write_result(folder, result)


def _write_stopped(folder: Path, result: dict[str, Any], error: ProviderError) -> None:
    error.result = result
    write_result(folder, result)
    write_report(folder, result)


RECORDED = "recorded"
"""The key of a result that was recorded before: nothing was asked for it."""
ASKED = "asked"
"""The key under which the journal of an evaluation says what was asked: its header, and where its models are."""


def _evaluation_folder(opts: Options, plan: RunPlan, split: str, question: str) -> Path:
    """The folder of an evaluation: what the caller names, one of an older version that holds it, or one of its own."""
    if opts.run is not None:
        return Path(opts.run)
    older = Path(opts.root) / f"{plan.task.name}-evaluate-{split}-{plan.task.prompt.id}"
    return older if _asks(older, plan, question) else older.with_name(f"{older.name}-{question[:8]}")


def _asks(run: Path, plan: RunPlan, question: str) -> bool:
    """Whether a folder holds this evaluation."""
    header = read_header(run)
    if header is None or differing_entries(header, plan.header()):
        return False
    rows = read_rows(run / "journal.sqlite", "SELECT value FROM meta WHERE key = ?", (ASKED,))
    return not rows or rows[0][0] == question


_EVALUATED = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", RESULT)
"""The files of an evaluation."""


def _clear_evaluation(run: Path) -> None:
    """Make room for an evaluation where another one is; nothing else is touched. Raises RunLocked while another process works
    on it."""
    header = read_header(run)
    if header is not None and evaluated_split(header) is not None:
        Journal(run / _EVALUATED[0]).close([run / name for name in _EVALUATED])


def _put_in_place(run: Path, fresh: Path) -> None:
    """Let a fresh evaluation that is finished take the place of the one in `run`. Raises RunLocked."""
    _clear_evaluation(run)
    for name in _EVALUATED:
        if (fresh / name).exists():
            (fresh / name).replace(run / name)
    shutil.rmtree(fresh)


def with_prompt(task: Task, prompt: Prompt, what: str) -> Task:
    """The task with another prompt. Raises UsageError for one with a slot that no input fills, or with other prompts than the
    task's program has; `what` names it."""
    if prompt.parts.keys() != task.prompt.parts.keys():
        own, wanted = (", ".join(p.parts) or "one without a name" for p in (prompt, task.prompt))
        raise UsageError(f"{what} holds other prompts than {task.name}: {own}. It needs {wanted}.")
    fields = task.train[0].values.keys()
    unknown = prompt.slots - task.prompt.slots - fields - {MASK}
    if MASK in prompt.slots - task.prompt.slots - fields and not task.labels:
        remedy = task_setting("Give the task labels=[...]", "Add `labels:` to task.yaml")
        raise UsageError(
            f"{what}: {{{{{MASK}}}}} is where a label goes, and {task.name} has no labels. {remedy}."
        )
    if unknown:
        slot = min(unknown)
        raise UsageError(
            f"{what}: the slot {{{{{slot}}}}} is filled by no input of {task.name}.{did_you_mean(slot, fields)}"
        )
    check_braced_names(prompt, fields, what)
    warnings = foreign_slots(prompt, Path(what), fields, (*INPUT_NAMES, "input"))
    return dataclasses.replace(task, prompt=prompt, warnings=(*task.warnings, *warnings))


async def evaluate_task(
    task: Task, split: str, opts: Options, progress: Progress | None = None
) -> dict[str, Any]:
    """The mean reward of the task's prompt on a split. Raises UsageError before anything is paid."""
    task = with_gate(task, opts.alpha, opts.minimum_effect)
    splits = {"train": task.train, "validation": task.validation, "test": task.test}
    assembly = _assemble_models(task, dataclasses.replace(opts, method="random_search"), opts.limits(task))
    method = get_method("random_search")
    plan = RunPlan(
        task,
        method,
        method.config(),
        Budget(),
        opts.seed,
        assembly.addresses,
        {"split": split, **assembly.generation},
    )
    known = measured_usage(Path(opts.root), task.fingerprint, plan.addresses)
    foreseen = forecast_evaluation(task, assembly.env, assembly.clients, plan.config, splits[split], known)
    foreseen |= {"models": dict(plan.addresses), **assembly.gaps}
    foreseen |= SealedTestLedger().foresee_look(task) if split == "test" else {}
    progress = progress or Progress()
    progress.planned(foreseen)
    if opts.dry_run:
        await assembly.close()
        return {**_result_of_dry_run(plan, foreseen, progress), "method": "evaluate", "split": split}
    for warning in task.warnings:
        progress.warn(warning)
    places = {role: getattr(client.model, "base_url", None) for role, client in assembly.clients.items()}
    question = content_hash([to_json(plan.header()).decode(), places])
    run = _evaluation_folder(opts, plan, split, question)
    try:
        check_folder(run)
        finished, same = _read_finished(run), _asks(run, plan, question)
        if finished is not None and same and not opts.fresh:
            plain = {key: value for key, value in finished.items() if key != "run"}
            return _mark_as_recorded(run, plain, task, assembly.clients, progress)
        place = run.absolute()
        kept = finished is not None and evaluated_split(read_header(place) or {}) is not None
        run = place.with_name(f"{place.name}.fresh") if kept else place
        if not _asks(run, plan, question):
            _clear_evaluation(run)
        opened = open_run(run, plan, assembly.clients, assembly.cache(place, opts), lambda name, value: None)
        opened.core.journal.append([("INSERT OR REPLACE INTO meta VALUES (?, ?)", (ASKED, question))])
        note_files(opened.core.journal, task.folder, progress)
        with opened.closing():
            result = await execute_evaluation(
                plan,
                assembly.env,
                opened,
                splits[split],
                split,
                SealedTestLedger(),
                progress,
            )
            note_in(opened.core.journal, ENDED, datetime.now(UTC).isoformat(timespec="seconds"))
        result = {**result, "plan": foreseen}
        write_result(run, result)
        if run != place:
            _put_in_place(place, run)
        return result
    finally:
        await assembly.close()


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


def _spent_so_far(folder: Path) -> dict[str, Any]:
    """Calls and US dollars of a run that has no result yet, as far as its journal says."""
    made = "SELECT role, COUNT(*), SUM(cost) FROM calls WHERE state NOT IN ('unsent', 'refused', 'cached') GROUP BY role"
    try:
        rows = read_rows(folder / "journal.sqlite", made)
    except UsageError:
        return {}
    cost = sum(row[2] for row in rows)
    return {"calls": {role: n for role, n, _ in rows}, "cost_usd": cost or None}


def run_row(folder: Path) -> dict[str, Any]:
    """A run folder in one row: what it is, how it stands, what it found. Calls and dollars are its own, with those of added rows;
    a control run has a row of its own."""
    header, result = read_header(folder) or {}, read_result(folder)
    usage = usage_without_control(result.get("usage") or _spent_so_far(folder))
    score = result.get("score") or (result.get("best") or {}).get("test") or {}
    split = evaluated_split(header)
    return {
        "run": str(folder),
        "task": header.get("task"),
        "method": result.get("method", header.get("method") if split is None else "evaluate"),
        "seed": header.get("seed"),
        "status": result.get("status", "unfinished"),
        "split": split or "test",
        "mean": score.get("mean"),
        "n": score.get("n"),
        "test": score.get("mean") if "best" in result else None,
        "promoted": (result.get("improvement") or {}).get("promoted"),
        "calls": sum(usage.get("calls", {}).values()),
        "cost_usd": usage.get("cost_usd"),
        "price_unknown": usage.get("price_unknown", []),
    }
