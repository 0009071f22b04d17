"""Typed results: what they say, that they are their JSON, and how they show themselves."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows
from whet.api.results import RunResult


class Balanced(HTMLParser):
    """Fails on a tag that is not closed; collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("runs")
    return whet.optimize(
        "<!-- whet:begin -->\n<script>alert(1)</script> careful & quick\n<!-- whet:end -->\n{{input}}",
        data=rows(), reward=right, lm=Counted(), optimizer_lm="none", method="random_search",
        settings={"n": 3}, budget=whet.Budget(calls=300), root=folder, name="a <b> task",
    )  # fmt: skip


def test_every_typed_name_says_what_the_json_says(result: RunResult) -> None:
    data = json.loads((result.run / "result.json").read_text())
    assert result.to_dict() == data and {**data, "run": str(result.run)} == result
    assert (result.status, result.method, result.seed) == (data["status"], data["method"], data["seed"])
    assert (
        result.improvement.low == data["improvement"]["low"]
        and result.promoted is data["improvement"]["promoted"]
    )
    assert result.best.test is not None and result.best.test.mean == data["best"]["test"]["mean"]
    assert (
        result.baseline.prompt.source == data["baseline"]["prompt"]
        and "whet:" not in result.baseline.prompt.text
    )
    assert [point.calls for point in result.history] == [point["calls"] for point in data["history"]]
    assert (result.ended_by, result.models, result.simulated, result.plan) == tuple(
        data[key] for key in ("ended_by", "models", "simulated", "plan")
    )
    assert result.usage.calls == data["usage"]["calls"] and list(result.warnings) == data["warnings"]


def test_a_result_cannot_be_changed(result: RunResult) -> None:
    result.to_dict()["best"]["prompt"] = "mine"
    assert result["best"]["prompt"] != "mine"
    for name in ("promoted", "json", "best"):
        with pytest.raises(AttributeError):
            setattr(result, name, None)
    with pytest.raises(TypeError):
        result["seed"] = 1  # type: ignore[index]


def test_the_notebook_view_is_whole_and_escaped(result: RunResult) -> None:
    page = Balanced()
    page.feed(result._repr_html_())
    assert not page.open and "<script>" not in result._repr_html_() and "a <b> task" in page.text
    assert result.improvement.reason in page.text and result.best.prompt.text in page.text
    assert "color: inherit" in result._repr_html_(), "readable on a light and on a dark page"
    assert repr(result).startswith("RunResult('a <b> task', 'random_search', seed=0, completed, promoted=")


def test_the_report_shows_the_rows_and_the_notebook_its_figures(result: RunResult) -> None:
    report = (result.run / "report.html").read_text()
    assert "Dish 1" in report and "positive" in report, "inputs and targets of the sealed test"
    best = result.best.test
    assert (
        best is not None and f"{best.mean:.3f}  [{best.low:.3f} to {best.high:.3f}]" in result._repr_html_()
    )


def test_a_plan_shows_itself_too() -> None:
    planned = whet.optimize(PROMPT, data=rows(), reward=right, lm=Counted(), optimizer_lm="none",
                            method="random_search", budget=whet.Budget(calls=300), dry_run=True)  # fmt: skip
    assert planned.status == "planned" and repr(planned).endswith("planned)")
    assert "task calls" in planned._repr_html_()


def test_a_prompt_of_several_messages_comes_back_whole(tmp_path: Path) -> None:
    prompt = whet.Prompt.from_messages((whet.Message("system", "Be careful."), whet.Message("user", PROMPT)))
    done = whet.evaluate(prompt, data=rows(), reward=right, lm=Counted(), root=tmp_path)
    assert done.prompt == prompt and done.score.mean == 1.0 and done.score.low is not None
    best = whet.optimize(prompt, data=rows(), reward=right, lm=Counted(), optimizer_lm="none", method="grips",
                         settings={"iterations": 1, "candidates": 2}, root=tmp_path)  # fmt: skip
    assert best.baseline.prompt == prompt and len(best.best.prompt.messages) == 2
