"""`whet prompts`: versions, labels, proposals and the audit log of prompts in the registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.prompts_learning import learning
from whet.cli.prompts_options import actor_of, by_options, every_page, examples, json_option, open_here
from whet.cli.prompts_output import (
    emit,
    show_diff,
    show_entries,
    show_history,
    show_move,
    show_proposal,
    show_proposal_line,
    show_version,
)
from whet.cli.prompts_output import row as show_row
from whet.errors import UsageError

if TYPE_CHECKING:
    pass


@click.group(
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder."
)
@click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.")
@click.pass_context
def prompts(context: click.Context, database: str | None) -> None:
    """Prompts in the registry: versions, labels, proposals, audit log."""
    context.obj = database


@prompts.command(
    "list", epilog=examples("whet prompts list", "whet prompts list shop --label production --json")
)
@click.argument("query", default="")
@click.option("--label", metavar="LABEL", help="Only prompts that have this label.")
@json_option
def list_(query: str, label: str | None, as_json: bool) -> None:
    """Prompts whose name contains QUERY, with their newest version and their labels."""
    with open_here() as live:
        rows = every_page(lambda after: live.registry.prompts(query, label=label, after=after, limit=500))
    if as_json:
        emit({"prompts": [row.as_json() for row in rows]})
        return
    for row in rows:
        show_row(row.name, row.newest, *(f"{name}={version}" for name, version in row.labels.items()))
    if not rows:
        click.echo("There are no prompts. Add one: whet prompts import prompt.md --name NAME", err=True)


@prompts.command(
    epilog=examples(
        "whet prompts show shop/greeting@staging", "whet prompts show shop/greeting/3 --text > prompt.md"
    )
)
@click.argument("address")
@click.option("--text", is_flag=True, help="Print the text of the prompt only, as it is.")
@json_option
def show(address: str, text: bool, as_json: bool) -> None:
    """One version: where it comes from, its text, and what each instruction rests on."""
    with open_here() as live:
        version = live.registry.get(address)
    if as_json:
        emit(version.as_json())
    elif text:
        click.echo(version.prompt.source, nl=False)
    else:
        show_version(version)


@prompts.command(epilog=examples("whet prompts diff shop/greeting@production shop/greeting@latest"))
@click.argument("before")
@click.argument("after")
@json_option
def diff(before: str, after: str, as_json: bool) -> None:
    """What differs between two versions, as text and by instruction."""
    with open_here() as live:
        difference = live.registry.diff(before, after)
    if as_json:
        emit(difference.as_json())
        return
    show_diff(difference.text or "The texts are equal.")


@prompts.command(epilog=examples("whet prompts history shop/greeting --label production"))
@click.argument("name")
@click.option("--label", metavar="LABEL", help="Only moves of this label.")
@json_option
def history(name: str, label: str | None, as_json: bool) -> None:
    """The versions of a prompt and every move of its labels, the newest first."""
    with open_here() as live:
        registry = live.registry
        made = every_page(lambda after: registry.versions(name, before=None if after is None else int(after)))
        moves = every_page(
            lambda after: registry.moves(name, label, before=None if after is None else int(after))
        )
    if as_json:
        short = ("version", "prompt_id", "labels", "author", "message", "created", "parent", "proposal")
        rows = [{key: version.as_json()[key] for key in short} for version in made]
        emit({"name": name, "versions": rows, "moves": [move.as_json() for move in moves]})
        return
    show_history(made, moves)


@prompts.command(
    epilog=examples(
        "whet prompts promote shop/greeting 4",
        "whet prompts promote shop/greeting 4 --label staging --reason 'won the test'",
    )
)
@click.argument("name")
@click.argument("version", type=click.IntRange(min=1))
@click.option("--label", default="production", show_default=True, metavar="LABEL")
@click.option(
    "--request", is_flag=True, help="Ask somebody else to approve it: what a protected label needs."
)
@by_options
@json_option
def promote(
    name: str, version: int, label: str, request: bool, actor: str | None, reason: str, as_json: bool
) -> None:
    """Put a label on a version."""
    by = actor_of(actor)
    with open_here() as live:
        if request:
            show_proposal(live.registry.request_move(name, label, version, actor=by, reason=reason), as_json)
        else:
            show_move(live.registry.move_label(name, label, version, actor=by, reason=reason), as_json)


@prompts.command(epilog=examples("whet prompts rollback shop/greeting --reason 'too short since Monday'"))
@click.argument("name")
@click.option("--label", default="production", show_default=True, metavar="LABEL")
@by_options
@json_option
def rollback(name: str, label: str, actor: str | None, reason: str, as_json: bool) -> None:
    """Put a label back on the version on which it stood before; again, on the one before that."""
    with open_here() as live:
        show_move(live.registry.rollback(name, label, actor=actor_of(actor), reason=reason), as_json)


@prompts.command(
    epilog=examples(
        "whet prompts proposals",
        "whet prompts proposals shop/greeting --state rejected",
        "whet prompts proposals --id 0190…",
    )
)
@click.argument("name", required=False)
@click.option(
    "--state",
    default="open",
    show_default=True,
    metavar="STATE",
    help="open, approved, rejected, edited, withdrawn or all.",
)
@click.option("--id", "key", metavar="ID", help="Show this one in full.")
@json_option
def proposals(name: str | None, state: str, key: str | None, as_json: bool) -> None:
    """Changes that wait for somebody, or that somebody decided, the newest first."""
    with open_here() as live:
        registry = live.registry
        if key is not None:
            show_proposal(registry.proposal(key), as_json)
            return
        wanted = None if state == "all" else state
        listed = every_page(
            lambda after: registry.proposals(state=wanted, name=name, before=after, limit=100)
        )
    if as_json:
        emit({"proposals": [proposal.as_json() for proposal in listed]})
        return
    for proposal in listed:
        show_proposal_line(proposal)


@prompts.command(
    epilog=examples(
        "whet prompts approve ID",
        "whet prompts approve ID --keep i4 --keep i7",
        "whet prompts approve ID --text i4 'Use SI units.'",
    )
)
@click.argument("key", metavar="ID")
@click.option(
    "--keep",
    multiple=True,
    metavar="INSTRUCTION",
    help="Do what the proposal says about this instruction (add, change or remove it) and leave the others as they are.",
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    nargs=2,
    metavar="INSTRUCTION TEXT",
    help="Approve with another text for it.",
)
@by_options
@json_option
def approve(
    key: str,
    keep: Sequence[str],
    texts: Iterable[tuple[str, str]],
    actor: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """Approve a proposal, in whole or in part; its author cannot."""
    from whet.live.registry import Decision

    changed = dict(texts)
    decision = Decision("edit" if changed else "approve", reason, tuple(keep) or None, changed or None)
    with open_here() as live:
        show_proposal(live.registry.decide(key, decision, actor=actor_of(actor)), as_json)


@prompts.command(epilog=examples("whet prompts reject ID --reason 'only one customer wants this'"))
@click.argument("key", metavar="ID")
@by_options
@json_option
def reject(key: str, actor: str | None, reason: str, as_json: bool) -> None:
    """Reject a proposal, with a reason."""
    from whet.live.registry import Decision

    with open_here() as live:
        show_proposal(live.registry.decide(key, Decision("reject", reason), actor=actor_of(actor)), as_json)


@prompts.command(
    epilog=examples("whet prompts protect '*' production", "whet prompts protect shop/greeting staging --off")
)
@click.argument("name")
@click.argument("label")
@click.option("--off", is_flag=True, help="Take the protection back.")
@click.option("--as", "actor", metavar="NAME", help="Who does it (default: your login name).")
def protect(name: str, label: str, off: bool, actor: str | None) -> None:
    """Let a label of NAME (or of every prompt, '*') move only when somebody else approves."""
    with open_here() as live:
        change = live.registry.unprotect if off else live.registry.protect
        change(name, label, actor=actor_of(actor))
    click.echo(
        f"{label} of {'every prompt' if name == '*' else name} is {'free' if off else 'protected'} now."
    )


@prompts.command(
    "export",
    epilog=examples("whet prompts export prompts/", "whet prompts export backup/ shop/greeting"),
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1)
@json_option
def export(folder: Path, names: Sequence[str], as_json: bool) -> None:
    """Write prompts (default: all) with all versions as files that can be read and compared."""
    with open_here() as live:
        written = live.registry.export(folder, names)
    if as_json:
        emit({"folder": str(folder), "prompts": written})
    else:
        click.echo(f"{len(written)} prompts are in {folder}.")


@prompts.command(
    "import",
    epilog=examples(
        "whet prompts import prompt.md --name shop/greeting",
        "whet prompts import runs/mytask-opro-0 --name shop/greeting --label staging",
        "whet prompts import prompts/ --labels",
    ),
)
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--name", metavar="NAME", help="The prompt that a file or a run becomes a version of.")
@click.option(
    "--label",
    metavar="LABEL",
    help="Put this label on the new version; for a run the gate must have promoted it.",
)
@click.option(
    "--labels",
    is_flag=True,
    help="Of an exported folder: move labels of prompts that are there already, too.",
)
@by_options
@json_option
def import_(
    path: Path,
    name: str | None,
    label: str | None,
    labels: bool,
    actor: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """Add a prompt file (with its ledger), the best prompt of a run, or what `export` wrote."""
    by = actor_of(actor)
    is_run = (path / "result.json").is_file()
    if path.is_dir() and not is_run:
        if name is not None or label is not None:
            raise UsageError("An exported folder holds names and labels. Leave --name and --label out.")
        with open_here() as live:
            done = live.registry.import_folder(path, actor=by, labels=labels)
        if as_json:
            emit({"prompts": [row.as_json() for row in done]})
        for row in done if not as_json else ():
            click.echo(f"{row.name}: {row.added} versions added, {row.known} were there")
        return
    if name is None:
        raise UsageError(f"Say which prompt {path} is a version of: --name NAME.")
    with open_here() as live:
        create = live.registry.create_from_run if is_run else live.registry.create_from_file
        made = create(name, path, author=by, message=reason, label=label)
    if as_json:
        emit(made.as_json())
    else:
        click.echo(f"{made.address} {' '.join(f'@{one}' for one in made.labels)}")


@prompts.command(
    epilog=examples(
        "whet prompts audit",
        "whet prompts audit --name shop/greeting --limit 20",
        "whet prompts audit --verify --seal 812:9f…",
    )
)
@click.option("--name", metavar="NAME", help="Only what was done to this prompt.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, metavar="N")
@click.option(
    "--verify",
    is_flag=True,
    help="Check the chain of hashes, and the registry against it; exit code 1 when one was changed.",
)
@click.option(
    "--seal", metavar="SEAL", help="With --verify: the log must still hold what this older seal says."
)
@json_option
def audit(name: str | None, limit: int, verify: bool, seal: str | None, as_json: bool) -> None:
    """Who did what, the newest first; and whether the log is whole."""
    from whet.live.registry import Seal

    if seal is not None and not verify:
        raise UsageError("--seal is compared by --verify. Add it.")
    with open_here() as live:
        if not verify:
            show_entries(live.registry.audit(subject=name, limit=limit).items, as_json)
            return
        verdict = live.registry.verify_audit(None if seal is None else Seal.parse(seal))
    if as_json:
        emit(verdict.as_json())
    elif verdict.whole:
        click.echo(f"The log is whole: {verdict.rows} rows. Seal: {verdict.seal}")
    else:
        click.echo(f"Log or registry were changed: row {verdict.broken}: {verdict.reason}.", err=True)
    if not verdict.whole:
        click.get_current_context().exit(1)


prompts.add_command(learning)
