"""The definition of an experiment: arms, the metric to improve, guard-rails, when to decide and how to share the traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec import UNSET

from whet.errors import UsageError, quantity
from whet.task.decode import decode, field_names, set_fields
from whet.task.tree import Node
from whet_live.experiments.definition_json import (
    Against,
    Aggregate,
    AllocationEntry,
    Direction,
    ExperimentEntry,
    GuardEntry,
    Kind,
    MetricEntry,
    MetricKeys,
    Unit,
)
from whet_live.experiments.metrics import BEHAVIOUR, defaults_of, read_reward

WEEK = 604_800.0
MOST_ARMS = 10
LEAST_SHARE = 0.001
"""The smallest share of the units that an arm may start with."""

PLACE = "experiment"
"""The name of a definition in messages."""
_BOUNDS = {"at_most": "min", "at_least": "max", "margin": None}
"""The words of a task's objectives, each with the direction of the metric that it bounds."""


@dataclass(frozen=True)
class Arm:
    """A version of the prompt and its share of the units at the start (weights need not add up to 1)."""

    version: int
    weight: float = 1.0


@dataclass(frozen=True)
class Metric:
    """One number per unit.

    `direction` says whether more is better (max) or less (min). Values are clipped to [low, high]. A unit's
    outcome is the mean (or the first, or the largest) of the values that arrive within `window` seconds of its
    first exposure; it is settled when the window has closed, and later values are counted but not used.
    `missing` is the value of a unit without an outcome; None leaves such units out. What a definition in JSON leaves
    out follows from the name (`defaults_of`). `reward`, with the name `behaviour` only, is the fitted reward that gives the
    values; None until an experiment is created (`behaviour.with_reward`).
    """

    name: str
    direction: Direction = "max"
    low: float = 0.0
    high: float = 1.0
    window: float = 3600.0
    aggregate: Aggregate = "mean"
    missing: float | None = None
    reward: Mapping[str, Any] | None = None

    def unit(self, value: float) -> float:
        """A value on the scale from 0 (worst) to 1 (best)."""
        share = (min(self.high, max(self.low, value)) - self.low) / (self.high - self.low)
        return share if self.direction == "max" else 1.0 - share

    def value(self, unit: float) -> float:
        """The value of a mean on the scale from 0 (worst) to 1 (best)."""
        share = unit if self.direction == "max" else 1.0 - unit
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True)
class Guard:
    """A guard-rail: the harm that no arm may do.

    against control: the arm's mean is worse than that of the control by more than `limit` (units of the
    metric, 0 or more). against value: the arm's mean is worse than the value `limit`. `alpha` bounds the
    chance that it breaks at any time although no arm does that harm.
    """

    metric: Metric
    limit: float = 0.0
    alpha: float = 0.05
    against: Against = "control"


@dataclass(frozen=True)
class AllocationPolicy:
    """The rule by which the traffic is shared while the experiment runs.

    fixed: by the weights. ramp: the arms other than the control together get each of `shares` in turn, a step
    after every `units` settled units. thompson: by the probability of being best. top_two: the same with
    half of the units to the challengers of the best. track_and_stop: the shares that decide soonest. The last
    three change after every `units` settled units and give no arm less than `floor`.
    """

    kind: Kind = "fixed"
    floor: float = 0.05
    units: int = 100
    shares: tuple[float, ...] = (0.05, 0.2, 0.5)


@dataclass(frozen=True)
class Watch:
    """The watch after the move of a label to a winner: its guard-rails are still watched.

    New units are assigned for `seconds`, and the watch ends when their outcomes are settled, or as soon as each guard-rail
    has `units` settled units. The share `holdout` of them still gets the control: without it, harm against the control
    cannot be separated from a change over time, and only guard-rails against a fixed value are watched.
    """

    seconds: float = 86_400.0
    holdout: float = 0.1
    units: int | None = None


