"""Features of texts that need no model: what is counted on the surface, and hashed words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from whet.stats.logistic import Array

Features = Callable[[Sequence[str], Sequence[str]], Array]
"""From inputs and answers, n of each, to features (n, d)."""

SURFACE = ("words", "lines", "numbers", "commas", "stops", "questions", "capitals", "shared with the input")
HASHED = 128

_WORD = re.compile(r"\w+")


def surface(inputs: Sequence[str], answers: Sequence[str]) -> Array:
    """Counts as log(1 + count), the share of capital letters, and the share of the answer's words that the input has.

    Shape (n, 8), in the order of SURFACE.
    """
    return np.array([_counts(i, a) for i, a in zip(inputs, answers, strict=True)]).reshape(-1, len(SURFACE))


def _counts(query: str, text: str) -> list[float]:
    words = _WORD.findall(text.lower())
    known = set(_WORD.findall(query.lower()))
    letters = [c for c in text if c.isalpha()]
    counts = (
        len(words),
        text.count("\n") + 1 if text else 0,
        sum(word.isdigit() for word in words),
        text.count(","),
        text.count(".") + text.count("!"),
        text.count("?"),
    )
    capitals = sum(c.isupper() for c in letters) / max(1, len(letters))
    shared = sum(word in known for word in words) / max(1, len(words))
    return [*np.log1p(counts).tolist(), capitals, shared]


def words(inputs: Sequence[str], answers: Sequence[str]) -> Array:
    """Surface features and the answer's words and pairs of words, hashed to 128 signed counts of norm 1; (n, 136).

    Weinberger et al. 2009, arXiv:0902.2206. The same text has the same features everywhere.
    """
    table = np.zeros((len(answers), HASHED))
    for row, text in zip(table, answers, strict=True):
        tokens = _WORD.findall(text.lower())
        for gram in [*tokens, *(f"{a} {b}" for a, b in pairwise(tokens))]:
            code = zlib.crc32(gram.encode())
            row[code % HASHED] += 1.0 if code >> 31 else -1.0
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return np.hstack([surface(inputs, answers), table / np.maximum(norms, 1e-12)])


def embedding_features(embed: Callable[[Sequence[str]], Array]) -> Features:
    """Features from frozen embeddings (n, d) of texts: the answer's, and its product with the input's; (n, 2 d)."""

    def features(inputs: Sequence[str], answers: Sequence[str]) -> Array:
        queries, vectors = (
            np.asarray(embed(inputs), dtype=np.float64),
            np.asarray(embed(answers), dtype=np.float64),
        )
        return np.hstack([vectors, queries * vectors])

    return features


BUILT_IN: dict[str, Features] = {"surface": surface, "words": words}
EMBEDDED = "embedded/encoder"
