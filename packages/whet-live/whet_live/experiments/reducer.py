"""The history of an experiment, folded from events: assigned units, answers, settled outcomes.

A pure fold: the same events in the same order give the same state, and nothing else goes in. Times are those of
the store that received the events, in microseconds, so that they never run backwards, whatever the clocks of the
apps say. The outcome of a unit is settled when its window has closed, so that units settle in the order of their
assignment however fast or slow each answer was: an arm whose complaints come sooner looks neither better nor
worse for that. A value counts if it was received within the window, also when a look came before the fold read
it: what was settled is put right then, so that the figures never depend on who looked, or when. What an answer carries itself
(its error, latency and cost) settles with the unit's first answer, and further answers put it right for an hour.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whet_client.assignment import assign
from whet_live.experiments.definition import Definition, Metric
from whet_live.experiments.effects import Array, MetricSample
from whet_live.experiments.metrics import FURTHER_ANSWERS, MEASURED, Signal, read_reward
from whet_live.traffic.dataset import signals

MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Revision:
    """Shares of the arms, from one moment on. `number` counts from 1; `weights` are in the order of the arms;
    `settled` is the number of units that they were chosen from."""

    number: int
    at: int
    weights: tuple[float, ...]
    reason: str = ""
    settled: int = 0


@dataclass(frozen=True)
class Exposure:
    """An inference: the unit saw an answer of a version. `revision` is that of the definition the app used, `request` tells
    requests with other inputs apart, empty where that is unknown."""

    at: int
    inference: str
    unit: str
    version: int
    revision: int | None = None
    stratum: str = ""
    request: str = ""


@dataclass(frozen=True)
class MetricOutcome:
    """A value of a metric for one inference, after the exposure that it belongs to. `at` is when the value itself
    arrived, which may have been before the inference was known. For a metric with a reward, `signal` is what was done,
    and the value how much of it; the answer itself comes first, without a signal. `rater` is the person who judged: a later value
    of the same person about the same inference takes the place of the earlier one."""

    at: int
    inference: str
    metric: str
    value: float
    signal: str = ""
    rater: str = ""


Event = Exposure | MetricOutcome


@dataclass
class AssignedUnit:
    """A unit: when and how it was assigned first, its different requests by number, the values of each metric with the
    request that each is about, the place among them of what a person said of an inference, and what was done with each answer to
    a request, where a metric has a reward."""

    at: int
    arm: int
    revision: int
    stratum: int
    requests: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    judged: dict[tuple[str, str, str], int] = field(default_factory=dict)
    done: dict[tuple[int, str], list[Signal]] = field(default_factory=dict)


@dataclass
class _Settled:
    """Outcomes of the first units of one metric, in the order of assignment; nan where none arrived."""

    metric: Metric
    arms: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    revisions: array[int] = field(default_factory=lambda: array("q"))
    strata: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class Omissions:
    """The parts that were left out, and the reasons.

    `mismatched`: inferences whose version is not the one that the definition assigns. `moved`: inferences of
    a unit that a change of weights gave another version later. `late`: values after the unit's window.
    """

    mismatched: int = 0
    moved: int = 0
    late: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The state of a fold at one time. It does not change while the fold goes on, so that both can be judged side by side."""

    definition: Definition
    samples: Mapping[str, MetricSample]
    """The settled outcomes of each metric."""
    known: Mapping[str, Array]
    """For each metric, whether an outcome of a unit arrived (1) or none (0)."""
    units: MetricSample
    """All units, without outcomes."""
    counts: Omissions
    values: Mapping[str, int]
    """Values of each metric that arrived in time."""
    clipped: Mapping[str, int]
    """Those of `values` that lay outside of the metric's range."""
    amended: int = 0
    """Outcomes that were corrected after they were settled."""
    fold: object = None
    """Tells folds apart. Later snapshots continue earlier ones of the same fold with as many amendments."""
    cycles: int = 0
    """Whole cycles that are over."""
    whole: int | None = None
    """Settled outcomes of the goal from units of these cycles; None: all."""

    @property
    def decisive(self) -> MetricSample | None:
        """The settled outcomes of the goal that may name a winner: those of whole cycles; None before there are enough."""
        sample = self.samples[self.definition.goal.name]
        if not self.definition.cycles:
            return sample
        if self.cycles < self.definition.cycles:
            return None
        return sample.part(0, len(sample.arms) if self.whole is None else self.whole)

    @property
    def settled(self) -> int:
        """Settled outcomes of all metrics together."""
        return sum(len(sample.arms) for sample in self.samples.values())

    def outcome_indicators(self, name: str) -> MetricSample:
        """Whether each settled unit had an outcome of the metric (1) or none (0)."""
        return replace(self.samples[name], values=self.known[name])

    def count_units(self) -> list[int]:
        """Units of each arm."""
        counts: list[int] = np.bincount(self.units.arms, minlength=len(self.definition.arms)).tolist()
        return counts


