"""Lists in answers: commas within items, lists in boxes, tags and last lines."""

from __future__ import annotations

from typing import Any

import pytest

from whet.rewards.item_list import ItemList
from whet.run import MemoryRun
from whet.types import Completion, Example


async def value(answer: str, target: Any, reward: ItemList | None = None) -> float:
    row = Example("e", {"input": "q"}, target)
    return float((await (reward or ItemList()).grade(MemoryRun(), row, Completion(answer))).value)


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ("New York, NY", ["New York, NY"]),
        ("New York, NY, Boston, MA", ["Boston, MA", "New York, NY"]),
        ("Smith, John; Doe, Ann", ["Smith, John", "Doe, Ann"]),
        ("1,000, 2,000", [1000, 2000]),
        ("1,000,000, 2", [1000000, 2]),
        ("red, green", ["red", "green"]),
    ],
)
async def test_a_comma_within_an_item_divides_nothing(answer: str, target: list[object]) -> None:
    assert await value(answer, target) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "<answer>a, b</answer>",
        "I weigh c and d.\n<answer>b, a</answer>",
        "<item>a</item>\n<item>b</item>",
        "So it is \\boxed{a, b}.",
        "\\boxed{a}, \\boxed{b}",
        "Reasoning: x, y, z\nAnswer: a, b",
        "Two of them fit.\n\n**Labels:** a; b",
    ],
)
async def test_the_list_of_a_longer_answer_is_found(answer: str) -> None:
    assert await value(answer, ["a", "b"]) == 1.0
    assert await value(answer, ["x", "y"]) < 1.0


async def test_items_with_colons_stay_items() -> None:
    assert await value("size: 3\ncolour: red", ["size: 3", "colour: red"]) == 1.0


async def test_a_separator_divides_all_the_same() -> None:
    assert await value("New York, NY", ["New York, NY"], ItemList(separator=",")) == 0.0
    assert await value("<answer>a/b</answer>", "a/b", ItemList(separator="/")) == 1.0
