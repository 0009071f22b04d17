"""`whet learn --watch`: learn from the feedback about live prompts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

import click

from whet.cli.common import (
    NAME_A_MODEL,
    emit,
    examples,
    json_option,
    learning_limit_option,
    learning_model_options,
    line,
    role_choices,
    say,
    show_hidden,
    warn,
)
from whet.errors import UsageError, WhetError
from whet_live.cli.common import open_at
from whet_live.cli.learner_options import learner_config, learner_options

_SHOWN = 300


@click.command(
    hidden=True,
    context_settings={"allow_extra_args": True},
    epilog=examples(
        "whet learn --watch --optimizer-lm openai/gpt-4o-mini",
        "whet learn --watch --gate shop/greeting=tasks/greeting --lm openai/gpt-4o-mini",
    ),
)
@click.option("--once", is_flag=True, help="Check once for new feedback, then end.")
@click.option("--database", metavar="URL", help="Default WHET_DATABASE_URL, else sqlite:///whet.db.")
@learning_model_options
@learning_limit_option
@json_option
@learner_options()
def learn(once: bool, as_json: bool, **options: object) -> None:
    """Learn from the feedback about live prompts until stopped, and write proposals to the registry."""
    if click.get_current_context().args:
        raise UsageError(
            "--watch learns from the traffic of a database. Omit PROMPT and the options about files."
        )
    _watch(role_choices(options), once=once, as_json=as_json)


def _watch(options: Mapping[str, Any], *, once: bool, as_json: bool) -> None:
    """Learn from the live traffic of a database until a signal says stop, or for one look.

    The first signal ends it after the step that is under way; a second one at once. Raises UsageError for a database, a
    model or a task that cannot be used.
    """
    from whet_live.learner import Learner, describe_patterns, describe_reading

    updates: list[dict[str, object]] = []

    def tell(update: Any) -> None:
        updates.append(update.as_json())
        if not as_json:
            _print_update(updates[-1])

    with open_at(options["database"]) as live:
        learner = Learner(
            live.database, live.registry, live.traffic, lambda: live.experiments, learner_config(options)
        )
        failed: Mapping[str, WhetError] = {}
        if not learner.context.config.reader:
            click.echo(f"No model is named, so comments wait for a person. {NAME_A_MODEL}", err=True)
        elif not once and (fault := learner.check_reader()):
            warn(f"the reader does not answer: {fault}", err=True)
        config = learner.context.config
        if config.reader:
            click.echo(describe_reading(learner.settings("*").reads), err=True)
        if text := describe_patterns(config.pattern_calls, config.reader):
            click.echo(text, err=True)
        if once:
            done, failed = learner.look()
            for update in done:
                tell(update)
            learner.keep()
        else:
            _until_stopped(lambda stop: learner.watch(stop, options["every"], tell))
    if as_json:
        emit({"updates": updates, "failed": {name: str(error) for name, error in failed.items()}})
    for name, error in failed.items():
        say(f"whet: {name}: {error}", err=True)
    if failed:
        click.get_current_context().exit(max(error.exit_code for error in failed.values()))


def _until_stopped(work: Callable[[threading.Event], None]) -> None:
    """Run `work` until SIGINT or SIGTERM comes."""
    stop = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    click.echo("Watching the traffic. Ctrl-C stops it after the step that is under way.", err=True)
    try:
        work(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_update(update: Mapping[str, Any]) -> None:
    """Print the outcome of an update, on one line."""
    about = update["proposal"] or (f"version {update['version']}" if update["version"] else "")
    about += f", tried in experiment {update['experiment']}" if update["experiment"] else ""
    demands = "; ".join(line(demand["text"], _SHOWN) for demand in update["requirements"])
    parts = [
        f"{show_hidden(update['name'])}: {update['outcome']} {about}".rstrip(),
        demands,
        update["reason"],
    ]
    click.echo("  ".join(part for part in parts if part))
