"""`whet feedback`: what people and programs said about answers, added, imported, listed, weighed, deleted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import (
    count_noun,
    examples,
    good_and_bad_options,
    join_cells,
    json_option,
    line,
    options,
    output,
    print_result,
    show_hidden,
    warn,
)
from whet.errors import UsageError, did_you_mean, show_reward, show_share
from whet_live.cli.common import DatabaseGroup, actor_of, deletion_options, login, open_here
from whet_live.cli.patterns import patterns

if TYPE_CHECKING:
    from whet_client import Feedback
    from whet_live import Live
    from whet_live.experiments import VersionRewards
    from whet_live.traffic import BehaviourModel, Erased, Estimate, StoredFeedback


_LONGEST_HINT = 300
READERS_SECONDS = 30.0
"""The longest wait of `whet feedback forget` for other readers of the database."""


@click.group(
    cls=DatabaseGroup,
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder.\n\n"
    + examples("whet feedback import langfuse.jsonl"),
)
def feedback() -> None:
    """Add, import, list and delete feedback about answers."""


feedback.add_command(patterns)
_PROMPT = click.option("--prompt", metavar="NAME", help="Only feedback about this prompt.")
_VERSION = click.option(
    "--version", type=click.IntRange(min=0), metavar="N", help="Only feedback about this version."
)
_SINCE = click.option("--since", metavar="DATE", help="Start of the period (ISO 8601; UTC).")


def _moment(text: str | None) -> int | None:
    from whet_live.database import microseconds

    return None if text is None else microseconds(text)


def _signals(texts: tuple[str, ...]) -> dict[str, float]:
    """Implicit signals from KIND or KIND=VALUE. Raises UsageError."""
    from whet_client import IMPLICIT, KINDS

    numbers: dict[str, float] = {}
    for text in texts:
        kind, _, value = text.partition("=")
        if kind not in IMPLICIT:
            raise UsageError(f'--signal: there is no signal "{kind[:40]}".{did_you_mean(kind, IMPLICIT)}')
        try:
            number = float(value) if value else KINDS[kind].default
        except ValueError:
            raise UsageError(f'--signal: "{value[:40]}" is not a number. Write {kind}=1.') from None
        if number is None:
            raise UsageError(f"--signal: {kind} needs a value ({KINDS[kind].meaning}). Write {kind}=...")
        numbers[kind] = number
    return numbers


@feedback.command(
    epilog=examples(
        'whet feedback add 0198f2c1-... --rating 2 --comment "The total is wrong."',
        'whet feedback add 0198f2c1-... --correction "Restart it, then wait."',
        "whet feedback add 0198f2c1-... --choice 1 --over 0198f2c0-...",
        "whet feedback add order-7 --target-kind episode --signal external_check=1",
    )
)
@click.argument("target")
@options(
    click.option("--rating", type=float, metavar="1..5", help="Stars."),
    click.option("--thumb", type=click.Choice(["up", "down"])),
    click.option("--comment", metavar="TEXT", help="Comment, alone or together with a rating, thumb, score or "
                                                   "label."),
    click.option("--correction", metavar="TEXT", help="Correct answer, as it should have been."),
    click.option("--label", metavar="WORD", help="A category."),
    click.option("--score", type=float, metavar="X", help="Value of the metric that --metric names."),
    click.option("--metric", "name", metavar="NAME", help="Name of the score or label."),
    click.option("--choice", type=float, metavar="X", help="1: TARGET is better than --over. 0.5: as good. 0: worse."),
    click.option("--over", metavar="ID", help="Id of the other inference of a choice."),
    click.option("--signal", "signals", multiple=True, metavar="KIND=VALUE", help="copy, regenerate, dwell=12, ..."),
    click.option("--target-kind", default="inference", show_default=True, metavar="KIND",
                 help="Type of TARGET: inference, response, episode or session."),
    click.option("--source", default="annotator", show_default=True, metavar="WHO",
                 help="user, annotator, model or code."),
    click.option("--as", "user", metavar="NAME", help="Name of the person who gives the feedback (default: your "
                                                      "login name)."),
    click.option("--id", metavar="ID", help="Id of the feedback. If the id exists already, nothing "
                                            "changes."),
    json_option,
)  # fmt: skip
def add(target: str, target_kind: str, signals: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Add feedback about TARGET, the id of an inference."""
    from whet_client import feedback_of

    values = {**values, "user": values["user"] or login(), **_signals(signals)}
    known = {name: value for name, value in values.items() if value is not None}
    records = feedback_of(known, target_kind, target)
    with open_here(make=True) as live:
        receipt = live.traffic.add((), records)
        waits = [
            id for id in receipt.ids if (row := live.traffic.feedback(id)) is not None and row.about is None
        ]
    ids = {"ids": list(receipt.ids), "accepted": receipt.accepted, "duplicates": receipt.duplicates}
    print_result({**ids, "waiting": waits}, as_json, lambda stored: _show_added(records, stored))


