"""ExIt: starting points that training has reached, drawn by the spread of their groups; and that both matter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.methods.figures import won_over
from tests.methods.stairs_world import LEVELS, START, level, stairs, writer
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.exit import DIVERGE, IMPROVE, Config, choose, exit
from whet.methods.method import configure
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

SMALL = Config(steps=10, lr=1.0, kl=0.0, diverge=0.0, examples=LEVELS)


async def search(config: Config, seed: int = 0) -> tuple[Candidate, MeteredRun, Any]:
    env, policy = stairs(), writer()
    run = MeteredRun({"task": env.model}, seed)
    return await exit(run, env, policy, START, config), run, policy


def steps(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


async def test_training_begins_again_from_what_it_has_reached() -> None:
    _, run, policy = await search(SMALL)
    assert steps(run)[0]["depth"] == 0 and max(step["depth"] for step in steps(run)) > 1
    assert {*policy.notes["buffer"]} - {START.region_text()}
    _, run, policy = await search(replace(SMALL, reach=1))
    assert {step["depth"] for step in steps(run)} == {0} and not policy.notes["buffer"]


def test_a_starting_point_is_drawn_by_the_spread_of_its_group() -> None:
    space = {"solved": [1.0, 0.0, 1.0], "sure": [1.0, 0.0, 0.0], "unsure": [2.0, 0.5, 0.5]}
    only = replace(SMALL, fresh=0.0)
    assert {choose(MemoryRun(seed=n), space, "start", only) for n in range(30)} == {"unsure"}
    uniform = replace(only, draw="uniform")
    assert {choose(MemoryRun(seed=n), space, "start", uniform) for n in range(30)} == {*space}
    equal = {name: [1.0, 0.0, 0.0] for name in space}
    assert {choose(MemoryRun(seed=n), equal, "start", only) for n in range(30)} == {*space}, (
        "no weight at all"
    )
    assert choose(MemoryRun(), {}, "start", only) == "start"
    assert choose(MemoryRun(), space, "start", replace(SMALL, fresh=1.0)) == "start"


async def test_what_spread_0_means_is_not_that_nothing_is_known() -> None:
    """The trap of a number that is taken for a truth value: a spread of 0 is stored and replaced like any other."""
    _, run, policy = await search(replace(SMALL, steps=1, fresh=1.0))
    spreads = {facts[1] for facts in policy.notes["buffer"].values()}
    assert spreads == {steps(run)[0]["spread"]}


async def test_a_starting_point_keeps_the_reward_that_it_earned_itself() -> None:
    """What its improvements earned is theirs: else it would be among the best that are validated in the end."""
    _, _, policy = await search(SMALL)
    earned = {text: facts[2] for text, facts in policy.notes["buffer"].items()}
    assert earned == {text: pytest.approx(level(text) / LEVELS) for text in earned}
    assert max(facts[0] for facts in policy.notes["buffer"].values()) > 1, "some were improved"


async def test_the_buffer_keeps_the_newest() -> None:
    _, _, policy = await search(replace(SMALL, buffer=3))
    assert len(policy.notes["buffer"]) == 3


async def test_a_share_of_the_questions_asks_for_something_different() -> None:
    for share, asked in ((0.0, {IMPROVE}), (1.0, {IMPROVE, DIVERGE})):
        _, _, policy = await search(replace(SMALL, diverge=share, depth=1))
        assert {one[0].content.partition("\n")[0] for one in policy.asked} == asked


async def test_the_last_improvements_go_further_than_one_step() -> None:
    _, run, policy = await search(replace(SMALL, steps=60, depth=LEVELS + 2))
    chain = [level(one[0].content) for one in policy.asked[-(LEVELS + 2) :]]
    assert chain == sorted(chain) and chain[-1] > 1
    assert any(value["operator"] == "improvement" for name, value in run.logged if name == "validated")  # type: ignore[index, call-overload]


async def test_refused_texts_have_the_lowest_return_and_are_no_starting_points() -> None:
    env = stairs()
    policy: Any = Scribe(lambda conversation: ["", " ", "level 0 {{x}}"], gain=2.0)
    run = MeteredRun({"task": env.model}, 0)
    best = await exit(run, env, policy, START, SMALL)
    assert best.prompt == START and not policy.notes["buffer"]
    assert {step["best"] for step in steps(run)} == {0.0}


async def test_a_selection_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="rows=mopps"):
        await search(replace(SMALL, rows="mopps"))


class TestConformance(MethodConformance):
    method = "exit"
    settings = {"steps": 4, "group": 4, "examples": 4, "lr": 1.0, "depth": 3}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "Be quick.", "", "Name it {{input}}", "Guess."]
        policy: Any = Scribe(lambda conversation: menu, gain=2.0)
        config = configure(self.load(), self.settings if settings is None else settings)
        return asyncio.run(exit(run, env or self.environment(), policy, self.start(), config))


# The contests: starting points that were reached against the start alone, and the spread against any.

SEEDS = range(100, 110)


@cache
def reached(**settings: Any) -> list[float]:
    """The level of what is found, from 0 to 1, with each seed."""
    config = replace(SMALL, steps=60, **settings)
    return [level(asyncio.run(search(config, s))[0].prompt.region_text()) / LEVELS for s in SEEDS]


@pytest.mark.long
def test_starting_points_that_were_reached_are_what_it_wins_by() -> None:
    assert won_over("from the start only", reached(), reached(reach=1)).low > 0


@pytest.mark.long
def test_the_spread_is_what_it_wins_by() -> None:
    assert won_over("drawn uniformly", reached(), reached(draw="uniform")).low > 0


@pytest.mark.long
def test_of_the_chain_of_last_improvements_no_benefit_is_shown() -> None:
    """The best of what was tried is as good: the texts of training are kept."""
    assert won_over("one last improvement", reached(), reached(depth=1)).low <= 0
