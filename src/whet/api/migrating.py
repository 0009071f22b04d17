"""`whet.migrate`: a prompt that was found for one task model is improved for another model, and tested with both.

The old prompt is the start of a run with the new model, so that the run's sealed test compares both prompts there. The old model
then answers the same rows under both prompts (`whet.transfer`), which says what the move itself costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet.api.comparison import found_candidate
from whet.api.keywords import MIGRATE_GROUPS, MigrateKeywords
from whet.api.results import MigrationResult
from whet.api.running import find_run, optimize_task, with_prompt
from whet.api.transferring import atransfer, read_finished, task_of_run, usage_of_trials
from whet.engine.options import Options, RoleModel, options_of_method
from whet.engine.progress import Progress
from whet.engine.run_folder import write_result
from whet.engine.transfer import limits_left
from whet.engine.usage_sums import usage_of_run
from whet.errors import UsageError, parameter
from whet.prompt import Prompt
from whet.reporting import display_progress
from whet.run import Budget
from whet.stats import percent
from whet.stats.intervals import show_number
from whet.task import Task, TaskKeywords, prompt_of, task_of
from whet.types import content_hash

MIGRATE = "migrate"
NEW, OLD, UNDECIDED = "new prompt", "old prompt", "undecided"
MARGIN = 0.05
"""The old prompt still suffices if the new prompt is surely better by at most this share of the reward's range."""


@check_arguments
@describe_keywords(*MIGRATE_GROUPS, defaults=Options)
async def amigrate(
    prompt: str | Path | Prompt,
    *,
    to_lm: RoleModel,
    from_lm: RoleModel = None,
    **keywords: Unpack[MigrateKeywords],
) -> MigrationResult:
    """Improve a prompt of one task model for another model, test it on the sealed rows with both models, and say which prompt
    to use.

    `prompt`: the folder or the name below `root` of a finished run, whose best prompt is used; or a prompt file, or a Prompt.
    `to_lm`: the new task model; `from_lm`: the old task model (default: that of the run). A limit on calls holds for the
    whole migration, including the answers of the old model. The same call again pays nothing.

    The verdict is `new prompt` if the gate promotes the new prompt with the new model. It is `old prompt` if the search found
    no other prompt, or if the interval of the gate excludes a gain of more than 5% of the reward's range. Otherwise it is
    `undecided`.

    Raises UsageError before anything is paid for everything that `whet.optimize` refuses, for a run without a result and for a
    prompt without a task. Raises ProviderError for a dead endpoint.
    """
    root = keywords.get("root", "runs")
    start, known, home = _origin(prompt, keywords.get("task"), root)
    from_lm = home if from_lm is None else from_lm
    if from_lm is None or to_lm is None:
        name = "from_lm" if from_lm is None else "to_lm"
        raise UsageError(f"Name the {name[:-3]} model with {parameter(name, 'provider/name')}.")
    options = options_of_method(keywords.get("method"), {**keywords, "lm": to_lm})
    moved = _with_start(known, start)
    out = Path(options.run) if options.run is not None else Path(root) / _folder_name(moved, options)
    kept = _rows_of_old_model(moved)
    search = replace(options, run=out / "run", budget=_less(options.budget, kept))
    with display_progress(keywords.get("progress")) as shown:
        run = await optimize_task(moved, search, shown)
        plan = dict(run["plan"]) if "plan" in run else {}
        if run["status"] == "planned":
            return MigrationResult(
                {**_identity(moved, out), "status": "planned", "plan": {**plan, "old_model_rows": kept}}
            )
        if run["status"] == "stopped" or not run.get("tested", True):
            return MigrationResult({**_identity(moved, out), **_describe_unfinished(run)})
        rest = limits_left(options.budget, usage_of_run(run["usage"]))
        tried = await _with_old_model(moved, out, from_lm, replace(rest, seconds=None), keywords, shown)
    result = {**_identity(moved, out), "status": "completed", **judge_move(run, tried, known)}
    write_result(out, result)
    return MigrationResult(result)


def _origin(prompt: str | Path | Prompt, task: Any, root: str | Path) -> tuple[Prompt, Task, str | None]:
    """The prompt, its task, and the model that it was found with, where that is known. Raises UsageError."""
    is_file = isinstance(prompt, str | Path) and Path(prompt).is_file()
    if isinstance(prompt, Prompt) or is_file:
        if task is None:
            raise UsageError(f"A prompt alone has no rows. Name its task with {parameter('task', 'FOLDER')}.")
        text = prompt if isinstance(prompt, Prompt) else Path(prompt)
        return prompt_of(text), task_of(task, TaskKeywords()), None
    folder = find_run(prompt, root)
    result, header = read_finished(folder)
    known = task_of_run(folder, header, task)
    return found_candidate(known, folder, result).prompt, known, str(result["models"]["task"])


