"""The one façade: what the command line, the server and Python programs call."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from whet.comparison import Beside, compare_runs
from whet.control import control_settings
from whet.engine.assemble import assemble
from whet.engine.execute import Progress, execute
from whet.engine.journal import Journal, events_after
from whet.engine.policy import check_policy
from whet.engine.prove import execute_evaluation, stopped
from whet.engine.reading import READER
from whet.engine.shape import shape_run
from whet.engine.store import Plan, differences, open_run, read_header
from whet.engine.transfer import TRANSFER
from whet.errors import ProviderError, UsageError, did_you_mean
from whet.methods import configure, get_method, method_table
from whet.online.learn import Lesson
from whet.online.told import learn as learn_async
from whet.online.told import unlearn
from whet.options import Options, make_options
from whet.report import write_report
from whet.run import Limits
from whet.task import Task, load_prompt, load_task

RESULT = "result.json"


def optimize(task: str | Path, *, progress: Progress | None = None, **options: Any) -> dict[str, Any]:
    """Sharpen a task's prompt; the result as in `result.json`. The same call again resumes or returns it.

    Keyword arguments are the fields of `Options`. Raises UsageError before anything is paid, ProviderError when
    an endpoint is dead (what was learned is kept and `result.json` has the status `stopped`).
    """
    return asyncio.run(optimize_async(task, progress=progress, **options))


async def optimize_async(
    task: str | Path, *, progress: Progress | None = None, **options: Any
) -> dict[str, Any]:
    """`optimize` inside a running event loop."""
    opts = make_options(**options)
    loaded, progress = load_task(task), progress or Progress()
    if opts.control is not None:
        get_method(opts.control)
    result = await run_task(loaded, opts, progress)
    if opts.control is None or "control" in result:
        return result
    return await _add_control(loaded, opts, result, progress)


async def _add_control(
    task: Task, opts: Options, result: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Run the control beside a finished run and write result and report again with it inside."""
    method, folder = str(opts.control), Path(result["run"])
    progress.baseline = progress.best = None
    progress.note = f"control: {method}"
    settings = control_settings(task, result, method)
    unlimited: dict[str, Any] = {f"max_{name}": None for name in Limits.__dataclass_fields__}
    out = folder.with_name(f"{folder.name}-control")
    own: dict[str, Any] = {
        "method": method,
        "settings": settings,
        "out": out,
        "fork": None,
        "control": None,
        "policy": None,
        "processes": 1,
    }
    found = await run_task(task, dataclasses.replace(opts, **unlimited, **own), progress)
    kept = ("method", "best", "improvement", "usage", "run")
    result = {**{k: v for k, v in result.items() if k != "run"}, "control": {k: found[k] for k in kept}}
    _write_result(folder, result)
    return {**result, "run": str(folder)}


async def run_task(
    task: Task, opts: Options, progress: Progress, beside: Beside | None = None
) -> dict[str, Any]:
    """One run of a loaded task: find its folder, resume or begin it, write result, report and best prompt.

    What `beside` measures of the finished run is in the returned result only.
    """
    limits = opts.limits(task)
    assembly = assemble(task, opts, limits)
    try:
        method = get_method(assembly.method)
        settings = {**(task.settings if opts.method in (None, task.method) else {}), **opts.settings}
        plan = Plan(
            task,
            method,
            configure(method, settings),
            limits,
            opts.seed,
            assembly.addresses,
            assembly.generation,
            assembly.policy,
        )
        check_policy(plan.policy, plan.config)
        if plan.method.check is not None:
            plan.method.check(assembly.env, plan.config)
        folder = _folder(opts, plan)
        finished = _finished(folder)
        if (
            finished is not None
            and read_header(folder) is not None
            and not differences(read_header(folder) or {}, plan.header())
        ):
            return finished if beside is None else await beside.measured(plan, assembly, finished)
        other = None if beside is None or beside.other is None else beside.other.desk
        shape = shape_run(plan, assembly.env, assembly.desks, other)
        fork = None if opts.fork is None else find_run(opts.fork, opts.root)
        opened = open_run(folder, plan, assembly.desks, assembly.cache(folder, opts), progress.on_event, fork)
        with opened.closing():
            try:
                result = await execute(plan, assembly.env, opened, shape, _openings(folder, opts), progress)
            except ProviderError as error:
                _write_stopped(folder, plan, opened.core, error)
                raise
        _write_result(folder, result)
        result = {**result, "run": str(folder)}
        return result if beside is None else await beside.measured(plan, assembly, result)
    finally:
        await assembly.close()


