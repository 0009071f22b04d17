"""Configurations of several parts, and what each part is worth: pairing by a Latin square, and main effects.

Where candidate j of one part always meets candidate j of the others, nobody can tell to whom a reward is due. In a Latin square
each candidate meets each of the others in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RIDGE = 0.5
"""Rows that a candidate is worth before it was seen: what was tried on few rows is drawn to the mean."""


@dataclass(frozen=True)
class Pairing:
    """A configuration on a row: the candidate of each part, and what came of it."""

    row: str
    parts: tuple[str, ...]
    value: float


def pair_by_position(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Configurations of parts with so many candidates each: the first with the first, and so on; shorter lists begin again.

    >>> pair_by_position([2, 3])
    [(0, 0), (1, 1), (0, 2)]
    """
    return [tuple(place % size for size in sizes) for place in range(max(sizes))]


def pair_by_square(sizes: Sequence[int], turn: int) -> list[tuple[int, ...]]:
    """The configurations of the row number `turn` of a Latin square: part i is shifted by i in each turn.

    >>> [pair_by_square([2, 2], turn) for turn in range(2)]
    [[(0, 0), (1, 1)], [(0, 1), (1, 0)]]
    """
    longest = max(sizes)
    return [
        tuple((place + part * turn) % longest % size for part, size in enumerate(sizes))
        for place in range(longest)
    ]


def main_effects(trials: Sequence[Pairing]) -> list[dict[str, float]]:
    """The main effect of each candidate of each part, by part: least squares over rows and candidates.

    Rows may differ in difficulty, and in which candidates met on them. Effects of candidates are drawn to 0 by `RIDGE`.
    """
    width = len(trials[0].parts) if trials else 0
    keys: list[tuple[int, str]] = sorted({(-1, t.row) for t in trials})
    keys += sorted({(part, name) for t in trials for part, name in enumerate(t.parts)})
    place = {key: number for number, key in enumerate(keys)}
    design = np.zeros((len(trials), len(keys)))
    for number, trial in enumerate(trials):
        for key in [(-1, trial.row), *enumerate(trial.parts)]:
            design[number, place[key]] = 1.0
    ridge = np.diag([1e-6 if part < 0 else RIDGE for part, _ in keys])
    values = np.array([trial.value for trial in trials])
    fitted = np.linalg.solve(design.T @ design + ridge, design.T @ values) if trials else values
    effects: list[dict[str, float]] = [{} for _ in range(width)]
    for (part, name), effect in zip(keys, fitted, strict=True):
        if part >= 0:
            effects[part][name] = round(float(effect), 9)
    return effects
