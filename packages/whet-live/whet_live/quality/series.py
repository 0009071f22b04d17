"""Quality over time: each measure by hour, day or week with its interval, as a whole and by version, label, model or segment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, did_you_mean
from whet.stats import Interval, interval
from whet.stats.clustered import mean_interval, quantile_interval
from whet_live.database import iso
from whet_live.quality.measures import QualityMeasure, measure_named, order_of
from whet_live.quality.rows import AnswerColumns

SECOND = 1_000_000
HOUR, DAY, WEEK = 3600 * SECOND, 86_400 * SECOND, 7 * 86_400 * SECOND
STEPS: Mapping[str, int] = {"hour": HOUR, "day": DAY, "week": WEEK}
_MONDAY = 4 * DAY
"""1970-01-01 was a Thursday: weeks begin on Mondays."""
MOST_POINTS = 800
MOST_GROUPS = 8
OTHERS = "others"
_MANY = 2_000
"""Bounded values above which their normal approximation is as good as the exact interval, and a thousand times as quick."""
QUANTILES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class QualityPoint:
    """One measure over one step of time."""

    at: int
    """The begin of the step, in microseconds."""
    n: int
    """Values."""
    clusters: int
    """Users."""
    mean: float
    low: float
    high: float
    method: str
    quantiles: tuple[tuple[float, float, float, float], ...] = ()
    """Of an amount: (share, value, low, high)."""

    def as_json(self) -> dict[str, Any]:
        """The point as JSON values: an end that is not known is null."""
        shown = {**asdict(self), "at": iso(self.at)}
        shown |= {name: _finite(getattr(self, name)) for name in ("mean", "low", "high")}
        names = ("share", "value", "low", "high")
        shown["quantiles"] = [
            dict(zip(names, map(_finite, quantile), strict=True)) for quantile in self.quantiles
        ]
        return shown


@dataclass(frozen=True, slots=True)
class MeasureSeries:
    """A measure of one group: `points` in the order of time, of those steps that have values, and the `whole` period."""

    measure: QualityMeasure
    points: tuple[QualityPoint, ...]
    whole: QualityPoint

    def as_json(self) -> dict[str, Any]:
        """The series as JSON values."""
        points = [point.as_json() for point in self.points]
        return {"measure": self.measure.as_json(), "points": points, "whole": self.whole.as_json()}


@dataclass(frozen=True, slots=True)
class QualityGroup:
    """The answers of one version, label, model or segment (`name`; empty: of all), how many they are in each step, and their
    measures."""

    name: str
    answers: tuple[tuple[int, int], ...]
    series: tuple[MeasureSeries, ...]

    def of(self, name: str) -> MeasureSeries | None:
        """The series of a measure, where there is one."""
        return next((entry for entry in self.series if entry.measure.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """The group as JSON values."""
        answers = [{"at": iso(at), "n": n} for at, n in self.answers]
        return {"name": self.name, "answers": answers, "measures": [entry.as_json() for entry in self.series]}


def step_for(since: int, until: int, step: str = "") -> int:
    """The width of a step in microseconds: that of the name, else hours up to two days, days up to three months, then weeks.
    Raises UsageError for an unknown name and for more than `MOST_POINTS` steps."""
    if step and step not in STEPS:
        raise UsageError(f'"{step}" is no step of time. Write {", ".join(STEPS)}.{did_you_mean(step, STEPS)}')
    span = until - since
    width = STEPS[step] if step else HOUR if span <= 2 * DAY else DAY if span <= 92 * DAY else WEEK
    if span > MOST_POINTS * width:
        raise UsageError(
            f"The period has more than {MOST_POINTS} steps. Name a longer step, or a shorter period."
        )
    return width


def begin_of(moment: int, width: int) -> int:
    """The begin of the step that a time lies in, in UTC; weeks begin on Mondays."""
    shift = _MONDAY if width == WEEK else 0
    return (moment - shift) // width * width + shift


def group_series(answers: AnswerColumns, name: str, chosen: NDArray[np.bool_], width: int) -> QualityGroup:
    """The series of some of the answers."""
    begins = begins_of(answers.time[chosen], width)
    at, counts = np.unique(begins, return_counts=True)
    counted = tuple((int(one), int(n) * answers.every) for one, n in zip(at, counts, strict=True))
    series = []
    for measure in sorted(answers.measured, key=order_of):
        values = answers.measured[measure][chosen]
        known = ~np.isnan(values)
        if known.any():
            series.append(
                measure_series(
                    measure_named(measure), values[known], answers.cluster[chosen][known], begins[known]
                )
            )
    return QualityGroup(name, counted, tuple(series))


def measure_series(
    measure: QualityMeasure,
    values: NDArray[np.float64],
    clusters: NDArray[np.int64],
    begins: NDArray[np.int64],
) -> MeasureSeries:
    """The points of a measure, from values with their clusters and the begins of their steps."""
    order = np.argsort(begins, kind="stable")
    edges = np.flatnonzero(np.diff(begins[order])) + 1
    points = tuple(
        measure_point(measure, int(begins[part[0]]), values[part], clusters[part])
        for part in np.split(order, edges)
    )
    return MeasureSeries(measure, points, measure_point(measure, points[0].at, values, clusters))


def measure_point(
    measure: QualityMeasure, at: int, values: NDArray[np.float64], clusters: NDArray[np.int64]
) -> QualityPoint:
    """The mean of values with its interval: of shares and bounded numbers the one of `whet.stats.interval`, of amounts Student's
    over clusters, with the median and the 95th percentile."""
    numbers = clusters.tolist()
    quantiles: tuple[tuple[float, float, float, float], ...] = ()
    if measure.kind == "share" or (measure.kind == "bounded" and len(values) <= _MANY):
        estimate = interval(values.tolist(), measure.low, measure.high, clusters=numbers)
    else:
        least = (
            measure.low if measure.kind == "bounded" or not measure.name.startswith("score:") else -math.inf
        )
        estimate = mean_interval(values, numbers, least=least)
        if measure.kind == "bounded":
            estimate = _clip(estimate, measure)
        elif measure.name in ("latency", "cost"):
            ends = [(share, quantile_interval(values, share, numbers, least=0.0)) for share in QUANTILES]
            quantiles = tuple((share, one.mean, one.low, one.high) for share, one in ends)
    many = len(np.unique(clusters))
    return QualityPoint(
        at, estimate.n, many, estimate.mean, estimate.low, estimate.high, estimate.method, quantiles
    )


def _clip(estimate: Interval, measure: QualityMeasure) -> Interval:
    high = min(measure.high, estimate.high)
    return Interval(estimate.mean, estimate.low, high, estimate.n, estimate.method, estimate.groups)


def begins_of(times: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The begins of the steps that times lie in (`begin_of`)."""
    shift = _MONDAY if width == WEEK else 0
    begins: NDArray[np.int64] = (times - shift) // width * width + shift
    return begins


def largest_groups(names: Sequence[str]) -> list[str]:
    """Each name, or `others` where it is none of the `MOST_GROUPS` most frequent ones."""
    unique, counts = np.unique(np.array(names, dtype=object).astype(str), return_counts=True)
    kept = {str(unique[n]) for n in np.argsort(-counts, kind="stable")[:MOST_GROUPS]}
    return [name if name in kept else OTHERS for name in names]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
