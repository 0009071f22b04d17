"""The pages about the task folder are true: the example runs, the refusals are the real ones."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from whet.errors import UsageError
from whet.rewards import BUILT_IN, build_reward
from whet.task import load_prompt, load_task
from whet.task.load import KEYS
from whet.task.rows import KINDS
from whet.task.spec import MODEL_KEYS, ModelSpec, read_models
from whet.task.tree import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "task-folder.md").read_text("utf-8")
INTRODUCTION = (ROOT / "docs" / "task.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", PAGE + INTRODUCTION, re.DOTALL | re.MULTILINE)
NAMED = {name: text for _, name, text in BLOCKS if name}
UNNAMED = [text for language, name, text in BLOCKS if language == "yaml" and not name]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("mytask/task.yaml", "mytask/prompt.md", "mytask/data.jsonl", "mytask/reward.py", "show.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(NAMED[name])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mytask"


def test_the_example_runs_as_shown(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, "show.py"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.stdout, done.stderr) == (NAMED["output of show.py"], "")


def change(path: str, old: str, new: str) -> Callable[[], None]:
    def apply() -> None:
        text = Path(path).read_text()
        assert old in text
        Path(path).write_text(text.replace(old, new, 1))

    return apply


CHANGES = [
    change("mytask/task.yaml", "budget: {max_calls: 2000}\n", "budget: {max_calls: 2000}\nbugdet: {}\n"),
    change("mytask/prompt.md", "{{input}}", "{{imput}}"),
    change("mytask/data.jsonl", '{"input": "Do', '{"question": "Do'),
    change("mytask/data.jsonl", '"technical"', '"tehcnical"'),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_the_refusals_are_the_real_ones(number: int, example: Path) -> None:
    lines = NAMED["refusals"].splitlines()
    assert len(lines) == len(CHANGES)
    CHANGES[number]()
    with pytest.raises(UsageError) as caught:
        load_task("mytask")
    assert str(caught.value) == lines[number]


def test_the_models_block_is_read_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(UNNAMED[0])
    models = read_models(parse_yaml(tmp_path / "m.yaml").value["models"])
    assert models["task"] == ModelSpec("openai/gpt-4o-mini")
    behind_marks = {*re.findall(r"^    # (\w+):", UNNAMED[0], re.MULTILINE)}  # for a model at hf/PATH
    assert {*yaml.safe_load(UNNAMED[0])["models"]["optimizer"]} | behind_marks == {*MODEL_KEYS}


def test_the_chat_prompt_loads(tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text(UNNAMED[1])
    prompt = load_prompt(tmp_path / "prompt.yaml")
    assert (prompt.region_text(), prompt.slots) == ("You answer in one word.", {"question"})


def test_every_reward_line_is_a_reward(example: Path) -> None:
    lines = UNNAMED[2].splitlines()
    rewards = [build_reward(yaml.safe_load(line)["reward"], example, "task.yaml:1") for line in lines]
    assert [r.name for r in rewards] == ["exact_match", "regex", "weighted", "weighted", "program"]


def test_every_key_kind_and_reward_has_a_row() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert {*KEYS, *KINDS, *BUILT_IN, "input", "target", "id"} <= rows
