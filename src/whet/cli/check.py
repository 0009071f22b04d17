"""`whet check`: whether the prompts of task folders meet a threshold, for a build server."""

from __future__ import annotations

import dataclasses
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
    warn,
)
from whet.cli.interrupt import run as run_stoppable
from whet.cli.show import show_progress_of
from whet.errors import ProviderError, UsageError
from whet.reporting import check_score, write_junit

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
@click.option("--threshold", type=float, required=True, metavar="R", help="The mean reward that is demanded.")
@click.option("--sure", is_flag=True, help="Demand it of the lower end of the 95% interval.")
@click.option("--prompt", metavar="FILE", help="Prompt to check (default: the task's own).")
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="train, validation or test (an opening).",
)
@click.option("--junit", "junit_file", metavar="FILE", help="Write the outcome as JUnit XML too.")
@model_options("Task model (default: that of the task).")
@judge_options(JUDGES)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@click.option("--fresh", is_flag=True, help="Ask again what the cache or a finished run knows.")
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
    """Fail where the mean reward of a prompt on a split is below a threshold.

    Exit code 0: every task passed. 1: one is below. 3: none is below, and one is undecided, for a provider did not answer rows
    that decide.
    """
    from whet import api

    words, file = role_choices(options), None if prompt is None else Path(prompt)
    if junit_file is not None and not Path(junit_file).absolute().parent.is_dir():
        raise UsageError(
            f"--junit: there is no folder {Path(junit_file).parent} for {Path(junit_file).name}. Make it."
        )
    checks = []
    for task in tasks:
        with show_progress_of(task) as progress:
            evaluated = run_stoppable(
                api.aevaluate(Path(task), prompt=file, split=split, progress=progress, **words)
            )
        one = check_score(evaluated["task"], evaluated["score"], threshold, sure=sure)
        checks.append(one)
        if not as_json:
            say(f"{one.outcome}  {one.task}: {one.sentence}", fg=_COLORS[one.outcome])
            for warning in evaluated["warnings"]:
                warn(warning)
    if as_json:
        emit({"threshold": threshold, "split": split, "checks": [dataclasses.asdict(one) for one in checks]})
    if junit_file is not None:
        write_junit(Path(junit_file), checks)
    outcomes = {one.outcome for one in checks}
    if "failed" in outcomes:
        raise SystemExit(EXIT_FAILED)
    if "undecided" in outcomes:
        raise SystemExit(ProviderError.exit_code)
