"""What a function of a user may return, and what it may ask for."""

from __future__ import annotations

import dataclasses
import types
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from whet.errors import UsageError
from whet.rewards import ProgramReward, RewardFailed, build_reward
from whet.rewards.program import try_rewards
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward

ROWS = [Example(f"row{i}", {"input": "q"}, f"t{i}", {"target": f"t{i}"}) for i in range(4)]
SAID = "Too long."
Pair = namedtuple("Pair", ["score", "feedback"])


@dataclasses.dataclass
class Report:
    score: float
    reason: str


class Prediction:
    """As `dspy.Prediction`: no Mapping, but it has keys and items, and numbers of its own."""

    def __init__(self, **values: Any) -> None:
        self._store = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_store"][name]
        except KeyError:
            raise AttributeError(name) from None

    def keys(self) -> Any:
        return self._store.keys()

    def items(self) -> Any:
        return self._store.items()

    def __float__(self) -> float:
        return float(self._store["score"])


def built(function: Callable[..., Any], **options: Any) -> ProgramReward:
    reward = build_reward({"program": {"function": function, **options}}, None, "reward")  # type: ignore[arg-type]
    assert isinstance(reward, ProgramReward)
    return reward


async def grade(function: Callable[..., Any], completion: Completion | None = None) -> Reward:
    return await built(function).grade(MemoryRun(), ROWS[0], completion or Completion("x"))


@pytest.mark.parametrize(
    "value",
    [
        Prediction(score=0.5, feedback=SAID),
        {"score": 0.5, "feedback": SAID},
        {"reward": 0.5, "critique": SAID},
        {"score": np.float32(0.5), "comment": SAID},
        (0.5, SAID),
        [0.5, SAID],
        (np.float64(0.5), {"feedback": SAID}),
        Pair(0.5, SAID),
        Report(0.5, SAID),
        types.SimpleNamespace(score=0.5, feedback=SAID),
        whet.Reward(0.5, critique=SAID),
    ],
)
async def test_a_score_with_words_is_a_reward_with_a_critique(value: Any) -> None:
    reward = await grade(lambda example, output: value)
    assert (reward.value, reward.critique, dict(reward.parts)) == (0.5, SAID, {})


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (np.bool_(False), 0.0), (np.int64(1), 1.0), (np.array(0.5), 0.5), ((1, None), 1.0)],
)
async def test_scalars_are_numbers(value: Any, number: float) -> None:
    reward = await grade(lambda example, output: value)
    assert reward.value == number and reward.critique is None


async def test_a_score_beside_a_reward_is_a_part() -> None:
    reward = await grade(lambda example, output: {"reward": 1, "score": 0.25})
    assert reward.value == 1.0 and dict(reward.parts) == {"score": 0.25}


@pytest.mark.parametrize(
    "value", [None, float("nan"), {"score": None}, (None, SAID), np.array([0.5, 1.0]), (0.5, 0.6)]
)
async def test_what_is_no_number_names_the_row(value: Any) -> None:
    with pytest.raises(RewardFailed, match="row row0"):
        await grade(lambda example, output: value)
    with pytest.raises(UsageError, match="row row0"):
        await try_rewards([built(lambda example, output: value)], ROWS)


async def _of_file(example: Any, output: str) -> Any:
    return {"score": float(output == example["target"]), "feedback": SAID}


async def test_a_coroutine_in_a_file_is_awaited(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "import asyncio\n\nasync def reward(example, output):\n    await asyncio.sleep(0)\n    return 0.5\n"
    )
    reward = build_reward("reward.py", tmp_path, "task.yaml:4")
    assert (await reward.grade(MemoryRun(), ROWS[0], Completion("x"))).value == 0.5
    assert (await grade(_of_file)).critique == SAID


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (lambda example, output: 0 if output == example["target"] else -1, -1, 0),
        (lambda example, output: 5 if output == example["target"] else 1, 0, 5),
        (
            lambda example, output: {True: 1}.get(
                output == example["target"], -0.5 if output[:1] == "t" else 0
            ),
            -1,
            1,
        ),
    ],
)
async def test_a_range_that_is_not_stated_is_refused_before_anything_is_paid(
    function: Callable[..., Any], low: int, high: int
) -> None:
    with pytest.raises(UsageError, match=rf"low: {low}, high: {high}.*in Python"):
        await try_rewards([built(function)], ROWS)
    assert await try_rewards([built(function, low=-1, high=5)], ROWS) == []


async def test_a_range_that_is_left_later_ends_the_run_after_the_start_prompt(
    tmp_path: Path,
) -> None:
    def reward(example: dict[str, Any], output: str) -> float:
        return -1.0 if output == "wrong" else float(output == example["target"])

    with pytest.raises(UsageError, match=r"left its range on 1 of 1 rows.*low: -1, high: 1"):
        await whet.aevaluate(
            "{{input}}",
            data=[{"input": f"q{i}", "target": f"t{i}"} for i in range(4)],
            reward=reward,
            lm=lambda messages: "wrong",
            split="validation",
            root=tmp_path,
        )


async def test_a_function_with_trace_gets_the_steps() -> None:
    steps = ({"role": "tool", "name": "add", "arguments": {"a": 1}, "output": "2", "error": False},)
    seen: list[Any] = []

    def needs(example: Any, output: str, trace: Any) -> float:
        seen.append(trace)
        return 1.0

    def may(example: Any, output: str, trace: Any = None) -> float:
        seen.append(trace)
        return 1.0

    for function in (needs, may):
        await grade(function, Completion("x", steps=steps))
        await grade(function, Completion("x"))
    single = [{"role": "task", "name": "", "arguments": {}, "output": "x"}]
    assert seen == [list(steps), single, list(steps), None]


async def test_a_sum_of_floats_that_misses_the_range_by_rounding_is_the_end_of_the_range() -> None:
    """0.55 + 0.05 + 0.3 + 0.1 is 1.0000000000000002: a perfect answer is no error."""
    for returned, kept in ((0.55 + 0.05 + 0.3 + 0.1, 1.0), (-2e-17, 0.0), (0.5, 0.5)):
        assert (await grade(lambda example, output, value=returned: value)).value == kept
    with pytest.raises(RewardFailed):
        await grade(lambda example, output: 1.001)
