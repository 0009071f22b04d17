"""The effect of one arm over another, with evidence that stays valid at any number of looks.

Units are randomised with known chances, so the difference of two arms can be scored one unit at a time. For
arms 1 and 0, a unit that got arm 1 with the chance p (given that it got one of the two), and predictions m1
and m0 of its outcome made before it was seen, the score

    phi = m1 - m0 + 1{arm 1} (y - m1) / p - 1{arm 0} (y - m0) / (1 - p)

has the unit's true effect as its expectation, whatever the predictions were (augmented inverse-propensity
weighting: Robins, Rotnitzky and Zhao, JASA 89, 1994; for sequential designs Waudby-Smith et al., "Anytime-
valid off-policy inference for contextual bandits", 2024, section 3). Good predictions only make its variance
small. Scores are bounded, so that betting on them gives a test martingale for "the effect is at most m":

    K(m) = sum_s w_s prod_t (1 + min(s / sigma_t, c / (m - low_t)) (phi_t - m)),

where low_t is the smallest score that unit t could have had and sigma_t the spread of the scores before it.
Everything with an index t is known before the unit's arm is drawn. By Ville's inequality the chance that K(m)
*ever* reaches 1/alpha is at most alpha: after any number of looks, under any rule for stopping, and with
chances that depend on everything seen before. Each factor falls as m grows, so that the effects that are not
refuted form an interval.

Assumed: outcomes lie in [0, 1]; the chances are the true ones; what a unit would answer does not depend on
its hash; one unit does not influence another. Not assumed: equal variances, a stable mean over time (the
effect estimated is then the mean over the units seen), or any distribution.

Arrays have the units on the last axis, in the order in which their outcomes were settled; axes before it, if
any, are independent repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_Z: Array = np.linspace(-2.2, 2.2, 15)
SIZES: Array = 0.085 * np.exp(0.7 * _Z)
"""The bets: standardised effects, in standard deviations of one score, from 0.018 to 0.40."""
LOG_SHARES: Array = -0.5 * _Z**2 - math.log(float(np.exp(-0.5 * _Z**2).sum()))
"""Logarithms of the capital that each bet starts with: log-normal around 0.085."""

MOST = 0.95
"""The most that a bet may lose of its capital with one unit."""
_SHRINK = 1.0
_STRATUM_SHRINK = 10.0
_STEPS = 40
_CONCENTRATION = 100.0
_PRECISION = 1e-5


@dataclass(frozen=True)
class MetricSample:
    """Settled units of one metric: the arm's index, the outcome in [0, 1] (nan where none arrived), the
    chances of all arms when the unit was assigned (arms on the last axis) and the stratum's index."""

    arms: Numbers
    values: Array
    chances: Array
    strata: Numbers | None = None

    def part(self, start: int, stop: int) -> MetricSample:
        """Some of the units, one after another."""
        at = slice(start, stop)
        strata = None if self.strata is None else self.strata[..., at]
        return MetricSample(self.arms[..., at], self.values[..., at], self.chances[..., at, :], strata)


@dataclass(frozen=True)
class ArmScores:
    """Scores of arm 1 against arm 0: `used` marks units of the two with an outcome; elsewhere nothing counts.

    `low` and `high` are the smallest and largest score that the unit could have had, `spread` is the root mean
    square of the scores before it.
    """

    used: Mask
    phi: Array
    low: Array
    high: Array
    spread: Array

    def swap_arms(self) -> ArmScores:
        """The scores of arm 0 against arm 1."""
        return ArmScores(self.used, -self.phi, -self.high, -self.low, self.spread)

    def only(self, at: Mask | slice) -> ArmScores:
        """Some of the units."""
        return ArmScores(*(one[at] for one in vars(self).values()))

    def then(self, more: ArmScores) -> ArmScores:
        """These units and more of them."""
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return ArmScores(*(np.concatenate(pair) for pair in pairs))


class Before:
    """Sums over the units before each unit, along the last axis, which go on from one call to the next by their names."""

    def __init__(self, sums: Mapping[str, Array] | None = None) -> None:
        self._sums = dict(sums or {})

    def __call__(self, name: str, x: Array) -> Array:
        """The sums before each unit of `x`, which goes on what had this name."""
        if not x.shape[-1]:
            return x
        sums = np.cumsum(x, axis=-1) + self._sums.get(name, 0.0)
        self._sums[name] = sums[..., -1:]
        return np.asarray(sums - x, dtype=np.float64)

    def copy(self) -> Before:
        """Sums that go on by themselves."""
        return Before(self._sums)


def build_arm_scores(sample: MetricSample, one: int, zero: int, before: Before | None = None) -> ArmScores:
    """Scores of arm `one` against arm `zero`, each an unbiased estimate of the unit's effect in [-1, 1]. `before` has the
    sums of the units before the sample, if there are any, and goes on."""
    before = before or Before()
    chance = np.asarray(sample.chances, dtype=np.float64)
    first, second = chance[..., one], chance[..., zero]
    both = (first > 0.0) & (second > 0.0)
    p = np.where(both, first / np.where(both, first + second, 1.0), 0.5)
    hit = (sample.arms == one) | (sample.arms == zero)
    used = hit & both & ~np.isnan(sample.values)
    y = np.where(used, sample.values, 0.0)
    taken = (used & (sample.arms == one)).astype(np.float64)
    other = used - taken
    m1, m0 = _predictions(y, (taken, other), sample.strata, before)
    gap = m1 - m0
    phi = gap + taken * (y - m1) / p - other * (y - m0) / (1.0 - p)
    low = gap - np.maximum(m1 / p, (1.0 - m0) / (1.0 - p))
    high = gap + np.maximum((1.0 - m1) / p, m0 / (1.0 - p))
    phi = np.where(used, phi, 0.0)
    spread = np.sqrt((before("squares", phi**2) + 1.0) / (before("used", used.astype(np.float64)) + 1.0))
    return ArmScores(used, phi, low, high, spread)


