"""A new task folder from rows in any form: what is input, what is target, which labels, which reward, and why."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean, quantity
from whet.prompt import Prompt
from whet.rewards import WITHOUT_LABELS, choose_reward
from whet.rewards.choose import MOST_LABELS, ROWS_PER_LABEL, why_no_labels
from whet.stats import fewest_clusters, opening_alpha
from whet.task.columns import (
    columns_of,
    columns_of_reward,
    count_values,
    describe_columns,
    find_leak,
    fold_cell,
    guess_candidates,
    why_target,
)
from whet.task.examples import holds_media
from whet.task.files import read_text
from whet.task.imported_data import ImportedData, leave_out_archived
from whet.task.memory import LONGEST_PATH, names_prompt_file
from whet.task.multiple_choice import write_options
from whet.task.prompts import first_prompt, load_prompt, prompt_file
from whet.task.requirements import prompt_with_requirements, reward_with_requirements
from whet.task.save import check_folder, write_folder
from whet.task.spec import ALPHA
from whet.task.target_objects import lists_nothing, lists_spans, read_python_values, read_targets
from whet.task.task import Task, load_task
from whet.task.tree import write_yaml
from whet.task.unit_tests import PYTHON_TESTS, with_named_tests
from whet.task.worked_answers import BOX, split_worked_answers
from whet_client.prompt.document import MASK
from whet_client.prompt.slots import canonical_name, name_slot
from whet_client.storable import show_value

NO_LABELS = "none"
_FLOAT = re.compile(r"-?[0-9]{1,15}\.0")


@dataclass(frozen=True)
class NewTaskChoices:
    """The caller's settings of the new task. Where one is None or empty, a rule decides, and says so. `source` is the place of
    the rows that the caller named. `requirements` are the demands on every answer, one sentence each. `rubric`: by which a judge
    grades the answers, a file or a text."""

    input: Sequence[str] = ()
    target: str | None = None
    labels: Sequence[str] | None = None
    reward: str | None = None
    prompt: str | None = None
    lm: str | None = None
    name: str | None = None
    source: str | None = None
    requirements: Sequence[str] = ()
    rubric: str | None = None


_RUBRIC = "rubric.md"
_OF_FIELDS = ("input", "inputs")
"""Columns that are made to hold one field for each slot: those of rows of a task, of Langfuse and of LangSmith."""


@dataclass(frozen=True)
class StartedTask:
    """A task that was written, and what was chosen for it, one sentence each."""

    task: Task
    folder: Path
    chosen: Sequence[str]
    warnings: Sequence[str] = ()


def start_task(folder: str | Path, material: ImportedData, choices: NewTaskChoices) -> StartedTask:
    """Write a task folder that `whet evaluate` and `whet optimize` accept.

    Raises UsageError for a folder that is not empty, and for choices that do not fit the rows; then nothing is written.
    """
    target = check_folder(folder)
    chosen, warnings = list(material.notes), list(material.warnings)
    files = dict(material.files)
    prompt = starting_prompt(choices.prompt, material)
    rubric = None if choices.rubric is None else _read_rubric(choices, material)
    free = choices.reward is choices.target is choices.labels is choices.rubric is material.reward is None
    if free and (tested := with_named_tests(material, choices.input, chosen)) is not None:
        material, choices = tested, replace(choices, reward=PYTHON_TESTS)
    rows, material = _rows(folder, material, choices, prompt, chosen, warnings)
    every = [row for part in rows.values() for row in part]
    if choices.reward is choices.rubric is material.reward is None:
        _take_results(every, chosen)
    why_none = "" if material.labels else "an answer is compared as it is, and a label is read from it"
    if choices.reward in WITHOUT_LABELS:
        why_none = f"the reward {choices.reward} compares what answers mean, and one label is read from them"
    if rubric is not None:
        why_none = "a judge grades the answers by your rubric"
    if choices.labels is None and not why_none:
        _unify_spelling(every, chosen)
    labels = _labels(every, choices.labels, chosen, why_none)
    by_requirements = (
        bool(choices.requirements) and choices.reward is choices.rubric is material.reward is None
    )
    ungraded = by_requirements and all(row.get("target") in (None, "") for row in every)
    reward: Any
    if rubric is not None:
        files[_RUBRIC], reward = f"{rubric}\n".encode(), {"judge": {"rubric": _RUBRIC}}
        chosen.append(f"reward: judge, a model that grades each answer by the rubric in {_RUBRIC}")
    else:
        reward = None if ungraded else _reward(every, labels, choices.reward, material, files, chosen)
    if choices.requirements:
        reward, how = reward_with_requirements(reward, labels, choices.requirements)
        chosen.append(how)
    if prompt is None:
        scored = bool(labels) and (choices.lm or "").startswith("embedded/")
        prompt = Prompt.parse(first_prompt(every[0]["input"], labels, scored=scored))
        chosen.append("prompt: a first draft; add what you know about the task")
    if MASK in prompt.slots and not labels and not any(MASK in row["input"] for row in every):
        why = why_no_labels([row.get("target") for row in every]) or "there are none"
        raise UsageError(
            f"The prompt has the slot {{{{{MASK}}}}}, where a label goes, and the task has no labels: {why}. Name them with "
            "--labels A,B, or take the slot out of the prompt."
        )
    prompt = prompt_with_requirements(prompt, choices.requirements)
    name, files_prompt = prompt_file(prompt)
    own_prompt = None if choices.prompt is None else _path_of_prompt(choices.prompt)
    document: dict[str, object] = {"name": choices.name or _name(target), "prompt": name}
    document["data"] = {split: f"{split}.jsonl" for split in rows} if "" not in rows else "data.jsonl"
    document |= {"reward": reward, **({"labels": labels} if labels else {}), **material.settings}
    if choices.lm is not None:
        document["models"] = {"task": choices.lm}
    files[name] = files_prompt
    for split, part in rows.items():
        files[f"{split or 'data'}.jsonl"] = "".join(
            json.dumps(r, ensure_ascii=False) + "\n" for r in part
        ).encode()
    files["task.yaml"] = write_yaml(document).encode()
    places = {f"{split or 'data'}.jsonl": lines for split, lines in material.places.items()}
    if own_prompt is not None:
        places[name] = _lines_of(own_prompt, files_prompt)
    write_folder(target, files, places=places)
    task, fewest = load_task(target), fewest_clusters(opening_alpha(ALPHA, 1))
    if len(task.test) < fewest:
        warnings.append(
            f"{quantity(len(task.test), 'row')} in the sealed test: a promotion needs at least {fewest} there, and about 60 to "
            "show a gain of 0.2. Give more rows."
        )
    return StartedTask(task, target, chosen, warnings)


def _name(folder: Path) -> str:
    return re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip(".-") or "task"


def starting_prompt(choice: str | None, material: ImportedData) -> Prompt | None:
    """The prompt of the caller, a file or a text, else the one that came with the rows. Raises UsageError."""
    if choice is None:
        return None if material.prompt is None else Prompt.parse(material.prompt)
    path = _path_of_prompt(choice)
    return Prompt.parse(choice, folder=Path()) if path is None else load_prompt(path)


def _read_rubric(choices: NewTaskChoices, material: ImportedData) -> str:
    """The text of the rubric that the caller gives, as a file or as itself. Raises UsageError."""
    if choices.reward is not None or material.reward is not None:
        whose = "--reward names another one" if choices.reward is not None else "these rows bring a reward"
        raise UsageError(f"--rubric makes a judge the reward, and {whose}. Give only one of them.")
    given = choices.rubric or ""
    one_line = "\n" not in given and len(given) < LONGEST_PATH
    if one_line and (given.endswith((".md", ".txt")) or os.path.isfile(given)):
        given = read_text(Path(given))
    if not given.strip():
        raise UsageError("The rubric is empty. Say what a good answer is.")
    return given.strip()


def _path_of_prompt(choice: str) -> Path | None:
    """The file that the caller names as the prompt; None where it is the text itself."""
    one_line = "\n" not in choice and "{{" not in choice and 0 < len(choice) < LONGEST_PATH
    return Path(choice) if one_line and (names_prompt_file(choice) or os.path.exists(choice)) else None


def _lines_of(path: Path, written: bytes) -> list[str]:
    """The place of each written prompt line in the caller's file; the file alone where it was another text."""
    lines = range(1, written.count(b"\n") + 2)
    same = path.read_bytes().removeprefix(b"\xef\xbb\xbf") == written
    return [f"{path}:{number}" if same else str(path) for number in lines]


