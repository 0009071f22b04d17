"""A new task folder from rows in any form: what is input, what is target, which labels, which reward, and why."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.prompt.slots import slots
from whet.rewards import choose_reward
from whet.rewards.choose import MOST_LABELS, ROWS_PER_LABEL, are_few
from whet.task.files import read_text
from whet.task.load import load_task
from whet.task.material import Material
from whet.task.rows import INPUT_NAMES, TARGET_NAMES
from whet.task.save import check_folder, write_folder
from whet.task.spec import Task
from whet.task.tree import write_yaml

NO_LABELS = "none"


@dataclass(frozen=True)
class NewTaskChoices:
    """What the caller says of the new task; None or empty: a rule decides, and says so."""

    input: Sequence[str] = ()
    target: str | None = None
    labels: Sequence[str] | None = None
    reward: str | None = None
    prompt: str | None = None
    lm: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class StartedTask:
    """A task that was written, and what was chosen for it, one sentence each."""

    task: Task
    folder: Path
    chosen: Sequence[str]


def columns_of(material: Material) -> list[str]:
    """Names that stand in the rows, in order."""
    return list(dict.fromkeys(name for row in material.all_rows() for name in row))


def guess(material: Material, prompt: str | None) -> tuple[list[str], str | None]:
    """The columns that are probably the input, and the one that is probably the target."""
    names, rows = columns_of(material), material.all_rows()
    inputs = [name for name in material.inputs if name in names]
    by_rank = {_plain(name): name for name in reversed(names)}
    target = next((by_rank[n] for n in map(_plain, ("target", *TARGET_NAMES)) if n in by_rank), None)
    if target in inputs:
        target = None
    filled = sorted(slots(prompt or "") & set(names) - {target, "id"})
    rest = [
        name
        for name in names
        if name not in (target, "id")
        and (name in filled or any(row.get(name) not in (None, "") for row in rows))
    ]
    known = [by_rank[n] for n in map(_plain, ("input", *INPUT_NAMES)) if by_rank.get(n) in rest]
    if target is None:
        target = _only_target(
            [name for name in rest if name not in (inputs or filled or known[:1])], material
        )
        rest = [name for name in rest if name != target]
    return inputs or filled or known[:1] or rest, target


def _only_target(names: Sequence[str], material: Material) -> str | None:
    """The target among columns whose names say nothing: the only one, or the only one with few values."""
    rows = material.all_rows()
    few = [name for name in names if are_few(Counter(str(row.get(name)) for row in rows), len(rows))]
    return (
        few[0] if len(few) == 1 else names[0] if len(names) == 1 and len(columns_of(material)) > 1 else None
    )


def start_task(folder: str | Path, material: Material, choices: NewTaskChoices) -> StartedTask:
    """Write a task folder that `whet evaluate` and `whet optimize` accept.

    Raises UsageError for a folder that is not empty, and for choices that do not fit the rows; then nothing is written.
    """
    target = check_folder(folder)
    chosen = list(material.notes)
    files = dict(material.files)
    prompt = _chosen_prompt(choices.prompt, material)
    rows = _rows(material, choices, prompt, chosen)
    every = [row for part in rows.values() for row in part]
    labels = _labels(every, choices.labels, chosen)
    reward = _reward(every, labels, choices.reward, material, files, chosen)
    if prompt is None:
        prompt = _first_prompt(every[0]["input"], labels)
        chosen.append("prompt: a first one; write there what you know of the task")
    name = "prompt.yaml" if _is_chat(prompt) else "prompt.md"
    document: dict[str, Any] = {"name": choices.name or _name(target), "prompt": name}
    document["data"] = {split: f"{split}.jsonl" for split in rows} if "" not in rows else "data.jsonl"
    document |= {"reward": reward, **({"labels": labels} if labels else {}), **material.settings}
    if choices.lm is not None:
        document["models"] = {"task": choices.lm}
    files[name] = prompt.encode()
    for split, part in rows.items():
        files[f"{split or 'data'}.jsonl"] = "".join(
            json.dumps(r, ensure_ascii=False) + "\n" for r in part
        ).encode()
    files["task.yaml"] = write_yaml(document).encode()
    write_folder(target, files)
    return StartedTask(load_task(target), target, chosen)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _name(folder: Path) -> str:
    return re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip(".-") or "task"


def _chosen_prompt(choice: str | None, material: Material) -> str | None:
    """The prompt of the caller, a file or a text, else the one that came with the rows."""
    if choice is None:
        return material.prompt
    path = Path(choice)
    one_line = "\n" not in choice and "{{" not in choice and 0 < len(choice) < 200
    return read_text(path) if one_line and (path.exists() or path.suffix in (".md", ".txt")) else choice


def _is_chat(prompt: str) -> bool:
    if not prompt.lstrip().startswith("["):
        return False
    try:
        messages = json.loads(prompt)
    except ValueError:
        return False
    return isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)


def _rows(
    material: Material, choices: NewTaskChoices, prompt: str | None, chosen: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Rows as a task has them: input, target, and everything else as it is."""
    if not material.columns:
        if choices.input or choices.target:
            raise UsageError(
                "These rows say themselves what input and target are. Leave --input and --target out."
            )
        return dict(material.rows)
    names = columns_of(material)
    for name in (*choices.input, *filter(None, [choices.target])):
        if name not in names:
            raise UsageError(f'There is no column "{name}".{did_you_mean(name, names)}')
    inputs, target = guess(material, prompt)
    target = choices.target or (None if target in choices.input else target)
    inputs = list(choices.input) or [name for name in inputs if name != target]
    if not inputs:
        raise UsageError(f"No column can be the input beside the target {target}. Name one with --input.")
    chosen.append(f"input: {', '.join(inputs)}" + ("" if choices.input else _others(names, inputs, target)))
    chosen.append(f"target: {target}" if target else "target: none")
    keep_names = bool(slots(prompt or "") & set(inputs)) or len(inputs) > 1
    return {
        split: [_row(row, inputs, target, keep_names) for row in rows]
        for split, rows in material.rows.items()
    }


