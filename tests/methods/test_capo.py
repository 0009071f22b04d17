"""CAPO: operators of instructions and demonstrations, the length penalty, the race, and what demonstrations are worth in it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.codes import DEMONSTRATIONS_ALONE, START, codes_world, joining, shown_rows

import whet
from whet.environments.environment import Environment
from whet.methods.capo import Config, capo, penalty
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.demonstrations import Demonstration, cross_demonstrations, mutate_demonstrations
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world

CONFORMANCE = {"steps": 2, "population": 3, "crossovers": 2, "block": 6, "blocks": 2, "shots": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 1, "population": 2, "crossovers": 1, "shots": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

DEMOS = [Demonstration(f"row{i}", f"question {i}", str(i)) for i in range(8)]


def test_a_child_has_as_many_demonstrations_as_its_parents_have_on_average() -> None:
    rng = random.Random(0)
    made = [cross_demonstrations(rng, DEMOS[:4], DEMOS[3:6]) for _ in range(200)]
    assert {len(one) for one in made} == {3}
    assert {demo.row for one in made for demo in one} == {f"row{i}" for i in range(6)}
    assert all(len({demo.row for demo in one}) == 3 for one in made)
    assert cross_demonstrations(rng, [], DEMOS[:1]) == []


def test_a_demonstration_comes_goes_or_none_does_each_in_a_third_of_the_draws() -> None:
    """In the paper's repository a later branch undoes the first one: none ever came."""
    rng = random.Random(0)
    sizes = Counter(len(mutate_demonstrations(rng, DEMOS[:2], DEMOS, 5)) for _ in range(3000))
    assert [sizes[n] / 3000 for n in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.04)
    assert {len(mutate_demonstrations(rng, DEMOS[:5], DEMOS, 5)) for _ in range(99)} == {4, 5}
    assert {len(mutate_demonstrations(rng, [], DEMOS, 5)) for _ in range(99)} == {0, 1}
    orders = {
        tuple(d.row for d in one)
        for _ in range(99)
        if len(one := mutate_demonstrations(rng, DEMOS[:3], [], 3)) == 3
    }
    assert len(orders) == 6


def test_the_penalty_grows_with_the_length() -> None:
    env = review_world()
    ten, forty = Prompt.parse("x" * 40), Prompt.parse("x" * 160)
    assert penalty(env, ten, 20, 0.05) == pytest.approx(0.025)
    assert penalty(env, forty, 20, 0.05) == pytest.approx(0.1)


async def search(
    env: Environment | None = None, start: Prompt = START, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or codes_world(0).env, joining(0)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    small = {"population": 4, "crossovers": 3, "steps": 2, "block": 10, "blocks": 3}
    return await capo(run, env, LanguagePolicy(), start, Config(**(small | settings))), model, run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_a_child_is_joined_from_two_parents_and_then_reworded() -> None:
    _, model, _ = await search()
    assert [q.count("<INSTRUCTION>\n") for q in model.questions] == [0] * 3 + [2, 1] * 6
    assert len({request.sample for request in model.requests}) == 15


async def test_no_row_of_a_race_is_shown_as_a_demonstration() -> None:
    env = codes_world(0).env
    model = Answers(lambda q, s: "1")
    await search(replace(env, model=model), steps=4)
    shown = {row for q in model.questions for row, _ in shown_rows(q)}
    answered = {q.rpartition("Question: ")[2] for q in model.questions if shown_rows(q)}
    assert shown and not shown & answered


async def test_with_no_demonstrations_wanted_none_are_shown() -> None:
    _, _, run = await search(shots=0)
    assert not any(shown_rows(c["messages"][0][1]) for c in logged(run, "candidate"))


async def test_a_prompt_with_demonstrations_alone_gets_demonstrations_alone() -> None:
    best, model, _ = await search(start=DEMONSTRATIONS_ALONE)
    assert model.questions == [] and shown_rows(best.prompt.text)
    assert best.prompt.restore("demonstrations", DEMONSTRATIONS_ALONE) == DEMONSTRATIONS_ALONE


async def test_where_the_model_writes_nothing_demonstrations_evolve_alone() -> None:
    env = codes_world(0).env
    run = MeteredRun({"task": env.model, "optimizer": Answers(lambda q, s: "")})
    best = await capo(run, env, LanguagePolicy(), START, Config(steps=3, population=4, block=20, blocks=2))
    assert len(shown_rows(best.prompt.text)) > 1
    assert best.prompt.region_text("instructions") == START.region_text("instructions")


async def test_flat_scores_leave_the_start() -> None:
    best, _, _ = await search(replace(codes_world(0).env, reward=ConstantReward(0.5)))
    assert best.prompt == START


async def test_a_larger_penalty_makes_shorter_prompts() -> None:
    """Most of what this optimizer writes is padding that no question needs."""

    def padded(question: str, sample: int) -> str:
        return str(joining(0).answer(question, sample)).replace(
            "</", f"\n{'Mind this. ' * (sample % 5 * 6)}</"
        )

    env, sizes = codes_world(0).env, []
    for gamma in (0.0, 0.5):
        run = MeteredRun({"task": env.model, "optimizer": Answers(padded)})
        settings = Config(gamma=gamma, shots=0, population=4, steps=6, block=40, blocks=2)
        await capo(run, env, LanguagePolicy(), START, settings)
        texts = [c["messages"][0][1] for c in logged(run, "candidate") if c["operator"] == "crossover"]
        sizes.append(sum(text.count("Mind this.") for text in texts) / len(texts))
    assert sizes[1] < sizes[0] / 2


@pytest.mark.parametrize("most", [150, 300])
async def test_a_small_limit_is_kept_and_used(most: int) -> None:
    limits = Budget(task_calls=most, optimizer_calls=20)
    _, _, run = await search(limits=limits, **vars(Config()))
    assert 0.6 * most <= run.spent["task"] <= most and 6 <= run.spent["optimizer"] <= 20
    assert len(logged(run, "validated")) >= 2
    assert {"start", "induced", "crossover"} <= {c["operator"] for c in logged(run, "candidate")}


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.capo.Config(steps=3, population=4),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# Contests: rules that an optimizer guesses, and demonstrations that say what it does not know.

SEEDS = range(12)
LIMITS = {
    "large": Budget(task_calls=1500, optimizer_calls=90),
    "small": Budget(task_calls=300, optimizer_calls=20),
}


def world(seed: int) -> KnownWorld:
    return replace(codes_world(seed), optimizer=joining(seed))


@cache
def reached(limits: str, method: str = "capo", **settings: Any) -> list[float]:
    return [play_world(method, world(seed), seed, LIMITS[limits], settings) for seed in SEEDS]


def test_without_demonstrations_it_loses() -> None:
    won = paired_difference(reached("small"), reached("small", shots=0))
    print(f"small: demonstrations earn {won}")
    assert won.low > 0, won


@pytest.mark.long
@pytest.mark.parametrize("limits", LIMITS)
def test_against_others_and_without_its_parts(limits: str) -> None:
    for method in ("random_search", "bootstrap", "evoprompt"):
        won = paired_difference(reached(limits), reached(limits, method))
        print(f"{limits}: over {method}: {won}")
        assert won.low > (0 if limits == "large" else -0.05), (method, won)
    for part in ("shots", "alpha", "gamma"):
        print(f"{limits}: {part} earns {paired_difference(reached(limits), reached(limits, **{part: 0}))}")
