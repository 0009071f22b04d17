"""What code of a task folder does to the standard output hides no result."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.command_line import whet_here
from whet.cli import show
from whet.cli.common import show_table, wants_color, warn
from whet.cli.main import cli, main
from whet.reporting.progress_display import ProgressScreen

REWARD = """import io, sys
print("from the module")

def reward(example, output):
    print("from the reward")
    sys.stdout = sys.stderr = io.StringIO()
    return float(output == example["target"])
"""


def test_a_reward_that_replaces_the_output_hides_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task"
    task.mkdir()
    rows = [{"id": f"r{n}", "input": f"q{n}", "target": str(n % 2)} for n in range(12)]
    (task / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (task / "prompt.md").write_text("Answer.\n\n{{input}}\n")
    (task / "reward.py").write_text(REWARD)
    (task / "task.yaml").write_text("name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["whet", "evaluate", "task", "--lm", "scripted/echo", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["split"] == "validation"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("arguments", [["--version"], ["methods"]])
def test_a_full_disk_behind_the_standard_output_is_said_with_its_exit_code(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "whet", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr.startswith("whet: the standard output cannot be written: No space left on device.")
    assert done.stderr.count("\n") == 1


HOSTILE = "a\x00b\x1b[31mred\u202e"
SHOWN = "a⟨U+0000⟩b⟨U+001B⟩[31mred⟨U+202E⟩"


def whet_on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["whet", *arguments])
    with pytest.raises(SystemExit):
        main()


def test_a_run_whose_ledger_cannot_be_written_prints_its_result_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whet_here(tmp_path, "init", "demo", "--from", "example").returncode == 0
    command = ("optimize", "demo", "--method", "opro", "--set", "steps=4", "--max-calls", "900", "--json")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "file"))
    done = whet_here(tmp_path, *command)
    result = json.loads(done.stdout)
    assert (result["status"], result["tested"]) == ("stopped", False) and done.returncode == 4
    assert "no verdict" in done.stderr.splitlines()[-1]
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    again = whet_here(tmp_path, *command)
    assert again.returncode == 0 and json.loads(again.stdout)["tested"], again.stderr


def test_control_characters_of_a_model_or_a_user_are_shown_by_their_code_point(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn(HOSTILE)
    warn(HOSTILE, err=True)
    show_table(["label"], [[HOSTILE]])
    ProgressScreen().say(HOSTILE)
    labels = {"each": {}, "confusions": [{"target": "x", "answer": HOSTILE, "n": 3}]}
    score = {"mean": 0.5, "low": 0.1, "high": 0.9, "n": 4, "answered": 4, "of": 4}
    show.show_evaluation(
        {
            "status": "completed", "simulated": False, "task": HOSTILE, "split": "test", "score": score,
            "parts": {HOSTILE: 0.5}, "usage": {}, "labels": labels, "warnings": [f"the first: {HOSTILE}"],
        }
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert not any(character in out + err for character in ("\x00", "\x1b", "\u202e"))
    assert out.count(SHOWN) == 6 and err.count(SHOWN) == 2


@pytest.mark.parametrize(
    ("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colors_are_for_terminals_that_want_them(
    variables: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    with cli.make_context("whet", ["methods"], color=wants_color()):
        warn("Look.")
    assert ("\x1b[" in terminal.getvalue()) == colored


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_a_prompt_goes_into_a_file_in_utf_8_whatever_the_locale_says(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lm(messages: Any) -> str:
        return "x"

    rows = [{"input": f"q{n}", "target": "x"} for n in range(12)]
    whet.evaluate(
        "Essen 🍕, 日本, é\n{{input}}\n", data=rows, reward="exact_match", lm=lm, run=tmp_path / "run"
    )
    for options, exact in ((["--plain"], True), (["--json"], True), ([], False)):
        kept = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(kept, encoding, newline="\r\n"))
        whet_on_terminal(monkeypatch, "show", str(tmp_path / "run"), *options)
        sys.stdout.flush()
        text = kept.getvalue()
        assert not exact or "🍕, 日本, é".encode() in text
        assert options != ["--plain"] or text == "Essen 🍕, 日本, é\n{{input}}\n".encode()
        assert exact or encoding != "cp1252" or b"\\U0001f355" in text


def test_columns_of_a_table_are_as_wide_as_they_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["label", "n"], [["日本語", "1"], ["short", "2"]])
    assert capsys.readouterr().out.splitlines() == ["label   n", "日本語  1", "short   2"]


def test_the_reply_of_a_model_in_a_warning_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"input": f"row {i}", "target": "ab"[i % 2]} for i in range(24)]

    def judged(example: Any, output: str) -> float:
        if example["target"] == "b":
            raise ValueError(HOSTILE)
        return 1.0

    with pytest.warns(UserWarning) as seen:
        found = whet.evaluate("Say {{input}}", data=rows, reward=judged, lm=lambda m: "a", progress=False)
    assert SHOWN in str(seen[0].message)
    assert any(HOSTILE in warning for warning in found.warnings), "result.json has it as it was"
    capsys.readouterr()
    whet_on_terminal(monkeypatch, "show", str(next(Path("runs").glob("*evaluate*"))))
    out, err = capsys.readouterr()
    assert SHOWN in out and "\x1b[31m" not in out + err and "\x00" not in out + err
    whet_on_terminal(monkeypatch, "show", f"absent{HOSTILE[1:]}")
    assert "\x1b[31m" not in capsys.readouterr().err


def test_an_answer_of_a_machine_whose_clock_is_ahead_has_no_negative_age(
    capsys: pytest.CaptureFixture[str],
) -> None:
    score = {"mean": 0.5, "low": 0.1, "high": 0.9, "n": 4, "answered": 4, "of": 4}
    ahead = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    roles = {"task": 0, "optimizer": 0, "judge": 0}
    usage = {
        "calls": roles,
        "cached": {**roles, "task": 4},
        "cached_oldest": ahead,
        "cost_usd": 0.0,
        "seconds": 1,
    }
    values: Any = {"task": "t", "split": "test", "score": score, "parts": {}, "usage": usage, "warnings": []}
    show.show_evaluation({**values, "status": "completed", "simulated": False})
    assert "the oldest is 0 min old" in capsys.readouterr().out
