"""The ledger of openings: one for all folders, by the content of rows, safe for many processes, and what it spends of alpha; in a
file, and in a PostgreSQL that machines share."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from tests.postgres import state_of_each_kind, state_url  # noqa: F401 - fixtures
from whet.engine import ledger_store
from whet.engine.ledger_store import LEDGER, LedgerUnavailable
from whet.engine.openings import Family, SealedComparison, SealedTestLedger
from whet.engine.state_place import state_place
from whet.errors import UsageError
from whet.stats import FDR, discovery_alpha, holm, opening_alpha
from whet.types import Example

ROOT = Path(__file__).resolve().parents[2]
each_place = pytest.mark.usefixtures("state_of_each_kind")


def rows(names: range, target: str = "t") -> list[Example]:
    return [Example(f"id-{os.urandom(4).hex()}", {"input": f"q{i}"}, target, {}, f"q{i}") for i in names]


def test_the_levels_of_all_openings_sum_to_alpha() -> None:
    levels = [opening_alpha(0.05, k) for k in range(1, 100_000)]
    assert levels[0] == pytest.approx(0.04) and levels == sorted(levels, reverse=True)
    assert levels[1] == pytest.approx(0.2 * 0.05 * 6 / math.pi**2)
    assert 0.04999 < sum(levels) <= 0.05


def test_holm_is_that_of_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.9, 0.9]) == [1.0, 1.0]


@each_place
def test_an_opening_is_counted_in_all_folders_by_content_and_once_for_a_run(tmp_path: Path) -> None:
    one, other = SealedTestLedger(), SealedTestLedger()
    assert one.open("first", 0.05, rows(range(20))).number == 1
    assert one.open("first", 0.05, rows(range(20))).number == 1, "a resume is the same opening"
    assert other.open("second", 0.05, rows(range(20))).number == 2, "another folder, other ids"
    third = other.open("third", 0.05, [*rows(range(19, 20)), *rows(range(100, 160))])
    assert third.number == 3 and third.alpha == opening_alpha(0.05, 3), "added rows do not reset it"
    assert one.open("fourth", 0.05, rows(range(200, 220))).number == 1, "new rows start anew"
    assert one.open("fifth", 0.05, rows(range(20), target="u")).number == 1, "another target is another row"
    assert str(getattr(state_place(), "address", state_place())) == os.environ["WHET_STATE"]


@each_place
def test_rows_that_change_sides_are_counted(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    ledger.settle(SealedComparison("first", tmp_path, rows(range(10)), rows(range(10, 40))), 0.05)
    assert ledger.find_moved_rows("second", rows(range(10)), rows(range(10, 40))) == []
    assert ledger.find_moved_rows("first", rows(range(10, 20)), rows(range(10))) == [], (
        "a run is no other run"
    )
    sealed, seen = ledger.find_moved_rows("second", rows(range(7, 12)), rows(range(7)))
    assert sealed.startswith("7 of the 7 rows to learn from were sealed") and "seed" in sealed
    assert seen.startswith(
        "2 of 5 sealed test rows were learned from in an earlier run. If this start prompt"
    )
    (one,) = ledger.find_moved_rows("second", rows(range(9, 12)), rows(range(50, 52)))[-1:]
    assert one.startswith("2 of 3")
    (one,) = ledger.find_moved_rows("second", [*rows(range(10, 11)), *rows(range(60, 62))], [])
    assert "1 of 3 sealed test rows was learned from" in one and "remove that row" in one
    second = SealedComparison("second", tmp_path, rows(range(7, 12)), rows(range(7)))
    assert ledger.settle(second, 0.05).seen == 2
    assert ledger.settle(second, 0.05).seen == 2, "also when it goes on"


@each_place
def test_several_processes_never_get_the_same_number(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from whet.engine.openings import SealedTestLedger as L\n"
        "from whet.types import Example\n"
        "rows = [Example('x', {'input': 'q'}, 't', {}, 'q')]\n"
        "print(*[L().open(f'{sys.argv[1]}-{i}', 0.05, rows).number for i in range(20)])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path, env=env, stdout=subprocess.PIPE)
        for name in "abc"
    ]
    numbers = [int(n) for process in running for n in process.communicate(timeout=600)[0].split()]
    assert sorted(numbers) == list(range(1, 61))


def test_a_ledger_that_cannot_be_written_is_said_and_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "file"))
    ledger = SealedTestLedger()
    assert ledger.find_moved_rows("a", rows(range(3)), rows(range(3))) == []
    assert "WHET_STATE" in ledger.check() and "no verdict" in ledger.check()
    with pytest.raises(LedgerUnavailable, match="WHET_STATE"):
        ledger.reserve(SealedComparison("a", tmp_path, rows(range(3))))
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / LEDGER).write_bytes(b"this is no database at all, but something else" * 9)
    assert ledger.find_known_rows("c", rows(range(3))) == [], "a broken ledger breaks no run"
    with pytest.raises(LedgerUnavailable, match="not a database"):
        ledger.open("c", 0.05, rows(range(3)))


def test_a_locked_ledger_is_said_soon(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_store, "WAIT_SECONDS", 0.01)
    assert SealedTestLedger().check() == ""
    with closing(sqlite3.connect(state / LEDGER, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert "another process has locked it for 0.01 s" in SealedTestLedger().check()
        with pytest.raises(LedgerUnavailable, match="locked"):
            SealedTestLedger().open("a", 0.05, rows(range(3)))
    assert SealedTestLedger().open("a", 0.05, rows(range(3))).number == 1


def run_folder(path: Path, name: str) -> Path:
    """A folder that holds the run `name`, as far as the ledger looks."""
    path.mkdir()
    with closing(sqlite3.connect(path / "journal.sqlite")) as db:
        db.execute("CREATE TABLE meta(key TEXT, value TEXT)")
        db.execute("INSERT INTO meta VALUES ('run', ?)", (name,))
        db.commit()
    return path


@each_place
def test_what_was_reserved_and_not_compared_counts_as_no_opening(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    killed = SealedComparison("killed", run_folder(tmp_path / "run", "killed"), rows(range(9)))
    ledger.reserve(killed)
    assert ledger.open("other", 0.05, rows(range(9))).number == 1
    assert ledger.settle(replace(killed, digest="x"), 0.05).number == 2, "it goes on later, and counts then"
    assert ledger.settle(replace(killed, digest="x"), 0.05).number == 2, "a resume is the same comparison"


@each_place
def test_copies_of_a_killed_run_are_openings_of_their_own(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    original = SealedComparison(
        "run", run_folder(tmp_path / "run", "run"), rows(range(9)), digest="same answers"
    )
    ledger.reserve(original)
    places = [run_folder(tmp_path / f"copy-{i}", "run") for i in range(3)]
    numbers = []
    for place in (tmp_path / "run", *places):
        ledger.reserve(replace(original, place=place))
        numbers.append(ledger.settle(replace(original, place=place), 0.05).number)
    assert numbers == [1, 2, 3, 4]
    assert ledger.settle(replace(original, place=places[1]), 0.05).number == 3
    assert ledger.settle(replace(original, digest="other answers"), 0.05).number == 5, (
        "put back and run again"
    )


@each_place
def test_a_run_that_was_moved_is_the_same(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    run = SealedComparison("run", run_folder(tmp_path / "run", "run"), rows(range(9)))
    ledger.reserve(run)
    assert ledger.settle(run, 0.05).number == 1
    moved = replace(run, place=(tmp_path / "run").rename(tmp_path / "moved"))
    assert ledger.settle(moved, 0.05).number == 1


@each_place
def test_a_withheld_verdict_gives_its_opening_back(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    first = SealedComparison("first", tmp_path, rows(range(9)), digest="a")
    assert ledger.settle(first, 0.05).number == 1
    ledger.release(first)
    assert ledger.settle(replace(first, digest="b"), 0.05).number == 1
    assert ledger.settle(SealedComparison("second", tmp_path, rows(range(9))), 0.05).number == 2


@each_place
def test_the_mean_of_one_prompt_is_no_opening_and_that_of_a_second_one_is(tmp_path: Path) -> None:
    ledger = SealedTestLedger()
    assert ledger.look(["start"], 0.05, rows(range(9))) is None
    assert ledger.look(["start"], 0.05, rows(range(9))) is None
    compared = SealedComparison("run", tmp_path, rows(range(9)), prompts=("start", "best"))
    assert ledger.settle(compared, 0.05).number == 1
    assert ledger.look(["best"], 0.05, rows(range(9))) is None, "the run has compared it"
    third = ledger.look(["by hand"], 0.05, rows(range(9)))
    assert third is not None and third.number == 2
    assert ledger.look(["by hand"], 0.05, rows(range(9))) == third, "the same look again is no other"


def test_an_opening_that_was_cut_off_leaves_no_half_of_itself(state: Path) -> None:
    SealedTestLedger().open("a", 0.05, rows(range(3)))
    db = sqlite3.connect(state / LEDGER)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO openings VALUES ('b', 0, 2, 0.1)")
    db.close()  # as a killed process does
    assert SealedTestLedger().open("c", 0.05, rows(range(3))).number == 2


@each_place
def test_levels_of_fdr_follow_the_verdicts_on_each_row(tmp_path: Path) -> None:
    ledger = SealedTestLedger(policy=FDR)

    def settle(name: str, sealed: list[Example], promoted: bool | None) -> tuple[int, float]:
        comparison = SealedComparison(name, tmp_path, sealed)
        opened = ledger.settle(comparison, 0.05)
        if promoted is not None:
            ledger.record(comparison, promoted)
        return opened.number, opened.alpha

    assert settle("a", rows(range(9)), True) == (1, discovery_alpha(0.05, [])), "one promotion"
    assert settle("b", rows(range(9)), None) == (2, discovery_alpha(0.05, [True])), "a verdict to come"
    third = settle("c", rows(range(9)), False)
    assert third == (3, discovery_alpha(0.05, [True, False]))
    ledger.record(SealedComparison("b", tmp_path, rows(range(9))), True)
    fourth = settle("d", [*rows(range(5)), *rows(range(50, 60))], True)
    assert fourth == (4, min(discovery_alpha(0.05, [True, True, False]), discovery_alpha(0.05, []))), (
        "the lowest of its rows: those that are new have earned nothing"
    )
    assert settle("c", rows(range(9)), None) == third, "a resume keeps its level"
    assert settle("new", rows(range(90, 99)), None) == (1, discovery_alpha(0.05, []))
    seen = ledger.foresee(None, 0.05, rows(range(50, 60)))
    assert seen is not None and (seen.number, seen.alpha) == (2, discovery_alpha(0.05, [True]))


@each_place
def test_a_comparison_of_several_runs_is_one_discovery(tmp_path: Path) -> None:
    family = Family(tmp_path, "compare", 2, key="a family")
    ledger = SealedTestLedger(family, FDR)
    for name, promoted in (("first", True), ("second", False)):
        comparison = SealedComparison(name, tmp_path, rows(range(9)))
        assert ledger.settle(comparison, 0.05).alpha == discovery_alpha(0.05, []) / 2
        ledger.record(comparison, promoted)
    later = SealedTestLedger(policy=FDR).foresee(None, 0.05, rows(range(9)))
    assert later is not None and (later.number, later.alpha) == (2, discovery_alpha(0.05, [True]))


@each_place
def test_rows_keep_the_policy_of_their_first_opening(tmp_path: Path) -> None:
    strict, fdr = SealedTestLedger(), SealedTestLedger(policy=FDR)
    strict.open("old", 0.05, rows(range(9)))
    with pytest.raises(
        UsageError, match=r"opened under the alpha policy strict before \(1 opening\).*has fdr"
    ):
        fdr.foresee(None, 0.05, rows(range(5, 12)))
    with pytest.raises(LedgerUnavailable, match="alpha_policy=strict"):
        fdr.open("meanwhile", 0.05, rows(range(9)))
    assert fdr.open("other rows", 0.05, rows(range(20, 29))).policy == FDR
    with pytest.raises(UsageError, match="has strict"):
        strict.foresee(None, 0.05, rows(range(20, 29)))
    follows = SealedTestLedger(follows=True)
    assert follows.open("a look", 0.05, rows(range(20, 29))).alpha == discovery_alpha(0.05, [False])
    assert strict.open("next", 0.05, rows(range(9))).alpha == opening_alpha(0.05, 2), "nothing was counted"


def test_a_ledger_of_an_earlier_version_is_read_and_goes_on(state: Path) -> None:
    SealedTestLedger().open("old", 0.05, rows(range(9)))
    with closing(sqlite3.connect(state / LEDGER)) as db:
        db.executescript("DROP TABLE policies; DROP TABLE verdicts")
    seen = SealedTestLedger().foresee(None, 0.05, rows(range(9)))
    assert seen is not None and seen.number == 2
    assert SealedTestLedger().open("new", 0.05, rows(range(9))).number == 2


def test_of_thirty_null_runs_on_one_split_any_is_promoted_at_most_with_alpha(tmp_path: Path) -> None:
    """30 equally good prompts, each tested on the same 100 rows by the exact McNemar test at its own level: 2,000 times."""
    rng, alpha, times = np.random.default_rng(3), 0.1, 2000
    ledger = SealedTestLedger()
    levels = [ledger.open(f"run-{k}", alpha, rows(range(100))).alpha for k in range(30)]
    baseline = rng.integers(0, 2, (times, 1, 100))
    gaps = rng.integers(0, 2, (times, 30, 100)) - baseline
    wins, discordant = (gaps > 0).sum(2), (gaps != 0).sum(2)
    p = binom.sf(wins - 1, discordant, 0.5)
    spent = (p <= np.array(levels) / 2).any(1).mean()
    everyone = (p <= alpha / 2).any(1).mean()
    assert spent <= alpha < everyone, "without the ledger the promise fails"
