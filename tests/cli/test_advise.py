"""`whet advise`: what a task has, what its test can show, which methods fit and what to do first; nothing paid or written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import whet
from tests.crash.world import write_task
from whet.cli.main import cli
from whet.methods import METHODS

CANNOT_WRITE = ("--optimizer-lm", "embedded/encoder")


def rows(count: int = 60) -> list[dict[str, Any]]:
    return [{"input": f"row {i}", "target": f"answer number {i}"} for i in range(count)]


def task_of(reward: Any = "exact_match", count: int = 60, **words: Any) -> whet.Task:
    return whet.Task.of("Answer.", data=rows(count), reward=reward, **words)


def says_why(example: dict[str, Any], output: str) -> dict[str, Any]:
    right = output == example["target"]
    return {"reward": float(right), "critique": None if right else "The answer is not polite."}


def test_a_task_folder_is_judged_without_a_call_and_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    write_task(tmp_path / "task")
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(cli, ["advise", str(tmp_path / "task"), "--json"])
    found = json.loads(done.stdout)
    assert (
        found["pays"] is False
        and "with 2 independent test rows no prompt can be promoted" in found["verdict"]
    )
    assert found["rows"] == {"train": 3, "validation": 2, "test": 2}
    assert "Add at least 4 independent test rows" in found["first"][0]
    assert found["start"] is None and found["plan"]["price_unknown"] == {
        "task": "openai/test",
        "optimizer": "openai/test",
    }
    screen = CliRunner().invoke(cli, ["advise", str(tmp_path / "task")]).stdout
    assert "prices unknown" in screen and "  need " in screen and len(screen.splitlines()) < 30
    assert sorted(tmp_path.rglob("*")) == before


def test_more_test_rows_show_smaller_gains_and_the_verdict_waits_for_the_start_prompt() -> None:
    few, many = (whet.advise(task_of(count=n)) for n in (40, 1000))
    gains = [one["test"]["gain"]["none_worse"] for one in (few, many)]
    assert gains[0] > gains[1] and few.pays is None and many.pays is None
    assert any("Add test rows: " in step and "about 178 would" in step for step in few.first)
    assert not any("Add test rows" in step for step in many.first)
    assert any("Name the task model" in step for step in few.first)


def test_reasons_are_what_the_task_has() -> None:
    """Causes that nobody looked for are conditions: `choose it if`."""
    reasons = {row["name"]: row for row in whet.advise(task_of())["methods"]}
    assert reasons["prompt_learning"]["why"] == "the default"
    assert reasons["gepa"]["why"] == "needs only an optimizer model"
    assert reasons["gepa"]["when"] == METHODS["gepa"].when
    said = {row["name"]: row["why"] for row in whet.advise(task_of(says_why))["methods"]}
    assert said["prompt_learning"] == "the default, and the reward says what is wrong"
    goals = {
        "right": {"reward": "exact_match", "goal": "max"},
        "length": {"metric": "prompt_tokens", "goal": "min"},
    }
    several = whet.advise(task_of(None, objectives=goals))
    assert "not measured" in several["verdict"] and not any(
        "Add test rows" in step for step in several["first"]
    )


def test_a_gain_beyond_the_scale_of_the_reward_is_never_advised() -> None:
    found = whet.advise(task_of(minimum_effect=0.95))
    assert not any("a gain of 1" in step for step in found["first"])
    assert "4 of 5 cases" not in found["test"]["power"]


def test_rows_that_would_show_all_that_a_prompt_can_gain_are_counted() -> None:
    def mostly_right(messages: Any) -> str:
        number = messages[-1].content.removeprefix("row ")
        return f"answer number {number}" if int(number) % 5 else "?"

    mostly_right.simulated = True  # type: ignore[attr-defined]
    found = whet.advise(task_of(), lm=mostly_right)
    assert found["pays"] is False and "About " in found["verdict"]
    rows_wanted = int(found["verdict"].split("About ")[1].split()[0])
    assert rows_wanted > found["test"]["rows"]


def test_a_missing_key_is_what_to_do_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write_task(tmp_path / "task")
    found = whet.advise(tmp_path / "task")
    assert found["plan"]["method"] and found["test"]["rows"] == 2 and found.methods
    assert any(step.startswith("Before a run: ") and "OPENAI_API_KEY" in step for step in found.first)


def test_the_command_line_names_options_and_python_names_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    write_task(Path("task"))
    asked = json.loads(CliRunner().invoke(cli, ["advise", "task", *CANNOT_WRITE, "--json"]).stdout)
    assert "--optimizer-lm openai/NAME" in asked["plan_missing"] and "lm=" not in asked["plan_missing"]
    assert "lm=openai/NAME" in whet.advise(Path("task"), optimizer_lm="embedded/encoder")["plan_missing"]


def test_the_gain_is_in_units_of_the_reward() -> None:
    def stars(example: dict[str, Any], output: str) -> float:
        return 5.0 if output == example["target"] else 1.0

    wide = whet.advise(task_of({"program": {"function": stars, "low": 1, "high": 5}}))
    usual = whet.advise(task_of())
    gains = [one["test"]["gain"]["some_worse"] for one in (wide, usual)]
    assert gains[0] == pytest.approx(4 * gains[1])


SCHEMA = {"json_schema": {"schema": {"type": "object", "required": ["town"]}}}
CALLS = [{"name": "weather", "arguments": {"town": "Ulm"}}]


@pytest.mark.parametrize(
    ("reward", "more", "said"),
    [
        ("tool_calls", {"calls": CALLS}, "own"),
        ("compiles", {}, "own"),
        (SCHEMA, {}, "own"),
        ([{"weight": 0.5, "exact_match": {}}, {"weight": 0.5, **SCHEMA}], {"target": "yes"}, "own"),
        ("exact_match", {"target": "yes"}, "the target"),
        ("math_equal", {"target": "1/2"}, "the target"),
    ],
)
def test_what_a_critique_says_is_read_off_the_reward(reward: Any, more: dict[str, Any], said: str) -> None:
    data = [{"input": f"row {i}", **more} for i in range(60)]
    advice = whet.advise(whet.Task.of("Answer.", data=data, reward=reward))
    assert advice["reward"]["critiques"] == said
    assert any("Let the reward explain" in step for step in advice.first) == (said == "the target")


def test_methods_that_read_critiques_come_first_where_the_reward_gives_some() -> None:
    with_reasons, without = whet.advise(task_of(says_why)), whet.advise(task_of())
    assert next(iter(with_reasons.methods)) == "prompt_learning"
    assert with_reasons["reward"]["critiques"] == "own"
    assert without["reward"]["critiques"] == "the target" and next(iter(without.methods)) == "prompt_learning"
    steps = [any("explain why" in step for step in one.first) for one in (with_reasons, without)]
    assert steps == [False, True]


def test_methods_fit_by_what_they_need() -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return ""

    plain = whet.advise(task_of())
    lacks = {row["name"]: row["lacks"] for row in plain["unfit"]}
    assert set(lacks) | set(plain.methods) == set(whet.methods.METHODS)
    assert "(--policy; default: embedded/tiny)" in lacks["prewrite"] and "labels" in lacks["tempera"]
    assert lacks["modp"] == "`objectives:` (default: only the reward)"
    goals = {
        "right": {"reward": "exact_match", "goal": "max"},
        "length": {"metric": "prompt_tokens", "goal": "min"},
    }
    assert list(whet.advise(task_of(None, objectives=goals)).methods)[:2] == ["prompt_learning", "modp"]
    many = whet.Task.of({"one": "Answer."}, data=rows(), reward="exact_match", program=program)
    assert {row["lacks"] for row in whet.advise(many)["unfit"] if row["name"] in ("prewrite", "bdpl")} == {
        "a task with a single prompt; this task has a program"
    }


@pytest.mark.parametrize(
    ("rows", "calls", "fits"), [(22, None, False), (80, None, True), (80, 400, False), (80, 3000, True)]
)
def test_a_policy_is_advised_where_rows_and_limits_carry_it_and_never_before_the_default(
    tmp_path: Path, rows: int, calls: int | None, fits: bool
) -> None:
    folder = tmp_path / "task"
    write_task(folder)
    lines = "".join(
        json.dumps({"input": f"row {n}", "target": f"answer number {n}"}) + "\n" for n in range(rows)
    )
    (folder / "train.jsonl").write_text(lines)
    text = (folder / "task.yaml").read_text()
    text = text.replace("models: {task: openai/test}", "models: {task: openai/test, policy: embedded/tiny}")
    (folder / "task.yaml").write_text(text + (f"budget: {{max_calls: {calls}}}\n" if calls else ""))
    advice = whet.advise(folder)
    assert ("prewrite" in advice.methods) == fits
    assert next(iter(advice.methods)) == "prompt_learning"


@pytest.mark.parametrize("critiques", [True, False])
def test_what_is_advised_first_is_what_optimize_takes(critiques: bool, tmp_path: Path) -> None:
    def reward(example: Any, output: str) -> Any:
        return {"reward": 0.0, "critique": "Too long."} if critiques else 0.0

    task = whet.Task.of("Answer.", data=rows(), reward=reward)
    models: dict[str, Any] = {"lm": lambda messages: "no", "optimizer_lm": lambda messages: "no"}
    plan = whet.optimize(task, run=tmp_path / "run", dry_run=True, **models)
    assert next(iter(whet.advise(task, **models).methods)) == plan["method"]


def test_a_model_that_costs_nothing_is_asked_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def right(messages: Any) -> str:
        return "answer number " + messages[-1].content.removeprefix("row ")

    def costs(messages: Any) -> str:
        raise AssertionError("a model that may cost something was asked")

    right.simulated = True  # type: ignore[attr-defined]
    found = whet.advise(task_of(), lm=right)
    assert found.pays is False and "reaches 1.00 of 1, so it can gain 0.00 at most" in found.verdict
    assert found["start"]["n"] == 18 and found["start"]["simulated"]
    assert whet.advise(task_of(), lm=costs)["start"] is None
    assert not list(tmp_path.iterdir())


def test_a_reward_that_fails_or_says_nothing_comes_first() -> None:
    def breaks(example: dict[str, Any], output: str) -> float:
        raise KeyError("missing")

    def constant(example: dict[str, Any], output: str) -> float:
        return 0.5

    for reward, said in (
        (breaks, "the reward fails"),
        (constant, "the same for the target and for nonsense"),
    ):
        found = whet.advise(task_of(reward))
        assert found.pays is False and said in found.verdict and "whet doctor" in found.first[0]


def test_targets_that_look_like_labels_are_said() -> None:
    data = [{"input": f"row {i}", "target": ("good", "bad")[i % 2]} for i in range(60)]
    found = whet.advise(whet.Task.of("Answer.", data=data, reward="exact_match"))
    assert any("Add labels: [bad, good]" in step for step in found.first)


LABELS = ("network", "math")


@pytest.mark.parametrize(
    ("count", "calls", "best"),
    [(60, None, "random_search"), (400, None, "bdpl"), (400, 500, "random_search"), (400, 5000, "bdpl")],
)
def test_the_advised_method_of_an_encoder_is_the_one_that_runs_and_trains_only_what_rows_and_limits_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, calls: int | None, best: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = [{"input": f"row {i}", "target": LABELS[i % 2]} for i in range(count)]
    words: dict[str, Any] = {
        "data": data,
        "labels": LABELS,
        "reward": "exact_match",
    }
    task = dataclasses.replace(whet.Task.of("What is it about?", **words), budget=whet.Budget(calls=calls))
    advised = list(whet.advise(task, lm="embedded/encoder").methods)
    trained = [name for name in advised if not METHODS[name].trains.startswith("nothing")]
    assert advised[0] == best
    assert best == "bdpl" or advised[-len(trained) :] == trained, "methods that train come last"
    assert (
        whet.optimize(task, lm="embedded/encoder", dry_run=True, budget=whet.Budget(calls=calls))["method"]
        == best
    )


def test_the_default_model_is_named_and_commands_repeat_the_model_that_the_caller_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    task = whet.Task.of(
        "Answer. {{input}}",
        data=[{**row, "target": "ab"[i % 2]} for i, row in enumerate(rows())],
        reward="exact_match",
        labels=["a", "b"],
    )
    task.save("task")
    screen = CliRunner().invoke(cli, ["advise", "task"]).stdout
    assert (
        "no --lm is given, so embedded/encoder, a small model in this process, answers; name your model with --lm"
        in screen
    )
    named = (
        CliRunner()
        .invoke(cli, ["advise", "task", "--lm", "openai/gpt-4o-mini", "--lm-option", "top_p=0.5"])
        .stdout
    )
    assert "no --lm" not in named
    assert "whet evaluate task --lm openai/gpt-4o-mini --lm-option top_p=0.5 (" in named, named


@pytest.mark.parametrize(
    "reward",
    ["gap", "likelihood", "confidence", [{"gap": {}, "weight": 1}, {"exact_match": {}, "weight": 9}]],
)
def test_a_reward_that_the_task_model_scores_is_not_tried_on_texts_and_has_no_problem(
    tmp_path: Path, reward: Any
) -> None:
    data = [{"input": f"day {n}", "target": ("good", "bad")[n % 2]} for n in range(60)]
    task = whet.Task.of("Say {{input}}", data=data, labels=["good", "bad"], reward=reward)
    advice = whet.advise(task, lm="openai/test")
    assert advice["reward"]["problem"] is None
    assert advice["decision"]["name"] != "mend" or "reward" not in advice["decision"]["reasons"][0]
    task.save(tmp_path / "task")
    said = CliRunner().invoke(cli, ["doctor", str(tmp_path / "task"), "--no-calls"]).output
    assert "not tried" in said and "crashes" not in said
