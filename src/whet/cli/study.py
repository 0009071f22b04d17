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
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.show import show_dollars, show_progress_of
from whet.errors import show_reward

_study_options = options(
    click.option(
        "--split",
        default="validation",
        show_default=True,
        metavar="S",
        help="validation or train. The sealed test rows are never used.",
    ),
    click.option(
        "--rows", type=click.IntRange(min=2), metavar="N", help="Number of rows of the split (default: all)."
    ),
    click.option("--region", metavar="NAME", help="Fence to study (default: the first)."),
    model_options("Task model."),
    judge_options(JUDGES),
    limit_options(TRIAL_LIMITS),
    click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--out", metavar="DIR", help="Folder of the study (default below runs)."),
    click.option(
        "--dry-run", is_flag=True, help="Print the plan and stop, without paying or writing anything."
    ),
    json_option,
)


@click.group(
    "study",
    epilog=examples("whet study components mytask --lm openai/gpt-4o-mini --dry-run"),
)
def study() -> None:
    """Measure how much each part or sentence of a prompt contributes, on training or validation rows."""


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
    help="File of parts, or a file that whet brings: folklore, parts.",
)
@click.option(
    "--resolution",
    default="auto",
    show_default=True,
    metavar="R",
    help="full, 5, 4 or 3. auto takes the best design of at most 64 prompts that --max-calls pays for.",
)
@_study_options
def components(task: str, as_json: bool, **options: Any) -> None:
    """Run a factorial study: each part is put in and left out, which gives main effects and pair interactions with intervals."""
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
@click.option("--task", metavar="DIR", help="Task folder of a prompt file, or of a run whose task has moved.")
@click.option(
    "--unit",
    type=click.Choice(["sentence", "word"]),
    default="sentence",
    show_default=True,
    help="Unit of text that is left out.",
)
@click.option(
    "--shapley",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also estimate Shapley values, from N random orders.",
)
@click.option(
    "--no-forms", is_flag=True, help="Do not try other separators, letter cases of headings, and orders."
)
@_study_options
def sensitivity(prompt: str, task: str | None, no_forms: bool, as_json: bool, **options: Any) -> None:
    """Measure how much of the reward each sentence or word carries, in a prompt or in the best prompt of a run."""
    from whet.api.study import astudy_sensitivity

    place = None if task is None else Path(task)
    with show_progress_of(task or "") as progress:
        words = {**_keywords(options), "forms": not no_forms}
        result = run_stoppable(astudy_sensitivity(prompt, task=place, progress=progress, **words))
    print_result(result, as_json, show_sensitivity)


def show_sensitivity(values: Mapping[str, Any]) -> None:
    """The contribution of each unit, the largest first, and the effects of other forms."""
    if values["status"] == "planned":
        return
    _head(values, f"by {values['unit']}")
    rows = unit_rows(values)
    head, shares = (
        [values["unit"], "carries", "simultaneous interval", "p adjusted"],
        any("shapley" in r for r in rows),
    )
    table = [[line(row["text"]), *effect_cells(row)] for row in rows]
    if shares:
        head += ["Shapley", "s.e. over orders"]
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
        say("already finished; this is the recorded result, and no model was called")
    say("")


def _effects_table(first: str, effects: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [effect["name"], *effect_cells(effect), ", ".join(effect.get("aliases", ()))] for effect in effects
    ]
    head = [first, "difference", "simultaneous interval", "p adjusted"]
    aliased = any(row[-1] for row in rows)
    show_table([*head, "together with"] if aliased else head, rows if aliased else [row[:-1] for row in rows])


def _end(values: Mapping[str, Any]) -> None:
    usage = values["usage"]
    cost = show_dollars(usage)
    cost += ", price unknown: set it with --lm-option price.input=USD" if usage.get("price_unknown") else ""
    say(f"\ncalls: {sum(usage['calls'].values())}{cost}")
    for warning in values["warnings"]:
        warn(warning)
    say(f"report: {values['run']}/report.html")
