"""The fixed-sample test of two prompts on the same rows.

Rows of one cluster are one piece of evidence. A cluster c has the sum x_c of its rows' differences and their number m_c; the
estimate is the mean over rows, sum x / sum m.

**Sign flips.** If theta is the mean and the deviations x_c - theta m_c are as likely to have the one sign as the other, then
the sign of each can be flipped, and the p-value is the share of flips whose studentised mean is at least the observed one
(Fisher 1935). A flip leaves the squares, and so the studentised order, as they are: it counts if the clusters that it
turns have a mean of at most theta,

    p(theta) = P(sum over a random subset of (x_c - theta m_c) <= 0).

That rises with theta: the means that it does not refute form an interval, between quantiles of the means of random subsets
(Hartigan 1969, JASA 64:1303-1317, "typical values"). Marks on a few levels make many flips equal to the observation; at theta = 0
the sum of the signed roots of |x_c| orders those, as any statistic may, so that the test is not blunt.

**Gaffke's bound** (Gaffke 2005; Learned-Miller and Thomas 2019, arXiv 1905.06208) assumes the range and nothing else: the
clusters, and one more at the worst possible value, get weights from the flat Dirichlet distribution, and p(theta) is the
probability that the weighted mean is at most theta. It is proved for two values, where it is that of Clopper and Pearson, and no
case is known in which it fails. For right-or-wrong rewards, p(0) is the exact test of McNemar (1947): with w wins and l losses,
P(Gamma(w) <= Gamma(l + 1)) = P(Bin(w + l, 1/2) >= w).

Right-or-wrong rewards, each row a cluster, are tested by Gaffke's bound alone. All others are tested by sign flips, which are
exact under symmetry only: rare large losses make a sample look better than its population. So where the clusters are skewed
to the left by more than `SKEWED` standard errors, or do not vary at all, Gaffke's bound must agree, and wherever a caller
says so (`with_bound`). What a sample does not show, no trigger sees: docs/gate.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError

Array = NDArray[np.float64]

SKEWED = 2.0
"""Standard errors of the sample skewness under normality: a symmetric sample is below minus that in about 1 of 40 cases."""

EXACT = "exact McNemar test"
FLIPS = "sign-flip test"
GUARDED = "sign-flip test and Gaffke's bound"

MOST_CLUSTERS = 1_000_000
MOST_SUBSETS = 1 << 16
DRAWS = 99_999
_DRAWN = 100_000_000  # signs, for larger samples
_KEPT = 1_000_000  # signs, for the next sample of a simulation
_DIGITS = 12
_NOISE = 1e-11
_STEPS = 40
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Mean difference with the ends of its interval, one-sided p-value against the minimum effect, number of clusters.

    `method` names the test: `EXACT`, `FLIPS` or `GUARDED`. `needed`: clusters at which an effect like this one is shown with a
    probability of about 80%; None where there is none, or where more than `MOST_CLUSTERS` would be needed.
    """

    difference: float
    low: float
    high: float
    p_value: float
    clusters: int
    method: str
    needed: int | None


def clusters_of(requests: Sequence[Hashable], groups: Sequence[str | None]) -> list[int]:
    """The cluster of each row: rows of one group, and rows whose requests are equal, are together."""
    parent: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    for request, group in zip(requests, groups, strict=True):
        if group is not None:
            parent[root(("request", request))] = root(("group", group))
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(root(("request", request)), len(numbers)) for request in requests]


def cluster_sums(differences: Array, clusters: Sequence[int] | None) -> tuple[Array, Array]:
    """The sum of the differences of each cluster, and its number of rows; numbers of clusters may have gaps. Raises UsageError
    where there is not one number for each difference."""
    if clusters is None:
        return differences, np.ones(len(differences))
    if len(clusters) != len(differences):
        raise UsageError(
            f"clusters has {len(clusters)} numbers for {len(differences)} rows; each row needs one."
        )
    _, index, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    return np.bincount(index, weights=differences).astype(np.float64), sizes.astype(np.float64)


