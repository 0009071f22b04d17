"""`whet prompts`: versions, labels, proposals and the audit log of prompts in the registry; how prompts learn."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import (
    check_one_form,
    examples,
    format_option,
    json_option,
    json_settings,
    output,
    print_exactly,
    print_prompt,
    print_result,
    warn,
)
from whet.errors import UsageError
from whet_live.cli.common import DatabaseGroup, actor_of, actor_option, by_options, every_page, open_here
from whet_live.cli.prompts_output import (
    show_alerts,
    show_carried,
    show_change,
    show_difference,
    show_entries,
    show_exported,
    show_history,
    show_imported,
    show_instructions,
    show_learning,
    show_proposal,
    show_proposal_lines,
    show_quality,
    show_summaries,
    show_verdict,
    show_version,
)
from whet_live.cli.quality_check import check

if TYPE_CHECKING:
    from whet_live.quality import QualityAlert, QualityReport
    from whet_live.registry import Difference, Move, Proposal, Summary, Version


MOST_DAYS = 1098
"""Days of a report of quality, at most: three years."""


@click.group(
    cls=DatabaseGroup,
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder.\n\n"
    + examples("whet prompts show shop/greeting"),
)
def prompts() -> None:
    """Manage prompts in the registry: versions, labels, proposals, audit log."""


@prompts.command(
    "list", epilog=examples("whet prompts list", "whet prompts list shop --label production --json")
)
@click.argument("query", default="")
@click.option("--label", metavar="LABEL", help="Only prompts that have this label.")
@output(show_summaries, "prompts")
def list_(query: str, label: str | None) -> list[Summary]:
    """List prompts whose name contains QUERY, with their newest version and their labels."""
    with open_here() as live:
        return every_page(lambda after: live.registry.prompts(query, label=label, after=after, limit=500))


@prompts.command(
    epilog=examples(
        "whet prompts show shop/greeting@staging", "whet prompts show shop/greeting/3 --text > prompt.md"
    )
)
@click.argument("address")
@click.option("--text", is_flag=True, help="Print only the text of the prompt, unchanged.")
@format_option
@json_option
def show(address: str, text: bool, form: str | None, as_json: bool) -> None:
    """Show one version: its origin, its text, and the evidence of each instruction."""
    check_one_form(text, form, as_json, "--text")
    with open_here() as live:
        version = live.registry.get(address)
    if form is not None:
        if version.config:
            warn(f"The file holds no config ({', '.join(version.config)}). --json shows it.", err=True)
        print_prompt(version.prompt, form)
    elif text and not as_json:
        print_exactly(version.prompt.source)
    else:
        print_result(version, as_json, show_version)


@prompts.command(
    epilog=examples(
        "whet prompts quality shop/greeting",
        "whet prompts quality shop/greeting --days 90 --by version --step week",
        "whet prompts quality shop/greeting --label production --by metadata.country --json",
    )
)
@click.argument("name")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=30, show_default=True, metavar="N")
@click.option(
    "--since",
    metavar="TIME",
    help="Start of the period, instead of --days: 2026-01-31 or 2026-01-31T12:00:00Z.",
)
@click.option("--until", metavar="TIME", help="End of the period (default: now).")
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Only answers of this version.")
@click.option("--label", metavar="LABEL", help="Only answers of the version that had this label.")
@click.option("--model", metavar="MODEL", help="Only answers of this model.")
@click.option(
    "--by", default="", metavar="WHAT", help="Split the figures by version, label, model or metadata.KEY."
)
@click.option(
    "--step",
    default="",
    metavar="STEP",
    help="Length of a step: hour, day or week (default: fits the period).",
)
@output(show_quality)
def quality(name: str, since: str | None, until: str | None, **options: Any) -> QualityReport:
    """Show ratings, thumbs, corrections, refusals, errors, latency, tokens and cost over time, with 95% intervals."""
    from whet_live.database import microseconds

    begin, end = (None if text is None else microseconds(text) for text in (since, until))
    with open_here() as live:
        return live.quality.measure(name, since=begin, until=end, **options)


prompts.add_command(check)


@prompts.command(epilog=examples("whet prompts alerts", "whet prompts alerts shop/greeting --json"))
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, metavar="N")
@output(show_alerts, "alerts")
def alerts(name: str | None, limit: int) -> Sequence[QualityAlert]:
    """List the alerts of the server about traffic (quality that drifted, models that changed), the newest first."""
    with open_here() as live:
        return live.quality.alerts(name, limit=limit).items


@prompts.command(epilog=examples("whet prompts diff shop/greeting@production shop/greeting@latest"))
@click.argument("before")
@click.argument("after")
@output(show_difference)
def diff(before: str, after: str) -> Difference:
    """Show the differences between two versions: their texts, their instructions, their configs."""
    with open_here() as live:
        return live.registry.diff(before, after)


@prompts.command(epilog=examples("whet prompts history shop/greeting --label production"))
@click.argument("name")
@click.option("--label", metavar="LABEL", help="Only moves of this label.")
@output(show_history)
def history(name: str, label: str | None) -> dict[str, object]:
    """List the versions of a prompt and every move of its labels, the newest first."""
    with open_here() as live:
        registry = live.registry
        made = every_page(lambda after: registry.versions(name, before=int(after) if after else None))
        moves = every_page(lambda after: registry.moves(name, label, before=int(after) if after else None))
    short = ("version", "prompt_id", "labels", "author", "message", "created", "parent", "proposal")
    versions = [{key: version[key] for key in short} for version in (one.as_json() for one in made)]
    return {"name": name, "versions": versions, "moves": [move.as_json() for move in moves]}


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
    "--request", is_flag=True, help="Request approval by another person, which a protected label needs."
)
@by_options
@output(show_change)
def promote(
    name: str, version: int, label: str, request: bool, actor: str | None, reason: str
) -> Move | Proposal:
    """Move a label to a version."""
    by = actor_of(actor)
    with open_here() as live:
        change = live.registry.request_move if request else live.registry.move_label
        return change(name, label, version, actor=by, reason=reason)


@prompts.command(epilog=examples("whet prompts unlabel shop/greeting staging --reason 'tested'"))
@click.argument("name")
@click.argument("label")
@by_options
@output(show_change)
def unlabel(name: str, label: str, actor: str | None, reason: str) -> Move:
    """Take a label away from a prompt; its versions stay. Apps that ask for the label find none."""
    with open_here() as live:
        return live.registry.remove_label(name, label, actor=actor_of(actor), reason=reason)


@prompts.command(epilog=examples("whet prompts rollback shop/greeting --reason 'too short since Monday'"))
@click.argument("name")
@click.option("--label", default="production", show_default=True, metavar="LABEL")
@by_options
@output(show_change)
def rollback(name: str, label: str, actor: str | None, reason: str) -> Move:
    """Move a label back to the version that had it before. Each repetition goes one version further back."""
    with open_here() as live:
        return live.registry.rollback(name, label, actor=actor_of(actor), reason=reason)


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
@click.option("--id", "key", metavar="ID", help="Show the proposal with this id in full.")
@json_option
def proposals(name: str | None, state: str, key: str | None, as_json: bool) -> None:
    """List proposed changes and their decisions, the newest first."""
    with open_here() as live:
        registry = live.registry
        if key is not None:
            print_result(registry.proposal(key), as_json, show_proposal)
            return
        wanted = None if state == "all" else state
        listed = every_page(
            lambda after: registry.proposals(state=wanted, name=name, before=after, limit=100)
        )
        if name is not None and not listed:
            registry.labels(name)
    print_result(listed, as_json, show_proposal_lines, "proposals")
    if not listed and not as_json:
        kind = "" if wanted is None else f"{state} "
        click.echo(f"no {kind}proposals" + (f" of {name}" if name else ""))


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
    help="Apply only this instruction of the proposal (repeatable): add, change or remove it, and "
    "leave the other instructions unchanged.",
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    nargs=2,
    metavar="INSTRUCTION TEXT",
    help="Approve with TEXT as the new text of INSTRUCTION.",
)
@by_options
@output(show_change)
def approve(
    key: str, keep: Sequence[str], texts: Iterable[tuple[str, str]], actor: str | None, reason: str
) -> Proposal:
    """Approve a proposal, in whole or in part. Authors cannot approve their own proposals."""
    from whet_live.registry import Decision

    changed = dict(texts)
    decision = Decision("edit" if changed else "approve", reason, tuple(keep) or None, changed or None)
    with open_here() as live:
        return live.registry.decide(key, decision, actor=actor_of(actor))


@prompts.command(epilog=examples("whet prompts reject ID --reason 'only one customer wants this'"))
@click.argument("key", metavar="ID")
@by_options
@output(show_change)
def reject(key: str, actor: str | None, reason: str) -> Proposal:
    """Reject a proposal, with a reason."""
    from whet_live.registry import Decision

    with open_here() as live:
        return live.registry.decide(key, Decision("reject", reason), actor=actor_of(actor))


@prompts.command(
    epilog=examples("whet prompts protect '*' production", "whet prompts protect shop/greeting staging --off")
)
@click.argument("name")
@click.argument("label")
@click.option("--off", is_flag=True, help="Remove the protection.")
@actor_option
def protect(name: str, label: str, off: bool, actor: str | None) -> None:
    """Protect a label of NAME (or of every prompt, '*'), so that it moves only with the approval of another person."""
    with open_here(make=True) as live:
        change = live.registry.unprotect if off else live.registry.protect
        change(name, label, actor=actor_of(actor))
    whose = "every prompt" if name == "*" else name
    click.echo(f"{label} of {whose} is now {'free' if off else 'protected'}.")


@prompts.command(
    "export", epilog=examples("whet prompts export prompts/", "whet prompts export backup/ shop/greeting")
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1)
@output(lambda done: show_exported(done))
def export(folder: Path, names: Sequence[str]) -> dict[str, object]:
    """Write prompts (default: all) with all versions to files that people can read and compare."""
    from whet_live.learner import export_prompts
    from whet_live.registry import ANY_PROMPT

    with open_here() as live:
        written = export_prompts(live.registry, folder, names)
        everywhere = [label for name, label in live.registry.protections() if name == ANY_PROMPT]
        return {"folder": str(folder), "prompts": written, "left": {"labels": everywhere if names else []}}


@prompts.command(
    "import",
    epilog=examples(
        "whet prompts import prompt.md --name shop/greeting",
        "whet prompts import runs/mytask-opro-0 --name shop/greeting --label staging",
        "whet prompts import prompts/ --labels",
    ),
)
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--name",
    metavar="NAME",
    help="Prompt that gets the file, or the best prompt of the run, as a new version.",
)
@click.option(
    "--label",
    metavar="LABEL",
    help="Move this label to the new version. The prompt of a run must have passed the gate.",
)
@click.option(
    "--labels",
    is_flag=True,
    help="With an exported folder: also move and protect labels, and set locks, dates and reviews of instructions, of prompts "
    "that exist already.",
)
@by_options
@output(show_imported)
def import_(
    path: Path, name: str | None, label: str | None, labels: bool, actor: str | None, reason: str
) -> Version | dict[str, object]:
    """Import a prompt file (with its ledger), the best prompt of a run, or a folder that `export` wrote."""
    from whet_live.learner import import_prompts
    from whet_live.registry import slot_warnings

    by = actor_of(actor)
    is_run = (path / "result.json").is_file()
    if path.is_dir() and not is_run:
        if name is not None or label is not None:
            raise UsageError("An exported folder already holds names and labels. Omit --name and --label.")
        with open_here(make=True) as live:
            done = import_prompts(live.registry, path, actor=by, labels=labels)
        for one in done:
            for warning in one.warnings:
                warn(f"{one.name}: {warning}", err=True)
        return {"prompts": [one.as_json() for one in done]}
    if name is None:
        raise UsageError(f"Name the prompt that gets {path} as a new version: --name NAME.")
    with open_here(make=True) as live:
        if label is not None and live.registry.is_protected(name, label):
            moved = "" if label == "production" else f" --label {label}"
            raise UsageError(
                f'The label "{label}" of {name} is protected: it moves only with the approval of '
                "another person. Import without --label, then request the move:\n  whet prompts "
                f"import {shlex.quote(str(path))} --name {name}\n  whet prompts promote {name} VERSION{moved} "
                "--request"
            )
        current = live.registry.current(name)
        create = live.registry.create_from_run if is_run else live.registry.create_from_file
        made = create(name, path, author=by, message=reason, label=label)
    for warning in slot_warnings(current, made.prompt):
        warn(warning, err=True)
    return made


@prompts.command(
    epilog=examples(
        "whet prompts audit",
        "whet prompts audit --name shop/greeting --limit 20",
        "whet prompts audit --verify --seal 812:9f…",
    )
)
@click.option("--name", metavar="NAME", help="Only entries about this prompt.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, metavar="N")
@click.option(
    "--verify",
    is_flag=True,
    help="Check the chain of hashes, and compare the registry with the log. The exit code is 1 if "
    "either was changed.",
)
@click.option(
    "--seal",
    metavar="SEAL",
    help="With --verify: check that the log still contains the entries of this older seal.",
)
@json_option
def audit(name: str | None, limit: int, verify: bool, seal: str | None, as_json: bool) -> None:
    """Show the audit log, the newest entry first, or verify that it is intact."""
    from whet_live.registry import AuditCheckpoint

    if seal is not None and not verify:
        raise UsageError("--seal needs --verify. Add --verify.")
    with open_here() as live:
        if not verify:
            entries = live.registry.audit(subject=name, limit=limit).items
            print_result(entries, as_json, show_entries, "audit")
            return
        verdict = live.registry.verify_audit(None if seal is None else AuditCheckpoint.parse(seal))
    print_result(verdict, as_json, show_verdict)
    if not verdict.whole:
        click.get_current_context().exit(1)


@prompts.command(
    epilog=examples(
        "whet prompts learning shop/greeting",
        "whet prompts learning shop/greeting --mode auto --rule quorum=8 --rule share=0.1",
        "whet prompts learning '*' --mode off",
        "whet prompts learning shop/greeting --reads answer",
        "whet prompts learning shop/greeting --accept 'requirement r12' --reason 'we want that'",
        "whet prompts learning shop/greeting --write 'row 0190…' 'Name the price with tax.'",
    )
)
@click.argument("name")
@click.option(
    "--mode",
    metavar="MODE",
    help="propose (a person decides), auto (the gate and the rollout stages decide), or off.",
)
@click.option("--label", metavar="LABEL", help="Label of the version that learns.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="KEY=VALUE",
    callback=json_settings,
    help="quorum, share, per_source, ...",
)
@click.option(
    "--accept",
    multiple=True,
    metavar="KEY",
    help="Accept a row in quarantine (by its id) or a requirement ('requirement KEY').",
)
@click.option("--dismiss", multiple=True, metavar="KEY", help="Reject such a row or requirement permanently.")
@click.option(
    "--write",
    "texts",
    nargs=2,
    multiple=True,
    metavar="KEY TEXT",
    help="Write the instruction for a row or a requirement, which accepts it.",
)
@click.option(
    "--reads",
    metavar="WHAT",
    help="Text that the reader model sees: comment, answer (also input and answer, masked), or "
    "conversation (also earlier answers).",
)
@click.option(
    "--read-again", is_flag=True, help="Read the comments again that the reader model failed to read."
)
@click.option(
    "--read-vague-again",
    "vague",
    is_flag=True,
    help="Also read the comments again that were too vague for the reader model.",
)
@by_options
@output(show_learning)
def learning(
    name: str,
    mode: str | None,
    label: str | None,
    rules: Mapping[str, object],
    reads: str | None,
    **options: Any,
) -> Mapping[str, object]:
    """Show or set how the prompt NAME ('*': every prompt) learns from its traffic."""
    decided = [(key, True) for key in options["accept"]] + [(key, False) for key in options["dismiss"]]
    again = options["read_again"] or options["vague"]
    if name == "*" and (decided or options["texts"] or again):
        raise UsageError("Rows and requirements belong to one prompt. Name it.")
    with open_here(make=True) as live:
        learner, by = live.learner, actor_of(options["actor"])
        before = learner.settings(name)
        settings = replace(
            before,
            mode=mode or before.mode,
            label=label or before.label,
            rules={**before.rules, **rules},
            reads=reads or before.reads,
        )
        if settings != before:
            learner.configure(name, settings, actor=by)
        for key, accepted in decided:
            learner.decide(name, key, accepted, actor=by, reason=options["reason"])
        if again:
            learner.read_again(name, actor=by, reason=options["reason"], vague=options["vague"])
        for key, text in options["texts"]:
            learner.write(name, key, text, actor=by, reason=options["reason"])
        if name == "*":
            return {"name": name, "settings": settings.as_json()}
        live.registry.labels(name)
        return learner.status(name)


@prompts.command(
    epilog=examples(
        "whet prompts instructions shop/greeting",
        "whet prompts instructions shop/greeting --lock i4 --reason 'legal wants it word by word'",
        "whet prompts instructions shop/greeting --dates i7 12-01..01-06 --review i7 2027-11-15",
        "whet prompts instructions shop/greeting --restore i3",
    )
)
@click.argument("name")
@click.option(
    "--lock",
    "locked",
    multiple=True,
    metavar="ID",
    help="Lock this instruction, so that no model changes it.",
)
@click.option(
    "--unlock",
    "unlocked",
    multiple=True,
    metavar="ID",
    help="Unlock this instruction, so that models may change it again.",
)
@click.option(
    "--dates",
    nargs=2,
    multiple=True,
    metavar="ID FIRST..LAST",
    help="Days on which the instruction is active: 2026-12-01..2027-01-06; 12-01..01-06 (each year); "
    "..2026-12-31 (until then); .. (always).",
)
@click.option(
    "--review",
    "reviews",
    nargs=2,
    multiple=True,
    metavar="ID DAY",
    help="Day on which whet reminds of a review of the instruction ('': none).",
)
@click.option("--restore", "key", metavar="ID", help="Restore an instruction that was removed.")
@by_options
@json_option
def instructions(
    name: str,
    locked: Sequence[str],
    unlocked: Sequence[str],
    dates: Sequence[tuple[str, str]],
    reviews: Sequence[tuple[str, str]],
    key: str | None,
    actor: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """List the instructions of NAME with their locks and dates, or set locks and dates."""
    changes: dict[str, dict[str, Any]] = {}
    for one in locked:
        changes.setdefault(one, {})["locked"] = True
    for one in unlocked:
        changes.setdefault(one, {})["locked"] = False
    for one, days in dates:
        changes.setdefault(one, {})["dates"] = days
    for one, day in reviews:
        changes.setdefault(one, {})["review"] = day
    if twice := sorted(set(locked) & set(unlocked)):
        raise UsageError(
            f"{twice[0]} cannot be locked and unlocked in one command. Give only one of the two options."
        )
    if key is not None and changes:
        raise UsageError(
            "--restore makes a new version and cannot be combined with other options. Set locks and "
            "dates in a separate command."
        )
    with open_here() as live:
        by = actor_of(actor)
        if key is not None:
            print_result(live.learner.restore(name, key, actor=by, reason=reason), as_json, show_carried)
            return
        for one, change in changes.items():
            live.learner.set_terms(name, one, actor=by, reason=reason, **change)
        print_result(live.learner.instructions(name), as_json, show_instructions, "instructions")
