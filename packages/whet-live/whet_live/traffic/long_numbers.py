"""Whole numbers beyond 64 bits, such as numbers of orders: no database keeps them as numbers, and a float would alter them. And
halves of surrogate pairs, which a text that was cut in the middle of an emoji has."""

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
_LONG = re.compile("[0-9]{20}|-[0-9]{19}")
_LONG_BYTES = re.compile(rb"[0-9]{20}|-[0-9]{19}")
_HIGH, _LOW, _HALF = (rf"u[dD]{part}[0-9a-fA-F]{{2}}" for part in ("[89abAB]", "[c-fC-F]", "[89a-fA-F]"))
_ESCAPE = re.compile(rf"\\(?:{_HIGH}\\{_LOW}|(?P<half>{_HALF})|.)", re.DOTALL)


def read_json(text: str | bytes) -> Any:
    """JSON with whole numbers of any length, of which orjson makes floats, and with U+FFFD for an escape that is half of a
    surrogate pair, which orjson refuses. Raises orjson.JSONDecodeError."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        whole = _replace_half_pairs(text)
        value = orjson.loads(whole)
        text = whole
    pattern: re.Pattern[Any] = _LONG if isinstance(text, str) else _LONG_BYTES
    if pattern.search(text) is None:
        return value
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:  # nested deeper than any row may be, which its check says
        return value


def _replace_half_pairs(text: str | bytes) -> str | bytes:
    """JSON with U+FFFD for each escape that is half of a surrogate pair; a body that is not UTF-8 as it is."""
    if not isinstance(text, str):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            return text
    return _ESCAPE.sub(lambda match: match.group() if match["half"] is None else "\\ufffd", text)


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