@dataclass(frozen=True)
class Definition:
    """The definition of an experiment; it does not change after the start. `read` makes one from JSON."""

    prompt: str
    label: str
    """The label that the winner gets."""
    arms: tuple[Arm, ...]
    control: int
    goal: Metric
    unit: Unit = "session"
    guards: tuple[Guard, ...] = ()
    alpha: float = 0.05
    """Bound on the chance of a wrong winner."""
    margin: float = 0.0
    """Arms that differ by less (in units of the goal) count as equal; 0: they never do."""
    most_units: int = 1_000_000
    """The experiment ends without a decision after so many assigned units."""
    policy: AllocationPolicy = field(default_factory=AllocationPolicy)
    approval: bool = True
    """Whether the move of the label waits for an approval."""
    stratum: str | None = None
    """A tag; units are compared within the same value of it."""
    watch: Watch | None = field(default_factory=Watch)
    """The watch after the move of a winner; None for no watch."""
    cycle: float = WEEK
    """Seconds of a cycle. A winner is named by the units of whole cycles since the first unit, so that the effects of the days
    of the week average out."""
    cycles: int = 1
    """The fewest cycles before a winner is named; 0: a winner may be named at any time."""

    @property
    def versions(self) -> list[int]:
        """Versions of the arms, in their order."""
        return [arm.version for arm in self.arms]

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every metric by name, the goal first."""
        return {self.goal.name: self.goal, **{guard.metric.name: guard.metric for guard in self.guards}}

    @property
    def starting_weights(self) -> tuple[float, ...]:
        """Shares at the start, which add up to 1; those of a ramp are its first step."""
        weights = [arm.weight for arm in self.arms]
        if self.policy.kind == "ramp":
            return ramp_weights(self, 0)
        return tuple(weight / sum(weights) for weight in weights)

    def to_json(self) -> dict[str, Any]:
        """The definition as JSON; `read` reads it back."""
        return asdict(self)


def ramp_weights(definition: Definition, step: int) -> tuple[float, ...]:
    """Shares at one step of a ramp: the arms other than the control share by their weights."""
    share = definition.policy.shares[min(step, len(definition.policy.shares) - 1)]
    tested = sum(arm.weight for arm in definition.arms if arm.version != definition.control)
    return tuple(
        1.0 - share if arm.version == definition.control else share * arm.weight / tested
        for arm in definition.arms
    )


def read_definition(value: Mapping[str, object]) -> Definition:
    """A definition from JSON, checked. Raises UsageError that names the key, the value and what is allowed."""
    entry = decode(Node.of(value, PLACE), ExperimentEntry, PLACE)
    values = set_fields(entry)
    values["arms"] = tuple(Arm(**set_fields(arm)) for arm in entry.arms)
    _must(
        2 <= len(entry.arms) <= MOST_ARMS,
        f"The experiment has {quantity(len(entry.arms), 'arm')}; 2 to {MOST_ARMS} are possible.",
    )
    values["goal"] = _read_metric(entry.goal, "goal")
    values["guards"] = tuple(map(_read_guard, values.get("guards", ())))
    if isinstance(entry.policy, AllocationEntry):
        values["policy"] = _read_policy(entry.policy)
    if values.get("watch") is not None:
        values["watch"] = Watch(**set_fields(values["watch"]))
    if "control" not in values:
        values["control"] = values["arms"][0].version
    definition = Definition(**values)
    _check(definition)
    _refuse_some_weights(entry, definition)
    return definition


def _refuse_some_weights(entry: ExperimentEntry, one: Definition) -> None:
    """Raises UsageError where some arms have a weight and others none: beside a weight of 50, meant as percent, the 1 that an arm
    without a weight has would be a fiftieth. The control of a ramp needs none, for it gets what the others leave."""
    ramp = one.policy.kind == "ramp"
    arms = [arm for arm in entry.arms if not (ramp and arm.version == one.control)]
    without = [str(arm.version) for arm in arms if arm.weight is UNSET]
    _must(
        len(without) in (0, len(arms)),
        f"{PLACE}: arms: only some have a weight (without one: version {', '.join(without)}). Give every arm a weight, or none "
        "of them (equal shares). Weights need not add up to 1.",
    )


def refuse_tiny(one: Definition) -> None:
    """Raises UsageError where an arm would start with less than LEAST_SHARE of the units."""
    for version, share in zip(one.versions, one.starting_weights, strict=True):
        _must(
            share >= LEAST_SHARE,
            f"Version {version} would start with {share:.2g} of the units; the least is {LEAST_SHARE:g}. Give its arm "
            "a larger weight.",
        )


def _read_policy(entry: AllocationEntry) -> AllocationPolicy:
    values = set_fields(entry)
    if "shares" in values:
        values["shares"] = tuple(values["shares"])
    return AllocationPolicy(**values)


def _read_guard(entry: GuardEntry) -> Guard:
    """A guard-rail; the keys of its metric may stand beside its own, the metric's name under `metric`, and so may the words of
    a task's objectives: `goal`, `margin`, `at_most` and `at_least`."""
    values = set_fields(entry)
    named = [word for word in _BOUNDS if word in values]
    direction = _BOUNDS[named[0]] if named else None
    if "goal" in values:
        values["direction"] = values.pop("goal")
    if named:
        values = _read_guard_rail(values, named)
    beside = {key: values.pop(key) for key in field_names(MetricKeys) if key in values}
    if isinstance(entry.metric, str):
        if direction is not None:
            beside.setdefault("direction", direction)
        metric = _metric_from(entry.metric, beside)
    else:
        _must(
            not beside,
            f"{PLACE}: guards: {', '.join(beside)} stands beside a metric that is an object. Write it in the object.",
        )
        metric = _read_metric(entry.metric, "guards: metric")
    _must(
        direction in (None, metric.direction),
        f"{PLACE}: guards: {', '.join(named)} bounds a metric whose direction is {direction}, and that of {metric.name} is "
        f"{metric.direction}. Write the other bound.",
    )
    return Guard(**{**values, "metric": metric})


