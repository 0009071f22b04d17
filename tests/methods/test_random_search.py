"""Random search: the control draws from the right space, counts its prompts, does not crown the luckiest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.simulated import load as simulated

from whet.methods.random_search import Config, random_search
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Completion, Example, Reward

CONFORMANCE = {"n": 10, "batch": 8, "finalists": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"n": 3, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


async def search(
    env: Any, seed: int = 0, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    run = MeteredRun({"task": env.model}, seed, limits=limits)
    return await random_search(run, env, None, START, Config(**settings)), run


def texts(run: MeteredRun) -> list[str]:
    """Editable texts of all candidates but the start."""
    found: list[Any] = [value for name, value in run.logged if name == "candidate"]
    return [Prompt.parse(value["messages"][0][1]).region_text() for value in found[1:]]


async def test_token_prompts_are_words_of_the_vocabulary() -> None:
    env = review_world(simulated("scorer"), scores=True)
    best, run = await search(env, n=40, batch=16, length=3, vocabulary=8)
    words = {word for text in texts(run) for word in text.split()}
    assert (
        words <= {"the", "visit", "was", "good", "bad", "lovely", "awful", "fine", "dull", "soup"}
        and len(words) == 8
    )
    assert {len(text.split()) for text in texts(run)} == {3}
    assert len(set(texts(run))) == 40
    assert best.prompt.edit(START.region_text()) == START


async def test_phrase_prompts_are_edits_of_the_start() -> None:
    best, run = await search(review_world(), n=30, edits=1)
    assert len(set(texts(run))) == 30
    own = set(START.region_text().replace(".", "").replace(",", "").split())
    stock = {word.strip(".,") for phrase in PHRASES for word in phrase.split()}
    assert {word.strip(".,") for text in texts(run) for word in text.split()} <= own | stock
    assert best.operator in ("random", "start")


async def test_every_prompt_is_scored_on_the_same_training_examples() -> None:
    env = review_world(train=24, validation=10)
    _, run = await search(env, n=20, batch=8, finalists=2)
    validated = sum(name == "validated" for name, _ in run.logged)
    assert run.spent["task"] == 21 * 24 + validated * 10


async def test_a_used_up_space_ends_the_search() -> None:
    env = replace(review_world(simulated("scorer"), scores=True), train=review_world().train[:1])
    _, run = await search(env, n=1000, length=1, vocabulary=4)
    assert len(texts(run)) == 4


async def test_finds_good_words_for_a_scoring_model() -> None:
    model: Any = simulated("scorer")
    words = ",".join(model.weights)
    env = review_world(model, scores=True, train=60)
    env = replace(
        env,
        train=tuple(
            Example(f"w{i}", {"input": f"good {w}"}, "positive", text=f"{w} {words}")
            for i, w in enumerate(model.weights)
        ),
    )
    best, _ = await search(env, n=200, length=4, vocabulary=40)
    assert model.quality(best.prompt.region_text()) > 1.0


class Lucky(ExactMatch):
    """A reward that finds one text good on training rows only and another one good everywhere."""

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        lucky = "Be brief." in completion.text and not example.id.startswith("review-10")
        return Reward(1.0 if lucky else 0.6 if "Mind the tone." in completion.text else 0.0)


async def test_the_winner_on_training_examples_is_not_crowned() -> None:
    model = Answers(lambda question, sample: question)
    env = replace(review_world(model), reward=Lucky(), labels={})  # type: ignore[arg-type]
    best, run = await search(env, n=200, edits=2, finalists=40)
    leader: Any = max((v for n, v in run.logged if n == "candidate"), key=lambda v: v["train"])
    assert "Be brief." in leader["messages"][0][1]
    assert "Mind the tone." in best.prompt.region_text()
