"""Experiments on live traffic: several versions of a prompt, one question, an answer that survives peeking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.live.experiments.experiment_store import Experiment
    from whet.live.experiments.manager import Experiments

__all__ = ["Experiment", "Experiments"]


def __getattr__(name: str) -> Any:
    """`Experiments` and `Experiment`, which need a database, only when they are accessed."""
    if name == "Experiments":
        from whet.live.experiments.manager import Experiments

        return Experiments
    if name == "Experiment":
        from whet.live.experiments.experiment_store import Experiment

        return Experiment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
