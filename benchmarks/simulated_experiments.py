"""Experiments on simulated units whose truth is known: how often a rule errs, and how soon it decides.

The scores, the e-values and the bandits are those that live traffic is judged with; only the units are drawn from
a random generator. Everything that comes out of here is simulated and must be called so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from whet_live.experiments.allocation import ArmTally, shares
from whet_live.experiments.confidence_sequences import lead_width
from whet_live.experiments.definition import AllocationPolicy
from whet_live.experiments.effects import Array, Mask, MetricSample, Numbers, build_arm_scores, log_capital

NEVER = 2**62
"""The number of units of a decision that was not reached."""

_CHUNK = 100


@dataclass(frozen=True)
class SimulatedExperiment:
    """Arms with known chances of a success; `drift` is added to all of them over the units, as half a wave
    (from -drift to +drift), which a comparison must not mistake for a difference."""

    means: tuple[float, ...]
    drift: float = 0.0

    def outcomes(self, rng: np.random.Generator, arms: Numbers, start: int, units: int) -> Array:
        """Outcomes 0 and 1 of units start, start + 1, ... (last axis) that got these arms, out of `units`."""
        time = (start + np.arange(arms.shape[-1])) / units
        chance = np.array(self.means)[arms] - self.drift * np.cos(math.pi * time)
        values: Array = (rng.random(arms.shape) < chance).astype(np.float64)
        return values


@dataclass(frozen=True)
class Decisions:
    """What each repetition decided: `winner` is an arm or -1, `units` the number of assigned units until then (NEVER
    without a decision), `best_share` the share of the units before it that the best arm had."""

    winner: Numbers
    units: Numbers
    best_share: Array

    def wrong(self, world: SimulatedExperiment) -> int:
        """Repetitions with a winner that is not a best arm."""
        best = [arm for arm, mean in enumerate(world.means) if mean == max(world.means)]
        return int(np.count_nonzero((self.winner >= 0) & ~np.isin(self.winner, best)))

    @property
    def decided(self) -> int:
        """Repetitions with a winner."""
        return int(np.count_nonzero(self.winner >= 0))


def draw(
    rng: np.random.Generator,
    world: SimulatedExperiment,
    policy: AllocationPolicy,
    repetitions: int,
    units: int,
) -> MetricSample:
    """Units of all repetitions, (repetitions, units), assigned by the policy from what was settled before."""
    n = len(world.means)
    arms = np.zeros((repetitions, units), dtype=np.int64)
    values, chances = np.zeros((repetitions, units)), np.full((repetitions, units, n), 1.0 / n)
    tallies = [[ArmTally()] * n for _ in range(repetitions)]
    step = units if policy.kind in ("fixed", "ramp") else policy.units
    for start in range(0, units, step):
        stop = min(units, start + step)
        if start:
            weights = np.array([shares(policy, row) for row in tallies])
            chances[:, start:stop] = weights[:, None, :]
        edges = np.cumsum(chances[:, start:stop], axis=-1)[..., :-1]
        arms[:, start:stop] = (rng.random((repetitions, stop - start))[..., None] > edges).sum(axis=-1)
        values[:, start:stop] = world.outcomes(rng, arms[:, start:stop], start, units)
        tallies = [
            [_add(tally, row, hits, arm) for arm, tally in enumerate(known)]
            for known, row, hits in zip(tallies, arms[:, start:stop], values[:, start:stop], strict=True)
        ]
    return MetricSample(arms, values, chances)


def _add(tally: ArmTally, arms: Numbers, values: Array, arm: int) -> ArmTally:
    mine = values[arms == arm]
    return ArmTally(
        tally.n + len(mine), tally.total + float(mine.sum()), tally.squares + float((mine**2).sum())
    )


def chunks(repetitions: int) -> Iterator[int]:
    """Sizes of the parts in which repetitions are simulated, to bound the memory."""
    for start in range(0, repetitions, _CHUNK):
        yield min(_CHUNK, repetitions - start)


def first_look(reached: Mask, every: int = 1) -> Numbers:
    """Number of units at the first look, one after every `every` units, that finds True; NEVER without one."""
    seen = reached[..., every - 1 :: every]
    looks: Numbers = np.where(seen.any(axis=-1), (seen.argmax(axis=-1) + 1) * every, NEVER)
    return looks


def winners(sample: MetricSample, alpha: float = 0.05, every: int = 1, lead: bool = True) -> Decisions:
    """The winner by the rule of live experiments, with a look after every `every` units; without `lead` by the e-value alone,
    as warnings are given."""
    n = sample.chances.shape[-1]
    proven = np.ones((n, *sample.arms.shape), dtype=bool)
    for one, zero in permutations(range(n), 2):
        known = build_arm_scores(sample, one, zero)
        proven[one] &= np.maximum.accumulate(log_capital(known, 0.0), axis=-1) >= math.log(n / alpha)
        if lead:
            units = np.maximum(np.cumsum(known.used, axis=-1), 1)
            mean = np.cumsum(known.phi, axis=-1) / units
            proven[one] &= mean > known.spread * lead_width(units, n / alpha)
    looks = np.stack([first_look(one, every) for one in proven], axis=-1)
    winner, units = looks.argmin(axis=-1), looks.min(axis=-1)
    best = np.where(units < NEVER, winner, -1)
    return Decisions(best, units, np.zeros(units.shape))


def published_winners(
    sample: MetricSample, delta: float = 0.05, every: int = 1, least: int = 10
) -> Decisions:
    """The winner of two arms by a published stopping rule, to compare with (TensorZero, adaptive experiments, 2025).

    The generalised likelihood ratio (gap^2) / (2 (var_1/n_1 + var_0/n_0)) has to exceed ln((1 + ln t) / delta) after
    t units, with at least `least` units in each arm; variances are at least 1e-12.
    """
    one = sample.arms == 1
    n1, n0 = np.cumsum(one, axis=-1), np.cumsum(~one, axis=-1)
    hits1, hits0 = np.cumsum(one * sample.values, axis=-1), np.cumsum(~one * sample.values, axis=-1)
    m1, m0 = hits1 / np.maximum(n1, 1), hits0 / np.maximum(n0, 1)
    spread = np.maximum(m1 * (1 - m1), 1e-12) / np.maximum(n1, 1)
    spread += np.maximum(m0 * (1 - m0), 1e-12) / np.maximum(n0, 1)
    t = np.arange(1, sample.arms.shape[-1] + 1)
    reached = ((m1 - m0) ** 2 / (2 * spread) > np.log((1 + np.log(t)) / delta)) & (
        np.minimum(n1, n0) >= least
    )
    units = first_look(reached, every)
    at = np.minimum(units, sample.arms.shape[-1]) - 1
    ahead = np.take_along_axis(m1 - m0, at[:, None], axis=-1)[:, 0] > 0
    return Decisions(np.where(units < NEVER, ahead.astype(np.int64), -1), units, np.zeros(units.shape))


def simulate(
    world: SimulatedExperiment,
    policy: AllocationPolicy,
    repetitions: int,
    units: int,
    seed: int,
    alpha: float = 0.05,
    every: int = 1,
    lead: bool = True,
) -> Decisions:
    """Repeat an experiment of at most `units` units and say what each repetition decides, and when. `lead` as in `winners`."""
    rng = np.random.default_rng(seed)
    best = int(np.argmax(world.means))
    parts = []
    for size in chunks(repetitions):
        sample = draw(rng, world, policy, size, units)
        part = winners(sample, alpha, every, lead)
        spent = np.minimum(part.units, units)
        before = np.arange(units) < spent[:, None]
        share = ((sample.arms == best) & before).sum(axis=1) / spent
        parts.append(Decisions(part.winner, part.units, share))
    return join_decisions(parts)


def join_decisions(parts: Sequence[Decisions]) -> Decisions:
    """The decisions of several parts, one after another."""
    return Decisions(
        np.concatenate([part.winner for part in parts]),
        np.concatenate([part.units for part in parts]),
        np.concatenate([part.best_share for part in parts]),
    )