class ExperimentReducer:
    """The state of one experiment. `apply` takes events in the order of the store."""

    def __init__(self, definition: Definition, salt: str, revisions: Sequence[Revision]) -> None:
        self.definition = definition
        self.salt = salt
        self.revisions = {revision.number: revision for revision in revisions}
        self.units: list[AssignedUnit] = []
        self.strata: list[str] = []
        self.counts = Omissions()
        self.amended = 0
        self._name = object()
        self._arms, self._revisions = array("q"), array("q")
        self._values = dict.fromkeys(definition.metrics, 0)
        self._clipped = dict.fromkeys(definition.metrics, 0)
        self._numbers: dict[str, int] = {}
        self._of: dict[str, tuple[int, int]] = {}
        self._settled = {name: _Settled(metric) for name, metric in definition.metrics.items()}
        self._rewards = {
            name: read_reward(metric.reward)
            for name, metric in definition.metrics.items()
            if metric.reward is not None
        }

    def apply(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Exposure):
            self._expose(event)
        elif event.metric in self._settled:
            about = self._of.get(event.inference)
            if about is not None:
                self._receive(*about, event)

    def revise(self, revision: Revision) -> None:
        """Other shares from now on."""
        self.revisions[revision.number] = revision

    def at(self, now: int) -> Snapshot:
        """All that is known at a time (microseconds). What was settled stays settled: a time before that of an earlier
        call gives what that call gave."""
        names = self.definition.metrics
        arms = np.array(self._arms, dtype=np.int64)
        units = MetricSample(arms, np.full(len(arms), math.nan), self._chances(self._revisions))
        samples = {name: self.sample(name, now) for name in names}
        cycles, whole = self._cycles(now)
        return Snapshot(
            self.definition,
            samples,
            {name: self._outcome_mask(name) for name in names},
            units,
            replace(self.counts),
            dict(self._values),
            dict(self._clipped),
            self.amended,
            self._name,
            cycles,
            whole,
        )

    def _cycles(self, now: int) -> tuple[int, int]:
        """Whole cycles whose outcomes are settled, and the settled outcomes of the goal of units in them."""
        goal = self.definition.goal
        settled = len(self._settled[goal.name].arms)
        if not self.units:
            return 0, 0
        cycle, start = self.definition.cycle * MICROSECONDS, self.units[0].at
        over = max(0, int((now - goal.window * MICROSECONDS - start) // cycle))
        return over, bisect_left(self.units, start + over * cycle, hi=settled, key=lambda unit: unit.at)

    def sample(self, name: str, now: int) -> MetricSample:
        """Settled outcomes of one metric at a time (microseconds), on the scale from 0 (worst) to 1 (best).

        What was settled stays settled: a time before that of an earlier call gives what that call gave.
        """
        settled = self._settled[name]
        self._settle(name, settled, now)
        strata = np.array(settled.strata, dtype=np.int64) if self.definition.stratum is not None else None
        values = np.array(settled.values, dtype=np.float64)
        if settled.metric.missing is not None:
            values = np.where(np.isnan(values), settled.metric.unit(settled.metric.missing), values)
        return MetricSample(
            np.array(settled.arms, dtype=np.int64), values, self._chances(settled.revisions), strata
        )

    def _outcome_mask(self, name: str) -> Array:
        values = np.array(self._settled[name].values, dtype=np.float64)
        return np.asarray(~np.isnan(values), dtype=np.float64)

    def _expose(self, event: Exposure) -> None:
        revision = event.revision if event.revision is not None else self._current(event.at)
        number = self._numbers.get(event.unit)
        known = None if number is None else self.units[number]
        arm = self._arm(event, revision, known)
        if arm is None:
            self.counts.mismatched += 1
            return
        if number is None:
            number = self._numbers[event.unit] = len(self.units)
            self.units.append(AssignedUnit(event.at, arm, revision, self._stratum(event.stratum)))
            self._arms.append(arm)
            self._revisions.append(revision)
        elif self.units[number].arm != arm:
            self.counts.moved += 1
            return
        requests = self.units[number].requests
        self._of[event.inference] = (
            number,
            requests.setdefault(event.request or event.inference, len(requests)),
        )

    def _arm(self, event: Exposure, revision: int, known: AssignedUnit | None) -> int | None:
        """Index of the arm, if the definition gives this unit this version."""
        versions = self.definition.versions
        if revision not in self.revisions or event.version not in versions or not event.unit:
            return None
        arm = versions.index(event.version)
        if known is not None and known.revision == revision:
            return arm if arm == known.arm else None
        weights = self.revisions[revision].weights
        return (
            arm
            if assign(self.salt, event.unit, list(zip(versions, weights, strict=True))) == event.version
            else None
        )

    def _current(self, at: int) -> int:
        """The newest revision at a time; the first one before all."""
        return max((r.number for r in self.revisions.values() if r.at <= at), default=1)

    def _stratum(self, name: str) -> int:
        if name not in self.strata:
            self.strata.append(name)
        return self.strata.index(name)

    def _receive(self, number: int, request: int, event: MetricOutcome) -> None:
        unit, settled = self.units[number], self._settled[event.metric]
        metric = settled.metric
        seconds = max(metric.window, FURTHER_ANSWERS) if metric.name in MEASURED else metric.window
        if event.at > unit.at + seconds * MICROSECONDS:
            self.counts.late += 1
        elif math.isfinite(event.value):
            self._add(unit, request, metric, event)
            if number < len(settled.arms):
                settled.values[number] = self._outcome(unit, metric)
                self.amended += 1

    def _add(self, unit: AssignedUnit, request: int, metric: Metric, event: MetricOutcome) -> None:
        """A value that arrived in time; with a reward, what was done with an answer gives it another value."""
        self._values[metric.name] += 1
        if metric.name in self._rewards:
            done = unit.done.setdefault((request, event.inference), [])
            if event.signal:
                done.append(Signal(event.signal, event.value))
        else:
            self._clipped[metric.name] += not metric.low <= event.value <= metric.high
            values = unit.values.setdefault(metric.name, [])
            values.append((request, metric.unit(event.value)))
            if event.rater:
                place = unit.judged.setdefault((metric.name, event.inference, event.rater), len(values) - 1)
                if place < len(values) - 1:
                    values[place] = values.pop()

    def _outcome(self, unit: AssignedUnit, metric: Metric) -> float:
        """The outcome of a unit on the scale from 0 (worst) to 1 (best); nan for none."""
        reward = self._rewards.get(metric.name)
        if reward is None:
            return _aggregate(unit.values.get(metric.name, ()), metric)
        worth = [
            (request, metric.unit(reward.reward(signals(done)))) for (request, _), done in unit.done.items()
        ]
        return _aggregate(worth, metric)

    def _settle(self, name: str, settled: _Settled, now: int) -> None:
        """Add the units whose window has closed since."""
        window = settled.metric.window * MICROSECONDS
        while len(settled.arms) < len(self.units):
            unit = self.units[len(settled.arms)]
            if unit.at + window > now:
                return
            settled.arms.append(unit.arm)
            settled.values.append(self._outcome(unit, settled.metric))
            settled.revisions.append(unit.revision)
            settled.strata.append(unit.stratum)

    def _chances(self, revisions: Sequence[int]) -> Array:
        """Shares of the arms when each unit was assigned, (units, arms)."""
        table = np.zeros((max(self.revisions) + 1, len(self.definition.arms)))
        for number, revision in self.revisions.items():
            table[number] = revision.weights
        chances: Array = table[np.array(revisions, dtype=np.int64)]
        return chances


def _aggregate(values: Sequence[tuple[int, float]], metric: Metric) -> float:
    """One number from the values of a unit with their requests, on the scale from 0 (worst) to 1 (best); nan for none.

    In a mean every request counts once, however often the unit repeated it.
    """
    if not values:
        return math.nan
    if metric.aggregate == "first":
        return values[0][1]
    if metric.aggregate == "max":
        each = [value for _, value in values]
        return max(each) if metric.direction == "max" else min(each)
    by_request: dict[int, list[float]] = {}
    for request, value in values:
        by_request.setdefault(request, []).append(value)
    return math.fsum(math.fsum(part) / len(part) for part in by_request.values()) / len(by_request)
