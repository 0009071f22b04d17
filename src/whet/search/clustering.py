"""Grouping complaints by what they demand, without a model.

Three facts are used. (1) *Wordings*: complaints that differ only in values that change from rollout to rollout (the
length that was found) are one wording; values that recur (the length that is allowed, the name of a key) tell
wordings apart. (2) *Words*: TF-IDF over word stems, character 4-grams, values and kinds of demand; average-link
agglomeration on its cosine. (3) *Co-occurrence*: a grader says each thing once per answer, so two wordings that stand
in the same critique are two demands, and two frequent ones that never meet are likely to be one.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whet.search.critiques import NAME, NUMBER, QUOTED, WORD, Complaint, Token, concepts, content, is_topic, mentions, stem, tokens

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Optional hook: texts to unit vectors, shape (texts, dimensions)."""

_TIGHT = 0.72
_LARGE = 1500
_HASHED = 4096


@dataclass
class Wording:
    """Complaints that say the same in the same way: verbatim texts with counts, and their sources in order."""

    texts: Counter[str] = field(default_factory=Counter)
    sources: dict[str, int] = field(default_factory=dict)
    values: frozenset[Token] = frozenset()

    @property
    def text(self) -> str:
        """The most frequent verbatim text; the first of equals."""
        return max(self.texts, key=lambda t: self.texts[t])

    @property
    def count(self) -> int:
        """How many complaints there are."""
        return self.texts.total()


@dataclass
class Group:
    """One demand in all its wordings. `id` stays for the life of the board."""

    id: int
    wordings: list[Wording]

    @property
    def count(self) -> int:
        """How many complaints there are."""
        return sum(w.count for w in self.wordings)

    @property
    def sources(self) -> dict[str, None]:
        """Rollouts or feedback rows that complain, in order."""
        return dict.fromkeys(s for w in self.wordings for s in w.sources)

    def texts(self) -> list[str]:
        """One verbatim text per wording, the most frequent wording first."""
        return [w.text for w in sorted(self.wordings, key=lambda w: -w.count)]

    def constants(self, share: float = 0.5) -> list[Token]:
        """Values that at least `share` of the complaints state, in the order in which they are first named."""
        candidates = dict.fromkeys(value for w in self.wordings for value in sorted(w.values, key=lambda t: t.value))
        found = []
        for value in candidates:
            stated = sum(w.count for w in self.wordings if value in w.values or mentions(w.text, value))
            if stated >= share * self.count:
                found.append(value)
        return found


@dataclass
class Board:
    """All complaints so far and their groups. `embed` adds a model's view of similarity where there is one."""

    embed: Embed | None = None
    complaints: list[Complaint] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    _label: dict[str, int] = field(default_factory=dict)
    _next: int = 0

    def add(self, complaints: Sequence[Complaint]) -> list[Group]:
        """Take complaints in; returns all groups, those known before with their ids."""
        self.complaints += complaints
        wordings = find_wordings(self.complaints)
        labels = [self._majority(w) for w in wordings]
        for members in agglomerate(wordings, labels, self.embed):
            self._label_members([wordings[m] for m in members], next((lab for m in members if (lab := labels[m]) >= 0), -1))
        self._rebuild(wordings)
        return self.groups

    def _majority(self, wording: Wording) -> int:
        votes = Counter({self._label[t]: 0 for t in wording.texts if t in self._label})
        for text, count in wording.texts.items():
            if text in self._label:
                votes[self._label[text]] += count
        return max(votes, key=lambda g: (votes[g], -g)) if votes else -1

    def _label_members(self, wordings: Sequence[Wording], group: int) -> None:
        if group < 0:
            group, self._next = self._next, self._next + 1
        for wording in wordings:
            for text in wording.texts:
                self._label[text] = group

    def _rebuild(self, wordings: Sequence[Wording]) -> None:
        grouped: dict[int, list[Wording]] = defaultdict(list)
        for wording in wordings:
            grouped[self._label[wording.text]].append(wording)
        self.groups = [Group(key, grouped[key]) for key in sorted(grouped)]

    def split(self, group: Group, wordings: Sequence[Wording]) -> Group:
        """Take wordings out of a group: they turned out to demand something else. Returns the new group."""
        self._label_members(wordings, -1)
        new = Group(self._next - 1, list(wordings))
        group.wordings = [w for w in group.wordings if w not in new.wordings]
        self.groups.append(new)
        return new

    def join(self, kept: Group, other: Group) -> None:
        """Put a group into another one: both turned out to demand the same."""
        for wording in other.wordings:
            for text in wording.texts:
                self._label[text] = kept.id
        kept.wordings += other.wordings
        self.groups = [g for g in self.groups if g is not other]