def _show_added(records: Sequence[Feedback], stored: Mapping[str, Any]) -> None:
    for record in records:
        click.echo(f"{record.id}  {record.kind} about {record.target_kind} {show_hidden(record.target)}")
    if stored["duplicates"]:
        click.echo(f"{stored['duplicates']} of them were stored before.", err=True)
    if stored["waiting"]:
        kind, target = records[0].target_kind, show_hidden(records[0].target)
        click.echo(
            f"No answer with this {kind} is stored: {target}. The feedback counts when one comes.", err=True
        )


def _show_import(summary: Mapping[str, Any]) -> None:
    answers, rows = count_noun(summary["inferences"], "answer"), count_noun(summary["feedback"], "row")
    click.echo(f"Read: {answers}, {rows} of feedback.")
    for note in summary["notes"]:
        click.echo(show_hidden(note), err=True)
    for one in summary["skipped"]:
        click.echo(f"left out: {one['where']}: {show_hidden(one['reason'])}", err=True)
    if "accepted" not in summary:
        click.echo("Dry run: nothing is stored.")
        return
    click.echo(f"{summary['accepted']} are new, {summary['duplicates']} were stored before.")
    if waiting := summary["waiting"]:
        few = ", ".join(show_hidden(one) for one in dict.fromkeys(waiting[:3]))
        click.echo(
            f"{len(waiting)} of {rows} of feedback are about answers that are not stored ({few}"
            f"{', ...' if len(waiting) > 3 else ''}): they count when these come, by the same ids.",
            err=True,
        )
    for one in summary["conflicts"]:
        click.echo(f"left unchanged: {show_hidden(one['id'])}: {show_hidden(one['stored'])}", err=True)


def _scale(text: str) -> tuple[str, str]:
    """Column and scale from NAME=SCALE. Raises UsageError."""
    name, sign, scale = text.partition("=")
    if not sign or not name:
        raise UsageError(f'--scale: "{text[:40]}" is not NAME=SCALE. Write for example --scale rating=1..10.')
    return name, scale


