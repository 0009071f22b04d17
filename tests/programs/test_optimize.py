"""Programs from the front door: every prompt is edited, the report says which earned the gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from tests.programs.world import PROMPTS, ROWS, model, optimizer, program, reward
from whet.engine.plan_text import plan_lines
from whet.engine.run_folder import RunPlan
from whet.engine.turns import planned_turns
from whet.errors import UsageError
from whet.methods import get_method

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))


def optimize(folder: Path, **options: Any) -> whet.RunResult:
    words = {
        "program": {"function": program, "calls": 2},
        "data": ROWS,
        "reward": reward,
        "lm": model,
        "optimizer_lm": optimizer,
        "method": "opro",
        "settings": {"steps": 2, "samples": 3, "finalists": 1},
        "budget": whet.Budget(calls=4000),
        "run": folder,
        **options,
    }
    return whet.optimize(PROMPTS, **words)


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> tuple[whet.RunResult, Path]:
    """One run for the tests that read it, and its folder."""
    folder = tmp_path_factory.mktemp("optimized")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STATE", str(folder / "state"))
        return optimize(folder / "run"), folder / "run"


def test_every_prompt_is_edited_and_earns_its_part(optimized: tuple[whet.RunResult, Path]) -> None:
    result, run = optimized
    best = result.best.prompt
    assert best.region_text("plan") == "Look for the digits."
    assert best.region_text("answer") == "Give only the number."
    assert best.parts["plan"].messages[0].content.startswith("Say what to look for.\n<!-- whet:begin -->\n")
    assert result.promoted
    ablation = result["ablation"]
    assert ablation["whole"] == 1.0
    assert ablation["without"]["plan"]["gain"] == 1.0
    assert ablation["without"]["answer"]["gain"] == 0.5
    assert whet.Prompt.parse((run / "best.md").read_text()) == best
    report = (run / "report.html").read_text()
    for words in ("Gain of each prompt", "Prompt plan", "Prompt answer", "Trace before: 2 steps"):
        assert words in report
    assert any("which region earned the gain" in line for line in plan_lines(result["plan"]))


def test_what_the_search_leaves_pays_for_the_ablation_where_a_tenth_of_the_budget_does_not(
    tmp_path: Path,
) -> None:
    result = optimize(tmp_path / "run", budget=whet.Budget(calls=900))
    assert result["plan"]["ablation"] == 0 and result["usage"]["calls"]["task"] < 500
    assert set(result["ablation"]["without"]) == {"plan", "answer"}
    scarce = optimize(tmp_path / "scarce", budget=whet.Budget(calls=190))
    assert scarce.promoted
    assert "ablation" not in scarce.to_dict()


async def own_messages(lm: Any, prompts: Any, example: Any) -> str:
    plan = await lm.ask(prompts["plan"].replace("{{input}}", example["input"]), prompt="plan")
    return str(await lm.ask(prompts["answer"].replace("{{plan}}", plan), prompt="answers"))


def test_a_call_with_own_messages_names_the_prompt_that_they_came_from(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'no prompt "answers".*"answer"'):
        optimize(tmp_path / "run", program=own_messages)


def test_one_region_by_name(tmp_path: Path) -> None:
    result = optimize(tmp_path / "run", region="plan")
    assert result.best.prompt.parts["answer"] == result.baseline.prompt.parts["answer"]
    assert result.best.prompt.region_text("plan") == "Look for the digits."


@pytest.mark.parametrize(
    ("space", "turns"), [("phrases", ["instructions", "definitions"]), ("definitions", [])]
)
def test_definitions_are_drawn_once_although_there_is_another_fence(space: str, turns: list[str]) -> None:
    """They have a region of their own; in turns, the control would score twice as many prompts as what it controls."""
    text = "<!-- whet:begin -->Is it good?<!-- whet:end --> {{input}}\n<!-- whet:begin definitions -->\n<!-- whet:end -->"
    rows = [{"input": f"row {n}", "target": "yes"} for n in range(20)]
    method = get_method("random_search")
    config = method.config(space=space)
    plan = RunPlan(whet.Task.of(text, data=rows, reward="exact_match"), method, config, whet.Budget(), 0, {})
    assert [turn.region for turn in planned_turns(plan, [])] == turns


def test_who_is_blamed_comes_first(tmp_path: Path) -> None:
    result = optimize(tmp_path / "run", region="blame")
    assert result.best.test is not None and result.best.test.mean == 1.0


def test_the_best_prompt_is_evaluated_from_its_file(
    tmp_path: Path, optimized: tuple[whet.RunResult, Path]
) -> None:
    best = optimized[1] / "best.md"
    words: dict[str, Any] = {"program": program, "data": ROWS, "reward": reward, "lm": model}
    score = whet.evaluate(PROMPTS, prompt=best, run=tmp_path / "evaluation", **words)
    assert score.score.mean == 1.0
    with pytest.raises(UsageError, match="has different prompts from"):
        whet.evaluate(PROMPTS, prompt="Answer {{input}}", run=tmp_path / "other", **words)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": None}, "need a program"),
        ({"program": lambda lm, prompts, example: ""}, "async def program"),
        ({"region": "plna"}, 'no region "plna".*Did you mean "plan"'),
        ({"method": "tempera", "settings": {}}, "tempera works with a single prompt"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        optimize(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_program_that_always_fails_stops_the_run(tmp_path: Path) -> None:
    async def broken(lm: Any, prompts: Any, example: Any) -> str:
        return str(example["no such key"])

    with pytest.raises(UsageError, match=r"The program failed on every row.*KeyError"):
        optimize(tmp_path / "run", program=broken)
    assert whet.runs(tmp_path) == [] and not (tmp_path / "run").exists(), "no model was asked"


FOLDER = {
    "task.yaml": "name: two\nprogram: {file: program.py, calls: 2}\nprompts: {plan: plan.md, answer: answer.md}\n"
    "data: data.jsonl\nreward: exact_match\nregion: answer\n",
    "program.py": "async def program(lm, prompts, example):\n    return await lm('answer', plan=await lm('plan'))\n",
    "tools.py": 'def add(a, b):\n    """The sum."""\n    return a + b\n',
    "data.jsonl": "".join(f'{{"id": "n{n}", "input": "number {n}", "target": "{n}"}}\n' for n in range(60)),
    "plan.md": PROMPTS["plan"],
    "answer.md": PROMPTS["answer"],
}


def folder_with(folder: Path, **changes: str) -> Path:
    folder.mkdir()
    for name, text in (FOLDER | {k.replace("_", "."): v for k, v in changes.items()}).items():
        (folder / name).write_text(text)
    return folder


def test_a_task_folder_holds_a_program(tmp_path: Path) -> None:
    task = whet.Task.load(folder_with(tmp_path / "task"))
    assert list(task.prompt.parts) == ["plan", "answer"]
    assert task.program is not None and task.program.calls == 2
    assert task.region == "answer"
    again = whet.Task.load(task.save(tmp_path / "saved"))
    assert again.fingerprint == task.fingerprint
    score = whet.evaluate(task, lm=model, run=tmp_path / "evaluation")
    assert score.score.mean == 0.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prompts: {plan", "prompt: plan.md\nprompts: {plan", "`prompt` and `prompts`"),
        ("program: {file: program.py, calls: 2}\n", "", "need a program"),
        ("calls: 2", "calls: 0", "task.yaml:2: program: calls"),
        ("file: program.py", "file: nothing.py", "nothing.py: there is no such file"),
        ("plan: plan.md", "plan: nothing.md", "nothing.md"),
        ("plan: plan.md", "pl.an: plan.md", "no name for a prompt"),
        ("region: answer", "region: answr", 'task.yaml:6: .*Did you mean "answer"'),
        ("region: answer", "environment: {tools: tools.py, turns: 2}", "`environment`"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = FOLDER["task.yaml"]
    assert old in text
    with pytest.raises(UsageError, match=message):
        whet.Task.load(folder_with(tmp_path / "task", task_yaml=text.replace(old, new)))
