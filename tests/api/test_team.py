"""What a team shares where `$WHET_STATE` says, through the public functions: openings, paid answers, the index of runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.test_comparison_files import compare
from tests.api.world import PROMPT, Counted, right, rows, writer
from tests.command_line import whet_here
from tests.postgres import state_of_each_kind, state_url  # noqa: F401 - fixtures
from whet.engine.ledger_store import LEDGER, PostgreSQLTables, reading_ledger
from whet.methods import opro
from whet.stats import discovery_alpha, opening_alpha
from whet.testing.server import serving

OPRO = opro.Config(steps=2, samples=2, examples=10, finalists=1)
each_place = pytest.mark.usefixtures("state_of_each_kind")


def words(**more: Any) -> dict[str, Any]:
    known = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": writer, "method": OPRO}
    return {**known, "budget": whet.Budget(calls=1000), **more}


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of two machines that share nothing but the state."""
    return tmp_path / "one" / "runs", tmp_path / "other" / "runs"


@each_place
def test_runs_of_two_machines_spend_one_alpha(machines: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = (whet.optimize(PROMPT, **words(root=root, seed=i)) for i, root in enumerate(machines))
    assert [run["improvement"]["opening"] for run in (first, second)] == [1, 2]
    assert second["improvement"]["alpha"] == opening_alpha(0.05, 2)
    known = whet.runs(team=True)
    assert [(row["run"], row["status"], row["promoted"]) for row in known] == [
        (str(run.run.absolute()), "completed", True) for run in (first, second)
    ]
    assert [row["mean"] for row in known] == [row["mean"] for root in machines for row in whet.runs(root)]
    told = json.loads(whet_here(tmp_path, "runs", "--team", "--json").stdout)
    assert [row["run"] for row in told["runs"]] == [row["run"] for row in known]
    assert "machine" in whet_here(tmp_path, "runs", "--team").stdout


def test_the_index_of_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHET_STATE")
    monkeypatch.setattr("whet._util.variables._withheld", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    with pytest.raises(whet.UsageError, match="WHET_STATE"):
        whet.runs(team=True)
    whet.evaluate(PROMPT, data=rows(), reward=right, lm=Counted(), root=tmp_path / "runs", split="train")
    assert not list(tmp_path.rglob("runs.sqlite")), "one user on one machine has no index"


def test_an_index_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run writes its row after the baseline and at the end."""
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    (tmp_path / "state" / "runs.sqlite").mkdir(parents=True)
    words: Any = {"method": "random_search", "settings": {"n": 2, "space": "phrases"}}
    whet.optimize(PROMPT, data=rows(), reward=right, lm=Counted(), run=tmp_path / "run", **words)
    assert capsys.readouterr().err.count("the index of runs was not written") == 1


async def test_answers_that_one_machine_paid_are_not_paid_on_another(
    state_url: str,  # noqa: F811
    machines: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_STATE", state_url)
    async with serving(lambda request: "positive") as server:
        known: dict[str, Any] = {"data": rows(5), "reward": right, "lm": "openai/m", "split": "train"}
        known |= {"base_url": server.base_url}
        paid, shared = [await whet.aevaluate(PROMPT, **known, root=root) for root in machines]
        asked = len(server.ledger.entries)
    assert asked == paid["usage"]["calls"]["task"] == shared["usage"]["cached"]["task"] > 0
    assert not sum(shared["usage"]["calls"].values()) and not sum(paid["usage"]["cached"].values())
    assert shared.score == paid.score and shared["usage"]["cached_oldest"]


def test_a_run_whose_connection_drops_keeps_what_is_paid_and_goes_on(
    state_url: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_STATE", state_url)
    add, model = PostgreSQLTables.add, Counted()

    def drop(self: PostgreSQLTables, sql: str, added: Any) -> None:
        if "INTO compared" in sql:
            self._connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        add(self, sql, added)

    with monkeypatch.context() as patch:
        patch.setattr(PostgreSQLTables, "add", drop)
        first = whet.optimize(PROMPT, **words(lm=model, root=tmp_path / "runs"))
    assert first.status == "stopped" and "careful" in (first.run / "best.md").read_text()
    assert "terminating connection" in first.improvement.reason and "whet doctor" in first.improvement.reason
    paid = model.calls
    again = whet.optimize(PROMPT, **words(lm=model, root=tmp_path / "runs"))
    assert again.promoted and again["improvement"]["opening"] == 1 and model.calls == paid


def test_shards_on_machines_with_one_ledger_are_one_opening(
    state_url: str,  # noqa: F811
    machines: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_STATE", state_url)
    folders = [root / "all" for root in machines]
    for number, folder in enumerate(folders, 1):
        compare(folder.parent, run=folder, shard=f"{number}/2")
    merged = whet.merge(folders, out=tmp_path / "table")
    tested = [run["improvement"] for run in merged["runs"] if run["improvement"]["opening"]]
    assert len(tested) > 1 and merged["missing"] == []
    assert {one["opening"] for one in tested} == {1}
    assert {one["alpha"] for one in tested} == {opening_alpha(0.05, 1) / 4}
    later = whet.optimize(PROMPT, **words(root=machines[0], seed=9))
    assert later["improvement"]["opening"] == 2


def test_code_of_a_task_does_not_see_the_address_and_jobs_find_the_ledger(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that names its `env:` takes every other variable out of the process, `WHET_STATE` too."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("whet._util.variables._withheld", {})
    assert not whet_here(tmp_path, "init", "demo", "--from", "example").returncode
    with (tmp_path / "demo" / "task.yaml").open("a") as file:
        file.write("env: []\n")
    command = ("compare", "demo", "--methods", "opro,random_search", "--max-calls", "400", "--jobs", "2")
    environment = dict(os.environ)
    try:
        assert not whet_here(tmp_path, *command, "--out", "table").returncode
        assert "WHET_STATE" not in os.environ
        with reading_ledger() as db:
            assert db is not None and db.find("SELECT count(*) FROM openings") == [(1,)]
        assert (state / LEDGER).exists() and not list(tmp_path.glob("home/**/openings.sqlite"))
    finally:
        os.environ.update(environment)


@each_place
def test_under_fdr_a_promotion_pays_for_later_openings(tmp_path: Path) -> None:
    first = whet.optimize(PROMPT, **words(alpha_policy="fdr", root=tmp_path))
    assert first.promoted and first["improvement"]["alpha"] == discovery_alpha(0.05, [])
    assert first["alpha_policy"] == "fdr"
    assert "opening 1 of these test rows under the alpha policy fdr" in first.improvement.reason
    plan = whet.optimize(PROMPT, **words(alpha_policy="fdr", root=tmp_path, seed=1), dry_run=True)["plan"]
    second = whet.optimize(PROMPT, **words(alpha_policy="fdr", root=tmp_path, seed=1))
    assert second["improvement"]["alpha"] == discovery_alpha(0.05, [True]) == plan["promotion"]["alpha"]
    assert second["improvement"]["alpha"] > opening_alpha(0.05, 2)
    again = whet.optimize(PROMPT, **words(alpha_policy="fdr", root=tmp_path))
    assert again["improvement"] == first["improvement"], "as it was recorded"


def test_rows_of_another_policy_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    whet.optimize(PROMPT, **words(root=tmp_path))
    model = Counted()
    with pytest.raises(whet.UsageError, match="opened under the alpha policy strict") as refused:
        whet.optimize(PROMPT, **words(root=tmp_path, seed=1, alpha_policy="fdr", lm=model))
    assert model.calls == 0 and "Use alpha_policy=strict" in str(refused.value)
    look = whet.evaluate(
        "Another: {{input}}", data=rows(), reward=right, lm=model, root=tmp_path, split="test"
    )
    assert any("opening 2" in warning for warning in look["warnings"])


def test_a_task_names_its_policy(tmp_path: Path) -> None:
    task = whet.Task.of(PROMPT, data=rows(), reward="exact_match", alpha_policy="fdr")
    assert task.alpha_policy == "fdr"
    saved = whet.Task.load(task.save(tmp_path / "task"))
    assert saved.alpha_policy == "fdr" and saved.fingerprint == task.fingerprint
    text = (tmp_path / "task" / "task.yaml").read_text()
    (tmp_path / "task" / "task.yaml").write_text(text.replace("alpha_policy: fdr", "alpha_policy: lenient"))
    with pytest.raises(whet.UsageError, match=r"task.yaml:\d+.*alpha_policy.*strict"):
        whet.Task.load(tmp_path / "task")
    with pytest.raises(whet.UsageError, match=r"alpha_policy.*strict, fdr"):
        whet.optimize(PROMPT, **words(root=tmp_path, alpha_policy="lenient"))