def _rows(
    folder: str | Path,
    material: ImportedData,
    choices: NewTaskChoices,
    prompt: Prompt | None,
    chosen: list[str],
    warnings: list[str],
) -> tuple[dict[str, list[dict[str, Any]]], ImportedData]:
    """Rows as a task has them, with input, target and everything else as it is, and what they were made of."""
    if not material.columns:
        if choices.input or choices.target:
            raise UsageError(
                "These rows say themselves what input and target are. Leave --input and --target out."
            )
        return dict(material.rows), material
    material = leave_out_archived(material, chosen)
    names = columns_of(material)
    for name in (*choices.input, *filter(None, [choices.target])):
        if name not in names:
            raise UsageError(f'There is no column "{name}".{did_you_mean(name, names)}')
    if choices.target in choices.input:
        raise UsageError(
            f'"{choices.target}" is named as an input and as the target: the model would see the right answer. Name it once.'
        )
    filled = frozenset[str]() if prompt is None else prompt.slots
    own = columns_of_reward(material, choices.reward)
    inputs, targets = guess_candidates(material, filled, choices.target, choices.input, own)
    if choices.rubric is not None and choices.target is None:
        inputs, targets = [name for name in inputs if name not in targets], []
    if len(targets) > 1 and choices.reward is None and material.reward is None:
        raise UsageError(_several_targets(folder, targets, material, choices))
    target = targets[0] if len(targets) == 1 else None
    target = choices.target or (None if target in choices.input else target)
    inputs = list(choices.input) or [name for name in inputs if name != target]
    if not inputs:
        raise UsageError(f"No column can be the input beside the target {target}. Name one with --input.")
    every = material.all_rows()
    chosen.append(f"columns: {describe_columns(material)}")
    chosen.append(f"input: {', '.join(inputs)}" + ("" if choices.input else _others(names, inputs, target)))
    chosen.append(f"target: {target}" if target else "target: none")
    chosen += [f"the reward {choices.reward} reads the column {name}" for name in own]
    if target is not None and choices.target is None:
        chosen.append(
            f"{target} is the target {why_target(target, every)}; to name another column: --target COLUMN"
        )
    for name in inputs:
        if (leak := find_leak(name, target, every)) is not None:
            warnings.append(
                f"the input {name} gives the target {target} away: {leak}. Every figure would be "
                "worthless; leave it out with --input."
            )
    material = _with_written_options(material, inputs, target, chosen)
    slot_of = _slot_names(inputs, filled)
    chosen += [
        f'the column "{name}" is called "{slot}", as slots are'
        for name, slot in slot_of.items()
        if slot != canonical_name(name)
    ]
    material = _with_objects_as_text(material, inputs, filled, chosen)
    keep_names = bool(filled - {"input", MASK}) or len(inputs) > 1
    kept_material = _leave_out_unanswered(material, target, chosen)
    answers = iter(_targets(kept_material, target, choices.reward, chosen))
    made = {
        split: [_row(row, slot_of, target, keep_names, own, next(answers)) for row in rows]
        for split, rows in kept_material.rows.items()
    }
    return made, kept_material


