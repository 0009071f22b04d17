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

    Without repeated inputs each part has its exact share, rounded. Every part gets at least one input when
    there are as many different inputs as parts; otherwise the last parts are empty.
    """
    groups, total = ranked(examples, seed), math.fsum(shares)
    ends = [math.floor(len(examples) * part / total + 0.5) for part in itertools.accumulate(shares)]
    parts: list[list[Example]] = [[] for _ in shares]
    placed, at, last = 0, 0, len(shares) - 1
    for number, group in enumerate(groups):
        scarce = len(groups) - number <= last - at
        if parts[at] and at < last and (placed >= ends[at] or scarce):
            at += 1
        parts[at].extend(group)
        placed += len(group)
    return [tuple(part) for part in parts]