def _folder(opts: Options, plan: Plan) -> Path:
    """The run's folder: `--out`, or `runs/TASK-METHOD-SEED`, or the next free number when that holds another run."""
    if opts.out is not None:
        return Path(opts.out)
    name = f"{plan.task.name}-{plan.method.entry.name}-{plan.seed}"
    number = 1
    while True:
        folder = Path(opts.root) / (name if number == 1 else f"{name}-{number}")
        header = read_header(folder)
        if header is None or not differences(header, plan.header()):
            return folder
        number += 1


def _openings(folder: Path, opts: Options) -> Path:
    """The ledger of sealed-test openings, shared by the runs of one root."""
    root = Path(opts.root) if opts.out is None else folder.parent
    return root / "test-openings.jsonl"


def _finished(folder: Path) -> dict[str, Any] | None:
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        result: dict[str, Any] = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    return None if result.get("status") == "stopped" else {**result, "run": str(folder)}


def _write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Everything derived from the journal, `result.json` last and atomically: it marks the run as finished."""
    (folder / "best.md").write_text(result["best"]["prompt"], encoding="utf-8", newline="")
    write_report(folder, result)
    _put_result(folder, result)


def _put_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Whoever reads the file meanwhile sees the whole of it or none."""
    partial = folder / f"{RESULT}.partial"
    partial.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    partial.replace(folder / RESULT)


def _write_stopped(folder: Path, plan: Plan, core: Any, error: ProviderError) -> None:
    error.result = stopped(plan, core, str(error))
    _put_result(folder, error.result)
    write_report(folder, error.result)


def evaluate(
    task: str | Path, *, prompt: str | Path | None = None, split: str = "validation", **options: Any
) -> dict[str, Any]:
    """Mean reward of a prompt (default: the task's own) on one split, with its 95 % interval."""
    return asyncio.run(_evaluate(task, prompt, split, make_options(**options)))


def _clear_evaluation(run: Path, plan: Plan) -> None:
    """Make room for a fresh evaluation where an older one ended, or asked something else; nothing else is touched.

    Raises RunLocked while another process works on it.
    """
    header = read_header(run)
    if header is None or "split" not in header.get("generation", {}):
        return
    if _finished(run) is not None or differences(header, plan.header()):
        names = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", RESULT)
        Journal(run / names[0]).close([run / name for name in names])


async def _evaluate(
    folder: str | Path, prompt_file: str | Path | None, split: str, opts: Options
) -> dict[str, Any]:
    task = load_task(folder)
    if prompt_file is not None:
        prompt = load_prompt(Path(prompt_file))
        unknown = prompt.slots - task.prompt.slots - task.train[0].values.keys() - {"mask"}
        if unknown:
            raise UsageError(
                f"{prompt_file}: the slot {{{{{min(unknown)}}}}} is filled by no input of {task.name}."
            )
        task = dataclasses.replace(task, prompt=prompt)
    splits = {"train": task.train, "validation": task.validation, "test": task.test}
    if split not in splits:
        raise UsageError(f'There is no split "{split}".{did_you_mean(split, splits)}')
    assembly = assemble(task, dataclasses.replace(opts, method="random_search"), opts.limits(task))
    method = get_method("random_search")
    plan = Plan(
        task,
        method,
        method.config(),
        Limits(),
        opts.seed,
        assembly.addresses,
        {"split": split, **assembly.generation},
    )
    run = Path(opts.out) if opts.out else Path(opts.root) / f"{task.name}-evaluate-{split}-{task.prompt.id}"
    _clear_evaluation(run, plan)
    try:
        opened = open_run(run, plan, assembly.desks, assembly.cache(run, opts), lambda name, value: None)
        try:
            result = await execute_evaluation(
                plan, assembly.env, opened, splits[split], split, _openings(run, opts)
            )
        finally:
            opened.core.caller.cache.close()
            opened.core.journal.close()
        _put_result(run, result)
        return result
    finally:
        await assembly.close()


def compare(
    task: str | Path,
    methods: Sequence[str],
    *,
    seeds: int = 1,
    transfer: str | None = None,
    reader: str = READER,
    on_run: Callable[[str, int, Progress], None] = lambda method, seed, progress: None,
    **options: Any,
) -> dict[str, Any]:
    """Run several methods under equal limits and `seeds` seeds each; one row a run and one summary a method.

    Each row says how the found text reads (perplexity under `reader`, a model's address or `none`) and, with the address
    of another model as `transfer`, what the found prompt is worth with that one. Raises what `optimize` raises.
    """
    opts, loaded = make_options(**options), load_task(task)
    for name in methods:
        get_method(name)
    root = Path(opts.out) if opts.out is not None else Path(opts.root) / f"{loaded.name}-compare"
    return asyncio.run(
        compare_runs(Beside(loaded, opts, root, transfer, reader), methods, seeds, on_run, run_task)
    )


