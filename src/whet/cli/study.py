"""`whet study`: which part of a prompt, and which sentence of it, is worth how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from whet.api.study import (
    FAMILIES,
    components_sentences,
    effect_cells,
    sensitivity_sentences,
    unit_rows,
)
from whet.cli.common import (
    JUDGES,
    TRIAL_LIMITS,
    examples,
    json_option,
    judge_options,
    limit_options,
    line,
    model_options,
    options,
    print_result,
    role_choices,
    say,
    show_table,
    warn,
    with_budget,
)
from whet.cli.interrupt import run as run_stoppable
from whet.cli.show import show_dollars, show_progress_of
from whet.errors import show_reward

_study_options = options(
    click.option(
        "--split",
        default="validation",
        show_default=True,
        metavar="S",
        help="validation or train; the sealed test rows are never answered.",
    ),
    click.option(
        "--rows", type=click.IntRange(min=2), metavar="N", help="So many rows of the split (default: all)."
    ),
    click.option("--region", metavar="NAME", help="The fence that is studied (default: the first)."),
    model_options("Task model."),
    judge_options(JUDGES),
    limit_options(TRIAL_LIMITS),
    click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--out", metavar="DIR", help="Folder of the study (default below runs)."),
    click.option("--dry-run", is_flag=True, help="Print the plan and stop: nothing is paid or written."),
    json_option,
)


@click.group(
    "study",
    epilog=examples("whet study components mytask --lm openai/gpt-4o-mini --dry-run"),
)
def study() -> None:
    """Which part of a prompt, or which sentence of it, is worth how much, on training or validation rows."""


@study.command(
    "components",
    epilog=examples(
        "whet study components mytask --lm openai/gpt-4o-mini --dry-run   # folklore: does a tip help here?",
        "whet study components mytask --components parts --lm openai/gpt-4o-mini --max-calls 4000",
        "whet study components mytask --components my-parts.yaml --resolution 4 --rows 60",
    ),
)
@click.argument("task")
@click.option(
    "--components",
    default="folklore",
    show_default=True,
    metavar="FILE",
    help="A file of parts, or one of whet's own: folklore, parts.",
)
@click.option(
    "--resolution",
    default="auto",
    show_default=True,
    metavar="R",
    help="full, 5, 4 or 3; auto: the best with at most 64 prompts that --max-calls pays for.",
)
@_study_options
def components(task: str, as_json: bool, **options: Any) -> None:
    """A factorial study: every part with and without, main effects and interactions of two with intervals."""
    from whet.api.study import astudy_components

    with show_progress_of(task) as progress:
        result = run_stoppable(astudy_components(Path(task), progress=progress, **_keywords(options)))
    print_result(result, as_json, show_components)


@study.command(
    "sensitivity",
    epilog=examples(
        "whet study sensitivity mytask-opro-0",
        "whet study sensitivity prompt.md --task mytask --lm openai/gpt-4o-mini --dry-run",
        "whet study sensitivity mytask-opro-0 --unit word --rows 40 --max-calls 3000",
        "whet study sensitivity mytask-opro-0 --shapley 20   # for sentences that say the same",
    ),
)
@click.argument("prompt", metavar="RUN|PROMPT")
@click.option("--task", metavar="DIR", help="The task of a prompt file, or of a run whose task has moved.")
@click.option(
    "--unit",
    type=click.Choice(["sentence", "word"]),
    default="sentence",
    show_default=True,
    help="What is left out.",
)
@click.option(
    "--shapley", type=click.IntRange(min=0), default=0, metavar="N", help="Shapley values by N random orders."
)
@click.option("--no-forms", is_flag=True, help="Leave out other separators, letters of headings and orders.")
@_study_options
def sensitivity(prompt: str, task: str | None, no_forms: bool, as_json: bool, **options: Any) -> None:
    """Which sentence or word of a prompt, or of the best prompt of a run, carries how much of the reward."""
    from whet.api.study import astudy_sensitivity

    place = None if task is None else Path(task)
    with show_progress_of(task or "") as progress:
        words = {**_keywords(options), "forms": not no_forms}
        result = run_stoppable(astudy_sensitivity(prompt, task=place, progress=progress, **words))
    print_result(result, as_json, show_sensitivity)


def show_sensitivity(values: Mapping[str, Any]) -> None:
    """What each unit carries, the largest first, and what other forms change."""
    if values["status"] == "planned":
        return
    _head(values, f"by {values['unit']}")
    rows = unit_rows(values)
    head, shares = (
        [values["unit"], "carries", "interval, all together", "p adjusted"],
        any("shapley" in r for r in rows),
    )
    table = [[line(row["text"]), *effect_cells(row)] for row in rows]
    if shares:
        head += ["Shapley", "s.e. of orders"]
        table = [[*cells, *_share(row["shapley"])] for cells, row in zip(table, rows, strict=True)]
    show_table(head, table)
    if values["forms"]:
        say("")
        _effects_table("other form", values["forms"])
    say("")
    for sentence in sensitivity_sentences(values):
        say(sentence)
    _end(values)


def _share(share: Mapping[str, Any]) -> list[str]:
    """A Shapley value and its standard error."""
    value, error = share["difference"], share["error"]
    return [
        "no answer" if value is None else show_reward(value, sign=True),
        "-" if error is None else show_reward(error),
    ]


def _keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    words = with_budget(role_choices(options))
    return {**{k: v for k, v in words.items() if k != "out"}, "run": words.get("out")}


def show_components(values: Mapping[str, Any]) -> None:
    """Main effects and interactions, the largest first."""
    if values["status"] == "planned":
        return
    _head(values, values["design"]["name"])
    _effects_table("part", values["effects"])
    if values["interactions"]:
        say("")
        _effects_table("parts", values["interactions"])
    say("")
    for sentence in (*components_sentences(values), FAMILIES):
        say(sentence)
    _end(values)


def _head(values: Mapping[str, Any], what: str) -> None:
    simulated = "  (SIMULATED: a scripted model answered)" if values["simulated"] else ""
    say(
        f"{values['task']} · {values['method']} · {what} · {values['rows']} {values['split']} rows{simulated}"
    )
    if values.get("recorded"):
        say("finished before; recorded result, nothing was asked")
    say("")


def _effects_table(first: str, effects: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [effect["name"], *effect_cells(effect), ", ".join(effect.get("aliases", ()))] for effect in effects
    ]
    head = [first, "difference", "interval, all together", "p adjusted"]
    aliased = any(row[-1] for row in rows)
    show_table([*head, "together with"] if aliased else head, rows if aliased else [row[:-1] for row in rows])


def _end(values: Mapping[str, Any]) -> None:
    usage = values["usage"]
    cost = show_dollars(usage)
    cost += ", price unknown: say it with --lm-option price.input=USD" if usage.get("price_unknown") else ""
    say(f"\ncalls: {sum(usage['calls'].values())}{cost}")
    for warning in values["warnings"]:
        warn(warning)
    say(f"report: {values['run']}/report.html")
