"""What a task folder may do: its code is a program of its user's; `env:` bounds its environment, and no file outside is read."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError
from whet.task import load_task
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving

KEY = "sk-canary-4711"
DUMP = """
import json, os, pathlib

def dump(name):
    kept = {"variables": dict(os.environ), "process": pathlib.Path("/proc/self/environ").read_text("utf-8", "replace")}
    pathlib.Path(__file__).with_name(name).write_text(json.dumps(kept))
"""
PROGRAMS = {
    "data.py": DUMP
    + 'dump("data.json")\ndef rows():\n    return [{"input": f"question {n}"} for n in range(10)]\n',
    "reward.py": DUMP + 'def reward(example, output):\n    dump("reward.json")\n    return 1.0\n',
    "prompt.md": "Answer.\n{{input}}\n",
}


def task_in(folder: Path, more: str = "") -> Path:
    """A task whose code writes down what it sees of the environment, when it is imported and when it is called."""
    folder.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
    (folder / "task.yaml").write_text(f"name: t\nprompt: prompt.md\ndata: data.py\nreward: reward.py\n{more}")
    return folder


async def seen(tmp_path: Path, more: str) -> dict[str, dict[str, Any]]:
    """What the code of a task sees in a run of the command, with a model whose endpoint demands the key."""
    task, secrets = (
        task_in(tmp_path / "task", more),
        {"OPENAI_API_KEY": KEY, "AWS_SECRET_ACCESS_KEY": "aws-canary"},
    )
    async with serving(lambda request: "Yes.", settings=ServerBehaviour(api_key=KEY)) as server:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "whet", "evaluate", str(task), "--lm", "openai/m", "--out", str(tmp_path / "run")],
            env={**os.environ, **secrets, "OPENAI_BASE_URL": server.base_url, "SHOP_URL": "shop.example"},
            capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0 and len(server.ledger.entries) > 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    return {name: json.loads((task / f"{name}.json").read_text()) for name in ("data", "reward")}


async def test_the_code_of_a_task_sees_the_variables_that_it_lists_and_harmless_ones(tmp_path: Path) -> None:
    for dumped in (await seen(tmp_path, "env: [SHOP_URL, NOT_SET]\n")).values():
        variables = dumped["variables"]
        assert variables["SHOP_URL"] == "shop.example" and variables["PATH"] and "NOT_SET" not in variables
        assert "canary" not in str(variables) and not {"OPENAI_API_KEY", "OPENAI_BASE_URL"} & set(variables)
        # No sandbox: what the system keeps about the process still shows them, as docs/trust.md says.
        assert KEY in dumped["process"]


async def test_without_env_the_code_of_a_task_sees_everything(tmp_path: Path) -> None:
    assert all(dumped["variables"]["OPENAI_API_KEY"] == KEY for dumped in (await seen(tmp_path, "")).values())


def test_another_task_gets_back_what_it_lists(tmp_path: Path) -> None:
    script = (
        "import os, sys, whet\n"
        "for folder in sys.argv[1:]:\n    whet.Task.load(folder)\n    print(os.environ.get('ONE'), os.environ.get('TWO'))\n"
    )
    tasks = [str(task_in(tmp_path / name, f"env: [{name}]\n")) for name in ("ONE", "TWO")]
    done = subprocess.run(
        [sys.executable, "-c", script, *tasks],
        env={**os.environ, "ONE": "1", "TWO": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["1 None", "None 2"]


@pytest.mark.parametrize("value", ["OPENAI_API_KEY", "[A=1]", "['a b']", "[[A]]", "{A: 1}", "['']"])
def test_env_is_a_list_of_names(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"task\.yaml:5: .*env"):
        load_task(task_in(tmp_path / "task", f"env: {value}\n"))
    assert not (tmp_path / "task" / "data.json").exists(), "nothing of the folder was run"


NAMED = {
    "prompt": "prompt: {}\ndata: data.jsonl\nreward: exact_match\n",
    "a program of rows": "prompt: prompt.md\ndata: {}\nreward: exact_match\n",
    "a program of a split": "prompt: prompt.md\ndata: {{train: data.jsonl, test: {}}}\nreward: exact_match\n",
    "reward": "prompt: prompt.md\ndata: data.jsonl\nreward: {}\n",
    "a reward with options": "prompt: prompt.md\ndata: data.jsonl\nreward: {{'{}': {{low: -1}}}}\n",
    "a rubric": "prompt: prompt.md\ndata: data.jsonl\nreward: [{{judge: {{rubric: {}}}}}]\n",
    "a second opinion": "prompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nsecond_opinion: {}\n",
    "tools": "prompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nenvironment: {{tools: {}, turns: 2}}\n",
}
ENDINGS = {"prompt": "md", "a rubric": "md"}


@pytest.mark.parametrize("how", ["up", "absolute", "link", "through a linked folder"])
@pytest.mark.parametrize("named", NAMED)
def test_a_file_outside_of_the_folder_is_refused_with_file_line_and_remedy(
    tmp_path: Path, named: str, how: str
) -> None:
    folder, outside = tmp_path / "task", tmp_path / f"outside.{ENDINGS.get(named, 'py')}"
    folder.mkdir()
    outside.write_text('raise SystemExit("it ran")')
    (folder / "prompt.md").write_text("{{input}}\n")
    (folder / "data.jsonl").write_text("".join(f'{{"input": "q{n}", "target": "a"}}\n' for n in range(9)))
    (folder / f"link{outside.suffix}").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    name = {"up": f"../{outside.name}", "absolute": str(outside), "link": f"link{outside.suffix}"}.get(
        how, f"linked/{outside.name}"
    )
    (folder / "task.yaml").write_text("name: t\n" + NAMED[named].format(name))
    with pytest.raises(UsageError, match=r"task\.yaml:[2-5]: .* outside of the task's folder.*Copy it into"):
        load_task(folder)


@pytest.mark.parametrize("how", ["up", "absolute", "link"])
def test_rows_may_lie_outside_of_the_folder_and_that_is_said(tmp_path: Path, how: str) -> None:
    """Data sets are large, and several tasks share one."""
    folder, outside = task_in(tmp_path / "task"), tmp_path / "rows.jsonl"
    outside.write_text("".join(f'{{"input": "q{n}", "target": "a"}}\n' for n in range(9)))
    (folder / "link.jsonl").symlink_to(outside)
    name = {"up": "../rows.jsonl", "absolute": str(outside), "link": "link.jsonl"}[how]
    (folder / "task.yaml").write_text(f"name: t\nprompt: prompt.md\ndata: {name}\nreward: exact_match\n")
    warnings = load_task(folder).warnings
    assert [one for one in warnings if str(outside) in one and "outside of the task's folder" in one]


def test_a_linked_folder_and_a_folder_below_are_inside(tmp_path: Path) -> None:
    task = task_in(tmp_path / "task")
    (task / "texts").mkdir()
    (task / "prompt.md").rename(task / "texts" / "prompt.md")
    (task / "task.yaml").write_text((task / "task.yaml").read_text().replace("prompt.md", "texts/prompt.md"))
    (tmp_path / "elsewhere").symlink_to(task)
    assert load_task(tmp_path / "elsewhere").prompt == load_task(task).prompt


def test_who_writes_the_path_in_python_may_name_any_file(tmp_path: Path) -> None:
    task_in(tmp_path / "task")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"input": "q{n}", "target": "a"}}\n' for n in range(9)))
    made = whet.Task.of(tmp_path / "task" / "prompt.md", data=rows, reward="exact_match")
    assert len(made.train) + len(made.validation) + len(made.test) == 9
