"""Runs that train a policy: which one, what is refused, and that a kill at any place changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from benchmarks.simulated.clause_tasks import write_hint_task, write_task

from tests.engine.policy_driver import PLACES
from whet import api
from whet.cli.main import main
from whet.errors import UsageError
from whet.rl.policy_model import LoraSettings, PolicyModel
from whet.run import Budget

REWRITE = {"steps": 3, "group": 3, "examples": 2, "max_tokens": 12, "rewrites": 2, "checks": 1, "lr": 3e-3}
REASON = {"steps": 2, "group": 2, "examples": 2, "max_tokens": 16, "prompts": 2, "checks": 2, "lr": 3e-3}
EVOLVE = {"steps": 2, "group": 2, "problems": 2, "programs": 2, "max_tokens": 8, "checks": 2, "lr": 3e-3,
          "temperature": 1.5, "explain": False}  # fmt: skip
HINT = {"steps": 3, "group": 2, "questions": 2, "max_tokens": 6, "checks": 3, "lr": 3e-3}
CHOOSE = {"rows": "pcl", "zero_variance": "zvp"}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def task_in(folder: Path, hints: bool = False) -> Path:
    if hints:
        write_hint_task(folder, 1, rows=18)
    else:
        write_task(folder, 1, clauses=2, rows=18)
    return folder


@pytest.mark.parametrize(
    ("method", "settings", "places"),
    [
        pytest.param("prewrite", REWRITE, PLACES, marks=pytest.mark.long),
        pytest.param("dsp", HINT, PLACES, marks=pytest.mark.long),
        pytest.param("dsp", HINT | CHOOSE, PLACES[1:3], marks=pytest.mark.long),
        pytest.param("prl", REASON, PLACES[1:3], marks=pytest.mark.long),
        pytest.param("espl", EVOLVE, PLACES[1:3], marks=pytest.mark.long),
    ],
)
def test_a_run_killed_anywhere_ends_the_same(
    tmp_path: Path, method: str, settings: dict[str, Any], places: tuple[str, ...]
) -> None:
    """SIGKILL before and after commits, after an update, after a checkpoint's bytes: same prompt, same weights."""
    task_in(tmp_path / "task", method == "dsp")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.policy_driver", str(tmp_path), method, json.dumps(settings), *places],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    whole = found["reference"]
    assert whole["ledger"].count("update") == settings["steps"] and len(found["kills"]) == len(places)
    for kill in found["kills"]:
        assert kill["killed"] and kill["finished"], kill
        assert kill["answer"] == whole["answer"] and kill["weights"] == whole["weights"], kill["name"]
        assert kill["calls"] == whole["calls"], (
            f"{kill['name']}: charged for other calls than an unbroken run"
        )
        again = Counter(kill["ledger"]) - Counter(whole["ledger"])
        assert again["update"] <= 1, f"{kill['name']}: more than a segment was computed again"
        assert sum(again.values()) - again["update"] <= 1, f"{kill['name']}: answers were asked for again"
        assert kill["blobs"] <= 4, f"{kill['name']}: {kill['blobs']} checkpoints on disk"


def optimize(task: Path, out: Path, **options: Any) -> dict[str, Any]:
    settings = options.pop("settings", REWRITE)
    return api.optimize(task, method="prewrite", settings=settings, run=out, **options)


