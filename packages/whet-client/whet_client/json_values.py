"""Values of an app as JSON: what a database keeps of whatever a program has at hand."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Iterator, Mapping, Set
from datetime import date, time
from typing import Any

from whet_client.storable import plain_number, repair_surrogates, show_value

_DEEPEST = 100
_LARGEST = 2**63


def json_value(value: Any) -> Any:
    """A value as JSON and every reader of it hold it: objects by their fields, times as ISO 8601, numbers of other libraries as
    plain ones. What JSON has no form for is a text: a number beyond 64 bits, NaN, anything else by its words, and a value
    inside of itself `…`. Texts are without NUL and without halves of surrogate pairs.

    >>> json_value({"when": date(2026, 1, 31), "ids": (10**20, float("nan"))})
    {'when': '2026-01-31', 'ids': ['100000000000000000000', 'nan']}
    """
    return _json_value(value, ())


def is_json(value: Mapping[Any, Any], written: Any) -> bool:
    """Whether an object says as JSON what `json_value` made of it, so that nothing of it is lost."""
    try:
        return json.dumps(dict(value), allow_nan=False) == json.dumps(written)
    except (TypeError, ValueError, RecursionError):
        return False


def cut_texts(value: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A JSON object with its longest texts cut, so that it has at most `most` characters as JSON; where not its texts are what is
    long, the beginning of it as one text, under the key `json`.

    >>> cut_texts({"question": "Why?", "page": "x" * 1000}, 40)
    {'question': 'Why?', 'page': 'xxxxxxxx'}
    """
    written = json.dumps(dict(value), ensure_ascii=False)
    excess = len(written) - most
    if excess <= 0:
        return dict(value)
    lengths = sorted(map(len, _texts_of(value)), reverse=True)
    if sum(lengths) < excess:
        return {"json": written[: most // 4]}  # each sign may need several as a text in JSON
    for count, (length, shorter) in enumerate(zip(lengths, [*lengths[1:], 0], strict=True), 1):
        if count * (length - shorter) >= excess:
            return _with_short_texts(value, length - -(-excess // count))  # type: ignore[no-any-return]
        excess -= count * (length - shorter)
    return {}


def _texts_of(value: Any) -> Iterator[str]:
    """The texts of a JSON value, keys aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_of(inner)


def _with_short_texts(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, Mapping):
        return {key: _with_short_texts(inner, most) for key, inner in value.items()}
    return [_with_short_texts(inner, most) for inner in value] if isinstance(value, list) else value


def _json_value(value: Any, around: tuple[int, ...]) -> Any:
    value = value.value if isinstance(value, enum.Enum) else plain_number(value)
    if isinstance(value, str):
        return repair_surrogates(str(value).replace("\x00", ""))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _LARGEST else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, date | time):
        return value.isoformat()
    if id(value) in around or len(around) > _DEEPEST:
        return "…"
    inner = (*around, id(value))
    if isinstance(fields := _fields_of(value), Mapping):
        return {_json_key(key): _json_value(one, inner) for key, one in fields.items()}
    items = sorted(value, key=repr) if isinstance(value, Set) else _items_of(value)
    return show_value(value, 1000) if items is None else [_json_value(item, inner) for item in items]


def _json_key(key: object) -> str:
    return str(_json_value(key, ())) if isinstance(key, str | int | float | date) else show_value(key, 1000)


def _fields_of(value: Any) -> Any:
    """The fields of an object by name; the value itself where it has none."""
    if isinstance(value, Mapping | type):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = next(
        (getattr(value, name, None) for name in ("model_dump", "_asdict") if hasattr(value, name)), None
    )
    return dump() if callable(dump) else value


def _items_of(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """The items of a list, a tuple or an array of another library; None for anything else."""
    if isinstance(value, list | tuple):
        return value
    listed = value.tolist() if callable(getattr(value, "tolist", None)) else None
    return listed if isinstance(listed, list) else None
