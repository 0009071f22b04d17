"""The defaults of a metric that a definition only names: its direction, range, window and missing outcomes; and what people
did with an answer as a metric, the reward that `traffic.behaviour` fits to ratings of the same prompt.

The reward is fitted once, when an experiment is created, and becomes part of its definition: what is learned from later
ratings changes no running experiment. An answer without any signal is worth what the reward says of none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from whet._util.storable import is_number
from whet.errors import UsageError
from whet_client.records import KINDS
from whet_live.database import Database
from whet_live.traffic.behaviour import EVENTS, MEASURES, BehaviourModel
from whet_live.traffic.dataset import behaviour_of

MEASURED: Mapping[str, str] = {
    "cost": "dollars",
    "latency": "seconds",
    "error": "1 for an answer that failed, else 0",
}
"""Metrics that every inference carries, with their units. Others are kinds of feedback, or the names of scores."""

_OF_TASKS = {"cost_usd": '"cost", in dollars,', "latency_ms": '"latency", in seconds,'}

BEHAVIOUR = "behaviour"
"""The name of the metric that is fitted to ratings."""

_MANY = 10.0
_FEATURES = {*EVENTS, *MEASURES, *(f"{name} sent" for name in MEASURES)}


_CLOSE = "Values above it count as it; the closer it is to what answers usually take, the sooner a harm shows"
_EITHER_WAY = '"direction": "max" if more of it is good for you, "min" if it is bad'

_ASKS: Mapping[str, Mapping[str, str]] = {
    "cost": {"high": f'the most dollars that count for an answer, for instance "high": 0.05. {_CLOSE}'},
    "latency": {"high": f'the most seconds that count for an answer, for instance "high": 20. {_CLOSE}'},
    "follow_up": {"direction": _EITHER_WAY},
    "dwell": {"direction": _EITHER_WAY, "high": 'the most seconds that count, for instance "high": 300'},
}
"""Keys of a metric that only the caller can know, each with what to write."""

_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "cost": {"direction": "min", "window": 0.0},
    "latency": {"direction": "min", "window": 0.0},
    "error": {"direction": "min", "window": 0.0},
    "rating": {"low": 1.0, "high": 5.0},
    "copy": {"missing": 0.0},
    "share": {"high": _MANY, "missing": 0.0},
    "abandon": {"direction": "min", "missing": 0.0},
    "regenerate": {"direction": "min", "high": _MANY, "missing": 0.0},
    "follow_up": {"high": _MANY, "missing": 0.0},
    "edit_distance": {"direction": "min"},
}
"""Others (thumb, external_check, choice, scores) are better when they are more, from 0 to 1, for an hour."""


FURTHER_ANSWERS = 3600.0
"""Seconds after its first answer in which further answers of a unit count for what an inference carries itself."""


def defaults_of(name: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The keys that follow from a metric's name; those in `settings` are set already.

    Things that people do are 0 where nobody did them; what an inference carries itself is known at once (window 0), and the
    further answers of a unit count for as long as `FURTHER_ANSWERS` too. Raises
    UsageError for a kind of feedback that is no number, and for a key that only the caller can know, with what to write.
    """
    if name in KINDS and KINDS[name].needs != "value":
        numbers = ", ".join(kind for kind, info in KINDS.items() if info.needs == "value" and kind != "score")
        raise UsageError(
            f'The metric "{name}" is no number, so that it cannot be compared. Numbers are {numbers}, {", ".join(MEASURED)}, '
            "and scores by their names."
        )
    if name in _OF_TASKS:  # read as a score, it would guard nothing
        raise UsageError(f'The metric "{name}" of a task is {_OF_TASKS[name]} on live traffic. Write that.')
    for key, hint in _ASKS.get(name, {}).items():
        if key not in settings:
            raise UsageError(f'The metric "{name}" needs {key}: {hint}.')
    return dict(_DEFAULTS.get(name, {}))


# What people did


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that somebody did, a kind of implicit feedback with its value."""

    kind: str
    value: float


def with_reward(database: Database, definition: Mapping[str, object]) -> dict[str, object]:
    """A definition in JSON in which every metric named `behaviour` has its `reward`: the one given, or the one that the
    traffic of the prompt teaches now. Raises UsageError where there is too little to learn it from."""

    @cache
    def fit_behaviour() -> dict[str, Any]:
        try:
            return behaviour_of(database, str(definition.get("prompt"))).as_json()
        except UsageError as error:
            raise UsageError(f'The metric "{BEHAVIOUR}" cannot be used yet. {error}') from None

    filled = dict(definition)
    if "goal" in filled:
        filled["goal"] = _fill_in_reward(filled["goal"], fit_behaviour)
    if isinstance(guards := filled.get("guards"), list | tuple):
        filled["guards"] = [_fill_in_reward(guard, fit_behaviour) for guard in guards]
    return filled


def _fill_in_reward(metric: object, fitted: Callable[[], dict[str, object]]) -> object:
    """A metric or a guard-rail as a definition writes it, with the reward where its metric needs one."""
    if metric == BEHAVIOUR:
        return {"name": BEHAVIOUR, "reward": fitted()}
    if not isinstance(metric, Mapping):
        return metric
    if isinstance(metric.get("metric"), Mapping):
        return {**metric, "metric": _fill_in_reward(metric["metric"], fitted)}
    named = BEHAVIOUR in (metric.get("name"), metric.get("metric"))
    return {**metric, "reward": fitted()} if named and metric.get("reward") is None else metric


def read_reward(value: Mapping[str, object]) -> BehaviourModel:
    """The reward in a definition (`BehaviourModel.as_json`). Raises UsageError for anything else."""
    try:
        model = BehaviourModel.from_json(value)
        named = [weight.feature for weight in model.weights]
        usable = 0 < len(named) == len(set(named) & _FEATURES) and len(model.hidden) == 2
        usable = usable and all(map(is_number, _numbers(model))) and all(w.scale > 0 for w in model.weights)
        usable = usable and all(isinstance(x, str) for x in model.warnings)
    except (KeyError, TypeError, ValueError, AttributeError):
        usable = False
    if not usable:
        raise UsageError(
            f'The reward of the metric "{BEHAVIOUR}" cannot be read. Leave it out, or give what '
            "`whet feedback weights PROMPT --json` writes."
        )
    return model


def _numbers(model: BehaviourModel) -> Iterator[object]:
    """Every number of a reward."""
    yield from (model.intercept, model.answers, model.rated, model.sources, model.explained, model.effective)
    yield from model.hidden
    for weight in model.weights:
        yield from (weight.mean, weight.scale, weight.rates)
    for span in (model.naive, model.corrected, *(e for w in model.weights for e in (w.weight, w.naive))):
        yield from (span.value, span.low, span.high)
