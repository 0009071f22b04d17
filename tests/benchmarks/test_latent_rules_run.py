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
from benchmarks.latent_rules.arms import ARMS, Rewrite, replaced, rewrite
from benchmarks.latent_rules.build import SPLITS, build, stating_all
from benchmarks.latent_rules.trial import Budget, Endpoint, Job, Trial, play

from whet.engine.journal import read_rows
from whet.env import Environment
from whet.models.addresses import resolve
from whet.policies.language import LanguagePolicy
from whet.prompt import Prompt
from whet.run import Limits
from whet.task import load_task
from whet.testing.runs import MeteredRun
from whet.testing.server import server_process
from whet.types import Completion, Message, Request

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "latent-rules.md"
SMALL = Budget(100, 12)


def trial(arm: str, shares: Sequence[float], **given: Any) -> Trial:
    values: dict[str, Any] = {
        "rules": 10, "seed": 0, "arm": arm, "budget": 100, "variant": "", "simulated": True,
        "shares": tuple(shares), "calls": {"task": 100, "optimizer": 3}, "tokens": 1000, "seconds": 1.0, "prompt": "",
    }  # fmt: skip
    return Trial(**values | given)


# Running.


def test_quick_reaches_what_the_project_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = ["stated", "rewrite-5", "learn-5", "distil-5"]
    path = tmp_path / "trials.json"
    run.main(["--quick", "--processes", "1", "--arms", *arms, "--json", str(path)])
    found = {(t["arm"], t["rules"]): t for t in json.loads(path.read_text("utf-8"))}
    assert set(found) == {(arm, rules) for arm in ("start", *arms) for rules in (10, 50)}
    for rules, least in ((10, 0.95), (50, 0.90)):
        ours, ceiling = found["learn-5", rules], found["stated", rules]
        assert ours["share"] >= least
        assert found["distil-5", rules]["share"] >= least
        assert found["distil-5", rules]["calls"]["optimizer"] == 0
        assert found["start", rules]["share"] < ceiling["share"] - 0.2
        for arm in arms:
            assert found[arm, rules]["calls"]["task"] <= 100 + 2 * SPLITS["test"]
            assert found[arm, rules]["calls"]["optimizer"] <= 12
        assert all(
            len(found[arm, rules]["shares"]) == SPLITS["test"] and found[arm, rules]["simulated"]
            for arm in arms
        )
    assert found["learn-5", 50]["accuracy"] > found["rewrite-5", 50]["accuracy"]
    assert capsys.readouterr().out.startswith("SIMULATED: 1 seed, ")


def test_a_run_is_repeatable_and_a_kept_one_is_not_paid_again(tmp_path: Path) -> None:
    job = Job(10, 3, "learn-1", SMALL)
    first, second = play(job, tmp_path / "a"), play(job, tmp_path / "b")
    assert (first[0].shares, first[0].prompt, first[0].calls) == (
        second[0].shares,
        second[0].prompt,
        second[0].calls,
    )
    journal = tmp_path / "a" / "runs" / job.name / "journal.sqlite"
    paid = read_rows(journal, "SELECT COUNT(*) FROM calls")
    assert play(job, tmp_path / "a")[0].shares == first[0].shares
    assert read_rows(journal, "SELECT COUNT(*) FROM calls") == paid


def test_every_job_has_a_folder_of_its_own() -> None:
    given = run.read_arguments([])
    jobs = [*run.results_jobs(given), *run.times_jobs(given), *run.robustness_jobs(given)]
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.arm for job in run.results_jobs(given)} == set(ARMS)
    assert {job.seed for job in run.results_jobs(given)} == set(range(5))
    assert {job.rules for job in run.results_jobs(given)} == {10, 25, 50, 100}


def test_the_variants_are_options_that_the_simulators_know() -> None:
    given = run.read_arguments(["--seeds", "1"])
    for job in [*run.robustness_jobs(given), *run.times_jobs(given)]:
        assert all(resolve(address).simulated for address in job.addresses())


def test_critiques_without_demands_never_say_what_should_be_done(tmp_path: Path) -> None:
    play(Job(10, 0, "stated", SMALL, demands=False), tmp_path)
    (folder,) = (tmp_path / "tasks").iterdir()
    assert "rule.critiques[:2]" in (folder / "reward.py").read_text("utf-8")


# The control.


class Scribe:
    """An optimizer that answers with the given replies, one after the other."""

    address, simulated, local = "scripted/scribe", True, True

    def __init__(self, *replies: str) -> None:
        self.replies, self.asked = list(replies), []

    async def generate(self, request: Request) -> list[Completion]:
        self.asked.append(request.messages[0].content)
        return [Completion(self.replies.pop(0))]


