"""`whet transfer`: the prompts of a finished run with other task models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    TRIAL_LIMITS,
    dry_run_option,
    examples,
    json_option,
    judge_options,
    limit_options,
    model_options,
    print_result,
    role_choices,
    say,
    show_table,
    warn,
    with_budget,
    with_options,
)
from whet.cli.interrupt import run as run_stoppable
from whet.cli.show import show_dollars, show_interval
from whet.engine import TransferJSON
from whet.errors import show_reward


@click.command(
    "transfer",
    epilog=examples(
        "whet transfer runs/mytask-opro-0 --lm openai/gpt-4o --lm openai/gpt-4o-mini",
        "whet transfer mytask-opro-0 --lm openai/qwen3 --base-url http://localhost:8000/v1 --json",
        "whet transfer mytask-opro-0 --lm openai/gpt-4o --split test   # an opening of the sealed test",
    ),
)
@click.argument("run")
@model_options("Task model; may be repeated. What the other options say of it holds for all.", several=True)
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="train, validation or test (each use of test is an opening, counted for each model).",
)
@click.option("--task", metavar="DIR", help="The run's task folder, where it has moved.")
@judge_options("Model that judges (default: the judge of the run).")
@limit_options(TRIAL_LIMITS)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@dry_run_option
@json_option
def transfer(run: str, lm: tuple[str, ...], task: str | None, as_json: bool, **options: Any) -> None:
    """What start prompt and best prompt of the finished run RUN are worth with other task models, unchanged."""
    from whet.api import atransfer

    place, how = None if task is None else Path(task), options.pop("task_options")
    models = [with_options(address, None, how) for address in lm]
    result = run_stoppable(atransfer(run, models, task=place, **with_budget(role_choices(options))))
    print_result(result, as_json, show)


def show(values: TransferJSON) -> None:
    """Both prompts with each model, the run's own first."""
    if values["status"] == "planned":
        return
    say(f"{values['task']} · {values['run']} · {values['split']} rows\n")
    rows = []
    for row in values["models"]:
        gain = row["gain"]
        name = f"{row['model']} (SIMULATED)" if row["simulated"] else row["model"]
        ends = (gain["difference"], gain["low"], gain["high"])
        difference, low, high = (show_reward(value, sign=True) for value in ends)
        known = [difference, f"[{low}, {high}]"] if gain.get("n", 1) else ["no answer", "-"]
        rows.append([name, show_interval(row["baseline"]), show_interval(row["best"]), *known])
    home = values["home"]
    if home.get("baseline") and home.get("best"):
        own = [show_interval(home["baseline"]), show_interval(home["best"])]
        rows.insert(0, [f"{home['model']} (the run's)", *own, "-", "-"])
    show_table(["model", "start prompt", "best prompt", "difference", "95% interval"], rows)
    usage = values["usage"]
    cost = show_dollars(usage)
    cost += ", price unknown: say it with --lm-option price.input=USD" if usage.get("price_unknown") else ""
    say(f"\ncalls: {sum(usage['calls'].values())}{cost}")
    for warning in values["warnings"]:
        warn(warning)
