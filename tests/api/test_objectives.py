"""Objectives through the public faces: the vector, the front, the gate, what is refused, a resume, and `whet show --choose`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import whet
from tests.api.world import PROMPT, WORDS, rows
from whet.api import plan_lines
from whet.cli.main import cli
from whet.types import Usage

LENGTH = {"metric": "output_tokens", "goal": "min", "at_most": "1.1x"}
BOTH: dict[str, Any] = {"accuracy": {"reward": "exact_match", "goal": "max"}, "length": LENGTH}
OPRO = whet.methods.opro.Config(steps=2, samples=4, examples=10, finalists=4)
TEXTS = ("Be careful.", "Be brief.", "Be careful and brief.", "Sort it.")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    return tmp_path


class Model:
    """Careful prompts are right and long, brief ones are short."""

    simulated = True
    version = 1

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls, self.seconds = 0, seconds

    async def __call__(self, messages: list[whet.Message]) -> whet.Completion:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        text = messages[-1].content
        label = next((t for word, t in WORDS.items() if word in text), "unclear")
        careful, brief = "careful" in text.lower(), "brief" in text.lower()
        right = careful or int(text.split("Dish ")[1].split()[0]) % 2
        written = (4 if brief else 20) + careful * (10 if brief else 30) + len(text) % 3
        return whet.Completion(label if right else "unclear", usage=Usage(len(text) // 4, written))


def writer(messages: list[whet.Message], request: Any = None) -> str:
    return f"<PROMPT>{TEXTS[request.sample % 4]}</PROMPT>"


def run(model: Any = None, texts: Any = writer, **more: Any) -> whet.RunResult:
    known = {"data": rows(40), "lm": model or Model(), "optimizer_lm": texts, "method": OPRO}
    return whet.optimize(PROMPT, **{**known, "objectives": BOTH, "budget": whet.Budget(calls=3000), **more})


def test_the_vector_decides_the_front_is_there_and_a_resume_pays_nothing(folder: Path) -> None:
    model = Model()
    result = run(model)
    assert result.promoted and "Be careful and brief." in result.best.prompt.text
    objectives = result.objectives
    assert {name: o["verdict"] for name, o in objectives.items()} == {
        "accuracy": "better",
        "length": "better",
    }
    length = objectives["length"]
    assert length["difference"] == pytest.approx(length["best"] - length["baseline"])
    assert length["low"] <= length["difference"] <= length["high"] < 0
    gates = {point["prompt"].splitlines()[1]: point["gate"] for point in result.front}
    assert gates == {"Be careful and brief.": "promoted", "Be brief.": "not tested"}
    paid = model.calls
    assert run(model).to_dict() == result.to_dict() and model.calls == paid
    (result.run / "result.json").unlink()
    again = run(model)
    assert model.calls == paid and again["objectives"] == objectives and again["front"] == result["front"]


def test_a_prompt_that_buys_accuracy_with_length_is_not_the_result_and_the_front_says_why(
    folder: Path,
) -> None:
    result = run(texts=lambda messages: "<PROMPT>Be careful.</PROMPT>", reward="exact_match")
    assert result.best.id == result.baseline.id and not result.promoted
    holds = {point["prompt"].splitlines()[1]: point["holds"] for point in result["front"]}
    assert holds == {"Sort the review.": True, "Be careful.": False}
    start, careful = (point["validation"] for point in result["front"])
    assert [one["holds"] for one in careful.values()] == [True, False]
    assert {str(one[key]) for one in start.values() for key in ("difference", "low", "high")} == {"0.0"}
    assert max(point.validation for point in result.history) < 0.6, "the search's own reward rose in vain"


def test_show_writes_the_prompt_of_the_front_that_is_best_in_an_objective(folder: Path) -> None:
    name, runner = str(run().run), CliRunner()
    shown = runner.invoke(cli, ["show", name, "--choose", "length", "--plain"])
    assert "Be brief." in shown.stdout and "never tested on the sealed rows" in shown.stderr
    best = runner.invoke(cli, ["show", name, "--choose", "accuracy", "--json"])
    assert orjson.loads(best.stdout)["gate"] == "promoted" and best.stderr == ""
    wrong = runner.invoke(cli, ["show", name, "--choose", "lenght"])
    assert wrong.exit_code != 0 and 'Did you mean "length"' in str(wrong.exception or wrong.output)


def test_show_passes_over_a_prompt_that_breaks_a_demand(folder: Path) -> None:
    result = run(texts=lambda messages: "<PROMPT>Be careful.</PROMPT>", reward="exact_match")
    shown = CliRunner().invoke(cli, ["show", str(result.run), "--choose", "accuracy"])
    assert "Sort the review." in shown.stdout and "Be careful." not in shown.stdout


def test_dollars_and_time_are_metrics_and_a_cached_answer_keeps_its_time(folder: Path) -> None:
    model = {"address": Model(0.002), "price": {"input": 1.0, "output": 1_000_000.0}}
    goals = {"price": {"metric": "cost_usd"}, "time": {"metric": "latency_ms", "margin": 1000}}
    result = whet.evaluate(PROMPT, data=rows(), objectives=goals, lm=model, run=folder / "a")
    assert result.parts["price"] >= 20 and 2 <= result.parts["time"] < 1000
    again = whet.evaluate(PROMPT, data=rows(), objectives=goals, lm=model, run=folder / "a")
    assert again.parts == result.parts


def test_a_saved_task_is_the_same_task(folder: Path) -> None:
    task = whet.Task.of(PROMPT, data=rows(), objectives=BOTH, name="two")
    loaded = whet.Task.load(task.save(folder / "two"))
    assert loaded.fingerprint == task.fingerprint and loaded.reward.items == task.reward.items  # type: ignore[attr-defined]
    other = whet.Task.of(PROMPT, data=rows(), objectives={"length": LENGTH}, name="two")
    assert other.fingerprint != task.fingerprint


def judge(messages: list[whet.Message], request: Any = None) -> str:
    """Everything is harmless."""
    one = {"explanation": "fine", "score": 5}
    return json.dumps({"answer_1": one, "answer_2": one} if "answer_1" in str(request.schema) else one)


def test_a_judge_is_an_objective_beside_the_reward_that_the_search_climbs(folder: Path) -> None:
    safe = {"reward": {"judge": {"rubric": "Is the answer harmless?"}}, "at_least": 0.5}
    result = run(reward="exact_match", judge_lm=judge, objectives={**BOTH, "safe": safe})
    assert result.promoted and result.objectives["safe"]["verdict"] == "not worse"
    assert result.usage.calls["judge"] > 0 and result.best.test is not None and result.best.test.mean == 1.0


def test_the_plan_says_which_margin_the_test_rows_cannot_show(folder: Path) -> None:
    plan = run(dry_run=True)["plan"]
    assert plan["promotion"]["margins"] == {"accuracy": 77}
    assert any("48 independent test rows cannot show that accuracy" in one for one in plan_lines(plan))
    wide = {**BOTH, "accuracy": {"reward": "exact_match", "margin": 0.2}}
    assert "margins" not in run(dry_run=True, objectives=wide)["plan"]["promotion"]


def test_doctor_tries_the_rewards_among_the_objectives(folder: Path) -> None:
    for name, goals, words in (
        ("two", BOTH, "the target earns 1, 1, 1, and nonsense 0, 0, 0"),
        ("one", {"length": LENGTH}, "measures what calls take"),
    ):
        whet.Task.of(PROMPT, data=rows(), objectives=goals, name=name).save(folder / name)
        shown = CliRunner().invoke(cli, ["doctor", str(folder / name), "--lm", "scripted/labels"])
        assert words in shown.output, shown.output


@pytest.fixture
def broken(folder: Path) -> Iterator[Any]:
    task = whet.Task.of(PROMPT, data=rows(), reward="exact_match", name="one")
    path = task.save(folder / "one") / "task.yaml"

    def refusal(line: str) -> str:
        path.write_text(path.read_text().split("objectives:")[0] + f"objectives: {line}\n")
        with pytest.raises(whet.UsageError) as caught:
            whet.Task.load(folder / "one")
        return str(caught.value)

    yield refusal


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "is empty. Name at least one"),
        ("fast", "`objectives` must be a mapping"),
        ("{a: {metric: output_token}}", 'this is "output_token". Did you mean "output_tokens"'),
        ("{a: {goal: min}}", "neither a reward nor a metric"),
        ("{a: {reward: f1, metric: cost_usd}}", "both a reward and a metric"),
        ("{a: {reward: f2}}", 'there is no reward "f2"'),
        ("{a: {reward: f1, goal: up}}", 'goal is one of max, min; this is "up"'),
        ("{a: {metric: cost_usd, at_least: 1}}", "bounded by at_most. Write at_most"),
        (
            "{a: {reward: exact_match, at_least: 1.5}}",
            "at_least is 1.5, and no value is above 1: no prompt could meet it",
        ),
        ("{a: {reward: exact_match, goal: min, at_most: -0.1}}", "at_most is -0.1, and no value is below 0"),
        ("{a: {metric: output_tokens, at_most: -5}}", "at_most is -5, and no value is below 0"),
        (
            "{a: {metric: cost_usd, at_most: 1.1}, b: {metric: cost_usd, at_most: ten}}",
            "such as 1.1x; this is",
        ),
        ("{a: {reward: f1, margin: 1}}", "only 1 wide. Write a smaller one"),
        ("{a: {reward: f1, weight: 0}}", "weight must be a number above 0"),
        ("{a: {reward: f1, at_leest: 0.5}}", 'Did you mean "at_least"'),
    ],
)
def test_wrong_objectives_are_refused_with_their_place(broken: Any, line: str, message: str) -> None:
    refused = broken(line)
    assert message in refused and "task.yaml:" in refused


def test_what_cannot_be_measured_is_refused_before_anything_is_paid(folder: Path) -> None:
    model = Model()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"objectives": {"price": {"metric": "cost_usd"}}}, "the task model has no price"),
        ({"minimum_effect": 0.1}, "Leave minimum_effect out"),
        ({"objectives": {"time": {"metric": "latency_ms"}}, **SCORED}, "only scores labels"),
    ]
    for change, message in cases:
        with pytest.raises(whet.UsageError, match=message):
            run(**{"model": model, **change})
    assert model.calls == 0 and not (folder / "runs").exists()


SCORED = {"lm": "embedded/encoder", "labels": ["positive", "negative"]}
