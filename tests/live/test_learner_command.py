"""`whet learn --watch` as people run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.live.reader import WANTS

from whet.cli.main import cli
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.records import Feedback, Inference
from whet_live import open_live
from whet_live.cli.watch import _print_update
from whet_live.learner.learner_store import PromptUpdate

TEXT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"


@pytest.fixture
def url(sqlite_url: str, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database in which three people want the same of one prompt; journals go to the test's own folder."""
    monkeypatch.chdir(tmp_path)
    with open_live(sqlite_url) as live:
        live.registry.create("p", Prompt.parse(TEXT), author="ann", label="production")
        for user in "abc":
            asked = Inference("p", 1, {"q": "x"}, "An answer.", user=user)
            live.traffic.add([asked], [Feedback("comment", asked.id, text="Way too chatty.", user=user)])
    return sqlite_url


ONCE = ("learn", "--watch", "--once", "--optimizer-lm", "openai/reader")


def test_evaluators_are_named_and_their_budget_is_said(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "tone"
    folder.mkdir()
    (folder / "data.jsonl").write_text(
        "\n".join(json.dumps({"id": f"r{n}", "input": f"q {n}"}) for n in range(12))
    )
    (folder / "prompt.md").write_text("Answer {{input}}.")
    (folder / "reward.py").write_text("def reward(example, output):\n    return 0.25\n")
    (folder / "task.yaml").write_text("name: tone\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n")
    done = CliRunner().invoke(cli, [*ONCE, "--database", url, "--evaluate", f"p={folder}"])
    assert done.exit_code == 0 and "Evaluator: tone grades up to 100 answers of p a day." in done.stderr
    shown = CliRunner().invoke(cli, ["prompts", "learning", "p"], env={"WHET_DATABASE_URL": url})
    assert "evaluator" in shown.stdout and "tone" in shown.stdout and "3 low" in shown.stdout


def watch(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "whet", "learn", "--watch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_learns_until_it_is_told_to_stop(url: str, number: int) -> None:
    process = watch("--database", url, "--every", "0.2", "--optimizer-lm", "openai/reader")
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert line.startswith("p: proposed ") and WANTS["short"] in line
    assert process.returncode == 0 and "Watching the traffic." in errors, errors
    assert "The reader sees comments without the inputs" in errors
    with open_live(url) as live:
        assert len(live.registry.proposals(state="open").items) == 1


def test_one_look_is_one_json_object(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_DATABASE_URL", url)
    done = CliRunner().invoke(
        cli, ["learn", "--watch", "--once", "--json", "--optimizer-lm", "openai/reader"]
    )
    found = json.loads(done.stdout)
    assert [lesson["outcome"] for lesson in found["updates"]] == ["proposed"] and found["failed"] == {}
    again = CliRunner().invoke(
        cli, ["learn", "--watch", "--once", "--json", "--optimizer-lm", "openai/reader"]
    )
    assert json.loads(again.stdout) == {"updates": [], "failed": {}}


def test_without_a_model_a_person_writes_and_the_lesson_takes_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_DATABASE_URL", url)
    run = CliRunner().invoke
    done = run(cli, ["learn", "--watch", "--once", "--json"])
    assert json.loads(done.stdout) == {"updates": [], "failed": {}}
    (line,) = done.stderr.splitlines()
    assert "--optimizer-lm openai/NAME --base-url http://localhost:11434/v1" in line
    shown = run(cli, ["prompts", "learning", "p"]).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("requirement")]
    assert "unwritten" in line and "3 sources, 3 needed" in line and "Way too chatty." in line
    key = json.loads(run(cli, ["prompts", "learning", "p", "--json"]).stdout)["requirements"][0]["key"]
    written = run(cli, ["prompts", "learning", "p", "--write", key, "Answer in one sentence.", "--as", "ann"])
    assert written.exit_code == 0 and "ready" in written.stdout, written.output
    done = run(cli, ["learn", "--watch", "--once", "--json"])
    (lesson,) = json.loads(done.stdout)["updates"]
    assert (lesson["outcome"], lesson["requirements"][0]["author"]) == ("proposed", "ann")
    assert run(cli, ["prompts", "learning", "*", "--write", "r1", "x"]).exit_code != 0
    auto = run(cli, ["prompts", "learning", "p", "--mode", "auto", "--as", "ann"])
    assert "needs a model that reads feedback" in auto.stdout


def test_what_failed_is_told_with_its_exit_code(url: str, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    done = CliRunner().invoke(cli, [*ONCE, "--database", url, "--gate", f"p={tmp_path / 'task'}"])
    assert done.exit_code == 2 and "whet: p: " in done.stderr and "task.yaml" in done.stderr
    done = CliRunner().invoke(cli, [*ONCE, "--database", url])
    assert done.stdout.startswith("p: proposed "), "the lesson that could not be gated was lost"


def test_a_staged_version_and_the_experiment_that_tries_it_are_two_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    staged = PromptUpdate("k", "p", 1, "auto", "staged", (), 0, version=2, reason="the gate promoted it")
    for lesson in (staged, replace(staged, experiment="e1")):
        _print_update(lesson.as_json())
    assert capsys.readouterr().out.splitlines() == [
        "p: staged version 2  the gate promoted it",
        "p: staged version 2, tried in experiment e1  the gate promoted it",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Name a prompt file, or add --watch"),
        (["--watch", "p.md"], "Omit PROMPT and the options about files"),
        (["--watch", "--gate", "nowhere"], "NAME=TASK"),
        (["--watch", "--gate", "p=nowhere"], "no such task folder"),
        (["--watch", "--experiment", "bad.json"], "goal has no `name`"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"goal": {}}')
    open_live("sqlite:///whet.db").close()
    done = CliRunner().invoke(cli, ["learn", *arguments])
    assert isinstance(done.exception, UsageError) and said in str(done.exception), done.exception


def test_options_of_files_are_none_of_watching() -> None:
    done = CliRunner().invoke(cli, ["learn", "--watch", "--undo"])
    assert done.exit_code == 2 and "No such option '--undo'" in done.stderr


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    done = CliRunner().invoke(cli, ["learn", "--watch", "--experiment", str(tmp_path / "x.json")])
    assert done.exit_code == 2 and "cannot be read as JSON" in done.stderr
