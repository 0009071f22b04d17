"""The front per example: the candidates that are best on something."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean


def front(scores: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """On how many examples each candidate has the best score, without those that others make superfluous.

    `scores` holds the scores of every candidate (at least one) on the same examples. Superfluous is a candidate that is
    nowhere best without another one that stays; they go one after the other, the lowest mean first (GEPA, arXiv:2507.19457,
    algorithm 2).

    >>> front({"a": [1, 0, 0], "b": [0, 1, 1], "c": [0, 1, 0]})
    {'a': 1, 'b': 2}
    """
    best = [max(column) for column in zip(*scores.values(), strict=True)]
    holders = [{c for c, row in scores.items() if row[i] >= top} for i, top in enumerate(best)]
    for candidate in sorted(scores, key=lambda c: fmean(scores[c])):
        if all(len(holding) > 1 for holding in holders if candidate in holding):
            for holding in holders:
                holding.discard(candidate)
    counts = {c: sum(c in holding for holding in holders) for c in scores}
    return {c: n for c, n in counts.items() if n}


def contested_examples(rng: random.Random, first: Sequence[float], second: Sequence[float]) -> list[int]:
    """Numbers of up to five examples, by the scores of two candidates: two on which each is better, then ties."""
    order = rng.sample(range(len(first)), len(first))
    ahead, behind = [i for i in order if first[i] > second[i]], [i for i in order if first[i] < second[i]]
    even = [i for i in order if first[i] == second[i]]
    return [*ahead[:2], *behind[:2], *even, *ahead[2:], *behind[2:]][:5]