def _targets(material: ImportedData, target: str | None, reward: str | None, chosen: list[str]) -> list[Any]:
    """The target of each row. Objects stay whole for a reward that compares JSON."""
    rows = material.all_rows()
    values = [row.get(target) if target else None for row in rows]
    if reward in ("json", "json_schema"):
        return values
    values, python = read_python_values(values)
    if python:
        chosen.append(
            f"{target}: lists and objects as Python writes them, such as {show_value(python)}, are written as JSON"
        )
    read, key, beside = read_targets(values, rows)
    if beside:
        others = ", ".join(beside[:6]) + (", ..." if len(beside) > 6 else "")
        chosen.append(
            f"{target}: {key} of its objects is the target, and {others} {'is' if len(beside) == 1 else 'are'} left out; to "
            "compare the whole objects: --reward json"
        )
    return read


def _with_written_options(
    material: ImportedData, inputs: Sequence[str], target: str | None, chosen: list[str]
) -> ImportedData:
    """The rows with their options as lines, each behind what the target calls it."""
    every = material.all_rows()
    written = {
        name: lines
        for name in inputs
        if (
            lines := write_options([row.get(name) for row in every], [row.get(target or "") for row in every])
        )
    }
    if not written:
        return material
    for name, lines in written.items():
        first = lines[0].partition("\n")[0]
        chosen.append(
            f"{name}: a line for each option, called as {target} calls it ({show_value(first, 40)}, ...)"
        )
    new = iter(
        [{**row, **{name: lines[at] for name, lines in written.items()}} for at, row in enumerate(every)]
    )
    return replace(material, rows={split: [next(new) for _ in rows] for split, rows in material.rows.items()})