@feedback.command(
    "import",
    epilog=examples(
        "whet feedback import langfuse.jsonl",
        "whet feedback import table.csv --prompt support --version 3 --scale rating=1..10",
        "whet feedback import spans.json annotations.csv --dry-run",
    )
    + "\n\nwhet recognizes files of OpenAI Evals, Langfuse, Phoenix, LangSmith and TensorZero, and "
    "plain tables, by their columns. Importing a file a second time changes nothing.",
)
@click.argument("files", nargs=-1, required=True)
@options(
    click.option("--prompt", metavar="NAME", help="Prompt of the answers whose row names no prompt."),
    click.option("--version", type=click.IntRange(min=0), default=0, metavar="N", help="Version of that prompt."),
    click.option("--scale", "scales", multiple=True, metavar="NAME=SCALE",
                 help="Scale of a column or metric: WORST..BEST, thumbs, stars or score (rating=1..10)."),
    good_and_bad_options,
    click.option("--dry-run", is_flag=True, help="Read and check all rows without storing them."),
    output(_show_import),
)  # fmt: skip
def import_(
    files: tuple[str, ...],
    prompt: str | None,
    version: int,
    scales: tuple[str, ...],
    good: tuple[str, ...],
    bad: tuple[str, ...],
    dry_run: bool,
) -> dict[str, Any]:
    """Store the answers and the feedback of FILES (.jsonl, .json, .csv)."""
    from whet_live.traffic import earlier_ids, read_files, store_imported

    stated = dict(_scale(text) for text in scales)
    batch = read_files(files, prompt, version, scales=stated, good=good, bad=bad)
    summary: dict[str, object] = {
        "inferences": len(batch.inferences),
        "feedback": len(batch.feedback),
        "skipped": [{"where": where, "reason": reason} for where, reason in batch.skipped],
        "notes": batch.notes,
    }
    if dry_run:
        return summary
    with open_here(make=True) as live:
        if earlier := earlier_ids(live.traffic):
            batch = read_files(files, prompt, version, earlier, stated, good, bad)
        outcome = store_imported(live.traffic, batch)
    clashes = [{"id": c.id, "stored": c.stored, "given": c.sent} for c in outcome.conflicts]
    return {
        **summary,
        "accepted": outcome.accepted,
        "duplicates": outcome.duplicates,
        "conflicts": clashes,
        "waiting": outcome.waiting,
    }


@feedback.command(
    "list",
    epilog=examples(
        "whet feedback list --prompt support --kind comment",
        'whet feedback list --text "wrong total" --since 2026-01-01 --json',
    ),
)
@options(
    _PROMPT, _VERSION,
    click.option("--kind", metavar="KIND", help="rating, thumb, comment, correction, copy, dwell, ..."),
    click.option("--user", metavar="NAME"),
    click.option("--source", metavar="WHO", help="user, annotator, model or code."),
    click.option("--text", metavar="WORDS", help="Only feedback that contains all of these words."),
    _SINCE,
    click.option("--until", metavar="DATE", help="End of the period."),
    click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N"),
    click.option("--after", "cursor", metavar="CURSOR", help="Cursor that the previous page printed."),
    json_option,
)  # fmt: skip
def list_(
    since: str | None, until: str | None, limit: int, cursor: str | None, as_json: bool, **wanted: Any
) -> None:
    """List feedback, the newest first."""
    from whet_client import KINDS
    from whet_client.records import SOURCES
    from whet_live.traffic import Filter

    kind = wanted["kind"]
    if kind is not None and kind not in KINDS:
        raise UsageError(f'--kind: there is no kind "{kind[:40]}" of feedback.{did_you_mean(kind, KINDS)}')
    source = wanted["source"]
    if source is not None and source not in SOURCES:
        raise UsageError(f'--source: "{source[:40]}" is none of {", ".join(SOURCES)}.')
    wanted |= {"since": _moment(since), "until": _moment(until)}
    with open_here() as live:
        page = live.traffic.find(Filter(**wanted), limit, cursor)
        if not page.rows and wanted["prompt"] is not None:
            _check_prompt(live, wanted["prompt"])
    rows = [{**one.feedback.as_json(), "prompt": one.prompt, "version": one.version} for one in page.rows]
    listed = {"feedback": rows, "after": page.next}
    print_result(listed, as_json, lambda _: _show_feedback(page.rows, page.next))


def _check_prompt(live: Live, name: str) -> None:
    """Raise UsageError for a prompt that neither the registry nor an answer names, with the nearest of those that are named."""
    if live.registry.exists(name) or live.traffic.counts([name]):
        return
    known = {one.prompt for one in live.traffic.counts() if one.prompt}
    known |= {item.name for item in live.registry.prompts(limit=500).items}
    hint = did_you_mean(name, known)
    if len(hint) > _LONGEST_HINT:
        hint = " List them with: whet prompts list."
    raise UsageError(f'--prompt: there is no prompt "{name[:60]}".{hint}')


