"""Columns of plain tables beside those of feedback: the amounts and the metadata of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.feedback.rows import further_verdicts, snake_case
from whet_client.json_values import cut_texts, is_json, json_value
from whet_client.records import LARGEST_VERSION, LONGEST_METADATA
from whet_client.storable import show_value
from whet_live.traffic.adapters import as_number, is_target
from whet_live.traffic.otlp.content import parse_json_text

_AMOUNTS = {
    "cost": ("cost", 1.0, 1e6),
    "total_cost": ("cost", 1.0, 1e6),
    "latency": ("latency", 1.0, 1e7),
    "latency_ms": ("latency", 1e-3, 1e7),
    "input_tokens": ("input_tokens", 1.0, LARGEST_VERSION),
    "prompt_tokens": ("input_tokens", 1.0, LARGEST_VERSION),
    "output_tokens": ("output_tokens", 1.0, LARGEST_VERSION),
    "completion_tokens": ("output_tokens", 1.0, LARGEST_VERSION),
}
"""The field of each column, what its values are multiplied with (dollars, seconds, tokens), and the largest value."""
_VERSION = "prompt_version"
_BLANK = ("", "none", "null", "nan", "nat")
"""The texts that tables write into empty cells, in lower case."""
_ELSEWHERE = frozenset(
    (
        "prompt_name",
        "model",
        "session_id",
        "session",
        "user_id",
        "metric_name",
        "key",
        "name",
        "data_type",
        "scale",
    )
)
"""Columns that fields of the feedback or of the answer keep already."""
SCORES = frozenset(("feedback_scores", "scores"))
"""Columns of a row with an answer that hold several scores."""
_MARKS = 400
"""Characters that are reserved for the notes `cut` and `cleaned`."""


def read_amounts(named: Mapping[str, object]) -> dict[str, Any]:
    """Cost, latency and tokens of an answer, from its columns in lower case; of several columns the first that can be used."""
    amounts: dict[str, Any] = {}
    for column, (name, _, _) in _AMOUNTS.items():
        value = _amount(column, named.get(column))
        if value is not None:
            amounts.setdefault(name, int(value) if name.endswith("tokens") else value)
    return amounts


def _amount(column: str, value: object) -> float | None:
    name, factor, most = _AMOUNTS[column]
    number = None if isinstance(value, bool) else as_number(value)
    if number is None or not 0 <= number * factor <= most:
        return None
    return None if name.endswith("tokens") and not number.is_integer() else number * factor


def version_of_cell(value: object) -> int | None:
    """The version of a prompt that a cell names; None when it names none."""
    number = as_number(value)
    whole = number is not None and 0 <= number <= LARGEST_VERSION and number.is_integer()
    return int(number) if whole and number is not None else None


def unusable_cells(row: Mapping[str, object]) -> list[tuple[str, str]]:
    """The cells of a row that should hold an amount of its answer or the version of its prompt, and hold something else."""
    return [
        (column, show_value(value))
        for column, value in row.items()
        if str(value).strip().casefold() not in _BLANK
        and snake_case(column) in (_VERSION, *_AMOUNTS)
        and not _is_elsewhere(snake_case(column), value)
    ]


def other_columns(row: Mapping[str, object], left: Mapping[str, object]) -> dict[str, Any]:
    """The metadata of an answer: the columns that are `left` after its feedback was read and that fill no field of the answer.

    The values of a column `metadata` become metadata themselves. Texts that are too long are cut (noted under `cut`), and
    values without a form in JSON become texts (noted under `cleaned`)."""
    verdicts = {snake_case(column) for further in further_verdicts(row) for column in further}
    own = parse_json_text(left.get("metadata"))
    columns = dict(own) if isinstance(own, Mapping) else {}
    for column, value in left.items():
        if not (_is_elsewhere(column, value) or column in verdicts or (column == "metadata" and columns)):
            columns.setdefault(column, value)
    if not columns:
        return {}
    written = json_value(columns)
    short = cut_texts(written, LONGEST_METADATA - _MARKS)
    marks = {"cut": short != written, "cleaned": not is_json(columns, written)}
    return {**short, **{mark: ["metadata"] for mark, holds in marks.items() if holds}}


def _is_elsewhere(column: str, value: object) -> bool:
    if column == _VERSION:
        return version_of_cell(value) is not None
    if column in _AMOUNTS:
        return _amount(column, value) is not None
    return (
        column in _ELSEWHERE or is_target(column) or (column in SCORES and isinstance(value, Mapping | list))
    )
