"""Whole numbers beyond 64 bits, such as numbers of orders: no database keeps them as numbers, and a float would alter them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from whet_client.json_values import json_value
from whet_client.records import Inference

_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
_MOST_DIGITS = 4000
"""Digits of a number that is read as such (Python reads no more than 4,300)."""
_LONG = re.compile("[0-9]{20}")
_LONG_BYTES = re.compile(rb"[0-9]{20}")


def read_json(text: str | bytes) -> Any:
    """JSON with whole numbers of any length, of which orjson makes floats. Raises orjson.JSONDecodeError."""
    value = orjson.loads(text)
    pattern: re.Pattern[Any] = _LONG if isinstance(text, str) else _LONG_BYTES
    if pattern.search(text) is None:
        return value
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:  # nested deeper than any row may be, which its check says
        return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def has_long_number(value: object) -> bool:
    """Whether a value of JSON holds a whole number beyond 64 bits."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, int) and not _LOWEST <= one <= _HIGHEST:
            return True
    return False


def write_long_numbers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row with such numbers in `inputs` and `metadata` as texts, and the names of these fields in
    `metadata.cleaned`, as the client does it.

    >>> write_long_numbers({"inputs": {"order": 10**20}})
    {'inputs': {'order': '100000000000000000000'}, 'metadata': {'cleaned': ['inputs']}}
    """
    cleaned = {
        name: json_value(fields[name]) for name in ("inputs", "metadata") if has_long_number(fields.get(name))
    }
    row = {**fields, **cleaned}
    if cleaned and isinstance(row.get("metadata", {}), Mapping):
        row["metadata"] = {**row.get("metadata", {}), "cleaned": [*cleaned]}
    return row


def clean_inference(one: Inference) -> Inference:
    """The answer with such numbers as texts."""
    before = {"inputs": one.inputs, "metadata": one.metadata}
    return replace(one, **write_long_numbers(before)) if any(map(has_long_number, before.values())) else one
