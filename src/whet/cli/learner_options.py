"""What `whet learn --watch` and `whet serve` have in common: with what the learner of live prompts works."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.live.learner.context import LearnerConfig

NAMES = ("gates", "lm", "gate_calls", "every", "experiment", "group")
"""The parameters that `teaching_options` adds."""


def _options(help_text: Callable[[str], str]) -> tuple[Callable[..., Any], ...]:
    """The options, with help texts as `help_text` writes them."""
    return (
        click.option(
            "--every",
            type=click.FloatRange(min=0.1),
            default=5.0,
            show_default=True,
            metavar="S",
            help=help_text("seconds between looks."),
        ),
        click.option(
            "--group-by-meaning",
            "group",
            is_flag=True,
            help=help_text("put likely neighbours together while no model reads them (whet[embedded])."),
        ),
        click.option(
            "--experiment",
            metavar="FILE",
            callback=_read,
            help=help_text("what an experiment with a learned version measures (JSON)."),
        ),
        click.option(
            "--max-gate-calls",
            "gate_calls",
            type=click.IntRange(min=1),
            metavar="N",
            help=help_text("limit on model calls of one attempt at the gate."),
        ),
        click.option(
            "--lm",
            metavar="ADDR",
            help=help_text(
                "the model that answers as the prompts would: at the gate, and for the answers that a proposal shows."
            ),
        ),
        click.option(
            "--gate",
            "gates",
            multiple=True,
            metavar="NAME=TASK",
            help=help_text("the task folder that a prompt ('*': every one) is gated on."),
        ),
    )


def teaching_options(when: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """--gate, --lm, --max-gate-calls, --experiment, --group-by-meaning and --every; each help text begins with `when`."""

    def help_text(text: str) -> str:
        return when + text if when else text[0].upper() + text[1:]

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        for option in _options(help_text):
            command = option(command)
        return command

    return declare


def _read(context: click.Context, parameter: click.Parameter, file: str | None) -> Any:
    if file is None:
        return None
    try:
        return json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file} cannot be read as JSON: {error}.") from None


def teaching_of(options: Mapping[str, Any], root: Path = Path("runs")) -> LearnerConfig:
    """What the learner teaches with: these options, `optimizer_lm`, `base_url` and `most_calls`; journals go to `root`.
    Raises UsageError."""
    from whet.live.learner.context import LearnerConfig
    from whet.live.learner.gating import GateConfig

    benches = {}
    for gate in options["gates"]:
        name, equals, folder = gate.rpartition("=")
        if not equals or not name:
            raise UsageError(
                f'"{gate}" does not say NAME=TASK. Write for example --gate shop/greeting=tasks/greeting.'
            )
        if not Path(folder).is_dir():
            raise UsageError(f"{folder}: there is no such task folder.")
        benches[name] = GateConfig(
            Path(folder), options["lm"], base_url=options["base_url"], calls=options["gate_calls"], root=root
        )
    if options["experiment"] is not None:
        from whet.live.experiments.definition import read

        if not isinstance(options["experiment"], Mapping):
            raise UsageError('The file of --experiment holds an object, such as {"goal": {"name": "thumb"}}.')
        arms = [{"version": 1}, {"version": 2}]
        read({**options["experiment"], "prompt": "any", "label": "production", "arms": arms})
    return LearnerConfig(
        options["optimizer_lm"],
        options["base_url"],
        options["most_calls"],
        benches,
        options["experiment"],
        root,
        options["lm"],
        group=options["group"],
    )
