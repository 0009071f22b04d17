"""Packing points into optimizer calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def pack(items: Sequence[T], size: int, most: int | None = None) -> list[list[T]]:
    """Items, the most urgent first, in at most `most` packs of at most `size`; the last items may be left out.

    Packs are of even size, and each holds urgent and less urgent items alike.

    >>> pack([1, 2, 3, 4, 5], 2)
    [[1, 4], [2, 5], [3]]
    """
    count = math.ceil(len(items) / max(1, size))
    if most is not None:
        count = min(count, most)
    kept = items[: count * size]
    return [list(kept[start::count]) for start in range(count)]
