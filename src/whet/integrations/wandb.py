"""Weights & Biases: the figures of a run, as its report shows them, in a W&B run.

log("runs/router-gepa-0", project="prompts")
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from whet.api.results import MethodComparison, RunResult
from whet.errors import UsageError
from whet.integrations.figures import read_figures


def log(
    run: RunResult | MethodComparison | str | Path, *, root: str | Path = "runs", **options: object
) -> str:
    """Log a run of whet or a comparison, and return the id of the W&B run: the active one, else a new one, which is finished.

    run: a result, the folder of a run or of a comparison, or its name below `root`. options: what wandb.init takes
    (project, entity, mode, ...).

    The config holds task, method, seed, models and how it ended; the summary the numbers of result.json, named by their path
    (`best.test.mean`, `improvement.low`); the history `search.*` against `calls`, model calls, and `training.*` (reward, kl,
    entropy, ...) against `step`; an artifact of the type `whet-run` the prompt before and after, result.json and the report.
    Raises UsageError where there is no run, or no wandb.
    """
    if importlib.util.find_spec("wandb") is None:
        raise UsageError("whet.integrations.wandb needs wandb. Install it with: pip install wandb")
    import wandb

    figures = read_figures(run, root)
    active = wandb.run
    target = active or wandb.init(**{"name": figures.folder.name, **options})
    target.config.update(dict(figures.parameters), allow_val_change=True)
    target.define_metric("calls", hidden=True)
    target.define_metric("search.*", step_metric="calls")
    for name, calls, value in sorted(figures.points, key=lambda point: point[1]):
        target.log({"calls": calls, name: value})
    target.define_metric("step", hidden=True)
    target.define_metric("training.*", step_metric="step")
    for name, step, value in figures.training:
        target.log({"step": step, name: value})
    target.summary.update(dict(figures.metrics))
    artifact = wandb.Artifact(f"whet-{figures.folder.name}", type="whet-run")
    for path in figures.files:
        if path.name not in figures.prompts:
            artifact.add_file(str(path))
    for name, text in figures.prompts.items():
        with artifact.new_file(name, encoding="utf-8") as file:
            file.write(text)
    target.log_artifact(artifact)
    if active is None:
        target.finish()
    return str(target.id)
