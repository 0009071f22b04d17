"""The output of `whet learn`: each new, removed or changed instruction, its evidence, and the decisions that need a person."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from whet import api
from whet.cli.common import NAME_A_MODEL, count_noun, line, print_result, show_diff, show_hidden, warn
from whet.errors import UsageError, quantity
from whet.prompt import reason_to_refuse

_SHOWN = 300
_ROWS = 8
_ASK = "Instruction for these comments (empty: skip):"


def run_learning(options: Mapping[str, Any], *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Propose, show, ask and write. Raises UsageError when there is nobody to ask."""
    terminal, words = sys.stdin.isatty(), {**options, "prompt": Path(options["prompt"])}
    if not (yes or dry_run or terminal):
        api.learn(
            **{**words, "optimizer_lm": None, "base_url": None}, dry_run=True
        )  # its files are read before this is said
        raise UsageError(
            "whet learn asks before it writes, but there is no terminal to ask on. Add --yes to "
            "write without asking, or --dry-run to see only the proposal."
        )
    asks = terminal and not (yes or dry_run or as_json)

    def confirm(shown: Mapping[str, Any]) -> bool:
        if not as_json:
            proposal(shown, groups=not asks)
        if dry_run or yes or not (shown["changes"] or shown["supported"]):
            return yes and not dry_run
        return click.confirm(f"\nWrite {shown['written_to']}?", default=False, err=True)

    result = api.learn(**words, confirm=confirm, write=_write if asks else None, dry_run=dry_run)
    print_result(result, as_json, partial(outcome, dry_run=dry_run))


def _write(group: Mapping[str, Any]) -> str:
    """Ask the person at the terminal for the instruction of a group of comments; empty for none."""
    _group(group)
    while True:
        text = str(click.prompt(_ASK, default="", show_default=False, prompt_suffix=" ", err=True)).strip()
        reason = reason_to_refuse(text) if text else None
        if reason is None:
            return text
        click.echo(f"This text cannot be an instruction: {reason}.", err=True)


def _group(group: Mapping[str, Any]) -> None:
    """A group of comments with its rows."""
    rows = ", ".join(show_hidden(key) for key in group["feedback"][:_ROWS])
    rows += ", ..." if len(group["feedback"]) > _ROWS else ""
    click.echo(f"\n{count_noun(len(group['feedback']), 'row')} ({rows}):")
    for text in group["texts"]:
        click.echo(f'  "{line(text, _SHOWN)}"')


def undo_last_step(prompt: str, as_json: bool) -> None:
    """Undo the last learned step."""
    print_result(api.learn(Path(prompt), undo=True), as_json, _show_undone)


def _show_undone(undone: Mapping[str, Any]) -> None:
    for change in undone["changes"]:
        click.echo(_head(change))
    _diff(undone["diff"])
    step, ledger = undone["undone_at"], undone["ledger"]
    click.echo(f"\n{undone['prompt']}: the step of {step} is undone. Ledger: {ledger}")


def proposal(shown: Mapping[str, Any], groups: bool = True) -> None:
    """The proposal: changes with their reasons, flags, rows that give nothing, `groups` of comments, the diff."""
    simulated = "  (SIMULATED: a scripted model answered)" if shown["simulated"] else ""
    by_model = "optimizer" in {change["author"] for change in shown["changes"]}
    by = f", written by {shown['optimizer']}" if by_model else ""
    click.echo(f"{shown['prompt']}: {count_noun(len(shown['changes']), 'change')}{by}{simulated}\n")
    for change in shown["changes"]:
        click.echo(
            click.style(_head(change), fg={"add": "green", "remove": "red"}.get(change["kind"], "yellow"))
        )
        _why(change)
    for change in shown["supported"]:
        click.echo(f"= {change['id']}  {show_hidden(change['after'])}")
        _why(
            {
                **change,
                "reason": ("this instruction is already in the prompt; the feedback asks for it again"),
            }
        )
    _flags(shown["flagged"])
    if shown["skipped"]:
        click.echo("\nRows that teach nothing:")
    for row in shown["skipped"]:
        click.echo(f"  {show_hidden(row['feedback'])} ({row['where']}): {row['reason']}")
    _show_unwritten(
        [group for group in shown["groups"] if not group["instruction"]], groups, shown["optimizer"] != "none"
    )
    if shown["fence_added"] and shown["changes"]:
        click.echo(
            "\nThe prompt has no fence. A fence is added at its end, and the rest stays unchanged. If "
            "the instructions belong elsewhere, move the markers."
        )
    for warning in shown["warnings"]:
        click.echo("")
        warn(warning)
    _diff(shown["diff"])


