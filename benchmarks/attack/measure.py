"""Campaigns of attackers against a target, and what their success says: rates with intervals."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from benchmarks.attack.attackers import Attacker, AttackOutcome, Power
from benchmarks.attack.goals import Goal
from benchmarks.attack.strategy import HostileRow

from whet.stats.rates import wilson


class Target(Protocol):
    """What is attacked: hostile rows in, how far they came out. The same rows always come equally far."""

    def __call__(self, rows: Sequence[HostileRow], goal: Goal) -> AttackOutcome:
        """Try one batch on a fresh copy of the service."""
        ...


@dataclass(frozen=True)
class Campaign:
    """One attacker with one goal: the number of the try that succeeded first (None: none did), the best outcome, its
    rows, the number of tries, and how many tries reached each depth from 0 to 7."""

    attacker: str
    goal: Goal
    power: Power
    seed: int
    tries: int
    first: int | None
    best: AttackOutcome
    rows: tuple[HostileRow, ...]
    depths: tuple[int, ...]


def campaign(
    target: Target, name: str, attacker: Attacker, goal: Goal, power: Power, tries: int, seed: int
) -> Campaign:
    """Let an attacker try until it succeeds, at most `tries` times."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {goal.name}".encode())])
    generator = attacker(goal, power, rng)
    batch, best, best_rows, depths = next(generator), AttackOutcome(0), tuple[HostileRow, ...](), [0] * 8
    for number in range(1, tries + 1):
        outcome = target(batch, goal)
        depths[outcome.depth] += 1
        if number == 1 or outcome.score > best.score:
            best, best_rows = outcome, tuple(batch)
        if outcome.success:
            return Campaign(name, goal, power, seed, number, number, best, best_rows, tuple(depths))
        batch = generator.send(outcome)
    return Campaign(name, goal, power, seed, tries, None, best, best_rows, tuple(depths))


@dataclass(frozen=True)
class SuccessRate:
    """Successes out of n with the ends of Wilson's 95% interval."""

    hits: int
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.hits} of {self.n} ({100 * self.low:.0f} to {100 * self.high:.0f}%)"


def rate(hits: int, n: int) -> SuccessRate:
    """A rate; n is 1 or more."""
    low, high = wilson(hits, n, 0.95)
    return SuccessRate(hits, n, max(0.0, low), min(1.0, high))


def successes(campaigns: Sequence[Campaign], budget: int | None = None) -> SuccessRate:
    """Campaigns that succeeded within a number of tries, by default within all."""
    hits = sum(one.first is not None and (budget is None or one.first <= budget) for one in campaigns)
    return rate(hits, len(campaigns))


def success_rate(campaigns: Sequence[Campaign], depth: int) -> SuccessRate:
    """Campaigns whose best try came at least so deep."""
    return rate(sum(one.best.depth >= depth for one in campaigns), len(campaigns))
