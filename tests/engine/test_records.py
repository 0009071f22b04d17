"""Recorded values as types: what an effect returned is read as the method declares it, or refused."""

from __future__ import annotations

from typing import TypedDict

import pytest

from whet.errors import ReplayDiverged
from whet.run import MemoryRun, convert_record


class Pair(TypedDict):
    """A value with two names."""

    first: int
    scores: list[float]


async def draw() -> dict[str, object]:
    return {"first": 3, "scores": (1, 0.5), "more": None}


async def test_a_record_has_the_declared_type() -> None:
    pair = convert_record(await MemoryRun().effect("draw", draw), Pair)
    assert pair == {"first": 3, "scores": [1.0, 0.5]}


async def test_a_record_of_another_type_is_refused_with_a_remedy() -> None:
    record = await MemoryRun().effect("draw", draw)
    with pytest.raises(ReplayDiverged, match=r"cannot be read.*start a new run"):
        convert_record(record, list[str])


async def test_a_run_in_memory_returns_what_json_would_give_back() -> None:
    assert await MemoryRun().effect("draw", draw) == {"first": 3, "scores": [1, 0.5], "more": None}
