"""The options that `whet learn --watch` and `whet serve` share: the settings of the learner of live prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import Command, judge_options, option_of_role, options
from whet.errors import UsageError, parameter

if TYPE_CHECKING:
    from whet_live.learner import EvaluatorConfig, LearnerConfig, SearchConfig

NAMES = (
    "gates",
    "evaluators",
    "evaluations",
    "low_grade",
    "searches",
    "search_method",
    "search_calls",
    "search_usd",
    "lm",
    "task_options",
    "judge_lm",
    "judge_base_url",
    "judge_options",
    "gate_calls",
    "pattern_calls",
    "every",
    "experiment",
    "group",
)
"""The parameters that `learner_options` adds."""


def learner_options() -> Callable[[Command], Command]:
    """The settings of the learner: gates, evaluators, searches, their models and limits, experiments, and how often it
    looks."""
    answers = "Model that answers under the prompts: at the gate, and for the answers that a proposal shows."
    gate = "Task folder on which the gate tests a prompt ('*': every prompt)."
    judges = "Judge model at the gate (default: the task's own)."
    calls = "Limit on model calls of one gate test."
    evaluates = "Task folder whose reward grades live answers of a prompt."
    experiment = "JSON file with the goal of experiments with learned versions."
    group = "Group similar comments while no model reads them (whet[embedded])."
    every: dict[str, Any] = {
        "default": 5.0,
        "show_default": True,
        "help": "Seconds between two checks for new feedback.",
    }
    return options(
        click.option("--gate", "gates", multiple=True, metavar="NAME=TASK", help=gate),
        click.option("--evaluate", "evaluators", multiple=True, metavar="NAME=TASK", help=evaluates),
        click.option(
            "--evaluations-per-day",
            "evaluations",
            type=click.IntRange(min=1),
            default=100,
            show_default=True,
            metavar="N",
            help="Number of answers that an evaluator grades a day.",
        ),
        click.option(
            "--low-grade",
            type=click.FloatRange(0, 1),
            default=0.5,
            show_default=True,
            metavar="X",
            help="A grade below this share of the range counts as a critique.",
        ),
        click.option(
            "--search",
            "searches",
            multiple=True,
            metavar="NAME[=TASK]",
            help="Search for a better prompt once a day, on a task folder or on the traffic.",
        ),
        click.option(
            "--search-method", metavar="METHOD", help="Search method (default: a method that fits the task)."
        ),
        click.option(
            "--search-calls-per-day",
            "search_calls",
            type=click.IntRange(min=1),
            default=500,
            show_default=True,
            metavar="N",
            help="Limit on model calls of a day's search.",
        ),
        click.option(
            "--search-usd-per-day",
            "search_usd",
            type=click.FloatRange(min=0, min_open=True),
            metavar="X",
            help="Limit on dollars of a day's search.",
        ),
        click.option(
            "--pattern-calls-per-day",
            "pattern_calls",
            type=click.IntRange(min=0),
            default=24,
            show_default=True,
            metavar="N",
            help="Limit on calls that sort a prompt's critiques into patterns of failures (0: never).",
        ),
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
    """The configuration of the learner: these options, `optimizer_lm`, `base_url` and `most_calls`, with the models as
    `role_choices` gives them; journals go to `root`. Raises UsageError."""
    from whet_live.learner import GateConfig, LearnerConfig

    optimizer, answerer = chosen["optimizer_lm"], chosen["lm"]
    if isinstance(optimizer, Mapping) and "address" not in optimizer:
        raise UsageError(
            f"Options of the optimizer model are given, but {parameter('optimizer_lm')} names no "
            "model. Add its address."
        )
    gates = {}
    for gate in chosen["gates"]:
        name, folder = _name_and_task(gate, "--gate")
        gates[name] = GateConfig(
            folder,
            answerer,
            judge_lm=chosen["judge_lm"],
            base_url=chosen["base_url"],
            calls=chosen["gate_calls"],
            root=root,
        )
    if chosen["experiment"] is not None:
        from whet_live.experiments import read_definition

        if not isinstance(chosen["experiment"], Mapping):
            raise UsageError(
                'The file of --experiment must hold a JSON object, such as {"goal": {"name": "thumb"}}.'
            )
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
        evaluators=_evaluators(chosen, root),
        searches=_searches(chosen, root),
        pattern_calls=chosen["pattern_calls"],
    )


def _searches(chosen: Mapping[str, Any], root: Path) -> tuple[SearchConfig, ...]:
    """The searches that the options name."""
    from whet.methods import get_method
    from whet_live.learner import SearchConfig, check_searches

    if chosen["search_method"] is not None:
        get_method(chosen["search_method"])
    configs = list[SearchConfig]()
    for text in chosen["searches"]:
        name, task = _name_and_task(text, "--search") if "=" in text else (text, None)
        configs.append(
            SearchConfig(
                name, task, chosen["search_method"], chosen["search_calls"], chosen["search_usd"], chosen["lm"],
                chosen["optimizer_lm"], chosen["judge_lm"], chosen["base_url"], root,
            )
        )  # fmt: skip
    check_searches(configs)
    return tuple(configs)


def _evaluators(chosen: Mapping[str, Any], root: Path) -> tuple[EvaluatorConfig, ...]:
    """The evaluators that the options name, each with a task that it can grade answers by."""
    from whet_live.learner import EvaluatorConfig, describe_evaluators

    pairs = [_name_and_task(text, "--evaluate") for text in chosen["evaluators"]]
    daily, low = chosen["evaluations"], chosen["low_grade"]
    configs = tuple(
        EvaluatorConfig(name, task, daily, low, chosen["judge_lm"], chosen["base_url"], root)
        for name, task in pairs
    )
    for text in describe_evaluators(configs):
        click.echo(f"Evaluator: {text}.", err=True)
    return configs


def _name_and_task(text: str, option: str) -> tuple[str, Path]:
    name, equals, folder = text.rpartition("=")
    if not equals or not name:
        raise UsageError(
            f'"{text}" is not NAME=TASK. Write for example {option} shop/greeting=tasks/greeting.'
        )
    if not Path(folder).is_dir():
        raise UsageError(f"{folder}: there is no such task folder.")
    return name, Path(folder)
