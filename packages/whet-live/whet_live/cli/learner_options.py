"""What `whet learn --watch` and `whet serve` have in common: with what the learner of live prompts works."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import Command, judge_options, option_of_role, options
from whet.errors import UsageError, parameter

if TYPE_CHECKING:
    from whet_live.learner import LearnerConfig

NAMES = (
    "gates",
    "lm",
    "task_options",
    "judge_lm",
    "judge_base_url",
    "judge_options",
    "gate_calls",
    "every",
    "experiment",
    "group",
)
"""The parameters that `learner_options` adds."""


def learner_options() -> Callable[[Command], Command]:
    """--gate, the models that answer and judge there, --max-gate-calls, --experiment, --group-by-meaning and --every."""
    answers = (
        "The model that answers as the prompts would: at the gate, and for the answers that a proposal shows."
    )
    gate = "The task folder that a prompt ('*': every one) is gated on."
    judges = "The model that judges at the gate (default: the task's own)."
    calls = "Limit on model calls of one attempt at the gate."
    experiment = "What an experiment with a learned version measures (JSON)."
    group = "Put likely neighbours together while no model reads them (whet[embedded])."
    every: dict[str, Any] = {
        "default": 5.0,
        "show_default": True,
        "help": "Seconds between looks.",
    }
    return options(
        click.option("--gate", "gates", multiple=True, metavar="NAME=TASK", help=gate),
        click.option("--lm", metavar="ADDR", help=answers),
        option_of_role("task", "--lm-option", "task_options"),
        judge_options(judges),
        click.option("--max-gate-calls", "gate_calls", type=click.IntRange(min=1), metavar="N", help=calls),
        click.option("--experiment", metavar="FILE", callback=_read, help=experiment),
        click.option("--group-by-meaning", "group", is_flag=True, help=group),
        click.option("--every", type=click.FloatRange(min=0.1), metavar="S", **every),
    )


def _read(context: click.Context, parameter: click.Parameter, file: str | None) -> object:
    if file is None:
        return None
    try:
        return json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file} cannot be read as JSON: {error}.") from None


def learner_config(chosen: Mapping[str, Any], root: Path = Path("runs")) -> LearnerConfig:
    """What the learner works with: these options, `optimizer_lm`, `base_url` and `most_calls`, the models as `role_choices`
    gives them; journals go to `root`. Raises UsageError."""
    from whet_live.learner import GateConfig, LearnerConfig

    optimizer, answerer = chosen["optimizer_lm"], chosen["lm"]
    if isinstance(optimizer, Mapping) and "address" not in optimizer:
        raise UsageError(
            f"{parameter('optimizer_lm')} names no model, and other options say how it is asked. Add its address."
        )
    gates = {}
    for gate in chosen["gates"]:
        name, equals, folder = gate.rpartition("=")
        if not equals or not name:
            raise UsageError(
                f'"{gate}" does not say NAME=TASK. Write for example --gate shop/greeting=tasks/greeting.'
            )
        if not Path(folder).is_dir():
            raise UsageError(f"{folder}: there is no such task folder.")
        gates[name] = GateConfig(
            Path(folder),
            answerer,
            judge_lm=chosen["judge_lm"],
            base_url=chosen["base_url"],
            calls=chosen["gate_calls"],
            root=root,
        )
    if chosen["experiment"] is not None:
        from whet_live.experiments import read_definition

        if not isinstance(chosen["experiment"], Mapping):
            raise UsageError('The file of --experiment holds an object, such as {"goal": {"name": "thumb"}}.')
        arms = [{"version": 1}, {"version": 2}]
        read_definition({**chosen["experiment"], "prompt": "any", "label": "production", "arms": arms})
    return LearnerConfig(
        optimizer,
        chosen["base_url"],
        chosen["most_calls"],
        gates,
        chosen["experiment"],
        root,
        None if isinstance(answerer, Mapping) and "address" not in answerer else answerer,
        group=chosen["group"],
    )
