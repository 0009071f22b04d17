"""Average-link agglomeration of wordings under three kinds of evidence; see `whet.search.clustering`."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from whet.search.critiques import NAME, NUMBER, QUOTED, WORD, Token, concepts, content, is_topic, stem, tokens
from whet.search.wordings import Wording

Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]
"""Optional hook: texts to unit vectors, shape (texts, dimensions)."""

_TIGHT, _LOOSE = 0.72, 0.5
_LARGE = 1500
_HASHED = 4096


def agglomerate(
    wordings: Sequence[Wording], labels: Sequence[int], embed: Embed | None = None
) -> list[list[int]]:
    """Indices of wordings that belong together. `labels` >= 0 are groups that exist: they are kept apart."""
    vectors = vectorise(wordings, embed)
    clusters = _seeds(wordings, labels, vectors)
    clusters.sort(key=lambda c: (labels[c[0]] < 0, -sum(wordings[i].count for i in c), c[0]))
    few, alone = clusters[: 2 * _LARGE], clusters[2 * _LARGE :]
    return (_merge(wordings, labels, vectors, few) if len(few) > 1 else few) + alone


def vectorise(wordings: Sequence[Wording], embed: Embed | None = None) -> NDArray[np.float32]:
    """Unit vectors of wordings, float32 (wordings, features): the mean of a lexical and, with the hook, a model's view."""
    rows = [_features(w) for w in wordings]
    documents = Counter(name for row in rows for name in row)
    names = {name: i for i, name in enumerate(documents)}
    width = len(names) if len(names) * len(rows) <= 30_000_000 else _HASHED
    found = np.zeros((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows):
        for name, weight in row.items():
            idf = math.log((1 + len(rows)) / (0.5 + documents[name]))
            found[i, names[name] % width] += weight * idf
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
    if embed is not None:
        found = np.hstack([found, embed([w.text for w in wordings])]) * np.float32(math.sqrt(0.5))
    return found


def _features(wording: Wording) -> dict[str, float]:
    text = wording.text
    row: dict[str, float] = {}
    stems = content(text)
    for word in stems:
        row[word] = 1.0
        if len(word) > 4:
            for i in range(len(word) - 3):
                row["~" + word[i : i + 4]] = 0.3
    for concept in concepts(text):
        row[concept] = 0.6
    for value in wording.values:
        row["=" + value.value] = 1.2
    return row


def _seeds(
    wordings: Sequence[Wording], labels: Sequence[int], vectors: NDArray[np.float32]
) -> list[list[int]]:
    """Clusters to start from: known groups, and single wordings; near copies are joined first when there are many."""
    known: dict[int, list[int]] = defaultdict(list)
    for i, label in enumerate(labels):
        if label >= 0:
            known[label].append(i)
    seeds = list(known.values())
    new = [i for i, label in enumerate(labels) if label < 0]
    if len(seeds) + len(new) <= _LARGE:
        return seeds + [[i] for i in new]
    return seeds + _lead(wordings, vectors, new)


def _lead(wordings: Sequence[Wording], vectors: NDArray[np.float32], new: Sequence[int]) -> list[list[int]]:
    """One pass that joins each wording to the nearest leader or makes it one; after 1,500 leaders it joins more loosely
    and stops making leaders: what is left stands alone."""
    order = sorted(new, key=lambda i: (-wordings[i].count, i))
    leaders: list[int] = []
    members: dict[int, list[int]] = {}
    centres = np.zeros((min(len(order), _LARGE), vectors.shape[1]), dtype=np.float32)
    for i in order:
        full = len(leaders) == len(centres)
        similar = centres[: len(leaders)] @ vectors[i] if leaders else np.zeros(1, dtype=np.float32)
        best = int(similar.argmax())
        if (
            leaders
            and similar[best] >= (_LOOSE if full else _TIGHT)
            and not conflict(wordings[leaders[best]], wordings[i])
        ):
            members[leaders[best]].append(i)
            continue
        members[i] = [i]
        if not full:
            centres[len(leaders)] = vectors[i]
            leaders.append(i)
    return list(members.values())


def conflict(a: Wording, b: Wording) -> bool:
    """Whether two wordings name different values: each names some, and neither names any of the other's."""
    for kinds in ((NUMBER,), (QUOTED, NAME)):
        mine = [v for v in a.values if v.kind in kinds]
        theirs = [v for v in b.values if v.kind in kinds]
        if not mine or not theirs:
            continue
        if not any(_named(b, v) for v in mine) and not any(_named(a, v) for v in theirs):
            return True
    return False


def subjects(wordings: Sequence[Wording]) -> list[frozenset[str]]:
    """For each wording, the stems that say which of several like things it is about.

    They are found as what alternates: short stretches in which sentences differ that are otherwise equal, values left
    aside, and that stand in the same critique somewhere. Verbs do not count: they alternate by mere phrasing.
    """
    fillers: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[tuple[str, ...], set[str]]] = defaultdict(
        dict
    )
    for wording in wordings:
        words = [t.value if t.kind == WORD else f"<{t.kind}>" for t in tokens(wording.text)]
        for start in range(len(words)):
            for stop in range(start + 1, min(start + 1 + _STRETCH, len(words) + 1)):
                if len(words) - (stop - start) < _ALIKE:
                    continue
                stretch = tuple(words[start:stop])
                if all(is_topic(w) for w in stretch):
                    key = (tuple(words[:start]), tuple(words[stop:]))
                    fillers[key].setdefault(stretch, set()).update(wording.sources)
    found: set[str] = set()
    for alternatives in fillers.values():
        for stretch, sources in alternatives.items():
            if any(sources & other for name, other in alternatives.items() if not set(name) & set(stretch)):
                found |= {stem(word) for word in stretch}
    return [frozenset(found & content(w.text)) for w in wordings]


