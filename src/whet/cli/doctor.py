"""`whet doctor`: what stands in the way of a run, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import click

from whet.cli.common import emit, examples, json_option, visible
from whet.cli.interrupt import run
from whet.doctor import FAIL, MOST_CALLS, OK, WARN, Checkup, Symptom, endpoints_of, examine
from whet.reporting import displayed
from whet.task import Task

_COLORS = {OK: "green", WARN: "yellow", FAIL: "red"}


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
@click.option("--lm", metavar="ADDR", help="Task model to examine (default: the task's own).")
@click.option("--base-url", metavar="URL", help="Any OpenAI-compatible endpoint.")
@click.option("--no-calls", is_flag=True, help="Call no model: nothing is paid.")
@json_option
def doctor(task: str | None, lm: str | None, base_url: str | None, no_calls: bool, as_json: bool) -> None:
    """Examine packages, keys, models, local servers and, with a folder TASK, its rows and its reward.

    Exit code 0 when a run can begin, 2 when something failed. A model behind an endpoint gets a few short calls.
    """
    loaded = None if task is None else Task.load(Path(task))
    endpoints = endpoints_of(loaded, lm, base_url)
    paid = [address for address, _ in endpoints if address.startswith("openai")]
    if paid and not no_calls:
        click.echo(f"at most {MOST_CALLS} short calls to each of: {', '.join(paid)}", err=True)
    with displayed(None) as progress:
        findings = Checkup(begin=progress.begin) if as_json else Checkup(tell=show, begin=progress.begin)
        checkup = run(examine(loaded, endpoints, calls=not no_calls, checkup=findings))
    if as_json:
        emit(checkup.as_json())
    if not checkup.healthy:
        click.get_current_context().exit(2)


def show(symptom: Symptom) -> None:
    """One line for a finding, its remedy below it."""
    status = click.style(f"{symptom.status:<4}", fg=_COLORS[symptom.status])
    click.echo(f"{status}  {symptom.check}: {visible(symptom.text)}")
    if symptom.remedy:
        click.echo(f"      -> {symptom.remedy}")
