"""`whet prompts learning`: how a prompt learns by itself, what it waits for, and what people say about that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from whet.cli.prompts_options import actor_of, by_options, examples, json_option, open_here
from whet.cli.prompts_output import emit, line, row
from whet.errors import UsageError

READERS = "--optimizer-lm openai/NAME, for a local one with --base-url http://localhost:11434/v1"


def _rules(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE as JSON values, a text where the value is no JSON."""
    import json

    rules: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f'"{value}" is not KEY=VALUE.')
        try:
            rules[key.strip()] = json.loads(text)
        except ValueError:
            rules[key.strip()] = text
    return rules


@click.command(
    epilog=examples(
        "whet prompts learning shop/greeting",
        "whet prompts learning shop/greeting --mode auto --rule quorum=8 --rule share=0.1",
        "whet prompts learning '*' --mode off",
        "whet prompts learning shop/greeting --accept 'requirement r12' --reason 'we want that'",
        "whet prompts learning shop/greeting --write 'row 0190…' 'Name the price with tax.'",
    )
)
@click.argument("name")
@click.option(
    "--mode", metavar="MODE", help="propose (a person decides), auto (gate and stages decide), or off."
)
@click.option("--label", metavar="LABEL", help="The label that stands on the version to teach.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_rules,
    help="quorum, share, per_source, ...",
)
@click.option(
    "--accept", multiple=True, metavar="KEY", help="A row in quarantine by its id, or 'requirement KEY'."
)
@click.option("--dismiss", multiple=True, metavar="KEY", help="The same, to be left out for good.")
@click.option(
    "--write",
    "texts",
    nargs=2,
    multiple=True,
    metavar="KEY TEXT",
    help="The instruction for a requirement, by its key; it is thereby accepted.",
)
@by_options
@json_option
def learning(
    name: str, mode: str | None, label: str | None, rules: Mapping[str, Any], as_json: bool, **options: Any
) -> None:
    """How the prompt NAME ('*': every one) learns from its traffic, and what it waits for."""
    decided = [(key, True) for key in options["accept"]] + [(key, False) for key in options["dismiss"]]
    if name == "*" and (decided or options["texts"]):
        raise UsageError("Rows and requirements belong to one prompt. Name it.")
    with open_here() as live:
        learner, by = live.learner, actor_of(options["actor"])
        before = learner.settings(name)
        settings = replace(
            before, mode=mode or before.mode, label=label or before.label, rules={**before.rules, **rules}
        )
        if settings != before:
            learner.configure(name, settings, actor=by)
        for key, accepted in decided:
            learner.decide(name, key, accepted, actor=by, reason=options["reason"])
        for key, text in options["texts"]:
            learner.write(name, key, text, actor=by, reason=options["reason"])
        status = {"name": name, "settings": settings.as_json()} if name == "*" else _status(live, name)
    if as_json:
        emit(status)
    else:
        _show(status)


def _status(live: Any, name: str) -> dict[str, Any]:
    live.registry.labels(name)
    status: dict[str, Any] = live.learner.status(name)
    return status


def _show(status: Mapping[str, Any]) -> None:
    settings = status["settings"]
    policy = "  ".join(f"{key}={value}" for key, value in settings["policy"].items() if value != [])
    row(status["name"], f"mode {settings['mode']}", f"label {settings['label']}", policy)
    if status.get("warning"):
        click.echo(f"      {status['warning']}")
    if status.get("to_read") and not status.get("reader"):
        click.echo(
            f"      {status['to_read']} comments are not read; name a model to whoever learns: {READERS}"
        )
    for one in status.get("requirements", ()):
        row(
            "requirement",
            one["key"],
            one["state"],
            f"{one['sources']:g} of {one['needed']:g} sources",
            one["text"],
        )
        for text, sources in one["against"].items():
            click.echo(f"      against it ({sources:g} sources): {line(text)}")
        if one["rejected"]:
            click.echo(f"      rejected before: {line(one['rejected'])}")
    for one in status.get("quarantine", ()):
        row("quarantine", one["id"], one["source"], *one["reasons"])
    for one in status.get("updates", ()):
        about = one["proposal"] or (f"version {one['version']}" if one["version"] else "")
        row("update", one["at"], one["outcome"], about, one["reason"])
