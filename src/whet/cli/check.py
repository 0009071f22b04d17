"""`whet check`: whether the prompts of task folders, and live prompts, meet a threshold, for a build server."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from whet.cli.commands import find_command
from whet.cli.common import (
    JUDGES,
    emit,
    examples,
    json_option,
    judge_options,
    model_options,
    options,
    role_choices,
    say,
    waiting_options,
    warn,
)
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.errors import ProviderError, StorageError, UsageError, WhetError
from whet.reporting import ThresholdCheck, check_score, reaches, write_junit

_COLORS = {"passed": "green", "failed": "red", "undecided": "yellow"}
EXIT_FAILED = 1
PROMPTS = ("prompts", "check")
"""The words of the command that checks live prompts, which whet-live brings."""


class PromptCheck(click.Command):
    """The check of live prompts. Its options are options of `whet check` too."""

    @abstractmethod
    def find_unknown(self, names: Sequence[str]) -> dict[str, str]:
        """Those of the names that are no prompts, each with a sentence that says so. Raises UsageError where there is no
        database, StorageError for one that cannot be used."""

    @abstractmethod
    def measure(
        self, names: Sequence[str], threshold: float, *, sure: bool, **options: Any
    ) -> list[ThresholdCheck]:
        """The check of each prompt, which calls no model; `options` are the command's own. Raises UsageError."""


def _find_prompt_check() -> PromptCheck | None:
    """None without a whet-live that can be used."""
    try:
        group = find_command(PROMPTS[0])
    except UsageError:
        return None
    command = group.commands.get(PROMPTS[1]) if isinstance(group, click.Group) else None
    return command if isinstance(command, PromptCheck) else None


class CheckCommand(click.Command):
    """`whet check`, with the options of the check of live prompts where whet-live is installed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's parameters, and those that only live prompts have, before `--help`."""
        own, live = super().get_params(ctx), _find_prompt_check()
        if live is None:
            return own
        names = {one.name for one in own}
        return [*own[:-1], *(one for one in live.params if one.name not in names), own[-1]]


threshold_options = options(
    click.option(
        "--threshold",
        type=float,
        required=True,
        metavar="R",
        help="Lowest mean that passes; the highest if less of a measure is better.",
    ),
    click.option(
        "--sure",
        is_flag=True,
        help="Apply the threshold to the worse end of the 95% interval instead of the mean.",
    ),
    click.option(
        "--junit", "junit_file", metavar="FILE", help="Also write the outcome as JUnit XML to this file."
    ),
    json_option,
)


@click.command(
    "check",
    cls=CheckCommand,
    epilog=examples(
        "whet check mytask --threshold 0.8 --lm openai/gpt-4o-mini",
        "whet check tasks/* --threshold 0.8 --sure --junit whet.xml",
        "whet check mytask --threshold 0.8 --prompt new.md --fresh",
        "whet check shop/greeting shop/help --threshold 0.8 --days 7",
        "whet check shop/greeting --measure latency --threshold 2",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="TASK|PROMPT...")
@threshold_options
@click.option("--prompt", metavar="FILE", help="Prompt to check with a task (default: the task's own).")
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="Rows of a task: train, validation or test. On test, each new prompt counts as an opening, which makes "
    "later promotions harder.",
)
@model_options("Task model (default: the task's own).")
@judge_options(JUDGES)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Calls in flight at once.")
@waiting_options
def check(
    names: tuple[str, ...],
    threshold: float,
    sure: bool,
    junit_file: str | None,
    as_json: bool,
    prompt: str | None,
    split: str,
    **options: Any,
) -> None:
    """Fail if the quality of a prompt is on the wrong side of a threshold.

    A name is a task folder, of which the mean reward on a split counts, or a prompt of the registry, of which the feedback of the
    last days counts; that calls no model. `./NAME` is always a folder.

    Exit code 0: all passed. 1: one failed. 3: none failed, but one is undecided: a provider did not answer rows that decide, a
    limit of a task's budget is reached, or no answer of a prompt has the measure.
    """
    file = make_room(junit_file)
    live = _find_prompt_check()
    prompts = _find_prompts(names, live)
    tasks = [name for name in names if name not in prompts]
    only_live = {str(one.name) for one in live.params if one.expose_value} if live is not None else set()
    only_live -= {str(one.name) for one in click.get_current_context().command.params}
    _refuse_idle_options(only_live, tasks, prompts)
    of_prompts = {name: options.pop(name) for name in only_live}
    words = role_choices({**options, "split": split}) | {"prompt": None if prompt is None else Path(prompt)}
    loaded = {task: _name_usable(task, threshold, words) for task in tasks}
    measured = {}
    if live is not None and prompts:
        known = [name for name in names if name in prompts]
        measured = dict(zip(known, live.measure(known, threshold, sure=sure, **of_prompts), strict=True))

    jobs: list[tuple[str, Callable[[], ThresholdCheck]]] = [
        (name, partial(measured.__getitem__, name))
        if name in measured
        else (loaded[name], partial(_check_task, name, loaded[name], threshold, sure, words))
        for name in names
    ]
    facts = {"threshold": threshold, **({"split": split} if tasks else {})}
    report_checks(jobs, facts, file, as_json)


