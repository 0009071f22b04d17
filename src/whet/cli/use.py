"""`whet show`: the prompt of a run to copy, with the facts about it, and how to use it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from whet.api import Evaluation, MeanEstimate, RunResult, find_run, read_result, sample_size
from whet.cli.common import (
    check_one_form,
    emit,
    examples,
    format_option,
    json_option,
    print_prompt,
    say,
    warn,
)
from whet.engine import EvaluationJSON, PlanJSON, RunJSON
from whet.errors import UsageError, did_you_mean, quantity, show_size
from whet.prompt import MASK, Prompt
from whet.reporting import is_limited, is_right_already, leaves_nothing
from whet.types import Message


@click.command(
    "show",
    epilog=examples(
        "whet show runs/mytask-opro-0",
        "whet show mytask-opro-0 --plain > prompt.txt",
        "whet show mytask-opro-0 --format langfuse",
        "whet show mytask-opro-0 --json",
        "whet show mytask-opro-0 --choose length --plain > short.txt",
    ),
)
@click.argument("run")
@click.option("--plain", is_flag=True, help="Print only the prompt, unchanged (several messages as JSON).")
@format_option
@click.option(
    "--choose",
    metavar="NAME",
    help="In a run with objectives: show the prompt on the front that is best in this objective and "
    "meets all demands.",
)
@json_option
def show(run: str, plain: bool, form: str | None, choose: str | None, as_json: bool) -> None:
    """Print the best prompt of a run without markers: with its figures, or alone (--plain, --format)."""
    check_one_form(plain, form, as_json)
    folder = find_run(run)
    values = {**read_result(folder), "run": str(folder)}
    result = (
        Evaluation(cast("EvaluationJSON", values))
        if "score" in values
        else RunResult(cast("RunJSON", values))
    )
    if isinstance(result, RunResult) and "best" not in values:
        raise UsageError(
            f"{folder} holds no result. To continue the run, repeat the command that started it."
        )
    if choose is not None:
        _show_point(folder, cast("RunJSON", values), choose, plain, form, as_json)
        return
    prompt = result.prompt if isinstance(result, Evaluation) else result.best.prompt
    if as_json:
        emit(_as_json(result, prompt))
        return
    if plain or form:
        print_prompt(prompt, form)
        if isinstance(result, RunResult) and not result.promoted:
            reason = result.improvement.reason.removeprefix("Not promoted: ")
            say(f"whet: not promoted: {reason}", err=True)
        return
    for line in _facts(result):
        say(line)
    say(f"\n{prompt.shown.rstrip()}\n")
    for text in _doubts(result):
        warn(text)
    if isinstance(result, RunResult):
        for line in use_lines(result.json):
            say(line)


def _show_point(
    folder: Path, values: RunJSON, name: str, plain: bool, form: str | None, as_json: bool
) -> None:
    """The prompt on the front of a run that is best in an objective, and what the gate says of it."""
    points = values.get("front") or []
    if not points:
        raise UsageError(f"{folder} has no front, because its task has no objectives. Omit --choose.")
    names = list(points[0]["validation"])
    if name not in names:
        raise UsageError(f'{folder} has no objective "{name}".{did_you_mean(name, names)}')
    sign = 1.0 if points[0]["validation"][name]["goal"] == "max" else -1.0
    point = max(points, key=lambda one: (one["holds"], sign * one["validation"][name]["mean"]))
    prompt = Prompt(tuple(Message(*values) for values in point["messages"]))
    if as_json:
        emit({"run": str(folder), "chosen": name, **point, "text": prompt.text})
        return
    if plain or form:
        print_prompt(prompt, form)
    else:
        means = (f"{key} {show_size(value['mean'])}" for key, value in point["validation"].items())
        say(f"{values['task']} · best in {name} on validation: {', '.join(means)}")
        say(f"\n{prompt.shown.rstrip()}\n")
    if broken := [key for key, one in point["validation"].items() if not one.get("holds", True)]:
        warn(
            "no prompt of the front meets all demands on validation; this prompt breaks the demand "
            f"on {', '.join(broken)}.",
            err=True,
        )
    if point["gate"] != "promoted":
        warn(f"the gate did not promote this prompt: {_GATE[point['gate']]}", err=True)


_GATE = {
    "baseline": "this is the prompt with which the run began.",
    "not promoted": (
        "the sealed test did not show that this prompt is better in one objective and "
        "not worse in the others."
    ),
    "not tested": (
        "this prompt was never tested on the sealed rows. To test it, make it the start "
        "prompt of this task or of a new task."
    ),
}


def use_lines(values: RunJSON) -> Iterator[str]:
    """Yield lines that show the use of a run's best prompt, or the next step where the gate did not promote it."""
    run = shlex.quote(str(values["run"]))
    result = RunResult(values)
    if result.status == "stopped":
        yield "next    run the same command again; the run continues where it stopped"
        return
    if not result.promoted:
        yield f"next    keep your prompt, and {_missing(values)}"
        return
    if seen := values.get("test_rows_seen"):
        rows = "1 test row was" if seen == 1 else f"{seen} test rows were"
        run_before = f" ({values['test_rows_seen_by']})" if values.get("test_rows_seen_by") else ""
        yield (
            f"doubt   {rows} used for learning in an earlier run{run_before}: use this prompt only if "
            "your start prompt does not come from that run"
        )
    messages = result.best.prompt.chat
    file = "prompt.json" if messages else "prompt.txt"
    yield f"use it  whet show {run} --plain > {file}"
    if messages:
        yield f'Python  messages = json.load(open("{file}", encoding="utf-8"))'
    elif parts := result.best.prompt.parts:
        yield f'Python  whet.Prompt.parse(open("{file}", encoding="utf-8").read()).parts["{next(iter(parts))}"].text'
    else:
        names = sorted(result.best.prompt.slots - {MASK}) or ["input"]
        slots = ", ".join(f'"{name}": ...' for name in names)
        yield f'Python  messages = whet.Prompt.parse(open("{file}", encoding="utf-8").read()).fill_slots({{{slots}}})'
    yield (
        f"live    whet prompts import {run} --name NAME, then whet prompts promote NAME VERSION --request, then whet serve"
    )


