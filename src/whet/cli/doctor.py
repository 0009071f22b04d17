"""`whet doctor`: what stands in the way of a run, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import click

from whet.api.doctor import (
    BROKEN,
    MOST_CALLS,
    MOST_SECONDS,
    NOT_INSTALLED,
    NOT_SET,
    OK,
    WARN,
    DoctorFinding,
    DoctorReport,
    endpoints_of,
    examine,
    paid_addresses,
)
from whet.cli.common import (
    JUDGES,
    WRITES,
    emit,
    examples,
    json_option,
    judge_options,
    model_options,
    name_options,
    optimizer_options,
    role_choices,
    say,
    show_hidden,
)
from whet.cli.interrupt import run_coroutine
from whet.reporting import display_progress
from whet.task import Task

_COLORS = {OK: "green", WARN: "yellow", BROKEN: "red", NOT_INSTALLED: "cyan", NOT_SET: "cyan"}
_WIDTH = max(map(len, _COLORS))


@click.command(
    "doctor",
    epilog=examples(
        "whet doctor",
        "whet doctor mytask --lm openai/gpt-4o-mini",
        "whet doctor mytask --lm openai/qwen3 --base-url http://localhost:11434/v1 --json",
        "whet doctor mytask --no-calls",
    ),
)
@click.argument("task", required=False)
@model_options("Task model to check (default: the task's own).")
@optimizer_options(WRITES)
@judge_options(JUDGES)
@click.option("--no-calls", is_flag=True, help="Call no model, so that nothing is paid.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=MOST_SECONDS,
    show_default=True,
    metavar="S",
    help="Time limit of a call, in seconds.",
)
@json_option
def doctor(task: str | None, no_calls: bool, timeout: float, as_json: bool, **options: object) -> None:
    """Check packages, keys, models and local servers; with a task folder TASK, also its rows and its reward.

    The exit code is 0 if a run can begin and 2 if something is broken. A missing extra or key does not count as broken.
    A model behind an endpoint gets a few short calls. Each finding is printed as soon as it is known.
    """
    name_options()
    loaded = None if task is None else Task.load(Path(task))
    words = role_choices(options)
    endpoints = endpoints_of(loaded, words["lm"], words["base_url"], words["optimizer_lm"], words["judge_lm"])
    paid = paid_addresses(endpoints)
    if paid and not no_calls:
        click.echo(
            f"whet doctor makes at most {MOST_CALLS} short calls to each of: {', '.join(paid)}; a "
            f"call may take {timeout:g} s",
            err=True,
        )
    with display_progress(None) as progress:
        findings = (
            DoctorReport(begin=progress.begin)
            if as_json
            else DoctorReport(tell=show_finding, begin=progress.begin)
        )
        checkup = run_coroutine(
            examine(loaded, endpoints, calls=not no_calls, seconds=timeout, checkup=findings)
        )
    if as_json:
        emit(checkup.as_json())
    if not checkup.healthy:
        click.get_current_context().exit(2)


def show_finding(symptom: DoctorFinding) -> None:
    """One line for a finding, its remedy below it."""
    status = click.style(f"{symptom.status:<{_WIDTH}}", fg=_COLORS[symptom.status])
    click.echo(f"{status}  {symptom.check}: {show_hidden(symptom.text)}")
    if symptom.remedy:
        say(f"{' ' * _WIDTH}  -> {symptom.remedy}")
