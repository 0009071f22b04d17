"""The rows of REST requests: JSON from strangers read into records.

`POST /v1/inferences` takes `{"inferences": [...]}`, `POST /v1/feedback` takes `{"feedback": [...]}`. A row of feedback is
written in the words of `whet.client.records` (kind, target, value, ...), or in those of Phoenix, LangSmith or TensorZero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from whet.client.ids import microseconds
from whet.client.records import KINDS, TARGETS, Feedback, Inference, checked_feedback, checked_inference
from whet.errors import UsageError, did_you_mean
from whet.live.traffic.adapters import is_foreign, translated

MOST_ROWS = 1000
"""Rows of one request."""

_INFERENCE = frozenset(one.name for one in fields(Inference))
_FEEDBACK = frozenset(one.name for one in fields(Feedback))
_NUMBERS = ("value", "cost", "latency")
_SAME = {"prompt_name": "prompt", "prompt_version": "version", "tags": "metadata", "key": "id"}


def read_inferences(body: object) -> list[Inference]:
    """Inferences of a request, checked, in the order given. Raises UsageError naming row and field."""
    inferences = []
    for row, where in _rows(body, "inferences"):
        values = _fields(row, where, _INFERENCE)
        if "prompt" not in values:
            raise UsageError(f"{where}: prompt is missing. Name the prompt that answered.")
        inferences.append(checked_inference(Inference(**values), where))
    return inferences


def read_feedback(body: object) -> list[Feedback]:
    """Feedback of a request, checked, in the order given; a row in another tool's words may become several.

    The target of a row stands in `target` (with `target_kind`), or in `inference`, `response`, `episode` or
    `session` (also with `_id` behind). Raises UsageError naming row and field.
    """
    feedback = []
    for row, where in _rows(body, "feedback"):
        if "kind" not in row and is_foreign(row):
            feedback += [checked_feedback(one, where) for one in translated(row, where)]
            continue
        values = _fields(_with_target(row, where), where, _FEEDBACK)
        kind = values.get("kind")
        if kind == "thumb" and isinstance(values.get("value"), bool):
            values["value"] = float(values["value"])
        if "value" not in values and isinstance(kind, str) and kind in KINDS:
            values["value"] = KINDS[kind].default
        missing = next((name for name in ("kind", "target") if name not in values), None)
        if missing is not None:
            known = f" Write one of {', '.join(KINDS)}." if missing == "kind" else " Name the inference."
            raise UsageError(f"{where}: {missing} is missing.{known}")
        feedback.append(checked_feedback(Feedback(**values), where))
    return feedback


def _rows(body: object, name: str) -> list[tuple[Mapping[str, Any], str]]:
    """Every row with its place, `feedback[0]`."""
    rows = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(rows, list):
        raise UsageError(f'The request must be an object {{"{name}": [...]}}.')
    if len(rows) > MOST_ROWS:
        raise UsageError(f"{name}: {len(rows)} rows, at most {MOST_ROWS} in one request. Send several.")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"{name}[{number}] must be an object; this is {str(row)[:60]!r}.")
    return [(row, f"{name}[{number}]") for number, row in enumerate(rows)]


def _with_target(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    named = dict(row)
    for kind in TARGETS:
        for spelling in (kind, f"{kind}_id"):
            if spelling in named:
                if "target" in named:
                    raise UsageError(f"{where}: {spelling}: the row names two targets. Leave one out.")
                named["target"], named["target_kind"] = named.pop(spelling), kind
    return named


def _fields(row: Mapping[str, Any], where: str, known: frozenset[str]) -> dict[str, Any]:
    """Fields by our names, the time as a number; null is absent. Raises UsageError for a name that is none."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        name = key if key in known else _SAME.get(key, key)
        if name not in known:
            raise UsageError(f'{where}: there is no field "{str(key)[:60]}".{did_you_mean(str(key), known)}')
        if name in values:
            raise UsageError(f"{where}: {name} is given twice. Leave one out.")
        if value is None:
            continue
        if name == "time":
            value = microseconds(value, f"{where}: time")
        elif name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 2**53 else value
        values[name] = value
    return values