def _read_guard_rail(values: Mapping[str, object], named: Sequence[str]) -> dict[str, Any]:
    """A guard-rail whose margin is a limit against the control, or whose bound is one against a value."""
    both = [*named, *(["limit"] if "limit" in values else [])]
    if len(both) > 1:
        raise UsageError(
            f"{PLACE}: guards: {' and '.join(both)} stand together. Write a guard-rail for each."
        )
    bound = values[named[0]]
    if isinstance(bound, str):
        raise UsageError(
            f"{PLACE}: guards: {named[0]} is {bound!r:.40}; on live traffic it is a number. For a multiple of the control's "
            'mean, write what may be lost: "margin": 20.'
        )
    others = {key: value for key, value in values.items() if key != named[0]}
    return {**others, "limit": bound, "against": "control" if named[0] == "margin" else "value"}


def _read_metric(entry: str | MetricEntry, where: str) -> Metric:
    if isinstance(entry, str):
        return _metric_from(entry, {})
    values = set_fields(entry)
    names = [values.pop(key) for key in ("name", "metric") if key in values]
    _must(bool(names), f'{PLACE}: {where} has no `name`. Write, for example, "name": "rating".')
    _must(
        len(names) < 2, f"{PLACE}: {where} has `name` and `metric`, which mean the same. Write one of them."
    )
    return _metric_from(names[0], values)


def _metric_from(name: str, values: Mapping[str, Any]) -> Metric:
    """A metric by its name, with the keys that a definition states."""
    return Metric(**{**defaults_of(name, values), **values, "name": name})


def _check(one: Definition) -> None:
    """Everything that no single value shows."""
    versions = one.versions
    _must(len(set(versions)) == len(versions), f"The arms name a version twice: {versions}.")
    _must(one.control in versions, f"The control is version {one.control}, but the arms are {versions}.")
    _must(
        one.cycle > 0, f"cycle is {one.cycle:g} seconds; it must be above 0. For no whole cycles: cycles 0."
    )
    width = one.goal.high - one.goal.low
    for metric in [one.goal, *(guard.metric for guard in one.guards)]:
        _check_metric(metric)
    _must(0 <= one.margin < width, f"margin is {one.margin}; it must lie in [0, {width:g}).")
    for guard in one.guards:
        _check_guard(guard)
    named: dict[str, Metric] = {one.goal.name: one.goal}
    for metric in (guard.metric for guard in one.guards):
        same = named.setdefault(metric.name, metric) == metric
        _must(same, f'The metric "{metric.name}" is described in two ways; describe it alike everywhere.')
    floor, most = one.policy.floor, 1 / len(versions)
    _must(floor <= most, f"policy: floor is {floor}; it must lie in (0, {most:.3g}].")
    if one.watch is not None:
        seconds = one.watch.seconds
        _must(seconds > 0, f"watch: seconds is {seconds:g}; it must be above 0. For no watch: watch null.")


def _check_metric(metric: Metric) -> None:
    where = f'The metric "{metric.name}"'
    _must(
        metric.low < metric.high,
        f"{where} has the range [{metric.low}, {metric.high}]; low must be below high.",
    )
    if metric.name == BEHAVIOUR:
        _must(metric.window > 0, f"{where} has a window of 0 seconds; nobody has done anything by then.")
        _must(metric.missing is None, f"{where} has no missing outcome: to do nothing is a signal too.")
        _must(metric.direction == "max", f"{where} stands for a rating: more of it is better.")
    if metric.reward is not None:
        _must(metric.name == BEHAVIOUR, f"{where} takes no reward.")
        read_reward(metric.reward)
    if metric.missing is not None:
        inside = metric.low <= metric.missing <= metric.high
        _must(inside, f"{where} takes {metric.missing} for a missing outcome, which is outside its range.")


def _check_guard(guard: Guard) -> None:
    metric = guard.metric
    where = f'The guard-rail on "{metric.name}"'
    if guard.against == "control":
        width = metric.high - metric.low
        _must(
            0 <= guard.limit < width, f"{where} has the limit {guard.limit}; it must lie in [0, {width:g})."
        )
    else:
        inside = metric.low < guard.limit < metric.high
        _must(
            inside,
            f"{where} has the limit {guard.limit}; it must lie inside ({metric.low:g}, {metric.high:g}).",
        )


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)
