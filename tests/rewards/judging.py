"""A judge that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whet.rewards import RewardFunction, build_reward
from whet.run import MemoryRun
from whet.types import Completion, Example, Request, Reward

Reply = str | Completion


class FakeJudge:
    """`answer` is a function of the request, or replies that are given in order."""

    def __init__(self, answer: Callable[[Request], Reply] | Sequence[Reply]) -> None:
        self.answer = answer
        self.asked: list[Request] = []

    async def generate(self, request: Request) -> list[Completion]:
        self.asked.append(request)
        reply = self.answer(request) if callable(self.answer) else self.answer[len(self.asked) - 1]
        return [reply if isinstance(reply, Completion) else Completion(reply)]


def built(spec: Any, folder: Path = Path()) -> RewardFunction:
    return build_reward(spec, folder, "task.yaml:4")


async def grade(
    reward: RewardFunction, judge: FakeJudge, output: str = "The answer.", target: Any = None
) -> Reward:
    example = Example("e", {"input": "The input."}, target, {"input": "The input."}, "The input.")
    return await reward.grade(MemoryRun({"judge": judge}), example, Completion(output))
