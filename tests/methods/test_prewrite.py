"""prewrite: it learns, what it returns under each inference, the untrained control, and what refused rewrites cost."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.methods.method import configure
from whet.methods.prewrite import Config, prewrite
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
MENU = ["a", "b", "c", "good", "d", "e", "f", "g"]
SMALL = Config(steps=30, group=8, examples=2, lr=1.0, rewrites=4, checks=2)


def scribe(menu: Sequence[str] = MENU) -> Any:
    return Scribe(lambda conversation: menu, gain=2.0)


async def search(
    config: Config, policy: Any, word: str = "good", limits: Budget | None = None
) -> tuple[Candidate, MeteredRun]:
    made = small(lambda request: "yes" if word in request.messages[-1].content.lower() else "no", 12)
    run = MeteredRun({"task": made.model}, limits=limits)
    return await prewrite(run, made.env, policy, START, config), run


def steps(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


@pytest.mark.parametrize("inference", ["greedy", "search"])
async def test_it_learns_and_returns_what_it_learned(inference: Any) -> None:
    policy = scribe()
    found, run = await search(dataclasses.replace(SMALL, inference=inference), policy)
    rewards = [step["reward"] for step in steps(run)]
    assert sum(rewards[:3]) / 3 < 0.4 and sum(rewards[-5:]) / 5 > 0.8, rewards
    assert policy.probabilities(MENU).argmax() == 3
    assert (
        found.prompt.region_text() == "good" and found.operator == "rewrite" and found.parents == (START.id,)
    )


@pytest.mark.long
async def test_a_network_learns_to_ask_for_what_is_rewarded() -> None:
    torch.set_num_threads(1)
    config = Config(steps=24, group=12, examples=1, lr=5e-3, max_tokens=48, rewrites=1, checks=0)
    writer = PolicyModel.open("embedded/tiny", config.lora, 0)
    _, run = await search(config, writer, "capital")
    rewards = [step["reward"] for step in steps(run)]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.25, rewards


@pytest.mark.parametrize(("steps_taken", "checks"), [(7, 4), (5, 0), (3, 8)])
async def test_the_greedy_rewrite_is_validated_as_often_as_asked(steps_taken: int, checks: int) -> None:
    policy = scribe()
    await search(dataclasses.replace(SMALL, steps=steps_taken, checks=checks), policy)
    at_the_end = 2  # the greedy rewrite and the samples to choose from
    assert len(policy.asked) == steps_taken + min(steps_taken, checks) + at_the_end


async def test_what_earned_most_on_the_way_is_a_finalist_though_the_last_policy_does_not_write_it() -> None:
    """240 samples of 60 texts have the good one; the four at the end would have it in 6 of 100 runs."""
    menu = [f"text {i}" for i in range(59)] + ["good"]
    found, run = await search(dataclasses.replace(SMALL, steps=30, lr=0.0), scribe(menu))
    assert found.prompt.region_text() == "good"
    assert sum(name == "validated" for name, _ in run.logged) <= 8


async def test_it_asks_about_the_editable_text_and_nothing_else() -> None:
    policy = scribe()
    await search(dataclasses.replace(SMALL, steps=1), policy)
    assert {c[0].content for c in policy.asked} == {
        "Rewrite the following instruction by adding specific requirements.\n\nInstruction: so\n\nRewritten:"
    }


async def test_without_steps_it_is_best_of_n_of_the_untrained_rewriter() -> None:
    policy = scribe()
    found, run = await search(dataclasses.replace(SMALL, steps=0, rewrites=24), policy)
    assert not policy.seen and not steps(run)
    assert found.prompt.region_text() == "good", "24 samples of 8 texts"


async def test_a_limited_control_spends_what_it_may_on_samples_and_all_its_validations_on_the_best() -> None:
    """A hundred calls: 6 for the start, 63 samples on an example each, of which some come twice, and up to 6 of them on six
    validation examples: how many come twice depends on how the processor rounds."""
    menu = [f"text {i}" for i in range(4000)] + ["good"]
    policy = scribe(menu)
    policy.logits = {json.dumps(menu): [0.0] * 4000 + [5.0]}
    config = dataclasses.replace(SMALL, steps=0, rewrites=500, examples=1)
    found, run = await search(config, policy, limits=Budget(task_calls=100))
    assert found.prompt.region_text() == "good", "one of many samples, and the best of them on an example"
    assert 85 <= run.spent["task"] <= 100, "samples that come twice are asked once"
    validated = len([1 for name, _ in run.logged if name == "validated"])
    assert validated == 7 or (validated == 6 and run.spent["task"] > 90), "all but what a kill may cost"


async def test_search_has_the_greedy_rewrite_among_its_candidates() -> None:
    menu = ["good", *(f"text {i}" for i in range(99))]
    policy = scribe(menu)
    policy.logits = {json.dumps(menu): [0.5] + [0.0] * 99}
    found, run = await search(dataclasses.replace(SMALL, steps=0, rewrites=1), policy)
    assert found.prompt.region_text() == "good" and run.spent["task"] == 6 * 3, (
        "start, greedy, the one sample"
    )


async def test_greedy_inference_returns_the_greedy_rewrite_though_it_is_worse() -> None:
    policy = scribe(["bad", "good"])
    policy.logits = {'["bad", "good"]': [9.0, 0.0]}
    found, _ = await search(dataclasses.replace(SMALL, steps=0, inference="greedy"), policy)
    assert found.prompt.region_text() == "bad"


async def test_refused_rewrites_get_the_lowest_reward_and_cost_no_call() -> None:
    policy = scribe(["", " ", "\n"])
    found, run = await search(dataclasses.replace(SMALL, steps=3), policy)
    assert found.prompt == START and found.operator == "start"
    assert run.spent["task"] == 6, "the start, once, on the six validation examples"
    assert {reward for step in steps(run) for reward in (step["reward"], step["best"])} == {0.0}
    assert all(set(advantages) == {0.0} for _, advantages, _ in policy.seen)


async def test_a_rewrite_that_comes_twice_is_asked_once() -> None:
    _, run = await search(dataclasses.replace(SMALL, steps=5, checks=0, rewrites=1), scribe(["good"]))
    assert run.spent["task"] == 6 + 5 * 2 + 6, "start, five steps of two examples, the one rewrite"


@pytest.mark.parametrize(
    "settings",
    [{"advantage": "rloo"}, {"advantage": "dr_grpo"}, {"loss": "importance"}],
)
async def test_the_algorithm_is_a_setting(settings: Mapping[str, Any]) -> None:
    found, run = await search(dataclasses.replace(SMALL, **settings), scribe())
    assert len(steps(run)) == SMALL.steps and found.prompt.region_text() == "good"


class TestConformance(MethodConformance):
    method = "prewrite"
    settings = {"steps": 4, "group": 4, "examples": 4, "lr": 1.0, "rewrites": 3}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = [
            "Think carefully.",
            "Look at the tone.",
            "Be quick.",
            "",
            "Name the evidence {{input}}",
            "Guess.",
        ]
        config = configure(self.load(), self.settings if settings is None else settings)
        coroutine = prewrite(run, env or self.environment(), scribe(menu), self.start(), config)
        return asyncio.run(coroutine)
