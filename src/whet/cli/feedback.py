"""`whet feedback`: what people and programs said about answers, added, imported, listed, weighed, deleted."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from whet.cli.prompts_options import actor_of
from whet.cli.prompts_output import emit
from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.live.installation import Live
    from whet.live.traffic import StoredFeedback
    from whet.live.traffic.behaviour import BehaviourModel, Estimate
    from whet.live.traffic.erase import Erased

_SHOWN = 200


@click.group(
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder."
)
@click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.")
@click.pass_context
def feedback(context: click.Context, database: str | None) -> None:
    """What people and programs said and did about answers."""
    context.obj = database


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _options(*options: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def declare(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return declare


_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_AS = click.option("--as", "actor", metavar="NAME", help="Who does it (default: your login name).")
_PROMPT = click.option("--prompt", metavar="NAME", help="Of one prompt.")
_VERSION = click.option("--version", type=click.IntRange(min=0), metavar="N", help="Of one version.")
_SINCE = click.option("--since", metavar="DATE", help="From this moment on (ISO 8601; UTC).")


def _live() -> Live:
    from whet.live.installation import open_live

    return open_live(click.get_current_context().obj)


def _moment(text: str | None) -> int | None:
    from whet.live.database import microseconds

    return None if text is None else microseconds(text)


def _signals(texts: tuple[str, ...]) -> dict[str, float]:
    """Implicit signals from KIND or KIND=VALUE. Raises UsageError."""
    from whet.client.records import IMPLICIT, KINDS
    from whet.errors import did_you_mean

    numbers: dict[str, float] = {}
    for text in texts:
        kind, _, value = text.partition("=")
        if kind not in IMPLICIT:
            raise UsageError(f'--signal: "{kind[:40]}" is no signal.{did_you_mean(kind, IMPLICIT)}')
        try:
            number = float(value) if value else KINDS[kind].default
        except ValueError:
            raise UsageError(f'--signal: "{value[:40]}" is no number. Write {kind}=1.') from None
        if number is None:
            raise UsageError(f"--signal: {kind} needs a value ({KINDS[kind].meaning}). Write {kind}=...")
        numbers[kind] = number
    return numbers


@feedback.command(
    epilog=_examples(
        'whet feedback add 0198f2c1-... --rating 2 --comment "The total is wrong."',
        'whet feedback add 0198f2c1-... --correction "Restart it, then wait."',
        "whet feedback add 0198f2c1-... --choice 1 --over 0198f2c0-...",
        "whet feedback add order-7 --target-kind episode --signal external_check=1",
    )
)
@click.argument("target")
@_options(
    click.option("--rating", type=float, metavar="1..5", help="Stars."),
    click.option("--thumb", type=click.Choice(["up", "down"])),
    click.option("--comment", metavar="TEXT", help="Alone, or beside a rating, thumb, score or label."),
    click.option("--correction", metavar="TEXT", help="The answer as it should have been."),
    click.option("--label", metavar="WORD", help="A category."),
    click.option("--score", type=float, metavar="X", help="A number under the name of a metric (--metric)."),
    click.option("--metric", "name", metavar="NAME", help="Name of the score or label."),
    click.option("--choice", type=float, metavar="X", help="1: better than --over, 0.5: as good, 0: worse."),
    click.option("--over", metavar="ID", help="The other inference of a choice."),
    click.option("--signal", "signals", multiple=True, metavar="KIND=VALUE", help="copy, regenerate, dwell=12, ..."),
    click.option("--target-kind", default="inference", show_default=True, metavar="KIND",
                 help="What TARGET is: inference, response, episode or session."),
    click.option("--source", default="annotator", show_default=True, metavar="WHO",
                 help="user, annotator, model or code."),
    click.option("--as", "user", metavar="NAME", help="Who says it (default: your login name)."),
    click.option("--id", metavar="ID", help="The same id again changes nothing."),
    _JSON,
)  # fmt: skip
def add(target: str, target_kind: str, signals: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Say something about TARGET, the id of an inference."""
    from whet.client.client import feedback_of

    options["user"] = options["user"] or _login()
    values = {name: value for name, value in {**options, **_signals(signals)}.items() if value is not None}
    records = feedback_of(values, target_kind, target)
    with _live() as live:
        receipt = live.traffic.add((), records)
    if as_json:
        emit({"ids": list(receipt.ids), "accepted": receipt.accepted, "duplicates": receipt.duplicates})
        return
    for record in records:
        click.echo(f"{record.id}  {record.kind} about {record.target_kind} {_plain(record.target)}")
    if receipt.duplicates:
        click.echo(f"{receipt.duplicates} of them stood there already.", err=True)


