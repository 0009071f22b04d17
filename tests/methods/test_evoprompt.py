"""EvoPrompt: what the operator is shown, who survives, and that selection by scores is what wins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.readers import SHOWN, Crosser, Unscored
from tests.methods.test_opro import PLAIN

import whet
from whet.errors import UsageError
from whet.methods.evoprompt import Config, check, evoprompt
from whet.models.scripted import load
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world

CONFORMANCE = {"steps": 2, "population": 4, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 1, "population": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
ENV = review_world(train=20, validation=10)


def numbered(question: str, sample: int) -> str:
    """An optimizer that writes a new text each time, helpful words among them now and then."""
    words = ("carefully", "evidence", "tone", "single", "plainly")
    return f"<INSTRUCTION>Text {sample}: sort {words[sample % 5]}.</INSTRUCTION>"


async def search(
    answer: Callable[[str, int], Any] = numbered,
    env: Any = ENV,
    limits: Budget | None = None,
    **settings: Any,
) -> tuple[Candidate, Answers, MeteredRun]:
    model = Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    return await evoprompt(run, env, LanguagePolicy(), START, Config(**settings)), model, run


def candidates(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "candidate"]


async def test_the_first_generation_is_induced_and_paraphrased_by_turns() -> None:
    _, model, _ = await search(steps=0, population=4, induced=4)
    paraphrases, induced = model.questions[::2], model.questions[1::2]
    assert all(START.region_text() in q and "Wanted:" not in q for q in paraphrases)
    assert all(len(re.findall(r"^Wanted: ", q, re.M)) == 4 and START.region_text() not in q for q in induced)
    _, model, _ = await search(steps=0, population=4, induced=0)
    assert not any("Wanted:" in q for q in model.questions)


@pytest.mark.parametrize(("algorithm", "shown"), [("ga", 2), ("de", 4)])
async def test_the_operator_is_shown_prompts_of_the_population(algorithm: str, shown: int) -> None:
    _, model, run = await search(steps=2, population=5, algorithm=algorithm)
    teams = [SHOWN.findall(question) for question in model.questions[5:]]
    assert {len(team) for team in teams} == {shown} and len(teams) == 10
    texts = {Prompt.parse(value["messages"][0][1]).region_text().strip() for value in candidates(run)}
    assert {text for team in teams for text in team} <= texts
    pairs = [team[:2] for team in teams]
    assert all(len(set(pair)) == 2 for pair in pairs), "a text was crossed with itself"


async def test_in_de_each_prompt_has_one_child_to_beat_and_the_best_gives_its_parts() -> None:
    _, model, run = await search(steps=1, population=5, algorithm="de")
    teams = [SHOWN.findall(question) for question in model.questions[5:]]
    first = [
        (v["train"], Prompt.parse(v["messages"][0][1]).region_text().strip()) for v in candidates(run)[:6]
    ]
    assert len({team[3] for team in teams}) == 5
    assert {team[2] for team in teams} == {max(first, key=lambda pair: (pair[0], -len(pair[1])))[1]}


async def test_the_best_of_parents_and_children_survive() -> None:
    """With children that are all worse, the second generation breeds from the first."""

    def worse(question: str, sample: int) -> str:
        return (
            numbered(question, sample)
            if sample < 4
            else f"<INSTRUCTION>Guess, be quick {sample}.</INSTRUCTION>"
        )

    for algorithm in ("ga", "de"):
        _, model, _ = await search(worse, steps=3, population=4, algorithm=algorithm)
        assert not any("Guess, be quick" in text for q in model.questions for text in SHOWN.findall(q))


@pytest.mark.parametrize("diversity", ["half", "bandit"])
async def test_diversity_chooses_survivors_and_needs_ga(diversity: Any) -> None:
    _, _, run = await search(steps=3, population=4, diversity=diversity)
    figures: list[Any] = [value for name, value in run.logged if name == "diversity"]
    assert len(figures) == 3 and all(0 <= one["determinant"] <= 1 for one in figures)
    assert {one["weight"] for one in figures} <= ({0.5} if diversity == "half" else {0.0, 0.5})
    with pytest.raises(UsageError, match="Take algorithm=ga"):
        check(ENV, Config(diversity=diversity, algorithm="de"))


async def test_equal_texts_are_scored_once_and_requests_have_numbers_of_their_own() -> None:
    _, model, run = await search(
        lambda q, s: "<INSTRUCTION>Always the same.</INSTRUCTION>", steps=3, population=4
    )
    assert len(model.requests) == 16 == len({request.sample for request in model.requests})
    assert run.spent["task"] == 2 * 20 + 2 * 10


async def test_an_induced_text_that_copies_an_input_is_dropped() -> None:
    text = "A review of a place that nobody but us has ever been to."
    copied = replace(ENV.train[0], values={"input": text}, text=text)
    env = replace(ENV, train=(copied, *ENV.train[1:]))
    _, _, run = await search(
        lambda q, s: f"<INSTRUCTION>{s} {text}</INSTRUCTION>", env, steps=0, population=4
    )
    assert [value["operator"] for value in candidates(run)] == ["start", "paraphrase", "paraphrase"]


@pytest.mark.parametrize("algorithm", ["ga", "de"])
@pytest.mark.parametrize("value", [0.0, 0.5])
async def test_flat_scores_leave_the_start(algorithm: str, value: float) -> None:
    env = replace(ENV, reward=ConstantReward(value), labels={})
    best, _, _ = await search(env=env, steps=2, population=3, algorithm=algorithm)
    assert best.prompt == START


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_generations_and_are_used(most: int) -> None:
    limits = Budget(task_calls=most, optimizer_calls=16)
    _, _, run = await search(env=review_world(train=40, validation=20), limits=limits)
    assert {"paraphrase", "ga"} <= {value["operator"] for value in candidates(run)}
    assert sum(name == "validated" for name, _ in run.logged) >= 2
    assert 0.6 * most < run.spent["task"] <= most


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.evoprompt.Config(steps=2, population=4),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: the optimizer crosses the texts that it is shown, and knows nothing of their worth.

SEEDS = range(12)
LIMITS = {
    "large": Budget(task_calls=1500, optimizer_calls=90),
    "small": Budget(task_calls=300, optimizer_calls=20),
}


def crossing(seed: int, blind: bool = False) -> KnownWorld:
    """Eight words help, five hinder. Optimizer and random search know the same phrases. `blind`: training scores say nothing."""
    words = {
        "words": "carefully,evidence,tone,negations,irony,precise,literally,facts",
        "harmful": "expert,step,explain,brief,likely",
    }
    model: Any = load("labels", {**words, "harm": "0.08", "base": "0.4", "seed": str(seed)})
    env = review_world(model, train=80, validation=30)
    env = replace(env, reward=Unscored()) if blind else env
    crosser: Any = Crosser("crosser", {"seed": str(seed)})
    return KnownWorld(env, PLAIN, lambda p: model.accuracy(p.source), crosser)


@cache
def reached(method: str, limits: str, blind: bool = False, algorithm: str = "ga") -> list[float]:
    """What a method finds in the world of each seed; random search edits as often as the optimizer has rounds for."""
    settings = {"edits": 16} if method == "random_search" else {"algorithm": algorithm}
    return [play_world(method, crossing(seed, blind), seed, LIMITS[limits], settings) for seed in SEEDS]


@pytest.mark.parametrize(
    ("limits", "algorithm"),
    [
        ("small", "ga"),
        ("small", "de"),
        *(pytest.param("large", a, marks=pytest.mark.long) for a in ("ga", "de")),
    ],
)
def test_with_scores_that_say_nothing_it_loses(limits: str, algorithm: str) -> None:
    own, blind = (reached("evoprompt", limits, blind, algorithm) for blind in (False, True))
    won = paired_difference(own, blind)
    print(f"{algorithm}, {limits}: selection by scores earns {won}")
    assert won.low > 0, won


@pytest.mark.long
def test_it_beats_random_search() -> None:
    won = paired_difference(reached("evoprompt", "large"), reached("random_search", "large"))
    print(f"over random search: {won}")
    assert won.low > 0.05, won
