"""`whet migrate`: a prompt that was found for one task model, for another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    JUDGES,
    WRITES,
    examples,
    json_option,
    judge_options,
    limit_options,
    optimizer_options,
    print_result,
    raise_without_verdict,
    role_choices,
    say,
    settings_of,
    show_table,
    trust_option,
    warn,
    with_budget,
)
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.show import show_dollars, show_interval
from whet.errors import show_reward


@click.command(
    "migrate",
    epilog=examples(
        "whet migrate runs/mytask-gepa-0 --to openai/gpt-5-mini --max-calls 2000",
        "whet migrate prompt.md --task mytask --from openai/gpt-4o --to openai/gpt-5-mini --dry-run",
    ),
)
@click.argument("prompt")
@click.option("--task", metavar="DIR", help="Task folder (default: the run's).")
@click.option("--from", "from_lm", metavar="ADDR", help="Old task model (default: the run's).")
@click.option("--to", "to_lm", metavar="ADDR", required=True, help="New task model.")
@click.option("--base-url", metavar="URL", help="URL of an OpenAI-compatible endpoint.")
@trust_option
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@click.option(
    "--method",
    metavar="NAME",
    help="Search method (see `whet methods`). By default, whet chooses a method that fits the task.",
)
@optimizer_options(WRITES)
@judge_options(JUDGES)
@limit_options()
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=settings_of,
    help="Setting of the method (repeatable).",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--alpha", type=float, metavar="A", help="Probability of a false promotion (default 0.05).")
@click.option("--out", metavar="DIR", help="Folder of the migration (default below runs).")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop, without paying or writing anything.")
@json_option
def migrate(prompt: str, task: str | None, as_json: bool, **options: Any) -> None:
    """Adapt a prompt from one task model to another. PROMPT is a finished run or a prompt file.

    The command searches with the new model, tests the prompts on the sealed rows with both models, and says whether the old
    prompt would have been good enough.
    """
    from whet.api import amigrate

    words = with_budget(role_choices(options))
    words["run"] = words.pop("out")
    place = None if task is None else Path(task)
    result = run_stoppable(amigrate(prompt, task=place, **words))
    print_result(result, as_json, show_migration)
    raise_without_verdict(result)


def show_migration(values: Mapping[str, Any]) -> None:
    """The verdict, both prompts with both models, and what the move cost."""
    if values["status"] == "planned":
        return
    say(f"{values['task']} · {values['method']}{' (SIMULATED)' if values.get('simulated') else ''}\n")
    say(values["reason"], bold=True)
    if values["status"] == "completed":
        say("")
        names, scores = values["models"], values["scores"]
        rows = [
            [f"{which} prompt", *(show_interval(scores[which][end]) for end in ("from", "to"))]
            for which in scores
        ]
        show_table(["sealed test", names["from"], names["to"]], rows)
        kept = values["moved"]["new"]
        low, high = (show_reward(kept[end], sign=True) for end in ("low", "high"))
        say(
            f"\nnew prompt with {names['to']} minus old prompt with {names['from']}: "
            f"{show_reward(kept['difference'], sign=True)} [{low}, {high}]"
        )
        say(f"calls: {sum(values['usage']['calls'].values())}{show_dollars(values['usage'])}")
    for warning in values["warnings"]:
        warn(warning)
    say(f"result: {values['folder']}/result.json\nreport: {values['run']}/report.html")
