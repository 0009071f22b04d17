"""`whet align`: a judge's rubric as the prompt of a task, with people's scores as targets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from whet.cli.common import examples, json_option, print_result, say, visible, warn
from whet.errors import UsageError


@click.command(
    "align",
    epilog=examples(
        "whet align mytask --out judge && whet optimize judge --lm openai/gpt-4o-mini --max-calls 400",
        "whet align --take runs/judge-opro-0 > mytask/rubric.md",
    ),
)
@click.argument("task", required=False)
@click.option("--out", metavar="DIR", help="Task folder to write (new or empty).")
@click.option("--part", metavar="NAME", help="Name of the judge, if the task has several.")
@click.option("--take", metavar="RUN", help="Print the rubric that a finished run of such a folder found.")
@json_option
def align(task: str | None, out: str | None, part: str | None, take: str | None, as_json: bool) -> None:
    """Turn a judge into a task: its rubric becomes the prompt, and people's scores (column `human`) become the targets.

    TASK is a task folder with ten or more scored answers and with a judge that names their column. A search in the new folder
    changes the rubric. Its sealed test accepts the change only if the judge's scores come closer to people's scores. This
    command makes no paid calls.
    """
    from whet import api

    if take is not None:
        if task is not None or out is not None or part is not None:
            raise UsageError(
                "--take prints the rubric of a run and takes no other argument. Omit TASK, --out and --part."
            )
        rubric = api.aligned_rubric(take)
        print_result({"rubric": rubric}, as_json, lambda values: click.echo(values["rubric"]))
        return
    if task is None or out is None:
        raise UsageError("Name the task with the judge and a new folder: whet align TASK --out DIR.")
    print_result(api.judge_task(Path(task), Path(out), part=part), as_json, _show)


def _show(values: Mapping[str, Any]) -> None:
    rows = ", ".join(f"{n} {split}" for split, n in values["rows"].items())
    say(f"{values['folder']}: the rubric of {visible(values['judge'])} as a prompt")
    say(f"  rows: {rows}; answers to {values['questions']} inputs")
    for warning in values["warnings"]:
        warn(visible(warning))
    where = shlex.quote(str(values["folder"]))
    say(f"next: whet optimize {where} --lm JUDGE_MODEL   # then: whet align --take RUN")
