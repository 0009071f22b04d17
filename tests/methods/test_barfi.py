"""BARFI: a search for each point of a grid of weights, and the one that earns most; right, misleading and useless parts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.parts_world import START, parts_world

import whet
from whet.environments import Return
from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.barfi import Config, barfi, check, grid, show
from whet.rewards.mixed import MixedReward
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import review_world
from whet.types import Completion, Example

CONFORMANCE = {"method": "minstrel", "weights": "0.5"}
"""Settings of a run in the conformance suite."""
ALWAYS = {"parts": "short"}
"""The one part that every answer has."""
SWEEP = {"parts": "short", "method": "meta_prompt", "weights": "0.5"}
"""Settings of a run that is killed at every boundary."""


async def search(known: KnownWorld, limits: Budget | None = None, **settings: Any) -> tuple[Any, MeteredRun]:
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1, limits=limits)
    config = Config(**settings)
    return await barfi(run, known.env, LanguagePolicy(), START, config, get_method), run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for event, value in run.logged if event == name]


async def test_the_mixture_holds_on_training_rows_alone() -> None:
    world = parts_world(0)
    reward = MixedReward(world.env.reward, (("astray", 0.4), ("short", 0.1)), frozenset({"t"}))
    answer = Completion("word00 word01")
    train, other = (Example(name, {"input": "x"}) for name in ("t", "v"))
    plain = await world.env.reward.grade(MemoryRun(), other, answer)
    assert (await reward.grade(MemoryRun(), other, answer)) == plain
    mixed = await reward.grade(MemoryRun(), train, answer)
    short = 1 - len(answer.text) / 2000
    assert mixed.value == pytest.approx(0.5 * plain.value + 0.4 * plain.parts["astray"] + 0.1 * short)
    assert mixed.parts["plain"] == plain.value and (reward.low, reward.high) == (0.0, 1.0)


def test_an_unknown_part_is_refused_before_any_call_where_the_reward_names_its_parts() -> None:
    env = replace(parts_world(0).env, reward=ExactMatch())
    with pytest.raises(UsageError, match=r'no part "shrt".*short'):
        check(env, Config(parts="shrt"), get_method)
    check(env, Config(parts="short"), get_method)


async def test_a_part_that_is_not_there_is_named() -> None:
    reward = MixedReward(parts_world(0).env.reward, (("naer", 0.4),), frozenset({"t"}))
    with pytest.raises(UsageError, match=r'no part "naer".*near'):
        await reward.grade(MemoryRun(), Example("t", {"input": "x"}), Completion("word00"))


async def test_a_mixed_reward_needs_what_the_wrapped_one_needs() -> None:
    assert MixedReward(ExactMatch(), (), frozenset()).needs == ExactMatch().needs


def test_the_grid_begins_with_no_weight_and_keeps_sums_below_1() -> None:
    points = grid(Config(parts="a, b", weights="0.3,0.7"))
    assert points[0] == {"a": 0.0, "b": 0.0}
    assert [round(sum(point.values()), 3) for point in points] == sorted(
        round(sum(p.values()), 3) for p in points
    )
    assert all(sum(point.values()) < 1 for point in points) and len(points) == 6
    assert show(points[0]) == "none" and show({"a": 0.3, "b": 0.0}) == "a 0.3"


@pytest.mark.parametrize("weights", ["", "0", "1", "a", "-0.5", "0.3,2"])
def test_weights_that_are_none_are_refused(weights: str) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        grid(Config(parts="a", weights=weights))


def test_tasks_and_methods_that_do_not_fit_are_refused() -> None:
    env, of = review_world(), partial(check, methods=get_method)
    with pytest.raises(UsageError, match="none is named"):
        of(env, Config())
    with pytest.raises(UsageError, match="shaping"):
        of(replace(env, reward=Return(0.0, 1.0)), Config(parts="short"))
    with pytest.raises(UsageError, match="omni is no method"):
        of(env, Config(parts="short", method="omni"))
    of(env, Config(parts="short"))


async def test_each_point_is_searched_and_the_best_by_the_real_reward_is_returned() -> None:
    best, run = await search(parts_world(0), Budget(task_calls=900, optimizer_calls=90), parts="astray")
    weights = logged(run, "weights")
    assert [value["weights"] for value in weights] == ["none", "astray 0.3", "astray 0.7"]
    primary = [value["primary"] for value in weights]
    best_of_all = weights[primary.index(max(primary))]["weights"]
    assert primary[2] < max(primary) == parts_world(0).worth(best.prompt)
    assert logged(run, "chosen_weights") == [{"weights": best_of_all}]


async def test_a_small_limit_pays_for_fewer_points_those_with_the_least_weight_first() -> None:
    _, run = await search(parts_world(0), Budget(task_calls=130, optimizer_calls=20), parts="near")
    assert [value["weights"] for value in logged(run, "weights")] == ["none", "near 0.3"]
    assert run.spent["task"] <= 130


def test_through_the_public_face(tmp_path: Path) -> None:
    """A reward function that names parts; the baseline and the verdict have the real reward."""

    def reward(example: dict[str, Any], output: str) -> dict[str, float]:
        return {"reward": float(output == "good"), "letters": len(output) / 4}

    task = whet.Task.of("Say x.", data=[{"input": f"row {n}"} for n in range(60)], reward=reward)
    result = whet.optimize(
        task,
        lm=lambda messages: "good" if "well" in messages[0]["content"] else "goo",
        optimizer_lm=lambda messages: "<INSTRUCTION>Say it well.</INSTRUCTION>",
        method=Config(parts="letters", method="meta_prompt", weights="0.5"),
        run=tmp_path / "run",
        progress=False,
    )
    assert result.promoted and result.baseline.test is not None and result.baseline.test.mean == 0.0


# The contests: a part that leads to a rare reward, one that misleads, one that says nothing.

SEEDS, LIMITS = range(100, 106), Budget(task_calls=1200, optimizer_calls=200)


@cache
def reached(rare: bool, part: str) -> list[float]:
    """What is found where a part may be used."""
    return [play_world("barfi", parts_world(s, rare), s, LIMITS, {"parts": part}) for s in SEEDS]


@cache
def alone(rare: bool) -> list[float]:
    """What the search finds by the reward alone, with the whole budget."""
    return [play_world("opro", parts_world(s, rare), s, LIMITS) for s in SEEDS]


@cache
def summed(rare: bool, part: str) -> list[float]:
    """What it finds by a fixed sum, with the whole budget."""
    worlds = []
    for seed in SEEDS:
        known = parts_world(seed, rare)
        mixed = MixedReward(known.env.reward, ((part, 0.7),), frozenset(row.id for row in known.env.train))
        worlds.append((seed, replace(known, env=replace(known.env, reward=mixed))))
    return [play_world("opro", world, seed, LIMITS) for seed, world in worlds]


@pytest.mark.long
def test_a_part_that_leads_to_a_rare_reward_is_used() -> None:
    assert won_over("the rare reward alone", reached(True, "near"), alone(True)).low > 0


@pytest.mark.long
def test_a_part_that_misleads_costs_a_share_of_the_budget_and_no_more() -> None:
    first = reached(False, "astray")
    assert won_over("a fixed sum with a misleading part", first, summed(False, "astray")).low > 0
    assert won_over("the reward alone, misleading part", first, alone(False)).low <= 0


@pytest.mark.long
def test_a_useless_part_costs_a_share_of_the_budget() -> None:
    assert (
        won_over("a fixed sum with a useless part", reached(False, "noise"), summed(False, "noise")).low > 0
    )
    assert won_over("the reward alone, useless part", reached(False, "noise"), alone(False)).low <= 0


@pytest.mark.long
def test_it_beats_random_search() -> None:
    other = [play_world("random_search", parts_world(s, True), s, LIMITS) for s in SEEDS]
    assert won_over("random search", reached(True, "near"), other).low > 0