def find_wordings(complaints: Sequence[Complaint]) -> list[Wording]:
    """Complaints gathered into wordings: the same words, and the same of all values that recur.

    A place for a value holds passing values when what stands there is nearly always new: more than half of its
    values differ among 4 complaints or more of different sources (2 for a number that follows words like "found" or "has").
    """
    frames: dict[str, list[tuple[Complaint, tuple[Token, ...]]]] = {}
    for complaint in complaints:
        key, values = _frame(complaint.text)
        frames.setdefault(key, []).append((complaint, values))
    found: dict[tuple[str, ...], Wording] = {}
    for key, members in frames.items():
        passing = _passing([values for _, values in members], [c.source for c, _ in members])
        for complaint, values in members:
            lasting = tuple(v for v, gone in zip(values, passing, strict=True) if not gone)
            wording = found.setdefault((key, *(v.value for v in lasting)), Wording(values=_anchors(lasting)))
            wording.texts[complaint.text] += 1
            wording.sources[complaint.source] = wording.sources.get(complaint.source, 0) + 1
    return list(found.values())


def _frame(text: str) -> tuple[str, tuple[Token, ...]]:
    found = tokens(text)
    frame = " ".join(t.value if t.kind not in (NUMBER, QUOTED, NAME) else f"<{t.kind}>" for t in found)
    return frame, tuple(t for t in found if t.kind in (NUMBER, QUOTED, NAME))


def _passing(rows: Sequence[tuple[Token, ...]], sources: Sequence[str]) -> list[bool]:
    """For each place of a frame, whether its values only report what one answer held."""
    flags = []
    for place in range(len(rows[0])):
        column = [row[place] for row in rows]
        seen = sum(t.seen for t in column) * 2 > len(column)
        if column[0].kind == NAME:
            flags.append(False)
            continue
        rest = [tuple(t.value for n, t in enumerate(row) if n != place) for row in rows]
        flags.append(seen and len(column) == 1 and len(rows[0]) > 1 or _is_passing(column, rest, sources, 2 if seen else 4))
    return flags


def _is_passing(
    column: Sequence[Token], rest: Sequence[tuple[str, ...]], sources: Sequence[str], least: int
) -> bool:
    """Judged within complaints that agree in their other values; where they do not agree, over all of them."""
    seen = least == 2
    best = 0
    for key in dict.fromkeys(rest):
        rows = [i for i, r in enumerate(rest) if r == key]
        values = {column[i].value for i in rows}
        apart = len({(sources[i]) for i in rows})
        if len(rows) >= least and len(values) * 2 > len(rows) and len(values) > 1 and apart * 2 > len(rows):
            best += len(rows)
        elif seen and len(rows) >= least and len(values) > 1 and apart == len(rows):
            best += len(rows)
    return best * 2 >= len(column)


def _anchors(values: Sequence[Token]) -> frozenset[Token]:
    return frozenset(Token(t.kind, t.value) for t in values)


def agglomerate(wordings: Sequence[Wording], labels: Sequence[int], embed: Embed | None = None) -> list[list[int]]:
    """Indices of wordings that belong together. `labels` >= 0 are groups that exist: they are kept apart."""
    vectors = vectorise(wordings, embed)
    clusters = _seeds(wordings, labels, vectors)
    if len(clusters) < 2:
        return [list(c) for c in clusters]
    return _merge(wordings, labels, vectors, clusters)


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
    leaders: list[int] = []
    members: dict[int, list[int]] = {}
    centres = np.zeros((len(new), vectors.shape[1]), dtype=np.float32)
    for i in new:
        if leaders:
            similar = centres[: len(leaders)] @ vectors[i]
            best = int(similar.argmax())
            if similar[best] >= _TIGHT and not conflict(wordings[leaders[best]], wordings[i]):
                members[leaders[best]].append(i)
                continue
        centres[len(leaders)] = vectors[i]
        leaders.append(i)
        members[i] = [i]
    return seeds + list(members.values())


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
    fillers: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[tuple[str, ...], set[str]]] = defaultdict(dict)
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
    wordings: Sequence[Wording], labels: Sequence[int], vectors: NDArray[np.float32], clusters: list[list[int]]
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
    wordings: Sequence[Wording], labels: Sequence[int], vectors: NDArray[np.float32], clusters: list[list[int]]
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
        if any(conflict(wordings[a], wordings[b]) or (about[a] - about[b] and about[b] - about[a]) for a, b in pairs):
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
    needed = np.where(together > 0, np.minimum(_MOST, _BASE + _APART * np.sqrt(share)), np.maximum(_LEAST, _BASE - _MISS * expected))
    margins: NDArray[np.float32] = (cosine - needed).astype(np.float32)
    margins[state.banned[i] | ~alive] = -np.inf
    margins[i] = -np.inf
    return margins


_BASE, _LEAST, _MOST = 0.42, 0.24, 0.9
_MISS, _APART = 0.06, 0.45
_STRETCH, _ALIKE = 3, 3
