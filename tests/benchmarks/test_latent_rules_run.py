"""The benchmark's runner: equal budgets, the issue of a run on the sealed test, intervals, tables, the page in docs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.latent_rules import run, tables
from benchmarks.latent_rules.arms import ARMS, CEILING, LEARN, REWRITE
from benchmarks.latent_rules.build import SPLITS
from benchmarks.latent_rules.trial import Budget, Endpoint, Job, Trial, play
from tests.serving import server_thread

from whet.engine.journal import read_journal_rows
from whet.models.addresses import resolve

ROOT = Path(__file__).resolve().parents[2]
PAGE, FIGURES = ROOT / "docs" / "latent-rules.md", ROOT / "docs" / "figures.md"
SMALL = Budget(100, 12)


def trial(arm: str, shares: Sequence[float], **given: Any) -> Trial:
    values: dict[str, Any] = {
        "rules": 10, "seed": 0, "arm": arm, "budget": 100, "variant": "", "simulated": True,
        "shares": tuple(shares), "calls": {"task": 100, "optimizer": 3}, "tokens": 1000, "seconds": 1.0, "prompt": "",
    }  # fmt: skip
    return Trial(**values | given)


# Running.


@pytest.mark.long
def test_quick_runs_every_arm_within_the_same_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trials.json"
    run.main(["--quick", "--processes", "1", "--json", str(path)])
    trials = {(t["arm"], t["rules"]): t for t in json.loads(path.read_text("utf-8"))}
    assert set(trials) == {(arm, rules) for arm in ("start", *ARMS) for rules in (10, 50)}
    for rules, least in ((10, 0.95), (50, 0.90)):
        start, ceiling, rewritten, learned = (
            trials[arm, rules] for arm in ("start", CEILING, REWRITE, LEARN)
        )
        assert learned["share"] >= least
        assert start["share"] < rewritten["share"] <= ceiling["share"]
        assert start["share"] < ceiling["share"] - 0.2
        for one in (ceiling, rewritten, learned):
            assert one["calls"]["task"] <= 100 + 2 * SPLITS["test"]
            assert one["calls"]["optimizer"] <= 12
            assert len(one["shares"]) == SPLITS["test"] and one["simulated"]
    assert trials[LEARN, 50]["share"] > trials[REWRITE, 50]["share"]
    assert capsys.readouterr().out.startswith("SIMULATED: 1 seed, ")


def test_a_run_is_repeatable_and_a_kept_one_is_not_paid_again(tmp_path: Path) -> None:
    job = Job(10, 3, REWRITE, SMALL)
    first, second = play(job, tmp_path / "a"), play(job, tmp_path / "b")
    assert (first[0].shares, first[0].prompt, first[0].calls) == (
        second[0].shares,
        second[0].prompt,
        second[0].calls,
    )
    journal = tmp_path / "a" / "runs" / job.name / "journal.sqlite"
    paid = read_journal_rows(journal, "SELECT COUNT(*) FROM calls")
    assert play(job, tmp_path / "a")[0].shares == first[0].shares
    assert read_journal_rows(journal, "SELECT COUNT(*) FROM calls") == paid


def test_every_job_has_a_folder_of_its_own() -> None:
    given = run.read_arguments([])
    jobs = [
        *run.results_jobs(given),
        *run.times_jobs(given),
        *run.robustness_jobs(given),
        *run.loops_jobs(given),
    ]
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.arm for job in run.results_jobs(given)} == set(ARMS)
    assert {job.seed for job in run.results_jobs(given)} == set(range(5))
    assert {job.rules for job in run.results_jobs(given)} == {10, 25, 50, 100}


def test_the_variants_are_options_that_the_simulators_know() -> None:
    given = run.read_arguments(["--seeds", "1"])
    for job in [*run.robustness_jobs(given), *run.times_jobs(given)]:
        assert all(resolve(address).simulated for address in job.addresses())


def test_critiques_without_demands_never_say_what_should_be_done(tmp_path: Path) -> None:
    play(Job(10, 0, CEILING, SMALL, demands=False), tmp_path)
    (folder,) = (tmp_path / "tasks").iterdir()
    assert "rule.critiques[:2]" in (folder / "reward.py").read_text("utf-8")


# Real endpoints.


def test_the_same_benchmark_runs_against_an_endpoint(tmp_path: Path) -> None:
    with server_thread("--lm", "simulated/rules-generator?rules=10") as url:
        endpoint = Endpoint("openai/some-model", "simulated/rules-optimizer", url)
        (found,) = play(Job(10, 0, REWRITE, SMALL, endpoint=endpoint), tmp_path)
    assert found.share > 0.9
    assert found.calls["task"] <= SMALL.limit(simulated=False)
    assert "Its keys and the types of their values" in found.prompt


def test_models_of_ones_own_leave_only_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.read_arguments(["--task-lm", "openai/x"]).tables == [run.RESULTS]
    with pytest.raises(SystemExit, match="results and loops only"):
        run.read_arguments(["--task-lm", "openai/x", "--tables", "times"])
    assert Job(10, 0, LEARN, SMALL, endpoint=Endpoint("openai/x")).addresses() == ("openai/x", "openai/x")


# Figures.


def test_the_interval_covers_seeds_and_pages() -> None:
    same = tables.estimate([[1.0] * 50] * 5)
    assert (same.mean, same.high) == (1.0, 1.0) and 0.98 < same.low < 0.99
    apart = tables.estimate([[0.2] * 50, [0.4] * 50])
    assert apart.mean == pytest.approx(0.3)
    assert (apart.low, apart.high) == (0.0, 1.0)
    half = 2.776 * 0.0158 / 5**0.5
    near = tables.estimate([[0.90], [0.91], [0.92], [0.93], [0.94]])
    assert (near.low, near.high) == pytest.approx((0.92 - half, 0.92 + half), abs=1e-4)
    one = tables.estimate([[0.5, 0.7] * 25])
    assert one.low < 0.6 < one.high


@pytest.mark.long
def test_loops_bound_a_run_and_nothing_else_does(tmp_path: Path) -> None:
    (one,) = play(Job(10, 0, LEARN, SMALL, loops=1), tmp_path)
    (two,) = play(Job(10, 0, LEARN, SMALL, loops=2), tmp_path)
    assert (one.budget, two.budget) == (1, 2) and one.calls["task"] < two.calls["task"]


def test_loops_stand_beside_what_was_published() -> None:
    shown = tables.loops_table([trial(LEARN, [1.0] * 4, budget=1), trial(LEARN, [1.0, 0.5], budget=5)])
    assert [line.split(" | ")[:2] for line in shown[2:6]] == [
        ["| 1 loop, as published", "15%"],
        ["| 1 loop, whet", "1.000 (0.51, 1.00)"],
        ["| 5 loops, as published", "100%"],
        ["| 5 loops, whet", "0.500 (0.09, 0.91)"],
    ]


def test_the_tables_show_every_arm_and_the_share_of_the_ceiling() -> None:
    trials = [
        trial("start", [0.5] * 4),
        trial(CEILING, [1.0, 1.0, 1.0, 0.9]),
        trial(LEARN, [1.0, 1.0, 0.8, 0.9]),
    ]
    text = "\n".join(tables.main_tables(trials))
    assert "| start prompt | 0.500" in text
    assert "| prompt learning, over the ceiling | 0.667 |" in text
    assert "| prompt learning | 100 + 3.0, 1 |" in text
    assert tables.main_tables(trials[:1])[0] == "### 100 task calls for learning"


def test_what_is_not_reached_is_in_bold() -> None:
    low = [trial(LEARN, [0.9, 0.9], variant="hard"), trial(LEARN, [1.0, 1.0], variant="easy")]
    lines = tables.robustness_table(low)
    assert "| hard | **0.900** (0.900), 0.00 |" in lines
    assert "| easy | 1.000 (1.000), 1.00 |" in lines


def test_the_table_of_times_has_the_median() -> None:
    lines = tables.time_table([trial(LEARN, [1.0], seconds=s) for s in (3.0, 1.0, 2.0)])
    assert "| prompt learning | 2.0 (1.0, 3.0) |" in lines[2]


def test_tables_are_put_between_the_marks() -> None:
    page = f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n"
    assert run.insert_markdown(page, "new\n") == f"before\n{run.BEGIN}\n\nnew\n\n{run.END}\nafter\n"
    with pytest.raises(SystemExit, match="results:begin"):
        run.insert_markdown("no marks", "new\n")


# The page.


def commands() -> list[list[str]]:
    """Arguments of every command of the runner that the page or the module shows."""
    text = PAGE.read_text("utf-8") + str(run.__doc__)
    return [
        shlex.split(line) for line in re.findall(r"python -m benchmarks\.latent_rules\.run *([^`\n]*)", text)
    ]


def test_the_commands_on_the_page_exist() -> None:
    assert len(commands()) >= 4
    for arguments in commands():
        run.read_arguments(arguments)


def test_the_page_has_a_place_for_results_and_shows_only_measured_ones() -> None:
    results = FIGURES.read_text("utf-8").partition(run.BEGIN)[2].partition(run.END)[0].strip()
    rows = results.partition("Mean share of rules followed:")[2].splitlines()
    if results == "Not measured yet.":
        return
    assert results.startswith("SIMULATED: 5 seeds, 50 sealed pages each")
    assert rows[2] == "|  | 10 rules | 25 rules | 50 rules | 100 rules |"
    ours = next(row for row in rows if row.startswith(f"| {tables.TITLES[LEARN]} |"))
    for cell, n in zip(ours.split(" | ")[1:], (10, 25, 50, 100), strict=True):
        assert float(cell.split()[0]) >= tables.REACH[n]