def paired_test(
    differences: Sequence[float] | Array,
    clusters: Sequence[int] | None = None,
    minimum_effect: float = 0.0,
    alpha: float = 0.05,
    draws: int = DRAWS,
    with_bound: bool = False,
) -> PairedTest:
    """Test differences in [-1, 1] of rows; `clusters` numbers the cluster of each row (default: each its own). `with_bound`:
    Gaffke's bound must agree, whatever the sample looks like.

    The interval has the confidence 1 - alpha. Its lower end is above the minimum effect only if the p-value is at most alpha / 2,
    and below it only if the p-value is larger; an end at the minimum effect may be either, and the p-value decides. All subsets
    are enumerated where at most `MOST_SUBSETS` of them differ, else `draws` of them are drawn (or `enough_draws`, if that is
    more), with a seed that depends on the data alone, and (hits + 1) / (draws + 1) is the p-value.
    The result depends neither on the order of the rows nor on their units, and comparing in the other direction mirrors it.
    """
    sample = _Sample(differences, clusters, max(draws, enough_draws(alpha)), with_bound)
    below, above = (partial(sample.p_value, sign=sign) for sign in (1.0, -1.0))
    return PairedTest(
        difference=math.fsum(sample.sums) / math.fsum(sample.sizes),
        low=_end(partial(below, least=alpha / 2), minimum_effect, alpha / 2),
        high=0.0 - _end(partial(above, least=alpha / 2), -minimum_effect, alpha / 2),
        p_value=below(minimum_effect),
        clusters=len(sample.sums),
        method=sample.method,
        needed=sample.clusters_needed(minimum_effect, alpha),
    )


def enough_draws(alpha: float) -> int:
    """Draws of which ten may be as extreme as the sample before its p-value passes alpha / 2."""
    return math.ceil(20 / alpha)


def p_value(
    differences: Sequence[float] | Array,
    clusters: Sequence[int] | None = None,
    minimum_effect: float = 0.0,
    draws: int = DRAWS,
) -> float:
    """The p-value of `paired_test` alone, for simulations."""
    return _Sample(differences, clusters, draws).p_value(minimum_effect, 1.0)


def p_value_curve(
    differences: Sequence[float] | Array, clusters: Sequence[int] | None = None, draws: int = DRAWS
) -> Callable[[float], float]:
    """The p-value of `paired_test` as a function of the minimum effect, where many are asked for."""
    return partial(_Sample(differences, clusters, draws).p_value, sign=1.0)


class _Sample:
    """The clusters of a sample, and what tests them."""

    def __init__(
        self,
        differences: Sequence[float] | Array,
        clusters: Sequence[int] | None,
        draws: int,
        with_bound: bool = False,
    ) -> None:
        d = np.asarray(np.round(np.asarray(differences, dtype=np.float64), _DIGITS), dtype=np.float64)
        sums, self.sizes = cluster_sums(d, clusters)
        self.sums: Array = np.round(sums, _DIGITS)
        exact = bool(self.sizes.max() == 1.0 and np.isin(d, (-1.0, 0.0, 1.0)).all())
        always = exact or with_bound
        self.guarded = {sign: always or is_left_skewed(sign * self.sums, self.sizes) for sign in (1.0, -1.0)}
        self.method = EXACT if exact else GUARDED if self.guarded[1.0] else FLIPS
        self.mirror = -1.0 if np.sort(self.sums).tolist() > np.sort(-self.sums).tolist() else 1.0
        self.flips = None if exact else _Flips(self.mirror * self.sums, self.sizes, draws)

    def p_value(self, theta: float, sign: float, least: float = 0.0) -> float:
        """One-sided p-value against "the mean of sign times the differences is at most theta"; rises with theta. Below `least`
        its size does not matter."""
        p = 0.0 if self.flips is None else min(1.0, self.flips.p_value(theta, sign * self.mirror))
        if not self.guarded[sign]:
            return p
        return max(
            p, gaffke(sign * self.sums - theta * self.sizes, -(1.0 + theta) * self.sizes.max(), max(p, least))
        )

    def clusters_needed(self, minimum_effect: float, alpha: float) -> int | None:
        """Clusters that show what stands out of the sample as it is."""
        size, n = float(self.sizes.mean()), len(self.sums)
        mean = float(self.sums.mean()) / size
        spread = math.sqrt(float(np.sum((self.sums / size - mean * self.sizes / size) ** 2)) / max(1, n - 1))
        return clusters_for_power(mean - minimum_effect, spread, alpha, exact=self.flips is None)


