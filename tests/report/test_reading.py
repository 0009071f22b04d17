"""What a reader needs of a report: the rows themselves, one number for one quantity, what to do next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.report import runs
from tests.report.test_report import Document
from whet.cli.use import use_lines
from whet.prompt import Prompt
from whet.reporting import IntervalRow, interval_plot, result_html, write_report
from whet.reporting.candidates import candidates_section
from whet.reporting.record import Record, ReportedCandidate
from whet.reporting.verdict import openings
from whet.search.archive import Candidate, describe_candidate


def page_of(folder: Path, result: dict[str, Any] | None) -> Document:
    return Document(write_report(folder, result).read_text("utf-8"))


def figures(page: Document) -> str:
    """The text of the page from the verdict to the contents."""
    return page.text.partition("What to do next")[0]


def test_each_row_shows_what_was_asked_and_what_was_wanted(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    page = page_of(folder, result)
    gain = result["improvement"]
    groups = [a for tag, a in page.tags if tag == "details" and a.get("class") == "group"]
    assert ["open" in group for group in groups] == [True, True, False], "fixed, broken, same"
    assert f"Same: {gain['ties']} examples" in page.text
    assert "Input The message of ticket-0" in page.text and "Target order Before 0" in page.text
    long = next(i for i in range(39, 240) if i % 40 == 39)
    assert f"The message of ticket-{long:03d}. " + "More of it. " * 5 in page.text, "folded, and whole"


def test_rows_without_inputs_of_older_runs_are_shown_as_before(tmp_path: Path) -> None:
    folder, result = runs.reinforced(tmp_path / "run", steps=20)
    page = page_of(folder, result)
    assert "Fixed:" in page.text and "Input" not in page.words


def searched(folder: Path, rows: int, mean: float) -> tuple[Path, dict[str, Any]]:
    """A finished run whose search saw the best prompt at `mean` over `rows` rows; at the end it has 0.6 over 100."""
    start, best = Candidate(Prompt.parse(runs.SOURCE)), Candidate(runs.with_rules(["Think."]))
    before, after = runs.final_rows(1, 60, 0.5), runs.final_rows(1, 60, 0.5, 0.4)
    events = [
        runs.event(
            "validated", {**describe_candidate(c), "validation": value, "n": rows, "incumbent": True}, calls
        )
        for c, value, calls in (
            (start, 0.25, 40),
            (Candidate(runs.with_rules(["No."])), 0.3, 80),
            (best, mean, 120),
        )
    ]
    events.append(runs.event("final", {"baseline": before, "best": after, "low": 0.0, "high": 1.0}, 300))
    runs.write_journal(folder, events, runs.header_of())
    return folder, runs.result_of(runs.SOURCE, best.prompt.source, (before, after), (0.25, 0.6))


@pytest.mark.parametrize(
    ("rows", "split"), [(40, "40 of the 100 validation rows"), (100, "(answers of the search)")]
)
def test_a_number_of_the_search_never_passes_for_the_validation_of_the_result(
    rows: int, split: str, tmp_path: Path
) -> None:
    page = page_of(*searched(tmp_path / "run", rows, 0.575))
    assert "validation 0.575" not in page.text and "on validation (0.575" not in page.text
    assert f"best so far on {split if rows == 40 else 'validation ' + split} (0.575 at the end)" in page.text
    assert "search 0.575 validation 0.600" in page.text
    assert "baseline and best were measured on all 100 validation rows: 0.250 and 0.600" in page.text


def test_where_the_search_saw_the_same_there_is_one_number_and_no_note(tmp_path: Path) -> None:
    page = page_of(*searched(tmp_path / "run", 100, 0.6))
    assert "best so far on validation (0.600 at the end)" in page.text
    assert "were measured on all" not in page.text and "search 0.600" not in page.text


def test_the_control_stands_among_the_differences_and_every_interval_says_its_method(tmp_path: Path) -> None:
    folder, result = runs.reinforced(tmp_path / "run", steps=20)
    shown = figures(page_of(folder, result))
    control = result["control"]["improvement"]
    assert f"Control minus baseline +{control['difference']:.3f} [{control['low']:.3f} to" in shown
    assert "Best minus control +0.053 [\u22120.011 to 0.118]" in shown
    drawn = [text for text in shown.split("% interval, ")[1:]]
    methods = [text.startswith(("Wilson", "exact McNemar test")) for text in drawn]
    assert sum(methods) >= 6 and all(methods), "three means and three differences"


@pytest.mark.parametrize("known", [0.0, 0.25])
def test_an_unknown_price_is_said_and_never_zero(known: float, tmp_path: Path) -> None:
    _, result = runs.finished(tmp_path / "run")
    attempts = [("task", "answered", 9, 9, 0.0), *([("judge", "answered", 9, 9, known)] if known else [])]
    runs.write_journal(tmp_path / "other", [], runs.header_of(), attempts)
    usage = {**result["usage"], "cost_usd": known, "price_unknown": ["task"]}
    page = page_of(tmp_path / "other", {**result, "usage": usage})
    assert "price unknown" in figures(page) and "set prices in task.yaml" in page.text
    assert ("$0.2500 and more: price unknown" in figures(page)) == bool(known)
    for state in (page, page_of(tmp_path / "other", None)):
        assert "$0.00" not in state.text, "at the end and before it"


def test_a_run_without_a_price_is_not_priced_and_never_free(tmp_path: Path) -> None:
    _, result = runs.finished(tmp_path / "run")
    header = {**runs.header_of(), "models": {"task": "scripted/qa", "optimizer": "scripted/qa"}}
    runs.write_journal(tmp_path / "other", [], header, [("task", "answered", 9, 9, 0.0)])
    usage = {**result["usage"], "cost_usd": 0.0, "not_priced": ["task"]}
    pages = page_of(tmp_path / "other", {**result, "usage": usage}), page_of(tmp_path / "other", None)
    for page in pages:
        assert "not priced" in figures(page) and "$0.00" not in page.text, "at the end and before it"
    priced = page_of(tmp_path / "other", {**result, "usage": {**usage, "cost_usd": 0.25}})
    assert "$0.2500" in figures(priced) and "not priced" not in figures(priced)


def test_what_was_planned_stands_beside_what_was_used(tmp_path: Path) -> None:
    """100 task calls of $0.002 and 10 of the optimizer of $0.007: 27 of the expected 36 cents."""
    _, result = runs.finished(tmp_path / "run")
    attempts = [
        *[("task", "answered", 100, 4, 0.002)] * 100,
        *[("optimizer", "answered", 900, 100, 0.007)] * 10,
    ]
    runs.write_journal(tmp_path / "other", [], runs.header_of(), attempts)
    plan = {
        "calls": {"task": {"expected": 200, "most": 400}, "optimizer": {"expected": None, "most": 50}},
        "tokens": {"expected": 40_800, "most": None},
        "cost_usd": {"expected": 0.36, "most": 2.5},
        "price_unknown": {},
        "tokens_measured": False,
    }
    said = cost_of(page_of(tmp_path / "other", {**result, "plan": plan}))
    assert "Calls: task 200 400 100 50%" in said and "Calls: optimizer – 50 10 –" in said
    assert "Tokens 40,800 – 20,400 50%" in said and "USD $0.3600 $2.5000 $0.2700 75%" in said
    assert "every byte of the expected texts counted as one" in said
    measured = {**plan, "tokens_measured": True, "price_unknown": {"task": "openai/small-model"}}
    said = cost_of(page_of(tmp_path / "other", {**result, "plan": measured}))
    assert "USD $0.3600" not in said and "every byte" not in said
    assert "The plan and what was used" not in cost_of(page_of(tmp_path / "other", result))


def cost_of(page: Document) -> str:
    """The text of the section on what the run cost."""
    return page.text.split("Model calls by role")[1]


def steps_of(page: Document) -> str:
    """The text of the section with this title, which the contents name first."""
    return page.text.split("What to do next")[2].split("What changed")[0]


def test_a_promoted_prompt_is_there_to_copy_without_markers(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    page = page_of(folder, result)
    plain = Prompt.parse(result["best"]["prompt"]).text
    assert "Use it" in steps_of(page) and f"whet show {folder} --plain > prompt.txt" in page.text
    box = "".join(page.words).partition("into whet's registry.")[2]
    assert box.startswith(plain)
    assert f"{result['improvement']['losses']} test rows got worse. Look at these rows" in steps_of(page)


def test_test_rows_that_an_earlier_run_learned_from_put_the_verdict_in_doubt(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    page = page_of(folder, {**result, "test_rows_seen": 3})
    assert " Promoted, with a doubt " in page.text
    steps = steps_of(page)
    assert (
        "learned from 3 test rows" in steps and "unless the start prompt came from that earlier run" in steps
    )
    assert " Promoted " in page_of(folder, {**result, "test_rows_seen": 0}).text
    seen = {"test_rows_seen": 3, "test_rows_seen_by": "runs/old"}
    lines = "\n".join(use_lines({**result, "run": str(folder), **seen}))
    assert "doubt   3 test rows were used for learning in an earlier run (runs/old)" in lines


def test_a_gain_that_is_not_shown_says_how_many_rows_would_show_it(tmp_path: Path) -> None:
    rows = [{**row, "reward": float(i < 10)} for i, row in enumerate(runs.final_rows(1, 40, 0.5))]
    better = [{**row, "reward": float(i < 13)} for i, row in enumerate(rows)]
    folder, _ = runs.finished(tmp_path / "run")
    result = runs.result_of(runs.SOURCE, runs.with_rules(["Think."]).source, (rows, better))
    gain = result["improvement"]
    assert gain["more_examples"] and f"roughly {gain['more_examples']:,} more examples" in gain["reason"]
    steps = steps_of(page_of(folder, result))
    assert f"about {gain['more_examples']:,} more test rows" in steps and "--more FILE" in steps
    assert "Keep the baseline" in steps and "Use it" not in steps
    assert "without markers (not promoted)" in steps


def next_of(folder: Path, final: dict[str, Any], **changes: Any) -> str:
    """What a run suggests that was not promoted."""
    runs.write_journal(folder, [runs.event("final", {"low": 0.0, "high": 1.0, **final}, 9)], runs.header_of())
    rows = final["baseline"], final["best"]
    return steps_of(page_of(folder, runs.result_of(runs.SOURCE, runs.SOURCE, rows, **changes)))


def test_the_rules_of_what_to_do_next(tmp_path: Path) -> None:
    row = {"id": "a", "output": "x", "reward": 0.0, "parts": {}, "critique": None, "error": None}
    zero = {"baseline": [row] * 5, "best": [row] * 5}
    few = {"plan": {"promotion": {"possible": False, "rows": 5, "needed": 6}}}
    steps = next_of(tmp_path / "few", zero, **few)
    assert "the test split has 5 independent rows" in steps and "fewer than 6" in steps
    assert "Every answer to the test has the reward 0.000" in steps and "whet doctor TASK" in steps
    assert (
        "found no better prompt" in steps
        and "opened 2 times" in steps
        and "The reward gave only numbers" in steps
    )
    full = {name: [{**row, "reward": 1.0, "critique": "Fine."}] * 5 for name in zero}
    steps = next_of(tmp_path / "full", full, test_openings=1)
    assert (
        "These rows leave no room for a gain" in steps
        and "opened" not in steps
        and "only numbers" not in steps
    )
    lost = {name: [{**row, "error": "reward: broken"}] * 5 for name in zero}
    assert "First repair the cause of failures: 10 of 10 rollouts" in next_of(tmp_path / "lost", lost)
    opinion = {"second_opinion": {"reward": "tone", "judge": "openai/j", "promoted": False}}
    assert "The second opinion (openai/j) does not confirm the gain" in next_of(
        tmp_path / "second", zero, **opinion
    )


def test_a_control_that_did_as_well_is_said(tmp_path: Path) -> None:
    folder, result = runs.reinforced(tmp_path / "run", steps=20)
    assert "The control did as well, as far as these rows show (+0.053" in steps_of(page_of(folder, result))


def test_a_notebook_shows_the_same_figures(tmp_path: Path) -> None:
    folder, result = runs.reinforced(tmp_path / "run", steps=20)
    page = Document(result_html({**result, "run": str(folder)}, "The prompt."))
    report = figures(page_of(folder, result))
    for text in ("+0.053 [\u22120.011 to 0.118]", "95% interval, exact McNemar test", "0.520", "$0.00"):
        assert text in page.text and text in report, text
    assert result["improvement"]["reason"] in page.text and "Control minus baseline" in page.text


def test_a_long_name_of_a_pair_stands_above_its_figures_not_in_them() -> None:
    def heights(name: str) -> list[str]:
        row = IntervalRow(name, 0.4, 0.2, 0.6, "+0.378  [0.170 to 0.567]")
        return re.findall(
            r'y="(\d+)"[^>]*class="row-', str(interval_plot("Differences", [row], "pairs", 0.0))
        )

    assert len(set(heights("opro \u2212 grips"))) == 1
    assert len(set(heights("random_search \u2212 meta_prompt"))) == 2


def test_long_candidates_show_what_tells_them_apart() -> None:
    shared = "".join(f"label {i}: alpha, beta, gamma, delta\n" for i in range(8))
    texts = {
        "base": "",
        "best": f"{shared}last: one, two",
        "other": f"{shared}last: one, three",
        "less": shared,
    }
    candidates = {
        name: ReportedCandidate(i, name, text, (), "start" if name == "base" else "policy", i, validation=0.5)
        for i, (name, text) in enumerate(texts.items())
    }
    result = {"baseline": {"prompt": "", "id": "base"}, "best": {"prompt": texts["best"], "id": "best"}}
    shown = candidates_section(Record("run", {}, result, candidates))
    assert shown is not None
    summaries = re.findall(r"<summary>(.*?)</summary>", str(shown.body))
    assert "three" in summaries[2] and "alpha" not in summaries[2]
    assert "the best without" in summaries[3] and "two" in summaries[3]


def test_the_opening_of_the_control_is_said_beside_that_of_the_run() -> None:
    result = {"test_openings": 1, "control": {"improvement": {"opening": 2}}}
    shown = str(openings(Record("run", {}, result)))
    assert "This run was the first opening of these test rows, and its control opening 2." in shown
