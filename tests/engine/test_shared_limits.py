"""Roles that one model serves keep one bound on the calls in flight, and one rate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.model_client import AdaptiveLimiter, ModelClient, share_limits
from whet.testing.simulated_task import Answers


class Counting:
    """Answers once all calls that can begin have begun, and counts how many were in flight."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, messages: Any) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(50):
            await asyncio.sleep(0)
        self.now -= 1
        return '{"score": 5}' if "judge" in str(messages) else "An answer."


@pytest.mark.parametrize("judge", [{}, {"judge_lm": "same"}])
def test_a_model_that_is_its_own_judge_gets_no_more_calls_at_once(
    judge: dict[str, str], tmp_path: Path
) -> None:
    """The bound held for each role alone, so that the endpoint got twice as many calls."""
    model = Counting()
    found = whet.evaluate(
        "Say it. {{input}}",
        data=[{"input": f"row {number}"} for number in range(60)],
        reward={"judge": {"rubric": "Is it good?", "reference": "ignore"}},
        lm=model,
        **({"judge_lm": model} if judge else {}),  # type: ignore[arg-type]
        concurrency=4,
        root=tmp_path,
        progress=False,
    )
    assert found.score.mean == 1.0 and model.most == 4


def client(model: object, most: int, rate: float | None = None) -> ModelClient:
    return ModelClient(model, AdaptiveLimiter(most), requests_per_minute=rate)  # type: ignore[arg-type]


def test_of_different_limits_the_smallest_holds_and_other_models_keep_theirs() -> None:
    one, other = Answers(lambda q, s: ""), Answers(lambda q, s: "")
    clients = {"task": client(one, 8, 600), "judge": client(one, 32), "optimizer": client(other, 16)}
    share_limits(clients)
    assert clients["task"].limiter is clients["judge"].limiter and clients["judge"].limiter.max_in_flight == 8
    assert clients["task"].pace is clients["judge"].pace and clients["optimizer"].limiter.max_in_flight == 16
    clients["judge"].pace.note_refusal(0.0)
    assert clients["task"].pace.rate is not None and clients["optimizer"].pace.rate is None