def _with_start(task: Task, start: Prompt) -> Task:
    """The task that begins with another prompt; it is another task for the engine."""
    if start.id == task.prompt.id:
        return task
    moved = with_prompt(task, start, "The prompt")
    pinned = [m.as_list() for m in start.messages]
    parts = {**task.parts, "prompt": content_hash(pinned)[:16]}
    return replace(moved, fingerprint=content_hash([task.fingerprint, pinned]), parts=parts)


def _folder_name(task: Task, options: Options) -> str:
    return f"{task.name}-{MIGRATE}-{task.prompt.id[:6]}-{options.seed}"


def _rows_of_old_model(task: Task) -> int:
    """Answers of the old model at most, with what retries may take."""
    turns = 1 if task.world is None else task.world.turns
    calls = turns if task.program is None else task.program.calls
    return 2 * (math.ceil(1.1 * len(task.test)) + 2) * calls


def _less(budget: Budget, kept: int) -> Budget:
    """The limits of the run, without what is kept for the old model. Raises UsageError where nothing is left."""
    changes = {}
    for name in ("calls", "task_calls"):
        limit = getattr(budget, name)
        if limit is not None and limit <= kept:
            raise UsageError(
                f"{parameter(f'budget.{name}', limit)} does not pay for a search and for the answers "
                f"of the old model to the sealed rows, which may take {kept}. Set a larger limit."
            )
        changes[name] = None if limit is None else limit - kept
    return replace(budget, **changes)


async def _with_old_model(
    task: Task,
    out: Path,
    from_lm: RoleModel,
    budget: Budget,
    keywords: Mapping[str, Any],
    progress: Progress,
) -> Mapping[str, Any]:
    """Both prompts with the old model on the sealed rows."""
    names = ("judge_lm", "base_url", "concurrency")
    reached = {name: keywords[name] for name in names if keywords.get(name) is not None}
    return (
        await atransfer(
            out / "run", [from_lm], task=task, split="test", budget=budget, progress=progress, **reached
        )
    ).to_dict()


def _identity(task: Task, out: Path) -> dict[str, Any]:
    return {"task": task.name, "method": MIGRATE, "folder": str(out), "run": str(out / "run")}


def _describe_unfinished(run: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a migration whose run has no verdict."""
    reason = run["improvement"]["reason"]
    return {"status": run["status"], "verdict": UNDECIDED, "reason": reason, "warnings": run["warnings"]}


def judge_move(run: Mapping[str, Any], tried: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Verdict and figures, from the run with the new model and the trial with the old one."""
    (old_model,) = tried["models"]
    width = task.reward.high - task.reward.low
    gain, same = run["improvement"], run["best"]["id"] == run["baseline"]["id"]
    margin, confidence = MARGIN * width, percent(1 - gain["alpha"])
    names = {"from": old_model["model"], "to": run["models"]["task"]}
    equivalent = not same and not gain["promoted"] and not gain.get("withheld") and gain["high"] <= margin
    verdict = NEW if gain["promoted"] else OLD if same or equivalent else UNDECIDED
    between = f"{confidence}% interval {show_number(gain['low'])} to {show_number(gain['high'])}"
    less, to = show_number(margin), names["to"]
    reasons = {
        NEW: (
            f"Use the new prompt. With {to}, it is better than the old prompt by "
            f"{show_number(gain['difference'])} ({between})."
        ),
        OLD: f"The old prompt is good enough. With {to}, the new prompt is better by {less} at most ({between}).",
        UNDECIDED: f"Undecided: with {to}, the test shows neither that the new prompt is better nor "
        f"that the old prompt is as good within {less} ({between}). More test rows would "
        "decide.",
    }
    if same:
        reasons[OLD] = f"The old prompt is good enough: the search found no better prompt for {to}."
    moved = old_model["home"]["baseline"]
    cost = (
        f"The old prompt earns {show_number(moved['difference'])} more with {names['to']} than with "
        f"{names['from']} (95% interval {show_number(moved['low'])} to {show_number(moved['high'])})."
    )
    sides = ("old", "baseline"), ("new", "best")
    return {
        "models": names,
        "verdict": verdict,
        "reason": f"{reasons[verdict]} {cost}",
        "prompt": run["best" if verdict == NEW else "baseline"]["prompt"],
        "scores": {name: {"from": old_model[side], "to": run[side]["test"]} for name, side in sides},
        "gain": {
            "to": {key: gain[key] for key in ("difference", "low", "high", "p_value", "alpha")},
            "from": old_model["gain"],
        },
        "moved": {"old": moved, "new": old_model["home"]["best"]},
        "equivalence": {"margin": margin, "shown": bool(same or equivalent)},
        "simulated": bool(run["simulated"] or old_model["simulated"]),
        "usage": usage_of_trials([usage_of_run(run["usage"]), tried["usage"]]),
        "warnings": list(dict.fromkeys([*run["warnings"], *tried["warnings"]])),
    }


migrate = blocking(amigrate)

__all__ = ["amigrate", "judge_move", "migrate"]
