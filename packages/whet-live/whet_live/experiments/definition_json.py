"""The JSON types of an experiment's definition. Its reader and its JSON schema in the API come from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta

from whet._util.fields import NonNegativeFloat, PositiveFloat
from whet.task.task_file import Entry, IfSet

Direction: TypeAlias = Literal["max", "min"]
Aggregate: TypeAlias = Literal["mean", "first", "max"]
Against: TypeAlias = Literal["control", "value"]
Kind: TypeAlias = Literal["fixed", "ramp", "thompson", "top_two", "track_and_stop"]
Unit: TypeAlias = Literal["user", "session", "episode"]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=10**15 - 1)]
"""A whole number that every JSON reader keeps exactly."""
Alpha: TypeAlias = Annotated[float, Meta(gt=0, lt=0.5)]


class ArmEntry(Entry):
    """A version of the prompt and its share of the units at the start."""

    version: Annotated[Count, Meta(extra={"meaning": "the number of a version"})]
    weight: IfSet[PositiveFloat] = UNSET
    """Shares are in proportion to the weights; all arms have one, or none (equal shares)."""


class MetricKeys(Entry):
    """The keys of a metric beside its name. A missing key follows from the name."""

    direction: IfSet[Direction] = UNSET
    """Whether more is better."""
    low: IfSet[float] = UNSET
    """Values below it count as it."""
    high: IfSet[float] = UNSET
    """Values above it count as it."""
    window: IfSet[NonNegativeFloat] = UNSET
    """Seconds after a unit's first exposure in which values count."""
    aggregate: IfSet[Aggregate] = UNSET
    """The value, of a unit's values, that is its outcome."""
    missing: IfSet[float | None] = UNSET
    """The outcome of a unit without values; null leaves such units out."""
    reward: IfSet[dict[str, Any] | None] = UNSET
    """The fitted reward of the metric `behaviour`."""


class MetricEntry(MetricKeys, kw_only=True):
    """A metric: its `name` (`metric` is another spelling), and what does not follow from it."""

    name: IfSet[str] = UNSET
    metric: IfSet[str] = UNSET


class GuardEntry(MetricKeys, kw_only=True):
    """A guard-rail: its metric by name, with the keys of the metric beside it, or as an object; and either `limit` with
    `against`, or one of `margin`, `at_most` and `at_least`."""

    metric: Annotated[str | MetricEntry, Meta(extra={"meaning": 'the metric, for example "latency"'})]
    limit: IfSet[float] = UNSET
    against: IfSet[Against] = UNSET
    alpha: IfSet[Alpha] = UNSET
    goal: IfSet[Direction] = UNSET
    """Another spelling of `direction`."""
    margin: IfSet[float | str] = UNSET
    """The loss that the mean may have against the control."""
    at_most: IfSet[float | str] = UNSET
    """The largest mean."""
    at_least: IfSet[float | str] = UNSET
    """The smallest mean."""


class AllocationEntry(Entry):
    """The rule by which the traffic is shared while the experiment runs."""

    kind: IfSet[Kind] = UNSET
    floor: IfSet[PositiveFloat] = UNSET
    units: IfSet[Count] = UNSET
    shares: IfSet[
        Annotated[
            list[Annotated[float, Meta(gt=0, lt=1)]],
            Meta(min_length=1, extra={"example": "a list such as [0.05, 0.2, 0.5]"}),
        ]
    ] = UNSET


class WatchEntry(Entry):
    """The watch after the move of the label to a winner."""

    seconds: IfSet[float] = UNSET
    holdout: IfSet[Annotated[float, Meta(ge=0, le=0.5)]] = UNSET
    units: IfSet[Count | None] = UNSET


class ExperimentEntry(Entry):
    """The definition of an experiment; docs/experiments.md describes it."""

    prompt: Annotated[str, Meta(extra={"meaning": "the name of the prompt", "example": "its name"})]
    label: Annotated[str, Meta(extra={"meaning": "the label that the winner gets", "example": "its name"})]
    arms: Annotated[
        list[ArmEntry],
        Meta(extra={"meaning": "the versions to compare", "example": '[{"version": 1}, {"version": 2}]'}),
    ]
    goal: Annotated[str | MetricEntry, Meta(extra={"meaning": 'the metric to improve, for example "thumb"'})]
    control: IfSet[Count] = UNSET
    """The version to compare with: by default the first arm's."""
    unit: IfSet[Unit] = UNSET
    guards: IfSet[
        Annotated[list[GuardEntry], Meta(extra={"example": '[{"metric": "thumb", "margin": 0.1}]'})]
    ] = UNSET
    alpha: IfSet[Alpha] = UNSET
    margin: IfSet[float] = UNSET
    most_units: IfSet[Count] = UNSET
    policy: IfSet[AllocationEntry] = UNSET
    approval: IfSet[bool] = UNSET
    stratum: IfSet[Annotated[str, Meta(extra={"example": "the name of a tag"})] | None] = UNSET
    watch: IfSet[WatchEntry | None] = UNSET
    cycle: IfSet[float] = UNSET
    cycles: IfSet[Annotated[int, Meta(ge=0, le=10**15 - 1)]] = UNSET