def learn(
    prompt: str | Path,
    feedback: Sequence[str | Path | Mapping[str, Any]] = (),
    *,
    out: str | Path | None = None,
    undo: bool = False,
    dry_run: bool = False,
    confirm: Callable[[dict[str, Any]], bool] = lambda proposal: True,
    write: Callable[[dict[str, Any]], str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Teach a prompt what feedback (files or rows) demands; the proposal as JSON with its `status`.

    `confirm` sees the proposal and decides whether it is written. Without a model nothing is invented: `write` is called with
    each group of comments (`feedback`: ids of rows, `texts`) and returns an instruction, or an empty text for none. `undo`
    takes the last step back instead.
    `options` are the other fields of `whet.online.learn.Lesson`.
    """
    if undo:
        return unlearn(Path(prompt))
    known = [f.name for f in dataclasses.fields(Lesson) if f.name not in ("prompt", "feedback")]
    for name in options:
        if name not in known:
            raise UsageError(f'There is no option "{name}".{did_you_mean(name, known)}')
    lesson = Lesson(Path(prompt), feedback, **options)
    target = None if out is None else Path(out)
    return asyncio.run(learn_async(lesson, out=target, dry_run=dry_run, confirm=confirm, write=write))


def methods() -> list[dict[str, Any]]:
    """The table of methods: name, title, paper, what it needs, what it trains, and the package that brings it."""
    return [{**dataclasses.asdict(entry), "package": package} for entry, package in method_table()[0]]


def unusable_methods() -> list[dict[str, str]]:
    """Methods of installed packages that cannot be used: name, package and error."""
    return [
        {"name": plugin.name, "package": plugin.package, "error": error}
        for plugin, error in method_table()[1]
    ]


def find_run(run: str | Path, root: str | Path = "runs") -> Path:
    """The folder of a run given as a folder or as a name below the root. Raises UsageError with near names."""
    for folder in (Path(run), Path(root) / str(run)):
        if (folder / "journal.sqlite").is_file():
            return folder
    known = (
        [str(p.parent.relative_to(root)) for p in sorted(Path(root).glob("**/journal.sqlite"))]
        if Path(root).is_dir()
        else []
    )
    raise UsageError(f'There is no run "{run}".{did_you_mean(str(run), known)}')


def report(run: str | Path, root: str | Path = "runs") -> Path:
    """Write `report.html` of a run anew, also of one that is still going on, and return its path."""
    folder = find_run(run, root)
    path = folder / RESULT
    if (read_header(folder) or {}).get("method") == TRANSFER:
        raise UsageError(
            f"{folder} is a trial with another model; its figures are in {path}, a report it has not."
        )
    result = orjson.loads(path.read_bytes()) if path.is_file() else None
    return write_report(folder, result)


def runs(root: str | Path = "runs") -> list[dict[str, Any]]:
    """One row per run folder below the root: what it is, how it stands, what it found."""
    found = []
    for path in sorted(Path(root).glob("**/journal.sqlite")):
        header = read_header(path.parent) or {}
        result = _result_of(path.parent)
        best = (result.get("best") or {}).get("test") or {}
        found.append(
            {
                "run": str(path.parent),
                "task": header.get("task"),
                "method": result.get("method", header.get("method")),
                "seed": header.get("seed"),
                "status": result.get("status", "unfinished"),
                "test": best.get("mean"),
                "promoted": (result.get("improvement") or {}).get("promoted"),
                "calls": sum((result.get("usage") or {}).get("calls", {}).values()),
            }
        )
    return found


def _result_of(folder: Path) -> dict[str, Any]:
    """What a run found, as far as it is written; a file that cannot be read does not hide the other runs."""
    path = folder / RESULT
    try:
        found = orjson.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, orjson.JSONDecodeError):
        found = None
    return found if isinstance(found, dict) else {"status": "unreadable"}


def run_events(folder: str | Path, after: int = 0, limit: int = 500) -> list[dict[str, Any]]:
    """What a run logged after the event number `after`, in order, also while it goes on: seq, name, value, calls."""
    found = events_after(Path(folder) / "journal.sqlite", after, limit)
    return [{"seq": seq, "name": e.name, "value": e.value, "calls": e.calls} for seq, e in found]


__all__ = [
    "Options",
    "Progress",
    "compare",
    "evaluate",
    "find_run",
    "learn",
    "methods",
    "optimize",
    "optimize_async",
    "report",
    "run_events",
    "runs",
    "unusable_methods",
]
