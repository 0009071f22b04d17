"""Commands of `whet`. Progress goes to stderr, results to stdout; exit codes are those of the contract."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import whet
from whet.cli.commands import Commands, Learn
from whet.cli.common import (
    JUDGES,
    WRITES,
    batch_option,
    dry_run_option,
    emit,
    examples,
    good_and_bad_options,
    json_option,
    judge_options,
    learning_limit_option,
    learning_model_options,
    limit_options,
    model_options,
    names_of,
    optimizer_options,
    option_of,
    options,
    options_of_role,
    output,
    print_result,
    raise_without_verdict,
    role_choices,
    say,
    settings_of,
    waiting_options,
    wants_color,
    with_budget,
)
from whet.cli.interrupt import INTERRUPTED, exit_code, heed_termination
from whet.cli.interrupt import run_coroutine as run_stoppable
from whet.cli.output import own_output
from whet.errors import ProviderError, StorageError, UsageError, WhetError

FOLDER_RUNS = (
    "\n\nA task folder is a program. Its reward.py, data.py and tools run with your permissions and "
    "see your keys, except the variables that `env:` in task.yaml withholds. Run somebody else's "
    "folder only where you would run their script."
)


def keywords(options: Mapping[str, object]) -> dict[str, Any]:
    """Options of a command as keyword arguments of the function of that name: `--max-...` is its budget, `--out` its run."""
    words = with_budget(role_choices(options))
    if "out" in words:
        words["run"] = words.pop("out")
    return words


_CALLS = click.IntRange(min=1)
_model_options = options(
    model_options(
        "Task model: openai/NAME, anthropic/NAME, ollama/NAME, ..., hf/PATH, embedded/NAME, scripted/NAME."
    ),
    click.option(
        "--task-lms",
        metavar="A,B,C",
        callback=names_of,
        help="Several task models instead of --lm; the search finds one prompt for all of them.",
    ),
    click.option(
        "--aggregate",
        metavar="mean|worst",
        help="With several tasks or task models: how their rewards are combined (default mean).",
    ),
    click.option("--concurrency", type=_CALLS, metavar="N", help="Calls in flight at once (default 32)."),
)
_POLICY = "Model whose weights are trained, or the folder of a checkpoint."
_PROCESSES = "Number of processes that train the policy together, each on its own GPU."
_ALPHA = click.option(
    "--alpha",
    type=float,
    metavar="A",
    help="Probability of a false promotion, over all openings of the test together (default 0.05).",
)
_ALPHA_POLICY = click.option(
    "--alpha-policy",
    metavar="strict|fdr",
    help="Quantity that alpha bounds: the probability of any false promotion (strict, the default), "
    "or the share of false promotions (fdr).",
)
_run_options = options(
    _model_options,
    waiting_options,
    batch_option,
    dry_run_option,
    optimizer_options(WRITES),
    click.option("--policy", metavar="ADDR", help=_POLICY),
    click.option("--processes", type=_CALLS, default=1, show_default=True, metavar="N", help=_PROCESSES),
    judge_options(JUDGES),
    limit_options(),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        callback=settings_of,
        help="Setting of the method (repeatable).",
    ),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--out", metavar="DIR", help="Run folder (default runs/TASK-METHOD-SEED)."),
    _ALPHA,
    _ALPHA_POLICY,
    click.option(
        "--minimum-effect", type=float, metavar="D", help="Gain in mean reward that a promotion must exceed."
    ),
    json_option,
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=examples(
        "whet init demo --from example && whet optimize demo   # no key, no rows: simulated models",
        "whet init mytask --from rows.csv                      # then it names the next command",
    ),
)
@click.version_option(whet.__version__, prog_name="whet")
def cli() -> None:
    """Sharpen prompts by reinforcement learning, with evidence."""


@cli.command(
    epilog="\b\nExamples:\n  whet optimize examples/python-docs\n  whet optimize mytask --method opro "
    "--lm openai/gpt-4o-mini --max-calls 500\n  whet optimize mytask --lm openai/qwen "
    "--base-url http://localhost:8000/v1 --max-cost-usd 2 --seed 1\n\nThe same command resumes "
    "an interrupted run. For a finished run, the command prints the result at once." + FOLDER_RUNS
)
@click.argument("task")
@click.option(
    "--method",
    metavar="NAME",
    help="Search method (see `whet methods`). By default, whet chooses a method that fits the task.",
)
@click.option("--fork", metavar="RUN", help="Reuse the paid answers of another run.")
@click.option(
    "--control",
    metavar="NAME",
    help="Afterwards, run this method as a control and print its result beside the first. Each gets "
    "half of the limits.",
)
@click.option(
    "--more",
    metavar="FILE",
    help="File of fresh rows for a finished run. Both prompts answer these rows, then the test is repeated.",
)
@_run_options
def optimize(task: str, settings: dict[str, str], as_json: bool, **options: Any) -> None:
    """Search for a better prompt for the task folder TASK, and test the best one on the sealed test split."""
    from whet.cli import show

    try:
        result = show.with_progress(task, keywords({**options, "settings": settings}))
    except ProviderError as error:
        if as_json and error.result is not None:
            emit(error.result)
        raise
    print_result(result, as_json, show.result)
    raise_without_verdict(result)


@cli.command(
    epilog="\b\nExamples:\n  whet evaluate mytask --split test\n  whet evaluate mytask --prompt runs/mytask-opro-0/best.md --json"
    + FOLDER_RUNS
)
@click.argument("task")
@click.option("--prompt", metavar="FILE", help="Prompt to evaluate (default: the task's own).")
@click.option(
    "--split",
    default="validation",
    show_default=True,
    metavar="S",
    help="train, validation or test. On test, each new prompt counts as an opening, which makes "
    "later promotions harder.",
)
@_ALPHA
@_ALPHA_POLICY
@judge_options(JUDGES)
@click.option("--out", metavar="DIR")
@dry_run_option
@json_option
@_model_options
@waiting_options
@batch_option
def evaluate(task: str, prompt: str | None, split: str, as_json: bool, **options: Any) -> None:
    """Measure the mean reward of a prompt on one split, with its 95% interval."""
    from whet import api
    from whet.cli import show

    words = keywords(options)
    file = None if prompt is None else Path(prompt)
    with show.show_progress_of(task) as progress:
        evaluated = run_stoppable(
            api.aevaluate(Path(task), prompt=file, split=split, progress=progress, **words)
        )
    print_result(evaluated, as_json, show.show_evaluation)


@cli.command(
    epilog="\b\nExamples:\n  whet compare mytask --methods opro,protegi,random_search --max-calls 500 --seeds 3\n"
    "  whet compare mytask --methods opro,grips --max-calls 300 --seeds 5 --jobs 4\n"
    "  whet compare mytask --methods opro,grips --max-calls 300 --set grips.patience=4\n"
    "  whet compare examples/python-docs --methods rlprompt,autoprompt --transfer embedded/mlm" + FOLDER_RUNS
)
@click.argument("task")
@click.option("--methods", required=True, metavar="A,B,C", help="Methods, separated by commas.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, metavar="K")
@click.option(
    "--jobs", type=_CALLS, metavar="N", help="Number of runs at the same time, each in its own process."
)
@click.option(
    "--shard",
    metavar="I/N",
    help="Make only every N-th run, beginning with the I-th. Join the shards with `whet merge`.",
)
@options_of_role(
    "transfer",
    "--transfer",
    "Another model, which answers the sealed rows with each found prompt, unchanged.",
)
@click.option(
    "--reader",
    metavar="ADDR",
    default="embedded/mlm",
    show_default=True,
    help='Model whose perplexity measures how naturally a found text reads ("none": not measured).',
)
@_run_options
def compare(task: str, methods: str, seeds: int, as_json: bool, **options: Any) -> None:
    """Compare several methods under equal limits: test score, calls, cost, readability, transfer."""
    from whet.cli import show

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise UsageError("--methods names no method. Write for example --methods opro,random_search.")
    result = show.compare_with_progress(task, names, seeds, keywords(options))
    print_result(result, as_json, show.comparison)


@cli.command(
    cls=Learn,
    epilog="\b\nExamples:\n  whet learn prompt.md feedback.jsonl\n"
    "  whet learn prompt.md export.csv --optimizer-lm openai/gpt-4o-mini --dry-run\n"
    "  whet learn preferences prompt.md --from thumbs.jsonl --lm openai/gpt-4o-mini   # see its --help\n"
    "  whet learn prompt.md --undo\n  whet learn --watch --gate shop/greeting=tasks/greeting --lm openai/gpt-4o-mini",
)
@click.argument("prompt", required=False)
@click.argument("feedback", nargs=-1)
@learning_model_options
@click.option(
    "--region",
    metavar="NAME",
    help='Fence that receives the instructions (default: "instructions", or else the first fence).',
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Print the proposal without writing it.")
@click.option(
    "--accept-flagged",
    "accepted",
    multiple=True,
    metavar="ID",
    help="Apply the flagged row or instruction with this id (repeatable).",
)
@good_and_bad_options
@click.option("--undo", is_flag=True, help="Undo the last learned step.")
@click.option("--out", metavar="FILE", help="File for the new prompt (default: in place).")
@learning_limit_option
@click.option("--fresh", is_flag=True, help="Call the model again instead of using its recorded replies.")
@click.option(
    "--watch",
    is_flag=True,
    expose_value=False,
    help="Learn from the feedback about live prompts instead (`whet learn --watch --help`).",
)
@json_option
def learn(
    prompt: str | None,
    feedback: tuple[str, ...],
    undo: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Improve the prompt in the file PROMPT from the rows of FEEDBACK files (.jsonl, .json, .csv).

    `whet learn preferences` searches for the prompt whose answers people prefer (see its --help). `whet learn --watch`, a
    command of whet-live, improves the prompts of the registry from the feedback about their live traffic.
    """
    from whet.cli import learn as learning

    if prompt is None:
        raise UsageError("Name a prompt file, or add --watch.")
    if undo and feedback:
        raise UsageError("--undo takes back the last step and uses no feedback. Omit --undo or the feedback.")
    if undo:
        learning.undo_last_step(prompt, as_json)
        return
    if not feedback:
        raise UsageError("Name at least one feedback file, or add --undo.")
    options["accepted"] = frozenset(options["accepted"])
    chosen = {**role_choices(options), "prompt": prompt, "feedback": feedback}
    learning.run_learning(chosen, yes=yes, dry_run=dry_run, as_json=as_json)


