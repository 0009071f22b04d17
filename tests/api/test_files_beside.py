"""A reward that reads a file of its own: a recorded result says when that file changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whet
from whet.errors import ProviderError

ROWS = [
    {"input": f"m{i}", "target": "ab"[i % 2], "split": ("train", "validation", "test")[i % 3]}
    for i in range(24)
]
FILES = {
    "task.yaml": "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n",
    "prompt.md": "Answer.\n",
    "data.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "reward.py": (
        "import json, pathlib\n"
        "WORDS = json.loads(pathlib.Path(__file__).with_name('words.json').read_text())\n"
        "def reward(example, output):\n    return float(output in WORDS)\n"
    ),
    "words.json": '["a"]',
    "README.md": "A task.\n",
    ".hidden": "x",
}
CHANGED = "In the task folder, words.json changed after this result was recorded."


def ask(messages: list[whet.Message]) -> str:
    return "a"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", ["evaluate", "optimize"])
def test_a_recorded_result_names_the_file_that_changed_since(folder: Path, command: str) -> None:
    def result(**options: bool) -> whet.JSONResult:
        if command == "evaluate":
            return whet.evaluate(folder, lm=ask, **options)
        return whet.optimize(folder, lm=ask, method="random_search", budget=whet.Budget(calls=60), **options)

    result()
    for name in ("README.md", ".hidden"):
        (folder / name).write_text("other", "utf-8")
    (folder / "words.json").touch()
    again = result()
    assert again["recorded"] and not [w for w in again.warnings if "changed since" in w]
    (folder / "words.json").write_text('["b"]', "utf-8")
    stale = result()
    assert stale["recorded"] and [w for w in stale.warnings if w.startswith(CHANGED)]
    fresh = result(fresh=True)
    assert "recorded" not in fresh and not [w for w in fresh.warnings if "changed since" in w]
    if command == "evaluate":
        assert (again["score"]["mean"], fresh["score"]["mean"]) == (1.0, 0.0)
        assert "recorded" in result() and not [w for w in result().warnings if "changed since" in w]


def test_a_run_that_goes_on_says_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(messages: list[whet.Message]) -> str:
        if messages[-1].content == "m4":
            raise ProviderError("down", fatal=True)
        return "a"

    with pytest.raises(ProviderError):
        whet.evaluate(folder, lm=failing)
    (folder / "words.json").write_text('["b"]', "utf-8")
    with pytest.raises(ProviderError):
        whet.evaluate(folder, lm=failing)
    words = capsys.readouterr().err
    assert "words.json changed after this run began" in words
    assert "begin a new run (--out, run= in Python)." in words
