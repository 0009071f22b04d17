"""Kill -9 at every boundary of every method: nothing recorded is paid again, and the answer is the same.

How many journal commits a run makes depends on timing (commits are grouped), so a few of the last kill points of a
sweep may not be reached; such a run must give the same answer all the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.world import ROOT, write_task
from tests.methods.settings import settings_of_tests
from tests.serving import server_thread
from whet.methods import METHODS, OPTIMIZER, OPTIMIZER_OPTIONAL, REGIONS

CONCURRENCY = 3
SETTINGS = settings_of_tests("SWEEP")


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[str, Path]]:
    """A server for any number of sweeps, one after another: its address, and the ledger that it writes."""
    ledger = folder / "ledger.jsonl"
    ledger.touch()
    function = ("--function", "tests.crash.answers:answer")
    with server_thread(*function, "--ledger", str(ledger), "--latency", "0.001") as base_url:
        yield base_url, ledger


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with endpoint(tmp_path_factory.mktemp("server")) as found:
        yield found


def sweep(
    tmp_path: Path, served: tuple[str, Path], method: str, settings: dict[str, Any], every: int
) -> None:
    rule = "reward.py" if "engine" in settings else "exact_match"
    write_task(tmp_path / "task", rule, fences=1 + (REGIONS in METHODS[method].needs))
    base_url, ledger = served
    before = len(ledger.read_text().splitlines())
    command = [sys.executable, "-m", "tests.crash.driver", method, base_url, str(tmp_path), str(every)]
    done = subprocess.run([*command, json.dumps(settings)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    paid: dict[str, Counter[str]] = {}
    for line in ledger.read_text().splitlines()[before:]:
        row = json.loads(line)
        paid.setdefault(row["role"], Counter())[row["digest"]] += 1
    reference = paid["reference"]
    killed = sum(kill["killed"] for kill in found["kills"])
    assert killed > 10 / every and killed >= 0.5 * len(found["kills"])
    for kill in found["kills"]:
        name = kill["name"]
        assert kill["finished"], kill
        assert kill["answer"] == found["reference"], name
        again = (
            paid[name] - reference
        ).total()  # a later sample looks alike to an endpoint, and both runs make it
        assert paid[name].keys() == reference.keys(), name
        assert again <= kill["lost"], name
        assert kill["lost"] <= CONCURRENCY + CONCURRENCY // 2, name


@pytest.mark.parametrize(
    ("method", "every"),
    [
        ("random_search", 29),
        ("gepa", 29),
        *(pytest.param(one, 1, marks=pytest.mark.long) for one in SETTINGS),
    ],
)
def test_a_kill_at_any_boundary_changes_nothing(
    tmp_path: Path, served: tuple[str, Path], method: str, every: int
) -> None:
    """`make test` kills two methods at each 29th boundary, `make test-long` all of them at each one."""
    sweep(tmp_path, served, method, SETTINGS[method], every)


@pytest.mark.long
@pytest.mark.parametrize("method", SETTINGS)
def test_a_kill_of_a_run_with_workers_changes_nothing(
    tmp_path: Path, served: tuple[str, Path], method: str
) -> None:
    """Workers end with the process that is killed, and the next session grades with workers of its own."""
    every = 9 if method == "random_search" else 60
    sweep(tmp_path, served, method, {**SETTINGS[method], "engine": "processes", "workers": 2}, every)


def test_every_method_that_only_calls_models_is_killed() -> None:
    assert set(SETTINGS) == {
        name
        for name, entry in METHODS.items()
        if {*entry.needs} <= {OPTIMIZER, OPTIMIZER_OPTIONAL, REGIONS} or name == "mo_capo"
    }


def test_a_limit_that_sets_the_sizes_sets_the_same_after_a_kill(
    tmp_path: Path, served: tuple[str, Path]
) -> None:
    """The search is planned for the limit; calls that were in flight at a kill leave the plan as it is, and come out of what the
    search leaves over: here 3 of the 19 calls beside the sealed test, as many as are in flight at once."""
    sweep(tmp_path, served, "random_search", {"finalists": 1, "calls": 26}, 19)
