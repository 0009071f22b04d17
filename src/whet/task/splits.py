"""Train, validation and test: by a seeded hash of the inputs, so that neither order nor file matters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from whet.types import Example, content_hash


def input_hash(example: Example) -> str:
    """Content hash of the input alone: rows that share it never stand in two splits."""
    return content_hash(example.text if example.text is not None else dict(example.values))


def ranked(examples: Sequence[Example], seed: int) -> list[list[Example]]:
    """Groups of examples with the same input, in the order of the seeded hash of that input.

    The order depends on the seed and the inputs only: adding rows puts them between the others and moves
    none past another.
    """
    keyed = sorted((content_hash([seed, input_hash(e)]), e.id, e) for e in examples)
    return [[e for _, _, e in group] for _, group in itertools.groupby(keyed, key=lambda k: k[0])]


def partition(examples: Sequence[Example], shares: Sequence[float], seed: int) -> list[tuple[Example, ...]]:
    """Examples cut by rank into consecutive parts with the given shares (above 0, any sum).

    Without repeated inputs each part has its exact share, rounded. A part may be empty when rows are few.
    """
    n, total = len(examples), math.fsum(shares)
    ends = [math.floor(n * part / total + 0.5) for part in itertools.accumulate(shares)]
    parts: list[list[Example]] = [[] for _ in shares]
    placed = 0
    for group in ranked(examples, seed):
        index = next((i for i, end in enumerate(ends) if placed < end), len(shares) - 1)
        parts[index].extend(group)
        placed += len(group)
    return [tuple(part) for part in parts]


def rows_needed(shares: Sequence[float], at_least: int) -> int:
    """Smallest number (of `at_least` or more) of rows with different inputs that leaves no part empty."""
    total, sums = math.fsum(shares), list(itertools.accumulate(shares))
    n = max(at_least, len(shares))
    while True:
        ends = [0, *(math.floor(n * part / total + 0.5) for part in sums)]
        if all(a < b for a, b in itertools.pairwise(ends)):
            return n
        n += 1