def _find_prompts(names: Sequence[str], live: PromptCheck | None) -> set[str]:
    """The names that are prompts of the registry. Raises UsageError for a name that is a task as well, and for one that is
    neither."""
    possible = [name for name in names if not name.startswith((".", "/", "~"))]
    missing = [name for name in possible if not Path(name).exists()]
    reasons = dict.fromkeys(possible, "A prompt of a registry needs whet-live: pip install 'whet[live]'.")
    if live is not None and possible:
        try:
            reasons = live.find_unknown(possible)
        except UsageError as error:
            reasons = dict.fromkeys(possible, str(error))
        except StorageError as error:
            if missing:
                raise
            reasons = dict.fromkeys(possible, str(error))
    known = {name for name in possible if name not in reasons}
    for name in sorted(known):
        if (Path(name) / "task.yaml").is_file():
            raise UsageError(
                f"{name} is a task folder and a prompt of the registry. Write ./{name} for the folder. For the prompt, run the "
                "command in another folder."
            )
    for name in missing:
        if name not in known:
            from whet.task import load_task

            try:
                load_task(Path(name))
            except UsageError as error:
                raise UsageError(f"{error} {reasons[name]}") from None
    return known


def _refuse_idle_options(only_live: set[str], tasks: Sequence[str], prompts: set[str]) -> None:
    """Raises UsageError for an option that none of the names takes."""
    context = click.get_current_context()
    shared = {"names", "threshold", "sure", "junit_file", "as_json"}
    for parameter in context.command.get_params(context):
        name = parameter.name
        if (
            name is None
            or name in shared
            or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        ):
            continue
        if name in only_live and not prompts:
            raise UsageError(
                f"{parameter.opts[0]} is an option for prompts of the registry, and {tasks[0]} is a task. Omit it."
            )
        if name not in only_live and parameter.expose_value and not tasks:
            raise UsageError(
                f"{parameter.opts[0]} is an option for tasks, and {min(prompts)} is a prompt of the registry. Omit it."
            )


def _check_task(
    task: str, name: str, threshold: float, sure: bool, words: Mapping[str, Any]
) -> ThresholdCheck:
    from whet import api
    from whet.cli.show import show_progress_of  # heavy, and `whet --help` reads this file

    with show_progress_of(task) as progress:
        evaluated = run_stoppable(api.aevaluate(Path(task), progress=progress, **words))
    one = check_score(name, evaluated["score"], threshold, sure=sure, failed=evaluated["failed"])
    one = dataclasses.replace(one, warnings=tuple(evaluated["warnings"]))
    if evaluated.get("simulated"):
        one = dataclasses.replace(one, sentence=f"{one.sentence}; SIMULATED: a scripted model answered")
    return one


def report_checks(
    jobs: Iterable[tuple[str, Callable[[], ThresholdCheck]]],
    facts: Mapping[str, object],
    file: Path | None,
    as_json: bool,
) -> None:
    """Make checks one by one, print them, write them as JUnit XML where there is a file, and exit by their outcomes. `facts`
    stand before the checks in the JSON. An error ends the command; the file says it of the check that had it."""
    checks: list[ThresholdCheck] = []
    for name, job in jobs:
        try:
            one = job()
        except WhetError as error:
            if file is not None:
                write_junit(file, [*checks, ThresholdCheck(name, "undecided", str(error))])
            raise
        checks.append(one)
        if not as_json:
            say(f"{one.outcome}  {one.task}: {one.sentence}", fg=_COLORS[one.outcome])
            for warning in one.warnings:
                warn(warning)
    if as_json:
        emit({**facts, "checks": [dataclasses.asdict(one) for one in checks]})
    if file is not None:
        write_junit(file, checks)
    outcomes = {one.outcome for one in checks}
    if "failed" in outcomes:
        raise SystemExit(EXIT_FAILED)
    if "undecided" in outcomes:
        raise SystemExit(ProviderError.exit_code)


def make_room(junit_file: str | None) -> Path | None:
    """The file of the outcome, without that of an earlier check. Raises UsageError for one that cannot be written."""
    if junit_file is None:
        return None
    file = Path(junit_file)
    if not file.absolute().parent.is_dir():
        raise UsageError(f"--junit: there is no folder {file.parent} for {file.name}. Make it.")
    if file.is_dir():
        raise UsageError(f"--junit: {file} is a folder. Name a file.")
    file.unlink(missing_ok=True)
    return file


def _name_usable(task: str, threshold: float, words: Mapping[str, Any]) -> str:
    """The name of a task. Raises UsageError for one that cannot be used, and for a threshold outside the range of its reward;
    nothing is paid."""
    from whet import api
    from whet.task import load_task

    loaded = load_task(Path(task))
    reward = loaded.reward
    if not (reaches(threshold, reward.low) and reaches(reward.high, threshold)):
        raise UsageError(
            f"--threshold {threshold:g}: the reward of {task} lies between {reward.low:g} and {reward.high:g}. Write a number "
            "between these."
        )
    silent = api.Progress(planned=_ignore, warn=_ignore, say=_ignore)
    run_stoppable(api.aevaluate(Path(task), dry_run=True, progress=silent, **words))
    return loaded.name


def _ignore(_: object) -> None:
    return None
