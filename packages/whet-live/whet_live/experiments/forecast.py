"""A forecast of the length of an experiment on a prompt, from its newest answers: units a day, and the spread of outcomes.

The scores of `effects` have a variance of about v (1/p + 1/(1-p)), with v that of a unit's outcome and p the share of the traffic
that tries the new version. The median experiment decides after about `NEEDED` times that variance over the squared difference:
7.6 to 9.0 in simulations ("Experiments: units to a decision" in docs/figures.md). Only whole cycles decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection, or_, select

from whet_live.database import time_of
from whet_live.experiments.metrics import defaults_of
from whet_live.traffic.dataset import PEOPLE, RATED_BY_PEOPLE
from whet_live.traffic.traffic_tables import feedback, inferences

DAYS = 14
"""The days of answers that a forecast looks back on."""
MOST_ANSWERS, MOST_ROWS = 20_000, 50_000
NEEDED = 8.5
"""Two versions, an error of 5%."""
CYCLE_DAYS = 7
"""The cycle of an experiment that says no other one."""
MOST_SCORES = 8
_DAY = 86_400_000_000
_KINDS = ("rating", "thumb", "copy", "regenerate", "abandon", "edit_distance", "external_check", "score")


@dataclass(frozen=True, slots=True)
class MetricTraffic:
    """The outcomes of a metric so far: of how many units a day, with their mean, and their variance as a part of the squared
    range from `low` to `high`."""

    a_day: float
    mean: float
    variance: float
    low: float = 0.0
    high: float = 1.0

    def days(self, difference: float, share: float) -> int | None:
        """Whole days until half of such experiments have found a `difference` (of the metric) where a `share` of the traffic
        tries the new version; None where the outcomes do not vary."""
        size = difference / (self.high - self.low)
        units = NEEDED * self.variance * (1 / share + 1 / (1 - share)) / size**2
        return None if not units else math.ceil(units / self.a_day / CYCLE_DAYS) * CYCLE_DAYS


@dataclass(frozen=True, slots=True)
class TrafficForecast:
    """The figures of the last days' answers: their number, units a day, and the metrics that they have."""

    unit: str
    answers: int = 0
    units_a_day: float = 0.0
    metrics: Mapping[str, MetricTraffic] = field(default_factory=dict)
    """By name; a score as `score NAME`."""


def forecast_traffic(connection: Connection, prompt: str, unit: str) -> TrafficForecast:
    """The forecast for an experiment that counts such units, from the newest answers of a prompt."""
    i, f, at = inferences.c, feedback.c, time_of(connection)
    answers = connection.execute(
        select(i.seq, i[unit], i.time)
        .where(i.prompt == prompt, i.time >= at - DAYS * _DAY)
        .order_by(i.time.desc(), i.seq.desc())
        .limit(MOST_ANSWERS)
    ).all()
    owners = {seq: name for seq, name, _ in answers if name is not None}
    if not owners:
        return TrafficForecast(unit, len(answers))
    since = min(moment for *_, moment in answers)
    days = max(1.0, (at - since) / _DAY)
    rows = connection.execute(
        select(f.about, f.kind, f.name, f.value)
        .where(
            f.prompt == prompt, f.time >= since, f.kind.in_(_KINDS), f.value.is_not(None),
            or_(f.kind.not_in(RATED_BY_PEOPLE), f.source.in_(PEOPLE)),
        )
        .order_by(f.time.desc())
        .limit(MOST_ROWS)
    )  # fmt: skip
    outcomes: dict[str, dict[str, list[float]]] = {}
    for about, kind, name, value in rows:
        if about in owners:
            of = f"score {name or 'score'}" if kind == "score" else kind
            outcomes.setdefault(of, {}).setdefault(owners[about], []).append(value)
    scores = sorted(name for name in outcomes if name.startswith("score "))[MOST_SCORES:]
    units = len(set(owners.values()))
    metrics = {
        name: _summarise(name, by_unit, units, days)
        for name, by_unit in sorted(outcomes.items())
        if name not in scores
    }
    return TrafficForecast(unit, len(answers), units / days, metrics)


def _summarise(name: str, by_unit: Mapping[str, list[float]], units: int, days: float) -> MetricTraffic:
    """The means of units, those without an outcome as the metric counts them."""
    keys = {} if name.startswith("score ") else defaults_of(name, {})
    low, high = (float(str(keys.get(key, usual))) for key, usual in (("low", 0.0), ("high", 1.0)))
    means = [sum(values) / len(values) for values in by_unit.values()]
    if "missing" in keys:
        means += [float(str(keys["missing"]))] * (units - len(means))
    outcomes = np.clip((np.array(means) - low) / (high - low), 0.0, 1.0)
    mean = low + float(outcomes.mean()) * (high - low)
    return MetricTraffic(len(means) / days, mean, float(outcomes.var()), low, high)
