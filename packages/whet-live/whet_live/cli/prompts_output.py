"""The output of `whet prompts`: every text of other people on one line or by line, hidden characters by their code points."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import count_noun, join_cells, line, show_diff, show_hidden
from whet.errors import show_reward, show_size

if TYPE_CHECKING:
    from whet_live.quality import QualityAlert, QualityMeasure, QualityPoint, QualityReport
    from whet_live.registry import AuditEntry, AuditVerdict, Difference, Move, Proposal, Summary, Version

READERS = "--optimizer-lm openai/NAME, for a local one with --base-url http://localhost:11434/v1"


def show_difference(difference: Difference) -> None:
    """The texts as a unified diff in colours, then each setting of the config that differs."""
    show_diff(difference.text or "The texts are equal.")
    for one in difference.config:
        values = ((one.set_before, one.before), (one.set_after, one.after))
        before, after = (
            json.dumps(value, ensure_ascii=False) if there else "not set" for there, value in values
        )
        click.echo(line(f"config {one.key}: {before}, now {after}"))


def show_summaries(summaries: Sequence[Summary]) -> None:
    """Prompts, one a line."""
    for summary in summaries:
        join_cells(
            summary.name, summary.newest, *(f"{name}={version}" for name, version in summary.labels.items())
        )
    if not summaries:
        click.echo(
            "There are no prompts. Add a prompt with: whet prompts import prompt.md --name NAME", err=True
        )


def show_version(version: Version) -> None:
    """Show one version: its origin, its text, and the evidence of each instruction."""
    from whet_live.database import iso

    join_cells(version.address, *(f"@{label}" for label in version.labels))
    join_cells(iso(version.created), version.author, version.message)
    if version.run is not None:
        join_cells("from", version.run.get("kind"), version.run.get("folder") or version.run.get("file"))
    join_cells(((version.evidence or {}).get("improvement") or {}).get("reason", ""))
    click.echo(show_hidden(version.prompt.source))
    for region, one in version.instructions:
        effect = one.effect and f"violations fell by {show_reward(one.effect.difference)}"
        join_cells(
            region, one.id, one.sources and count_noun(one.sources, "source"), one.author, one.created, effect
        )
        for critique in one.critiques:
            click.echo(f'    because of: "{line(critique)}"')


def show_quality(report: QualityReport) -> None:
    """Every measure of the whole period with its interval, then its steps, then what changed."""
    from whet_live.database import iso

    join_cells(
        report.prompt,
        f"{iso(report.since)[:16]}Z to {iso(report.until)[:16]}Z",
        count_noun(report.answers, "answer"),
    )
    if report.every > 1:
        click.echo(f"These figures come from a sample: one in {report.every} answers.")
    for group in report.groups:
        if group.name:
            join_cells(group.name, count_noun(sum(n for _, n in group.answers), "answer"))
        for one in group.series:
            whole = one.whole
            join_cells(
                f"  {one.measure.title}",
                *_point_cells(whole, one.measure),
                f"n {whole.n:,}",
                f"users {whole.clusters:,}",
            )
            for share, value, low, high in whole.quantiles:
                join_cells(f"    {share:.0%} of answers up to {_size(value)} [{_size(low)}, {_size(high)}]")
            for point in one.points if len(one.points) > 1 else ():
                join_cells(f"    {iso(point.at)[:16]}Z", *_point_cells(point, one.measure), f"n {point.n:,}")
    for mark in report.marks:
        join_cells(f"{iso(mark.at)[:16]}Z", mark.kind, mark.text)
    if not report.answers:
        click.echo("No answer was logged in this period.", err=True)


def _point_cells(point: QualityPoint, measure: QualityMeasure) -> tuple[str, str]:
    if measure.kind == "share":
        return f"{point.mean:.1%}", f"[{point.low:.1%}, {point.high:.1%}]"
    return f"{_size(point.mean)} {measure.unit}".strip(), f"[{_size(point.low)}, {_size(point.high)}]"


def _size(value: float) -> str:
    return "unknown" if math.isinf(value) else show_size(value, 3)


def show_alerts(alerts: Sequence[QualityAlert]) -> None:
    """The alerts, one a line, with the state of each delivery."""
    from whet_live.database import iso

    for alert in alerts:
        sent = " ".join(f"{channel}={state}" for channel, state in alert.deliveries.items())
        join_cells(f"{iso(alert.began)[:16]}Z", alert.kind, "" if alert.worse else "better", alert.text, sent)
    if not alerts:
        click.echo("There are no alerts. A server watches the traffic while it runs: whet serve", err=True)


def show_history(history: Mapping[str, Any]) -> None:
    """Versions, then moves of labels."""
    for version in history["versions"]:
        labels = " ".join(f"@{label}" for label in version["labels"])
        join_cells(version["version"], version["created"], version["author"], version["message"], labels)
    for move in history["moves"]:
        what = f"{move['label']}: {move['old'] or '-'} -> {move['new'] or '-'}"
        join_cells(move["at"], what, f"{move['kind']} by {move['actor']}", move["reason"])


def show_change(change: Move | Proposal) -> None:
    """The outcome for a label, or the effect of a proposal on each instruction with the reason."""
    from whet_live.registry import Proposal

    if isinstance(change, Proposal):
        show_proposal(change)
    elif change.number == 0:
        click.echo(f"{change.label} of {change.name} is already on version {change.new}.")
    elif change.new is None:
        click.echo(f"{change.label} of {change.name} is gone, before on version {change.old}.")
    else:
        before = f"before on version {change.old}" if change.old else "the first time"
        click.echo(f"{change.label} of {change.name} is now on version {change.new}, {before}.")


def show_proposal_line(proposal: Proposal) -> None:
    """A proposal on one line."""
    what = count_noun(len(proposal.units), "instruction") if proposal.units else "text"
    if proposal.target is not None:
        what = f"move to {proposal.target}"
    where = f"{proposal.name}/{proposal.base}" + (f" -> {proposal.label}" if proposal.label else "")
    join_cells(proposal.id, proposal.state, where, what, f"by {proposal.author}", proposal.message)


def show_proposal_lines(proposals: Sequence[Proposal]) -> None:
    """Proposals, one a line."""
    for proposal in proposals:
        show_proposal_line(proposal)


def show_proposal(proposal: Proposal) -> None:
    """A proposal with its change of each instruction, and the reason."""
    show_proposal_line(proposal)
    for unit in proposal.units:
        change = unit.change
        before, after = (change.before, change.after) if change else (None, unit.instruction.text)
        sign = "+" if before is None else "-" if after is None else "~"
        click.echo(f"  {sign} {unit.id}  {line(after or before)}")
        for other in unit.also:
            click.echo(f"      also removed: {other.id}  {line(other.before)}")
        for critique in unit.instruction.critiques:
            click.echo(f'      because of: "{line(critique)}"')
        if unit.instruction.sources:
            click.echo(f"      {count_noun(unit.instruction.sources, 'independent source')}")
    if proposal.gate is not None:
        click.echo(f"  {line(proposal.gate.get('reason', ''))}")
    if proposal.version is not None:
        became = "The label is now on" if proposal.target is not None else "This proposal became"
        click.echo(f"  {became} version {proposal.version}.")
    if proposal.successor is not None:
        click.echo(f"  The edited proposal {proposal.successor} waits for approval by another person.")


def show_exported(done: Mapping[str, Any]) -> None:
    """Print the number of prompts that an export wrote, and the folder."""
    number = len(done["prompts"])
    click.echo(f"{count_noun(number, 'prompt')} {'is' if number == 1 else 'are'} in {done['folder']}.")
    if labels := done["left"]["labels"]:
        click.echo(
            f"The files do not hold what is protected on every prompt: {', '.join(labels)}. An export of all prompts does."
        )


def show_imported(done: Version | Mapping[str, Any]) -> None:
    """The versions that an import added."""
    if not isinstance(done, Mapping):
        click.echo(f"{done.address} {' '.join(f'@{label}' for label in done.labels)}")
        return
    for prompt in done["prompts"]:
        if prompt["name"] == "*":
            click.echo(f"Protected on every prompt: {', '.join(prompt['protected'])}")
            continue
        there = f"{prompt['known']} {'was' if prompt['known'] == 1 else 'were'} there before"
        click.echo(f"{prompt['name']}: {count_noun(prompt['added'], 'version')} added, {there}")


def show_entries(entries: Sequence[AuditEntry]) -> None:
    """Rows of the audit log."""
    for one in (entry.as_json() for entry in entries):
        details = [f"{key}={value}" for key, value in one["details"].items() if value not in (None, "")]
        join_cells(one["seq"], one["at"], one["actor"], one["action"], one["subject"], *details)


def show_verdict(verdict: AuditVerdict) -> None:
    """Whether the audit log is whole."""
    if verdict.whole:
        click.echo(f"The log is intact: {count_noun(verdict.rows, 'row')}. Seal: {verdict.seal}")
    else:
        click.echo(f"The log or the registry was changed. Row {verdict.broken}: {verdict.reason}.", err=True)


def show_learning(status: Mapping[str, Any]) -> None:
    """Print the settings by which a prompt learns, and the causes of waits."""
    settings = status["settings"]
    policy = "  ".join(f"{key}={value}" for key, value in settings["policy"].items() if value != [])
    reads = f"reads {settings['reads']}"
    join_cells(status["name"], f"mode {settings['mode']}", f"label {settings['label']}", reads, policy)
    if status.get("warning"):
        click.echo(f"      {status['warning']}")
    for fault in status.get("faults", ()):
        click.echo(f"      nothing can be learned now ({fault['at'][:16]}): {line(fault['message'])}")
    if lost := status.get("verdicts", {}).get("unreadable"):
        click.echo(
            f"      the model failed to read {count_noun(lost, 'comment')}; to read them again: --read-again"
        )
    if status.get("to_read") and not status.get("reader"):
        click.echo(
            f"      {count_noun(status['to_read'], 'comment')} not read yet; to read them, start the "
            f"learner with a model: {READERS}"
        )
    for one in status.get("evaluators", ()):
        failed = f", {one['failed']} could not be graded" if one["failed"] else ""
        join_cells(
            "evaluator",
            one["evaluator"],
            f"{count_noun(one['answers'], 'answer')} on {one['day']}, {one['low']} low{failed}",
        )
    for one in status.get("searches", ()):
        join_cells(
            "search", one["day"], one["method"], one["state"], one["proposal"] or "", line(one["reason"])
        )
    for one in status.get("requirements", ()):
        join_cells(
            "requirement",
            one["key"],
            one["state"],
            one["counted"],
            one["text"],
        )
        for text, sources in one["against"].items():
            click.echo(
                f"      against it ({sources:g} {'source' if sources == 1 else 'sources'}): {line(text)}"
            )
        if one["rejected"]:
            click.echo(f"      rejected before: {line(one['rejected'])}")
    for one in status.get("quarantine", ()):
        join_cells("quarantine", one["id"], one["source"], *one["reasons"])
    for one in status.get("updates", ()):
        about = one["proposal"] or (f"version {one['version']}" if one["version"] else "")
        join_cells("update", one["at"], one["outcome"], about, one["reason"])


def show_instructions(rows: Sequence[Mapping[str, Any]]) -> None:
    """The instructions that stand with their terms, then those that left and why."""
    standing = [one for one in rows if one["status"] == "active"]
    for one in (*standing, *(one for one in rows if one["status"] != "active")):
        dates = f"{one['first_day'] or ''}..{one['last_day'] or ''}"
        review = one["review"] and f"review {'due since' if one['review_due'] else 'on'} {one['review']}"
        terms = ("locked" if one["locked"] else "", dates if dates != ".." else "", review)
        state = "" if one["status"] == "active" else f"{one['status']}: {one['reason']}"
        join_cells(one["id"], *terms, state, one["text"])
        if any(terms):
            click.echo(
                f"      set by {line(one['terms_by'])}"
                + (f": {line(one['terms_reason'])}" if one["terms_reason"] else "")
            )
    if not rows:
        click.echo("There are no managed instructions.", err=True)


def show_carried(done: Any) -> None:
    """The outcome of a change that a person ordered."""
    if done.version is not None:
        click.echo(f"The instruction is restored, in version {done.version}.")
    else:
        click.echo(
            f"The label is protected, so the proposal {done.proposal} waits for approval by another person."
        )
