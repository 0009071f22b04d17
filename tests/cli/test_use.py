"""`whet show`: the prompt of a run to copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import whet
from whet.cli.main import cli
from whet.cli.use import use_lines
from whet.engine.diagnostics import NOTHING_WRONG

WORDS = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
ROWS = [
    {"input": f"Dish {i} was {word}.", "target": label} for i in range(50) for word, label in WORDS.items()
]
FENCE = "<!-- whet:begin -->\n{}\n<!-- whet:end -->\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: promoted, not promoted with several messages, and an evaluation."""
    root = tmp_path_factory.mktemp("runs")
    text = FENCE.format("What is it like?") + "Review: {{input}}"
    common: dict[str, Any] = {"reward": "exact_match", "lm": "scripted/labels", "root": root}
    run: dict[str, Any] = {**common, "optimizer_lm": "scripted/phrases", "method": "opro"}
    whet.optimize(text, data=ROWS, budget=whet.Budget(calls=2000), run=root / "runs" / "good", **run)
    folder = root / "chat"
    folder.mkdir()
    (folder / "prompt.yaml").write_text(
        "- role: system\n  content: |\n    <!-- whet:begin -->\n    Hé.\n    <!-- whet:end -->\n"
        '- {role: user, content: "Review: {{input}}"}\n'
    )
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:20]))
    (folder / "task.yaml").write_text(
        "{name: chat, prompt: prompt.yaml, data: data.jsonl, reward: exact_match}"
    )
    run |= {"settings": {"steps": 1, "samples": 1}, "run": root / "runs" / "chat"}
    whet.optimize(folder, **{k: v for k, v in run.items() if k != "reward"})
    whet.evaluate(text, data=ROWS, run=root / "runs" / "evaluation", **common)
    return root


Show = Callable[..., Result]


