"""The published JSON schema of task.yaml says what whet's reader says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.task.test_refused import MINIMAL, SETTINGS, TASK_FILE

from whet.task.decode import field_names
from whet.task.task_file import TaskFile
from whet.task.tree import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/task.schema.json").read_text("utf-8"))
PARTS = {**SCHEMA, "required": []}
"""The schema of a part of a task file, as pages show it."""
BLOCKS = [
    block
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in re.findall(r"^```yaml[^\n]*\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)
    if re.search(rf"(?m)^(?:{'|'.join(SCHEMA['properties'])}):", block)
]
SHOWN = [
    text
    for block in BLOCKS
    for text in (block.splitlines() if len(re.findall(r"(?m)^reward:", block)) > 1 else [block])
    if text.strip()
]
"""The parts; of a block with several rewards, each line is one."""
FILES = [path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("*/task.yaml"))]
BEYOND_TYPES = {
    *(
        "name is a path",
        "name of too many bytes",
        "name empty",
        "address",
        "base_url",
        "price key",
        "splits sum",
        "splits missing",
    ),
    *("splits twice", "one label", "label twice", "verbalizer alone", "verbalizer key", "word twice"),
    *("word is a label", "no reward", "budget infinite", "label in another form", "word in another form"),
    "label with an invisible character",
}
"""Refusals that a JSON schema cannot say: what values mean together."""
NO_YAML = {name for name, case in TASK_FILE.items() if "YAML" in case.says[0]} | {
    *("two documents", "key twice", "key no word", "unknown tag", "wrong tag", "anchors without end"),
    *("anchors that explode", "not UTF-8", "too deep", "empty", "control character"),
}


def is_valid(text: str, folder: Path, schema: Any = SCHEMA) -> bool:
    path = folder / "task.yaml"
    path.write_text(text, "utf-8")
    value: Any = parse_yaml(path).plain()
    return bool(jsonschema_rs.is_valid(schema, value))


@pytest.mark.parametrize("text", SHOWN)
def test_every_part_of_a_task_that_a_page_shows_is_valid(text: str, tmp_path: Path) -> None:
    assert is_valid(text, tmp_path, PARTS)


@pytest.mark.parametrize("text", FILES)
def test_every_example_is_valid(text: str, tmp_path: Path) -> None:
    assert is_valid(text, tmp_path)


def test_there_are_tasks_to_check() -> None:
    assert len(SHOWN) >= 8 and len(FILES) >= 2
    assert set(field_names(TaskFile)) == SCHEMA["properties"].keys()


@pytest.mark.parametrize("name", sorted({*SETTINGS, *TASK_FILE} - BEYOND_TYPES - NO_YAML))
def test_what_the_reader_refuses_by_its_type_is_invalid(name: str, tmp_path: Path) -> None:
    case = {**SETTINGS, **TASK_FILE}[name]
    text = case.files.get("task.yaml", MINIMAL + "reward: exact_match\n" + case.yaml)
    assert isinstance(text, str) and not is_valid(text, tmp_path)


def test_every_key_says_what_it_means() -> None:
    mute = [
        f"{name}.{key}"
        for name, part in [("TaskFile", SCHEMA), *SCHEMA["$defs"].items()]
        for key, form in part["properties"].items()
        if "description" not in form and name in ("TaskFile", "ModelEntry", "BudgetEntry", "ModelsEntry")
    ]
    assert mute == []


def test_a_budget_is_in_dollars_under_both_names(tmp_path: Path) -> None:
    rest = MINIMAL + "reward: exact_match\n"
    assert is_valid(rest + "budget: {max_cost_usd: 2.5}\n", tmp_path)
    assert is_valid(rest + "budget: {max_cost: 2.5}\n", tmp_path)
