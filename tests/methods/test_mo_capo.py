"""MO-CAPO: a front of reward and cost, cheap prompts beside right ones, and what the race saves."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from benchmarks.known_front import EVOLVED, shares_of
from benchmarks.simulated.front import ACCURACY, LENGTH, START, crosser, words_in, world
from tests.methods.codes import codes_world, joining
from tests.methods.figures import won_over

import whet
from whet.environments.environment import Environment
from whet.methods.mo_capo import COST, Config, mo_capo
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.front import REWARD
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Completion, Example, Usage

CONFORMANCE = {"steps": 2, "population": 3, "crossovers": 2, "block": 6, "blocks": 2, "shots": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 1, "population": 2, "crossovers": 1, "shots": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(
    env: Environment, start: Prompt, model: Answers, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    small = {"population": 4, "crossovers": 3, "steps": 3, "block": 10, "blocks": 3}
    return await mo_capo(run, env, LanguagePolicy(), start, Config(**(small | settings))), run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_a_child_has_the_operators_of_capo_and_the_front_is_logged_after_each_step() -> None:
    env, model = world(0).env, crosser(0)
    _, run = await search(env, START, model, shots=0)
    assert [q.count("<INSTRUCTION>\n") for q in model.questions] == [0] * 3 + [2, 1] * 9
    fronts = logged(run, "front")
    assert len(fronts) == 4 and all(set(v) == {ACCURACY, LENGTH, "rows"} for v in fronts[-1].values())
    rows = [v["rows"] for v in fronts[-1].values()]
    assert max(rows) <= 30 and not any(n % 10 for n in rows)


async def test_of_a_task_without_objectives_the_tokens_are_the_other_one() -> None:
    """An answer is right with the word `sure`; each `long` makes it ten tokens longer. Output tokens cost four times as much."""

    def answer(question: str, sample: int) -> Completion:
        return Completion("yes" if "sure" in question else "no", usage=Usage(7, 10 * question.count("long")))

    def writer(question: str, sample: int) -> str:
        words = ("sure long long", "sure", "long")
        return f"<INSTRUCTION>Say so, {words[sample % 3]}.</INSTRUCTION>"

    rows = tuple(Example(f"r{i}", {"input": f"row {i}"}, "yes", text=f"row {i}") for i in range(60))
    env = Environment(Answers(answer), ExactMatch(), rows[:40], rows[40:])
    best, run = await search(env, START, Answers(writer), shots=0)
    (point,) = logged(run, "front")[-1].values()
    assert point[REWARD] == 1.0 and point[COST] == 7.0, "it is as right and cheaper"
    assert best.prompt.region_text().strip() == "Say so, sure."


async def test_no_row_of_a_race_is_shown_as_a_demonstration() -> None:
    env = codes_world(0).env
    _, run = await search(env, codes_world(0).start, joining(0))
    assert any("Answer: " in c["messages"][0][1] for c in logged(run, "candidate"))


@pytest.mark.parametrize("most", [150, 300])
async def test_a_small_limit_is_kept_and_used(most: int) -> None:
    known, limits = world(1), Budget(task_calls=most, optimizer_calls=20)
    _, run = await search(known.env, START, crosser(1), limits=limits, **vars(Config()))
    assert 0.6 * most <= run.spent["task"] <= most and 6 <= run.spent["optimizer"] <= 20
    assert len(logged(run, "validated")) >= 2
    assert any(c["operator"] == "crossover" for c in logged(run, "candidate"))


async def test_a_limit_that_pays_for_no_race_keeps_the_start() -> None:
    best, run = await search(world(1).env, START, crosser(1), limits=Budget(task_calls=7))
    assert best.prompt == START and run.spent["task"] <= 7


async def test_prompts_of_several_costs_are_validated() -> None:
    _, run = await search(world(2).env, START, crosser(2), shots=0, steps=8, population=8)
    measured = [value["validation"] for value in logged(run, "validated")]
    held = [words_in(value["messages"][0][1]) for value in logged(run, "validated")]
    assert len(measured) >= 4 and len({frozenset(words) for words in held}) == len(held)


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.mo_capo.Config(steps=3, population=4),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: the front of a world whose true front is known, by a writer that knows nothing.


@cache
def reached(method: str, calls: int, seeds: int) -> list[float]:
    """Worlds that nobody had looked at when sizes were chosen."""
    return [shares_of(seed, EVOLVED[method](seed, calls))[0] for seed in range(100, 100 + seeds)]


@pytest.mark.long
def test_it_finds_more_of_the_front_than_random_search_and_loses_without_its_race() -> None:
    own = reached("mo_capo", 1800, 12)
    won_over("capo, the climb of one number", own, reached("capo", 1800, 12))
    for other in ("random search", "mo_capo, no race"):
        won = won_over(other, own, reached(other, 1800, 12))
        assert won.low > 0, won
