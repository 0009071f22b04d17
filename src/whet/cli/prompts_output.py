"""What `whet prompts` prints: every text of others on one line or by line, hidden characters by their code points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from whet.live.registry import AuditEntry, Move, Proposal, Version

_SHOWN = 200


def emit(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    from whet.cli.show import emit

    emit(value)


def line(text: object) -> str:
    """A text on one line, cut after 200 characters."""
    from whet.instructions.guard import visible

    shown = " ".join(visible(str(text)).split())
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def row(*cells: object) -> None:
    """Cells beside each other; empty ones are left out."""
    click.echo("  ".join(shown for cell in cells if (shown := line(cell))))


def show_version(version: Version) -> None:
    """One version: where it comes from, its text, and what each instruction rests on."""
    from whet.instructions.guard import visible
    from whet.live.database import iso

    row(version.address, *(f"@{label}" for label in version.labels))
    row(iso(version.created), version.author, version.message)
    if version.run is not None:
        row("from", version.run.get("kind"), version.run.get("folder") or version.run.get("file") or "")
    row(((version.evidence or {}).get("improvement") or {}).get("reason", ""))
    click.echo(visible(version.prompt.source))
    for region, one in version.instructions:
        effect = "" if one.effect is None else f"violations fell by {one.effect.difference:.3f}"
        sources = f"{one.sources} sources" if one.sources else ""
        row(region, one.id, sources, one.author, one.created, effect)
        for critique in one.critiques:
            click.echo(f'    because of: "{line(critique)}"')


def show_diff(text: str) -> None:
    """A unified diff in colours."""
    from whet.instructions.guard import visible

    for one in text.splitlines():
        color = {"+": "green", "-": "red"}.get(one[:1])
        click.echo(click.style(visible(one), fg=color) if color else visible(one))


def show_history(made: Sequence[Version], moves: Sequence[Move]) -> None:
    """Versions, then moves."""
    from whet.live.database import iso

    for version in made:
        labels = " ".join(f"@{one}" for one in version.labels)
        row(version.version, iso(version.created), version.author, version.message, labels)
    for move in moves:
        what = f"{move.label}: {move.old or '-'} -> {move.new or '-'}"
        row(iso(move.at), what, f"{move.kind} by {move.actor}", move.reason)


def show_move(move: Move, as_json: bool) -> None:
    """What became of a label."""
    if as_json:
        emit(move.as_json())
    elif move.number == 0:
        click.echo(f"{move.label} of {move.name} stands on version {move.new} already.")
    else:
        click.echo(
            f"{move.label} of {move.name} stands on version {move.new} now, before on {move.old or 'none'}."
        )


def show_proposal_line(proposal: Proposal) -> None:
    """A proposal on one line."""
    what = f"{len(proposal.units)} instructions" if proposal.units else "text"
    if proposal.target is not None:
        what = f"move to {proposal.target}"
    where = f"{proposal.name}/{proposal.base}" + (f" -> {proposal.label}" if proposal.label else "")
    row(proposal.id, proposal.state, where, what, f"by {proposal.author}", proposal.message)


def show_proposal(proposal: Proposal, as_json: bool) -> None:
    """A proposal with what it does to each instruction, and why."""
    if as_json:
        emit(proposal.as_json())
        return
    show_proposal_line(proposal)
    for unit in proposal.units:
        before, after = (
            (unit.change.before, unit.change.after) if unit.change else (None, unit.instruction.text)
        )
        sign = "+" if before is None else "-" if after is None else "~"
        click.echo(f"  {sign} {unit.id}  {line(after or before)}")
        for other in unit.also:
            click.echo(f"      with it goes {other.id}  {line(other.before)}")
        for critique in unit.instruction.critiques:
            click.echo(f'      because of: "{line(critique)}"')
        if unit.instruction.sources:
            click.echo(f"      {unit.instruction.sources} independent sources")
    if proposal.gate is not None:
        click.echo(f"  {line(proposal.gate.get('reason', ''))}")
    if proposal.version is not None:
        click.echo(f"  It is version {proposal.version} now.")
    if proposal.successor is not None:
        click.echo(f"  It waits for somebody else as {proposal.successor}.")


def show_entries(entries: Sequence[AuditEntry], as_json: bool) -> None:
    """Rows of the audit log."""
    rows = [entry.as_json() for entry in entries]
    if as_json:
        emit({"audit": rows})
        return
    for one in rows:
        details = [f"{key}={value}" for key, value in one["details"].items() if value not in (None, "")]
        row(one["seq"], one["at"], one["actor"], one["action"], one["subject"], *details)
