"""What a comparison says before it pays, and the files that it leaves."""

from __future__ import annotations

import copy
import csv
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.api.comparison import method_summary
from whet.api.results import MethodComparison, RunResult
from whet.cli import show
from whet.errors import ProviderError
from whet.integrations.figures import read_figures
from whet.reporting import write_comparison

METHODS: list[Any] = [whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1), "random_search"]


def compare(root: Path, **changes: Any) -> Any:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": writer}
    words |= {"budget": whet.Budget(calls=400), "seeds": 2, "root": root, "name": "reviews & more"}
    return whet.compare(PROMPT, METHODS, reader="none", **{**words, **changes})


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compare(tmp_path_factory.mktemp("runs"))


def test_one_plan_for_all_runs_is_said_before_any_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = compare(tmp_path, dry_run=True)
    told = capsys.readouterr().err
    assert told.count("4 runs together") == 1 and "at most 1,600 calls in all" in told
    each = [row["plan"] for row in planned["runs"]]
    total = planned["plan"]
    assert total["calls"]["task"]["most"] == sum(plan["calls"]["task"]["most"] for plan in each)
    assert total["tokens"]["expected"] == sum(plan["tokens"]["expected"] for plan in each)
    assert planned.status == "planned" and not list(tmp_path.rglob("comparison.*"))


def test_the_files_hold_the_figures_of_the_result(compared: Any) -> None:
    folder = compared.folder
    with (folder / "comparison.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["method"], row["seed"]) for row in table] == [
        (run.method, str(run.seed)) for run in compared.runs
    ]
    assert [float(row["best_test"]) for row in table] == [run.best.test.mean for run in compared.runs]
    mean = f"{compared.methods['opro']['test_mean']:.3f}"
    for kind in ("html", "md", "tex"):
        text = (folder / f"comparison.{kind}").read_text("utf-8")
        assert mean in text and "opro" in text and "random" in text, kind
    assert json.loads((folder / "comparison.json").read_text()) == {
        key: value for key, value in compared.to_dict().items() if key != "folder"
    }
    assert r"reviews \& more" in (folder / "comparison.tex").read_text()


