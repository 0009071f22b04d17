"""One prompt for several tasks or several models, through the Python face."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError

START = "Answer the question."


def rows(word: str, n: int) -> list[dict[str, str]]:
    return [{"input": f"{word} {i}", "target": str(i % 3)} for i in range(n)]


class Model:
    """Answers rightly where its word stands in the prompt, else a quarter of the rows; `harmed_by`: a word that ends that."""

    def __init__(self, name: str, word: str, harmed_by: str = "-") -> None:
        self.address, self.word, self.harmed_by, self.asked = f"callable/{name}", word, harmed_by, 0
        self.version = name

    def __call__(self, messages: Any) -> str:
        self.asked += 1
        text = " ".join(m["content"] for m in messages)
        n = int(messages[-1]["content"].split()[-1])
        good = (self.word in text or n % 4 == 0) and self.harmed_by not in text
        return str(n % 3) if good else "no"


def writes(*texts: str) -> Callable[[Any], str]:
    """An optimizer that writes one of the texts, by what it is asked."""

    def write(messages: Any) -> str:
        asked = " ".join(m["content"] for m in messages)
        slot = " {{input}}" if "{{input}}" in asked else ""
        place = int(hashlib.sha256(asked.encode()).hexdigest(), 16) % len(texts)
        return f"<INSTRUCTION>{texts[place]}{slot}</INSTRUCTION>"

    return write


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))


def members() -> list[whet.Task]:
    return [
        whet.Task.of("Question: {{input}}", data=rows("apple", 120), reward="exact_match", name="apples"),
        whet.Task.of("Tell me: {{input}}", data=rows("pear", 60), reward="exact_match", name="pears"),
    ]


def sharpen(folder: Path, **words: Any) -> whet.RunResult:
    usual = {"method": "opro", "settings": {"steps": 2, "samples": 2}, "budget": whet.Budget(calls=1200)}
    return whet.optimize(START, **{"root": folder, "progress": False, "name": "fruit", **usual, **words})


def test_two_tasks_share_a_prompt(tmp_path: Path) -> None:
    model = Model("one", "ALPHA")
    words: Any = {"tasks": members(), "lm": model, "optimizer_lm": writes("Say ALPHA.")}
    result = sharpen(tmp_path, **words)
    assert result.promoted and result.best.prompt.source == "Say ALPHA."
    assert {name: case["verdict"] for name, case in result.cases.items()} == {
        "apples": "better",
        "pears": "better",
    }
    found = result.to_dict()
    assert (found["aggregate"], found["best"]["test"]["cases"]) == ("mean", {"apples": 1.0, "pears": 1.0})
    means = found["baseline"]["test"]["cases"]
    assert found["baseline"]["test"]["mean"] == pytest.approx(sum(means.values()) / 2)
    assert [case["test"] for case in found["plan"]["cases"]] == [36, 18]
    assert "pears" in (result.run / "report.html").read_text("utf-8")
    paid = model.asked
    again = sharpen(tmp_path, **words)
    assert model.asked == paid and again.cases == result.cases


def test_a_fork_pays_nothing_for_answers_that_are_there(tmp_path: Path) -> None:
    models = [Model("one", "ALPHA"), Model("two", "ALPHA")]
    words: Any = {"tasks": members(), "task_lms": models, "optimizer_lm": writes("Say ALPHA.")}
    result = sharpen(tmp_path / "whole", **words)
    paid = [model.asked for model in models]
    forked = sharpen(tmp_path / "other", **words, fork=result.run)
    further = [model.asked - before for model, before in zip(models, paid, strict=True)]
    assert min(paid) > 0 and max(further) < min(paid) / 5, "only what the saved calls pay for"
    assert forked.best.prompt == result.best.prompt


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_interval_of_the_worst_case_holds_whichever_case_it_is(
    order: tuple[int, int], tmp_path: Path
) -> None:
    """The interval was that of the first of two equal cases: narrow where the larger one came first."""
    sizes = {"large": 200, "small": 20}
    names = [[*sizes][at] for at in order]
    tasks = [
        whet.Task.of(START, name=name, data=rows(name, sizes[name]), reward="exact_match") for name in names
    ]
    worst = whet.evaluate(
        "Say ALPHA. {{input}}",
        tasks=tasks,
        aggregate="worst",
        lm=Model("one", "ALPHA"),
        root=tmp_path,
        progress=False,
    )
    assert worst.score.mean == 1.0 and worst.score.low < 0.65, worst


def test_the_worst_of_several_models_counts(tmp_path: Path) -> None:
    models = [Model("first", "ALPHA"), Model("second", "BETA")]
    words: Any = {
        "data": rows("apple", 200),
        "reward": "exact_match",
        "task_lms": models,
        "aggregate": "worst",
    }
    result = whet.optimize(
        f"{START} {{{{input}}}}",
        **words,
        optimizer_lm=writes("Say ALPHA.", "Say BETA.", "Say ALPHA and BETA."),
        method="opro",
        budget=whet.Budget(calls=3000),
        root=tmp_path,
        progress=False,
    )
    assert "ALPHA and BETA" in result.best.prompt.source and result.promoted
    assert "the worst case was worth" in result.improvement.reason
    assert len(result.cases) == 2 and result.models["task2"] != result.models["task"]
    assert all(case["n"] == 60 for case in result.cases.values())
    assert result["plan"]["promotion"]["rows"] == 60, (
        "the same row asked of two models is one piece of evidence"
    )
    assert min(model.asked for model in models) > 200


def test_a_gain_that_harms_a_case_is_not_promoted(tmp_path: Path) -> None:
    models = [Model("first", "ALPHA"), Model("second", "ALPHA"), Model("third", "question", "ALPHA")]
    result = whet.optimize(
        f"{START} {{{{input}}}}",
        data=rows("apple", 200),
        reward="exact_match",
        task_lms=models,
        optimizer_lm=writes("Say ALPHA."),
        method="opro",
        settings={"steps": 2, "samples": 1},
        root=tmp_path,
        progress=False,
    )
    assert result.best.prompt.source.startswith("Say ALPHA") and not result.promoted
    assert "shown to harm" in result.improvement.reason
    assert sorted(case["verdict"] for case in result.cases.values()) == ["better", "better", "worse"]


def test_models_share_the_cache_with_runs_of_their_own(tmp_path: Path) -> None:
    first, second = Model("first", "ALPHA"), Model("second", "BETA")
    words: Any = {"data": rows("apple", 40), "reward": "exact_match", "root": tmp_path, "progress": False}
    prompt = f"{START} {{{{input}}}}"
    whet.evaluate(prompt, **words, lm=second)
    paid = second.asked
    both = whet.evaluate(prompt, **words, task_lms=[first, second])
    assert second.asked == paid > 0 and first.asked == paid
    assert both.score.cases and both.score.n == 2 * paid


def test_each_model_has_its_own_price(tmp_path: Path) -> None:
    models = [
        {"address": Model(name, "ALPHA"), "price": {"input": 0, "output": price}}
        for name, price in (("cheap", 1), ("dear", 1_000_000))
    ]
    words: Any = {"data": rows("apple", 40), "reward": "exact_match", "root": tmp_path, "progress": False}
    alone = whet.evaluate(f"{START} {{{{input}}}}", **words, lm=models[1])
    both = whet.evaluate(f"{START} {{{{input}}}}", **words, task_lms=models, fresh=True)
    assert both.usage.cost_usd == pytest.approx(alone.usage.cost_usd, rel=1e-4)
    assert both.usage.calls["task"] == 2 * alone.usage.calls["task"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"tasks": [0]}, "Name two or more"),
        ({"tasks": [0, 0]}, 'have the name "apples"'),
        ({"tasks": [0, 1], "objectives": {"a": {"reward": "f1"}}}, "belongs to one task"),
        ({"tasks": [0, 1], "method": "bdpl", "settings": {}}, "weights or the label probabilities"),
        ({"tasks": [0, 1], "aggregate": "best"}, "mean, worst"),
        ({"tasks": [0, 1], "task_lms": [1, 1]}, "twice"),
        ({"tasks": [0, 1], "task_lms": [1]}, "two or more"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_paid(
    tmp_path: Path, words: dict[str, Any], said: str
) -> None:
    model = Model("one", "ALPHA")
    known = members()
    words = {**words, "tasks": [known[i] for i in words["tasks"]]}
    lms = {"task_lms": [model for _ in words["task_lms"]]} if "task_lms" in words else {"lm": model}
    with pytest.raises(UsageError, match=said):
        sharpen(tmp_path, **{**words, **lms}, optimizer_lm=writes("x"))
    assert model.asked == 0 and not list(tmp_path.glob("*/journal.sqlite"))


def test_rows_that_leave_a_slot_of_the_shared_prompt_empty_are_refused() -> None:
    with pytest.raises(UsageError, match=r"fills no slot \{\{tone\}\} of the shared prompt"):
        whet.Task.of("Say {{input}} {{tone}}", tasks=members(), name="both")
