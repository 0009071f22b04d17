"""Shards of a comparison give the table of one process; what does not belong together is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.test_comparison_files import compare
from whet.errors import UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The comparison in one process, and a folder with both shards of it, each with a ledger of its own."""
    root = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STATE", str(root / "one"))
        whole = compare(root / "whole")
        patch.setenv("WHET_STATE", str(root / "other"))
        for number in (2, 1):
            compare(root / "parts", run=root / "parts" / "all", shard=f"{number}/2")
    return whole, root / "parts" / "all"


def figures(compared: Any) -> dict[str, Any]:
    """What two comparisons of the same runs have in common: everything but paths and seconds."""
    rows = [
        [run["method"], run["seed"], run["best"], run["baseline"], run["improvement"]["promoted"]]
        for run in compared["runs"]
    ]
    gates = [[run["improvement"][key] for key in ("alpha", "opening")] for run in compared["runs"]]
    same = {key: compared[key] for key in ("task", "methods", "pairs", "beside_start")}
    return {**same, "rows": rows, "alphas": sorted(alpha for alpha, _ in gates)}


def test_merged_shards_are_the_comparison_of_one_process(made: tuple[Any, Path], tmp_path: Path) -> None:
    whole, folder = made
    merged = whet.merge([folder], out=tmp_path)
    assert figures(merged) == figures(whole) and merged["missing"] == []
    page = (tmp_path / "comparison.html").read_text("utf-8")
    assert "runs missing" not in page and len(list(tmp_path.glob("comparison.*"))) == 5


def test_shards_in_one_folder_share_an_opening(made: tuple[Any, Path]) -> None:
    merged = whet.merge([made[1]])
    tested = [run["improvement"] for run in merged["runs"] if run["improvement"]["opening"]]
    assert {one["opening"] for one in tested} == {1}
    assert len({one["alpha"] for one in tested}) == 1


def test_folders_of_several_machines_become_one_table(made: tuple[Any, Path], tmp_path: Path) -> None:
    whole, folder = made
    machines = [tmp_path / f"machine-{number}" for number in (1, 2)]
    for number, machine in enumerate(machines, 1):
        shutil.copytree(folder, machine, ignore=shutil.ignore_patterns(f"comparison-{3 - number}-of-2.json"))
    assert figures(whet.merge(machines, out=tmp_path / "table")) == figures(whole)


def test_a_shard_that_goes_on_counts_the_runs_that_are_finished(
    made: tuple[Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, titles = tmp_path / "half", list[str]()
    shutil.copytree(made[1], folder)
    shutil.rmtree(folder / "opro-0")
    compare(
        tmp_path, run=folder, shard="1/2", on_run=lambda name, seed, progress: titles.append(progress.title)
    )
    assert titles == ["run 2 of 2: opro, seed 0", "reading a finished run: opro, seed 1"]
    assert "1 of 2 runs were already finished; 1 to go" in capsys.readouterr().err


def test_a_missing_shard_is_said(made: tuple[Any, Path], tmp_path: Path) -> None:
    shutil.copytree(made[1], tmp_path / "half", ignore=shutil.ignore_patterns("comparison-2-of-2.json"))
    half = whet.merge([tmp_path / "half"])
    assert half["missing"] == ["random_search, seed 0", "random_search, seed 1"]
    assert "2 runs missing: random_search, seed 0" in (tmp_path / "half" / "comparison.html").read_text(
        "utf-8"
    )


def test_shards_of_two_comparisons_are_refused(made: tuple[Any, Path], tmp_path: Path) -> None:
    shutil.copytree(made[1], tmp_path / "other")
    file = tmp_path / "other" / "comparison-1-of-2.json"
    shard = json.loads(file.read_text("utf-8"))
    shard["shard"]["seeds"] = 3
    file.write_text(json.dumps(shard), "utf-8")
    with pytest.raises(UsageError, match=r"belong to different comparisons: seeds is"):
        whet.merge([tmp_path / "other"])


def test_other_limits_are_named_and_the_equal_ones_are_not(made: tuple[Any, Path], tmp_path: Path) -> None:
    shutil.copytree(made[1], tmp_path / "other")
    file = tmp_path / "other" / "comparison-2-of-2.json"
    shard = json.loads(file.read_text("utf-8"))
    calls = shard["shard"]["limits"]["calls"]
    shard["shard"]["limits"] |= {"calls": calls + 1, "cost_usd": 2.5}
    file.write_text(json.dumps(shard), "utf-8")
    with pytest.raises(UsageError) as refused:
        whet.merge([tmp_path / "other"])
    words = str(refused.value)
    assert f"limits.calls is {calls + 1} in the first and {calls} in the second" in words
    assert "limits.cost_usd is 2.5 in the first and none in the second" in words
    assert "{" not in words and "seconds" not in words


def test_a_shard_of_another_comparison_is_not_written_over(made: tuple[Any, Path]) -> None:
    file = made[1] / "comparison-1-of-2.json"
    before = file.read_bytes()
    with pytest.raises(UsageError, match="seeds is 3 in the first and 2 in the second"):
        compare(made[1].parent, run=made[1], shard="1/2", seeds=3)
    assert file.read_bytes() == before


def test_more_shards_than_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the comparison has 4 runs"):
        compare(tmp_path, shard="5/9")
    assert not list(tmp_path.iterdir())


def test_a_shard_without_its_runs_says_what_to_copy(made: tuple[Any, Path], tmp_path: Path) -> None:
    shutil.copy(made[1] / "comparison-1-of-2.json", tmp_path)
    with pytest.raises(UsageError, match="needs the run opro-0 in the same folder"):
        whet.merge([tmp_path])


def test_two_runs_of_the_same_seed_are_refused(made: tuple[Any, Path], tmp_path: Path) -> None:
    shutil.copytree(made[1], tmp_path / "again")
    file = tmp_path / "again" / "comparison-1-of-2.json"
    shard = json.loads(file.read_text("utf-8"))
    shard["runs"][0]["usage"]["calls"]["task"] += 1
    file.write_text(json.dumps(shard), "utf-8")
    with pytest.raises(UsageError, match="hold two different runs of opro with seed 0"):
        whet.merge([made[1], tmp_path / "again"])


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "", "1/2/3"])
def test_what_is_no_shard_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a shard"):
        compare(tmp_path, shard=text)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no shard of a comparison"):
        whet.merge([tmp_path])
    (tmp_path / "comparison-1-of-2.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be read as a shard"):
        whet.merge([tmp_path])
