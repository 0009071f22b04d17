"""`whet align`: a judge's rubric as the prompt of a task, with people's scores as targets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from whet.cli.common import examples, json_option, print_result, say, show_hidden, warn
from whet.errors import UsageError


@click.command(
    "align",
    epilog=examples(
        "whet align mytask --out judge && whet optimize judge --lm openai/gpt-4o-mini --max-calls 400",
        "whet align --take runs/judge-opro-0 > mytask/rubric.md",
        "whet align --take runs/judge-memalign-0 --memory mytask/memory.json > mytask/rubric.md",
        "whet align --forget row-7 --memory mytask/memory.json",
    ),
)
@click.argument("task", required=False)
@click.option("--out", metavar="DIR", help="Task folder to write (new or empty).")
@click.option("--part", metavar="NAME", help="Name of the judge, if the task has several.")
@click.option("--take", metavar="RUN", help="Print the rubric that a finished run of such a folder found.")
@click.option(
    "--memory", metavar="FILE", help="File of a judge's memory: --take writes it, --forget changes it."
)
@click.option(
    "--forget", metavar="KEY", multiple=True, help="Take a judgement of that file back. Can be repeated."
)
@click.option("--reason", metavar="COLUMN", help="Column that says why a person scored so.")
@click.option(
    "--rater", metavar="COLUMN", help="Column that says who scored. Raters of opposite tastes are named."
)
@click.option("--only", metavar="NAME", help="Take the scores of this rater alone.")
@json_option
def align(
    task: str | None,
    out: str | None,
    part: str | None,
    take: str | None,
    memory: str | None,
    forget: tuple[str, ...],
    reason: str | None,
    rater: str | None,
    only: str | None,
    as_json: bool,
) -> None:
    """Turn a judge into a task: its rubric becomes the prompt, and people's scores (column `human`) become the targets.

    TASK is a task folder with ten or more scored answers and with a judge that names their column. A search in the new folder
    changes the rubric. Its sealed test accepts the change only if the judge's scores come closer to people's scores. This
    command makes no paid calls.
    """
    from whet import api

    others = [one for one in (task, out, part, reason, rater, only) if one is not None]
    if forget:
        if others or take is not None or memory is None:
            raise UsageError(
                "--forget changes a file of a judge's memory: whet align --forget KEY --memory FILE."
            )
        print_result(api.forget_judgements(memory, forget), as_json, _show_forgotten)
        return
    if take is not None:
        if others:
            raise UsageError(
                "--take prints the rubric of a run and takes no other argument. Omit TASK, --out, --part, --reason, --rater "
                "and --only."
            )
        rubric = api.aligned_rubric(take, memory=memory)
        print_result({"rubric": rubric}, as_json, lambda values: click.echo(values["rubric"]))
        return
    if task is None or out is None or memory is not None:
        raise UsageError("Name the task with the judge and a new folder: whet align TASK --out DIR.")
    made = api.judge_task(Path(task), Path(out), part=part, reason=reason, rater=rater, only=only)
    print_result(made, as_json, _show)


def _show_forgotten(values: Mapping[str, Any]) -> None:
    say(f"forgotten: {values['judgements']} judgements, {values['guidelines']} guidelines")


def _show(values: Mapping[str, Any]) -> None:
    rows = ", ".join(f"{n} {split}" for split, n in values["rows"].items())
    say(f"{values['folder']}: the rubric of {show_hidden(values['judge'])} as a prompt")
    say(f"  rows: {rows}; answers to {values['questions']} inputs")
    for warning in values["warnings"]:
        warn(show_hidden(warning))
    where = shlex.quote(str(values["folder"]))
    say(f"next: whet optimize {where} --lm JUDGE_MODEL   # then: whet align --take RUN")
