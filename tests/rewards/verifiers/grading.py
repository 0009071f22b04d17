"""A verifier from its description, and what it makes of an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whet.rewards import build_reward, check_targets
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward


async def grade(
    spec: object, answer: str, row: dict[str, Any], target: Any = None, folder: Path = Path()
) -> Reward:
    """The reward of one answer; what is not right says why."""
    reward = build_reward(spec, folder, "task.yaml:1")
    example = Example("row7", {"input": "q"}, target, row)
    check_targets(reward, [example])
    graded = await reward.grade(MemoryRun(), example, Completion(answer))
    assert (graded.critique is None) == (graded.value == 1.0)
    assert reward.low <= graded.value <= reward.high
    return graded
