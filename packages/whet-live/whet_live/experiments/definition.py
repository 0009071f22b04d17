"""What an experiment asks: arms, the metric to improve, guard-rails, when to decide and how to share the traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from whet.errors import UsageError, did_you_mean, quantity
from whet_client.assignment import UNITS
from whet_live.experiments.metrics import BEHAVIOUR, defaults_of, read_reward

Kind = Literal["fixed", "ramp", "thompson", "top_two", "track_and_stop"]

WEEK = 604_800.0
MOST_ARMS = 10
LEAST_SHARE = 0.001
"""The smallest share of the units that an arm may start with."""

_DIRECTIONS = ("max", "min")
_AGGREGATES = ("mean", "first", "max")
_AGAINST = ("control", "value")
_KINDS = ("fixed", "ramp", "thompson", "top_two", "track_and_stop")
T = TypeVar("T")


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
    direction: Literal["max", "min"] = "max"
    low: float = 0.0
    high: float = 1.0
    window: float = 3600.0
    aggregate: Literal["mean", "first", "max"] = "mean"
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
    against: Literal["control", "value"] = "control"


@dataclass(frozen=True)
class AllocationPolicy:
    """How the traffic is shared while the experiment runs.

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
    """What follows the move of a label to a winner: its guard-rails are watched on.

    New units are assigned for `seconds`, and the watch ends when their outcomes are settled, or as soon as each guard-rail
    has `units` settled units. The share `holdout` of them still gets the control: without it, harm against the control
    cannot be separated from a change over time, and only guard-rails against a fixed value are watched.
    """

    seconds: float = 86_400.0
    holdout: float = 0.1
    units: int | None = None


@dataclass(frozen=True)
class Definition:
    """The definition of an experiment; it does not change after the start. `read` makes one from JSON.

    `label` of `prompt` is where the winner goes, after an approval if `approval` is set. `alpha` bounds the
    chance of a wrong winner. `margin`: arms that differ by less (units of the goal) count as equal; 0 never
    does. `most_units` assigned units without a decision end the experiment. `stratum` names a tag whose values
    are compared within. `watch` is what follows a winner's move, None for nothing. A winner is named by the units of whole
    cycles of `cycle` seconds since the first unit, at least `cycles` of them: what comes and goes with the days of the week
    averages out. 0 cycles: at any time.
    """

    prompt: str
    label: str
    arms: tuple[Arm, ...]
    control: int
    goal: Metric
    unit: str = "session"
    guards: tuple[Guard, ...] = ()
    alpha: float = 0.05
    margin: float = 0.0
    most_units: int = 1_000_000
    policy: AllocationPolicy = field(default_factory=AllocationPolicy)
    approval: bool = True
    stratum: str | None = None
    watch: Watch | None = field(default_factory=Watch)
    cycle: float = WEEK
    cycles: int = 1

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
        """As JSON; `read` reads it back."""
        return asdict(self)


def ramp_weights(definition: Definition, step: int) -> tuple[float, ...]:
    """Shares at one step of a ramp: the arms other than the control share by their weights."""
    share = definition.policy.shares[min(step, len(definition.policy.shares) - 1)]
    tested = sum(arm.weight for arm in definition.arms if arm.version != definition.control)
    return tuple(
        1.0 - share if arm.version == definition.control else share * arm.weight / tested
        for arm in definition.arms
    )


def read_definition(value: Mapping[str, Any]) -> Definition:
    """A definition from JSON, checked. Raises UsageError that names the key, the value and what is allowed."""
    values = dict(value)
    values["arms"] = tuple(_build(Arm, arm, "arms") for arm in _list(values.get("arms"), "arms"))
    values["goal"] = _metric(values.get("goal"), "goal")
    values["guards"] = tuple(_guard(guard) for guard in _list(values.get("guards", ()), "guards"))
    policy = dict(_mapping(values.get("policy", {}), "policy"))
    if "shares" in policy:
        policy["shares"] = tuple(_list(policy["shares"], "policy.shares"))
    values["policy"] = _build(AllocationPolicy, policy, "policy")
    watch = values.get("watch", {})
    values["watch"] = None if watch is None else _build(Watch, watch, "watch")
    if "control" not in values and values["arms"]:
        values["control"] = values["arms"][0].version
    definition = _build(Definition, values, "experiment")
    _check(definition)
    return definition


