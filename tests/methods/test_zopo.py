"""ZOPO: the kernel by hand, where the search goes, what a small budget buys, and that the surrogate is worth its place."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over

from whet.methods.zopo import Config, LocalSearch, zopo
from whet.models.scripted import chance, load, shuffle
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.edits import PHRASES
from whet.stats.neural_kernel import NeuralProcess, RandomNetwork, kernel
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world

CONFORMANCE = {"queries": 8, "first": 3, "pool": 20, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"queries": 4, "first": 2, "pool": 6, "per_call": 3, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE.replace(" Be quick, and guess freely.", ""))


def writing(seed: int, per_call: int = 10) -> Answers:
    """An optimizer that writes instructions of a few stock phrases."""

    def one(sample: int, number: int) -> str:
        phrases = shuffle(PHRASES, seed, sample, number)
        return " ".join(phrases[: 2 + int(5 * chance(seed, sample, number, "length"))])

    def answer(question: str, sample: int) -> str:
        return "".join(f"<INSTRUCTION>{one(sample, n)}</INSTRUCTION>" for n in range(per_call))

    return Answers(answer)


def climb(seed: int) -> KnownWorld:
    """Eight words help, five hinder."""
    words = {
        "words": "carefully,evidence,tone,negations,irony,precise,literally,facts",
        "harmful": "expert,step,explain,brief,likely",
    }
    model: Any = load("labels", {**words, "harm": "0.08", "base": "0.4", "seed": str(seed)})
    env = review_world(model, train=80, validation=30)
    return KnownWorld(env, START, lambda p: model.accuracy(p.source), writing(seed))


def test_the_kernel_is_the_inner_product_of_the_gradients_by_the_weights() -> None:
    x = np.random.default_rng(1).normal(size=(3, 2))
    network = RandomNetwork.draw(2, seed=5)

    def output(first: Any, second: Any, last: Any) -> Any:
        hidden = np.maximum(np.hstack([x, np.ones((3, 1))]) @ first, 0.0)
        return np.maximum(hidden @ second, 0.0) @ last

    weights, columns = [network.first, network.second, network.last], []
    for layer in range(3):
        for at in np.ndindex(weights[layer].shape):
            moved = [[w.copy() for w in weights] for _ in range(2)]
            for side, step in enumerate((1e-6, -1e-6)):
                moved[side][layer][at] += step
            columns.append((output(*moved[0]) - output(*moved[1])) / 2e-6)
    gradients = np.array(columns).T
    layers = network.layers(x)
    assert np.allclose(kernel(layers, layers), gradients @ gradients.T, rtol=1e-4)


def test_the_surrogate_passes_near_what_it_knows_and_is_less_sure_elsewhere() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = np.array([0.2, 0.4, 0.4, 0.6])
    process = NeuralProcess.fit(points, values, noise=0.01, seed=0)
    assert np.allclose(process.mean(points), values, atol=0.02)
    assert np.diag(process.covariance(points)).max() < process.covariance(np.array([[3.0, -3.0]])).item()
    assert (process.gradient(np.array([0.5, 0.5])) > 0).all()


def on_a_line(**settings: Any) -> LocalSearch:
    """Ten prompts on a line; three in the middle are scored, and scores rise to the right."""
    search = LocalSearch(np.arange(10.0)[:, None], Config(**settings))
    search.scores |= {4: 0.4, 5: 0.5, 6: 0.6}
    return search


async def test_a_step_goes_where_the_surrogate_rises() -> None:
    assert await on_a_line(local=2).next(seed=0) == 7
    far = on_a_line(local=4)
    assert await far.next(seed=0) in (7, 8, 9)
    falling = on_a_line(local=2)
    falling.scores |= {4: 0.6, 6: 0.4}
    falling.place = 4
    assert await falling.next(seed=0) in (2, 3)


async def test_after_two_queries_without_a_gain_the_best_is_the_place_again() -> None:
    search = on_a_line()
    for place, stands in ((7, 7), (8, 6)):
        search.scores[place] = 0.1
        search.move(place)
        assert search.place == stands
    search.scores[9] = 0.9
    search.move(9)
    assert search.place == 9 and search.stalled == 0


async def test_scores_without_a_slope_lead_to_the_nearest_prompts() -> None:
    search = on_a_line(local=3)
    search.scores = dict.fromkeys((4, 5, 6), 0.5)
    first = await search.next(seed=0)
    assert first in (2, 3, 7)
    assert search.around


def test_the_rise_between_two_points_by_the_covariance_of_a_normal_distribution() -> None:
    """Two values given those of three points: conditioned by hand, with the noise on the diagonal."""
    rng = np.random.default_rng(2)
    points, values, pair = rng.normal(size=(3, 2)), np.array([0.2, 0.5, 0.8]), rng.normal(size=(2, 2))
    process = NeuralProcess.fit(points, values, noise=0.1, seed=3)
    layers = RandomNetwork.draw(2, seed=3).layers(np.vstack([points, pair]))
    whole = kernel(layers, layers) / (np.trace(kernel(layers, layers)[:3, :3]) / 3)
    known = np.linalg.inv(whole[:3, :3] + 0.01 * np.eye(3))
    mean = whole[3:, :3] @ known @ (values - 0.5)
    covariance = whole[3:, 3:] - whole[3:, :3] @ known @ whole[:3, 3:]
    rise, deviation = process.rise(pair[0], pair[1])
    assert rise == pytest.approx((mean[1] - mean[0]) / values.std())
    assert deviation == pytest.approx(np.sqrt([-1.0, 1.0] @ covariance @ [-1.0, 1.0]))


async def test_queries_of_an_uncertain_gain_in_a_row_lead_to_the_prompts_around() -> None:
    """Scores are noise, so that no slope is surer than chance: after `patience` such queries the nearest prompts follow."""
    rng = np.random.default_rng(0)
    search = LocalSearch(rng.normal(size=(60, 8)), Config(patience=2, local=4))
    search.scores |= {place: float(rng.random()) for place in range(20)}
    explored = False
    for seed in range(20):
        place = await search.next(seed)
        explored |= len(search.around) > 1
        search.scores[place] = float(rng.random())
        search.move(place)
    assert explored


@pytest.mark.parametrize("most", [150, 300])
async def test_a_small_budget_scores_several_prompts_of_few_calls_to_the_writer(most: int) -> None:
    env = review_world(train=40, validation=20)
    limits = Budget(task_calls=most, optimizer_calls=12)
    run = MeteredRun({"task": env.model, "optimizer": writing(0)}, limits=limits)
    await zopo(run, env, LanguagePolicy(), START, Config())
    scored = [value for name, value in run.logged if name == "candidate"]
    assert len(scored) >= 6
    assert run.spent["optimizer"] <= 12
    assert 0.5 * most < run.spent["task"] <= most


# The contest: without the surrogate the same pool is scored in random order.


@cache
def reached(surrogate: str, calls: int = 1500, seeds: int = 10) -> list[float]:
    """What a search finds in the world of each seed."""
    limits, settings = Budget(task_calls=calls), {"surrogate": surrogate}
    return [play_world("zopo", climb(seed), seed, limits, settings) for seed in range(seeds)]


def test_without_the_surrogate_it_loses_what_it_won() -> None:
    lost = won_over("the pool in random order", reached("ntk"), reached("none"))
    assert lost.low > 0, lost


@pytest.mark.long
def test_with_few_calls_no_benefit_of_the_surrogate_is_shown() -> None:
    few = reached("ntk", 300, 12), reached("none", 300, 12)
    assert won_over("the pool in random order, 300 calls", *few).low < 0
