"""Pairs of expected and made calls: the best ones, whatever their order; several calls in one answer."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.rewards.verifiers.pairing import best_pairs
from whet.rewards.verifiers.tool_calls import ToolCalls, calls_in
from whet.run import MemoryRun
from whet.types import Completion, Example

TABLES = st.integers(0, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.none() | st.integers(0, 4), min_size=width, max_size=width), max_size=4
    )
)


def most(table: list[list[int | None]], row: int = 0, used: frozenset[int] = frozenset()) -> int:
    if row == len(table):
        return 0
    paired = [
        value + 1 + most(table, row + 1, used | {j})
        for j, value in enumerate(table[row])
        if value is not None and j not in used
    ]
    return max([most(table, row + 1, used), *paired])


@given(TABLES)
def test_no_other_pairs_agree_more(table: list[list[int | None]]) -> None:
    pairs = best_pairs(len(table), len(table[0]) if table else 0, lambda i, j: table[i][j])
    values = [table[i][j] for i, j in pairs.items()]
    assert len(set(pairs.values())) == len(pairs)
    assert sum(1 + value for value in values if value is not None) == most(table)
    assert None not in values


def test_equal_calls_are_paired_in_their_order() -> None:
    assert best_pairs(3, 3, lambda i, j: 1.0) == {0: 0, 1: 1, 2: 2}


def call(**arguments: Any) -> dict[str, Any]:
    return {"name": "book", "arguments": arguments}


async def test_the_order_of_calls_does_not_change_what_they_are_worth() -> None:
    expected = [call(x=1, y=1, z=1), call(x=1, y=2, z=3)]
    made = [call(x=1, y=1, z=3), call(x=1, y=1, z=2)]
    values = set()
    for some, others in itertools.product(itertools.permutations(expected), itertools.permutations(made)):
        row = Example("e", {"input": "q"}, None, {"calls": list(some)})
        graded = await ToolCalls().grade(MemoryRun(), row, Completion(json.dumps(others)))
        values.add(round(graded.value, 9))
    assert values == {round(7 / 9, 9)}


FIRST, SECOND = '{"name": "a", "arguments": {}}', '{"name": "b", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    "answer",
    [
        f"{FIRST}\n{SECOND}",
        f"{FIRST}; {SECOND}",
        f"First {FIRST}, then {SECOND}.",
        f"```json\n{FIRST}\n```\nand\n```json\n{SECOND}\n```",
        f"[{FIRST}, {SECOND}]",
        f'{FIRST}\nThe settings are {{"mode": 1}}.\n{SECOND}',
    ],
)
def test_all_calls_of_an_answer_are_read_in_their_order(answer: str) -> None:
    assert [str(one) for one in calls_in(answer)] == ["a()", "b(x=1)"]