def _show_feedback(rows: Sequence[StoredFeedback], after: str | None) -> None:
    for one in rows:
        record = one.feedback
        value = record.label if record.value is None else f"{record.value:g}"
        about = f"waits for {record.target_kind} {record.target}"
        if one.about is not None:
            about = f"{one.prompt} {one.version}"
        text = record.text and f'"{line(record.text)}"'
        join_cells(
            f"{record.as_json()['time'][:19]}Z", record.kind, record.name, value, about, record.user, text
        )
    if not rows:
        click.echo("There is no such feedback.", err=True)
    if after:
        click.echo(f"More: --after {after}", err=True)


def _show_weights(model: BehaviourModel) -> None:
    click.echo(
        f"{model.rated} of {model.answers} answers are rated, by {count_noun(model.sources, 'source')}.\n"
    )
    click.echo(f"{'signal':<22}{'weight':>8}  {'95% interval':<18}{'without correction':>20}")
    for weight in model.weights:
        bounds = f"[{weight.weight.low:+.2f}, {weight.weight.high:+.2f}]"
        click.echo(
            f"{weight.feature:<22}{weight.weight.value:>+8.2f}  {bounds:<18}{weight.naive.value:>+20.2f}"
        )
    click.echo(f"\nIntervals: {model.corrected.method}.")
    click.echo(
        "A weight is the change in the log-odds of a good rating per standard deviation of the signal."
    )
    click.echo(f"Mean rating of those who rated      {_interval(model.naive)}")
    click.echo(f"Estimate for all answers            {_interval(model.corrected)}")
    low, high = model.hidden
    click.echo(f"If the silent differ by odds of 2   {show_reward(low)} to {show_reward(high)}")
    click.echo(f"Explained in answers left out       {show_share(model.explained)} of the variance")
    for warning in model.warnings:
        warn(warning, err=True)


def _interval(one: Estimate) -> str:
    return f"{show_reward(one.value)}  [{show_reward(one.low)}, {show_reward(one.high)}]"


@feedback.command(
    epilog=examples("whet feedback weights support", "whet feedback weights support --version 3 --json")
)
@click.argument("prompt")
@options(_VERSION, _SINCE)
@output(_show_weights)
def weights(prompt: str, version: int | None, since: str | None) -> BehaviourModel:
    """Estimate the weight of each signal from the ratings of the same answers of PROMPT."""
    from whet_live.traffic import behaviour_of

    with open_here() as live:
        return behaviour_of(live.database, prompt, version, _moment(since))


def _show_rewards(estimates: VersionRewards) -> None:
    head = ("version", "segment", "answers", "rated", "joined estimate", "mean of the ratings", "")
    click.echo(f"{head[0]:<9}{head[1]:<16}{head[2]:>8}{head[3]:>7}  {head[4]:<28}{head[5]}")
    for one in estimates.rewards:
        joined = one.state if one.value is None else _interval(one.value)
        naive = "-" if one.naive is None else _interval(one.naive)
        name = show_hidden(one.segment)[:15] or "(all)"
        click.echo(f"{one.version:<9}{name:<16}{one.answers:>8}{one.rated:>7}  {joined:<28}{naive}")
    if estimates.model is None:
        click.echo(f"\nNot calibrated: {estimates.reason}")
    else:
        kinds = ", ".join(
            f"{weight.feature} {weight.weight.value:+.2f}" for weight in estimates.model.weights
        )
        click.echo(f"\nSignals are weighted by the ratings of the same answers: {kinds}.")
        click.echo(
            "Both figures range from 0 to 1. Their 95% intervals treat the answers of a user as one cluster."
        )
    if estimates.newest:
        warn(f"only the newest {estimates.answers:,} answers are counted; older ones are left out", err=True)
    for one in estimates.rewards:
        for note in one.notes:
            warn(
                f"version {one.version}{f' in {show_hidden(one.segment)}' if one.segment else ''}: {note}",
                err=True,
            )


