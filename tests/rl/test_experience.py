"""Experience of a prompter by context, and the environment in which a model writes each prompt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.environments.worlds import small

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.experience import MOST, ExperienceBuffer, Shown
from whet.rl.written_prompts import with_writer
from whet.run import MemoryRun, Run
from whet.types import Example


class Learner:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: dict[str, object] = {}


def filled(n: int) -> ExperienceBuffer:
    """A buffer with texts 0..n-1 in context c, text i with the reward i."""
    buffer = ExperienceBuffer(Learner())
    for i in range(n):
        buffer.add("c", f"text {i}", float(i))
    return buffer


def test_a_text_that_comes_again_has_the_mean_of_its_rewards_and_the_newest_remark() -> None:
    buffer = ExperienceBuffer(Learner())
    for reward, remark in ((1.0, "first"), (0.0, ""), (0.5, "last")):
        buffer.add("c", "a", reward, remark)
    assert [tuple(one) for one in buffer.of("c")] == [("a", 0.5, 3, "last")]
    assert buffer.of("another") == []


def test_both_halves_are_shown_the_best_first() -> None:
    for seed in range(50):
        shown = [one.reward for one in filled(10).contrast(random.Random(seed), "c", 2)]
        assert len(shown) == 4 and shown == sorted(shown, reverse=True)
        assert min(shown[:2]) >= 5 > max(shown[2:])


@pytest.mark.parametrize(("which", "least"), [("good", 5.0), ("none", None)])
def test_controls_show_less(which: Shown, least: float | None) -> None:
    shown = [one.reward for one in filled(10).contrast(random.Random(0), "c", 2, which)]
    assert (len(shown) == 4 and min(shown) >= least) if least is not None else not shown


def test_shuffled_rewards_are_those_of_the_drawn_texts() -> None:
    misplaced = 0
    for seed in range(20):
        shown = filled(10).contrast(random.Random(seed), "c", 2, "shuffled")
        own = sorted(float(one.text.split()[1]) for one in shown)
        assert sorted(one.reward for one in shown) == own
        misplaced += any(float(one.text.split()[1]) != one.reward for one in shown)
    assert misplaced > 10


def test_the_best_and_the_worst_are_kept() -> None:
    rewards = [one.reward for one in filled(3 * MOST).of("c")]
    assert len(rewards) == MOST and rewards[0] == 3 * MOST - 1 and rewards[-1] == 0


class Naming:
    """Writes the name of an example into its prompt, for all but one."""

    async def write(
        self, run: Run, prompt: Prompt, examples: Sequence[Example]
    ) -> list[tuple[Prompt, Example]]:
        return [(prompt if e.id == "e0" else prompt.edit(f"for {e.id}"), e) for e in examples]


async def test_every_example_is_answered_under_its_own_prompt_in_order() -> None:
    made = small(lambda request: "yes" if "for e1" in request.messages[-1].content else "no", 6)
    start = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
    env = with_writer(made.env, Naming(), "x")
    run = MemoryRun({"task": made.model})
    rollouts = await env.evaluate(run, start, env.train)
    assert [r.example_id for r in rollouts] == ["e0", "e1", "e2"]
    assert [r.reward for r in rollouts] == [0.0, 1.0, 0.0] and {r.prompt_id for r in rollouts} == {start.id}
    assert (await env.score(run, [start], env.train))[0].mean == pytest.approx(1 / 3)
    assert [r.reward for r in await env.rollouts(run, [(start, e) for e in env.train])] == [0.0, 1.0, 0.0]
    assert await env.texts(run, start, env.train) == ["so", "for e1", "for e2"]


def test_episodes_of_several_turns_are_refused() -> None:
    class Other(Environment):
        pass

    env: Any = small(lambda request: "").env
    with pytest.raises(UsageError, match="several turns"):
        with_writer(Other(env.model, env.reward, env.train, env.validation), Naming(), "x")
