"""`whet feedback patterns`: the ways in which answers of a prompt fail, as the reader named them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import (
    NAME_A_MODEL,
    count_noun,
    examples,
    json_option,
    learning_model_options,
    line,
    options,
    print_result,
    role_choices,
    show_hidden,
)
from whet.errors import UsageError, show_share
from whet_live.cli.common import actor_of, by_options, open_here

if TYPE_CHECKING:
    from whet_live.learner import FailurePattern, Learner, PatternReport


@click.command(
    epilog=examples(
        "whet feedback patterns support",
        "whet feedback patterns support --read --optimizer-lm openai/gpt-4o-mini",
        "whet feedback patterns support --rename k3 'Prices without tax'",
        "whet feedback patterns support --merge k5 k3 --reason 'the same failure'",
    )
)
@click.argument("prompt")
@click.option("--read", is_flag=True, help="Have the reader sort the critiques that wait, before.")
@options(
    click.option("--weeks", type=click.IntRange(1, 52), default=8, show_default=True, metavar="N", help="Weeks to show."),
    click.option(
        "--pattern-calls-per-day", "daily", type=click.IntRange(min=1), default=24, show_default=True, metavar="N",
        help="With --read: limit on calls of the reader today, those of a server included.",
    ),
)  # fmt: skip
@options(
    click.option("--rename", nargs=2, metavar="ID NAME", help="Give the pattern ID (k3) another name."),
    click.option("--description", metavar="TEXT", help="With --rename: also another description."),
    click.option("--merge", nargs=2, metavar="ID INTO", help="Put the critiques of the pattern ID into the pattern INTO."),
)  # fmt: skip
@by_options
@learning_model_options
@json_option
def patterns(prompt: str, read: bool, weeks: int, daily: int, as_json: bool, **chosen: Any) -> None:
    """The ways in which answers of PROMPT fail, with counts, trend and examples.

    The reader, a model, puts each critique (comment, correction, rating with words, low grade of an evaluator) into one pattern
    and names the patterns; whet counts. Known names stay when critiques are added. A person may rename patterns and merge two of
    them, which cannot be undone.
    """
    from whet_live.learner import Learner, LearnerConfig

    edits = {name: chosen.pop(name) for name in ("rename", "description", "merge", "actor", "reason")}
    _check_edits(edits)
    models = role_choices(chosen)
    reader = models["optimizer_lm"]
    if not read and reader is not None:
        raise UsageError("A model is named, but nothing is to be read. Add --read, or leave the model out.")
    config = LearnerConfig(reader, models["base_url"], root=Path("runs"))
    if read and not config.reader:
        raise UsageError(f"--read needs a model that reads. {NAME_A_MODEL}")
    with open_here() as live:
        learner = Learner(live.database, live.registry, live.traffic, config=config, learns=False)
        _edit_patterns(learner, prompt, edits)
        if read:
            step = learner.name_patterns(prompt, daily)
            click.echo(
                f"{count_noun(step.critiques, 'critique')} sorted in {count_noun(step.calls, 'call')}.",
                err=True,
            )
        report = learner.patterns(prompt, weeks)
    print_result(report, as_json, _show)


def _check_edits(edits: Mapping[str, Any]) -> None:
    """Raises UsageError for options that change nothing by themselves."""
    changes = [f"--{name}" for name in ("rename", "merge") if edits[name]]
    if edits["description"] is not None and not edits["rename"]:
        raise UsageError("--description belongs to --rename. Add --rename ID NAME.")
    if (edits["actor"] or edits["reason"]) and not changes:
        raise UsageError("--as and --reason belong to a change. Add --rename ID NAME or --merge ID INTO.")


def _edit_patterns(learner: Learner, prompt: str, edits: Mapping[str, Any]) -> None:
    if not (edits["rename"] or edits["merge"]):
        return
    by = {"actor": actor_of(edits["actor"]), "reason": edits["reason"]}
    if edits["rename"]:
        key, name = edits["rename"]
        learner.rename_pattern(prompt, key, name, description=edits["description"], **by)
    if edits["merge"]:
        key, into = edits["merge"]
        moved = learner.merge_patterns(prompt, key, into, **by)
        click.echo(
            f"{count_noun(moved, 'critique')} moved from {show_hidden(key)} to {show_hidden(into)}.", err=True
        )


def _show(report: PatternReport) -> None:
    for pattern in report.patterns:
        _show_pattern(pattern)
    if not report.patterns:
        click.echo("No critique of this prompt is in a pattern yet.")
    rest = [
        f"{report.in_patterns} in patterns",
        f"{report.no_failure} report no failure",
        f"{report.withheld} look like attacks and were not read",
        f"{report.unreadable} could not be read",
        f"{report.waiting} wait for the reader",
    ]
    click.echo(f"Critiques: {', '.join(rest)}.")
    if report.day:
        click.echo(f"The reader was last asked on {report.day}, in {count_noun(report.calls, 'call')}.")


def _show_pattern(one: FailurePattern) -> None:
    from whet_live.database import iso

    critiques, users = count_noun(one.critiques, "critique"), count_noun(one.users, "user")
    click.echo(f"{one.id}  {line(one.name)}")
    if one.description:
        click.echo(f"    {line(one.description, 400)}")
    period = f"{iso(one.first)[:10]} to {iso(one.last)[:10]}"
    click.echo(f"    {critiques}, about answers to {users}, {period}; named by {show_hidden(one.model)}")
    for week in one.weeks:
        if week.share is None or week.low is None or week.high is None:
            of, share = "", ""
        else:
            of = f" of {week.active:,}"
            share = f"  {show_share(week.share)} [{show_share(week.low)}, {show_share(week.high)}]"
        counts = f"{count_noun(week.critiques, 'critique')}, {count_noun(week.users, 'user')}"
        click.echo(f"    week of {iso(week.at)[:10]}: {counts}{of}{share}")
    click.echo(f"    answers: {', '.join(map(show_hidden, one.examples))}\n")
