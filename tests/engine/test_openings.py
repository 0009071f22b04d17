"""The ledger of openings: one for all folders, by the content of rows, safe for two processes, and what it spends of alpha."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from whet.engine.openings import LEDGER, OpeningLedger, state_folder
from whet.stats import holm, opening_alpha
from whet.types import Example

ROOT = Path(__file__).resolve().parents[2]


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


def test_an_opening_is_counted_in_all_folders_by_content_and_once_for_a_run(tmp_path: Path) -> None:
    one, other = OpeningLedger(tmp_path / "a"), OpeningLedger(tmp_path / "b")
    assert one.open("first", 0.05, rows(range(20))).number == 1
    assert one.open("first", 0.05, rows(range(20))).number == 1, "a resume is the same opening"
    assert other.open("second", 0.05, rows(range(20))).number == 2, "another folder, other ids"
    third = other.open("third", 0.05, [*rows(range(19, 20)), *rows(range(100, 160))])
    assert third.number == 3 and third.alpha == opening_alpha(0.05, 3), "added rows do not reset it"
    assert one.open("fourth", 0.05, rows(range(200, 220))).number == 1, "new rows start anew"
    assert one.open("fifth", 0.05, rows(range(20), target="u")).number == 1, "another target is another row"
    assert state_folder() == Path(os.environ["WHET_STATE"]) and not (tmp_path / "a").exists()


def test_rows_that_change_sides_are_counted(tmp_path: Path) -> None:
    ledger = OpeningLedger(tmp_path)
    ledger.open("first", 0.05, rows(range(10)), rows(range(10, 40)))
    assert ledger.moved("second", rows(range(10)), rows(range(10, 40))) == []
    assert ledger.moved("first", rows(range(10, 20)), rows(range(10))) == [], "a run is no other run"
    sealed, seen = ledger.moved("second", rows(range(7, 12)), rows(range(7)))
    assert sealed.startswith("7 of the 7 rows to learn from were sealed") and "seed" in sealed
    assert seen.startswith("2 of the 5 sealed test rows were seen")
    assert ledger.open("second", 0.05, rows(range(7, 12)), rows(range(7))).seen == 2
    assert ledger.open("second", 0.05, rows(range(7, 12)), rows(range(7))).seen == 2, "also when it goes on"


def test_two_processes_never_get_the_same_number(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from whet.engine.openings import OpeningLedger as L\n"
        "from whet.types import Example\n"
        "rows = [Example('x', {'input': 'q'}, 't', {}, 'q')]\n"
        "print(*[L(Path('.')).open(f'{sys.argv[1]}-{i}', 0.05, rows).number for i in range(20)])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path, env=env, stdout=subprocess.PIPE)
        for name in "ab"
    ]
    numbers = [int(n) for process in running for n in process.communicate(timeout=600)[0].split()]
    assert sorted(numbers) == list(range(1, 41))


def test_where_the_ledger_cannot_be_written_it_stands_beside_the_runs_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "file"))
    ledger = OpeningLedger(tmp_path / "runs")
    assert ledger.moved("a", rows(range(3)), rows(range(3))) == []
    opening = ledger.open("a", 0.05, rows(range(3)))
    assert opening.number == 1 and "WHET_STATE" in opening.warnings[0]
    assert ledger.open("b", 0.05, rows(range(3))).number == 2
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / LEDGER).write_bytes(b"this is no database at all, but something else" * 9)
    assert ledger.known("c", rows(range(3))) == [], "a broken ledger breaks no run"
    assert ledger.open("c", 0.05, rows(range(3))).number == 3 and ledger.open("c", 0.05, []).warnings


def test_an_opening_that_was_cut_off_leaves_no_half_of_itself(tmp_path: Path) -> None:
    OpeningLedger(tmp_path).open("a", 0.05, rows(range(3)))
    db = sqlite3.connect(state_folder() / LEDGER)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO openings VALUES ('b', 0, 2, 0.1)")
    db.close()  # as a killed process does
    assert OpeningLedger(tmp_path).open("c", 0.05, rows(range(3))).number == 2


def test_of_thirty_null_runs_on_one_split_any_is_promoted_at_most_with_alpha(tmp_path: Path) -> None:
    """30 equally good prompts, each tested on the same 100 rows by the exact McNemar test at its own level: 2,000 times."""
    rng, alpha, times = np.random.default_rng(3), 0.1, 2000
    ledger = OpeningLedger(tmp_path)
    levels = [ledger.open(f"run-{k}", alpha, rows(range(100))).alpha for k in range(30)]
    baseline = rng.integers(0, 2, (times, 1, 100))
    gaps = rng.integers(0, 2, (times, 30, 100)) - baseline
    wins, discordant = (gaps > 0).sum(2), (gaps != 0).sum(2)
    p = binom.sf(wins - 1, discordant, 0.5)
    spent = (p <= np.array(levels) / 2).any(1).mean()
    everyone = (p <= alpha / 2).any(1).mean()
    assert spent <= alpha < everyone, "without the ledger the promise fails"
