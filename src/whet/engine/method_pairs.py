"""Methods in pairs, on the answers of their best prompts to the same sealed rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.engine.journal import read_events
from whet.stats import clusters_of, holm
from whet.stats.paired import p_value, paired_test


@dataclass(frozen=True)
class SealedAnswers:
    """Rewards of a run's best prompt by row, without the rows that have no answer, and the cluster of each row."""

    rewards: Mapping[str, float]
    clusters: Mapping[str, int]
    width: float


def sealed_answers(run: Path) -> SealedAnswers:
    """What the journal of a finished run holds of the sealed test of its best prompt."""
    event: Any = read_events(run / "journal.sqlite", ["final"])[-1].value
    rows = event["best"]
    clusters = event.get("clusters", range(len(rows)))
    lost = ("provider:", "budget:")
    return SealedAnswers(
        {row["id"]: row["reward"] for row in rows if not str(row["error"] or "").startswith(lost)},
        {row["id"]: cluster for row, cluster in zip(rows, clusters, strict=True)},
        event["high"] - event["low"],
    )


def compare_pairs(
    methods: Mapping[str, Sequence[SealedAnswers]], alpha: float = 0.05
) -> list[dict[str, Any]]:
    """Each pair of methods by the paired test, the rewards of a row averaged over the runs of a method.

    `p` is two-sided, `p_adjusted` by Holm over the pairs; the intervals hold together with the confidence 1 - alpha, each
    alone with 1 minus its own `alpha`. Rows that any run of the two has no answer to are left out.
    """
    pairs = list(itertools.combinations(methods, 2))
    rows = [_compared(methods[a], methods[b], alpha / max(1, len(pairs))) for a, b in pairs]
    adjusted = holm([row["p"] for row in rows])
    return [
        {"a": a, "b": b, **row, "p_adjusted": p} for (a, b), row, p in zip(pairs, rows, adjusted, strict=True)
    ]


def _compared(
    first: Sequence[SealedAnswers], second: Sequence[SealedAnswers], alpha: float
) -> dict[str, Any]:
    runs, width = (*first, *second), first[0].width
    ids = [name for name in first[0].rewards if all(name in run.rewards for run in runs)]
    if not ids:
        nothing = {"difference": 0.0, "low": -width, "high": width, "p": 1.0, "n": 0, "clusters": 0}
        return {**nothing, "alpha": alpha, "method": "none"}
    gaps = [
        (fmean(run.rewards[name] for run in first) - fmean(run.rewards[name] for run in second)) / width
        for name in ids
    ]
    clusters = [runs[0].clusters[name] for name in ids]
    for run in runs[1:]:  # together in one of the runs is together
        clusters = clusters_of(clusters, [str(run.clusters[name]) for name in ids])
    test = paired_test(gaps, clusters, 0.0, alpha)
    p = min(1.0, 2 * min(test.p_value, p_value([-gap for gap in gaps], clusters)))
    ends = {name: getattr(test, name) * width for name in ("difference", "low", "high")}
    sizes = {"n": len(ids), "clusters": test.clusters}
    return {**ends, "p": p, **sizes, "alpha": alpha, "method": test.method}
