"""MLflow and Weights & Biases get the figures that result.json and the report hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.integrations.figures import read_figures

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows = [{"input": f"number {i}", "target": str(i)} for i in range(60)]

    def task(messages: Any) -> str:
        digits = messages[-1].content.partition("number ")[2]
        return digits if "ONLY" in messages[0].content else f"It is {digits}."

    return whet.optimize(
        "Answer in words.",
        data=rows,
        reward="exact_match",
        lm=task,
        optimizer_lm=lambda messages: "<PROMPT>Say ONLY the number.</PROMPT>",
        method="opro",
        budget=whet.Budget(calls=400),
        run=tmp_path_factory.mktemp("runs") / "numbers",
    )


def test_the_figures_of_a_run_are_those_of_its_result(result: Any) -> None:
    figures = read_figures(result)
    assert figures.metrics["best.test.mean"] == result.best.test.mean == 1.0
    assert figures.metrics["improvement.promoted"] == 1.0
    assert figures.metrics["usage.calls.task"] == result.usage.calls["task"]
    assert figures.parameters["method"] == "opro" and figures.parameters["status"] == "completed"
    best = [(calls, value) for name, calls, value in figures.points if name == "search.best_validation"]
    assert best == [(point["calls"], point["validation"]) for point in result["history"]]
    assert "ONLY" in figures.prompts["best.md"] and "in words" in figures.prompts["baseline.md"]
    assert (
        read_figures(result.run).metrics
        == read_figures("numbers", result.run.parent).metrics
        == figures.metrics
    )
    with pytest.raises(whet.UsageError, match="no run"):
        read_figures("nowhere", result.run.parent)


def test_mlflow(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow keeps the figures (pip install mlflow)")
    from whet.integrations.mlflow import log

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    client = mlflow.MlflowClient()
    run = client.get_run(log(result))
    assert run.info.run_name == "numbers" and run.info.status == "FINISHED"
    assert run.data.params["method"] == "opro" and run.data.metrics["best.test.mean"] == 1.0
    curve = client.get_metric_history(run.info.run_id, "search.validation")
    points = {(c, v) for name, c, v in read_figures(result).points if name == "search.validation"}
    assert {(metric.step, metric.value) for metric in curve} == points
    stored = Path(client.download_artifacts(run.info.run_id, "whet"))
    assert {path.name for path in stored.iterdir()} == {
        "baseline.md",
        "best.md",
        "report.html",
        "result.json",
    }
    assert json.loads((stored / "result.json").read_text()) == result.to_dict()
    with mlflow.start_run() as active:
        assert log(result.run) == active.info.run_id, "the active run is used, and stays open"
        assert mlflow.active_run() is not None


def test_wandb(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb keeps the figures (pip install wandb)")
    from whet.integrations.wandb import log

    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    own = {"mode": "offline", "dir": str(tmp_path)}
    assert log(result, project="prompts", **own) and wandb.run is None
    active = wandb.init(**own)
    assert log(result.run) == active.id and wandb.run is active
    assert active.summary["best.test.mean"] == 1.0 and active.config["method"] == "opro"
    wandb.teardown()  # ends what is open, and the process that writes
    stored = [path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*/*.wandb")]
    assert len(stored) == 2, "the new run, and the one that was active"
    names = (b"improvement.difference", b"search.validation", b"whet-numbers", b"baseline.md", b"report.html")
    assert all(name in content for content in stored for name in names)
