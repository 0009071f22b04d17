"""Likely neighbours in meaning, to be put before a model together. A hint for packing, never a proof of anything.

Where no embedding is configured, texts are compared by their character trigrams, which knows no language.
"""

from __future__ import annotations

import itertools
import unicodedata
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from whet.run import Run
from whet.search.copies import compatible

Vectors: TypeAlias = NDArray[np.float64]
Embed: TypeAlias = Callable[[Run, Sequence[str]], Awaitable[Vectors]]
"""Vectors of texts, shape (texts, width), recorded in the run."""

_SIZE = 4096
_GRAM = 3


def comparable(text: str) -> str:
    """A text for comparison: compatible characters, case folded, single blanks, no punctuation at its ends."""
    plain = " ".join(compatible(text).casefold().split())
    return plain.strip("".join(c for c in set(plain) if c == " " or unicodedata.category(c).startswith("P")))


def grams(text: str) -> frozenset[str]:
    """The character trigrams of a text, blanks at both ends included."""
    plain = f" {comparable(text)} "
    return frozenset(plain[n : n + _GRAM] for n in range(len(plain) - _GRAM + 1))


def containment(part: str, whole: str) -> float:
    """The share of the trigrams of `part` that `whole` has as well, 0 to 1."""
    own = grams(part)
    return len(own & grams(whole)) / len(own) if own else 0.0


def trigrams(texts: Sequence[str]) -> Vectors:
    """Unit vectors of hashed trigrams weighted by their rarity among these texts, shape (len(texts), 4096)."""
    counts = np.zeros((len(texts), _SIZE))
    for row, text in enumerate(texts):
        for gram in grams(text):
            counts[row, zlib.crc32(gram.encode("utf-8", "surrogatepass")) % _SIZE] += 1.0
    counts *= np.log((1.0 + len(texts)) / (1.0 + (counts > 0).sum(0))) + 0.1
    return normal(counts)


def normal(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.where(lengths > 0, lengths, 1.0)
    return unit


def order_by_nearest(vectors: Vectors) -> list[int]:
    """An order in which each text is followed by the nearest one that is left, beginning with the first."""
    near, order = vectors @ vectors.T, [0][: len(vectors)]
    while len(order) < len(vectors):
        near[:, order[-1]] = -np.inf
        order.append(int(near[order[-1]].argmax()))
    return order


def nearest(vectors: Vectors, others: Vectors, k: int) -> list[list[int]]:
    """For each vector the places of its k nearest among the others, the nearest first."""
    return [[int(i) for i in row[:k]] for row in np.argsort(-(vectors @ others.T), axis=1, kind="stable")]


async def arrange_by_nearest(
    run: Run, texts: Sequence[str], embed: Embed | None
) -> tuple[list[int], list[float]]:
    """The order in which each text is followed by the nearest one that is left, and how close each is to the next."""
    vectors = trigrams(texts) if embed is None else normal(np.asarray(await embed(run, texts), float))
    order = order_by_nearest(vectors)
    return order, [round(float(vectors[a] @ vectors[b]), 6) for a, b in itertools.pairwise(order)]


def group_by_cosine(vectors: Vectors, least: float) -> list[list[int]]:
    """Groups of texts whose cosine with the first of their group is `least` or more; singles are groups too."""
    groups: list[list[int]] = []
    for row, vector in enumerate(vectors):
        close = [float(vectors[group[0]] @ vector) for group in groups]
        if close and max(close) >= least:
            groups[int(np.argmax(close))].append(row)
        else:
            groups.append([row])
    return groups
