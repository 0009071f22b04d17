"""Plum: what each strategy breeds from, moves to and remembers, and that scores are what wins."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.readers import Unscored
from tests.methods.test_grips import LAW, SOURCE, START, clean_up

import whet
from whet.methods.plum import Config, Search, plum
from whet.models.scripted import load
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Archive, Candidate
from whet.search.phrase_search import join_pieces, segments
from whet.search.population import Individual
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, ConstantReward, review_world

CONFORMANCE = {"iterations": 3, "candidates": 3, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "candidates": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

STRATEGIES = ("hc", "sa", "ga_m", "ga_c", "ts", "hs")
SMALL = {"iterations": 8, "candidates": 5, "examples": 20}


async def search(
    env: Any = None, optimizer: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or review_world(load("labels", LAW))
    run = MeteredRun({"task": env.model, "optimizer": optimizer}, limits=limits)
    policy = LanguagePolicy() if optimizer else None
    return await plum(run, env, policy, START, Config(**(SMALL | settings))), run


def candidates(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "candidate"]


def generations(run: MeteredRun, width: int) -> list[list[Any]]:
    """What was scored after the start, by round, where every round scores `width` texts."""
    made = candidates(run)[1:]
    return [made[at : at + width] for at in range(0, len(made), width)]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_every_strategy_cleans_up_without_a_model(strategy: str) -> None:
    model: Any = load("labels", LAW)
    best, run = await search(review_world(model), strategy=strategy, iterations=25, candidates=8, patience=25)
    assert model.accuracy(best.prompt.source) > model.accuracy(SOURCE) + 0.2
    assert run.spent["optimizer"] == 0
    assert best.prompt.edit(START.region_text()) == START


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_equal_texts_are_scored_once_and_flat_scores_end_by_patience(strategy: str) -> None:
    env = replace(review_world(train=20, validation=10), reward=ConstantReward(0.5), labels={})
    best, run = await search(env, strategy=strategy, iterations=50, patience=3)
    ids = [value["id"] for value in candidates(run)]
    assert len(ids) == len(set(ids)) <= 1 + 3 * 5
    assert best.prompt == START


async def test_hill_climbing_edits_the_best_text_and_the_genetic_algorithm_any_that_was_kept() -> None:
    _, run = await search(strategy="hc")
    trained = {START.id: 0.0} | {value["id"]: value["train"] for value in candidates(run)}
    for value in candidates(run)[1:]:
        (parent,) = value["parents"]
        before = [v["train"] for v in candidates(run)[: candidates(run).index(value)]]
        assert trained[parent] >= sorted(before)[-1] - 0.3
    _, run = await search(strategy="ga_m", tournament=1, iterations=20, patience=20)
    parents = {value["parents"][0] for value in candidates(run)[10:]}
    assert len(parents) > 3, "a tournament of one is a random draw from all that was kept"


async def test_crossover_has_two_parents_and_harmony_several() -> None:
    for strategy, most in (("ga_c", 2), ("hs", 5)):
        _, run = await search(strategy=strategy, iterations=12, patience=12)
        numbers = {len(value["parents"]) for value in candidates(run)[1:]}
        assert max(numbers) > 1 and numbers <= set(range(1, most + 1))


async def test_tabu_search_leaves_a_text_from_which_nothing_is_better() -> None:
    """Every edit of this text is worse: hill climbing stays, tabu search goes on from what it moved to."""
    law = {"words": "amber,birch,cedar,delta", "base": "0.4"}
    env = review_world(load("labels", law))
    start = Prompt.parse("{{input}}\n<!-- whet:begin -->\namber, birch, cedar, delta\n<!-- whet:end -->")
    for strategy, moves in (("hc", False), ("ts", True)):
        run = MeteredRun({"task": env.model})
        settings = Config(strategy=strategy, iterations=4, candidates=3, patience=9)  # type: ignore[arg-type]
        await plum(run, env, None, start, settings)
        parents = {value["parents"][0] for value in candidates(run)[1:]}
        assert (parents != {start.id}) == moves


def known(text: str, *deleted: str) -> Individual[tuple[str, ...]]:
    prompt = START.edit(text)
    return Individual(Candidate(prompt), deleted, 1.0)


async def test_only_phrases_deleted_from_a_text_or_its_parents_come_back() -> None:
    """A phrase that was deleted from another text is not at hand."""
    search = Search(review_world(), Archive(), START, Config(strategy="hc"), [])
    one, other = known("Read it. Sort it. Say so.", "from one"), known("Look. Weigh. Answer.", "from another")
    made = await search.propose(MemoryRun(), None, one, [one, other], range(60))
    texts = [search.text(child) for child in made]
    assert any("from one" in text for text in texts) and not any("from another" in text for text in texts)
    gone = [child for child in made if "Sort it" not in search.text(child)]
    assert gone and all("Sort it" in child.genome for child in gone)


async def test_a_child_of_the_same_parent_twice_is_always_mutated() -> None:
    search = Search(review_world(), Archive(), START, Config(strategy="ga_c", rate=1.0, tournament=1), [])
    one, other = known("Read it. Sort it. Say so."), known("Look here. Weigh all. Answer it.")
    alone = await search.propose(MemoryRun(), None, one, [one], range(20))
    assert search.text(one) not in [search.text(child) for child in alone]
    crossed = {search.text(c) for c in await search.propose(MemoryRun(), None, one, [one, other], range(80))}
    assert "Read it. Weigh all. Answer it." in crossed and "Read it. Sort it. Answer it." in crossed


def test_segments_cover_the_text() -> None:
    text = "Read it. Sort it, then say so. Done."
    for k in range(1, 9):
        assert "".join(segments(text, k)) == text
    assert segments(text, 2) == ["Read it. Sort it, ", "then say so. Done."]
    assert segments("{{input}}", 3) == ["{{input}}"]
    assert join_pieces(["One.", "Two. ", "Three"]) == "One. Two. Three"


async def test_substitutes_come_from_the_optimizer() -> None:
    model = Answers(lambda q, s: "<WORDING>softly now</WORDING>")
    for strategy in ("ga_m", "hs"):
        _, run = await search(optimizer=model, strategy=strategy)
        assert run.spent["optimizer"] > 3
        assert any("softly now" in value["messages"][0][1] for value in candidates(run))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_rounds_and_are_kept(strategy: str, most: int) -> None:
    env = review_world(load("labels", LAW), train=40, validation=20)
    _, run = await search(env, limits=Budget(task_calls=most), **(vars(Config()) | {"strategy": strategy}))
    assert 0.5 * most < run.spent["task"] <= most
    assert sum(name == "validated" for name, _ in run.logged) >= 2


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels?words=carefully,evidence,tone,single&harmful=guess,quick,hurry&base=0.4",
        method=whet.methods.plum.Config(strategy="hs", iterations=10),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: the start holds four helpful and six harmful phrases.

SEEDS, LIMITS = range(10), Budget(task_calls=2000)


def untold(seed: int) -> KnownWorld:
    """The same world with training scores that say nothing."""
    world = clean_up(seed)
    return replace(world, env=replace(world.env, reward=Unscored(), labels={}))


@cache
def reached(strategy: str, told: bool = True) -> list[float]:
    world = clean_up if told else untold
    return [play_world("plum", world(seed), seed, LIMITS, {"strategy": strategy}) for seed in SEEDS]


@pytest.mark.parametrize(
    "strategy", [s if s == "ga_m" else pytest.param(s, marks=pytest.mark.long) for s in STRATEGIES]
)
def test_with_scores_that_say_nothing_it_loses(strategy: str) -> None:
    won = paired_difference(reached(strategy), reached(strategy, told=False))
    print(f"{strategy}: scores earn {won}")
    assert won.low > 0.05, won


@pytest.mark.long
def test_against_random_search_and_grips() -> None:
    drawn = [play_world("random_search", clean_up(seed), seed, LIMITS) for seed in SEEDS]
    greedy = {"iterations": 30, "patience": 5}
    grips = [play_world("grips", clean_up(seed), seed, LIMITS, greedy) for seed in SEEDS]
    for strategy in STRATEGIES:
        won = paired_difference(reached(strategy), drawn)
        print(
            f"{strategy}: over random_search {won}, over grips {paired_difference(reached(strategy), grips)}"
        )
        assert won.low > 0, (strategy, won)
