"""The rows of REST requests: JSON from strangers read into records.

`POST /v1/inferences` takes `{"inferences": [...]}`, `POST /v1/feedback` takes `{"feedback": [...]}`. A row of feedback is
written in the words of `whet_client.records` (kind, target, value, ...), or in those of Phoenix, LangSmith or TensorZero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from whet.errors import UsageError, did_you_mean
from whet_client.ids import microseconds
from whet_client.records import (
    KINDS,
    TARGETS,
    Feedback,
    Inference,
    checked_feedback,
    checked_inference,
    thumb_value,
)
from whet_client.storable import show_value
from whet_live.traffic.adapters import is_foreign, translate_row
from whet_live.traffic.long_numbers import write_long_numbers
from whet_live.traffic.scales import RawFeedback, parse_scale, settle_batch

MOST_ROWS = 1000
"""Rows of one request."""

T = TypeVar("T")

_INFERENCE = frozenset(field.name for field in fields(Inference))
_FEEDBACK = frozenset(field.name for field in fields(Feedback))
_NUMBERS = ("value", "cost", "latency")
_SAME = {"prompt_name": "prompt", "prompt_version": "version", "tags": "metadata", "key": "id"}


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a request that cannot be stored: its place in the list where that is known, its id where it has one, and why."""

    index: int | None
    id: str | None
    message: str

    def as_json(self) -> dict[str, object]:
        """The row as JSON values."""
        return asdict(self)


class RowsRefused(UsageError):
    """Rows of a request cannot be stored; the message is that of the first one."""

    def __init__(self, rows: Sequence[RefusedRow]) -> None:
        more = len(rows) - 1
        rest = f" Refused as well: {more} more. Nothing is stored." if more else ""
        super().__init__(rows[0].message + rest)
        self.rows = tuple(rows)


def read_inferences(body: object) -> list[Inference]:
    """Inferences of a request, checked, in their order. Raises UsageError for a value that is no list of rows, and RowsRefused
    with each row that cannot be used, naming row and field."""
    return [one for _, one in _read_each(body, "inferences", _read_inference)]


def _read_inference(row: Mapping[str, object], where: str) -> list[Inference]:
    values = _fields(row, where, _INFERENCE)
    if "prompt" not in values:
        raise UsageError(f"{where}: prompt is missing. Name the prompt that answered.")
    return [checked_inference(Inference(**values), where)]


def parse_feedback(body: object) -> list[Feedback]:
    """Feedback of a request, checked, in the order given; a row in another tool's words may become several.

    The target of a row stands in `target` (with `target_kind`), or in `inference`, `response`, `episode` or
    `session` (also with `_id` behind). Raises as `read_inferences` does.
    """
    raw = _read_each(body, "feedback", _read_feedback)
    settled = settle_batch([(f"feedback[{index}]", one) for index, one in raw])
    rows = _rows(body, "feedback")
    refused = [
        _refuse_row(index, rows[index], result)
        for (index, _), result in zip(raw, settled, strict=True)
        if isinstance(result, UsageError)
    ]
    if refused:
        raise RowsRefused(refused)
    return [one for one in settled if isinstance(one, Feedback)]


def _read_feedback(row: Mapping[str, object], where: str) -> list[RawFeedback]:
    if "kind" not in row and is_foreign(row):
        rows = translate_row(row, where)
        for one in rows:
            checked_feedback(one.feedback, where)
        return rows
    values = _fields(_with_target(row, where), where, _FEEDBACK | {"scale"})
    kind, scale = values.get("kind"), values.pop("scale", None)
    if kind == "thumb" and "value" in values:
        values["value"] = thumb_value(values["value"], f"{where}: value")
    elif isinstance(values.get("value"), bool) and kind != "rating":
        values["value"] = float(values["value"])
    if "value" not in values and isinstance(kind, str) and kind in KINDS:
        values["value"] = KINDS[kind].default
    missing = next((name for name in ("kind", "target") if name not in values), None)
    if missing is not None:
        known = f" Write one of {', '.join(KINDS)}." if missing == "kind" else " Name the inference."
        raise UsageError(f"{where}: {missing} is missing.{known}")
    if scale is not None:
        return [_rating_on_scale(Feedback(**values), scale, where)]
    return [RawFeedback(checked_feedback(Feedback(**values), where))]


def _rating_on_scale(rating: Feedback, scale: object, where: str) -> RawFeedback:
    """A rating whose row states its scale; `settle_batch` makes stars of its number."""
    if rating.kind != "rating" or rating.value is None:
        checked_feedback(rating, where)
        raise UsageError(
            f"{where}: scale: a {rating.kind} has none; a scale belongs to a rating. Leave it out."
        )
    if parse_scale(str(scale), f"{where}: scale").kind != "rating":
        raise UsageError(
            f"{where}: scale: {show_value(scale)} is no scale of a rating. Write the worst and the best value, as in 1..10."
        )
    number = checked_feedback(replace(rating, kind="score"), where)
    return RawFeedback(number, "rating", scale=str(scale))


def _read_each(
    body: object, name: str, read: Callable[[Mapping[str, object], str], list[T]]
) -> list[tuple[int, T]]:
    """The content of each row of a request, with the place of the row."""
    records: list[tuple[int, T]] = []
    refused: list[RefusedRow] = []
    for index, row in enumerate(_rows(body, name)):
        try:
            if not isinstance(row, Mapping):
                raise UsageError(f"{name}[{index}] must be an object; this is {str(row)[:60]!r}.")
            records += [(index, one) for one in read(row, f"{name}[{index}]")]
        except UsageError as error:
            refused.append(_refuse_row(index, row, error))
    if refused:
        raise RowsRefused(refused)
    return records


def _refuse_row(index: int, row: object, error: UsageError) -> RefusedRow:
    key = row.get("id") if isinstance(row, Mapping) else None
    return RefusedRow(index, key if isinstance(key, str) else None, str(error))


def _rows(body: object, name: str) -> list[object]:
    """The rows of a request."""
    rows = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(rows, list):
        raise UsageError(f'The request must be an object {{"{name}": [...]}}.')
    if len(rows) > MOST_ROWS:
        raise UsageError(f"{name}: {len(rows)} rows, at most {MOST_ROWS} in one request. Send several.")
    return rows


def _with_target(row: Mapping[str, object], where: str) -> dict[str, object]:
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
    values: dict[str, object] = {}
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
    return write_long_numbers(values)
