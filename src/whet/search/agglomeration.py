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

from whet.search.lexicon import NAME, NUMBER, QUOTED, WORD, Token, concepts, content, is_topic, stem, tokens
from whet.search.wordings import Wording

Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]
"""Optional hook: texts to unit vectors, shape (texts, dimensions)."""

_TIGHT, _LOOSE = 0.72, 0.5
_LARGE = 1500
_HASHED = 4096
_UNSEEN = 20


def agglomerate(
    wordings: Sequence[Wording], labels: Sequence[int], embed: Embed | None = None
) -> list[list[int]]:
    """Indices of wordings that belong together. `labels` >= 0 are groups that exist: they are kept apart."""
    vectors = vectorise(wordings, embed)
    about = subjects(wordings)
    clusters = _seeds(wordings, labels, vectors, about)
    clusters.sort(key=lambda c: (labels[c[0]] < 0, -sum(wordings[i].count for i in c), c[0]))
    few, alone = clusters[: 2 * _LARGE], clusters[2 * _LARGE :]
    return (_merge(wordings, labels, vectors, few, about) if len(few) > 1 else few) + alone


def vectorise(wordings: Sequence[Wording], embed: Embed | None = None) -> NDArray[np.float32]:
    """Unit vectors of wordings, float32 (wordings, features): the mean of a lexical and, with the hook, a model's view."""
    rows = [_features(w) for w in wordings]
    documents = Counter(name for row in rows for name in row)
    names = {name: i for i, name in enumerate(documents)}
    width = len(names) if len(names) * len(rows) <= 30_000_000 else _HASHED
    found = np.zeros((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows):
        for name, weight in row.items():
            idf = math.log((_UNSEEN + len(rows)) / (0.5 + documents[name]))
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
    wordings: Sequence[Wording],
    labels: Sequence[int],
    vectors: NDArray[np.float32],
    about: Sequence[frozenset[str]],
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
    return seeds + _lead(wordings, vectors, new, about)


def _lead(
    wordings: Sequence[Wording],
    vectors: NDArray[np.float32],
    new: Sequence[int],
    about: Sequence[frozenset[str]],
) -> list[list[int]]:
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
            and not _at_odds(wordings, about, [leaders[best]], [i])
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
    """Agglomeration in progress. Per pair of clusters: `sums` of cosines of their wordings, `together` the sources
    that speak of both, `banned` whether they must stay apart. `met` (clusters, sources) is 1 where a source speaks of one."""

    clusters: list[list[int]]
    sums: NDArray[np.float32]
    sizes: NDArray[np.float32]
    met: NDArray[np.float32]
    together: NDArray[np.float32]
    banned: NDArray[np.bool_]
    alive: NDArray[np.bool_]


def _merge(
    wordings: Sequence[Wording],
    labels: Sequence[int],
    vectors: NDArray[np.float32],
    clusters: list[list[int]],
    about: Sequence[frozenset[str]],
) -> list[list[int]]:
    """Join the pair with the largest margin until none is left; a pair at odds is banned when its turn comes."""
    state = _start(wordings, labels, vectors, clusters)
    n = len(clusters)
    best, partner = np.full(n, -np.inf, dtype=np.float32), np.zeros(n, dtype=np.int64)
    for i in range(n):
        best[i], partner[i] = _nearest(state, i)
    while best.max() >= 0:
        i = int(best.argmax())
        j = int(partner[i])
        if _at_odds(wordings, about, state.clusters[i], state.clusters[j]):
            state.banned[i, j] = state.banned[j, i] = True
            for k in (i, j):
                best[k], partner[k] = _nearest(state, k)
            continue
        _join(state, i, j)
        best[j] = -np.inf
        for k in [*np.flatnonzero(state.alive & ((partner == i) | (partner == j))).tolist(), i]:
            best[k], partner[k] = _nearest(state, k)
        margins = _margins(state, i)
        closer = margins > best
        best[closer], partner[closer] = margins[closer], i
    return [c for c, living in zip(state.clusters, state.alive, strict=True) if living]


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
        met[row, [order[source] for m in members for source in wordings[m].sources]] = 1.0
    known = np.array([labels[c[0]] >= 0 for c in clusters])
    banned = np.eye(len(clusters), dtype=bool) | (known[:, None] & known[None, :])
    copies = [list(c) for c in clusters]
    return _State(
        copies, centres @ centres.T, sizes, met, met @ met.T, banned, np.ones(len(clusters), dtype=bool)
    )


def _at_odds(
    wordings: Sequence[Wording], about: Sequence[frozenset[str]], first: Sequence[int], second: Sequence[int]
) -> bool:
    """Whether some wording of one cluster names other values or another subject than one of the other cluster."""
    return any(
        (about[a] - about[b] and about[b] - about[a]) or conflict(wordings[a], wordings[b])
        for a in first
        for b in second
    )


def _join(state: _State, i: int, j: int) -> None:
    state.clusters[i] += state.clusters[j]
    state.sums[i] += state.sums[j]
    state.sums[:, i] += state.sums[:, j]
    state.sizes[i] += state.sizes[j]
    state.met[i] = np.maximum(state.met[i], state.met[j])
    state.together[i] = state.together[:, i] = state.met @ state.met[i]
    state.banned[i] |= state.banned[j]
    state.banned[:, i] |= state.banned[:, j]
    state.alive[j] = False


def _nearest(state: _State, i: int) -> tuple[float, int]:
    margins = _margins(state, i)
    j = int(margins.argmax())
    return float(margins[j]), j


def _margins(state: _State, i: int) -> NDArray[np.float32]:
    """How far the mean cosine of cluster i with every other one lies above what it takes to be one demand."""
    cosine = state.sums[i] / (state.sizes[i] * state.sizes)
    together = state.together[i]
    mine, theirs = together[i], state.together.diagonal()
    expected = mine * theirs / max(1, state.met.shape[1])
    share = together / np.maximum(1.0, np.minimum(mine, theirs))
    apart = np.minimum(_MOST, _BASE + _APART * np.sqrt(share))
    needed = np.where(together > 0, apart, np.maximum(_LEAST, _BASE - _MISS * expected))
    margins: NDArray[np.float32] = (cosine - needed).astype(np.float32)
    margins[state.banned[i] | ~state.alive] = -np.inf
    return margins


_BASE, _LEAST, _MOST = 0.42, 0.24, 0.9
_MISS, _APART = 0.06, 0.45
_STRETCH, _ALIKE = 3, 3
