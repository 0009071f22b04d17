"""Comparisons of arms that are continued: evidence and interval of all units, computed from the new units and a stored state.

The state advances in blocks of BLOCK units. The result for a block depends only on the units before it, so everybody gets the
same figures to the last digit, however often they look.

An interval needs the capital at many nulls m that are not known in advance. It is the capital of a bettor who, after the first
HEAD units with the mean c, stakes b = min(s / spread, 0.95 / (c + ROOM - low)) for each m up to c + ROOM. The first HEAD units
are stored one by one, and so are later units that lie more than FAR spreads from c. Of the other units, sums of powers are
stored: with x = b (phi - m), which is never below -x0,

    log(1 + x) >= x - x^2/2 + x^3/3 - x^4/4 + x^5/5 - x^6 / (6 (1 - x0)^6)

(Taylor's theorem with Lagrange's remainder). The sum of the right-hand side over the units is a polynomial in m, whose
coefficients are sums of b^j (phi - c)^i. So the capital is bounded from below, and the interval can only become wider. Bets
with a poor bound are left out, which also can only make the interval wider."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from whet_live.experiments.effects import (
    LOG_SHARES,
    MOST,
    SIZES,
    ArmScores,
    Array,
    Before,
    MetricSample,
    Numbers,
    build_arm_scores,
    log_capital_paths,
    log_imbalance,
    lowest,
    means,
)

BLOCK = 2048
"""Units by which a stored state advances."""
HEAD = 1024
"""The first units, which are stored one by one."""
FAR = 4.0
"""Later units are stored one by one if they lie so many spreads from the mean of the first units."""
ROOM = 0.2
"""The largest distance above that mean at which bets on stored sums can test a null."""
LEAD_SCALE = 0.085
"""The place at which the bound of a lead is tightest, in standard deviations of one score: in the middle of the bets."""
_ORDER = 6
_NEAREST = 0.6
_SIZES = int((SIZES * FAR <= _NEAREST).sum())
_LITTLE = -1e9
_TERMS: Array = np.array(
    [
        [math.comb(i + j, i) * (-1.0) ** (i + j + 1) / max(i + j, 1) for j in range(_ORDER + 1)]
        for i in range(_ORDER + 1)
    ]
)
_DEGREE = np.add.outer(np.arange(_ORDER + 1), np.arange(_ORDER + 1))
_FIRST: Array = np.where((_DEGREE > 0) & (_DEGREE < _ORDER), _TERMS, 0.0)
_LAST: Array = np.where(_DEGREE == _ORDER, _TERMS, 0.0)
"""Coefficients of the bound: those of degree 1 to 5, and that of degree 6."""

Scored = Callable[[MetricSample, Before], ArmScores]


class Null(NamedTuple):
    """A null hypothesis: the effect is at most `value`. With `swapped`, it is about the effect with swapped arms."""

    value: float
    swapped: bool = False


@dataclass(frozen=True)
class SequenceInterval:
    """A confidence sequence at `n` units, with the mean there; nan and the whole range for no units."""

    n: int
    estimate: float
    low: float
    high: float

    def swap_arms(self) -> SequenceInterval:
        """The interval of the effect with swapped arms."""
        return SequenceInterval(self.n, -self.estimate, -self.high, -self.low)

    def above(self, null: float) -> SequenceInterval:
        """The interval once the evidence against `null` was reached: its lower end is at least `null`, despite rounding."""
        return replace(self, low=max(self.low, null))

    def times(self, width: float) -> SequenceInterval:
        """The interval on another scale: all figures times `width`."""
        return SequenceInterval(self.n, self.estimate * width, self.low * width, self.high * width)


@dataclass(frozen=True)
class Sums:
    """Sums over the units that are not stored, for bets on a larger (way 0) and a smaller (way 1) effect.

    `table` has the sums of x^i b^j at [way, size, i, j], where b is the bet of a size and x = b (phi - centre). `steepest` has
    the largest bet at [way, size].
    """

    table: Array
    steepest: Array

    @staticmethod
    def none() -> Sums:
        """Of no units."""
        return Sums(np.zeros((2, _SIZES, _ORDER + 1, _ORDER + 1)), np.zeros((2, _SIZES)))

    def plus(self, arm_scores: ArmScores, centre: float) -> Sums:
        """With more units."""
        away, steep = arm_scores.phi - centre, 1.0 / arm_scores.spread
        ceilings = [MOST / (ROOM + end) for end in (centre - arm_scores.low, arm_scores.high - centre)]
        plain = _powers(away * steep, steep)
        table, steepest = self.table.copy(), self.steepest.copy()
        for way, ceiling in enumerate(ceilings):
            for k, size in enumerate(SIZES[:_SIZES]):
                bets = np.minimum(size * steep, ceiling)
                cut = bool((size * steep > ceiling).any())
                table[way, k] += _powers(away * bets, bets) if cut else plain * size**_DEGREE
                steepest[way, k] = max(steepest[way, k], float(bets.max()))
        return Sums(table, steepest)

    def log(self, null: float, centre: float, way: int) -> Array:
        """A lower bound of the logarithm of the capital that each bet makes of 1; almost minus infinity for bets that are left
        out."""
        logs, away = np.full(len(SIZES), _LITTLE), null - centre * (1 - 2 * way)
        signs = np.multiply.outer(
            (1.0 - 2.0 * way) ** np.arange(_ORDER + 1), (-away) ** np.arange(_ORDER + 1)
        )
        nearest = SIZES[:_SIZES] * FAR + max(away, 0.0) * self.steepest[way]
        good = (nearest <= _NEAREST) & (away <= ROOM)
        rest = (self.table[way] * _LAST * signs).sum(axis=(1, 2)) / (
            1.0 - np.minimum(nearest, _NEAREST)
        ) ** _ORDER
        bound = (self.table[way] * _FIRST * signs).sum(axis=(1, 2)) + rest
        logs[:_SIZES] = np.where(good, bound, _LITTLE)
        return logs


def _powers(x: Array, b: Array) -> Array:
    """Sums of x^i b^j at [i, j]."""
    rows = np.ones((2, _ORDER + 1, len(x)))
    for k in range(1, _ORDER + 1):
        np.multiply(rows[:, k - 1], (x, b), out=rows[:, k])
    products: Array = rows[0] @ rows[1].T
    return products


@dataclass(frozen=True)
class Capital:
    """The state from which the capital at any null is computed: the stored units (`kept`), and `sums` over the others.

    `centre` is the mean score of the first HEAD units, `last` the spread of the newest unit.
    """

    n: int = 0
    total: float = 0.0
    last: float = 1.0
    centre: float = 0.0
    kept: ArmScores = field(default_factory=lambda: ArmScores(np.zeros(0, dtype=bool), *[np.zeros(0)] * 4))
    sums: Sums | None = None

    @property
    def mean(self) -> float:
        """The mean score; nan before the first unit."""
        return self.total / self.n if self.n else math.nan

    def plus(self, arm_scores: ArmScores, bounds: bool = True) -> Capital:
        """The state after further units, all of them used. Without `bounds`, only number and mean are updated."""
        count, first = len(arm_scores.phi), max(0, HEAD - self.n)
        if not count:
            return self
        if not bounds:
            return replace(self, n=self.n + count, total=self.total + float(arm_scores.phi.sum()))
        centre = self.centre if not first else (self.total + float(arm_scores.phi[:first].sum())) / HEAD
        apart = (np.arange(count) < first) | (np.abs(arm_scores.phi - centre) > FAR * arm_scores.spread)
        sums = self.sums if apart.all() else (self.sums or Sums.none()).plus(arm_scores.only(~apart), centre)
        total, kept = self.total + float(arm_scores.phi.sum()), self.kept.then(arm_scores.only(apart))
        return Capital(self.n + count, total, float(arm_scores.spread[-1]), centre, kept, sums)

    def log(self, null: Null) -> float:
        """A lower bound of the logarithm of the capital, exact while all units are kept."""
        kept = self.kept.swap_arms() if null.swapped else self.kept
        room = max(null.value, (-self.centre if null.swapped else self.centre) + ROOM)
        most = np.where(np.arange(len(kept.phi)) < HEAD, null.value, room)
        bets = np.minimum(SIZES[:, None] / kept.spread, MOST / (most - kept.low))
        growth = np.log1p(bets * (kept.phi - null.value)).sum(axis=-1) + LOG_SHARES
        if self.sums is not None:
            growth += self.sums.log(null.value, self.centre, int(null.swapped))
        top = float(growth.max())
        return top + math.log(float(np.exp(growth - top).sum()))

    def interval(self, needed: float, span: tuple[float, float]) -> SequenceInterval:
        """The effects that a capital of `needed` has not refuted, each end by itself; `span` is the range of possible effects."""
        if not self.n:
            return SequenceInterval(0, math.nan, *span)
        mean, step, threshold = self.mean, self.last / math.sqrt(self.n), math.log(needed)
        low = lowest(lambda m: self.log(Null(m)) - threshold, span[0], mean, step)
        high = -lowest(lambda m: self.log(Null(m, True)) - threshold, -span[1], -mean, step)
        return SequenceInterval(self.n, mean, low, high)

    def lead(self, needed: float, swapped: bool = False) -> float:
        """A lower bound of the mean effect of the units so far, also where the effect changes over time with the spread.

        The one-sided asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform
        central limit theory and asymptotic confidence sequences" (Annals of Statistics 52, 2024), at the level 1/needed.
        It gives all units one weight; bets give more of it to units whose scores spread less.
        """
        if not self.n:
            return -math.inf
        return (-self.mean if swapped else self.mean) - self.last * float(lead_width(self.n, needed))


def lead_width(n: Numbers | int, needed: float) -> Array:
    """The distance of the bound of `Capital.lead` below the mean of n scores, in standard deviations of one score."""
    scaled = n * LEAD_SCALE**2 + 1.0
    return np.asarray(np.sqrt(2.0 * scaled * np.log1p(np.sqrt(scaled) * needed / 2.0)) / (n * LEAD_SCALE))


@dataclass
class SequenceState:
    """The state of a comparison after some units. For each null, `paths` has the capital of each bet, `tops` the logarithm of the
    largest capital so far, and `peaks` the `Capital` at that unit. `now` is the `Capital` after all units."""

    before: Before
    paths: list[Array]
    tops: list[float]
    peaks: list[Capital]
    now: Capital = field(default_factory=Capital)

    def add(self, arm_scores: ArmScores, nulls: Sequence[Null], bounds: bool) -> None:
        """Take in further units."""
        used = arm_scores.only(arm_scores.used)
        if not len(used.phi):
            return
        for i, null in enumerate(nulls):
            way = used.swap_arms() if null.swapped else used
            paths, log = log_capital_paths(way, null.value, self.paths[i])
            best = int(log.argmax())
            if log[best] > self.tops[i]:
                self.tops[i] = float(log[best])
                self.peaks[i] = self.now.plus(used.only(slice(0, best + 1)), bounds)
            self.paths[i] = paths
        self.now = self.now.plus(used, bounds)

    def copy(self) -> SequenceState:
        """An independent copy."""
        return SequenceState(self.before.copy(), [*self.paths], [*self.tops], [*self.peaks], self.now)

    def evidence(self, i: int) -> float:
        """The largest capital that was ever reached against a null, capped at e^300; 1 before the first unit."""
        return math.exp(min(300.0, self.tops[i]))


class ConfidenceSequence:
    """One comparison of arms, continued from block to block against some nulls. Without `bounds` it gives no interval."""

    def __init__(self, scored: Scored, nulls: Sequence[Null], bounds: bool = True) -> None:
        self._scored, self._nulls, self._bounds = scored, tuple(nulls), bounds
        many = len(self._nulls)
        self._done = 0
        self._state = SequenceState(Before(), [LOG_SHARES] * many, [0.0] * many, [Capital()] * many)

    def follow(self, sample: MetricSample) -> SequenceState:
        """The state after all units of a sample, which continues the sample of the last call."""
        n = len(sample.arms)
        while self._done + BLOCK <= n:
            self._add(self._state, sample, self._done, self._done + BLOCK)
            self._done += BLOCK
        state = self._state.copy()
        self._add(state, sample, self._done, n)
        return state

    def _add(self, state: SequenceState, sample: MetricSample, start: int, stop: int) -> None:
        state.add(self._scored(sample.part(start, stop), state.before), self._nulls, self._bounds)


class Imbalance:
    """The evidence that the arms got other numbers of units than their shares explain, continued from block to block."""

    def __init__(self) -> None:
        self._before, self._top, self._done = Before(), 0.0, 0

    def follow(self, sample: MetricSample) -> float:
        """The logarithm of the largest e-value so far, 0 at least."""
        n = len(sample.arms)
        while self._done + BLOCK <= n:
            self._top = self._more(self._before, sample.part(self._done, self._done + BLOCK))
            self._done += BLOCK
        return self._more(self._before.copy(), sample.part(self._done, n))

    def _more(self, before: Before, part: MetricSample) -> float:
        return max(self._top, float(log_imbalance(part.arms, part.chances, before).max(initial=0.0)))


class ConfidenceSequences:
    """All comparisons of one experiment. Not for several threads at once.

    Samples continue those of earlier calls, unless `renew` says otherwise.
    """

    def __init__(self) -> None:
        self._sequences: dict[tuple[object, ...], ConfidenceSequence] = {}
        self._imbalance = Imbalance()
        self._epoch: object = None
        self._seen: dict[str, int] = {}

    def renew(self, epoch: object, sizes: Mapping[str, int]) -> None:
        """Begin again if the epoch is another one, or there are fewer units than before."""
        if epoch != self._epoch or any(sizes.get(name, 0) < n for name, n in self._seen.items()):
            self._sequences, self._imbalance, self._epoch = {}, Imbalance(), epoch
        self._seen = dict(sizes)

    def pair(
        self, key: str, sample: MetricSample, one: int, zero: int, nulls: Sequence[Null], bounds: bool = True
    ) -> SequenceState:
        """Arm `one` against arm `zero`; `key` names the sample. Without `bounds` there is no interval."""
        sequence = ConfidenceSequence(
            lambda part, before: build_arm_scores(part, one, zero, before), nulls, bounds
        )
        return self._sequences.setdefault((key, one, zero, *nulls, bounds), sequence).follow(sample)

    def mean(self, key: str, sample: MetricSample, arm: int, nulls: Sequence[Null] = ()) -> SequenceState:
        """The outcomes of one arm."""
        sequence = ConfidenceSequence(lambda part, before: means(part, arm, before), nulls)
        return self._sequences.setdefault((key, arm, *nulls), sequence).follow(sample)

    def imbalance(self, units: MetricSample) -> float:
        """The logarithm of the evidence that the arms got other numbers of units than their shares explain."""
        return self._imbalance.follow(units)