def _with_objects_as_text(
    material: ImportedData, inputs: Sequence[str], filled: frozenset[str], chosen: list[str]
) -> ImportedData:
    """The rows with the objects of the only input column as JSON texts, as a single input column is one text.

    Their fields fill slots where the prompt has slots of these names, and without a prompt where the column is called as in
    rows of a task or of LangSmith, and all its values are objects with the same fields. Images and other media stay as they are.
    """
    values = [row.get(inputs[0]) for row in material.all_rows()] if len(inputs) == 1 else []
    objects = [value for value in values if isinstance(value, Mapping)]
    if not objects or any(map(holds_media, objects)):
        return material
    column, fields = inputs[0], dict.fromkeys(str(key) for item in objects for key in item)
    alike = len(objects) == len(values) and all(len(item) == len(fields) for item in objects)
    by_field = bool(filled & fields.keys()) or (not filled and column in _OF_FIELDS and alike)
    if by_field and len(objects) == len(values):
        chosen.append(f"{column}: each field of its objects fills the slot of its name: {', '.join(fields)}")
        return material
    first = next(iter(fields), "")
    how = f"; to fill a slot by each field, give a prompt with slots such as {{{{{first}}}}}: --prompt FILE"
    chosen.append(f"{column}: each object is one text, as JSON{how if alike and first else ''}")
    rows = {
        split: [
            {**row, column: json.dumps(row[column], ensure_ascii=False)}
            if isinstance(row.get(column), Mapping)
            else row
            for row in part
        ]
        for split, part in material.rows.items()
    }
    return replace(material, rows=rows)


def _leave_out_unanswered(material: ImportedData, target: str | None, chosen: list[str]) -> ImportedData:
    """The rows without those that list no answer where others list some with their places (SQuAD 2)."""
    answers = {split: [row.get(target or "") for row in rows] for split, rows in material.rows.items()}
    spans = any(
        lists_spans(answer, row)
        for split, rows in material.rows.items()
        for answer, row in zip(answers[split], rows, strict=True)
    )
    kept = {
        split: [not (spans and lists_nothing(answer)) for answer in part] for split, part in answers.items()
    }
    every = [one for part in kept.values() for one in part]
    if all(every):
        return material
    chosen.append(
        f"{quantity(every.count(False), 'row')} of {len(every)} have no answer in {target} and are left out; to keep them, write "
        "a target that says so"
    )
    rows = {split: [*compress(rows, kept[split])] for split, rows in material.rows.items()}
    places = {split: [*compress(lines, kept[split])] for split, lines in material.places.items()}
    return replace(material, rows=rows, places=places)


def _several_targets(
    folder: str | Path, names: Sequence[str], material: ImportedData, choices: NewTaskChoices
) -> str:
    """Say which columns can be the target, and the command that names one."""
    counts = [quantity(len(count_values(material, name)), "value") for name in names]
    if len(set(counts)) == 1:
        columns = f"{', '.join(names)} ({counts[0]} each)"
    else:
        columns = ", ".join(f"{name} ({count})" for name, count in zip(names, counts, strict=True))
    command = ["whet", "init", str(folder), "--from", choices.source or "SOURCE", "--target", names[-1]]
    number = "Two" if len(names) == 2 else str(len(names))
    return (
        f"{number} columns could be the target: {columns}. Say which: {shlex.join(command)}. Where no column holds the right "
        "answer, give a judge's rubric (--rubric TEXT), or a reward of your own: --reward reward.py with def reward(example, "
        "output)"
    )


def _slot_names(inputs: Sequence[str], filled: Collection[str]) -> dict[str, str]:
    """The slot that each column fills."""
    names: dict[str, str] = {}
    for column in inputs:
        names[column] = name_slot(column, [*names.values()])
    return names


def _take_results(rows: Sequence[dict[str, Any]], chosen: list[str]) -> None:
    """Put the results of worked answers in the place of targets; the whole answers stay in the rows as `worked_answer`."""
    worked = split_worked_answers([row.get("target") for row in rows])
    if worked is None:
        return
    for row, result in zip(rows, worked.results, strict=True):
        row["worked_answer"], row["target"] = row["target"], result
    behind = "in" if worked.mark == BOX else "behind"
    chosen.append(
        f"every target shows its way: the result {behind} {worked.mark} is the target, and the whole stays in the rows as "
        "worked_answer; to compare with the whole: --reward f1"
    )