def clusters_for_power(effect: float, spread: float, alpha: float, *, exact: bool = False) -> int | None:
    """Clusters at which the test shows a mean difference `effect` above its minimum with a probability of about 80%.

    With the z of alpha / 2 and `spread`, the standard deviation of the clusters' differences: n = ((z + 0.84) spread / effect)^2
    and z^2 / 2 more (Guenther 1981). For the exact test of differences of -1, 0 and 1: n (1 + sqrt(1 + 4 / (n effect)))^2 / 4,
    which solves n effect - 1 = (z + 0.84) spread sqrt(n), the correction for continuity of McNemar's test (Edwards 1948).
    None where that is no number up to `MOST_CLUSTERS`.
    """
    z = NormalDist().inv_cdf(1 - alpha / 2)
    if effect <= 0 or (z + 0.8416) * spread > effect * math.sqrt(MOST_CLUSTERS):
        return None
    n = ((z + 0.8416) * spread / effect) ** 2
    more = n * (1 + math.sqrt(1 + 4 / (n * effect))) ** 2 / 4 if exact and n else n + z * z / 2
    return max(fewest_clusters(alpha), math.ceil(more))


def fewest_clusters(alpha: float) -> int:
    """Clusters below which no difference, however large, gives a p-value of alpha / 2: all flips of n are 2^n."""
    return math.ceil(math.log2(2 / alpha))