@feedback.command(
    epilog=examples(
        "whet feedback rewards support", "whet feedback rewards support --by metadata.plan --json"
    )
)
@click.argument("prompt")
@options(
    click.option(
        "--by", default="", metavar="KEY", help="Also split the estimates by the values of metadata.KEY."
    ),
    _SINCE,
)
@output(_show_rewards)
def rewards(prompt: str, by: str, since: str | None) -> VersionRewards:
    """Estimate the value of the answers of each version of PROMPT from ratings and signals.

    The estimate is corrected for who rates and for which answers each version was drawn.
    """
    from whet_live.experiments import version_rewards_of

    with open_here() as live:
        return version_rewards_of(live.database, prompt, by=by, since=_moment(since))


@feedback.command(epilog=examples("whet feedback forget user-17", "whet feedback forget user-17 --yes"))
@click.argument("user")
@deletion_options
@json_option
def forget(user: str, actor: str | None, yes: bool, as_json: bool) -> None:
    """Delete all answers and all feedback of one user of the apps, permanently.

    The learner's quotes of this user are deleted too; the text of versions stays. The audit log records who deleted and how
    much, but not whose data. Delete copies in backups, exported files and run folders (runs/learn-*, runs/search-*) yourself.
    """
    from whet_live import erased_completely, forget_user

    by = actor_of(actor)
    _confirm(yes, f"Delete all answers and feedback of {show_hidden(user)} permanently?")
    with open_here() as live:
        gone = forget_user(live.database, user, actor=by)
        complete = erased_completely(live.database, READERS_SECONDS)

    def show(counts: Mapping[str, int]) -> None:
        if not (gone.inferences or gone.feedback):
            click.echo(
                f'Nothing of "{show_hidden(user)}" is stored. Check that the name is spelled as the app sends it.'
            )
            return
        click.echo(_describe_deleted(gone))
        if not complete:
            click.echo(
                "Another program is reading the database, so the -wal file still holds deleted text. "
                "When the reader is done, a running server removes this text. If no server runs, run "
                "this command again."
            )
        click.echo(
            "Not deleted: backups, exported files, and run folders (runs/learn-*, "
            "runs/search-*). Delete these yourself."
        )

    counts = {"inferences": gone.inferences, "feedback": gone.feedback, "complete": complete}
    print_result(counts, as_json, show)


@feedback.command(epilog=examples("whet feedback expire 2026-01-01"))
@click.argument("before", metavar="DATE")
@deletion_options
@json_option
def expire(before: str, actor: str | None, yes: bool, as_json: bool) -> None:
    """Delete answers and feedback that arrived before DATE, by the database's clock, permanently.

    Answers and feedback that a running experiment uses stay until it ends. `whet serve --retention-days N` deletes old rows
    regularly.
    """
    from whet_live import expire as delete
    from whet_live.database import microseconds

    moment, by = microseconds(before), actor_of(actor)
    _confirm(yes, f"Delete all answers and feedback before {show_hidden(before)} permanently?")
    with open_here() as live:
        gone = delete(live.database, moment, actor=by)

    def show(counts: Mapping[str, int]) -> None:
        click.echo(_describe_deleted(gone))
        if gone.spared:
            older = count_noun(gone.spared, "older answer")
            click.echo(f"Not deleted until a running experiment ends: {older}.")

    counts = {"inferences": gone.inferences, "feedback": gone.feedback, "spared": gone.spared}
    print_result(counts, as_json, show)


def _confirm(yes: bool, question: str) -> None:
    if yes:
        return
    try:
        agreed = click.confirm(question, default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise UsageError(
            "Nothing was deleted, because nobody at a terminal can confirm the "
            "deletion. To delete without confirmation, add --yes."
        ) from None
    if not agreed:
        click.echo("Nothing was deleted.", err=True)
        raise click.exceptions.Exit(1)


def _describe_deleted(gone: Erased) -> str:
    return (
        f"Deleted: {count_noun(gone.inferences, 'answer')}, {count_noun(gone.feedback, 'row')} of feedback."
    )