def _unify_spelling(rows: Sequence[dict[str, Any]], chosen: list[str]) -> None:
    """Write targets that are equal where answers are compared in their most frequent spelling, where that makes labels of
    them; and whole numbers that are all written with `.0` without it."""
    targets = [row.get("target") for row in rows]
    texts = [target for target in targets if isinstance(target, str)]
    if not rows or len(texts) < len(rows):
        return
    if all(map(_FLOAT.fullmatch, texts)):
        for row in rows:
            row["target"] = row["target"].removesuffix(".0")
        chosen.append("the targets, all whole numbers, are written without .0")
        return
    counts = Counter(texts)
    best: dict[str, str] = {}
    for text in sorted(counts, key=lambda one: (-counts[one], one)):
        best.setdefault(fold_cell(text), text.strip())
    if len(best) == len(counts) or not choose_reward([best[fold_cell(text)] for text in texts]).labels:
        return
    same = [sorted(t for t in counts if fold_cell(t) == key) for key in best]
    for row in rows:
        row["target"] = best[fold_cell(row["target"])]
    groups = "; ".join(
        f"{', '.join(group)} are {best[fold_cell(group[0])]}" for group in same if len(group) > 1
    )
    chosen.append(f"targets that are equal where answers are compared: {groups}")


def _others(names: Sequence[str], inputs: Sequence[str], target: str | None) -> str:
    rest = [name for name in names if name not in (*inputs, target, "id")]
    return f" (other columns, which the model does not see: {', '.join(rest)})" if rest else ""


def _row(
    row: Mapping[str, object],
    inputs: Mapping[str, str],
    target: str | None,
    keep_names: bool,
    own: Collection[str],
    answer: object,
) -> dict[str, Any]:
    only = next(iter(inputs)) if len(inputs) == 1 else None
    whole = row.get(only) if only is not None else None
    if isinstance(whole, Mapping) or (not keep_names and isinstance(whole, str)):
        value: object = whole
    else:
        value = {slot: row.get(name, "") for name, slot in inputs.items()}
    moved = (*inputs, target, "input", "target", "id")
    rest = {k: v for k, v in row.items() if k in own or k not in moved}
    known = {"id": str(row["id"])} if row.get("id") not in (None, "") else {}
    return {**known, "input": value, **({} if answer is None else {"target": answer}), **rest}


def _labels(
    rows: Sequence[Mapping[str, object]], choice: Sequence[str] | None, chosen: list[str], why_none: str
) -> list[str]:
    """Labels where there are few different targets, each of them often, short; with `why_none` only those named."""
    targets = [row.get("target") for row in rows]
    if choice is not None:
        labels = [] if list(choice) == [NO_LABELS] else list(choice)
        chosen.append(f"labels: {', '.join(labels)}" if labels else "labels: none")
        return labels
    labels = list(choose_reward(targets).labels) if all(target is not None for target in targets) else []
    if why_none:
        if labels:
            chosen.append(f"labels: none, because {why_none} with --labels {','.join(labels)}")
        return []
    if not labels and (reason := why_no_labels(targets)):
        chosen.append(f"labels: none ({reason}); --labels A,B names them")
    if labels:
        chosen.append(
            f"labels: {', '.join(labels)} (the {len(rows)} rows have {len(labels)} different targets; targets become labels "
            f"where there are {MOST_LABELS} of them or fewer, with {ROWS_PER_LABEL} rows or more for each on average)"
        )
    return labels


def _reward(
    rows: Sequence[Mapping[str, object]],
    labels: Sequence[str],
    choice: str | None,
    material: ImportedData,
    files: dict[str, bytes],
    chosen: list[str],
) -> object:
    """The reward that the caller names (a name or a Python file), that came with the rows, or that fits the targets."""
    if choice is not None and choice.endswith(".py"):
        files["reward.py"] = read_text(Path(choice)).encode()
        return "reward.py"
    if choice is not None or material.reward is not None:
        return choice or material.reward
    targets = [row.get("target") for row in rows]
    missing = [at for at, target in enumerate(targets) if target is None or not str(target).strip()]
    if missing:
        places = [place for split in material.rows for place in material.places.get(split, ())]
        first = places[missing[0]] if len(places) == len(rows) else f"row {missing[0] + 1}"
        if len(missing) < len(rows):
            raise UsageError(
                f"{first}: the target is empty ({len(missing)} of {len(rows)} rows have none). Fill it in, remove these rows, "
                "or give what needs none: a judge's rubric (--rubric TEXT), or --reward reward.py with def reward(example, "
                "output)."
            )
        raise UsageError(
            f"No row has a target to compare with. {_columns_note(material)}Name its column with --target, or give what needs "
            "none: a judge's rubric (--rubric TEXT), or --reward reward.py with def reward(example, output). "
            "Comments on answers need no target: whet learn PROMPT FILE."
        )
    fit = choose_reward(targets, labels)
    chosen.append(f"reward: {fit.reason}")
    return fit.spec


def _columns_note(material: ImportedData) -> str:
    return f"The columns: {describe_columns(material)}. " if material.columns else ""
