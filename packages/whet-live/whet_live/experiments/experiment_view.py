"""The page's data of an experiment, as JSON: arms with posteriors, differences, guard-rails, missing outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from whet.stats.intervals import SEQUENCE
from whet_live.experiments.allocation import ArmTally, best_chances, density
from whet_live.experiments.confidence_sequences import ConfidenceSequences
from whet_live.experiments.definition import Metric
from whet_live.experiments.experiment_store import Experiment
from whet_live.experiments.reducer import Snapshot
from whet_live.experiments.verdict import ExperimentVerdict, count_outcomes

POINTS = 101
_SPREADS = 4.0


def figures(
    snapshot: Snapshot, verdict: ExperimentVerdict, sequences: ConfidenceSequences | None = None
) -> dict[str, Any]:
    """The state of an experiment at one time, as JSON, without the shares of its arms. Numbers that are not known yet are null.
    `sequences` are those that the verdict was computed with."""
    sequences = sequences or ConfidenceSequences()
    definition = snapshot.definition
    sample = snapshot.samples[definition.goal.name]
    tallies = [count_outcomes(sample, arm) for arm in range(len(definition.arms))]
    best = best_chances(tallies)
    rows = [
        {
            "version": version,
            "control": version == definition.control,
            "best_chance": float(best[arm]),
            "metrics": {
                name: _metric(snapshot, metric, arm, sequences) for name, metric in definition.metrics.items()
            },
        }
        for arm, version in enumerate(definition.versions)
    ]
    return {
        "arms": _replace_nan(rows),
        "posterior": _replace_nan(posterior(definition.goal, definition.versions, tallies)),
        "verdict": experiment_verdict_json(verdict),
        "left_out": asdict(snapshot.counts),
    }


def describe_experiment(
    experiment: Experiment, figured: Mapping[str, Any], assigned: Sequence[int]
) -> dict[str, Any]:
    """The experiment with its figures, its present shares, and the units of each arm so far. After its end the verdict is
    the one that ended it."""
    rows = [
        {**row, "weight": weight, "assigned": units}
        for row, weight, units in zip(figured["arms"], experiment.weights, assigned, strict=True)
    ]
    verdict = figured["verdict"]
    if experiment.ended is not None:
        verdict = experiment.verdict or {**verdict, "state": experiment.state, "reason": experiment.reason}
    now = {**figured, "arms": rows, "verdict": verdict}
    cleaned: dict[str, object] = _replace_nan({**experiment.as_json(), "now": now})
    return cleaned


def experiment_verdict_json(verdict: ExperimentVerdict) -> dict[str, object]:
    """A verdict as JSON values."""
    effects = [asdict(effect) | {"method": SEQUENCE} for effect in verdict.effects]
    guards = [asdict(check) | {"broken": check.broken, "method": SEQUENCE} for check in verdict.checks]
    return {
        "state": verdict.state,
        "reason": verdict.reason,
        "winner": verdict.winner,
        "held": verdict.held,
        "warnings": list(verdict.warnings),
        "effects": _replace_nan(effects),
        "guards": _replace_nan(guards),
    }


def posterior(metric: Metric, versions: Sequence[int], tallies: Sequence[ArmTally]) -> dict[str, object]:
    """Beta posteriors of the arms' means on one grid of values, for a plot: {"grid": [...], "arms": {version: [...]}}.

    Densities are per unit of the metric, uniform prior. They describe; the verdict rests on e-values.
    """
    posteriors = [arm.posterior for arm in tallies]
    low = max(1e-6, min(m - _SPREADS * s for m, s in posteriors))
    high = min(1 - 1e-6, max(m + _SPREADS * s for m, s in posteriors))
    grid = np.linspace(low, high, POINTS)
    turn = slice(None) if metric.direction == "max" else slice(None, None, -1)
    width = metric.high - metric.low
    return {
        "metric": metric.name,
        "grid": [metric.value(float(point)) for point in grid[turn]],
        "arms": {
            str(version): [float(d) / width for d in density(arm, grid)[turn]]
            for version, arm in zip(versions, tallies, strict=True)
        },
    }


def _metric(
    snapshot: Snapshot, metric: Metric, arm: int, sequences: ConfidenceSequences
) -> dict[str, object]:
    """Counts and mean of one metric of one arm.

    `mean_if_missing` are the means if every unit without an outcome had the worst or the best one.
    """
    sample, arrived = snapshot.samples[metric.name], snapshot.known[metric.name]
    mine = sample.arms == arm
    settled, known = int(mine.sum()), int(arrived[mine].sum())
    values = sample.values[mine & (arrived > 0)]
    total = float(values.sum())
    seen = sequences.mean(metric.name, sample, arm).now.interval(2.0 / snapshot.definition.alpha, (0.0, 1.0))
    worst, best = (total, total + settled - known) if settled else (math.nan, math.nan)
    return {
        "settled": settled,
        "with_outcome": known,
        "without_outcome": settled - known,
        "not_settled": snapshot.count_units()[arm] - settled,
        "mean": metric.value(seen.estimate),
        "method": SEQUENCE,
        "interval": sorted(metric.value(end) for end in (seen.low, seen.high)),
        "mean_if_missing": sorted(metric.value(end / max(settled, 1)) for end in (worst, best)),
    }


def _replace_nan(value: Any) -> Any:
    """JSON without nan and infinity, which it does not know: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _replace_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nan(item) for item in value]
    return value
