"""`whet init`: a task folder from rows in any form."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from whet.cli.common import examples, output, show_hidden
from whet.errors import UsageError
from whet.task import (
    NO_LABELS,
    NO_SPLIT,
    ImportedData,
    NewTaskChoices,
    StartedTask,
    check_folder,
    columns_of,
    describe_columns,
    divide,
    find_split,
    guess,
    read_material,
    start_task,
    starting_prompt,
)
from whet_client.storable import show_value

SOURCES = "a .csv, .tsv, .jsonl, .json or .py file, promptfooconfig.yaml, datasets:NAME[:split], or example"

ROWS_SHOWN = 5
"""Rows whose inputs a model reads that asks for requirements."""


@click.command(
    "init",
    context_settings={"allow_extra_args": True},
    epilog=examples(
        "whet init mytask --from tickets.csv",
        "whet init mytask --from tickets.csv --input subject,body --target team --lm openai/gpt-4o-mini",
        "whet init mytask --from promptfooconfig.yaml",
        "whet init mytask --from datasets:cornell-movie-review-data/rotten_tomatoes:train",
        "whet init mytask --from tickets.csv --ask --optimizer-lm openai/gpt-4o-mini",
        "whet init mytask --from letters.csv --rubric 'The answer is polite and names the next step.'",
        "whet init demo --from example && whet optimize demo",
    ),
)
@click.argument("folder")
@click.option("--from", "source", metavar="SOURCE", help=f"Source of the rows: {SOURCES}.")
@click.option("--input", "inputs", metavar="A,B", help="Columns that form the input of the model.")
@click.option("--target", metavar="COLUMN", help="Column with the right answer.")
@click.option("--labels", metavar="A,B", help='The possible answers ("none": free text).')
@click.option(
    "--split",
    metavar="COLUMN",
    help='Column that marks each row train, validation or test ("none": whet divides the rows).',
)
@click.option(
    "--reward", metavar="NAME", help="A built-in reward, or a Python file with reward(example, output)."
)
@click.option(
    "--rubric",
    metavar="TEXT",
    help="What a good answer is, a text or a file: a judge grades by it, and rows need no right answer.",
)
@click.option("--prompt", metavar="FILE", help="Start prompt: a file, or the text itself.")
@click.option("--lm", metavar="ADDR", help="Task model, written into task.yaml.")
@click.option("--yes", is_flag=True, help="Do not ask; accept the proposed choices.")
@click.option(
    "--ask",
    "elicits",
    is_flag=True,
    help="Ask you for the requirements of a good answer. They go into the prompt, and a checklist "
    "checks them.",
)
@click.option("--optimizer-lm", "asker", metavar="ADDR", help="With --ask: model that writes the questions.")
@output(lambda values: _show(values))
def init(
    folder: str, source: str | None, yes: bool, elicits: bool, asker: str | None, **options: Any
) -> dict[str, Any]:
    """Create the task folder FOLDER from rows, and print the choices and the next steps.

    On a terminal, whet asks for the choices that no option makes. A folder that is not empty is refused; nothing is overwritten.
    """
    _refuse_rows_as_arguments(folder, source)
    check_folder(folder)
    _refuse_empty_options(source, options)
    asks = not yes and _on_terminal()
    _refuse_to_ask(elicits, asks, yes, asker)
    if source is None and not asks:
        raise UsageError(f"Name the source of the rows: --from SOURCE. SOURCE is {SOURCES}.")
    labels = _labels_of(options.pop("labels"))
    material = read_material(source or click.prompt(f"Rows ({SOURCES})", err=True))
    material = _divide_rows(material, options.pop("split"), options, asks)
    if asks:
        _ask_for_choices(material, options, elicits)
    requirements: list[str] = []
    if elicits:
        from whet.cli.requirements import elicit

        begun = starting_prompt(options["prompt"], material)
        inputs_shown = _inputs_shown(material, options["inputs"])
        requirements = elicit(inputs_shown, asker, "" if begun is None else begun.text)
    choices = NewTaskChoices(
        requirements=requirements,
        input=_parse_list(options.pop("inputs")) or (),
        labels=labels,
        source=source,
        **options,
    )
    return _describe_task(folder, start_task(folder, material, choices))


def _ask_for_choices(material: ImportedData, options: dict[str, Any], elicits: bool) -> None:
    """Ask on the terminal for the choices that no option makes, and set them in `options`."""
    if material.columns:
        prompt = starting_prompt(options["prompt"], material)
        slots = frozenset() if prompt is None else prompt.slots
        if options["target"] is None:
            options["target"] = _ask_for_target(material, options, slots)
            graded = elicits or any(
                grader is not None
                for grader in (options["target"], options["reward"], options["rubric"], material.reward)
            )
            if not graded:  # there is no default, so click asks again after an empty answer
                options["rubric"] = click.prompt(
                    "What a good answer is (a judge grades by it; a file or text)", err=True
                )
        if options["inputs"] is None:
            inputs, _ = guess(material, slots, options["target"], options["reward"])
            options["inputs"] = click.prompt(
                "Input columns", ",".join(inputs), err=True, value_proc=_column_reader(material)
            )
    if options["prompt"] is None and material.prompt is None:
        question = "Prompt (file or text; empty: whet writes a first prompt)"
        options["prompt"] = click.prompt(question, "", err=True) or None
    if options["lm"] is None and "models" not in material.settings:
        question = "Model (such as openai/NAME; empty: decide later)"
        options["lm"] = click.prompt(question, "", err=True) or None


def _ask_for_target(material: ImportedData, options: dict[str, Any], slots: frozenset[str]) -> str | None:
    """Ask for the target column, and propose the guessed one; None if the rows have none."""
    click.echo(f"Columns: {show_hidden(describe_columns(material))}", err=True)
    guessed = None if options["rubric"] else guess(material, slots, reward=options["reward"])[1]
    question = "Target column (the right answer; empty: there is none)"
    column: str = click.prompt(question, guessed or "", err=True, value_proc=_column_reader(material))
    return column or None


def _describe_task(folder: str, made: StartedTask) -> dict[str, Any]:
    """The result of `whet init`: files, rows, choices, warnings and the next commands."""
    task, where = made.task, shlex.quote(folder)
    lm = "" if "task" in task.document.get("models", {}) else " --lm openai/NAME"
    return {
        "folder": folder,
        "files": sorted(path.name for path in made.folder.iterdir()),
        "rows": {"train": len(task.train), "validation": len(task.validation), "test": len(task.test)},
        "chosen": list(made.chosen),
        "warnings": [*made.warnings, *task.warnings],
        "next": [f"whet {command} {where}{lm}" for command in ("doctor", "evaluate", "advise", "optimize")],
    }


def _divide_rows(
    material: ImportedData, column: str | None, options: dict[str, Any], asks: bool
) -> ImportedData:
    """The rows by the split that the caller's column names, or the one that is found and no other option uses."""
    if column is None:
        column = find_split(material)
        if column in (*(_parse_list(options["inputs"]) or ()), options["target"]):
            return material
        prompt = None if column is None else starting_prompt(options["prompt"], material)
        if prompt is not None and column in prompt.slots:
            return material
        if column is not None and asks:
            question = f'Column with the split of each row ("{NO_SPLIT}": whet divides the rows)'
            column = click.prompt(question, column, err=True)
    return material if column is None else divide(material, column)


