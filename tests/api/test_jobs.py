"""A comparison in several processes is that of one; what dies or is stopped goes on, and what no process can load is refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whet
from tests.api.test_comparison_files import compare
from tests.api.test_shards import figures
from tests.api.world import right
from whet._util.sendable import from_sendable, to_sendable
from whet.errors import UsageError

DIES_WHERE = "WHET_TEST_DIES_WHERE"


def dies_once(example: dict[str, Any], output: str) -> float:
    """A reward that ends its process the first time that it is called in a process of a job."""
    marker = Path(os.environ[DIES_WHERE])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return right(example, output)


def dies_always(example: dict[str, Any], output: str) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def fails(example: dict[str, Any], output: str) -> float:
    raise ValueError("not today")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STATE", str(root / "state"))
        return compare(root)


def test_jobs_make_the_comparison_of_one_process(
    whole: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = list[tuple[str, int]]()
    compared = compare(tmp_path, jobs=2, on_run=lambda name, seed, progress: started.append((name, seed)))
    assert figures(compared) == figures(whole)
    for name in ("calls", "cost_usd"):
        assert [run["usage"][name] for run in compared["runs"]] == [
            run["usage"][name] for run in whole["runs"]
        ]
    assert {run["improvement"]["opening"] for run in compared["runs"] if run["improvement"]["opening"]} == {1}
    assert sorted(started) == sorted((run.method, run.seed) for run in compared.runs)
    said = capsys.readouterr().err
    assert said.count("4 runs together") == 1 and "recorded result" not in said
    again = compare(tmp_path, jobs=3)
    assert figures(again) == figures(whole) and "4 of 4 runs were already finished" in capsys.readouterr().err


def test_a_run_whose_process_is_killed_goes_on_in_another(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DIES_WHERE, str(tmp_path / "died"))
    compared = compare(tmp_path / "runs", jobs=2, seeds=1, reward=dies_once)
    assert (tmp_path / "died").exists()
    assert "was ended by SIGKILL; a new process continues the run" in capsys.readouterr().err
    first = {run["method"]: run["best"]["test"] for run in whole["runs"] if run["seed"] == 0}
    assert {run["method"]: run["best"]["test"] for run in compared["runs"]} == first


def test_a_run_whose_process_always_dies_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"seed 0: the process that made this run was ended by SIGKILL, 3 t"):
        compare(tmp_path, jobs=2, seeds=1, reward=dies_always)


def test_the_error_of_a_run_ends_the_comparison_with_its_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"seed 0: .*not today"):
        compare(tmp_path, jobs=2, seeds=1, reward=fails)


def test_jobs_share_the_calls_in_flight(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs=4: .* takes 2 calls at once \(concurrency=2\)"):
        compare(tmp_path, jobs=9, concurrency=2)
    assert not list(tmp_path.iterdir())


def test_what_no_other_process_can_load_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        compare(tmp_path, jobs=2, lm=lambda messages: "positive")
    monkeypatch.setattr(fails, "__module__", "__main__")
    with pytest.raises(UsageError, match="fails, which the program that runs defines itself cannot be sent"):
        compare(tmp_path, jobs=2, reward=fails)
    with pytest.raises(UsageError, match="jobs must be 1 or more; this is 0"):
        compare(tmp_path, jobs=0)
    assert not list(tmp_path.iterdir())


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_KEYS = st.text() | st.integers()
_VALUES = st.recursive(
    _PLAIN
    | st.builds(Path, st.just("runs"))
    | st.just(right)
    | st.builds(whet.Budget, calls=st.integers(1, 9)),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(_KEYS, inner) | st.frozensets(_PLAIN)
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_a_value_comes_out_of_another_process_as_it_went_in(value: Any) -> None:
    read = from_sendable(json.loads(json.dumps(to_sendable(value))))
    assert read == value and type(read) is type(value)
