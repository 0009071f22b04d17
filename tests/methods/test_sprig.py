"""SPRIG: what components are tried, what is remembered of them, and that the bound finds the good ones."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.test_opro import PLAIN

import whet
from whet.methods.sprig import ComponentEdit, ComponentPool, Config, over_tasks, sprig
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.population import Individual
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world
from whet.testing.simulators import load
from whet.types import Example, Rollout

CONFORMANCE = {"rounds": 3, "beam": 2, "candidates": 6, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 1, "beam": 1, "candidates": 4, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def sentences(question: str, sample: int) -> str:
    """An optimizer that writes six stock sentences for each kind, and adds a word for another wording."""
    if "<WORDING>" in question:
        part = question.split("Each must fit in its place:\n")[1].split("\n")[0].strip()
        return f"<WORDING>{part} Please.</WORDING>"
    return "".join(f"<SENTENCE>{PHRASES[(6 * sample + i) % len(PHRASES)]}</SENTENCE>" for i in range(6))


async def search(
    env: Any = None, answer: Any = sentences, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    small = {"rounds": 6, "beam": 3, "candidates": 12, "examples": 20}
    return await sprig(run, env, LanguagePolicy(), START, Config(**(small | settings))), model, run


def candidates(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "candidate"]


async def test_half_of_the_edits_add_and_all_kinds_occur() -> None:
    _, model, run = await search(candidates=40, rounds=4)
    operators = [value["operator"] for value in candidates(run)]
    assert {"add", "delete", "swap", "substitute"} <= set(operators)
    assert sum("<SENTENCE>" in q for q in model.questions) == 9
    assert 20 < sum("<WORDING>" in q for q in model.questions) <= 4 * 10
    assert len({(r.sample, q) for r, q in zip(model.requests, model.questions, strict=True)}) == len(
        model.requests
    )


def pool(**settings: Any) -> ComponentPool:
    return ComponentPool(review_world(), LanguagePolicy(), START, Config(**settings))


def test_a_component_is_judged_by_its_mean_gain_and_how_often_it_was_tried() -> None:
    one = pool()
    one.gains = {"good": [0.3, 0.3], "bad": [-0.3, -0.3], "rare": [0.0], "new": []}
    # bounds by hand, N = 5: good .3 + sqrt(2 ln 5 / 2) = 1.57, rare sqrt(2 ln 5) = 1.79, bad -.3 + 1.27 = .97
    assert one.promising(MemoryRun()) == ["new", "rare", "good", "bad"]
    orders = {tuple(replace_choice(one).promising(MemoryRun(seed=seed))) for seed in range(20)}
    assert len(orders) > 5


def replace_choice(one: ComponentPool) -> ComponentPool:
    return replace(one, config=Config(choice="random"))


def edit(name: str, source: str, sign: int, wording: str = "") -> ComponentEdit:
    child = Individual(Candidate(Prompt.parse(name)), (name,))
    return ComponentEdit(child, Prompt.parse("parent").id, source, sign, wording)


def test_gains_are_those_against_the_parent_and_paraphrases_share_their_source() -> None:
    one, ids = pool(), {name: Prompt.parse(name).id for name in ("parent", "added", "gone", "said")}
    fitness = {ids["parent"]: 0.5, ids["added"]: 0.7, ids["gone"]: 0.4, ids["said"]: 0.9}
    one.learn([edit("added", "x", 1), edit("gone", "y", -1), edit("said", "x", 0, "x anew")], fitness)
    assert one.gains == {"x": [pytest.approx(0.2)], "y": [pytest.approx(0.1)]}
    assert one.origin == {"x anew": "x"}


def test_each_task_counts_alike() -> None:
    rows = [Example(str(i), {}, "a", {"task": "big" if i < 3 else "small"}) for i in range(4)]
    rollouts = [Rollout("p", str(i), "a", float(i == 3)) for i in range(4)]
    assert over_tasks(rows, rollouts, "task") == 0.5
    assert over_tasks(rows, rollouts, "") == 0.25
    assert over_tasks(rows, rollouts, "no such column") == 0.25


async def test_the_best_prompt_is_never_lost_between_rounds() -> None:
    """The published code keeps the new prompts only."""
    best, _, run = await search(rounds=12)
    validated: list[Any] = [value for name, value in run.logged if name == "validated"]
    means = {value["id"]: value["validation"] for value in validated}
    assert means[best.id] == max(means.values())
    assert best.prompt != START


async def test_without_a_usable_component_the_sentences_of_the_start_are_edited() -> None:
    best, _, run = await search(answer=lambda q, s: "")
    assert {"swap", "delete"} & {value["operator"] for value in candidates(run)}
    assert best.prompt.edit(START.region_text()) == START


async def test_flat_scores_leave_the_start() -> None:
    best, _, _ = await search(replace(review_world(), reward=ConstantReward(0.5), labels={}))
    assert best.prompt == START


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_are_kept_and_used(most: int) -> None:
    limits = Budget(task_calls=most, optimizer_calls=16)
    env = review_world(train=40, validation=20)
    _, _, run = await search(env, limits=limits, **vars(Config()))
    assert 0.6 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 16
    assert sum(name == "validated" for name, _ in run.logged) >= 2


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [
        {"input": row.user_text, "target": row.target, "task": "a"} for row in review_world(train=60).train
    ]
    result = whet.optimize(
        re.sub("Be quick.*", "Be quick.", SOURCE),
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.sprig.Config(rounds=4, beam=3, candidates=12, task="task"),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: 24 sentences, of which eight help and five do harm.

SEEDS, LIMITS = range(12), Budget(task_calls=3000, optimizer_calls=200)


def stock(seed: int) -> KnownWorld:
    words = {
        "words": "carefully,evidence,tone,negations,irony,precise,literally,facts",
        "harmful": "expert,step,explain,brief,likely",
    }
    model: Any = load("labels", {**words, "harm": "0.08", "base": "0.4", "seed": str(seed)})
    env = review_world(model, train=80, validation=30)
    return KnownWorld(env, PLAIN, lambda p: model.accuracy(p.source), Answers(sentences))


@cache
def reached(method: str, **settings: Any) -> list[float]:
    return [play_world(method, stock(seed), seed, LIMITS, settings) for seed in SEEDS]


@pytest.mark.long
def test_with_any_components_added_it_loses() -> None:
    won = paired_difference(reached("sprig"), reached("sprig", choice="random"))
    print(f"what is remembered of components earns {won}")
    assert won.low > 0, won


@pytest.mark.long
def test_it_beats_random_search() -> None:
    won = paired_difference(reached("sprig"), reached("random_search", edits=16))
    print(f"over random search: {won}")
    assert won.low > 0.1, won
