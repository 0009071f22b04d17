"""Choices that people made between answers of two versions of a prompt, read from traffic; and what to ask next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select

from whet.client.records import SOURCES
from whet.feedback.sources import principal
from whet.live.database import Database
from whet.live.duels import Apohf, Duels, Pdo, Selector, Strength, bradley_terry
from whet.live.traffic.traffic_tables import feedback, inferences
from whet.rewards.preference.features import words

MANY = 9
"""Versions from which on a choice should also say something about versions with similar words (`Apohf`)."""
DRAWS = 16
MOST_OF_ONE = 50
"""Choices between two versions that count of one person."""

Choice = tuple[int, int, float]
"""(version, other version, 1 if the first was preferred, 0 if the second, 0.5 if neither)."""


def choices_of(
    database: Database, prompt: str, *, most: int = MOST_OF_ONE, sources: Collection[str] = SOURCES
) -> list[Choice]:
    """The choices between two versions of a prompt that count, in the order of arrival.

    A choice is feedback of the kind `choice` about one inference, and its label is the id of the other one. Choices
    between answers of one version, or whose other inference is not known, are left out. One person's last choice
    between two answers counts, and of one person at most the last `most` choices between two versions; all who give no
    name are one person. `sources` are the kinds of source that count.
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
        .where(shown.c.version != other.c.version, feedback.c.source.in_(list(sources)))
        .order_by(feedback.c.joined)
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
    return [(row.version, row.against, _outcome(row.value)) for row in _capped(rows, most)]


def _capped(rows: Sequence[Any], most: int) -> list[Any]:
    """The rows that count, in order: the last of one person about two answers, and the last `most` about two versions."""
    seen: set[tuple[str, frozenset[int]]] = set()
    counts: Counter[tuple[str, frozenset[int]]] = Counter()
    kept = []
    for row in reversed(rows):
        who = principal(row.source, row.user or (row.asker if row.source == "user" else None))
        answers, pair = (
            (who, frozenset((row.about, row.beside))),
            (who, frozenset((row.version, row.against))),
        )
        if answers not in seen and counts[pair] < most:
            kept.append(row)
            counts[pair] += 1
        seen.add(answers)
    return kept[::-1]


def _outcome(value: float) -> float:
    return 1.0 if value > 0.5 else 0.0 if value < 0.5 else 0.5


def next_of(
    choices: Sequence[Choice], pairs: Collection[tuple[int, int]], texts: Mapping[int, str]
) -> tuple[int, int]:
    """Which of the `pairs` of versions a person should compare next: those for which there are answers to show.

    `Pdo` asks, from `MANY` versions on `Apohf` on the words of the versions' `texts`, if these tell all of them apart.
    Until the next choice arrives the answer stays the same. A pair for which there is nothing to show is drawn anew,
    where it is drawn; when only such pairs are wanted, the pair with the fewest choices is taken. Raises UsageError
    without a pair.
    """
    versions = sorted({version for pair in pairs for version in pair})
    duels = Duels.of(versions, choices)
    selector, draws = _selector(versions, texts, len(duels.rows))
    rng = np.random.default_rng(len(duels.rows))
    shown = {frozenset(pair): pair for pair in pairs}
    for _ in range(draws):
        first, second = selector.next_pair(duels, rng)
        wanted = frozenset((versions[first], versions[second]))
        if wanted in shown:
            return shown[wanted]
    met = duels.wins + duels.wins.T
    return min(sorted(shown.values()), key=lambda p: met[versions.index(p[0]), versions.index(p[1])])


def _selector(versions: Sequence[int], texts: Mapping[int, str], choices: int) -> tuple[Selector, int]:
    """The sampling method, and how many choices it is worth asking for: what `Apohf` wants after its first pairs is not drawn."""
    if len(versions) >= MANY:
        features = words([""] * len(versions), [texts.get(version, "") for version in versions])
        if len(np.unique(features, axis=0)) == len(versions):
            apohf = Apohf(features)
            return apohf, DRAWS if choices < apohf.first else 1
    return Pdo(), DRAWS


def standings(choices: Sequence[Choice]) -> dict[int, Strength]:
    """How strong each compared version of a prompt is by what people chose (Bradley and Terry), the strongest first."""
    versions = sorted({version for first, second, _ in choices for version in (first, second)})
    if len(versions) < 2:
        return {}
    strengths = zip(versions, bradley_terry(Duels.of(versions, choices)), strict=True)
    return dict(sorted(strengths, key=lambda one: -one[1].strength))


def apart(choices: Sequence[Choice]) -> list[list[int]]:
    """Groups of versions between which nobody chose, each in order: a result about one says nothing about another."""
    groups: list[set[int]] = []
    for first, second in {(first, second) for first, second, _ in choices}:
        met = {first, second}.union(*(group for group in groups if group & {first, second}))
        groups = [group for group in groups if not group & met] + [met]
    return sorted(map(sorted, groups))