class _Flips:
    """The distribution of a random subset of clusters with sums x and sizes m, each in or out with probability 1/2.

    Clusters that are alike are counted together. Enumerated, all numbers of each kind but the commonest form a grid, and of
    the commonest the binomial distribution is looked up.
    """

    def __init__(self, sums: Array, sizes: Array, draws: int) -> None:
        kinds, counts = np.unique(np.stack([sums, sizes], axis=1), axis=0, return_counts=True)
        order = np.argsort(counts, kind="stable")
        self.x, self.m, counts = kinds[order, 0], kinds[order, 1], counts[order]
        self.root = np.sign(self.x) * np.sqrt(np.abs(self.x))
        self.last = int(counts[-1])
        self._sorted: dict[float, Array] = {}
        self.enumerated = math.prod(int(n) + 1 for n in counts[:-1]) <= MOST_SUBSETS
        if self.enumerated:
            self._enumerate(counts)
        else:
            self._draw(counts, max(9_999, min(draws, _DRAWN // int(counts.sum()))))

    def _enumerate(self, counts: NDArray[np.int64]) -> None:
        columns, self.weight = np.zeros((1, 3)), np.ones(1)
        for kind, n in zip(self._kinds()[:-1], counts[:-1], strict=True):
            taken = np.arange(n + 1.0)[:, None] * kind
            columns = (columns[:, None, :] + taken[None, :, :]).reshape(-1, 3)
            self.weight = np.multiply.outer(self.weight, _halves(int(n))).ravel()
        self.sum, self.size, self.roots = columns.T
        self.at_most = np.concatenate([[0.0], np.cumsum(_halves(self.last))])

    def _kinds(self) -> Array:
        return np.stack([self.x, self.m, self.root], axis=1)

    def _draw(self, counts: NDArray[np.int64], draws: int) -> None:
        n, kinds = int(counts.sum()), np.repeat(self._kinds(), counts, axis=0)
        if counts[-1] == 1 and n * draws <= _KEPT:
            self.sum, self.size, self.roots = kinds.T @ _subsets(n, draws)
            return
        rng = np.random.default_rng([len(counts), n])
        columns = np.empty((draws, 3))
        rows = max(1, 4_000_000 // n)
        for start in range(0, draws, rows):
            taken = rng.integers(0, 2, (min(rows, draws - start), n), np.int8)
            columns[start : start + rows] = taken.astype(np.float64) @ kinds
        self.sum, self.size, self.roots = columns.T

    def p_value(self, theta: float, sign: float) -> float:
        """P(sum over the subset of (sign x - theta m) <= 0); at theta = 0, of the sums that are 0 only those with roots <= 0."""
        if not self.enumerated:
            hits = len(self.sum) - len(self._means(sign)) + np.searchsorted(self._means(sign), theta, "right")
            hits -= self._ties(sign) if theta == 0.0 else 0
            return (1 + int(hits)) / (1 + len(self.sum))
        rest = sign * self.sum - theta * self.size
        return self._at_most(rest, sign, theta) - (self._surplus(rest, sign) if theta == 0.0 else 0.0)

    def _means(self, sign: float) -> Array:
        """The means of the subsets that were drawn and are not empty, in order: what a mean is at most has one look each."""
        if sign not in self._sorted:
            some = self.size > 0.0
            self._sorted[sign] = np.sort((sign * self.sum[some] - _NOISE) / self.size[some])
        return self._sorted[sign]

    def _ties(self, sign: float) -> int:
        """Subsets that were drawn whose sum is 0 and whose roots are above 0."""
        return int(np.count_nonzero((np.abs(self.sum) <= _NOISE) & (sign * self.roots > _NOISE)))

    def _surplus(self, rest: Array, sign: float) -> float:
        """The part of P(sum <= 0) in which the sum is 0 and the roots are above 0."""
        step, root = sign * self.x[-1], sign * self.root[-1]
        if step == 0.0:
            return float(self.weight @ ((np.abs(rest) <= _NOISE) & (sign * self.roots > _NOISE)))
        taken = np.clip(np.round(-rest / step), 0, self.last)
        more = (np.abs(rest + taken * step) <= _NOISE) & (sign * self.roots + taken * root > _NOISE)
        return float(self.weight[more] @ np.diff(self.at_most)[taken[more].astype(np.int64)])

    def _at_most(self, rest: Array, sign: float, theta: float) -> float:
        step = sign * self.x[-1] - theta * self.m[-1]
        if abs(step) <= _NOISE:
            chance = (rest <= _NOISE).astype(np.float64)
        else:
            fits = np.floor(np.clip((_NOISE - rest) / abs(step), -1.0, self.last)).astype(np.int64)
            if step > 0:  # at most so many of the commonest kind
                chance = self.at_most[fits + 1]
            else:  # at least so many
                needed = np.ceil(np.clip((rest - _NOISE) / -step, 0.0, self.last + 1.0)).astype(np.int64)
                chance = 1.0 - self.at_most[needed]
        return float(self.weight @ chance)


@lru_cache(maxsize=1)
def _subsets(n: int, draws: int) -> Array:
    """The clusters, of n, that each of some random subsets has, (clusters, subsets); the same for all samples of that size."""
    taken = np.random.default_rng([n, n]).integers(0, 2, (draws, n), np.int8)
    return np.ascontiguousarray(taken.T, dtype=np.float64)


def _halves(n: int) -> Array:
    """Binomial probabilities of 0 to n out of n at 1/2."""
    logs = np.array([math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)])
    return np.asarray(np.exp(logs - n * math.log(2.0)))


def is_left_skewed(sums: Array, sizes: Array) -> bool:
    """Whether the clusters' deviations from their mean are skewed to the left by more than `SKEWED` standard errors, or all 0."""
    n = len(sums)
    deviations = sums - sums.sum() / sizes.sum() * sizes
    spread = math.sqrt(float(np.mean(deviations**2)))
    if n < 3 or spread < _NOISE:
        return True
    error = math.sqrt(6.0 * (n - 2) / ((n + 1) * (n + 3)))
    return float(np.mean((deviations / spread) ** 3)) < -SKEWED * error


def gaffke(values: Array, worst: float, least: float = 0.0) -> float:
    """p-value of "the mean of values that are never below `worst` is at most 0": P(sum E_i v_i + E_0 worst <= 0), E ~ Exp(1).

    The sum of weighted exponential variables by Imhof's inversion (1961, Biometrika 48:419-426) of its characteristic function
    prod 1 / (1 - i u v): 1/2 - 1/pi * integral of sin(sum atan(u v)) / prod sqrt(1 + u^2 v^2) over log u, which is right to
    1e-8; p-values below `TAIL` are computed anew by `_tail`,
    if the caller needs more than that they are below `least`.
    """
    kinds, counts = np.unique(np.append(values, worst), return_counts=True)
    scale = math.sqrt(float(counts @ kinds**2))
    if (
        kinds[-1] <= 0.0
    ):  # no sum is above 0, and the inversion converges slowly where only one value is not 0
        return 1.0
    kinds = kinds / scale
    total = float(counts @ kinds)
    if abs(total) > 40.0:  # standard deviations: beyond exp(-20) by Bernstein's inequality
        return 1.0 if total < 0 else 0.0 if least > _RIGHT else _tail(kinds, counts)
    step = min(0.1 / max(1.0, abs(total) / 6.0), _find_step(kinds, counts, 1.0, _SMALL, 1.0))
    integral = 0.0
    for _, angle, size in _factors(kinds, counts, np.exp(np.arange(-25.0, 12.0, step))):
        integral += float(np.sin(angle) @ np.exp(-0.5 * size))
    p = min(1.0, max(0.0, 0.5 - integral * step / math.pi))
    return _tail(kinds, counts) if least - _RIGHT < p < TAIL and total > 0 else p


TAIL = 1e-3
"""p-values below it are computed with a relative error of 1e-9."""
_RIGHT = 1e-7
"""More than the error of the simpler inversion."""


def _factors(kinds: Array, counts: NDArray[np.int64], grid: Array) -> Iterator[tuple[Array, Array, Array]]:
    """For parts of the grid: u, the angle of prod (1 + i u v), and the logarithm of its squared size."""
    for u in np.array_split(grid, 1 + grid.size * kinds.size // 1_000_000):
        part = np.multiply.outer(u, kinds)
        yield u, np.arctan(part) @ counts, np.log1p(part * part) @ counts


def _find_step(kinds: Array, counts: NDArray[np.int64], scale: float, gone: float, radians: float) -> float:
    """The step in log u, 0.1 at most, in which the integrand turns by no more than `radians`, up to where its squared size is
    exp(-`gone`)."""
    coarse = np.exp(np.arange(-25.0, 12.0, 0.1)) / scale
    turns = 0.0
    for u, _, size in _factors(kinds, counts, coarse):
        part = u[:, None] * kinds
        speed = np.abs((part / (1.0 + part * part)) @ counts)
        turns = max(turns, float(np.max(speed, initial=0.0, where=size < gone)))
    return min(0.1, radians / max(turns, 1e-9))


def _tail(kinds: Array, counts: NDArray[np.int64]) -> float:
    """The same probability where it is small: the inversion on the line through the saddle point c < 0 of prod 1 / (1 - c v).

    There the integrand is as small as the result, so that nothing cancels (Daniels 1954, Ann. Math. Stat. 25:631-650, whose line
    it is): prod 1 / (1 - c v) / pi * integral of Re(exp(i sum atan(u w)) / (-c - i u)) / prod sqrt(1 + u^2 w^2),
    w = v / (1 - c v).
    """
    if kinds[0] >= 0.0:
        return 0.0
    low, c = 1.0 / float(kinds[0]), 0.0
    for _ in range(100):
        middle = (low + c) / 2
        low, c = (low, middle) if float(counts @ (kinds / (1.0 - middle * kinds))) > 0 else (middle, c)
    exponent = -float(counts @ np.log1p(-c * kinds))
    if exponent < _UNDERFLOW:
        return 0.0
    kinds = kinds / (1.0 - c * kinds)
    scale = math.sqrt(float(counts @ kinds**2))
    step = _find_step(kinds, counts, scale, _GONE, 0.2)
    integral = 0.0
    for u, angle, size in _factors(kinds, counts, np.exp(np.arange(-25.0, 12.0, step)) / scale):
        wave = (-c * np.cos(angle) - u * np.sin(angle)) / (c * c + u * u)
        integral += float((wave * np.exp(-0.5 * size)) @ u)
    return min(1.0, max(0.0, math.exp(exponent) * integral * step / math.pi))


_UNDERFLOW, _GONE, _SMALL = -740.0, 80.0, 36.0
"""Logarithms: below the first a float is 0; a factor with a squared size beyond the second changes no digit of the integral, and
beyond the third none of its first eight."""


def _end(p_value: Callable[[float], float], start: float, level: float) -> float:
    """The smallest mean in [-1, 1] that the rising `p_value` does not refute at `level`, on its side of `start`."""
    if p_value(start) <= level:
        refuted, kept = start, 1.0
    elif p_value(-1.0) <= level:
        refuted, kept = -1.0, start
    else:
        return -1.0
    for _ in range(_STEPS):
        middle = (refuted + kept) / 2
        if p_value(middle) <= level:
            refuted = middle
        else:
            kept = middle
    return round(kept, _SHOWN) + 0.0  # no negative zero
