"""`whet transfer`: the prompts of a finished run with other task models, or those of several runs with the models of all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from whet.api import show_gaps
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
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.show import show_dollars, show_interval
from whet.engine import MatrixJSON, MeanJSON, TransferJSON, UsageJSON
from whet.errors import show_reward


@click.command(
    "transfer",
    epilog=examples(
        "whet transfer runs/mytask-opro-0 --lm openai/gpt-4o --lm openai/gpt-4o-mini",
        "whet transfer mytask-opro-0 --lm openai/qwen3 --base-url http://localhost:8000/v1 --json",
        "whet transfer mytask-opro-0 --lm openai/gpt-4o --split test   # an opening of the sealed test",
        "whet transfer runs/on-gpt-4o runs/on-qwen3 runs/on-llama --split test   # each prompt on each model",
    ),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@model_options(
    "Task model (repeatable; with several runs, the default is their models). The other options "
    "apply to all models.",
    several=True,
)
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="train, validation or test. Each use of test counts as an opening, separately for each model.",
)
@click.option("--task", metavar="DIR", help="Task folder of the run, if the folder has moved.")
@judge_options("Judge model, which scores answers (default: the judge of the run).")
@limit_options(TRIAL_LIMITS)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@click.option("--fresh", is_flag=True, help="Call the models again instead of using an earlier transfer.")
@dry_run_option
@json_option
def transfer(
    runs: tuple[str, ...], lm: tuple[str, ...], task: str | None, as_json: bool, **options: Any
) -> None:
    """Measure the start prompt and the best prompt of the finished run RUN with other task models, unchanged.

    With several runs of one task, each with a different task model, the command measures each found prompt on each of these
    models. The matrix shows whether prompts are worth more with the model for which they were found.
    """
    from whet.api import atransfer, atransfer_matrix

    place, how = None if task is None else Path(task), options.pop("task_options")
    models = [with_options(address, None, how) for address in lm]
    if how and not lm:
        raise click.UsageError("--lm-option sets options of the models. Also name the models with --lm ADDR.")
    known = with_budget(role_choices(options))
    if len(runs) > 1:
        matrix = run_stoppable(atransfer_matrix(runs, lms=models, task=place, **known))
        print_result(matrix, as_json, show_matrix)
        return
    print_result(run_stoppable(atransfer(runs[0], models, task=place, **known)), as_json, show_transfer)


def show_transfer(values: TransferJSON) -> None:
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
    _show_end(values["usage"], values["warnings"])


def show_matrix(values: MatrixJSON) -> None:
    """Each prompt on each model, and the conclusion."""
    if values["status"] == "planned":
        return
    simulated = "  (SIMULATED: a scripted model answered)" if values["simulated"] else ""
    say(f"{values['task']} · {values['rows']} {values['split']} rows{simulated}\n")
    names = list(values["runs"])
    at = {(cell["origin"], cell["model"]): cell for cell in values["cells"]}

    def show_mean(score: MeanJSON) -> str:
        mean = score["mean"]
        return "no answer" if mean is None else f"{show_reward(mean)}{show_gaps(score)}"

    rows = [[origin, *(show_mean(at[origin, name]["score"]) for name in names)] for origin in names]
    starts = [[show_mean(at[origin, name]["start"]) for name in names] for origin in names]
    shared = starts[:1] if all(row == starts[0] for row in starts) else starts
    rows += [
        [f"start prompt{'' if len(shared) == 1 else f' of {names[i]}'}", *row] for i, row in enumerate(shared)
    ]
    show_table(["prompt found for", *(f"on {name}" for name in names)], rows)
    say("")
    say(values["verdict"], bold=True)
    if parts := values["variance"]:
        say(
            f"variance of the cells: model {parts['model']:.3g}, origin of the prompt {parts['origin']:.3g}, lock-in "
            f"{parts['home']:.3g} (95% interval {parts['home_low']:.3g} to {parts['home_high']:.3g}), rest {parts['rest']:.3g}"
        )
    say(f"{values['folder']}/matrix.html")
    _show_end(values["usage"], values["warnings"])


def _show_end(usage: UsageJSON, warnings: Sequence[str]) -> None:
    cost = show_dollars(usage)
    cost += ", price unknown: set it with --lm-option price.input=USD" if usage.get("price_unknown") else ""
    say(f"\ncalls: {sum(usage['calls'].values())}{cost}")
    for warning in warnings:
        warn(warning)
