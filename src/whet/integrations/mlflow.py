"""MLflow: the figures of a run, as its report shows them, in an MLflow run.

log("runs/router-gepa-0")
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from pathlib import Path
from typing import Any

from whet.api.results import MethodComparison, RunResult
from whet.errors import UsageError
from whet.integrations.figures import read_figures


def log(run: RunResult | MethodComparison | str | Path, *, root: str | Path = "runs", **options: Any) -> str:
    """Log a run of whet or a comparison, and return the id of the MLflow run: the active one, else a new one.

    run: a result, the folder of a run or of a comparison, or its name below `root`. options: what mlflow.start_run takes
    (experiment_id, tags, ...).

    Parameters are task, method, seed, models and how it ended; metrics the numbers of result.json, named by their path
    (`best.test.mean`, `improvement.low`), `search.*`, whose steps are model calls, and `training.*` (reward, kl, entropy, ...),
    whose steps are those of the training; artifacts, below `whet/`, the prompt before and after, result.json and the report. Of
    a comparison the metrics are those of its methods and pairs, the curves those of all runs, the artifacts its files and the
    best prompt of each run. Raises UsageError where there is no run, or no MLflow.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError("whet.integrations.mlflow needs MLflow. Install it with: pip install mlflow")
    import mlflow
    from mlflow.entities import Metric, Param

    figures = read_figures(run, root)
    active = mlflow.active_run()
    new = mlflow.start_run(run_name=figures.folder.name, **options) if active is None else None
    with new or contextlib.nullcontext(active) as target:
        run_id, now = str(target.info.run_id), int(time.time() * 1000)
        points = [(name, value, 0) for name, value in figures.metrics.items()]
        points += [(name, value, at) for name, at, value in (*figures.points, *figures.training)]
        metrics = [Metric(name, value, now, step) for name, value, step in points]
        parameters = [Param(name, str(value)) for name, value in figures.parameters.items()]
        client = mlflow.MlflowClient()
        client.log_batch(run_id, params=parameters)
        for first in range(0, len(metrics), 1000):
            client.log_batch(run_id, metrics=metrics[first : first + 1000])
        for path in figures.files:
            mlflow.log_artifact(str(path), "whet")
        for name, text in figures.prompts.items():
            mlflow.log_text(text, f"whet/{name}")
    return run_id
