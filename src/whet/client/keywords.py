"""Keywords of a call as records: `rating=4, comment="Nice"` is one rating with a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from whet.client.ids import new_id
from whet.client.records import (
    KINDS,
    LONGEST_ID,
    LONGEST_LABEL,
    LONGEST_OUTPUT,
    LONGEST_TEXT,
    Feedback,
    Inference,
    checked_feedback,
    checked_inference,
)
from whet.errors import UsageError, did_you_mean

_BESIDE = ("comment", "explanation", "name", "over", "source", "metadata", "id", "time")
_CUT = {"output": LONGEST_OUTPUT, "error": LONGEST_TEXT, "text": LONGEST_TEXT, "label": LONGEST_LABEL}


def inference_of(values: Mapping[str, Any], more: Mapping[str, Any]) -> Inference:
    """An inference from fields; those of `more` go first. Texts that are too long are cut, and `metadata.cut` names them.

    Raises UsageError for a field that is none or cannot be.
    """
    return checked_inference(Inference(**_fitted({**values, **_known(more, Inference)})))


def feedback_of(values: Mapping[str, Any], target_kind: str, target: str) -> list[Feedback]:
    """Feedback from keywords, one record for each kind. A comment goes with the rating, thumb, score or label, or stands
    alone. Texts that are too long are cut. Raises UsageError for a word that is none, and for a value that cannot be."""
    return [checked_feedback(one) for one in _records(dict(values), target_kind, target)]


def _known(more: Mapping[str, Any], kind: type[Inference]) -> dict[str, Any]:
    names = [one.name for one in fields(kind)]
    for name in more:
        if name not in names:
            raise UsageError(f'There is no field "{name}".{did_you_mean(name, names)}')
    return {name: value for name, value in more.items() if value is not None}


def _fitted(values: dict[str, Any]) -> dict[str, Any]:
    """Texts cut to what is kept, and without what no database keeps; which were cut stands in the metadata."""
    cut = []
    for name, most in _CUT.items():
        text = values.get(name)
        if isinstance(text, str):
            clean = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
            values[name] = clean[:most]
            cut += [name] if len(clean) > most else []
    if cut:
        values["metadata"] = {**values.get("metadata", {}), "cut": cut}
    return values


def _records(values: dict[str, Any], target_kind: str, target: str) -> list[Feedback]:
    """Feedback from keywords, one record for each kind."""
    user = values.pop("user", None)
    beside = {name: values.pop(name) for name in _BESIDE if name in values}
    for name in values:
        if name not in KINDS:
            raise UsageError(
                f'"{name}" is no kind of feedback.{did_you_mean(name, [*KINDS, *_BESIDE, "user"])}'
            )
    by_kind = {name: value for name, value in values.items() if value is not None}
    reason = beside.pop("comment", None) or beside.pop("explanation", None)
    own, metric, other = (beside.pop(name, None) for name in ("id", "name", "over"))
    if (by_kind.get("choice") is None) != (other is None):
        raise UsageError("feedback: choice and over go together: choice=1, over=ID_OF_THE_OTHER_ANSWER.")
    base = {"target": target, "target_kind": target_kind, "user": user, **beside}
    rows: list[dict[str, Any]] = []
    for kind, value in by_kind.items():
        needs = KINDS[kind].needs
        row = {**base, "kind": kind, needs: _value(kind, value)}
        if kind in ("score", "label"):
            row["name"] = metric
        if kind == "choice":
            row["label"] = other
        if reason and kind in ("rating", "thumb", "score", "label"):
            row["text"], reason = reason, None
        rows.append(row)
    if reason:
        rows.append({**base, "kind": "comment", "text": reason})
    if not rows:
        raise UsageError(f"The feedback says nothing. Give one of {', '.join(KINDS)}.")
    ids = [
        own if own and not n else f"{own[: LONGEST_ID - 9]}#{n}" if own else new_id()
        for n in range(len(rows))
    ]
    return [Feedback(**_fitted(row), id=id) for row, id in zip(rows, ids, strict=True)]


def _value(kind: str, value: Any) -> Any:
    """Words and truth values as numbers where a number is wanted."""
    if KINDS[kind].needs != "value":
        return value
    if kind == "thumb" and value in ("up", "down"):
        return float(value == "up")
    return float(value) if isinstance(value, bool | int) else value