def _others(names: Sequence[str], inputs: Sequence[str], target: str | None) -> str:
    rest = [name for name in names if name not in (*inputs, target, "id")]
    return f" (other columns, which the model does not see: {', '.join(rest)})" if rest else ""


def _row(
    row: Mapping[str, Any], inputs: Sequence[str], target: str | None, keep_names: bool
) -> dict[str, Any]:
    whole = row[inputs[0]] if len(inputs) == 1 and inputs[0] in row else None
    if isinstance(whole, Mapping) or (not keep_names and isinstance(whole, str)):
        value: Any = whole
    else:
        value = {name: row.get(name, "") for name in inputs}
    rest = {k: v for k, v in row.items() if k not in (*inputs, target, "input", "target", "id")}
    known = {"id": str(row["id"])} if row.get("id") not in (None, "") else {}
    answer = row.get(target) if target else None
    if isinstance(answer, Mapping) and len(answer) == 1:
        (answer,) = answer.values()
    return {**known, "input": value, **({} if answer is None else {"target": answer}), **rest}


def _labels(rows: Sequence[Mapping[str, Any]], choice: Sequence[str] | None, chosen: list[str]) -> list[str]:
    """Labels where there are few different targets, each of them often and short."""
    targets = [row.get("target") for row in rows]
    if choice is not None:
        labels = [] if list(choice) == [NO_LABELS] else list(choice)
        chosen.append(f"labels: {', '.join(labels)}" if labels else "labels: none")
        return labels
    labels = list(choose_reward(targets).labels)
    if labels:
        chosen.append(
            f"labels: {', '.join(labels)} (the target has {len(labels)} values in {len(rows)} rows: at most "
            f"{MOST_LABELS}, each in {ROWS_PER_LABEL} rows on average)"
        )
    return labels


def _reward(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    choice: str | None,
    material: Material,
    files: dict[str, bytes],
    chosen: list[str],
) -> Any:
    """The reward that the caller names (a name or a Python file), that came with the rows, or that fits the targets."""
    if choice is not None and choice.endswith(".py"):
        files["reward.py"] = read_text(Path(choice)).encode()
        return "reward.py"
    if choice is not None or material.reward is not None:
        return choice or material.reward
    targets = [row.get("target") for row in rows]
    if any(target in (None, "") for target in targets):
        missing = [number for number, target in enumerate(targets, 1) if target in (None, "")]
        raise UsageError(
            f"{len(missing)} of {len(rows)} rows have no target to compare with, the first is row {missing[0]}. "
            "Name its column with --target, or a reward that needs none: --reward reward.py with def reward(example, output). "
            "Comments on answers need no target: whet learn PROMPT FILE."
        )
    fit = choose_reward(targets, labels)
    chosen.append(f"reward: {fit.reason}")
    return fit.spec


def _first_prompt(value: Any, labels: Sequence[str]) -> str:
    names = list(value) if isinstance(value, Mapping) else ["input"]
    filled = "{{" + names[0] + "}}" if len(names) == 1 else "\n".join(f"{n}: {{{{{n}}}}}" for n in names)
    end = f"\n\nAnswer with one of: {', '.join(labels)}." if labels else ""
    return f"<!-- whet:begin -->\nGive the right answer.\n<!-- whet:end -->\n\n{filled}{end}\n"
