"""The parts that commands share: options, and the printing of results."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from whet._util.variables import TRUSTED_HOSTS
from whet.errors import StorageError, UsageError, quantity, spelling

if TYPE_CHECKING:
    from whet.prompt import Prompt

Command = Callable[..., Any]
_LONGEST = 200
_BETWEEN = re.compile(r",(?=\s*[A-Za-z][\w-]*[:/])")


def examples(*lines: str) -> str:
    """An epilog that shows commands."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def options(*declared: Callable[..., object]) -> Callable[[Command], Command]:
    """Several options and arguments as one decorator, in the order of the help text."""

    def declare(command: Command) -> Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return declare


LEAST_MEMORY = 256
"""MiB of memory of a worker process at least: fewer do not hold Python and the usual libraries."""
waiting_options = options(
    click.option(
        "--workers",
        type=click.IntRange(min=0),
        metavar="N",
        help="Number of processes that call Python rewards (default: none, until such a reward is slow), and of copies of a "
        "local model.",
    ),
    click.option(
        "--worker-memory",
        type=click.IntRange(min=LEAST_MEMORY),
        metavar="MIB",
        help="Memory limit of each of these processes.",
    ),
    click.option(
        "--worker-gpus",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Share of a GPU for each copy of a local model (default: 1 if there is a GPU).",
    ),
    click.option(
        "--engine",
        metavar="NAME",
        help="Where these processes run: local (no processes), processes (this machine), ray (a Ray "
        "cluster) or ray://HOST:PORT.",
    ),
    click.option(
        "--fresh", is_flag=True, help="Call the models again instead of using the cache or an earlier run."
    ),
    click.option(
        "--max-wait",
        type=float,
        metavar="S",
        help="Longest time to wait for an endpoint that refuses calls, in seconds (default: 600 beyond the wait that it "
        "names, at most 3600).",
    ),
)
"""The options for the workers and for the longest waits."""
batch_option = click.option(
    "--batch",
    is_flag=True,
    help="Send the calls of baseline, validation and sealed test as batch jobs of the provider, "
    "which are cheaper but take hours.",
)

OPTION_NAMES = {"run": "out", "accepted": "accept-flagged"}
"""Parameters whose option has another name; the limits of a budget begin with `max`."""


def option_of(parameter: str, value: str | None) -> str:
    """The option of a parameter, with its value; a flag that is True stands alone, and a field of the method's config is set by
    `--set`.

    >>> option_of("max_calls", "5"), option_of("anyway", "True")
    ('--max-calls 5', '--anyway')
    """
    if parameter.startswith("config."):
        return f"--set {parameter.removeprefix('config.')}={'VALUE' if value is None else value}"
    name = OPTION_NAMES.get(parameter, parameter.replace("budget.", "max-").replace("_", "-"))
    return f"--{name}" if value in (None, "True") else f"--{name} {value}"


def name_options() -> None:
    """Until the command ends, texts of errors that it prints as findings name parameters by their options."""
    click.get_current_context().with_resource(spelling(option_of))


def _name_options(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        name_options()
    return value


dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    callback=_name_options,
    help="Print the plan and stop, without paying or writing anything.",
)
"""Nothing is recorded then, so that what the plan finds may speak of options."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
format_option = click.option(
    "--format",
    "form",
    metavar="NAME",
    help="Print only the prompt, in the format of another tool (openai, langfuse, langchain, "
    "prompty, dotprompt, mlflow, promptfoo), or as a document that has front matter but no "
    "markers (document).",
)


def check_one_form(plain: bool, form: str | None, as_json: bool, name: str = "--plain") -> None:
    """Raise UsageError for `--format` beside another option that says how the prompt is printed; `name` is that of `plain`."""
    if form is not None and (plain or as_json):
        raise UsageError(
            f"--format and {name if plain else '--json'} both choose how the prompt is printed. Use "
            "only one of them."
        )


def settings_of(context: click.Context, parameter: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE, as often as it is written, as a mapping of texts."""
    settings = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f'"{value}" is not KEY=VALUE.')
        settings[key.strip()] = text
    return settings


