"""An answer that names several results and none as the final one is right for none of them; an empty mark is an empty answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.environments.labels import find_label
from whet.rewards.dates import Date
from whet.rewards.item_list import ItemList
from whet.rewards.numbers import Number
from whet.run import MemoryRun
from whet.types import Completion, Example

LABELS = {name: name for name in ("positive", "negative")}
NUMBERS = [
    *[
        "4 or 5",
        "4 oder 5.",
        "4或5",
        "4 أو 5",
        "4-5",
        "4 \u2013 5",
        "4, 5",
        "3, 4 or 5",
        "3 or 4 or 5",
        "(4 or 5)",
        "1,5 or 5",
    ],
    *[
        "**4** or **5**",
        "$4 or $5",
        "4 eggs or 5 eggs",
        "4 or 5 eggs",
        "4% or 5%",
        "x = 4 or x = 5",
        "x = 4 or 5",
        "4/5/5",
    ],
    *[
        "Answer: 4 or 5",
        "3 + 1 = 4, or not?\n\n#### 4 or 5",
        "<answer>4 or 5</answer>",
        "<answer>4</answer> or <answer>5</answer>",
    ],
    *[r"\boxed{4 \text{ or } 5}", r"\boxed{4} or \boxed{5}", r"It is $\boxed{4}$, $\boxed{5}$."],
]
SINGLE = [
    *[
        "3 plus 2 is 5",
        "3 out of 5",
        "10-5=5",
        "5, 5.0",
        "1. 5",
        "Step 4: 5",
        "10的一半是5",
        "5 [3]",
        "2 + 3 = 5",
        "1\n4\n5",
    ],
    *[
        r"\boxed{4}? No, it must be \boxed{5}",
        "<sum>4</sum> <answer>5</answer> <answer>5</answer>",
        "So half of 10 is 5.",
        "# 5",
    ],
    *[
        "<answer>5</answer><note></note>",
        "There are 2 boxes with 5",
        "5 (\u00b12)",
        "2.5 x 2 = 5",
        "<think></think>\n5",
    ],
]


async def value(reward: Any, answer: str, target: Any) -> float:
    return float(
        (await reward.grade(MemoryRun(), Example("e", {"input": "q"}, target), Completion(answer))).value
    )


@pytest.mark.parametrize("answer", NUMBERS)
async def test_alternatives_are_no_number(answer: str) -> None:
    graded = await Number(last=True).grade(MemoryRun(), Example("e", {"input": "q"}, 5), Completion(answer))
    assert graded.value == 0.0
    assert "names several numbers" in str(graded.critique)
    assert await value(Number(last=True), answer, 4) == await value(Number(), answer, 5) == 0.0


@pytest.mark.parametrize("answer", SINGLE)
async def test_a_last_number_is_the_result(answer: str) -> None:
    assert await value(Number(last=True), answer, 5) == 1.0


@pytest.mark.parametrize("between", [",", " or ", "-", "/"])
async def test_many_numbers_are_read_in_time(between: str) -> None:
    assert await value(Number(last=True), between.join(["1"] * 60) + " x y z 5", 5) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        *[
            "3 March 2024 or 4 March 2024",
            "2024-03-03, 2024-03-04",
            r"\boxed{2024-03-03} or \boxed{2024-03-04}",
        ],
        *["Date: 2024-03-03 / 2024-03-04", "2024年3月3日或2024年3月4日", "<answer></answer> 2024-03-04"],
    ],
)
async def test_alternatives_are_no_date(answer: str) -> None:
    assert await value(Date(last=True), answer, "2024-03-04") == 0.0


async def test_a_last_date_is_the_result() -> None:
    assert await value(Date(last=True), "Begun 2024-03-03, it ended on 4 March 2024.", "2024-03-04") == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        *[
            "positive or negative",
            "**positive** or **negative**",
            r"\boxed{positive} or \boxed{negative}",
            "positive\nnegative",
        ],
        *[
            "<label></label> positive",
            r"\boxed{} positive",
            "<label>positive</label>, <label>negative</label>",
        ],
    ],
)
def test_alternatives_are_no_label(answer: str) -> None:
    assert find_label(answer, LABELS) is None


@pytest.mark.parametrize(
    "answer",
    ["<answer></answer> 5", "It is 5: <answer> </answer>", r"\boxed{}, so 5", r"5 = \boxed{\text{}}"],
)
async def test_an_empty_mark_is_an_empty_answer(answer: str) -> None:
    assert await value(Number(last=True), answer, 5) == await value(ItemList(), answer, ["5"]) == 0.0


async def test_a_right_number_beside_another_one_is_reported(tmp_path: Path) -> None:
    """Whether "4 or 5" in a sentence names alternatives, no rule can know."""
    result = await whet.aevaluate(
        "{{input}}",
        data=[{"input": f"q{n}", "target": 5} for n in range(6)],
        reward={"number": {"last": True}},
        lm=lambda messages: "So it is 4 or 5.",
        split="validation",
        run=tmp_path / "run",
    )
    assert result.score.mean == 1.0
    assert len([text for text in result.warnings if 'such as "So it is 4 or 5."' in text]) == 1
