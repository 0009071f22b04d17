"""What `whet learn` shows: each instruction that comes, goes or changes, what it rests on, and what needs a
person.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from whet import api
from whet.cli.show import emit
from whet.cli.teaching import teaching_of
from whet.errors import UsageError, WhetError
from whet.online.guard import visible

_SHOWN = 300


def run(options: Mapping[str, Any], *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Propose, show, ask and write. Raises UsageError when there is nobody to ask."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(
            "whet learn asks before it writes, and there is no terminal to ask on. Add --yes to write, or --dry-run to "
            "see the proposal only."
        )

    def confirm(found: Mapping[str, Any]) -> bool:
        if not as_json:
            proposal(found)
        if dry_run or yes or not (found["changes"] or found["supported"]):
            return yes and not dry_run
        return click.confirm(f"\nWrite {found['written_to']}?", default=False, err=True)

    found = api.learn(**options, confirm=confirm, dry_run=dry_run)
    if as_json:
        emit(found)
    else:
        outcome(found)


def undo(prompt: str, as_json: bool) -> None:
    """Take the last learned step back."""
    found = api.learn(prompt, undo=True)
    if as_json:
        emit(found)
        return
    for change in found["changes"]:
        click.echo(_head(change))
    _diff(found["diff"])
    click.echo(f"\n{found['prompt']}: the step of {found['undone_at']} is undone. Ledger: {found['ledger']}")


def proposal(found: Mapping[str, Any]) -> None:
    """The proposal: changes with their reasons, flags, rows that give nothing, the diff."""
    simulated = "  (SIMULATED: a scripted model answered)" if found["simulated"] else ""
    wrote = {change["author"] for change in found["changes"]}
    by = f", written by {found['optimizer']}" if "optimizer" in wrote else ""
    by += (" and" if by else ",") + " distilled from the feedback itself" if "distiller" in wrote else ""
    click.echo(f"{found['prompt']}: {_count(len(found['changes']), 'change')}{by}{simulated}\n")
    for change in found["changes"]:
        click.echo(
            click.style(_head(change), fg={"add": "green", "remove": "red"}.get(change["kind"], "yellow"))
        )
        _why(change)
    for change in found["supported"]:
        click.echo(f"= {change['id']}  {visible(change['after'])}")
        _why({**change, "reason": "it stands there already; the feedback demands it again"})
    _flags(found["flagged"])
    if found["skipped"]:
        click.echo("\nNothing to learn from:")
    for row in found["skipped"]:
        click.echo(f"  {visible(row['feedback'])} ({row['where']}): {row['reason']}")
    if found["fence_added"] and found["changes"]:
        click.echo(
            "\nThe prompt has no fence: one is added at its end and the rest stays as it is. Put the markers elsewhere if "
            "instructions belong there."
        )
    for warning in found["warnings"]:
        click.echo(click.style(f"\nwarning: {warning}", fg="yellow"))
    _diff(found["diff"])


def outcome(found: Mapping[str, Any]) -> None:
    """What became of the proposal."""
    said = {
        "written": f"\n{found['written_to']} is written. Take it back with: whet learn {found['written_to']} --undo",
        "proposed": "\nDry run: nothing is written.",
        "declined": "\nNothing is written.",
        "nothing": "\nThere is nothing to learn; nothing is written.",
    }
    click.echo(said[found["status"]])


def _head(change: Mapping[str, Any]) -> str:
    if change["before"] is None:
        return f"+ {change['id']}  {visible(change['after'])}"
    if change["after"] is None:
        return f"- {change['id']}  {visible(change['before'])}"
    return f"~ {change['id']}  {visible(change['before'])}\n    ->  {visible(change['after'])}"


def _why(change: Mapping[str, Any]) -> None:
    for critique in change["critiques"]:
        click.echo(f'      because of: "{visible(_cut(critique))}"')
    rests = ", ".join(visible(key) for key in change["feedback"])
    count = change["sources"]
    notes = [
        f"rests on feedback {rests}" if rests else "",
        f"{_count(count, 'source')}" if count else "",
        change["reason"],
    ]
    told = "; ".join(note for note in notes if note)
    if told:
        click.echo(f"      {told}")


def _flags(flags: Sequence[Mapping[str, Any]]) -> None:
    if not flags:
        return
    click.echo(
        click.style(
            "\nFlagged and left out. Accept one with --accept-flagged ID if you know better:", fg="yellow"
        )
    )
    for flag in flags:
        place = f" ({flag['where']})" if flag["where"] else ""
        click.echo(f'  {flag["kind"]} {visible(flag["id"])}{place}: "{visible(_cut(flag["text"]))}"')
        for reason in flag["reasons"]:
            click.echo(f"      {visible(reason)}")


def _diff(text: str) -> None:
    if text:
        click.echo()
    for row in text.splitlines():
        color = {"+": "green", "-": "red"}.get(row[:1])
        click.echo(click.style(visible(row), fg=color) if color else visible(row))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def watch(options: Mapping[str, Any], *, once: bool, as_json: bool) -> None:
    """Learn from the live traffic of a database until a signal says stop, or for one look.

    The first signal ends it after the step that is under way; a second one at once. Raises UsageError for a database, a
    model or a task that cannot be used.
    """
    from whet.live import open_live
    from whet.online.learner import Learner

    told: list[dict[str, Any]] = []

    def tell(lesson: Any) -> None:
        told.append(lesson.as_json())
        if not as_json:
            _lesson(told[-1])

    with open_live(options["database"]) as live:
        learner = Learner(
            live.database, live.registry, live.traffic, lambda: live.experiments, teaching_of(options)
        )
        failed: Mapping[str, WhetError] = {}
        if once:
            done, failed = learner.look()
            for lesson in done:
                tell(lesson)
            learner.keep()
        else:
            _until_stopped(lambda stop: learner.watch(stop, options["every"], tell))
    if as_json:
        emit({"lessons": told, "failed": {name: str(error) for name, error in failed.items()}})
    for name, error in failed.items():
        click.echo(f"whet: {name}: {error}", err=True)
    if failed:
        click.get_current_context().exit(max(error.exit_code for error in failed.values()))


def _until_stopped(work: Callable[[threading.Event], None]) -> None:
    """Run `work` until SIGINT or SIGTERM comes."""
    stop = threading.Event()

    def heard(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    click.echo("Watching the traffic. Ctrl-C stops it after the step that is under way.", err=True)
    try:
        work(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lesson(found: Mapping[str, Any]) -> None:
    """What became of a lesson, on one line."""
    about = found["proposal"] or (f"version {found['version']}" if found["version"] else "")
    about += f", tried in experiment {found['experiment']}" if found["experiment"] else ""
    demands = "; ".join(visible(_cut(demand["text"])) for demand in found["demands"])
    parts = [f"{visible(found['name'])}: {found['outcome']} {about}".rstrip(), demands, found["reason"]]
    click.echo("  ".join(part for part in parts if part))