def names_of(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Addresses A,B,C as a list, the commas inside an address left alone; None where the option is not given."""
    return None if value is None else [name.strip() for name in _BETWEEN.split(value) if name.strip()]


def json_settings(
    context: click.Context, parameter: click.Parameter, values: Iterable[str]
) -> dict[str, object]:
    """KEY=VALUE as a mapping of JSON values, of texts where a value is no JSON."""
    import json

    settings: dict[str, Any] = settings_of(context, parameter, values)
    for key, text in settings.items():
        with contextlib.suppress(ValueError):
            settings[key] = json.loads(text)
    return settings


def role_options(
    context: click.Context, parameter: click.Parameter, values: Iterable[str]
) -> dict[str, object]:
    """KEY=VALUE as a mapping of JSON values, of texts where a value is no JSON; a dot in a key opens a mapping inside."""
    nested: dict[str, Any] = {}
    for key, value in json_settings(context, parameter, values).items():
        *outer, last = key.split(".")
        inner = nested
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise click.BadParameter(
                    f'"{key}" would set an entry of "{name}", but "{name}" '
                    "already has a plain value. Leave one of them out."
                )
        inner[last] = value
    return nested


def _trust(context: click.Context, parameter: click.Parameter, hosts: Iterable[str]) -> None:
    """Add hosts to those that the environment trusts, for this process and those that it starts."""
    trusted = [os.environ.get(TRUSTED_HOSTS, ""), *hosts]
    if len(trusted) > 1:
        os.environ[TRUSTED_HOSTS] = ",".join(host for host in trusted if host)


def option_of_role(role: str, *names: str) -> Callable[[Command], Command]:
    """An option that says how the model of a role is reached and asked."""
    return click.option(
        *names,
        multiple=True,
        metavar="KEY=VALUE",
        callback=role_options,
        help=f"Option of the {role} model, as under `models` in task.yaml: top_p=0.9, "
        "key_variable=NAME, extra_body.top_k=20, ...",
    )


trust_option = click.option(
    "--trust-host",
    multiple=True,
    metavar="HOST",
    expose_value=False,
    callback=_trust,
    help=f"Allow whet to send keys to this host, which only the task's file names (or set {TRUSTED_HOSTS}).",
)


def model_options(help_text: str, *, several: bool = False) -> Callable[[Command], Command]:
    """--lm, --base-url, --lm-option and --trust-host; `several`: --lm may be repeated, and the others hold for all."""
    return options(
        click.option("--lm", metavar="ADDR", help=help_text, multiple=several),
        click.option(
            "--base-url",
            metavar="URL",
            help="URL of an OpenAI-compatible endpoint (A,B: several servers of one model).",
        ),
        option_of_role("task", "--lm-option", "task_options"),
        trust_option,
    )


def options_of_role(role: str, option: str, help_text: str) -> Callable[[Command], Command]:
    """The address of a role's model by `option`, and --ROLE-base-url and --ROLE-option."""
    return options(
        click.option(option, metavar="ADDR", help=help_text),
        click.option(
            f"--{role}-base-url", metavar="URL", help=f"Endpoint of the {role} model, if it has its own."
        ),
        option_of_role(role, f"--{role}-option", f"{role}_options"),
    )


def optimizer_options(help_text: str) -> Callable[[Command], Command]:
    """--optimizer-lm, --optimizer-base-url and --optimizer-option."""
    return options_of_role("optimizer", "--optimizer-lm", help_text)


def judge_options(help_text: str) -> Callable[[Command], Command]:
    """--judge-lm, --judge-base-url and --judge-option."""
    return options_of_role("judge", "--judge-lm", help_text)


learning_model_options = options(
    optimizer_options(
        "Model that reads the comments and writes instructions (default: none; you write the instructions)."
    ),
    click.option("--base-url", metavar="URL", help="URL of an OpenAI-compatible endpoint."),
    trust_option,
)
good_and_bad_options = options(
    click.option(
        "--good",
        multiple=True,
        metavar="VALUE",
        help="Rating value that means good. If there are two values, the other one means bad.",
    ),
    click.option(
        "--bad",
        multiple=True,
        metavar="VALUE",
        help="Rating value that means bad. If there are two values, the other one means good.",
    ),
)
learning_limit_option = click.option(
    "--max-optimizer-calls",
    "most_calls",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
)
NAME_A_MODEL = (
    "A model can read the comments and write the instructions: add --optimizer-lm openai/NAME, or "
    "for a local model --optimizer-lm openai/NAME --base-url http://localhost:11434/v1"
)
WRITES = 'Optimizer model, which writes prompts (default: the task model; "none" forbids its use).'
JUDGES = "Judge model, which scores answers (default: the task model)."
_ROLES = {"task": "lm", "optimizer": "optimizer_lm", "judge": "judge_lm", "transfer": "transfer"}
"""The parameter with the model of each role that a command line names."""


def role_choices(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command with the models of its roles as Python programs give them."""
    words = dict(values)
    for role, name in _ROLES.items():
        chosen, base_url = words.pop(f"{role}_options", {}), words.pop(f"{role}_base_url", None)
        if chosen or base_url:
            words[name] = with_options(words[name], base_url, chosen)
    return words


def with_options(
    lm: str | None, base_url: str | None, options: Mapping[str, Any]
) -> str | dict[str, object] | None:
    """A model with what the command line says about it, as Python programs say it."""
    values = {**({"address": lm} if lm else {}), **({"base_url": base_url} if base_url else {}), **options}
    return lm if values.keys() <= {"address"} else values


class _Limit(click.ParamType[Any]):
    """A number; the refusal of any other text shows one."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        self.kind, self.name = kind, "integer" if kind is int else "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """The number that a text is."""
        try:
            return self.kind(value)
        except ValueError:
            example = "digits only, such as 500" if self.kind is int else "a number, such as 2.5"
            self.fail(f"{value!r} is not a valid {self.name}. Write {example}.", param, ctx)


_OLD_NAMES = {"cost_usd": ("--max-cost",)}
"""Other spellings of the options of limits."""
_LIMITS: Mapping[str, tuple[type[int] | type[float], str, str]] = {
    "calls": (int, "N", "Limit on model calls, including retries and the sealed test."),
    "task_calls": (int, "N", "Limit on calls of the task model."),
    "optimizer_calls": (int, "N", "Limit on calls of the optimizer model."),
    "judge_calls": (int, "N", "Limit on calls of the judge model."),
    "tokens": (int, "N", "Limit on input plus output tokens."),
    "cost_usd": (float, "USD", "Limit on cost in dollars; needs prices in task.yaml."),
    "seconds": (float, "S", "Limit on wall-clock time, in seconds."),
}
TRIAL_LIMITS = ("calls", "task_calls", "judge_calls", "tokens", "cost_usd")
"""The limits of what writes no prompt."""


def limit_options(names: Iterable[str] = tuple(_LIMITS)) -> Callable[[Command], Command]:
    """--max-calls and so on, for the limits of these names."""
    return options(
        *(
            click.option(
                *(f"--max-{name.replace('_', '-')}", *_OLD_NAMES.get(name, ())),
                type=_Limit(kind),
                metavar=metavar,
                help=help_text,
            )
            for name, (kind, metavar, help_text) in _LIMITS.items()
            if name in names
        )
    )


def with_budget(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command with the limits among them as one `budget`."""
    from whet.run import Budget

    words = {name: value for name, value in values.items() if name.removeprefix("max_") not in _LIMITS}
    limits = {name: values[f"max_{name}"] for name in _LIMITS if f"max_{name}" in values}
    return {**words, "budget": Budget.from_json(limits)} if limits else words


def print_result(value: Any, as_json: bool, show: Callable[[Any], None], key: str = "") -> None:
    """The result of a command: with `show`, or as one JSON object, a list under `key`."""
    if as_json:
        emit({key: [_json(item) for item in value]} if key else _json(value))
    else:
        show(value)


def raise_without_verdict(run: Mapping[str, Any]) -> None:
    """Raise StorageError, with its exit code, for a run that could not open its sealed test: no script may take its prompt for
    a tested one."""
    if run.get("status") == "stopped":
        raise StorageError(run.get("reason") or run["improvement"]["reason"])


def output(show: Callable[[Any], None], key: str = "") -> Callable[[Callable[..., Any]], Command]:
    """Give a command the option --json, and print what it returns as `print_result` does."""

    def declare(command: Callable[..., object]) -> Command:
        @functools.wraps(command)
        def run(*args: object, as_json: bool, **kwargs: object) -> None:
            print_result(command(*args, **kwargs), as_json, show, key)

        return json_option(run)

    return declare


def _json(value: Any) -> Any:
    return value.as_json() if hasattr(value, "as_json") else value


def emit(value: Mapping[str, object] | Sequence[Any]) -> None:
    """One JSON value on stdout."""
    import orjson

    value = dict(value) if isinstance(value, Mapping) else value
    print_exactly(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode())


def print_prompt(prompt: Prompt, form: str | None) -> None:
    """A prompt on stdout, as its text or in the format of another tool; a line on stderr where no input has a place."""
    from whet.prompt import write_prompt_as

    print_exactly(write_prompt_as(prompt, form) if form else prompt.plain)
    if form not in (None, "document") and not prompt.slots:
        warn(
            "The prompt has no slot, so the file has no place for the input: send it as the user message.",
            err=True,
        )


def print_exactly(text: str) -> None:
    """A text on stdout as it is. Into a file or a program it goes in UTF-8 and with its own line ends, whatever the locale says:
    what whet reads again is written so."""
    click.echo(text if sys.stdout.isatty() else text.encode("utf-8"), nl=False)


def wants_color() -> bool | None:
    """False where NO_COLOR is set (no-color.org) or the terminal is dumb; None: where the output is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def show_hidden(text: object) -> str:
    """A text with its hidden characters as code points."""
    from whet.instructions import visible

    return visible(str(text))


def say(text: object, err: bool = False, **style: Any) -> None:
    """Print what may hold a text of a model or a user: its control characters never reach the terminal as such."""
    shown = show_hidden(text)
    click.echo(click.style(shown, **style) if any(style.values()) else shown, err=err)


def line(text: object, longest: int = _LONGEST) -> str:
    """A text of somebody on one line, cut."""
    words = " ".join(str(text).split())
    return show_hidden(words if len(words) <= longest else f"{words[:longest]}…")


def join_cells(*cells: object) -> None:
    """Cells beside each other; empty ones are left out."""
    click.echo("  ".join(shown for cell in cells if cell is not None and (shown := line(cell))))


def count_noun(number: int, word: str) -> str:
    """A number with its noun."""
    return quantity(number, word)


def warn(text: str, err: bool = False) -> None:
    """A warning, with `err` on stderr; a command prints each once."""
    context = click.get_current_context(silent=True)
    printed: set[str] = set() if context is None else context.meta.setdefault("whet.warnings", set())
    if text in printed:
        return
    printed.add(text)
    say(f"warning: {text}", err, fg="yellow")


def show_diff(text: str) -> None:
    """A unified diff in colours."""
    for one in text.splitlines():
        color = {"+": "green", "-": "red"}.get(one[:1])
        say(one, fg=color)


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    from rich.cells import cell_len

    lines = [[show_hidden(cell) for cell in cells] for cells in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
        click.echo("  ".join(padded).rstrip())
