"""`whet tasks`: task folders out of the traffic."""

from __future__ import annotations

import shlex
from typing import Any

import click

from whet.cli.common import examples, output, show_hidden, warn
from whet_live.cli.common import DatabaseGroup, open_here


@click.group(
    cls=DatabaseGroup,
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder.\n\n"
    + examples("whet tasks from-traffic shop/greeting --out greeting"),
)
def tasks() -> None:
    """Make task folders from live traffic."""


@tasks.command(
    "from-traffic",
    epilog=examples(
        "whet tasks from-traffic shop/greeting --out greeting",
        "whet tasks from-traffic shop/greeting@staging --out greeting --since 2026-10-01 --lm openai/gpt-4o-mini",
    ),
)
@click.argument("prompt")
@click.option("--out", "folder", required=True, metavar="DIR", help="Task folder to write (new or empty).")
@click.option("--since", metavar="DATE", help="Start of the period (ISO 8601; UTC).")
@click.option(
    "--limit",
    "most",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Newest rows.",
)
@click.option(
    "--reward",
    metavar="NAME",
    help="Reward name or Python file (default: fits the targets). With this option, answers without "
    "a target become rows too.",
)
@click.option(
    "--from",
    "sources",
    metavar="LIST",
    default="corrections,ratings,signals",
    show_default=True,
    help="Source of the targets.",
)
@click.option(
    "--split",
    type=click.Choice(["time", "users"]),
    default="time",
    show_default=True,
    help="time: the newest rows form the sealed test. users: all rows of a user stay in one split.",
)
@click.option("--unmasked", is_flag=True, help="Keep text that looks like personal data.")
@click.option("--lm", metavar="ADDR", help="Task model, written into task.yaml.")
@output(lambda values: _show(values))
def from_traffic(
    prompt: str,
    folder: str,
    since: str | None,
    most: int,
    sources: str,
    split: str,
    unmasked: bool,
    **options: Any,
) -> dict[str, Any]:
    """Make a task folder from the answers of PROMPT that people corrected, rated well, or used as satisfied people do.

    Each row holds an input, its target (the correction, or else the answer) and comments as critiques. No input is in two rows.

    PROMPT is a name or an address of the registry (default label: production). The folder holds nothing of erased users. It is a
    copy, so a later erasure does not change it.
    """
    from whet_live import RowChoices, task_from_traffic
    from whet_live.database import microseconds

    moment = None if since is None else microseconds(since)
    chosen = tuple(one.strip() for one in sources.split(",") if one.strip())
    by: Any = split
    choices = RowChoices(moment, most, by, chosen, not unmasked)
    with open_here() as live:
        made = task_from_traffic(live.registry, live.traffic, prompt, folder, choices, **options)
    task, lm = made.task, "" if options["lm"] else " --lm openai/NAME"
    sizes = {"train": len(task.train), "validation": len(task.validation), "test": len(task.test)}
    return {
        "folder": folder,
        "rows": sizes,
        "chosen": list(made.chosen),
        "warnings": list(task.warnings),
        "next": [f"whet advise {shlex.quote(folder)}{lm}"],
    }


def _show(values: dict[str, Any]) -> None:
    click.echo(values["folder"])
    for line in values["chosen"]:
        click.echo(f"  {show_hidden(line)}")
    click.echo("  rows: " + ", ".join(f"{count} {split}" for split, count in values["rows"].items()))
    for warning in values["warnings"]:
        warn(show_hidden(warning))
    for command in values["next"]:
        click.echo(f"next: {command}")
