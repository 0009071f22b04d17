"""`whet advise`: does a search pay for a task, and what is to be done first?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    JUDGES,
    TRIAL_LIMITS,
    WRITES,
    examples,
    json_option,
    judge_options,
    limit_options,
    model_options,
    name_options,
    optimizer_options,
    print_result,
    role_choices,
    say,
    show_hidden,
    warn,
    with_budget,
)
from whet.cli.interrupt import run_coroutine
from whet.engine import AdviceJSON, AdvisedPlanJSON
from whet.errors import show_reward

BEST = 4
_CRITIQUES = {
    "own": "explains in words what is wrong",
    "a model's": "a judge explains in words what is wrong",
    "the target": "states the right answer, but no reason",
    "none": "gives no critiques",
}


@click.command(
    "advise",
    epilog=examples(
        "whet advise mytask",
        "whet advise mytask --lm openai/gpt-4o-mini --json",
        "whet advise mytask --answers-per-month 20000 --gain-value 0.05",
        "whet advise mytask --lm openai/gpt-4o-mini --pilot --max-calls 400",
    ),
)
@click.argument("task")
@model_options(
    "Task model (default: the task's own). Without --pilot, a model behind an endpoint is not called."
)
@optimizer_options(WRITES)
@judge_options(JUDGES)
@click.option(
    "--answers-per-month",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Number of answers that the prompt gives in a month. Adds the time after which a run has "
    "paid for itself.",
)
@click.option(
    "--gain-value",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Value of one more right answer, in dollars.",
)
@click.option(
    "--pilot",
    is_flag=True,
    help="Pay for a pilot: a few prompts answer some training rows, which shows whether wording matters.",
)
@click.option(
    "--pilot-rows",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="N",
    help="Number of training rows in the pilot (12 or more).",
)
@limit_options(TRIAL_LIMITS)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the random choice of pilot rows."
)
@click.option("--dry-run", is_flag=True, help="Print the plan of the pilot, without paid calls.")
@json_option
def advise(task: str, as_json: bool, **options: Any) -> None:
    """Estimate whether a search is worth its cost for the task folder TASK, and list the methods that fit and the first steps.

    Without --pilot, the command pays and writes nothing. A model that runs in this process answers at most 50 validation rows.
    """
    from whet.api import aadvise

    name_options()
    print_result(
        run_coroutine(aadvise(Path(task), **with_budget(role_choices(options)))), as_json, show_advice
    )


def show_advice(values: AdviceJSON) -> None:
    """One screen: the verdict, what it rests on, methods, and what to do."""
    test, reward = values["test"], values["reward"]
    click.echo(f"{show_hidden(values['task'])}: {click.style(values['verdict'], bold=True)}")
    decision = values["decision"]
    say(f"decision: {decision['action']}, because {'; '.join(decision['reasons'])}\n")
    say("rows     " + ", ".join(f"{n} {name}" for name, n in values["rows"].items()))
    few = "" if test["possible"] else f"; a promotion needs at least {test['needed']}"
    say(f"test     {test['power']}{few}")
    kind = f", {len(reward['labels'])} labels" if reward["labels"] else ""
    say(
        f"reward   {reward['name']}, {reward['low']:g} to {reward['high']:g}{kind}; {_CRITIQUES[reward['critiques']]}"
    )
    start = values["start"]
    if start is not None and start["mean"] is not None:
        simulated = " (SIMULATED)" if start["simulated"] else ""
        say(
            f"start    {show_reward(start['mean'])} on {start['n']} {start['split']} rows, by {values['model']}{simulated}"
        )
    if values["model_note"] is not None:
        say(f"model    {values['model_note']}")
    say(f"a run    {_run(values['plan'])}")
    if others := values["families"][1:]:
        say(f"or       with a method of another family: {'; '.join(cost['summary'] for cost in others)}")
    for cost in values["families"]:
        if cost["training_summary"]:
            say(f"trains   {cost['training_summary']}")
    if values["pilot"] is not None:
        say(f"pilot    {values['pilot']['summary']}")
    if values["pay_back"] is not None:
        say(f"pay-back {values['pay_back']['summary']}")
    say("\nmethods that fit, in the usual order:")
    for row in values["methods"][:BEST]:
        usual = row is values["methods"][0]
        say(f"  {row['name']:<16} {row['why']}" + ("" if usual else f"; choose it if {row['when']}"))
    if rest := values["methods"][BEST:]:
        say(f"  also: {', '.join(row['name'] for row in rest)}")
    lacking: dict[str, list[str]] = {}
    for row in values["unfit"]:
        lacking.setdefault(row["lacks"], []).append(row["name"])
    for what, names in lacking.items():
        say(f"  need {what}: {', '.join(names)}")
    say("\nbefore a run:")
    for number, step in enumerate(values["first"], 1):
        say(f"  {number}. {step}")
    for warning in values["warnings"]:
        warn(warning)


def _run(plan: AdvisedPlanJSON | None) -> str:
    """The cost of a usual run as text: calls and dollars."""
    if plan is None:
        return "cannot be planned yet"
    most = [f"{ends['most']:,} {role}" for role, ends in plan["calls"].items() if ends["most"] is not None]
    calls = (
        f"at most {', '.join(most)} calls"
        if most
        else "no limit on calls, because the models run in this process"
    )
    cost = plan["cost_usd"]
    if plan["price_unknown"]:
        return f"{plan['method']}: {calls}; prices unknown"
    dollars = (
        "" if cost["expected"] is None else f"; about ${cost['expected']:,.2f} if the run uses all of them"
    )
    return f"{plan['method']}: {calls}{dollars}"