def _named(wording: Wording, value: Token) -> bool:
    if value in wording.values:
        return True
    words = {stem(w) for w in re.findall(r"[^\W_]+", value.value)}
    return value.kind != NUMBER and bool(words) and words <= content(wording.text)


@dataclass
class _State:
    """Agglomeration in progress. `sums` holds summed cosines between clusters, `met` sources as 0/1 rows."""

    clusters: list[list[int]]
    sums: NDArray[np.float32]
    sizes: NDArray[np.float32]
    met: NDArray[np.float32]
    banned: NDArray[np.bool_]


def _merge(
    wordings: Sequence[Wording],
    labels: Sequence[int],
    vectors: NDArray[np.float32],
    clusters: list[list[int]],
) -> list[list[int]]:
    state = _start(wordings, labels, vectors, clusters)
    n = len(clusters)
    alive = np.ones(n, dtype=bool)
    best, partner = np.full(n, -np.inf, dtype=np.float32), np.zeros(n, dtype=np.int64)
    for i in range(n):
        best[i], partner[i] = _nearest(state, i, alive)
    while True:
        i = int(best.argmax())
        if best[i] < 0:
            break
        j = int(partner[i])
        _join(state, i, j)
        alive[j] = False
        best[j] = -np.inf
        stale = [k for k in np.flatnonzero(alive) if k == i or partner[k] in (i, j)]
        for k in stale:
            best[k], partner[k] = _nearest(state, int(k), alive)
        margins = _margins(state, i, alive)
        closer = margins > best
        best[closer], partner[closer] = margins[closer], i
    return [c for c, living in zip(state.clusters, alive, strict=True) if living]


def _start(
    wordings: Sequence[Wording],
    labels: Sequence[int],
    vectors: NDArray[np.float32],
    clusters: list[list[int]],
) -> _State:
    centres = np.stack([vectors[c].sum(axis=0) for c in clusters])
    sizes = np.array([len(c) for c in clusters], dtype=np.float32)
    order = {s: k for k, s in enumerate(dict.fromkeys(s for w in wordings for s in w.sources))}
    met = np.zeros((len(clusters), len(order)), dtype=np.float32)
    for row, members in enumerate(clusters):
        for source in (s for m in members for s in wordings[m].sources):
            met[row, order[source]] = 1.0
    sums = centres @ centres.T
    banned = np.eye(len(clusters), dtype=bool)
    known = np.array([labels[c[0]] >= 0 for c in clusters])
    banned |= known[:, None] & known[None, :]
    likely = np.argwhere(np.triu((sums / (sizes[:, None] * sizes[None, :]) >= _LEAST) & ~banned))
    about = subjects(wordings)
    for i, j in likely:
        pairs = [(a, b) for a in clusters[i] for b in clusters[j]]
        if any(
            conflict(wordings[a], wordings[b]) or (about[a] - about[b] and about[b] - about[a])
            for a, b in pairs
        ):
            banned[i, j] = banned[j, i] = True
    return _State([list(c) for c in clusters], sums, sizes, met, banned)


def _join(state: _State, i: int, j: int) -> None:
    state.clusters[i] += state.clusters[j]
    state.sums[i] += state.sums[j]
    state.sums[:, i] += state.sums[:, j]
    state.sizes[i] += state.sizes[j]
    state.met[i] = np.maximum(state.met[i], state.met[j])
    state.banned[i] |= state.banned[j]
    state.banned[:, i] |= state.banned[:, j]


def _nearest(state: _State, i: int, alive: NDArray[np.bool_]) -> tuple[float, int]:
    margins = _margins(state, i, alive)
    j = int(margins.argmax())
    return float(margins[j]), j


def _margins(state: _State, i: int, alive: NDArray[np.bool_]) -> NDArray[np.float32]:
    """How far the mean cosine of cluster i with every other one lies above what it takes to be one demand."""
    cosine = state.sums[i] / (state.sizes[i] * state.sizes)
    together = state.met @ state.met[i]
    mine, theirs = state.met[i].sum(), state.met.sum(axis=1)
    expected = mine * theirs / max(1, state.met.shape[1])
    share = together / np.maximum(1.0, np.minimum(mine, theirs))
    needed = np.where(
        together > 0,
        np.minimum(_MOST, _BASE + _APART * np.sqrt(share)),
        np.maximum(_LEAST, _BASE - _MISS * expected),
    )
    margins: NDArray[np.float32] = (cosine - needed).astype(np.float32)
    margins[state.banned[i] | ~alive] = -np.inf
    margins[i] = -np.inf
    return margins


_BASE, _LEAST, _MOST = 0.42, 0.24, 0.9
_MISS, _APART = 0.06, 0.45
_STRETCH, _ALIKE = 3, 3