def test_models_without_a_price_are_not_priced_in_any_form(
    compared: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task model runs in this process: no dollars were paid, and none are stated. Nobody knows what the function that
    writes prompts costs."""
    show.comparison(compared.to_dict())
    texts = {
        kind: (compared.folder / f"comparison.{kind}").read_text("utf-8") for kind in ("html", "md", "tex")
    }
    for kind, text in {**texts, "terminal": capsys.readouterr().out}.items():
        assert (
            "not priced" in text and "unknown" in text and " 0.0000" not in text and "$0.00<" not in text
        ), kind
    with (compared.folder / "comparison.csv").open(newline="") as file:
        assert {(row["cost_usd"], row["price_known"]) for row in csv.DictReader(file)} == {("", "False")}
    methods = json.loads((compared.folder / "comparison.json").read_text())["methods"]
    said = [(one["cost_usd"], one["price_unknown"], one["not_priced"]) for one in methods]
    assert said == [(None, ["optimizer"], ["task"]), (None, [], ["task"])]


def test_the_page_loads_nothing_and_draws_every_run(compared: Any) -> None:
    page = (compared.folder / "comparison.html").read_text("utf-8")
    assert "default-src &#x27;none" in page and not re.search(r"<script| src=|url\(", page)
    assert page.count('class="curve series-') == 2 * (len(compared.runs) + len(compared.methods)) - 2
    for run in compared.runs:
        assert f'href="{run.run.name}/report.html"' in page and (run.run / "report.html").is_file()
    assert "reviews &amp; more" in page
    section = re.sub(r"<[^>]+>", " ", page.partition('id="plan"')[2].partition("</section>")[0])
    for name in compared.methods:
        used = [
            sum(run["usage"]["calls"].values()) for run in compared.to_dict()["runs"] if run["method"] == name
        ]
        most = compared.to_dict()["runs"][0]["plan"]["limits"]["calls"]
        assert section.split(f"  {name} ")[1].split()[:2] == [
            f"{most:,}",
            f"{round(sum(used) / len(used)):,}",
        ]


def test_the_same_comparison_again_pays_nothing_and_writes_the_same(compared: Any) -> None:
    model = Counted()
    before = (compared.folder / "comparison.html").read_bytes()
    again = compare(compared.folder.parent, lm=model)
    assert model.calls == 0 and again.to_dict() == compared.to_dict()
    assert (compared.folder / "comparison.html").read_bytes() == before


def test_a_comparison_shows_itself_in_a_notebook_and_goes_into_sinks(compared: Any) -> None:
    page = compared._repr_html_()
    assert "<table>" in page and "opro" in page and "<script" not in page
    figures = read_figures(compared.folder)
    assert figures.metrics["methods.opro.test_mean"] == compared.methods["opro"]["test_mean"]
    assert figures.parameters["seeds"] == "0, 1"
    curves = {name for name, _, _ in figures.points}
    assert {f"search.best_validation.{run.run.name}" for run in compared.runs} <= curves
    assert {path.name for path in figures.files} == {
        f"comparison.{kind}" for kind in ("html", "csv", "md", "tex", "json")
    }
    assert read_figures(compared).metrics == figures.metrics


def test_a_run_that_was_not_tested_does_not_take_the_others_with_it(compared: Any, tmp_path: Path) -> None:
    result = compared.to_dict()
    for run in result["runs"]:
        if run["method"] == "opro":
            run["best"]["test"] = run["baseline"]["test"] = None
    result["runs"][1]["best"]["test"] = None
    result["methods"] = [method_summary(name, result["runs"]) for name in ("opro", "random_search")]
    untested, tested = result["methods"]
    assert (untested["runs"], untested["tested"], untested["test_mean"]) == (2, 0, None)
    assert (tested["runs"], tested["tested"], tested["test_mean"]) == (2, 1, 1.0)
    result["pairs"] = []
    write_comparison(tmp_path, result)
    page = (tmp_path / "comparison.html").read_text("utf-8")
    assert "opro" in page and "1.000" in (tmp_path / "comparison.md").read_text("utf-8")


def test_a_run_whose_sealed_rows_nobody_answered_says_so_everywhere(compared: Any, tmp_path: Path) -> None:
    result = copy.deepcopy(compared.to_dict())
    nobody = {"mean": None, "low": None, "high": None, "n": 0, "method": None, "answered": 0, "of": 24}
    for run in result["runs"]:
        if run["method"] == "opro":
            run["best"]["test"] = run["baseline"]["test"] = nobody
            run["improvement"] |= {"difference": 0.0, "low": -1.0, "high": 1.0, "n": 0, "promoted": False}
    result["methods"] = [method_summary(name, result["runs"]) for name in ("opro", "random_search")]
    result["pairs"] = [{**pair, "n": 0, "difference": 0.0, "low": -1, "high": 1} for pair in result["pairs"]]
    nothing, answered = result["methods"]
    assert (nothing["tested"], nothing["unanswered"], nothing["test_mean"]) == (0, 2, None)
    assert (answered["tested"], answered["unanswered"]) == (2, 0)
    write_comparison(tmp_path, result)
    with (tmp_path / "comparison.csv").open(newline="") as file:
        table = [row for row in csv.DictReader(file) if row["method"] == "opro"]
    assert {row["best_test"] for row in table} == {row["baseline_test"] for row in table} == {"no answer"}
    assert (
        {row["difference"] for row in table} == {row["n"] and row["difference_low"] for row in table} == {""}
    )
    for kind in ("html", "md", "tex"):
        assert "no answer" in (tmp_path / f"comparison.{kind}").read_text("utf-8"), kind
    assert "opro=no answer" in repr(MethodComparison(result))
    run = RunResult(result["runs"][0])
    assert (
        "no answer" in repr(run) and "no answer" in run._repr_html_() and str(run.best.test).startswith("no")
    )


def test_the_command_line_says_that_nobody_answered(
    compared: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = copy.deepcopy(compared.to_dict())
    for run in result["runs"]:
        run["best"]["test"] = {**run["best"]["test"], "mean": None, "low": None, "high": None, "n": 0}
    result["methods"] = [method_summary(name, result["runs"]) for name in ("opro", "random_search")]
    result["pairs"] = [{**pair, "n": 0} for pair in result["pairs"]]
    show.comparison(result)
    said = capsys.readouterr().out
    assert said.count("no answer") == len(result["methods"]) + len(result["pairs"])


def test_methods_that_are_all_worse_than_the_start_prompt_are_said_to_be(
    compared: Any, tmp_path: Path
) -> None:
    result = copy.deepcopy(compared.to_dict())
    assert [(one["a"], one["b"]) for one in result["beside_start"]] == [
        ("opro", "start prompt"),
        ("random_search", "start prompt"),
    ]
    for one in result["beside_start"]:
        one |= {"difference": -0.3, "low": -0.5, "high": 0.1, "p": 0.2, "p_adjusted": 0.4}
    result["beside_start"][1] |= {"high": -0.1, "p": 0.001, "p_adjusted": 0.002}
    result["runs"][0]["warnings"] = ["The best prompt copies a row."]
    write_comparison(tmp_path, result)
    page = (tmp_path / "comparison.html").read_text("utf-8")
    assert "No method beats the start prompt: keep it." in page and "opro − start prompt" in page
    assert "random_search is worse than the start prompt by 0.300" in page
    said: list[str] = []
    with mock.patch("click.echo", lambda text="", **more: said.append(str(text))):
        show.comparison(result)
    whole = "\n".join(said)
    families = "The pairs with the start prompt form one group, the pairs of methods another."
    assert (
        families in whole and families in (tmp_path / "comparison.md").read_text("utf-8") and families in page
    )
    assert "No method beats the start prompt: keep it." in whole and "opro - start prompt" in whole
    assert f"{result['runs'][0]['method']}, seed 0: The best prompt copies a row." in whole


class Partial(Counted):
    """Never answers some rows to careful prompts."""

    def __call__(self, messages: list[whet.Message]) -> str:
        text = str(messages[-1].content)
        if "careful" in text and any(f"Dish {number} " in text for number in (2, 7, 8, 11)):
            raise ProviderError("This row is too long.")
        return super().__call__(messages)


def test_a_mean_over_fewer_rows_says_so_in_every_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compare(tmp_path, lm=Partial(), seeds=1)
    row = result.methods["opro"]
    test = next(run.best.test for run in result.runs if run.method == "opro")
    assert 0 < row["answered"] == test.n < row["of"] == test.of
    gaps, folder = f"{row['test_mean']:.3f} ({test.n} of {test.of} answered)", result.folder
    for kind in ("html", "md", "tex"):
        assert gaps in (folder / f"comparison.{kind}").read_text("utf-8"), kind
    with (folder / "comparison.csv").open(newline="") as file:
        assert [(r["n"], r["of"]) for r in csv.DictReader(file) if r["method"] == "opro"] == [
            (str(test.n), str(test.of))
        ]
    assert gaps in repr(result) and gaps in result._repr_html_()
    assert read_figures(result).metrics["methods.opro.of"] == test.of
    capsys.readouterr()
    show.comparison(result.json)
    assert gaps in capsys.readouterr().out
    show.show_runs([run for run in whet.runs(folder) if run["method"] == "opro"], str(folder))
    assert f"{test.n} of {test.of}" in capsys.readouterr().out


def test_a_list_of_runs_says_how_many_rows_a_mean_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Partial(), "run": tmp_path / "runs" / "x"}
    found = whet.evaluate(PROMPT.replace("Sort", "Be careful and sort"), **words, split="train")
    (row,) = whet.runs(tmp_path / "runs")
    assert (row["n"], row["of"]) == (found.score.n, found.score.of) and row["n"] != row["of"]
    show.show_runs([row], str(tmp_path))
    assert f" {row['n']} of {row['of']} " in capsys.readouterr().out
    assert f"{row['n']} of {row['of']} answered" in found._repr_html_()
