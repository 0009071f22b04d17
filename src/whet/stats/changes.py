"""A watch for a changed mean of a stream of values in [0, 1] that states its false alarms.

Nothing is known of the stream but that its mean, given the past, is some number theta until it changes. The watch has two parts.

**The reference.** The betting confidence sequence of all values so far (Waudby-Smith and Ramdas 2024, JRSS-B 86(1)) has a lower
end. The largest one so far, L, is below theta at all times at once with a chance of at least 1 - `MISS` / 2, while nothing
changed; it does not fall again when later values are worse. The upper end U is treated alike.

**The e-detector** (Shin, Ramdas and Rinaldo 2022, "E-detectors: a nonparametric framework for sequential change detection",
arXiv 2203.03532). On each day with values, a gambler enters with a capital of 1 and bets from then on that the mean is below L:
a value x multiplies the capital of the bet b by 1 - b + b (1 - x) / (1 - L), whose expectation is at most 1 while the mean is at
least L. The capital of all gamblers, mixed over the bets, is the Shiryaev-Roberts form

    M_b <- (M_b + 1 at the start of a day) * factor_b(x),        M = sum_b w_b M_b.

M less the number of days is a supermartingale while nothing changed, so that the mean number of days until M reaches a
threshold A is at least A, whatever the distribution is. A second one bets that the mean is above U.

What the promise does not cover: a mean that swings with the hour or the weekday is a change, and is found as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.errors import UsageError
from whet.stats.betting import BETS, Array, log_mixture, lower_end

MISS = 0.01
"""The chance that the reference ever misses the mean, both ends together."""
FALL, RISE = "fall", "rise"
_DIRECTIONS = (FALL, RISE)
_DIGITS = 3
_MOST_DAYS = 120
_EMPTY = -1e300

Histogram = dict[float, int]


@dataclass(frozen=True, slots=True)
class ChangeAlarm:
    """The mean of a series changed."""

    direction: str
    """`FALL` or `RISE`."""
    began: int
    """The day on which the change is likeliest to have begun."""
    before: float
    """The mean of the days before `began`."""
    after: float
    """The mean of the days since `began`."""
    bound: float
    """The end of the reference that was crossed."""
    evidence: float
    """The capital."""


@dataclass
class ChangeWatch:
    """The state of one watch. Days are whole numbers that grow; `days` holds the values of each, as counts by value. The oldest
    of more than 120 days are summed under the first that is kept."""

    days: dict[int, Histogram] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 1.0)
    capital: Array = field(default_factory=lambda: np.full((2, len(BETS)), _EMPTY))

    def add(self, day: int, values: Iterable[float]) -> None:
        """Take values of a day, which is the newest so far. Raises UsageError for an earlier day and a value outside [0, 1]."""
        known = [round(float(value), _DIGITS) for value in values]
        if not all(0.0 <= value <= 1.0 for value in known):
            raise UsageError("A value lies outside [0, 1]; scale it first.")
        newest = max(self.days, default=day)
        if day < newest:
            raise UsageError(f"Day {day} comes after day {newest}. Add values in the order of their days.")
        if not known:
            return
        if day not in self.days:
            self._begin(day)
        counts = self.days[day]
        for value in known:
            counts[value] = counts.get(value, 0) + 1
        unit, numbers = np.unique(np.array(known), return_counts=True)
        for way in range(2):
            self.capital[way] += self._growth(unit, numbers.astype(np.float64), way)

    def alarm(self, threshold: float) -> ChangeAlarm | None:
        """The change that was detected, if the capital has reached the threshold: a number of days, the mean time until a
        false alarm in each direction. If both directions have reached it, the larger capital counts."""
        if not self.days or float(self.capital.max()) < math.log(threshold):  # a mean is at most the largest
            return None
        logs = [log_mixture(self.capital[way]) for way in range(2)]
        way = int(logs[1] > logs[0])
        if logs[way] < math.log(threshold):
            return None
        began = self._onset(way)
        before = _mean(counts for day, counts in self.days.items() if day < began)
        after = _mean(counts for day, counts in self.days.items() if day >= began)
        evidence = math.exp(min(logs[way], 700.0))
        return ChangeAlarm(_DIRECTIONS[way], began, before, after, self.bounds[way], evidence)

    def _begin(self, day: int) -> None:
        """The first values of a day: the reference is that of the days before, and another gambler enters."""
        if self.days:
            unit, counts = _merge(self.days.values())
            threshold = math.log(2.0 / MISS)
            low = lower_end(unit, counts, threshold)
            high = 1.0 - lower_end(1.0 - unit, counts, threshold)
            self.bounds = max(self.bounds[0], low), min(self.bounds[1], high)
        self.capital = np.logaddexp(self.capital, 0.0)
        self.days[day] = {}
        if len(self.days) > _MOST_DAYS:
            first, second = sorted(self.days)[:2]
            for value, count in self.days.pop(first).items():
                self.days[second][value] = self.days[second].get(value, 0) + count

    def _growth(self, unit: Array, counts: Array, way: int) -> Array:
        """The growth of the logarithm of each bet's capital by these values: bets on less (0) or on more (1) than the
        reference."""
        side, mean = (1.0 - unit, 1.0 - self.bounds[0]) if way == 0 else (unit, self.bounds[1])
        growth: Array = np.log1p(np.outer(BETS, side / max(mean, 1e-12) - 1.0)) @ counts
        return growth

    def _onset(self, way: int) -> int:
        """The day since which the values speak most against the reference."""
        total, best, began = np.zeros(len(BETS)), -math.inf, max(self.days)
        for day in sorted(self.days, reverse=True):
            total = total + self._growth(*_merge([self.days[day]]), way)
            if (capital := log_mixture(total)) > best:
                best, began = capital, day
        return began

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values, as `from_json` reads it."""
        return {
            "days": [
                [day, [list(pair) for pair in sorted(c.items())]] for day, c in sorted(self.days.items())
            ],
            "bounds": list(self.bounds),
            "capital": self.capital.tolist(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ChangeWatch:
        """The watch with that state."""
        days = {int(day): {float(x): int(n) for x, n in counts} for day, counts in value["days"]}
        low, high = value["bounds"]
        return cls(days, (float(low), float(high)), np.array(value["capital"], dtype=np.float64))


def _merge(histograms: Iterable[Histogram]) -> tuple[Array, Array]:
    total: Histogram = {}
    for counts in histograms:
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    values = sorted(total)  # one order, so that a stored watch adds up to the same digits
    return np.array(values, dtype=np.float64), np.array([total[value] for value in values], dtype=np.float64)


def _mean(histograms: Iterable[Histogram]) -> float:
    """The mean of all values; nan without any."""
    values, counts = _merge(histograms)
    return float(values @ counts / counts.sum()) if counts.size else math.nan