def _login() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


@feedback.command(
    "import",
    epilog=_examples(
        "whet feedback import langfuse.jsonl",
        "whet feedback import table.csv --prompt support --version 3",
        "whet feedback import spans.json annotations.csv --dry-run",
    )
    + "\n\nFiles of OpenAI Evals, Langfuse, Phoenix, LangSmith and TensorZero, and plain tables, are told apart by "
    "their columns. The same file again changes nothing.",
)
@click.argument("files", nargs=-1, required=True)
@_options(
    click.option("--prompt", metavar="NAME", help="For answers whose row names no prompt."),
    click.option("--version", type=click.IntRange(min=0), default=0, metavar="N", help="The version of that prompt."),
    click.option("--dry-run", is_flag=True, help="Read and check everything, store nothing."),
    _JSON,
)  # fmt: skip
def import_(files: tuple[str, ...], prompt: str | None, version: int, dry_run: bool, as_json: bool) -> None:
    """Store the answers and the feedback of FILES (.jsonl, .json, .csv)."""
    from whet.live.traffic.importers import read_files, store

    batch = read_files(files, prompt, version)
    summary: dict[str, Any] = {
        "inferences": len(batch.inferences),
        "feedback": len(batch.feedback),
        "skipped": [{"where": where, "reason": reason} for where, reason in batch.skipped],
    }
    if not dry_run:
        with _live() as live:
            outcome = store(live.traffic, batch)
        clashes = [{"id": c.id, "stored": c.stored, "given": c.sent} for c in outcome.conflicts]
        summary |= {"accepted": outcome.accepted, "duplicates": outcome.duplicates, "conflicts": clashes}
    if as_json:
        emit(summary)
        return
    _show_import(summary, dry_run)


def _show_import(summary: Mapping[str, Any], dry_run: bool) -> None:
    click.echo(f"{summary['inferences']} answers and {summary['feedback']} rows of feedback were read.")
    for row in summary["skipped"]:
        click.echo(f"left out: {row['where']}: {_plain(row['reason'])}", err=True)
    if dry_run:
        click.echo("Dry run: nothing is stored.")
        return
    click.echo(f"{summary['accepted']} are new, {summary['duplicates']} stood there already.")
    for row in summary["conflicts"]:
        click.echo(f"kept as it was: {_plain(row['id'])}: {_plain(row['stored'])}", err=True)


@feedback.command(
    "list",
    epilog=_examples(
        "whet feedback list --prompt support --kind comment",
        'whet feedback list --text "wrong total" --since 2026-01-01 --json',
    ),
)
@_options(
    _PROMPT, _VERSION,
    click.option("--kind", metavar="KIND", help="rating, thumb, comment, correction, copy, dwell, ..."),
    click.option("--user", metavar="NAME"),
    click.option("--source", metavar="WHO", help="user, annotator, model or code."),
    click.option("--text", metavar="WORDS", help="All of these words."),
    _SINCE,
    click.option("--until", metavar="DATE", help="Before this moment."),
    click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N"),
    click.option("--after", "cursor", metavar="CURSOR", help="Where the page before ended."),
    _JSON,
)  # fmt: skip
def list_(
    since: str | None, until: str | None, limit: int, cursor: str | None, as_json: bool, **wanted: Any
) -> None:
    """Feedback, newest first."""
    from whet.live.traffic import Filter

    wanted |= {"since": _moment(since), "until": _moment(until)}
    with _live() as live:
        page = live.traffic.find(Filter(**wanted), limit, cursor)
    if as_json:
        emit({"feedback": [_row(one) for one in page.rows], "after": page.next})
        return
    for one in page.rows:
        click.echo(_line(one))
    if not page.rows:
        click.echo("There is no such feedback.", err=True)
    if page.next:
        click.echo(f"More: --after {page.next}", err=True)


def _row(one: StoredFeedback) -> dict[str, Any]:
    return {**one.feedback.as_json(), "prompt": one.prompt, "version": one.version}


def _line(one: StoredFeedback) -> str:
    row = one.feedback
    value = row.label if row.value is None else f"{row.value:g}"
    about = (
        f"{one.prompt} {one.version}"
        if one.about is not None
        else f"waits for {row.target_kind} {row.target}"
    )
    words = " ".join((row.text or "").split())
    parts = (
        f"{row.as_json()['time'][:19]}Z", row.kind, row.name, value, about, row.user,
        f'"{words[:_SHOWN]}{"…" if len(words) > _SHOWN else ""}"' if words else None,
    )  # fmt: skip
    return "  ".join(_plain(part) for part in parts if part)