def _missing(values: RunJSON) -> str:
    """The next step after a run that was not promoted, from what it lacked; the report where no figure says it."""
    gain, promotion = values["improvement"], values.get("plan", PlanJSON()).get("promotion")
    if is_limited(values) and not values.get("tested", True):
        return "run the same command with a larger limit: it goes on from here"
    if promotion is not None and not promotion["possible"]:
        return f"add test rows: there are {promotion['rows']}, and a promotion needs at least {promotion['needed']}"
    if gain.get("withheld") and gain.get("missing"):
        return "run the same command again: it requests only the missing answers"
    if more := gain.get("more_examples"):
        return f"add about {quantity(more, 'test row')}: run the same command with --more FILE"
    if is_right_already(values):
        return "give harder rows or a more detailed reward: the start prompt earns the full reward, and no search was made"
    if values["best"].get("id") == values["baseline"].get("id"):
        if is_limited(values):
            run = shlex.quote(str(values["run"]))
            return f"search longer: run the same command with a larger limit, another --out and --fork {run}"
        if leaves_nothing(values):
            return (
                "give harder rows or a more detailed reward: it earns the full reward on every validation row"
            )
        return "try a stronger optimizer model (--optimizer-lm) or another method (whet methods): nothing better was found"
    return f"see what was missing: {shlex.quote(str(values['run']))}/report.html"


def _as_json(result: RunResult | Evaluation, prompt: Prompt) -> dict[str, object]:
    facts: dict[str, object] = {"run": result["run"], "prompt": prompt.text}
    if prompt.chat:
        facts["messages"] = list(prompt.chat)
    if isinstance(result, Evaluation):
        return {**facts, "split": result.split, "score": result["score"], "warnings": list(result.warnings)}
    kept = ("task", "method", "seed", "status", "improvement", "warnings")
    sides = {side: result[side]["test"] for side in ("baseline", "best")}
    return {**facts, **{key: result[key] for key in kept}, "test": sides}


def _facts(result: RunResult | Evaluation) -> Iterator[str]:
    simulated = "  (SIMULATED: a scripted model answered)" if result.get("simulated") else ""
    if isinstance(result, Evaluation):
        yield f"{result['task']} · {result.split} {_score(result.score)}{simulated}"
        return
    yield f"{result['task']} · {result.method} · seed {result.seed}{simulated}"
    yield f"sealed test: {_score(result.baseline.test)} before, {_score(result.best.test)} with this prompt"
    yield result.improvement.reason


def _score(score: MeanEstimate | None) -> str:
    return "not measured" if score is None else f"{score} ({sample_size(score.n, score.groups)})"


def _doubts(result: RunResult | Evaluation) -> Iterator[str]:
    if isinstance(result, RunResult) and result.best.system is not None:
        yield (
            "This prompt was tested together with trained weights. Without them it is a different "
            "system, which was not tested."
        )
    yield from result.warnings
