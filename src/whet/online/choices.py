"""Choices that people made between answers of two versions of a prompt, read from traffic; and what to ask next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import select

from whet.online.database import Database
from whet.online.duels import Duels, Pdo, Selector
from whet.online.traffic.tables import feedback, inferences

Choice = tuple[int, int, float]
"""(version, other version, 1 if the first was preferred, 0 if the second, 0.5 if neither)."""


def choices_of(database: Database, prompt: str) -> list[Choice]:
    """All choices between two versions of a prompt, in the order of arrival.

    A choice is feedback of the kind `choice` about one inference, and its label is the id of the other one. Choices
    between answers of one version, or whose other inference is not known, are left out.
    """
    shown = inferences.alias("shown")
    other = inferences.alias("other")
    query = (
        select(shown.c.version, other.c.version.label("against"), feedback.c.value)
        .join(shown, shown.c.seq == feedback.c.about)
        .join(other, other.c.id == feedback.c.label)
        .where(feedback.c.kind == "choice", feedback.c.prompt == prompt, other.c.prompt == prompt)
        .where(shown.c.version != other.c.version)
        .order_by(feedback.c.joined)
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
    return [(row.version, row.against, _outcome(row.value)) for row in rows]


def _outcome(value: float) -> float:
    return 1.0 if value > 0.5 else 0.0 if value < 0.5 else 0.5


def next_versions(
    database: Database,
    prompt: str,
    versions: Sequence[int],
    rng: np.random.Generator,
    selector: Selector | None = None,
) -> tuple[int, int]:
    """The two versions whose answers a person should compare next, by default chosen by `Pdo`.

    Raises UsageError for fewer than two versions.
    """
    duels = Duels.of(versions, choices_of(database, prompt))
    first, second = (selector or Pdo()).next_pair(duels, rng)
    return versions[first], versions[second]
