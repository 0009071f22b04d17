"""Anytime-valid inference for the mean of bounded values, by betting.

A gambler starts with 1 and bets on every value that the mean is larger than m. If it is not, the
game is unfair to the gambler, and by Ville's inequality the chance that the capital *ever* reaches c
is at most 1/c. So a large capital is evidence against "the mean is at most m", and it stays valid
after any number of looks and under any rule for stopping.

For values x in [0, 1] the capital of the bet b in (0, 1) against the mean m is

    K_b(m) = prod_i (1 - b + b * x_i / m),          K(m) = sum_b w_b * K_b(m).

Every factor is non-negative and has the expectation 1 under the mean m, so K(m) is a test martingale
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86(1),
2024, section 4: capital process). The average over a fixed grid of bets is their diversified betting
(appendix B) and the method of mixtures (Robbins 1970). Three properties follow from the fixed grid:
the result does not depend on the order of the values, batches can be added one after another, and
K(m) falls as m grows (each factor does), so that the means that are not refuted form an interval.

The weights are those of the density proportional to b(1 - b), Beta(2, 2), on 26 points equidistant in
the logit of b: by measurement the most powerful of the mixtures tried at 20 to 500 paired outcomes
(`benchmarks/gate_power.py`, docs/figures.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError

Array = NDArray[np.float64]

_LOGITS: Array = np.arange(26, dtype=np.float64) * 0.4 - 6.0
BETS: Array = np.exp(_LOGITS) / (1.0 + np.exp(_LOGITS))
"""The grid of bets: the fraction of the capital that is lost on the worst value. From 0.0025 to 0.982."""

_DENSITY: Array = (BETS * (1.0 - BETS)) ** 2  # Beta(2, 2) times the derivative of b by its logit
LOG_WEIGHTS: Array = np.log(_DENSITY / _DENSITY.sum())
"""Natural logarithms of the share of the capital that each bet starts with."""

MOST_EXAMPLES = 1_000_000
_TOLERANCE = 1e-9
_SMALLEST_MEAN = 1e-12
_LAST_STEP = 1e-11
_MOST_STEPS = 100


def unit_values(values: Sequence[float] | Array, low: float, high: float) -> Array:
    """Map values from [low, high] to [0, 1]: x = (value - low) / (high - low).

    A value outside the range by a rounding error (1e-9 of its width) counts as the end of the range.
    Raises UsageError for an empty or infinite range, no values, a value that is not a number or
    lies outside the range.
    """
    width = high - low
    if not (width > 0 and math.isfinite(width)):
        raise UsageError(f"The range [{low}, {high}] is empty or not finite; low must be below high.")
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise UsageError("There are no values; an interval or a comparison needs at least one example.")
    unit: Array = (array - low) / width
    outside = np.flatnonzero(~((unit >= -_TOLERANCE) & (unit <= 1.0 + _TOLERANCE)))
    if outside.size:
        index = int(outside[0])
        raise UsageError(
            f"Value {array[index]} (position {index}) is not in the declared range [{low}, {high}]; "
            "correct the reward or its range."
        )
    return np.clip(unit, 0.0, 1.0)


def _group_values(values: Sequence[float] | Array, low: float, high: float) -> tuple[Array, Array]:
    """The distinct values, mapped to [0, 1], and how often each occurs."""
    unit, counts = np.unique(unit_values(values, low, high), return_counts=True)
    return unit, counts.astype(np.float64)


def _factors(unit: Array, mean: float) -> Array:
    """Growth of every bet (row) on every value (column) against a mean in (0, 1): 1 + b (x / mean - 1)."""
    factors: Array = np.outer(BETS, unit / mean - 1.0)
    factors += 1.0
    return factors


def log_mixture(growth: Array) -> float:
    """Log of the mixture of capitals, log sum_b w_b exp(growth_b), without overflow."""
    terms = LOG_WEIGHTS + growth
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum()))


@dataclass(frozen=True, slots=True)
class EProcess:
    """Evidence against H0: E[d] <= null, for differences d in [-1, 1]; null in (-1, 1).

    With null = 0 the capital of the bet b is prod_i (1 + b d_i): a tie leaves it as it is. The e-value
    is the mixture K of the module's docstring at x = (d + 1)/2, m = (null + 1)/2. Under H0 the chance
    that it ever reaches c, at whatever look, is at most 1/c. An immutable value: `update` returns the
    process with the new differences added, and batches in any order give the same e-value.
    """

    null: float = 0.0
    n: int = 0
    growth: tuple[float, ...] = (0.0,) * len(BETS)

    def __post_init__(self) -> None:
        """Refuse a null hypothesis outside (-1, 1)."""
        if not -1.0 < self.null < 1.0:
            raise UsageError(f"null is {self.null}; a difference in units of the range lies in (-1, 1).")

    def update(self, differences: Sequence[float] | Array) -> EProcess:
        """Add differences in [-1, 1]. Raises UsageError if there is none or one is outside the range."""
        unit, counts = _group_values(differences, -1.0, 1.0)
        growth = np.array(self.growth) + np.log(_factors(unit, (self.null + 1.0) / 2.0)) @ counts
        return EProcess(self.null, self.n + int(counts.sum()), tuple(growth.tolist()))

    @property
    def log_e_value(self) -> float:
        """Natural logarithm of the e-value; 0 before the first difference."""
        return log_mixture(np.array(self.growth))

    @property
    def e_value(self) -> float:
        """The e-value, at most the largest finite float."""
        return math.exp(min(self.log_e_value, math.log(sys.float_info.max)))

    def examples_needed(self, threshold: float) -> int | None:
        """Number of examples at which data like those seen so far would reach an e-value of `threshold`.

        Needs n >= 1 and threshold > 1. Repeating the n differences k/n times multiplies every log
        capital by k/n; the log of the mixture is convex in k and 0 at k = 0, so the k that reach the
        threshold form an upper ray and bisection finds the smallest. None if it is above `MOST_EXAMPLES`.
        """
        growth = np.array(self.growth) / self.n
        goal = math.log(threshold)
        if log_mixture(growth * MOST_EXAMPLES) < goal:
            return None
        below, reaches = 0, MOST_EXAMPLES
        while reaches - below > 1:
            middle = (below + reaches) // 2
            if log_mixture(growth * middle) >= goal:
                reaches = middle
            else:
                below = middle
        return reaches


def confidence_sequence(
    values: Sequence[float] | Array, low: float, high: float, alpha: float = 0.05
) -> tuple[float, float]:
    """Both ends of a confidence sequence for the mean of values in [low, high], at the present n.

    With probability at least 1 - alpha the mean lies inside the intervals of *all* n at once, for any
    distribution on the range. It consists of the means m that neither of two gamblers has refuted:
    one bets that the mean is larger, the other that it is smaller (the same bets on 1 - x against
    1 - m), each with half of the capital:

        { m : max(K(m) / 2, K'(m) / 2) < 1 / alpha }

    (Waudby-Smith and Ramdas 2024, Theorem 3: hedged capital, theta = 1/2). Both capitals are monotone in
    m, so the set is an interval; `lower_end` finds its ends. The sample mean is always inside (Jensen).
    Raises UsageError for unusable values (see `unit_values`) or alpha outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it must lie in (0, 1).")
    unit, counts = _group_values(values, low, high)
    threshold = math.log(2.0 / alpha)
    below = lower_end(unit, counts, threshold)
    above = 1.0 - lower_end(1.0 - unit, counts, threshold)
    width = high - low
    return max(low, low + width * below), min(high, low + width * above)


@dataclass(frozen=True, slots=True)
class ClusterBets:
    """The bets of `EProcess` on clusters of rows, whose mean over *rows* is in question.

    `sums` are those of the differences of each cluster, `sizes` their rows, `largest` at least the largest of these. A cluster
    with the sum S of n rows stakes (S - n null) / (largest (1 + null)): as if it were filled up to the largest size with rows
    at `null`. Its expectation is at most 0 exactly if the mean over rows is at most `null`: clusters weigh what their rows do.
    """

    sums: Array
    sizes: Array
    largest: float

    def against(self, null: float) -> EProcess:
        """The evidence against "the mean over rows is at most null"."""
        filled = (self.sums + null * (self.largest - self.sizes)) / self.largest
        return EProcess(null).update(filled)

    def interval(self, alpha: float) -> tuple[float, float]:
        """The means over rows that neither of two gamblers has refuted, as in `confidence_sequence`."""
        if self.largest == 1:
            return confidence_sequence(self.sums, -1.0, 1.0, alpha)
        threshold = math.log(2.0 / alpha)
        mirrored = ClusterBets(-self.sums, self.sizes, self.largest)
        return self._lower(threshold), -mirrored._lower(threshold)

    def _lower(self, threshold: float) -> float:
        """The largest mean that is refuted, on the safe side by 1e-11: the capital falls as the mean grows."""
        refuted, open_ = -1.0, float(self.sums.sum() / self.sizes.sum())
        while open_ - refuted > _LAST_STEP:
            middle = (open_ + refuted) / 2
            if not -1.0 < middle < 1.0:
                break
            if self.against(middle).log_e_value >= threshold:
                refuted = middle
            else:
                open_ = middle
        return refuted


def lower_end(unit: Array, counts: Array, threshold: float) -> float:
    """The mean m below the sample mean at which log K(m) = threshold; 0 if there is none above 1e-12.

    Newton's method in s = log m. Each log K_b is a sum of log(1 - b + b x e^-s), convex and falling in s, and
    so is the log of their mixture: at most one step goes too far to the left, from there on the steps
    approach the root from the refuted side, and stopping early errs on the safe side. The slope is
    -d log K_b / ds = sum_i counts_i (1 - (1 - b) / factor_i), averaged over the bets by their capital.
    """
    n = float(counts.sum())
    floor = math.log(_SMALLEST_MEAN)
    position = math.log(max(float(counts @ unit) / n, _SMALLEST_MEAN))
    for _ in range(_MOST_STEPS):
        factors = _factors(unit, math.exp(position))
        growth = np.log(factors) @ counts
        log_capital = log_mixture(growth)
        slopes = n - (1.0 - BETS) * ((1.0 / factors) @ counts)
        slope = float(np.exp(LOG_WEIGHTS + growth - log_capital) @ slopes)
        step = (log_capital - threshold) / max(slope, _SMALLEST_MEAN)
        if abs(step) < _LAST_STEP or (step < 0 and position == floor):
            break
        position = max(position + step, floor)
    return 0.0 if position <= floor else math.exp(position)