@pytest.fixture
def show(root: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    monkeypatch.chdir(root)
    return lambda *arguments: CliRunner().invoke(cli, ["show", *arguments])


def test_the_line_for_python_names_what_the_caller_fills_and_not_the_mask() -> None:
    test = {"mean": 1.0, "low": 0.9, "high": 1.0, "n": 9}
    best = {"prompt": "{{input}} is {{mask}}", "id": "a", "validation": test, "test": test}
    verdict = {"promoted": True, "reason": "Promoted.", "difference": 1.0, "low": 0.5, "high": 1.0}
    values = {"status": "completed", "run": "r", "best": best, "improvement": verdict}
    (line,) = (line for line in use_lines(values) if line.startswith("Python"))
    assert '{"input": ...}' in line


def test_plain_is_the_prompt_without_markers_and_nothing_else(show: Show, root: Path) -> None:
    shown = show("good", "--plain")
    best = (root / "runs" / "good" / "best.md").read_text()
    assert shown.exit_code == 0 and shown.stderr == ""
    assert "<!-- whet:begin -->" in best and "whet:" not in shown.stdout
    assert shown.stdout == best.replace("<!-- whet:begin -->\n", "").replace("<!-- whet:end -->\n", "")


def test_the_facts_the_prompt_and_how_to_use_it(show: Show) -> None:
    shown = show("runs/good")
    assert "Promoted: better by" in shown.stdout and "SIMULATED" in shown.stdout
    assert "whet show runs/good --plain > prompt.txt" in shown.stdout and "Review: {{input}}" in shown.stdout
    assert 'fill_slots({"input": ...})' in shown.stdout and "whet:begin" not in shown.stdout


def test_several_messages_are_json_that_an_api_and_a_task_take(show: Show, tmp_path: Path) -> None:
    plain = show("chat", "--plain")
    messages = json.loads(plain.stdout)
    assert [m["role"] for m in messages] == ["system", "user"]
    assert messages[1]["content"] == "Review: {{input}}" and "whet:" not in plain.stdout
    assert plain.stderr.startswith("whet: not promoted: "), "a script that copies it is warned"
    assert json.loads(show("chat", "--json").stdout)["messages"] == messages
    file = tmp_path / "prompt.yaml"
    file.write_text(plain.stdout)
    task = whet.Task.of(file, data=ROWS, reward="exact_match")
    assert [{"role": m.role, "content": m.content} for m in task.prompt.messages] == messages


def test_an_unpromoted_prompt_is_not_recommended(show: Show) -> None:
    shown = show("chat")
    assert "keep your prompt" in shown.stdout and "use it" not in shown.stdout


def test_an_evaluation_has_a_prompt_too(show: Show) -> None:
    shown = show("evaluation")
    assert "validation" in shown.stdout and "What is it like?" in shown.stdout


def test_the_list_of_runs_says_what_was_measured_on_how_many_rows(root: Path) -> None:
    shown = CliRunner().invoke(cli, ["runs", "--root", str(root / "runs")]).stdout.splitlines()
    rows = {Path(line.split()[0]).name: line for line in shown[1:]}
    score = json.loads((root / "runs" / "evaluation" / "result.json").read_text())["score"]
    assert "evaluated on validation" in rows["evaluation"]
    assert rows["evaluation"].split()[4:7] == [f"{score['mean']:.3f}", str(score["n"]), "-"]
    assert rows["good"].split()[1] == "completed" and rows["good"].split()[3:5] == ["60", "yes"]


def test_an_evaluation_has_no_report(root: Path) -> None:
    refused = CliRunner().invoke(cli, ["report", str(root / "runs" / "evaluation")])
    assert "is an evaluation" in str(refused.exception) and "whet show" in str(refused.exception)
    assert not (root / "runs" / "evaluation" / "report.html").exists()


def test_json_is_one_object(show: Show) -> None:
    values = json.loads(show("good", "--json").stdout)
    assert values["improvement"]["promoted"] and "whet:begin" not in values["prompt"]
    assert values["test"]["best"]["n"] == 60


def test_a_run_without_a_result_is_refused(show: Show, root: Path) -> None:
    (root / "runs" / "open").mkdir()
    (root / "runs" / "open" / "journal.sqlite").write_bytes(b"")
    assert "holds no result" in str(show("open").exception)
    assert "Did you mean good" in str(show("god").exception)


def test_a_finished_run_ends_with_the_box(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from whet.cli.show import result

    stored = json.loads((root / "runs" / "good" / "result.json").read_text())
    result({**stored, "run": "runs/good"})
    end = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split()[0] for line in end] == ["use", "Python", "live"]


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        (
            {"improvement": {"more_examples": 230}},
            "add about 230 test rows: run the same command with --more FILE",
        ),
        (
            {"improvement": {"more_examples": 230, "withheld": True, "missing": 85}},
            "run the same command again: it requests only the missing answers",
        ),
        (
            {"plan": {"promotion": {"possible": False, "rows": 4, "needed": 6}}},
            "add test rows: there are 4, and a promotion needs at least 6",
        ),
        (
            {"status": "budget_exhausted"},
            "search longer: run the same command with a larger limit, another --out and --fork run",
        ),
        ({"ended_by": f"the method itself: {NOTHING_WRONG}"}, "give harder rows"),
        ({"status": "budget_exhausted", "tested": False}, "run the same command with a larger limit"),
        (
            {
                "ended_by": "the method itself: the start prompt is right on every row, and there is nothing to learn from"
            },
            "give harder rows or a more detailed reward",
        ),
        ({}, "try a stronger optimizer model (--optimizer-lm)"),
        ({"best": {"id": "other"}}, "see what was missing: run/report.html"),
    ],
)
def test_a_run_that_was_not_promoted_says_the_step_that_helps(changes: dict[str, Any], step: str) -> None:
    values: dict[str, Any] = {"run": "run", "status": "completed", "plan": {}}
    for side in ("baseline", "best"):
        values[side] = {"id": "start", "prompt": "{{input}}", "validation": None, "test": None}
    values["improvement"] = {"promoted": False, "reason": "Not promoted: too little.", "difference": 0.1}
    for key, value in changes.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) else value
    (line,) = use_lines(values)
    assert line.startswith(f"next    keep your prompt, and {step}"), line
