"""TensorBoard: the curves and figures of a run, as its report shows them, in a folder of events.

log("runs/house-style-prewrite-0", "runs/tensorboard")     then: tensorboard --logdir runs/tensorboard
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from whet.api.results import MethodComparison, RunResult
from whet.errors import UsageError
from whet.integrations.figures import read_figures

SUFFIX = ".whet"


def log(
    run: RunResult | MethodComparison | str | Path, folder: str | Path, *, root: str | Path = "runs"
) -> Path:
    """Write the figures of a run of whet or of a comparison below `folder`, and return the folder of its events.

    run: a result, the folder of a run or of a comparison, or its name below `root`, also while it goes on: another call writes
    all of it anew.

    Scalars are `training.*` (reward, kl, entropy, length, clip_fraction, ...) against steps of training, `search.*` against model
    calls, and the numbers of result.json, named by their path (`best.test.mean`), at 0; texts the prompts before and after, and
    task, method, seed, models and how it ended. Raises UsageError where there is no run, or no tensorboardX.
    """
    if importlib.util.find_spec("tensorboardX") is None:
        raise UsageError(
            "whet.integrations.tensorboard needs tensorboardX. Install it with: pip install tensorboardX"
        )
    from tensorboardX import SummaryWriter

    figures = read_figures(run, root)
    place = Path(folder) / figures.folder.name
    for path in place.glob(f"events.*{SUFFIX}"):
        path.unlink(missing_ok=True)
    with SummaryWriter(str(place), filename_suffix=SUFFIX) as writer:
        for name, at, value in (*figures.training, *figures.points):
            writer.add_scalar(name, value, at)
        for name, value in figures.metrics.items():
            writer.add_scalar(name, value, 0)
        for name, parameter in figures.parameters.items():
            writer.add_text(name, str(parameter))
        for name, text in figures.prompts.items():
            writer.add_text(name, f"```\n{text}\n```")
    return place