@cli.command(
    epilog=examples("whet methods", "whet methods opro", "whet methods mopps", "whet methods --json")
)
@click.argument("name", required=False)
@json_option
def methods(name: str | None, as_json: bool) -> None:
    """List all methods, including those of installed packages: what each method does, needs and trains. With NAME, show that
    method and its settings, or the setting, reward or environment that a paper calls so."""
    from whet.cli import show
    from whet.methods import describe_mechanism, describe_method, mechanism_names, table

    if name is not None:
        mechanism = describe_mechanism(name)
        if mechanism is not None:
            print_result(mechanism, as_json, show.mechanism)
            return
        print_result(describe_method(name), as_json, show.method)
        return
    rows, unusable = table()
    listed = {"methods": rows, "unusable": unusable, "mechanisms": mechanism_names()}
    print_result(listed, as_json, show.show_methods)


@cli.command(epilog=examples("whet report runs/python-docs-bdpl-0", "whet report python-docs-bdpl-0"))
@click.argument("run")
@output(lambda result: click.echo(result["report"]))
def report(run: str) -> dict[str, str]:
    """Write the report of a finished or running run again, and print the path of its file."""
    from whet import api

    return {"report": str(api.report(run))}


@cli.command(epilog=examples("whet runs", "whet runs --root experiments --json", "whet runs --team"))
@click.option("--root", metavar="DIR", help="[default: runs]")
@click.option("--team", is_flag=True, help="List the runs of all machines that share $WHET_STATE.")
@json_option
def runs(root: str | None, team: bool, as_json: bool) -> None:
    """List the runs below a folder, or of a team, with their state and result."""
    from whet import api
    from whet.cli import show

    if team:
        if root is not None:
            raise UsageError(
                "--root lists the runs of a folder of this machine, and --team those of all "
                "machines. Omit one of them."
            )
        print_result(api.runs(team=True), as_json, show.show_team, "runs")
        return
    if root is not None and not Path(root).is_dir():
        raise UsageError(f"--root: there is no folder {root}. Name the folder of the runs.")
    root = root or "runs"
    print_result(api.runs(root), as_json, lambda rows: show.show_runs(rows, root), "runs")


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The codes by which the system reports that a disk or a quota is full."""


def main() -> None:
    """Entry point: every expected failure becomes one clear message and the exit code of the contract."""
    own_output()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as stderr: a letter that it has not ends no command
    try:
        try:
            with heed_termination():
                code = cli.main(standalone_mode=False, color=wants_color())
        finally:
            sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = _say(INTERRUPTED, exit_code())
    except click.exceptions.ClickException as error:
        error.show()
        code = 2
    except WhetError as error:
        code = _say(f"whet: {error.spell(option_of)}", error.exit_code)
    except BrokenPipeError:
        code = 0
    except UnicodeEncodeError as error:
        if error.encoding != sys.getfilesystemencoding() or error.encoding == "utf-8":
            raise
        what = f"{error.object!r} cannot be the name of a file here: the locale's names are {error.encoding}"
        code = _say(f"whet: {what}. Set the environment variable PYTHONUTF8=1.", UsageError.exit_code)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # what is still in it cannot be written either
        reason = f"{os.strerror(error.errno)}. The files that the command wrote are complete."
        code = _say(f"whet: the standard output cannot be written: {reason}", StorageError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str, code: int) -> int:
    say(message, err=True)
    return code
