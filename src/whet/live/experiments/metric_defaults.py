"""What a metric is when a definition names it and says no more: its direction, range, window and missing outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.client.records import KINDS
from whet.errors import UsageError

MEASURED: Mapping[str, str] = {
    "cost": "dollars",
    "latency": "seconds",
    "error": "1 for an answer that failed, else 0",
}
"""Metrics that every inference carries, with their units. Others are kinds of feedback, or the names of scores."""

_MANY = 10.0


@dataclass(frozen=True)
class MetricDefaults:
    """Keys of a metric that follow from its name. `asks` are keys that do not, each with what to write."""

    keys: Mapping[str, Any]
    asks: Mapping[str, str]


def _one(asks: Mapping[str, str] | None = None, **keys: Any) -> MetricDefaults:
    return MetricDefaults(keys, asks or {})


_CLOSE = "Values above it count as it; the closer it is to what answers usually take, the sooner a harm shows"
_EITHER_WAY = '"direction": "max" if more of it is good for you, "min" if it is bad'

_DEFAULTS: Mapping[str, MetricDefaults] = {
    "cost": _one(
        {"high": f'the most dollars that count for an answer, for instance "high": 0.05. {_CLOSE}'},
        direction="min",
        window=0.0,
    ),
    "latency": _one(
        {"high": f'the most seconds that count for an answer, for instance "high": 20. {_CLOSE}'},
        direction="min",
        window=0.0,
    ),
    "error": _one(direction="min", window=0.0),
    "rating": _one(low=1.0, high=5.0),
    "copy": _one(missing=0.0),
    "share": _one(high=_MANY, missing=0.0),
    "abandon": _one(direction="min", missing=0.0),
    "regenerate": _one(direction="min", high=_MANY, missing=0.0),
    "follow_up": _one({"direction": _EITHER_WAY}, high=_MANY, missing=0.0),
    "edit_distance": _one(direction="min"),
    "dwell": _one(
        {
            "direction": _EITHER_WAY,
            "high": 'the most seconds that count, for instance "high": 300',
        }
    ),
}
"""Others (thumb, external_check, choice, scores) are better when they are more, from 0 to 1, for an hour."""


def defaults_of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that follow from a metric's name; those in `settings` are set already.

    Things that people do are 0 where nobody did them; what an inference carries itself is known at once (window 0). Raises
    UsageError for a kind of feedback that is no number, and for a key that only the caller can know, with what to write.
    """
    if name in KINDS and KINDS[name].needs != "value":
        numbers = ", ".join(kind for kind, info in KINDS.items() if info.needs == "value" and kind != "score")
        raise UsageError(
            f'The metric "{name}" is no number, so that it cannot be compared. Numbers are {numbers}, {", ".join(MEASURED)}, '
            "and scores by their names."
        )
    defaults = _DEFAULTS.get(name, _one())
    for key, hint in defaults.asks.items():
        if key not in settings:
            raise UsageError(f'The metric "{name}" needs {key}: {hint}.')
    return dict(defaults.keys)