async def controlled(tmp_path: Path, scribe: Scribe, loops: int) -> tuple[Prompt, MeteredRun]:
    task = load_task(build(tmp_path / "task", 10, 0))
    generator = resolve("scripted/rules-generator?rules=10")
    env = Environment(generator, task.reward, task.train, task.validation)
    metered = MeteredRun({"task": generator, "optimizer": scribe}, limits=Limits(task_calls=90))
    best = await rewrite(metered, env, LanguagePolicy(), task.prompt, Rewrite(loops))
    return best.prompt, metered


async def test_the_control_asks_once_per_loop_and_takes_the_whole_text(tmp_path: Path) -> None:
    scribe = Scribe("I will not.", f"<new_prompt>\n{stating_all(10)}\n</new_prompt>")
    best, metered = await controlled(tmp_path, scribe, 2)
    assert best.text() == stating_all(10)
    assert metered.spent["optimizer"] == 2
    assert metered.spent["task"] <= 90
    assert all("Write the page that the request asks for." in asked for asked in scribe.asked)
    assert all("<critiques>" in asked for asked in scribe.asked)


async def test_the_control_keeps_the_better_prompt(tmp_path: Path) -> None:
    scribe = Scribe(
        f"<new_prompt>{stating_all(10)}</new_prompt>", *["<new_prompt>Be brief.</new_prompt>"] * 9
    )
    best, _ = await controlled(tmp_path, scribe, 5)
    assert best.text() == stating_all(10)


@pytest.mark.parametrize("reply", ["", "<new_prompt></new_prompt>", "<new_prompt>{{slot}}</new_prompt>"])
def test_a_reply_that_cannot_be_used_changes_nothing(reply: str) -> None:
    start = Prompt((Message("system", "A\n<!-- whet:begin -->\nB\n<!-- whet:end -->\n"),))
    assert replaced(start, reply) == start


# Real endpoints.


def test_the_same_benchmark_runs_against_an_endpoint(tmp_path: Path) -> None:
    with server_process("--lm", "scripted/rules-generator?rules=10") as url:
        endpoint = Endpoint("openai/some-model", "scripted/rules-optimizer", url)
        (found,) = play(Job(10, 0, "learn-1", SMALL, endpoint=endpoint), tmp_path)
    assert found.share > 0.9
    assert found.calls["task"] <= SMALL.limit(simulated=False)
    assert "Its keys and the types of their values" in found.prompt


def test_models_of_ones_own_leave_only_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.read_arguments(["--task-lm", "openai/x"]).tables == [run.RESULTS]
    with pytest.raises(SystemExit, match="results only"):
        run.read_arguments(["--task-lm", "openai/x", "--tables", "times"])
    assert Job(10, 0, "learn-5", SMALL, endpoint=Endpoint("openai/x")).addresses() == ("openai/x", "openai/x")


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


def test_the_tables_show_every_arm_and_the_share_of_the_ceiling() -> None:
    trials = [
        trial("start", [0.5] * 4),
        trial("stated", [1.0, 1.0, 1.0, 0.9]),
        trial("learn-5", [1.0, 1.0, 0.8, 0.9]),
    ]
    text = "\n".join(tables.main_tables(trials))
    assert "| start prompt | 0.500" in text
    assert "| prompt learning, 5 loops, over the ceiling | 0.667 |" in text
    assert "| prompt learning, 5 loops | 100 + 3.0, 1 |" in text
    assert tables.main_tables(trials[:1])[0] == "### 100 task calls for learning"


def test_what_is_not_reached_is_in_bold() -> None:
    low = [trial("learn-5", [0.9, 0.9], variant="hard"), trial("learn-5", [1.0, 1.0], variant="easy")]
    lines = tables.robustness_table(low)
    assert "| hard | **0.900** (0.900), 0.00 |" in lines
    assert "| easy | 1.000 (1.000), 1.00 |" in lines


def test_the_table_of_times_has_the_median() -> None:
    lines = tables.time_table([trial("learn-5", [1.0], seconds=s) for s in (3.0, 1.0, 2.0)])
    assert "| prompt learning, 5 loops | 2.0 (1.0, 3.0) |" in lines[2]


def test_tables_are_put_between_the_marks() -> None:
    page = f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n"
    assert run.inserted(page, "new\n") == f"before\n{run.BEGIN}\n\nnew\n\n{run.END}\nafter\n"
    with pytest.raises(SystemExit, match="results:begin"):
        run.inserted("no marks", "new\n")


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


def test_the_page_shows_results_that_keep_the_promise() -> None:
    page = PAGE.read_text("utf-8").partition(run.BEGIN)[2].partition(run.END)[0]
    assert page.strip().startswith("SIMULATED: 5 seeds, 50 sealed pages each")
    rows = page.partition("Mean share of rules followed:")[2].splitlines()
    assert rows[2] == "|  | 10 rules | 25 rules | 50 rules | 100 rules |"
    ours = next(row for row in rows if row.startswith(f"| {tables.TITLES['learn-5']} |"))
    for cell, n in zip(ours.split(" | ")[1:], (10, 25, 50, 100), strict=True):
        assert float(cell.split()[0]) >= tables.REACH[n]