def refuse_tiny(one: Definition) -> None:
    """Raises UsageError where an arm would start with less than LEAST_SHARE of the units."""
    for version, share in zip(one.versions, one.starting_weights, strict=True):
        _must(
            share >= LEAST_SHARE,
            f"Version {version} would start with {share:.2g} of the units; the least is {LEAST_SHARE:g}. Give its arm "
            "a larger weight.",
        )


def _guard(value: Any) -> Guard:
    """A guard-rail; the keys of its metric may stand beside its own, the metric's name under `metric`, and so may the words of
    a task's objectives: `goal`, `margin`, `at_most` and `at_least`."""
    values = dict(_mapping(value, "guards"))
    words = {"at_most": "min", "at_least": "max", "margin": None}
    named = [word for word in words if word in values]
    direction = words[named[0]] if named else None
    if "goal" in values:
        values["direction"] = values.pop("goal")
    if named:
        values = _read_guard_rail(values, named)
    if isinstance(values.get("metric"), str):
        if direction is not None:
            values.setdefault("direction", direction)
        names = {one.name for one in fields(Metric)} - {"name"}
        inner = {"name": values["metric"], **{key: values.pop(key) for key in names & values.keys()}}
        values["metric"] = inner
    values["metric"] = _metric(values.get("metric"), "guards.metric")
    guard = _build(Guard, values, "guards")
    _must(
        direction in (None, guard.metric.direction),
        f"guards: {', '.join(named)} bounds a metric whose direction is {direction}, and that of {guard.metric.name} is "
        f"{guard.metric.direction}. Write the other bound.",
    )
    return guard


def _read_guard_rail(values: dict[str, Any], named: Sequence[str]) -> dict[str, object]:
    """A guard-rail whose margin is a limit against the control, or whose bound is one against a value."""
    both = [*named, *(["limit"] if "limit" in values else [])]
    if len(both) > 1:
        raise UsageError(f"guards: {' and '.join(both)} stand together. Write a guard-rail for each.")
    bound = values.pop(named[0])
    if isinstance(bound, str):
        raise UsageError(
            f"guards: {named[0]} is {bound!r:.40}; on live traffic it is a number. For a multiple of the control's mean, write "
            'what may be lost: "margin": 20.'
        )
    return {**values, "limit": bound, "against": "control" if named[0] == "margin" else "value"}


def _metric(value: Any, where: str) -> Metric:
    values = dict(_mapping({"name": value} if isinstance(value, str) else value, where))
    if "metric" in values and "name" not in values:
        values["name"] = values.pop("metric")
    if isinstance(values.get("name"), str):
        values = {**defaults_of(values["name"], values), **values}
    return _build(Metric, values, where)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} of the experiment is {value!r:.60}; it must be an object.")
    return value


def _list(value: Any, where: str) -> Sequence[object]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{where} of the experiment is {value!r:.60}; it must be a list.")
    return value


