"""A population: sizes by hand, parents by their fitness, survivors."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from whet.prompt import Prompt
from whet.run import Budget
from whet.search.archive import Archive, Candidate
from whet.search.population import (
    Individual,
    draw_parents,
    fittest,
    grade_new,
    one_to_one,
    population_size,
    roulette,
    tournament,
)
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import review_world


def member(text: str, fitness: float) -> Individual[str]:
    return Individual(Candidate(Prompt.parse(text)), text, fitness)


LOW, MIDDLE, HIGH = member("low", 0.1), member("middle", 0.3), member("high", 0.6)
ALL = [LOW, MIDDLE, HIGH]


def test_roulette_is_in_proportion_to_the_fitness_above_the_lowest_reward() -> None:
    drawn = Counter(m.genome for m in roulette(random.Random(1), ALL, 6000, 0.0))
    assert [drawn[m.genome] / 6000 for m in ALL] == pytest.approx([0.1, 0.3, 0.6], abs=0.03)
    drawn = Counter(m.genome for m in roulette(random.Random(1), ALL, 6000, 0.1))
    assert [drawn[m.genome] / 6000 for m in ALL] == pytest.approx([0.0, 2 / 7, 5 / 7], abs=0.03)


@pytest.mark.parametrize("fitness", [0.0, -1.0])
def test_roulette_is_even_where_nothing_is_earned(fitness: float) -> None:
    """The reference code of EvoPrompt divides by a sum of zero."""
    flat = [replace(m, fitness=fitness) for m in ALL]
    drawn = Counter(m.genome for m in roulette(random.Random(1), flat, 3000, fitness))
    assert min(drawn.values()) > 900


def test_a_tournament_has_the_fittest_of_those_drawn() -> None:
    rng = random.Random(2)
    drawn = Counter(tournament(rng, ALL, 2).genome for _ in range(9000))
    assert [drawn[m.genome] / 9000 for m in ALL] == pytest.approx([1 / 9, 3 / 9, 5 / 9], abs=0.03)
    chosen = draw_parents(rng, ALL, 9000, "random", 0.0)
    assert min(Counter(m.genome for m in chosen).values()) > 2800


def test_of_equal_members_the_shorter_then_the_older_is_fitter() -> None:
    equal = [member("long text", 0.5), member("short", 0.5), member("brief", 0.5)]
    assert [m.genome for m in fittest(equal, 2)] == ["short", "brief"]


def test_a_child_takes_the_place_of_its_parent_only_if_it_is_fitter() -> None:
    children = [member("better", 0.2), member("equal", 0.3), None]
    assert [m.genome for m in one_to_one(ALL, children)] == ["better", "middle", "high"]


async def test_no_prompt_is_scored_twice() -> None:
    env, archive = review_world(train=20), Archive()
    run = MeteredRun({"task": env.model})
    made = [Individual(Candidate(Prompt.parse(text + " {{input}}")), text) for text in ("a", "b", "a")]
    assert [m.genome for m in await grade_new(run, env, archive, made, env.train)] == ["a", "b"]
    assert await grade_new(run, env, archive, made, env.train) == []
    assert run.spent["task"] == 40


async def test_fitness_may_be_the_sum_of_parts_of_the_score() -> None:
    env = review_world(train=20, scores=True)
    run, made = MeteredRun({"task": env.model}), [Individual(Candidate(Prompt.parse("a {{input}}")), "a")]
    (one,) = await grade_new(run, env, Archive(), made, env.train, ("accuracy", "gap"))
    assert one.candidate.score is not None
    assert one.fitness == one.candidate.score.parts["accuracy"] + one.candidate.score.parts["gap"]


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (Budget(), 10),
        (Budget(task_calls=300), 3),  # 180 for the search, 13 rows a prompt, 13 prompts
        (Budget(task_calls=20_000), 10),
        (Budget(task_calls=20_000, optimizer_calls=36), 5),  # 27 texts
        (Budget(task_calls=10), 3),
    ],
)
def test_a_limit_pays_for_about_as_many_generations_as_members(limits: Budget, size: int) -> None:
    assert population_size(MeteredRun(limits=limits), review_world(), 10) == size
