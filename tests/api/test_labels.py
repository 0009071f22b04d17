"""Accuracy by label and the confusion matrix: of an evaluation, of a run, in the report and in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet

ANSWERS = {
    "order": ["order", "order", "repair"],
    "repair": ["repair", "no idea", "order"],
    "invoice": ["invoice"] * 3,
}
WANTED = {
    "order": {"n": 12, "right": 8, "accuracy": 2 / 3, "answers": 12, "precision": 2 / 3},
    "repair": {"n": 12, "right": 4, "accuracy": 1 / 3, "answers": 8, "precision": 0.5},
    "invoice": {"n": 12, "right": 12, "accuracy": 1.0, "answers": 12, "precision": 1.0},
}


def split(name: str, each: int = 4) -> list[dict[str, Any]]:
    return [
        {"input": f"{name} {label} {i} {n}", "target": label}
        for label in ANSWERS
        for i in range(3)
        for n in range(each)
    ]


def answer(messages: Any) -> str:
    label, i = messages[-1].content.split()[-3:-1]
    return ANSWERS[label][int(i)]


@pytest.fixture
def words(tmp_path: Path) -> dict[str, Any]:
    data = {name: split(name) for name in ("train", "validation", "test")}
    return {"data": data, "reward": "exact_match", "lm": answer, "root": tmp_path}


@pytest.mark.parametrize(
    "labels",
    [[0, 1], ["0", "1"], np.unique([0, 1]), [False, True], [0.0, 1.0]],
    ids=["numbers", "texts", "numpy", "truth values", "floats"],
)
def test_labels_are_numbers_and_truth_values_too(tmp_path: Path, labels: Any) -> None:
    kind = bool if labels is not None and isinstance(labels[0], bool) else int
    rows = [{"input": f"dish {i} {i % 2}", "target": kind(i % 2)} for i in range(20)]

    def lm(messages: Any) -> str:
        return str(kind(messages[-1].content[-1] == "1"))

    done = whet.evaluate(
        "Sort: {{input}}", data=rows, labels=labels, reward="exact_match", lm=lm, root=tmp_path
    )
    assert done.score.mean == 1.0


@pytest.mark.parametrize("labels", [list(ANSWERS), None], ids=["labels", "targets that are labels"])
def test_an_evaluation_says_what_it_makes_of_each_label(words: dict[str, Any], labels: Any) -> None:
    figures = whet.evaluate("Sort: {{input}}", labels=labels, **words).labels
    assert {name: pytest.approx(one) for name, one in WANTED.items()} == figures["each"]
    order = figures["columns"]
    matrix = {
        name: dict(zip(order, row, strict=True)) for name, row in zip(order, figures["matrix"], strict=False)
    }
    assert matrix["repair"] == {"order": 4, "repair": 4, "invoice": 0, "no label": 4}
    assert matrix["order"] == {"order": 8, "repair": 4, "invoice": 0, "no label": 0}
    assert figures["accuracy"] == pytest.approx(24 / 36) and figures["n"] == 36
    assert {"target": "order", "answer": "repair", "n": 4} in figures["confusions"]


@pytest.mark.parametrize(
    "reward",
    [
        {"concise": {"reward": "exact_match"}},
        [{"exact_match": 0.8}, {"contains": 0.2}],
        lambda example, output: 0.9 if output == example["target"] else 0.4,
        lambda example, output: 1.0,
    ],
    ids=["with length", "weighted", "of ones own", "always right"],
)
def test_labels_are_read_in_answers_where_the_reward_does_not_decide(
    words: dict[str, Any], reward: Any
) -> None:
    figures = whet.evaluate("Sort: {{input}}", **{**words, "reward": reward}).labels
    assert figures["each"]["invoice"]["accuracy"] == 1.0
    assert figures["each"]["order"]["right"] == 8
    assert {"target": "order", "answer": "repair", "n": 4} in figures["confusions"]


def test_free_text_has_no_labels(tmp_path: Path) -> None:
    data = [{"input": f"number {i}", "target": f"the {i}th"} for i in range(40)]
    done = whet.evaluate("{{input}}", data=data, reward="exact_match", lm=lambda messages: "x", root=tmp_path)
    assert done.labels == {} and "labels" not in done


def test_a_run_and_its_report_have_both_prompts_by_label(words: dict[str, Any]) -> None:
    done = whet.optimize(
        "Sort: {{input}}", optimizer_lm="none", method="random_search", budget=whet.Budget(calls=300), **words
    )
    assert set(done.labels) == {"baseline", "best"}
    assert done.labels["baseline"]["each"]["repair"]["right"] == 4
    page = (done.run / "report.html").read_text("utf-8")
    assert 'id="labels"' in page and "repair → order" in page and "Confusion matrix, baseline" in page


def test_an_evaluation_shows_itself_in_a_notebook(words: dict[str, Any]) -> None:
    page = whet.evaluate("Sort: <b> {{input}}", **words)._repr_html_()
    assert "Label repair" in page and "4 of 12 rows" in page and "&lt;b&gt;" in page
    prompt = whet.Prompt.parse("Sort <i>it</i>: {{input}}")._repr_html_()
    assert "&lt;i&gt;it" in prompt and "{{input}}" in prompt