def _predictions(
    y: Array, arms: tuple[Array, Array], strata: Numbers | None, before: Before
) -> tuple[Array, Array]:
    """Means of both arms before each unit: an arm's is drawn to the common one, a stratum's to its arm's."""
    pool = (before("y", y) + 0.5) / (before("n", arms[0] + arms[1]) + 1.0)
    predicted = []
    for number, arm in enumerate(arms):
        mean = (before(f"y {number}", y * arm) + _SHRINK * pool) / (before(f"n {number}", arm) + _SHRINK)
        if strata is not None:
            overall = mean.copy()
            for stratum in np.unique(strata):
                inside, name = (strata == stratum).astype(np.float64) * arm, f"{number} {stratum}"
                total, count = before(f"y {name}", y * inside), before(f"n {name}", inside)
                own = (total + _STRATUM_SHRINK * overall) / (count + _STRATUM_SHRINK)
                mean = np.where(strata == stratum, own, mean)
        predicted.append(mean)
    return predicted[0], predicted[1]


def means(sample: MetricSample, arm: int, before: Before | None = None) -> ArmScores:
    """The outcomes of one arm as scores of its mean, for a test against a fixed value in (0, 1). `before` as in `scores`."""
    before = before or Before()
    used = (sample.arms == arm) & ~np.isnan(sample.values)
    y = np.where(used, sample.values, 0.0)
    counted = used.astype(np.float64)
    n = before("n", counted)
    mean = (before("y", y) + 0.5) / (n + 1.0)
    variance = (before("squares", np.where(used, (y - mean) ** 2, 0.0)) + 0.25) / (n + 1.0)
    return ArmScores(used, y, np.zeros_like(y), np.ones_like(y), np.sqrt(variance))


def log_capital(arm_scores: ArmScores, null: float) -> Array:
    """Natural logarithm of K(null) after each unit: evidence that the effect is larger than `null`.

    null must lie above the lowest possible effect: in (-1, 1) for differences, (0, 1) for means.
    """
    return log_capital_paths(arm_scores, null, LOG_SHARES)[1]


def log_capital_paths(arm_scores: ArmScores, null: float, start: Array) -> tuple[Array, Array]:
    """The same on from the logarithms of the capital of each bet, (bets, ...); those after the last unit, and the sum of all
    bets after each unit."""
    ceiling = MOST / (null - arm_scores.low)
    gain = arm_scores.phi - null
    paths = np.empty((len(SIZES), *gain.shape))
    for path, size, first in zip(paths, SIZES, start, strict=True):
        bet = np.minimum(size / arm_scores.spread, ceiling)
        np.cumsum(np.where(arm_scores.used, np.log1p(bet * gain), 0.0), axis=-1, out=path)
        path += first
    last = paths[..., -1].copy() if paths.shape[-1] else start
    top = paths.max(axis=0)
    np.exp(paths - top, out=paths)
    return last, np.asarray(top + np.log(paths.sum(axis=0)), dtype=np.float64)


def lowest(excess: Callable[[float], float], floor: float, mean: float, step: float) -> float:
    """The largest value below the mean that is refuted (excess >= 0), or the floor; within 1e-5, on the safe side.

    `excess` falls with its argument. The way down from the mean is doubled until a value is refuted, and the rest is
    found by false position (Illinois variant).
    """
    high, low, step = mean, mean - 3.0 * step, 3.0 * step
    above, below = -1.0, -1.0
    while low > floor and (below := excess(low)) < 0.0:
        high, above, step = low, below, 2.0 * step
        low -= step
    if low <= floor:
        return floor
    for _ in range(_STEPS):
        if high - low <= _PRECISION:
            break
        share = min(0.9, max(0.1, below / (below - above)))
        middle = low + share * (high - low)
        value = excess(middle)
        if value >= 0.0:
            low, below, above = middle, value, above / 2.0
        else:
            high, above, below = middle, value, below / 2.0
    return low


def log_imbalance(arms: Numbers, chances: Array, before: Before | None = None) -> Array:
    """Logarithm of an e-process against "the arms were drawn with these chances" after each unit.

    Each unit's arm is bet on in the proportion chance x (counted + c) / (expected + c) of the arms so far, c = 100,
    which no bettor gains by if the chances are true (sequential test of a sample ratio mismatch, after
    Lindon and Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022).
    """
    before = before or Before()
    shares = np.moveaxis(chances, -1, 0)
    drawn = (arms == np.arange(len(shares)).reshape(-1, *[1] * arms.ndim)).astype(np.float64)
    ratio = (before("counted", drawn) + _CONCENTRATION) / (before("expected", shares) + _CONCENTRATION)
    own = np.take_along_axis(ratio, arms[None], axis=0)[0]
    steps = np.log(own) - np.log((shares * ratio).sum(axis=0))
    path: Array = before("steps", steps) + steps
    return path
