"""Choices that people made between answers of two versions of a prompt: read from traffic, ranked, and what to ask next.

The next pair comes from double Thompson sampling on the matrix of wins, the ranking from the model of Bradley and Terry
(`whet.stats.duels`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from sqlalchemy import select

from whet.errors import UsageError
from whet.feedback.sources import principal
from whet.stats.duels import Choice, bradley_terry, double_thompson, wins_of
from whet_live.database import Database
from whet_live.traffic.traffic_tables import feedback, inferences

MOST_OF_ONE = 50
"""Choices between two versions that count of one person."""
_DRAWS = 16
_Z = NormalDist().inv_cdf(0.975)


def load_pairwise_votes(
    database: Database, prompt: str, *, most: int = MOST_OF_ONE, sources: Collection[str] | None = None
) -> list[Choice]:
    """The choices between two versions of a prompt that count, oldest first.

    A choice is feedback of the kind `choice` about one inference, and its label is the id of the other one. Choices
    between answers of one version, or whose other inference is not known, are left out, and so are those whose
    source is none of `sources` (None: all count). One person's last choice
    between two answers counts, and of one person at most the last `most` choices between two versions; all who give no
    name are one person.
    """
    shown = inferences.alias("shown")
    other = inferences.alias("other")
    query = (
        select(
            shown.c.version,
            other.c.version.label("against"),
            feedback.c.value,
            feedback.c.about,
            other.c.seq.label("beside"),
            feedback.c.source,
            feedback.c.user,
            shown.c.user.label("asker"),
        )
        .join(shown, shown.c.seq == feedback.c.about)
        .join(other, other.c.id == feedback.c.label)
        .where(feedback.c.kind == "choice", feedback.c.prompt == prompt, other.c.prompt == prompt)
        .where(shown.c.version != other.c.version)
        .order_by(feedback.c.time, feedback.c.joined)
    )
    if sources is not None:
        query = query.where(feedback.c.source.in_(sources))
    with database.read() as connection:
        rows = connection.execute(query).all()
    return [(row.version, row.against, row.value) for row in _cap_votes(rows, most)]


def _cap_votes(rows: Sequence[Any], most: int) -> list[Any]:
    """The rows that count, in order: the last of one person about two answers, and the last `most` about two versions."""
    seen: set[tuple[str, frozenset[int]]] = set()
    counts: Counter[tuple[str, frozenset[int]]] = Counter()
    kept = []
    for row in reversed(rows):
        person = principal(row.source, row.user, row.asker)
        answers = (person, frozenset((row.about, row.beside)))
        pair = (person, frozenset((row.version, row.against)))
        if answers not in seen and counts[pair] < most:
            kept.append(row)
            counts[pair] += 1
        seen.add(answers)
    return kept[::-1]


def next_pair(choices: Sequence[Choice], pairs: Collection[tuple[int, int]]) -> tuple[int, int]:
    """Choose the pair of versions, of `pairs`, that a person compares next: a pair with answers to show.

    Until the next choice arrives the result stays the same. A pair for which there is nothing to show is drawn again; when
    only such pairs are drawn, the result is the pair with the fewest choices. Raises UsageError without a pair.
    """
    if not pairs:
        raise UsageError("There is no pair of versions to compare.")
    versions = sorted({version for pair in pairs for version in pair})
    wins = wins_of(versions, choices)
    rng = np.random.default_rng(round(wins.sum()))
    shown = {frozenset(pair): pair for pair in pairs}
    for _ in range(_DRAWS):
        first, second = double_thompson(wins, rng)
        drawn = frozenset((versions[first], versions[second]))
        if drawn in shown:
            return shown[drawn]
    counts = wins + wins.T
    return min(sorted(pairs), key=lambda pair: counts[versions.index(pair[0]), versions.index(pair[1])])


LAPLACE = "Laplace"
"""The method of the intervals of strengths."""


@dataclass(frozen=True)
class Strength:
    """The strength of a version: its log-odds of being preferred to an average version, with a 95% interval, from `n` choices."""

    strength: float
    low: float
    high: float
    n: int
    method: str = LAPLACE

    @property
    def against_average(self) -> float:
        """Probability of being preferred to a version of average strength."""
        return 1.0 / (1.0 + math.exp(-self.strength))


def bradley_terry_strengths(choices: Sequence[Choice]) -> dict[int, Strength]:
    """Estimate the strength of each compared version of a prompt (Bradley and Terry), the strongest first.

    Assumes one order of strength and independent choices; the intervals are for one look, not for continuous peeking.
    """
    versions = sorted({version for first, second, _ in choices for version in (first, second)})
    if len(versions) < 2:
        return {}
    wins = wins_of(versions, choices)
    strengths, errors = bradley_terry(wins)
    counts = (wins + wins.T).sum(axis=1)
    ranking = {
        version: Strength(float(mean), float(mean - _Z * error), float(mean + _Z * error), round(count))
        for version, mean, error, count in zip(versions, strengths, errors, counts, strict=True)
    }
    return dict(sorted(ranking.items(), key=lambda item: -item[1].strength))


def disconnected_groups(choices: Sequence[Choice]) -> list[list[int]]:
    """Groups of versions between which nobody chose, each in order: a result about one says nothing about another."""
    groups: list[set[int]] = []
    for first, second in {(first, second) for first, second, _ in choices}:
        joined = {first, second}.union(*(group for group in groups if group & {first, second}))
        groups = [group for group in groups if not group & joined] + [joined]
    return sorted(map(sorted, groups))
