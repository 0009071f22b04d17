"""Rewards of several samples of each input, and prompts compared input by input."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.environments.worlds import small

from whet.environments.environment import Environment, Generation
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.best_samples import NOTE, best_of_parts, check_samples, compare_by_input, with_samples
from whet.testing.runs import MeteredRun

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")


class Keeper:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("rewards", "parts", "expected"),
    [
        ([0.1, 0.4, 0.3, 0.2], 1, 0.4),
        ([0.1, 0.4, 0.3, 0.2], 2, 0.35),
        ([0.1, 0.4, 0.3, 0.2], 4, 0.25),
        ([0.5], 4, 0.5),
        ([1.0, 0.0, 0.0], 2, 0.5),
    ],
)
def test_the_mean_of_the_best_of_each_part_by_hand(rewards: list[float], parts: int, expected: float) -> None:
    assert best_of_parts(rewards, parts) == pytest.approx(expected)


def test_prompts_are_compared_on_each_input_so_that_a_hard_one_counts_like_an_easy_one() -> None:
    """Prompt a is better by .01 on the input whose rewards are small, prompt b by .2 on the one whose rewards are large."""
    by_input = compare_by_input([[0.02, 0.5], [0.01, 0.7], [0.01, 0.6]])
    assert by_input[0] == pytest.approx((np.sqrt(2) - np.sqrt(1.5)) / 2, abs=0.02)
    assert compare_by_input([[0.3, 1.0], [0.3, 0.0]]) == pytest.approx([0.5, -0.5], abs=1e-3)


def sampled(env: Environment, samples: int, parts: int, keeper: Keeper) -> Any:
    warm = dataclasses.replace(env, generation=Generation(1.0))
    check_samples(warm, samples, parts)
    return with_samples(warm, samples, parts, keeper)


async def test_a_prompt_is_scored_by_its_best_samples_and_remembered_by_input() -> None:
    """The model answers right in the third sample of even inputs; each sample is asked for once."""
    asked: list[int] = []

    def answer(request: Any) -> str:
        asked.append(request.sample)
        even = int(request.messages[-1].content.split()[-1]) % 2 == 0
        return "yes" if even and request.sample == 2 else "no"

    made, keeper = small(answer, 8), Keeper()
    env = sampled(made.env, 4, 2, keeper)
    run = MeteredRun({"task": made.model})
    (score,) = await env.score(run, [START], env.train)
    assert score.mean == 0.25 and score.n == 4, "half of the inputs earn 1 in one of two parts"
    assert keeper.notes[NOTE] == {START.id: [0.5, 0.0, 0.5, 0.0]}
    assert sorted(asked) == sorted([0, 1, 2, 3] * 4) and run.spent["task"] == 16 and env.calls == 4


def test_samples_that_say_nothing_are_refused() -> None:
    env = small(lambda request: "yes").env
    with pytest.raises(UsageError, match="samples=4 of a greedy model are one answer"):
        check_samples(env, 4, 1)
    with pytest.raises(UsageError, match="parts=3 of samples=2"):
        check_samples(env, 2, 3)
    with pytest.raises(UsageError, match="this task scores labels"):
        check_samples(dataclasses.replace(env, scores=True), 2, 1)
    check_samples(env, 1, 1)
