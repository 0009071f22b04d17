"""Grouping complaints by what they demand, without a model.

Three facts are used. (1) *Wordings*: complaints that differ only in values that change from rollout to rollout (the
length that was found) are one wording; values that recur (the length that is allowed, the name of a key) tell
wordings apart. (2) *Words*: TF-IDF over word stems, character 4-grams, values and kinds of demand; average-link
agglomeration on its cosine. (3) *Co-occurrence*: a grader says each thing once per answer, so two wordings that stand
in the same critique are two demands, and two frequent ones that never meet are likely to be one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.search.agglomeration import Embed, agglomerate
from whet.search.critiques import Complaint
from whet.search.lexicon import Token, mentions
from whet.search.wordings import Wording, find_wordings


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
        candidates = dict.fromkeys(
            value for w in self.wordings for value in sorted(w.values, key=lambda t: t.value)
        )
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
            self._label_members(
                [wordings[m] for m in members], next((lab for m in members if (lab := labels[m]) >= 0), -1)
            )
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