def _build(kind: type[T], value: Any, where: str) -> T:
    """A frozen value from an object whose keys and types fit."""
    mapping = _mapping(value, where)
    known = {one.name: str(one.type) for one in fields(kind)}  # type: ignore[arg-type]
    for key in mapping:
        if key not in known:
            raise UsageError(f'{where} has no key "{key}".{did_you_mean(str(key), known)}')
    values = {key: _check_type(one, known[key], f"{where}.{key}") for key, one in mapping.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = [one for one in known if one not in mapping and not hasattr(kind, one)]
        raise UsageError(f"{where} of the experiment lacks {', '.join(missing)}.") from None


_LARGEST = 10**15 - 1


def _check_type(value: Any, declared: str, where: str) -> object:
    """A number, text or truth value of the declared type; other types were built before."""
    optional = declared.endswith("| None")
    if value is None and optional:
        return None
    plain = declared.removesuffix(" | None")
    if plain.startswith("Mapping"):
        return dict(_mapping(value, where))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if plain == "float":
        if not number or not math.isfinite(value):
            raise UsageError(f"{where} is {value!r:.60}; it must be a number.")
        return float(value)
    if plain == "int" and not (number and abs(value) <= _LARGEST and int(value) == value):
        raise UsageError(f"{where} is {value!r:.60}; it must be a whole number of at most 15 digits.")
    if plain == "bool" and not isinstance(value, bool):
        raise UsageError(f"{where} is {value!r:.60}; it must be true or false.")
    if plain == "str" and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{where} is {value!r:.60}; it must be a text.")
    return int(value) if plain == "int" else value


def _check(one: Definition) -> None:
    """Everything that no single value shows."""
    versions = one.versions
    _must(
        2 <= len(versions) <= MOST_ARMS,
        f"The experiment has {quantity(len(versions), 'arm')}; 2 to {MOST_ARMS} are possible.",
    )
    _must(len(set(versions)) == len(versions), f"The arms name a version twice: {versions}.")
    _must(min(versions) >= 1, f"The arms are versions {versions}; versions count from 1.")
    _must(one.control in versions, f"The control is version {one.control}, but the arms are {versions}.")
    _must(all(arm.weight > 0 for arm in one.arms), "Every arm needs a weight above 0.")
    _must(one.unit in UNITS, f'unit is "{one.unit}".{did_you_mean(one.unit, UNITS)}')
    _must(0 < one.alpha < 0.5, f"alpha is {one.alpha}; it must lie between 0 and 0.5.")
    _must(one.most_units >= 1, f"most_units is {one.most_units}; it must be 1 or more.")
    _must(
        one.cycle > 0, f"cycle is {one.cycle:g} seconds; it must be above 0. For no whole cycles: cycles 0."
    )
    _must(one.cycles >= 0, f"cycles is {one.cycles}; it must be 0 or more.")
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
    _check_policy(one.policy, len(versions))
    if one.watch is not None:
        _check_watch(one.watch)


def _check_metric(metric: Metric) -> None:
    where = f'The metric "{metric.name}"'
    choices = ((metric.direction, _DIRECTIONS), (metric.aggregate, _AGGREGATES))
    for value, allowed in choices:
        _must(value in allowed, f"{where} says {value!r:.40}; possible are {', '.join(allowed)}.")
    _must(
        metric.low < metric.high,
        f"{where} has the range [{metric.low}, {metric.high}]; low must be below high.",
    )
    _must(metric.window >= 0, f"{where} has a window of {metric.window} seconds; it must be 0 or more.")
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
    _must(0 < guard.alpha < 0.5, f"{where} has alpha {guard.alpha}; it must lie between 0 and 0.5.")
    _must(
        guard.against in _AGAINST, f"{where} is against {guard.against!r:.40}; possible are control, value."
    )
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


def _check_policy(policy: AllocationPolicy, arms: int) -> None:
    _must(policy.kind in _KINDS, f'policy.kind is "{policy.kind}".{did_you_mean(str(policy.kind), _KINDS)}')
    _must(
        0 < policy.floor <= 1 / arms, f"policy.floor is {policy.floor}; it must lie in (0, {1 / arms:.3g}]."
    )
    _must(policy.units >= 1, f"policy.units is {policy.units}; it must be 1 or more.")
    shares = policy.shares
    _must(
        bool(shares) and all(isinstance(share, int | float) and 0 < share < 1 for share in shares),
        f"policy.shares is {list(shares)!r:.60}; it must list shares between 0 and 1.",
    )


def _check_watch(watch: Watch) -> None:
    _must(
        watch.seconds > 0,
        f"watch.seconds is {watch.seconds:g}; it must be above 0. For no watch: watch null.",
    )
    _must(0 <= watch.holdout <= 0.5, f"watch.holdout is {watch.holdout}; it must lie in [0, 0.5].")
    _must(watch.units is None or watch.units >= 1, f"watch.units is {watch.units}; it must be 1 or more.")


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)
