"""Settings of the task file that cannot be used name file and line; plans name options as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import whet_here


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task folder whose task.yaml can be added to."""
    folder = tmp_path / "mytask"
    folder.mkdir()
    rows = "".join(f"question {n},{n % 2}\n" for n in range(60))
    (folder / "rows.csv").write_text("input,target\n" + rows)
    (folder / "prompt.md").write_text("Answer: {{input}}\n")
    (folder / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: rows.csv\nreward: exact_match\nmethod: opro\n"
        "models: {task: scripted/labels, optimizer: scripted/phrases}\nbudget: {max_calls: 2000}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("settings: {stepz: 3}\n", 'task.yaml:8: opro has no setting "stepz". Did you mean "steps"?'),
        (
            "settings:\n  steps: 3\n  samples: many\n",
            "task.yaml:10: opro: samples must be a whole number",
        ),
        ("settings:\n  steps: -3\n", "task.yaml:9: opro: steps must be 0 or more"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_file_and_line(
    task: Path, settings: str, said: str
) -> None:
    with (task / "task.yaml").open("a") as file:
        file.write(settings)
    answer = whet_here(task.parent, "optimize", "mytask", "--dry-run")
    assert answer.returncode == 2 and said in answer.stderr


def test_a_setting_that_the_command_line_replaces_is_not_read(task: Path) -> None:
    with (task / "task.yaml").open("a") as file:
        file.write("settings:\n  steps: -3\n")
    assert whet_here(task.parent, "optimize", "mytask", "--dry-run", "--set", "steps=2").returncode == 0


@pytest.mark.parametrize(
    "command", ["optimize mytask", "evaluate mytask", "compare mytask --methods opro,random_search"]
)
def test_a_plan_names_the_option_for_an_address(task: Path, command: str) -> None:
    answer = whet_here(task.parent, *command.split(), "--dry-run", "--lm", "openai/small")
    assert answer.returncode == 0, answer.stderr
    assert "Set OPENAI_API_KEY, or name another endpoint with --base-url or OPENAI_BASE_URL." in answer.stderr
    assert "base_url" not in answer.stderr
