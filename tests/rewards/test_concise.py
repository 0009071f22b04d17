"""Short answers are better once they are right, and never before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.rewards import build_reward, check_targets
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward

ROW = Example("row7", {"input": "q"}, "7", {})


async def grade(options: dict[str, Any], completion: Completion, example: Example = ROW) -> Reward:
    reward = build_reward({"concise": options}, Path(), "task.yaml:1")
    check_targets(reward, [example])
    graded = await reward.grade(MemoryRun(), example, completion)
    assert reward.low <= graded.value <= reward.high
    return graded


async def test_length_counts_by_its_formula_for_right_answers_only() -> None:
    options = {"reward": {"number": {"last": True}}, "share": 0.2, "characters": 100}
    right = await grade(options, Completion("It is 7.", thought="x" * 42))
    assert right.value == pytest.approx(0.8 + 0.2 * 0.5)
    assert right.parts == {"number": 1.0, "length": 50.0} and "50 characters" in str(right.critique)
    assert (await grade(options, Completion("It is 7." + " " * 500))).value == pytest.approx(0.8)
    assert (await grade(options, Completion("8"))).value == 0.0


async def test_a_right_answer_is_never_worth_less_than_another_one() -> None:
    options = {"reward": "f1", "characters": 10}
    example = Example("row7", {"input": "q"}, "red green blue", {})
    long = await grade(options, Completion("red green blue" + " " * 90), example)
    short = await grade(options, Completion("red blue"), example)
    assert short.value < long.value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "reward"),
        ({"reward": "number", "share": 1}, "share"),
        ({"reward": "number", "characters": 0}, "characters"),
        ({"reward": "number", "characters": "many"}, "characters"),
        ({"reward": "number", "lenght": 3}, "lenght"),
        ({"reward": "no_such"}, "no_such"),
    ],
)
async def test_settings_that_cannot_be_meant_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"task\.yaml:1: .*{says}"):
        await grade(options, Completion("7"))
    with pytest.raises(UsageError, match="row8"):
        await grade({"reward": "number"}, Completion("7"), Example("row8", {"input": "q"}, "seven", {}))


@given(st.integers(0, 300), st.integers(0, 300))
async def test_of_two_right_answers_the_shorter_is_worth_as_much_or_more(one: int, other: int) -> None:
    values = [
        (await grade({"reward": "number", "characters": 200}, Completion("7", thought="x" * n))).value
        for n in sorted((one, other))
    ]
    assert values[0] >= values[1] >= 0.8 - 1e-9
