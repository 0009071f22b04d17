"""Contrasts of several treatments on the same rows: each row is a block that all of them answered.

A contrast weighs the rewards of a row: an effect of a factorial design has weights of +2/N and -2/N, a difference of two
prompts +1 and -1. The weights of a contrast sum to 0 and their absolute values to 2 at most, so that a contrast of a row lies
within the width of the reward, and the test of pairs (`whet.stats.paired`) holds for it. Of a family of m contrasts each
interval has the confidence 1 - alpha / m (Bonferroni), so that all of them hold together with 1 - alpha; p-values are adjusted
by Holm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.errors import UsageError
from whet.stats.multiplicity import holm
from whet.stats.paired import p_value, paired_test

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ContrastTest:
    """The mean of a contrast over `n` rows whose rewards are all known (None: there is none), in units of the reward; the ends
    of its interval, two-sided p-value, clusters, and the name of the test."""

    difference: float | None
    low: float
    high: float
    p: float
    p_adjusted: float
    n: int
    clusters: int
    method: str


def evaluate_contrasts(
    rewards: ArrayLike,
    weights: ArrayLike,
    low: float,
    high: float,
    clusters: Sequence[int] | None = None,
    alpha: float = 0.05,
) -> list[ContrastTest]:
    """Test a family of contrasts. `rewards`: rows x treatments in [low, high], not a number where there is no answer; `weights`:
    contrasts x treatments, as the module says; `clusters` as in `paired_test`.

    A reward that is missing counts as its worst for each end of an interval. Raises UsageError for weights that are no contrast.
    """
    cells, signs = np.asarray(rewards, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if (
        np.abs(signs.sum(axis=1)).max(initial=0.0) > 1e-9
        or np.abs(signs).sum(axis=1).max(initial=0.0) > 2 + 1e-9
    ):
        raise UsageError("The weights of a contrast sum to 0, and their absolute values to 2 at most.")
    each = [_test(cells, row, low, high, clusters, alpha / len(signs)) for row in signs]
    adjusted = holm([one.p for one in each])
    return [
        ContrastTest(one.difference, one.low, one.high, one.p, p, one.n, one.clusters, one.method)
        for one, p in zip(each, adjusted, strict=True)
    ]


def _test(
    cells: Array, weights: Array, low: float, high: float, clusters: Sequence[int] | None, alpha: float
) -> ContrastTest:
    used = weights != 0
    cells, weights, width = cells[:, used], weights[used], high - low
    missing, rises = np.isnan(cells), weights > 0
    least = np.where(missing, np.where(rises, low, high), cells) @ weights / width
    largest = np.where(missing, np.where(rises, high, low), cells) @ weights / width
    return compare_bounds(least, largest, width, clusters, alpha)


def compare_bounds(
    least: Array, largest: Array, width: float, clusters: Sequence[int] | None, alpha: float
) -> ContrastTest:
    """The test of one difference whose `least` and `largest` values on each row, in units of the `width` of the reward, differ
    where an answer is missing. The p-value is two-sided and unadjusted."""
    whole = least == largest
    below = paired_test(least, clusters, 0.0, alpha)
    above = below if whole.all() else paired_test(largest, clusters, 0.0, alpha)
    p = min(1.0, 2 * min(below.p_value, p_value(-largest, clusters)))
    difference = fmean(least[whole].tolist()) * width if whole.any() else None
    return ContrastTest(
        difference,
        below.low * width,
        above.high * width,
        p,
        p,
        int(whole.sum()),
        below.clusters,
        below.method,
    )
