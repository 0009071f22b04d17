"""`whet check`: whether the prompts of task folders meet a threshold, for a build server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    JUDGES,
    emit,
    examples,
    json_option,
    judge_options,
    model_options,
    role_choices,
    say,
    waiting_options,
    warn,
)
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.show import show_progress_of
from whet.errors import ProviderError, UsageError, WhetError
from whet.reporting import ThresholdCheck, check_score, reaches, write_junit
from whet.task import load_task

_COLORS = {"passed": "green", "failed": "red", "undecided": "yellow"}
EXIT_FAILED = 1


@click.command(
    "check",
    epilog=examples(
        "whet check mytask --threshold 0.8 --lm openai/gpt-4o-mini",
        "whet check tasks/* --threshold 0.8 --sure --junit whet.xml",
        "whet check mytask --threshold 0.8 --prompt new.md --fresh",
    ),
)
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@click.option("--threshold", type=float, required=True, metavar="R", help="Lowest mean reward that passes.")
@click.option(
    "--sure",
    is_flag=True,
    help="Apply the threshold to the lower end of the 95% interval instead of the mean.",
)
@click.option("--prompt", metavar="FILE", help="Prompt to check (default: the task's own).")
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="train, validation or test. On test, each new prompt counts as an opening, which makes "
    "later promotions harder.",
)
@click.option(
    "--junit", "junit_file", metavar="FILE", help="Also write the outcome as JUnit XML to this file."
)
@model_options("Task model (default: the task's own).")
@judge_options(JUDGES)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@waiting_options
@json_option
def check(
    tasks: tuple[str, ...],
    threshold: float,
    sure: bool,
    prompt: str | None,
    split: str,
    junit_file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fail if the mean reward of a prompt on a split is below a threshold.

    Exit code 0: every task passed. 1: a task is below the threshold. 3: no task is below, but a task is undecided, because a
    provider did not answer rows that decide, or a limit of its budget is reached.
    """
    from whet import api

    file = None if junit_file is None else Path(junit_file)
    if file is not None:
        _make_room(file)
    words = role_choices({**options, "split": split}) | {"prompt": None if prompt is None else Path(prompt)}
    names = [_name_usable(task, threshold, words) for task in tasks]
    checks: list[ThresholdCheck] = []
    for name, task in zip(names, tasks, strict=True):
        try:
            with show_progress_of(task) as progress:
                evaluated = run_stoppable(api.aevaluate(Path(task), progress=progress, **words))
        except WhetError as error:
            checks.append(ThresholdCheck(name, "undecided", str(error)))
            if file is not None:
                write_junit(file, checks)
            raise
        one = check_score(name, evaluated["score"], threshold, sure=sure, failed=evaluated["failed"])
        one = dataclasses.replace(one, warnings=tuple(evaluated["warnings"]))
        if evaluated.get("simulated"):
            one = dataclasses.replace(one, sentence=f"{one.sentence}; SIMULATED: a scripted model answered")
        checks.append(one)
        if not as_json:
            say(f"{one.outcome}  {one.task}: {one.sentence}", fg=_COLORS[one.outcome])
            for warning in one.warnings:
                warn(warning)
    if as_json:
        emit({"threshold": threshold, "split": split, "checks": [dataclasses.asdict(one) for one in checks]})
    if file is not None:
        write_junit(file, checks)
    outcomes = {one.outcome for one in checks}
    if "failed" in outcomes:
        raise SystemExit(EXIT_FAILED)
    if "undecided" in outcomes:
        raise SystemExit(ProviderError.exit_code)


def _make_room(file: Path) -> None:
    """Remove the outcome of an earlier check. Raises UsageError for a file that cannot be written."""
    if not file.absolute().parent.is_dir():
        raise UsageError(f"--junit: there is no folder {file.parent} for {file.name}. Make it.")
    if file.is_dir():
        raise UsageError(f"--junit: {file} is a folder. Name a file.")
    file.unlink(missing_ok=True)


def _name_usable(task: str, threshold: float, words: Mapping[str, Any]) -> str:
    """The name of a task. Raises UsageError for one that cannot be used, and for a threshold outside the range of its reward;
    nothing is paid."""
    from whet import api

    loaded = load_task(Path(task))
    reward = loaded.reward
    if not (reaches(threshold, reward.low) and reaches(reward.high, threshold)):
        raise UsageError(
            f"--threshold {threshold:g}: the reward of {task} lies between {reward.low:g} and {reward.high:g}. Write a number "
            "between these."
        )
    silent = api.Progress(planned=_ignore, warn=_ignore, say=_ignore)
    run_stoppable(api.aevaluate(Path(task), dry_run=True, progress=silent, **words))
    return loaded.name


def _ignore(_: object) -> None:
    return None
