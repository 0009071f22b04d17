"""What is most alike: the places of the nearest vectors, by cosine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from whet.instructions.neighbours import normal
from whet.rl.reward_log import Array

_DIGITS = 9


def nearest(
    queries: Array, held: Array, k: int, barred: Sequence[Collection[int]] | None = None
) -> list[list[int]]:
    """For each query (queries, width) the places of up to `k` of the vectors held (n, width), the most alike first; of equals the
    newer one. `barred`: for each query the places that are left out.

    >>> nearest(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), 2)
    [[1, 2]]
    """
    if not len(held):
        return [[] for _ in queries]
    alike = np.round(normal(queries) @ normal(held).T, _DIGITS)
    out = barred or [()] * len(queries)
    return [
        [at for at in sorted(range(len(held)), key=lambda at: (-row[at], -at)) if at not in gone][:k]
        for row, gone in zip(alike, out, strict=True)
    ]