def _show_unwritten(groups: Sequence[Mapping[str, object]], listed: bool, read: bool) -> None:
    """Comments for which nobody wrote an instruction, and how to get one where no model `read` them."""
    if not groups:
        return
    if listed:
        click.echo("\nComments without an instruction (a model or a person must write the instruction):")
        for group in groups:
            _group(group)
    if not read:
        click.echo(f"\n{NAME_A_MODEL}")


def outcome(result: Mapping[str, Any], dry_run: bool = False) -> None:
    """The cost of the model's calls, and the outcome of the proposal."""
    if calls := sum(result["usage"].get("calls", {}).values()) + sum(
        result["usage"].get("cached", {}).values()
    ):
        click.echo(f"\ncalls: {_describe_spending(result['usage'], calls)}")
    waits = any(not group["instruction"] for group in result["groups"])
    nothing = "No instruction was written" if waits else "There is nothing to learn"
    lines = {
        "written": (
            f"\n{result['written_to']} is written. To undo this step: whet learn "
            f"{result['written_to']} --undo"
        ),
        "proposed": "\nDry run: nothing is written.",
        "declined": "\nNothing is written.",
        "nothing": f"\n{'Dry run: nothing is written. ' if dry_run else ''}{nothing}; the prompt stays unchanged.",
    }
    click.echo(lines[result["status"]])


def _describe_spending(usage: Mapping[str, Any], calls: int) -> str:
    """Calls, tokens and dollars of the model that read the comments."""
    cached = sum(usage["cached"].values())
    parts = [f"{calls} optimizer" + (f" ({cached} from the cache)" if cached else "")]
    parts.append(f"{quantity(usage['input_tokens'] + usage['output_tokens'], 'token')}")
    if cost := usage["cost_usd"]:
        parts.append(f"${cost:.4f}")
    return ", ".join(parts) + ("; price unknown" if usage.get("price_unknown") else "")


def _head(change: Mapping[str, object]) -> str:
    if change["before"] is None:
        return f"+ {change['id']}  {show_hidden(change['after'])}"
    if change["after"] is None:
        return f"- {change['id']}  {show_hidden(change['before'])}"
    return f"~ {change['id']}  {show_hidden(change['before'])}\n    ->  {show_hidden(change['after'])}"


def _why(change: Mapping[str, Any]) -> None:
    for critique in change["critiques"]:
        click.echo(f'      because of: "{line(critique, _SHOWN)}"')
    rests = ", ".join(show_hidden(key) for key in change["feedback"])
    sources = change["sources"]
    notes = [
        f"based on feedback {rests}" if rests else "",
        count_noun(sources, "source") if sources else "",
        change["reason"],
    ]
    text = "; ".join(note for note in notes if note)
    if text:
        click.echo(f"      {text}")


def _flags(flags: Sequence[Mapping[str, Any]]) -> None:
    if not flags:
        return
    click.echo(
        click.style(
            "\nFlagged and left out. If an entry is harmless, accept it with --accept-flagged ID:",
            fg="yellow",
        )
    )
    for flag in flags:
        place = f" ({flag['where']})" if flag["where"] else ""
        click.echo(f'  {flag["kind"]} {show_hidden(flag["id"])}{place}: "{line(flag["text"], _SHOWN)}"')
        for reason in flag["reasons"]:
            click.echo(f"      {show_hidden(reason)}")


def _diff(text: str) -> None:
    click.echo("", nl=bool(text))
    show_diff(text)
