"""`whet learn preferences`: from what people preferred to a proposed prompt, and what to ask them next."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    WRITES,
    dry_run_option,
    emit,
    examples,
    good_and_bad_options,
    json_option,
    limit_options,
    model_options,
    optimizer_options,
    print_result,
    raise_without_verdict,
    role_choices,
    say,
    settings_of,
    show_diff,
    show_hidden,
    warn,
    with_budget,
)
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.show import show_dollars, show_interval
from whet.errors import UsageError, quantity

_LIVE = "live"


def _scale_of(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float] | None:
    """LOW,HIGH as two numbers."""
    try:
        return None if value is None else [float(end) for end in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f'"{value}" is not LOW,HIGH: two numbers with a comma between, such as 1,7.'
        ) from None


@click.command(
    "learn-preferences",
    epilog=examples(
        "whet learn preferences prompt.md --from thumbs.jsonl --lm openai/gpt-4o-mini --max-calls 500",
        "whet learn preferences prompt.md --from pairs.csv --dry-run          # what a reward model would be worth",
        "whet learn preferences prompt.md --from sqlite:///whet.db --live-prompt shop/help --lm openai/gpt-4o-mini",
        "whet learn preferences prompt.md --from pairs.csv --ask 10 --answers answers.jsonl --out questions.jsonl",
    ),
)
@click.argument("prompt")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FILE|LIVE",
    help="Source of judgements (repeatable): a .jsonl, .json or .csv file, the address of a live "
    "database (sqlite:///whet.db), or live.",
)
@click.option(
    "--live-prompt",
    metavar="NAME",
    help="With a live database: name of the prompt whose answers people judged.",
)
@good_and_bad_options
@click.option(
    "--scale",
    metavar="LOW,HIGH",
    callback=_scale_of,
    help="Lowest and highest rating, such as 1,7, if the ratings do not show them. Ratings above the "
    "middle count as good.",
)
@click.option("--person", metavar="NAME", help="Learn only from the judgements of this person.")
@click.option(
    "--features",
    metavar="NAME",
    default="surface",
    show_default=True,
    help="Features of an answer that the reward model uses: surface, words or embedded/encoder.",
)
@click.option(
    "--brake",
    type=click.FloatRange(min=0, max=100),
    default=1.0,
    show_default=True,
    metavar="K",
    help="Number of standard deviations of the ensemble that are subtracted from the reward.",
)
@click.option(
    "--no-alarm",
    is_flag=True,
    help="Continue the search even when answers no longer resemble those that people judged.",
)
@click.option("--anyway", is_flag=True, help="Continue even if the reward model is no better than chance.")
@click.option(
    "--ask",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write the N most informative questions instead of searching.",
)
@click.option(
    "--answers",
    multiple=True,
    metavar="FILE",
    help="With --ask: file with the answers from which the questions are chosen.",
)
@click.option(
    "--method",
    metavar="NAME",
    help="Search method (see `whet methods`). [default: opro; with --policy prewrite]",
)
@click.option("--policy", metavar="ADDR", help="Rewriter model whose weights are trained.")
@model_options("Task model. The reward model judges its answers.")
@optimizer_options(WRITES)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
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
@click.option(
    "--fresh", is_flag=True, help="Call the models again instead of using the cache or an earlier run."
)
@click.option("--run", metavar="DIR", help="Folder of task and run (default below runs).")
@click.option(
    "--out",
    metavar="FILE",
    help="File for the new prompt (default: in place) or for the questions (default: printed).",
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@dry_run_option
@json_option
def learn_preferences(
    prompt: str, sources: tuple[str, ...], yes: bool, as_json: bool, **options: Any
) -> None:
    """Search for the prompt in the file PROMPT whose answers people prefer.

    A reward model learns from judgements of answers (pairs, choices, ratings, thumbs, corrections). whet prints how well the
    model predicts judgements about unseen inputs, and pays nothing if it does no better than chance. A search then uses the
    model as its reward, the gate tests the result on sealed inputs, and you are asked before the prompt is written.
    """
    from whet import api

    ask, answers = options.pop("ask"), options.pop("answers")
    live_prompt = options.pop("live_prompt")
    if ask is None and answers:
        raise UsageError("--answers holds the answers from which --ask chooses questions. Add --ask N.")
    if not sources and ask is None:
        raise UsageError(
            "Name the source of the judgements: --from FILE, or --from sqlite:///whet.db --live-prompt NAME."
        )
    feedback = _read_sources(sources, live_prompt)
    options["alarm"] = not options.pop("no_alarm")
    if ask is not None:
        _ask(prompt, feedback, answers, ask, as_json, options)
        return
    words = with_budget(role_choices(options))
    words["run"], words["concurrency"] = words.pop("run"), words.pop("concurrency")
    terminal = sys.stdin.isatty()

    def confirm(proposal: dict[str, Any]) -> bool:
        if not as_json:
            _show_run(proposal)
            click.echo("")
            show_diff(proposal["diff"])
        if yes or as_json or not terminal:
            return yes
        return click.confirm(f"\nWrite {proposal['written_to']}?", default=False, err=True)

    try:
        result = run_stoppable(api.alearn_preferences(prompt, feedback, confirm=confirm, **words))
    except api.UnclearPreferences as error:
        if as_json:
            emit(error.result)
        raise
    print_result(result, as_json, _show)
    raise_without_verdict(result.get("run") or {})


def _read_sources(sources: tuple[str, ...], live_prompt: str | None) -> list[Any]:
    """Files as they are, and the rows of live databases."""
    read: list[Any] = []
    for source in sources:
        if source != _LIVE and "://" not in source:
            read.append(Path(source))
            continue
        if live_prompt is None:
            raise UsageError(
                f"--from {show_hidden(source)} is a live database. Name its prompt: --live-prompt NAME."
            )
        import whet.live

        with whet.live.open_live(None if source == _LIVE else source) as live:
            read += whet.live.preference_rows(live.traffic, live_prompt)
    if live_prompt is not None and all(isinstance(one, Path) for one in read):
        raise UsageError(
            "--live-prompt names a prompt of a live database. Add --from sqlite:///whet.db, or omit "
            "--live-prompt."
        )
    return read


def _ask(
    prompt: str,
    feedback: list[Any],
    answers: tuple[str, ...],
    most: int,
    as_json: bool,
    options: Mapping[str, Any],
) -> None:
    """Print the questions, or write them as rows that are feedback once they are answered."""
    from whet import api

    if not answers:
        raise UsageError(
            "--ask needs answers from which to choose questions. Add --answers FILE, whose rows have "
            "an input and two or more answers."
        )
    out = None if options["out"] is None else Path(options["out"])
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already. Name a new file with --out.")
    questions = api.preference_questions(
        [Path(answer) for answer in answers],
        most,
        feedback=feedback,
        good=options["good"],
        bad=options["bad"],
        person=options["person"],
        scale=options["scale"],
        features=options["features"],
        seed=options["seed"],
    )
    if out is not None:
        out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in questions), "utf-8")
    if as_json:
        emit({"questions": questions, "written_to": None if out is None else str(out)})
        return
    for row in questions:
        bits = row["information_bits"]
        click.echo(f"\n{row['id']}{'' if bits is None else f' ({bits:.3f} bits)'}")
        for name in ("input", "output_1", "output_2"):
            click.echo(f"  {name}: {show_hidden(row[name])}")
    if all(row["information_bits"] is None for row in questions):
        warn(
            "There are still too few judgements for a reward model, so these pairs are drawn at random.",
            err=True,
        )
    if out is not None:
        click.echo(
            f"\n{out} has {quantity(len(questions), 'question')}. Put 1, 2 or tie into `preferred`, then: "
            f"whet learn preferences {prompt} --from {out}"
        )


def _show(values: Mapping[str, Any]) -> None:
    """The outcome."""
    if values["status"] == "planned":
        return
    if values["status"] in ("nothing", "trained"):
        _show_run(values)
    lines = {
        "written": f"{values.get('written_to')} is written.",
        "proposed": (
            f"Nothing is written. The proposal is in {values.get('proposal')}; --yes writes it to the prompt."
        ),
        "nothing": "Nothing is proposed; the prompt stays unchanged.",
        "trained": f"The prompt stays unchanged. The trained weights that answer with it: {values.get('weights')}",
    }
    click.echo(f"\n{lines[values['status']]}")
    click.echo(f"report: {values['run']['run']}/report.html")


def _show_run(values: Mapping[str, Any]) -> None:
    """The sealed inputs under both prompts, by the reward model, what was spent, and what speaks against the result."""
    run = values["run"]
    simulated = "  (SIMULATED: a scripted model answered)" if run.get("simulated") else ""
    say(
        f"{run['method']} · reward model of {quantity(values['pairs'] + values['thumbs'], 'judgement')}{simulated}"
    )
    say(f"{'':22}reward model on unseen inputs, 95% interval")
    say(f"{'prompt as it is':<22}{show_interval(run['baseline']['test'])}")
    say(f"{'proposed prompt':<22}{show_interval(run['best']['test'])}")
    say("")
    say(f"Verdict of the reward model, which stands in for people: {values['reason']}", bold=True)
    say(
        f"calls: {sum(values['usage']['calls'].values()):,}{show_dollars(values['usage'])}; ended by {run['ended_by']}"
    )
    for warning in values["warnings"]:
        warn(warning)
