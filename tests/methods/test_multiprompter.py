"""multiprompter: turns, the critic's advantages, cut pieces, controls, and that small menus learn faster than large ones."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from benchmarks.simulated.piece_writer import START as DO_IT
from benchmarks.simulated.piece_writer import PieceWorld, PieceWriter
from benchmarks.turn_taking import arm
from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import SearchStopped, UsageError
from whet.methods.method import configure
from whet.methods.multiprompter import Config, multiprompter, turn_advantages
from whet.prompt import Prompt
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.paired_benchmark import paired_difference
from whet.testing.runs import MeteredRun
from whet.types import Message

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
SHARED = Config(steps=30, group=8, examples=2, lr=2.0, rewrites=4, checks=2, credit="shared")


def by_turn(conversation: Any) -> list[str]:
    """The pieces of the first prompter, or of another one."""
    return ["a", "red"] if "writer 1 of" in conversation[-1].content else ["b", "boat", ""]


async def search(config: Config, policy: Any) -> tuple[Candidate, MeteredRun]:
    def answer(request: Any) -> str:
        text = request.messages[-1].content
        return "yes" if "red" in text and "boat" in text else "no"

    made = small(answer, 12)
    run = MeteredRun({"task": made.model})
    return await multiprompter(run, made.env, policy, START, config), run


def test_advantages_of_a_chain_by_hand() -> None:
    assert turn_advantages([0.5, 0.25, 0.75], 1.0) == [-0.25, 0.5, 0.25]
    assert turn_advantages([0.4], 1.0) == pytest.approx([0.6])


async def test_pieces_stand_in_turn_after_the_start() -> None:
    policy = Scribe(by_turn, gain=4.0)
    found, run = await search(SHARED, policy)
    assert found.prompt.region_text() == "so\nred\nboat" and found.operator == "pieces"
    second = [c[-1].content for c in policy.asked if "writer 2 of 2" in c[-1].content]
    assert any("so\nred" in question for question in second), "a prompter reads what the others wrote"
    rewards = [value["reward"] for name, value in run.logged if name == "step"]
    assert sum(rewards[-5:]) > sum(rewards[:5])


async def test_all_pieces_of_a_chain_share_its_advantage() -> None:
    policy = Scribe(by_turn)
    await search(dataclasses.replace(SHARED, steps=1, checks=0), policy)
    ((_, advantages, _),) = policy.seen
    assert advantages[:8] == advantages[8:], "turn by turn, the chains in the same order"


async def test_the_critic_learns_and_its_state_is_the_joint_prompt() -> None:
    world = PieceWorld(0, lists=2, size=4)
    policy: Any = PieceWriter(world, "divided")
    config = Config(steps=40, group=16, examples=4, lr=15.0, kl=0.0, checks=1, critic_lr=0.05, rewrites=1)
    run = MeteredRun({"task": world})
    found = await multiprompter(run, world.environment(), policy, DO_IT, config)
    assert world.worth(found.prompt.text) == 1.0
    losses = [value["critic_loss"] for name, value in run.logged if name == "step"]
    assert sum(losses[-5:]) < sum(losses[:5])


async def test_the_limit_on_the_divergence_holds_with_a_critic_too() -> None:
    writer = PolicyModel.open("embedded/tiny", LoraSettings(rank=2), 0)
    writer.imitate([([Message("user", "say")], "red boat")], Update(lr=0.05, epochs=20))
    config = Config(steps=1, group=2, examples=1, max_tokens=4, rewrites=1, checks=0, kl_limit=1e-6)
    with pytest.raises(SearchStopped, match="kl_limit"):
        await search(config, writer)


async def test_a_piece_that_the_bound_cut_costs_the_chain_its_reward_and_no_call() -> None:
    class Cutting(Scribe):
        def _sample(self, menu: Any, i: int, chance: float) -> Sample:
            return dataclasses.replace(super()._sample(menu, i, chance), ended=False)

    found, run = await search(dataclasses.replace(SHARED, steps=2), Cutting(by_turn))
    assert found.prompt == START and run.spent["task"] == 6


async def test_one_prompter_is_not_told_of_others() -> None:
    policy = Scribe(lambda conversation: ["red boat", "no"])
    found, _ = await search(dataclasses.replace(SHARED, prompters=1), policy)
    assert found.prompt.region_text() == "so\nred boat"
    assert not any("writer" in c[-1].content for c in policy.asked)


async def test_without_steps_it_is_the_best_of_untrained_chains() -> None:
    policy = Scribe(by_turn)
    found, _ = await search(dataclasses.replace(SHARED, steps=0, rewrites=30), policy)
    assert not policy.seen and found.prompt.region_text() == "so\nred\nboat"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"advantage": "remax"}, "needs a greedy text beside each group"),
        ({"loss": "rebel", "credit": "critic"}, "credit=critic gives each piece an advantage of its own"),
    ],
)
async def test_settings_that_pieces_cannot_follow_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await search(dataclasses.replace(SHARED, **settings), Scribe(by_turn))


@pytest.mark.long
def test_few_pieces_in_turn_learn_faster_than_all_of_them_at_once() -> None:
    """Simulated pieces; docs/figures.md has all arms and more seeds. The critic is no part of the claim."""
    names = ("own lists, shared", "all lists for each, shared", "one writer of all three")
    figures = {name: [arm(name, seed) for seed in range(8)] for name in names}
    for name in names[1:]:
        assert paired_difference(figures[names[0]], figures[name]).low > 0.0, name


class TestConformance(MethodConformance):
    method = "multiprompter"
    settings = {"steps": 4, "group": 4, "examples": 4, "lr": 1.0, "rewrites": 3, "credit": "shared"}  # noqa: RUF012
    always = {"credit": "shared"}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "", "Name it {{input}}", "Guess."]
        given = self.settings if settings is None else settings
        config = configure(self.load(), {**self.always, **given})
        coroutine = multiprompter(
            run,
            env or self.environment(),
            Scribe(lambda c: menu),
            self.start(),
            config,  # type: ignore[arg-type]
        )
        return asyncio.run(coroutine)