def _refuse_empty_options(source: str | None, options: dict[str, Any]) -> None:
    """Raise UsageError for an option that is given and says nothing."""
    texts = {
        "from": source,
        "input": options["inputs"],
        **{key: options[key] for key in ("target", "labels", "split", "reward", "rubric", "lm")},
    }
    for option, text in texts.items():
        if text is not None and not text.strip(" ,"):
            raise UsageError(f"--{option} is empty. Give a value, or omit the option.")


def _refuse_to_ask(elicits: bool, asks: bool, yes: bool, asker: str | None) -> None:
    """Raise UsageError where requirements are to be asked for and nobody can answer, or a model for them is named in vain."""
    if elicits and not asks:
        raise UsageError(
            "--ask asks a person, and "
            + (
                "--yes forbids questions. Give only one of them."
                if yes
                else "there is no terminal to ask on. Omit --ask,"
            )
            + (
                ""
                if yes
                else " and write what you require into the prompt and as items of a checklist into task.yaml."
            )
        )
    if asker is not None and not elicits:
        raise UsageError("--optimizer-lm names the model that asks for requirements. Add --ask.")


def _inputs_shown(material: ImportedData, inputs: str | None) -> list[str]:
    """The inputs of the first rows, as a model that asks for requirements reads them."""
    names = _parse_list(inputs) or (guess(material)[0] if material.columns else ["input"])
    rows = material.all_rows()[:ROWS_SHOWN]
    return ["; ".join(str(row[name]) for name in names if name in row) for row in rows]


def _column_reader(material: ImportedData) -> Callable[[str], str]:
    """A reader of typed columns, separated by commas, which asks again for one that there is not."""
    names = columns_of(material)

    def read(text: str) -> str:
        unknown = [
            name for name in _parse_list(text) or () if name not in names and text.strip() not in names
        ]
        if unknown:
            known = ", ".join(names)
            raise click.UsageError(show_hidden(f'There is no column "{unknown[0]}". The columns: {known}.'))
        return text

    return read


def _refuse_rows_as_arguments(folder: str, source: str | None) -> None:
    """Raise UsageError for rows that stand where the folder does, or beside it."""
    if extra := click.get_current_context().args:
        raise UsageError(
            f"whet init takes one folder, but got also {shlex.join(extra)}. Name the rows with "
            f"--from: whet init {shlex.quote(folder)} --from {shlex.quote(extra[0])}"
        )
    if source is None and Path(folder).is_file():
        raise UsageError(
            f"{folder} is a file. Name a new folder for the task, and the rows with --from: "
            f"whet init FOLDER --from {shlex.quote(folder)}"
        )


def _labels_of(text: str | None) -> list[str] | None:
    """The labels of --labels. Raises UsageError for a single one."""
    labels = _parse_list(text)
    if labels is not None and len(labels) == 1 and labels != [NO_LABELS]:
        raise UsageError(
            f"--labels names only one label, {show_value(labels[0])}, but a task needs at least two. "
            "Separate labels by commas: --labels A,B"
        )
    return labels


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _parse_list(text: str | None) -> list[str] | None:
    return (
        None
        if text is None
        else [part.strip() for part in next(csv.reader([text], skipinitialspace=True)) if part.strip()]
    )


def _show(values: dict[str, Any]) -> None:
    say = click.echo
    say(f"{values['folder']}: {', '.join(values['files'])}")
    for line in values["chosen"]:
        say(f"  {show_hidden(line)}")
    say("  rows: " + ", ".join(f"{count} {split}" for split, count in values["rows"].items()))
    for warning in values["warnings"]:
        say(click.style(f"  warning: {show_hidden(warning)}", fg="yellow"))
    say("next:")
    for command in values["next"]:
        say(f"  {command}")
