"""What is read from a journal."""

from __future__ import annotations

from pathlib import Path

from tests.engine.world import Model, ask, close, open_core, run_of
from tests.report import runs
from whet.models.prices import Price
from whet.prompt import Prompt
from whet.reporting.record import Spending, finite_number, read_record
from whet.search.archive import Archive, Candidate
from whet.types import Score


def test_candidates_points_and_the_incumbent(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    events, best, value = runs.search_events()
    record = read_record(folder, result)
    assert len(record.trained) == sum(name == "candidate" for name, _, _ in events)
    assert len(record.validated) == sum(name == "validated" for name, _, _ in events)
    assert record.start is not None
    assert record.start.source == runs.SOURCE
    assert record.start.validation == 0.55
    assert record.incumbent is not None
    assert (record.incumbent.id, record.incumbent.validation) == (best.prompt.id, value)
    assert record.incumbent.parts.keys() == {"exact_match", "short"}
    assert record.calls == 2012
    assert [c.number for c in record.candidates.values()] == list(range(len(record.candidates)))


def test_spending_adds_up_by_role(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    task, optimizer = read_record(folder, result).spending
    assert (task.role, task.calls, task.failed, task.lost, task.cached) == ("task", 1954, 2, 1, 118)
    assert (optimizer.role, optimizer.calls, optimizer.input_tokens) == ("optimizer", 61, 54_900)
    assert round(task.cost + optimizer.cost, 5) == result["usage"]["cost_usd"]


async def test_a_journal_of_the_engine_is_understood(tmp_path: Path) -> None:
    core = open_core(tmp_path / "run", Model(), price=Price(1.0, 2.0))
    run = run_of(core)
    start = Prompt.parse("Say hello.")
    archive = Archive()
    archive.add(run, Candidate(start, score=Score(0.5, 2)))
    await run.generate("task", ask("one"))
    archive.add(run, Candidate(start.edit("Say hi."), (start.id,), "edit", Score(0.75, 2, {"short": 1.0})))
    await close(core)
    record = read_record(tmp_path / "run", None)
    assert [(p.calls, p.value) for p in record.trained] == [(0, 0.5), (1, 0.75)]
    assert [c.operator for c in record.candidates.values()] == ["start", "edit"]
    assert record.spending == [Spending("task", 1, 0, 0, 0, 7, 5, record.spending[0].cost)]
    assert record.spending[0].cost > 0
    assert not record.finished


def test_the_calls_of_local_models_are_counted_from_effects(tmp_path: Path) -> None:
    folder = runs.write_journal(tmp_path / "run", [], effects=(("task", 300), ("task", 200)))
    assert read_record(folder, None).spending == [Spending("task", 500)]


def test_only_finite_numbers_count() -> None:
    assert [finite_number(v) for v in (1, 0.5, True, "1", None, float("nan"), float("inf"))] == [
        1.0,
        0.5,
        *[None] * 5,
    ]


def test_rewards_that_are_right_or_wrong_need_no_decimals(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    record = read_record(folder, result)
    assert (record.digits, record.example_digits) == (3, 0)
    wide = runs.event("final", {"baseline": [{"reward": 0.5}], "best": [], "low": -100.0, "high": 100.0}, 1)
    record = read_record(runs.write_journal(tmp_path / "wide", [wide]), None)
    assert (record.digits, record.example_digits) == (1, 1)