def _plain(text: str) -> str:
    from whet.instructions.guard import visible

    return visible(text)


@feedback.command(
    epilog=_examples("whet feedback weights support", "whet feedback weights support --version 3 --json")
)
@click.argument("prompt")
@_options(_VERSION, _SINCE, _JSON)
def weights(prompt: str, version: int | None, since: str | None, as_json: bool) -> None:
    """What people do as a reward: signals weighted by the ratings of the same answers of PROMPT."""
    from whet.live.traffic.dataset import behaviour_of

    with _live() as live:
        model = behaviour_of(live.database, prompt, version, _moment(since))
    if as_json:
        emit(model.as_json())
        return
    _show_weights(model)


def _show_weights(model: BehaviourModel) -> None:
    click.echo(f"{model.rated} of {model.answers} answers are rated, by {model.sources} sources.\n")
    click.echo(f"{'signal':<22}{'weight':>8}  {'95 % interval':<18}{'without correction':>20}")
    for one in model.weights:
        bounds = f"[{one.weight.low:+.2f}, {one.weight.high:+.2f}]"
        click.echo(f"{one.feature:<22}{one.weight.value:>+8.2f}  {bounds:<18}{one.naive.value:>+20.2f}")
    click.echo(
        "\nA weight is the change of the log-odds of a good rating for one standard deviation of the signal."
    )
    click.echo(f"Mean rating of those who rated      {_interval(model.naive)}")
    click.echo(f"Estimate for all answers            {_interval(model.corrected)}")
    low, high = model.hidden
    click.echo(f"If the silent differ by odds of 2   {low:.3f} to {high:.3f}")
    click.echo(f"Explained in answers left out       {model.explained:.0%} of the variance")
    for warning in model.warnings:
        click.echo(click.style(f"warning: {warning}", fg="yellow"), err=True)


def _interval(one: Estimate) -> str:
    return f"{one.value:.3f}  [{one.low:.3f}, {one.high:.3f}]"


@feedback.command(epilog=_examples("whet feedback forget user-17", "whet feedback forget user-17 --yes"))
@click.argument("user")
@_options(_AS, _YES, _JSON)
def forget(user: str, actor: str | None, yes: bool, as_json: bool) -> None:
    """Delete every answer and all feedback of one user of the apps, for good.

    What the learner quotes of them goes too; the text of versions stays. The audit log says who did it and how much it
    was, not whose. Backups, exported files, and the learner's run folders (runs/learn-*) are left to you.
    """
    from whet.live.erasure import forget_user

    by = actor_of(actor)
    _sure(yes, f"Delete everything of {_plain(user)}, for good?")
    with _live() as live:
        gone = forget_user(live.database, user, actor=by)
    if as_json:
        emit({"inferences": gone.inferences, "feedback": gone.feedback})
        return
    if not gone.inferences and not gone.feedback:
        click.echo(f'Nothing of "{_plain(user)}" is stored. Is the name spelt as the app sends it?')
        return
    click.echo(_deleted(gone))
    click.echo("Left to you: backups, exported files, and the learner's run folders (runs/learn-*).")


@feedback.command(epilog=_examples("whet feedback expire 2026-01-01"))
@click.argument("before", metavar="DATE")
@_options(_AS, _YES, _JSON)
def expire(before: str, actor: str | None, yes: bool, as_json: bool) -> None:
    """Delete answers and feedback of the time before DATE, for good. What was learned from them stays.

    What a running experiment counts stays until it ends. `whet serve --retention-days N` does the same by itself.
    """
    from whet.live.database import microseconds
    from whet.live.erasure import expire as delete

    moment, by = microseconds(before), actor_of(actor)
    _sure(yes, f"Delete everything before {_plain(before)}, for good?")
    with _live() as live:
        gone = delete(live.database, moment, actor=by)
    if as_json:
        emit({"inferences": gone.inferences, "feedback": gone.feedback, "spared": gone.spared})
        return
    click.echo(_deleted(gone))
    if gone.spared:
        click.echo(f"{_count(gone.spared, 'older answer')} stayed: a running experiment counts on it.")


def _sure(yes: bool, question: str) -> None:
    if not yes and not click.confirm(question, default=False, err=True):
        click.echo("Nothing was deleted.", err=True)
        raise click.exceptions.Exit(1)


def _deleted(gone: Erased) -> str:
    return f"Deleted: {_count(gone.inferences, 'answer')}, {_count(gone.feedback, 'row')} of feedback."


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