def test_a_checkpoint_is_used_by_the_next_run_and_refused_where_it_does_not_fit(tmp_path: Path) -> None:
    task = task_in(tmp_path / "task")
    optimize(task, tmp_path / "first", policy="embedded/tiny")
    folder = tmp_path / "first" / "checkpoint"
    trained = PolicyModel.open(str(folder), LoraSettings(), 0)
    fresh = PolicyModel.open("embedded/tiny", LoraSettings(), 0)
    assert any(not torch.equal(w, fresh.body.trainable[n]) for n, w in trained.body.trainable.items())
    optimize(task, tmp_path / "second", policy=str(folder), settings={**REWRITE, "steps": 0})
    again = PolicyModel.open(str(tmp_path / "second" / "checkpoint"), None, 0)
    assert all(torch.equal(w, again.body.trainable[n]) for n, w in trained.body.trainable.items())
    with pytest.raises(UsageError, match=r"rank 8.*config.rank=8"):
        optimize(task, tmp_path / "third", policy=str(folder), settings={**REWRITE, "rank": 4})
    assert not (tmp_path / "third").exists(), "refused before anything is written"
    card = json.loads((folder / "policy.json").read_text())
    assert card["method"] == "prewrite"
    (folder / "policy.json").write_text(json.dumps({**card, "base": "0" * 64}))
    with pytest.raises(UsageError, match=f"{'0' * 64}.*{card['base']}"):
        optimize(task, tmp_path / "fourth", policy=str(folder), settings={**REWRITE, "steps": 0})
    (folder / "adapter.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="not the one that was exported"):
        optimize(task, tmp_path / "fifth", policy=str(folder), settings={**REWRITE, "steps": 0})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "random_search", "--policy", "embedded/tiny"], "trains no model"),
        (["--method", "prewrite", "--policy", "nowhere"], "neither the folder"),
        (["--method", "prewrite", "--policy", "EMPTY"], "not a checkpoint"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    task = task_in(tmp_path / "task")
    (tmp_path / "EMPTY").mkdir()
    given = [str(tmp_path / a) if a == "EMPTY" else a for a in arguments]
    monkeypatch.setattr(sys, "argv", ["whet", "optimize", str(task), "--out", str(tmp_path / "run"), *given])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "run").exists(), "nothing is written"


@pytest.mark.long
def test_the_checkpoint_is_the_system_that_was_tested(tmp_path: Path) -> None:
    """Of several validated states the best is the result, and what is exported are its weights, not the last ones."""
    task = task_in(tmp_path / "task", hints=True)
    settings = {**HINT, "steps": 6, "checks": 6, "lr": 0.05}
    for seed in range(6):  # until training helps: where it does not, the start is the result
        run = tmp_path / f"run{seed}"
        found = api.optimize(
            task, method="dsp", settings=settings, policy="embedded/tiny", run=run, seed=seed
        )
        if "system" in found["best"]:
            break
    exported = PolicyModel.open(str(run / "checkpoint"), None, 0)
    system = found["best"]["system"]
    (blob,) = [path for path in (run / "blobs").iterdir() if path.name.startswith(system)]
    tested = PolicyModel.open("embedded/tiny", LoraSettings(), 0)
    tested.load(blob.read_bytes())
    assert all(torch.equal(w, exported.body.trainable[n]) for n, w in tested.body.trainable.items())


def test_training_is_paid_for_again_by_nobody_and_forgotten_by_nobody(tmp_path: Path) -> None:
    """A run that was killed between the end of its search and its result still costs what its training cost."""
    task = task_in(tmp_path / "task")
    text = (task / "task.yaml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("models:")]
    models = "models: {task: embedded/tiny, policy: {address: embedded/tiny, price_per_hour: 3600}}"
    (task / "task.yaml").write_text("\n".join([*kept, models, ""]))
    first = optimize(task, tmp_path / "run", lm="embedded/tiny")
    (tmp_path / "run" / "result.json").unlink()
    again = optimize(task, tmp_path / "run", lm="embedded/tiny")
    assert first["usage"]["cost_usd"] > 0.1
    assert again["usage"]["cost_usd"] == pytest.approx(first["usage"]["cost_usd"], rel=0.2)


def test_a_budget_that_ends_in_the_middle_still_gives_the_best_system(tmp_path: Path) -> None:
    """The limit of calls or seconds: whatever the best is, its sealed test is measured with its weights."""
    task = task_in(tmp_path / "task", hints=True)
    settings = {**HINT, "steps": 50, "checks": 50}
    found = api.optimize(
        task,
        method="dsp",
        settings=settings,
        policy="embedded/tiny",
        run=tmp_path / "run",
        budget=Budget(calls=100),
    )
    assert found["status"] != "stopped" and found["best"]["test"]["n"] == found["baseline"]["test"]["n"] > 0
    assert (tmp_path / "run" / "checkpoint" / "adapter.safetensors").is_file()
